"""Lifetimes of blocks and ranges by the native library: `reader/native/heap.c`. The result equals that of `state`."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Array, c_int32, c_int64, c_void_p
from typing import Any

import numpy as np

from visualprof.reader.memory_snapshot.history import DeviceSnapshot, State
from visualprof.reader.memory_snapshot.rounding import Rounding
from visualprof.reader.native import INT32, INT64, UINT8, function
from visualprof.reader.trace.heap import BlockRows, RangeRows
from visualprof.reader.trace.types import Bytes, Ints, Values

MAX_ADDRESS = 2**61  # sums of an address and a size are then 64-bit numbers
_DIVISIONS = 16
_BLOCKS, _RANGES, _LOST = range(3)


def native_lifetimes(
    snapshot: DeviceSnapshot, actions: Bytes, rounding: Rounding, first: int
) -> tuple[RangeRows, BlockRows, int] | None:
    """Return ranges, blocks and the number of lost entries; `None` without the native library.

    Args:
        snapshot: History and final state of the device.
        actions: (n,) actions of the entries, with one kind of release if the recording skipped the other.
        rounding: Sizes of blocks.
        first: Number of the device's first entry.
    """
    columns = [UINT8, INT64, INT64, INT32, INT32, INT32, c_int64, INT64, c_int64, INT64, c_int64, INT64]
    run = function("vp_heap_lifetimes", c_void_p, *columns)
    entries, segments, blocks = snapshot.entries, _segments(snapshot), _live_blocks(snapshot)
    highest = max(int(column.max(initial=0)) for column in (entries.addr, entries.size, segments, blocks))
    if run is None or highest >= MAX_ADDRESS:
        return None
    arguments = (
        np.ascontiguousarray(actions, np.uint8),
        *(np.ascontiguousarray(column, np.int64) for column in (entries.addr, entries.size)),
        *(np.ascontiguousarray(column, np.int32) for column in (entries.stream, entries.pool, entries.stack)),
        len(entries),
        segments,
        len(segments),
        blocks,
        len(blocks),
        _numbers(rounding),
    )
    heap = run(*arguments)
    if not heap:
        return None
    try:
        count = function("vp_heap_count", c_int64, c_void_p, c_int32)
        assert count
        device, lost = snapshot.device, int(count(heap, _LOST))
        return (
            _ranges(heap, count(heap, _RANGES), device, first),
            _blocks(heap, count(heap, _BLOCKS), device, first),
            lost,
        )
    finally:
        _call("vp_heap_free", c_void_p)(heap)


def _call(name: str, *arguments: Any) -> Any:
    call = function(name, None, *arguments)
    assert call, "called only where it is compiled"
    return call


def _segments(snapshot: DeviceSnapshot) -> Ints:
    rows = snapshot.segments
    return _table(rows.addr, rows.size, rows.pool, rows.stream, rows.small, rows.expandable)


def _live_blocks(snapshot: DeviceSnapshot) -> Ints:
    rows = snapshot.blocks
    table = _table(rows.addr, rows.requested, rows.size, rows.state == State.PENDING, rows.stack)
    return np.ascontiguousarray(table[rows.state != State.INACTIVE])


def _table(*columns: Values) -> Ints:
    """Return a row-major table of the columns."""
    table = np.empty((len(columns[0]), len(columns)), np.int64)
    for number, column in enumerate(columns):
        table[:, number] = column
    return table


def _numbers(rounding: Rounding) -> Ints:
    divisions = [rounding.divisions.get(1 << power, 0) for power in range(_DIVISIONS)]
    return np.array([rounding.extra, rounding.max_split, *divisions], np.int64)


def _pointers(columns: Sequence[Values]) -> Array[c_void_p]:
    return (c_void_p * len(columns))(*(column.ctypes.data for column in columns))


def _empty(count: int, *kinds: Any) -> list[Values]:
    return [np.empty(count, kind) for kind in kinds]


def _blocks(heap: int, count: int, device: int, first: int) -> BlockRows:
    wide, narrow, flags = _empty(count, *[np.int64] * 6), _empty(count, *[np.int32] * 4), _empty(count, *[np.uint8] * 2)
    pointers = map(_pointers, (wide, narrow, flags))
    _call("vp_heap_blocks", c_void_p, c_void_p, c_void_p, c_void_p)(heap, *pointers)
    addr, size, requested, born, freed, died = wide
    pool, stream, stack, free_stack = narrow
    return BlockRows(
        device=np.full(count, device, np.int32),
        addr=addr,
        size=size,
        requested=requested,
        pool=pool,
        stream=stream,
        small=flags[0],
        exact=flags[1],
        born=born + first,
        freed=freed + first,
        died=died + first,
        stack=stack,
        free_stack=free_stack,
        role=np.zeros(count, np.int32),
    )


def _ranges(heap: int, count: int, device: int, first: int) -> RangeRows:
    wide, narrow, flags = _empty(count, *[np.int64] * 4), _empty(count, *[np.int32] * 2), _empty(count, *[np.uint8] * 2)
    pointers = map(_pointers, (wide, narrow, flags))
    _call("vp_heap_ranges", c_void_p, c_void_p, c_void_p, c_void_p)(heap, *pointers)
    addr, size, born, died = wide
    rows = np.flatnonzero(born < died)  # a range that lasts for no entry is never seen
    rows = rows[np.lexsort((addr[rows], born[rows]))]
    return RangeRows(
        device=np.full(len(rows), device, np.int32),
        addr=addr[rows],
        size=size[rows],
        pool=narrow[0][rows],
        stream=narrow[1][rows],
        small=flags[0][rows],
        expandable=flags[1][rows],
        born=born[rows] + first,
        died=died[rows] + first,
    )
