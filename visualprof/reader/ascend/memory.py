"""Memory of a recording of torch_npu: allocations of operators."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Ids, Ints, Mask, Rows
from visualprof.reader.trace.builder import TraceBuilder

NO_TIME = -(2**62)


def add_operator_memory(
    builder: TraceBuilder,
    *,
    size: Ints,
    allocated_at: Ints,
    released_at: Ints,
    totals: dict[str, Ints],
    is_framework: Mask,
    device: Rows,
    event: Rows,
) -> None:
    """Add an allocation per row, and its release if it has one.

    Args:
        builder: Gets the memory events.
        size: (n,) bytes.
        allocated_at: (n,) ns, `NO_TIME` if before the recording.
        released_at: (n,) ns, `NO_TIME` if not released.
        totals: Totals (n,) by name, -1 if unknown: `allocated`, `reserved` after the allocation; `released_allocated`,
            `released_reserved` after the release.
        is_framework: (n,) whether the memory belongs to the framework's allocator, which counts the totals.
        device: (n,) device numbers.
        event: (n,) row of the operator that allocated the memory, -1 if unknown.
    """
    has_release = released_at > NO_TIME
    for sign, times, prefix, select in (
        (1, allocated_at, "", allocated_at > NO_TIME),
        (-1, released_at, "released_", has_release),
    ):
        builder.allocs(
            ts=times[select],
            bytes=sign * size[select],
            device=device[select],
            event=event[select] if sign > 0 else -1,
            allocated=np.where(is_framework, totals[f"{prefix}allocated"], -1)[select],
            reserved=np.where(is_framework, totals[f"{prefix}reserved"], -1)[select],
        )


def operators_at(names: Rows, at: Ints, op_names: Rows, op_ts: Ints, op_end: Ints, op_rows: Rows) -> Ids:
    """Return (n,) the row of the operator with that name that contains the time, -1 for none.

    Args:
        names: (n,) string ids of operators.
        at: (n,) times in ns.
        op_names: (m,) string ids.
        op_ts: (m,) start in ns.
        op_end: (m,) end in ns.
        op_rows: (m,) rows.
    """
    if not len(op_names):
        return np.full(len(names), -1, np.int32)
    order = np.lexsort((op_ts, op_names))
    op_names, op_ts, op_end, op_rows = op_names[order], op_ts[order], op_end[order], op_rows[order]
    used = np.flatnonzero(np.bincount(op_names))
    base = int(op_ts.min())
    width = int(op_end.max()) - base + 2
    keys = np.searchsorted(used, op_names) * width + (op_ts - base)
    wanted = np.searchsorted(used, names) * width + np.clip(at - base, 0, width - 1)
    index = np.searchsorted(keys, wanted, side="right") - 1
    chosen = np.maximum(index, 0)
    fits = (index >= 0) & (op_names[chosen] == names) & (op_ts[chosen] <= at) & (op_end[chosen] >= at)
    return np.where(fits, op_rows[chosen], -1).astype(np.int32)
