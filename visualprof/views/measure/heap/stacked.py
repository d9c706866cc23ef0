"""Tiles of stacked allocations over time: the memory of each category per bucket, and the largest blocks.

A tile has up to `TILE_BUCKETS` buckets of 2**level entries. Each bucket shows the moment at which most bytes are
requested, so no peak disappears at any zoom.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from visualprof.reader.trace import Ids, Ints, Trace
from visualprof.reader.trace.heap import Heap
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.heap.block_filter import BlockFilter, filtered_blocks
from visualprof.views.measure.heap.choice import heap_of
from visualprof.views.measure.heap.labels import BlockLabels, block_labels
from visualprof.views.measure.heap.moment import device_entries

TILE_BUCKETS = 256
MAX_TILE_BLOCKS = 2000
SMALLEST_SHARE = 512  # smaller blocks than this part of the peak have less than a pixel
MAX_CACHED_CURVES = 4


class HeldBytes(NamedTuple):
    """Bytes of a group of blocks or ranges after any entry, by two searches.

    Attributes:
        born: (n,) entries at which rows begin, ascending.
        born_bytes: (n + 1,) bytes of the first rows of `born`.
        died: (n,) entries at which rows end, ascending.
        died_bytes: (n + 1,) bytes of the first rows of `died`.
    """

    born: Ints
    born_bytes: Ints
    died: Ints
    died_bytes: Ints

    def at(self, entries: Ints) -> Ints:
        """Return the bytes after each entry."""
        begun = self.born_bytes[np.searchsorted(self.born, entries, side="right")]
        return begun - self.died_bytes[np.searchsorted(self.died, entries, side="right")]


class StackedBlocks(NamedTuple):
    """Data for the tiles of one device and one filter.

    Attributes:
        first: First entry of the device.
        held: (n,) requested bytes after each entry of the device.
        by_category: Requested bytes of each category.
        categories: Names of the categories.
        category: (b,) category of each row of `rows`.
        rows: (b,) rows of the blocks, those with the most requested bytes first.
        bytes: (b,) requested bytes.
    """

    first: int
    held: Ints
    by_category: list[HeldBytes]
    categories: list[str]
    category: Ids
    rows: Ints
    bytes: Ints


class Tile(NamedTuple):
    """A tile.

    Attributes:
        entry: (k,) entry of the moment that each bucket shows, counted from 0 on the device.
        bands: Requested bytes per bucket of each category, (k,).
        allocated: (k,) bytes of all live blocks that are not pending, whatever the filter.
        reserved: (k,) bytes of all reserved ranges, whatever the filter.
        blocks: (m,) rows of the largest blocks, in the order in which they are stacked: the oldest first.
        category: (m,) their categories.
        first_bucket: (m,) first bucket that shows each block.
        last_bucket: (m,) last bucket that shows it.
        hidden: Number of other blocks that are alive within the tile.
    """

    entry: Ints
    bands: list[Ints]
    allocated: Ints
    reserved: Ints
    blocks: Ints
    category: Ids
    first_bucket: Ints
    last_bucket: Ints
    hidden: int


def held_bytes(born: Ints, died: Ints, size: Ints) -> HeldBytes:
    """Return the bytes of rows that exist from an entry until another."""
    by_birth, by_death = np.argsort(born, kind="stable"), np.argsort(died, kind="stable")
    born_bytes, died_bytes = np.zeros(len(born) + 1, np.int64), np.zeros(len(born) + 1, np.int64)
    np.cumsum(size[by_birth], out=born_bytes[1:])
    np.cumsum(size[by_death], out=died_bytes[1:])
    return HeldBytes(born[by_birth], born_bytes, died[by_death], died_bytes)


def stacked_blocks(trace: Trace, device: int, conditions: BlockFilter) -> StackedBlocks:
    """Return the data for tiles. The results for the latest filters are cached on the trace."""
    cache = _stacked(trace)
    key = device, conditions
    if key not in cache:
        while len(cache) >= MAX_CACHED_CURVES:
            del cache[next(iter(cache))]
        cache[key] = _stack_blocks(trace, device, conditions)
    return cache[key]


@cached_on_trace
def _stacked(trace: Trace) -> dict[tuple[int, BlockFilter], StackedBlocks]:
    return {}


def _stack_blocks(trace: Trace, device: int, conditions: BlockFilter) -> StackedBlocks:
    heap = heap_of(trace)
    first, end = device_entries(heap, device)
    rows = filtered_blocks(trace, device, conditions)
    blocks, labels = heap.blocks, block_labels(trace, "category")
    held = held_bytes(blocks.born[rows], blocks.died[rows], blocks.requested[rows])
    by_category: list[HeldBytes] = []
    for category in range(len(labels.names)):
        members = rows[labels.label[rows] == category]
        by_category.append(held_bytes(blocks.born[members], blocks.died[members], blocks.requested[members]))
    rows = rows[np.argsort(-blocks.requested[rows], kind="stable")]
    return StackedBlocks(
        first=first,
        held=held.at(np.arange(first, end)),
        by_category=by_category,
        categories=labels.names,
        category=labels.label[rows],
        rows=rows,
        bytes=blocks.requested[rows],
    )


class DeviceCurves(NamedTuple):
    """Bytes of one device after any entry.

    Attributes:
        allocated: Live blocks that are not pending.
        reserved: Reserved ranges.
    """

    allocated: HeldBytes
    reserved: HeldBytes


def device_curves(trace: Trace, device: int) -> DeviceCurves:
    """Return the allocated and the reserved bytes of a device. The result is cached on the trace."""
    cache = _curves(trace)
    if device not in cache:
        heap = heap_of(trace)
        blocks, ranges = heap.blocks, heap.ranges
        on_device, reserved = blocks.device == device, ranges.device == device
        ends = np.minimum(blocks.freed, blocks.died)[on_device]
        cache[device] = DeviceCurves(
            allocated=held_bytes(blocks.born[on_device], ends, blocks.size[on_device]),
            reserved=held_bytes(ranges.born[reserved], ranges.died[reserved], ranges.size[reserved]),
        )
    return cache[device]


@cached_on_trace
def _curves(trace: Trace) -> dict[int, DeviceCurves]:
    return {}


def max_level(entries: int) -> int:
    """Return the lowest level at which one tile shows all entries."""
    level = 0
    while TILE_BUCKETS << level < entries:
        level += 1
    return level


def make_tile(
    trace: Trace, device: int, conditions: BlockFilter, level: int, index: int, min_bytes: int | None = None
) -> Tile:
    """Return a tile.

    Args:
        trace: A memory snapshot.
        device: Number of the device.
        conditions: Blocks to show.
        level: Buckets have 2**level entries.
        index: Number of the tile, counted from entry 0 of the device.
        min_bytes: Requested bytes from which a block is shown on its own; `None` for the peak / `SMALLEST_SHARE`.
    """
    stacked = stacked_blocks(trace, device, conditions)
    heap, first = heap_of(trace), stacked.first
    if min_bytes is None:
        min_bytes = int(stacked.held.max(initial=0)) // SMALLEST_SHARE
    entries = _highest_entries(stacked.held, level, index) + first
    bands = [held.at(entries) for held in stacked.by_category]
    if not len(entries):
        none = np.zeros(0, np.int64)
        return Tile(
            entry=none,
            bands=bands,
            allocated=none,
            reserved=none,
            blocks=none,
            category=none.astype(np.int32),
            first_bucket=none,
            last_bucket=none,
            hidden=0,
        )
    alive = np.flatnonzero(
        (heap.blocks.born[stacked.rows] <= entries[-1]) & (heap.blocks.died[stacked.rows] > entries[0])
    )
    chosen, low, high = _largest(heap, stacked, entries, alive[stacked.bytes[alive] >= min_bytes])
    curves = device_curves(trace, device)
    return Tile(
        entry=entries - first,
        bands=bands,
        allocated=curves.allocated.at(entries),
        reserved=curves.reserved.at(entries),
        blocks=stacked.rows[chosen],
        category=stacked.category[chosen],
        first_bucket=low,
        last_bucket=high,
        hidden=len(alive) - len(chosen),
    )


def _highest_entries(held: Ints, level: int, index: int) -> Ints:
    """Return for each bucket of a tile the first entry with the most bytes."""
    width = 1 << level
    start = index * TILE_BUCKETS * width
    part = held[start : start + TILE_BUCKETS * width]
    whole = len(part) // width
    highest = part[: whole * width].reshape(whole, width).argmax(axis=1) + np.arange(whole) * width
    rest = part[whole * width :]
    return start + (np.append(highest, whole * width + int(rest.argmax())) if len(rest) else highest)


def _largest(heap: Heap, stacked: StackedBlocks, entries: Ints, candidates: Ints) -> tuple[Ints, Ints, Ints]:
    """Return indices in `stacked.rows` of the blocks to show, the oldest first, and their first and last buckets.

    The choice depends on the size of a block, so neighboring tiles show the same blocks. Only if there are too many,
    those with the largest areas are shown.
    """
    rows = stacked.rows[candidates]
    low = np.searchsorted(entries, heap.blocks.born[rows])
    high = np.searchsorted(entries, heap.blocks.died[rows]) - 1
    shown = np.flatnonzero(high >= low)
    if len(shown) > MAX_TILE_BLOCKS:
        area = stacked.bytes[candidates[shown]] * (high - low + 1)[shown]
        shown = shown[np.argsort(-area, kind="stable")[:MAX_TILE_BLOCKS]]
    shown = shown[np.lexsort((rows[shown], heap.blocks.born[rows[shown]]))]
    return candidates[shown], low[shown], high[shown]


def block_names(trace: Trace, rows: Ints) -> BlockLabels:
    """Return the lines that allocated some blocks, with only the names that occur."""
    labels = block_labels(trace, "line")
    values, label = np.unique(labels.label[rows], return_inverse=True)
    return BlockLabels(label.astype(np.int32), [labels.names[value] for value in values.tolist()])
