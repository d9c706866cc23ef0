"""Columns that a trace is built from, with their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from visualprof.reader.trace.types import Floats, Rows, Values

Dtypes = Mapping[str, type[np.generic]]
EVENT_DTYPES: Dtypes = {
    "ts": np.int64,
    "dur": np.int64,
    "name": np.int32,
    "category": np.uint8,
    "track": np.int32,
    "corr": np.int64,
    "row": np.int64,
}
ALLOC_DTYPES: Dtypes = {
    "ts": np.int64,
    "addr": np.uint64,
    "bytes": np.int64,
    "device": np.int32,
    "event": np.int64,
    "allocated": np.int64,
    "reserved": np.int64,
    "category": np.int32,
    "complete": np.bool_,
}
COUNTER_DTYPES: Dtypes = {"track": np.int32, "ts": np.int64, "value": np.float64}


def typed_columns(values: Mapping[str, Rows | Floats | int], dtypes: Dtypes, n: int) -> dict[str, Values]:
    """Return (n,) arrays of each column's type; a single value is broadcast without a copy."""
    arrays = {name: np.asarray(values[name], dtype) for name, dtype in dtypes.items()}
    return {name: a if a.shape == (n,) else np.broadcast_to(a, n) for name, a in arrays.items()}


def concatenate(parts: Sequence[dict[str, Values]], dtypes: Dtypes) -> dict[str, Values]:
    """Concatenate the parts. Each column is removed from the parts when it is done."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([np.zeros(0, dtypes[name]), *(part.pop(name) for part in parts)]) for name in dtypes}
