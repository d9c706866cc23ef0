"""Number the distinct texts among many byte ranges."""

from __future__ import annotations

from ctypes import c_char_p, c_int64

import numpy as np

from visualprof.reader.native import INT32, INT64, function
from visualprof.reader.trace.types import Ids, Ints


def number_texts(data: bytes, start: Ints, size: Ints) -> tuple[Ids, list[bytes]]:
    """Return a number per byte range, (n,), and the distinct texts in the order of their numbers."""
    numbers = np.empty(len(start), np.int32)
    assign = function("vp_run_texts", c_int64, c_char_p, INT64, INT64, c_int64, INT32, INT64)
    if assign is not None and len(start):
        first = np.empty(len(start), np.int64)
        count = assign(data, np.ascontiguousarray(start), np.ascontiguousarray(size), len(start), numbers, first)
        if count >= 0:
            rows = first[:count]
            ends = start[rows] + size[rows]
            return numbers, [data[a:b] for a, b in zip(start[rows].tolist(), ends.tolist(), strict=True)]
    texts: dict[bytes, int] = {}
    ranges = zip(start.tolist(), (start + size).tolist(), strict=True)
    numbers[:] = [texts.setdefault(data[a:b], len(texts)) for a, b in ranges]
    return numbers, list(texts)
