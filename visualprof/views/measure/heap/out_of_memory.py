"""Reasons why an allocation failed: the request, the free memory that it could use, and the blocks in the way.

Source: the best-fit search of c10/cuda/CUDACachingAllocator.cpp, which looks for free memory of the same pool, stream
and size class only.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from visualprof.reader.memory_snapshot.rounding import LARGE_PAGE_BYTES, SMALL_BYTES, SMALL_SEGMENT_BYTES
from visualprof.reader.trace import Ints, Mask
from visualprof.reader.trace.heap import Heap
from visualprof.views.measure.heap.moment import Moment, moment, totals

# not_allocator: a free piece was large enough. fragmentation: the free pieces together were. other_pool: free memory of
# other pools, streams or sizes was. capacity: the memory is in use.
Cause = Literal["not_allocator", "fragmentation", "other_pool", "capacity"]
MIN_LARGE_SEGMENT_BYTES = 10 << 20


class Failure(NamedTuple):
    """A failed allocation.

    Attributes:
        entry: Number of the entry.
        needed: Bytes of the block.
        segment: Bytes that were asked of the device.
        device_free: Free bytes of the device.
        usable: Free bytes that the request could use.
        usable_pieces: Number of these pieces.
        largest_usable: Bytes of the largest one.
        elsewhere: Free bytes of other pools, streams or size classes.
        pending: Bytes that another stream may still use.
        cause: The cause.
        in_the_way: Rows of the fewest bytes of blocks that would make room if released; empty if none would.
        in_the_way_bytes: Their bytes.
    """

    entry: int
    needed: int
    segment: int
    device_free: int
    usable: int
    usable_pieces: int
    largest_usable: int
    elsewhere: int
    pending: int
    cause: Cause
    in_the_way: Ints
    in_the_way_bytes: int


def segment_bytes(needed: int) -> int:
    """Return the bytes that the allocator asks of the device for a block."""
    if needed <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if needed < MIN_LARGE_SEGMENT_BYTES:
        return LARGE_PAGE_BYTES
    return -(-needed // SMALL_SEGMENT_BYTES) * SMALL_SEGMENT_BYTES


def explain_failure(heap: Heap, device: int, entry: int) -> Failure:
    """Return why the allocation of an entry failed."""
    now = moment(heap, device, entry)
    needed = int(heap.entries.size[entry])
    usable_ranges = _usable_ranges(heap, now, entry, needed)
    is_usable = usable_ranges[now.gap_range]
    pieces = now.gap_bytes[is_usable]
    usable, elsewhere = int(pieces.sum()), int(now.gap_bytes[~is_usable].sum())
    in_the_way = _fewest_bytes_in_the_way(heap, now, usable_ranges, needed)
    return Failure(
        entry=entry,
        needed=needed,
        segment=segment_bytes(needed),
        device_free=int(heap.entries.addr[entry]),
        usable=usable,
        usable_pieces=len(pieces),
        largest_usable=int(pieces.max(initial=0)),
        elsewhere=elsewhere,
        pending=totals(heap, now).active - totals(heap, now).allocated,
        cause=failure_cause(needed, usable, int(pieces.max(initial=0)), elsewhere),
        in_the_way=in_the_way,
        in_the_way_bytes=int(heap.blocks.size[in_the_way].sum()),
    )


def failure_cause(needed: int, usable: int, largest: int, elsewhere: int) -> Cause:
    """Return why a request failed, in the order in which the allocator looks for memory. All in bytes."""
    if largest >= needed:
        return "not_allocator"
    if usable >= needed:
        return "fragmentation"
    return "other_pool" if elsewhere >= needed else "capacity"


def _usable_ranges(heap: Heap, now: Moment, entry: int, needed: int) -> Mask:
    """Return which ranges of a moment are of the pool, the stream and the size class of a request."""
    ranges, entries = heap.ranges, heap.entries
    usable = (ranges.stream[now.ranges] == entries.stream[entry]) & (
        ranges.small[now.ranges].astype(bool) == (needed <= SMALL_BYTES)
    )
    if entries.pool[entry] >= 0:  # torch 2.12
        return usable & (ranges.pool[now.ranges] == entries.pool[entry])
    default = np.flatnonzero((heap.tables.pool == 0).all(axis=1))
    return usable & np.isin(ranges.pool[now.ranges], np.append(default, -1))


def _fewest_bytes_in_the_way(heap: Heap, now: Moment, usable_ranges: Mask, needed: int) -> Ints:
    """Return consecutive blocks of one range that leave a free piece of the needed size if released.

    Two pointers over the blocks of each range; the cheapest group wins.
    """
    best, best_bytes = np.zeros(0, np.int64), -1
    for index in np.flatnonzero(usable_ranges & (heap.ranges.size[now.ranges] >= needed)).tolist():
        rows = now.blocks[now.range_of_block == index]
        addr, size = heap.blocks.addr[rows].tolist(), heap.blocks.size[rows].tolist()
        start = int(heap.ranges.addr[now.ranges[index]])
        ends = [start, *(a + s for a, s in zip(addr, size, strict=True))]  # where free memory before block i begins
        starts = [*addr, start + int(heap.ranges.size[now.ranges[index]])]  # where it ends
        first, held = 0, 0
        for last, block_bytes in enumerate(size):
            held += block_bytes
            while first < last and starts[last + 1] - ends[first + 1] >= needed:
                held -= size[first]
                first += 1
            if starts[last + 1] - ends[first] >= needed and (best_bytes < 0 or held < best_bytes):
                best, best_bytes = rows[first : last + 1], held
    return best
