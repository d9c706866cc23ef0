"""Cache results that several views need of a trace on the trace itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import numpy as np

from visualprof.reader.trace import Trace

T = TypeVar("T")


def cached_on_trace(compute: Callable[[Trace], T]) -> Callable[[Trace], T]:
    """Return the function with its result cached on the trace. Cached arrays are read-only."""

    @wraps(compute)
    def cached(trace: Trace) -> T:
        if compute not in trace.derived:
            result = compute(trace)
            if isinstance(result, np.ndarray):
                result.flags.writeable = False
            trace.derived[compute] = result
        return trace.derived[compute]

    return cached
