"""What several views need of a trace, worked out when the first of them asks."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import numpy as np

from visualprof.reader.trace import Trace

T = TypeVar("T")


def cached_on_trace(work: Callable[[Trace], T]) -> Callable[[Trace], T]:
    """The same function; of a trace that it has seen it gives what it gave before. An array of it cannot be written."""

    @wraps(work)
    def known(trace: Trace) -> T:
        if work not in trace.derived:
            found = work(trace)
            if isinstance(found, np.ndarray):
                found.flags.writeable = False
            trace.derived[work] = found
        return trace.derived[work]

    return known
