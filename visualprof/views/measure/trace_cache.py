"""What several views need of a trace, worked out when the first of them asks."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import numpy as np

from visualprof.reader.trace import Trace

T = TypeVar("T")


def cached_on_trace(compute: Callable[[Trace], T]) -> Callable[[Trace], T]:
    """The same function; of a trace that it has seen it gives what it gave before. An array of it cannot be written."""

    @wraps(compute)
    def known(trace: Trace) -> T:
        if compute not in trace.derived:
            found = compute(trace)
            if isinstance(found, np.ndarray):
                found.flags.writeable = False
            trace.derived[compute] = found
        return trace.derived[compute]

    return known
