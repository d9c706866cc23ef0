"""The allocator at a moment: live blocks, reserved ranges, and the free memory between the blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from visualprof.reader.trace import Ids, Ints, Mask
from visualprof.reader.trace.heap import Action, Heap, is_at


class Moment(NamedTuple):
    """The memory of one device after an entry.

    Attributes:
        entry: Number of the entry; the number before the first one for the state before the history.
        blocks: Rows of live blocks, in the order of addresses.
        ranges: Rows of reserved ranges, in the order of addresses.
        range_of_block: (b,) index in `ranges` of each block, -1 for none.
        is_pending: (b,) whether a block's release was requested, but another stream may still use it.
        gap_addr: (g,) addresses of free memory, in order.
        gap_bytes: (g,) sizes of free memory.
        gap_range: (g,) index in `ranges`.
    """

    entry: int
    blocks: Ints
    ranges: Ints
    range_of_block: Ints
    is_pending: Mask
    gap_addr: Ints
    gap_bytes: Ints
    gap_range: Ints


class Totals(NamedTuple):
    """Sums of a moment, all in bytes.

    Attributes:
        requested: Requested by live blocks, as the statistic `requested_bytes` of torch.
        allocated: Live blocks that are not pending, as `torch.cuda.memory_allocated()`.
        active: Live blocks.
        reserved: Reserved ranges, as `torch.cuda.memory_reserved()`.
        cached: Reserved ranges without a live block, which can be released.
        inactive_split: Free memory between live blocks of the same range, which cannot be released. Expandable ranges
            have none, because their free pages can be.
        largest_free: The largest free piece of a reserved range.
        rounding: Bytes of live blocks beyond the requested ones.
    """

    requested: int
    allocated: int
    active: int
    reserved: int
    cached: int
    inactive_split: int
    largest_free: int
    rounding: int


def device_entries(heap: Heap, device: int) -> tuple[int, int]:
    """Return the first entry of a device, and the number after its last one."""
    index = int(np.flatnonzero(heap.tables.device == device)[0])
    first, end = heap.tables.first_entry[index : index + 2].tolist()
    return first, end


def requested_curve(heap: Heap, device: int) -> Ints:
    """Return the requested bytes of live blocks before the first entry and after each entry, (n + 1,)."""
    first, end = device_entries(heap, device)
    is_on_device = heap.blocks.device == device
    change = np.zeros(end - first + 2, np.int64)
    np.add.at(change, heap.blocks.born[is_on_device] - first + 1, heap.blocks.requested[is_on_device])
    np.add.at(change, heap.blocks.died[is_on_device] - first + 1, -heap.blocks.requested[is_on_device])
    return np.cumsum(change)[:-1]


def peak_entry(heap: Heap, device: int) -> int:
    """Return the first entry after which most bytes are requested."""
    return device_entries(heap, device)[0] - 1 + int(np.argmax(requested_curve(heap, device)))


def failed_entries(heap: Heap, device: int) -> Ints:
    """Return the entries at which memory ran out."""
    first, end = device_entries(heap, device)
    return np.flatnonzero(heap.entries.action[first:end] == Action.OOM) + first


def moment(heap: Heap, device: int, entry: int) -> Moment:
    """Return the memory of a device after an entry."""
    blocks, ranges = heap.blocks, heap.ranges
    live = np.flatnonzero((blocks.device == device) & is_at(blocks.born, blocks.died, entry))
    live = live[np.argsort(blocks.addr[live], kind="stable")]
    held = np.flatnonzero((ranges.device == device) & is_at(ranges.born, ranges.died, entry))
    held = held[np.argsort(ranges.addr[held], kind="stable")]
    start, end = ranges.addr[held], ranges.addr[held] + ranges.size[held]
    place = np.searchsorted(start, blocks.addr[live], side="right") - 1
    place = np.where((place >= 0) & (blocks.addr[live] < np.append(end, 0)[place]), place, -1)
    inside = live[place >= 0]
    # Free memory is between consecutive ends and starts: of ranges as a whole, and of blocks.
    pieces_start = np.concatenate((start, blocks.addr[inside] + blocks.size[inside]))
    pieces_end = np.concatenate((blocks.addr[inside], end))
    gap_start, gap_end = np.sort(pieces_start), np.sort(pieces_end)
    is_gap = gap_end > gap_start
    gap_addr, gap_bytes = gap_start[is_gap], (gap_end - gap_start)[is_gap]
    return Moment(
        entry=entry,
        blocks=live,
        ranges=held,
        range_of_block=place,
        is_pending=blocks.freed[live] <= entry,
        gap_addr=gap_addr,
        gap_bytes=gap_bytes,
        gap_range=np.searchsorted(start, gap_addr, side="right") - 1,
    )


def totals(heap: Heap, now: Moment) -> Totals:
    """Return the sums of a moment."""
    size, requested = heap.blocks.size[now.blocks], heap.blocks.requested[now.blocks]
    range_bytes = heap.ranges.size[now.ranges]
    has_blocks = np.zeros(len(now.ranges), bool)
    has_blocks[now.range_of_block[now.range_of_block >= 0]] = True
    is_split = has_blocks & (heap.ranges.expandable[now.ranges] == 0)
    return Totals(
        requested=int(requested.sum()),
        allocated=int(size[~now.is_pending].sum()),
        active=int(size.sum()),
        reserved=int(range_bytes.sum()),
        cached=int(range_bytes[~has_blocks].sum()),
        inactive_split=int(now.gap_bytes[is_split[now.gap_range]].sum()),
        largest_free=int(now.gap_bytes.max(initial=0)),
        rounding=int((size - requested).sum()),
    )


def alive_bytes(heap: Heap, now: Moment, labels: Ids) -> tuple[Ints, Ints, Ints]:
    """Return the requested bytes, the bytes and the number of live blocks of each label.

    Args:
        heap: The allocator's memory.
        now: The moment.
        labels: (n,) label of each row of `heap.blocks`, from 0.
    """
    label = labels[now.blocks]
    count = int(labels.max(initial=-1)) + 1
    requested, size = heap.blocks.requested[now.blocks], heap.blocks.size[now.blocks]
    sums = [np.bincount(label, weights, count).astype(np.int64) for weights in (requested, size)]
    return sums[0], sums[1], np.bincount(label, minlength=count).astype(np.int64)
