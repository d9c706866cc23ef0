"""Holders of memory: totals of blocks by line, function, module, category or pool."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from visualprof.reader.trace import Floats, Ids, Ints, Trace
from visualprof.reader.trace.heap import NO_TIME, is_at
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.heap.block_filter import BlockFilter, filtered_blocks
from visualprof.views.measure.heap.choice import choose_entry, choose_range, heap_of
from visualprof.views.measure.heap.labels import GroupBy, block_labels
from visualprof.views.measure.heap.moment import device_entries, peak_entry

ALL_BLOCKS = "all"
MAX_CACHED_TOTALS = 16


class HistoryTotals(NamedTuple):
    """Totals of the blocks of the whole history, (n,) by label.

    Attributes:
        peak_bytes: Requested bytes at the peak of the device.
        bytes: Requested bytes of all blocks of the history.
        blocks: Number of all blocks of the history.
        lifetime_entries: Median number of entries from the allocation to the release, of blocks for which both are in
            the history; NaN without such blocks.
        lifetime_ns: Median time; NaN also without times.
    """

    peak_bytes: Ints
    bytes: Ints
    blocks: Ints
    lifetime_entries: Floats
    lifetime_ns: Floats


class Holders(NamedTuple):
    """Groups of blocks, those with the most requested bytes first.

    Attributes:
        names: Their labels.
        bytes: (n,) requested bytes.
        block_bytes: (n,) bytes of the blocks.
        blocks: (n,) number of blocks.
        history: Totals of the groups over the history.
        largest: (n,) row of the largest block.
    """

    names: list[str]
    bytes: Ints
    block_bytes: Ints
    blocks: Ints
    history: HistoryTotals
    largest: Ints


def select_blocks(
    trace: Trace, device: int, conditions: BlockFilter, at: str, first: int | None, last: int | None
) -> Ints:
    """Return the rows of blocks that are alive at a moment, or were allocated in a range of entries.

    Args:
        trace: A memory snapshot.
        device: Number of the device.
        conditions: Conditions of the blocks.
        at: The moment, as in `choose_entry`, or `all` for all blocks of the history; ignored if a range is given.
        first: First entry of the range, as in `choose_range`.
        last: Last entry of the range.
    """
    heap, rows = heap_of(trace), filtered_blocks(trace, device, conditions)
    entries = choose_range(heap, device, first, last)
    born = heap.blocks.born[rows]
    if entries:
        return rows[(born >= entries[0]) & (born < entries[1])]
    if at == ALL_BLOCKS:
        return rows
    return rows[is_at(born, heap.blocks.died[rows], choose_entry(trace, device, at))]


def holders(trace: Trace, device: int, conditions: BlockFilter, selected: Ints, by: GroupBy) -> Holders:
    """Return the groups of some blocks of a device.

    Args:
        trace: A memory snapshot.
        device: Number of the device.
        conditions: Conditions of the blocks.
        selected: Rows of the blocks, from `select_blocks`.
        by: The labels.
    """
    blocks, labels = heap_of(trace).blocks, block_labels(trace, by)
    label, count = labels.label[selected], len(labels.names)
    number = np.bincount(label, minlength=count)
    size = np.bincount(label, blocks.requested[selected], count).astype(np.int64)
    block_bytes = np.bincount(label, blocks.size[selected], count).astype(np.int64)
    order = np.lexsort((-number, -size))
    order = order[number[order] > 0]
    by_size = selected[np.argsort(blocks.requested[selected], kind="stable")]
    largest = np.zeros(count, np.int64)
    largest[labels.label[by_size]] = by_size  # the last one of equal indices remains
    history = history_totals(trace, device, conditions, by)
    return Holders(
        names=[labels.names[i] for i in order.tolist()],
        bytes=size[order],
        block_bytes=block_bytes[order],
        blocks=number[order],
        history=HistoryTotals(
            peak_bytes=history.peak_bytes[order],
            bytes=history.bytes[order],
            blocks=history.blocks[order],
            lifetime_entries=history.lifetime_entries[order],
            lifetime_ns=history.lifetime_ns[order],
        ),
        largest=largest[order],
    )


def history_totals(trace: Trace, device: int, conditions: BlockFilter, by: GroupBy) -> HistoryTotals:
    """Return totals by label over the history. The results for the latest filters are cached on the trace."""
    cache = _totals(trace)
    key = device, conditions, by
    if key not in cache:
        while len(cache) >= MAX_CACHED_TOTALS:
            del cache[next(iter(cache))]
        cache[key] = _history_totals(trace, device, filtered_blocks(trace, device, conditions), by)
    return cache[key]


@cached_on_trace
def _totals(trace: Trace) -> dict[tuple[int, BlockFilter, GroupBy], HistoryTotals]:
    return {}


def _history_totals(trace: Trace, device: int, rows: Ints, by: GroupBy) -> HistoryTotals:
    heap, labels = heap_of(trace), block_labels(trace, by)
    blocks, count = heap.blocks, len(labels.names)
    at_peak = rows[is_at(blocks.born[rows], blocks.died[rows], peak_entry(heap, device))]
    entries, times = lifetimes(trace, device, rows)
    finished = np.flatnonzero(entries >= 0)
    label = labels.label[rows]
    return HistoryTotals(
        peak_bytes=np.bincount(labels.label[at_peak], blocks.requested[at_peak], count).astype(np.int64),
        bytes=np.bincount(label, blocks.requested[rows], count).astype(np.int64),
        blocks=np.bincount(label, minlength=count),
        lifetime_entries=_medians(label[finished], entries[finished], count),
        lifetime_ns=np.full(count, np.nan) if times is None else _medians(label[finished], times[finished], count),
    )


def lifetimes(trace: Trace, device: int, rows: Ints) -> tuple[Ints, Ints | None]:
    """Return the lifetimes of blocks in entries, -1 unknown, and in ns, `None` without times.

    A lifetime is known if the allocation and the release are in the history.
    """
    heap = heap_of(trace)
    first, end = device_entries(heap, device)
    born, died = heap.blocks.born[rows], heap.blocks.died[rows]
    is_known = (born >= first) & (died < end)
    entries = np.where(is_known, died - born, -1)
    times = heap.entries.time_us[first:end]
    if not len(times) or (times == NO_TIME).any():
        return entries, None
    low, high = np.where(is_known, born - first, 0), np.where(is_known, died - first, 0)
    return entries, np.where(is_known, (times[high] - times[low]) * 1000, -1)


def _medians(label: Ids, values: Ints, count: int) -> Floats:
    """Return the lower median of the values of each label, NaN without values."""
    order = np.lexsort((values, label))
    numbers = np.bincount(label, minlength=count)
    starts = np.cumsum(numbers) - numbers
    medians = np.full(count, np.nan)
    used = np.flatnonzero(numbers)
    medians[used] = values[order][starts[used] + (numbers[used] - 1) // 2]
    return medians
