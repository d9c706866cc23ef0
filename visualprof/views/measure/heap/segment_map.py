"""The map of segments at a moment: reserved ranges, and the used and free pieces in each."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from visualprof.reader.trace import Bytes, Ints, Trace
from visualprof.views.measure.heap.choice import heap_of
from visualprof.views.measure.heap.moment import Moment

MAX_PIECES = 20_000
MAX_SEGMENTS = 5_000


class Piece(IntEnum):
    """Contents of a piece of a range."""

    USED = 0
    PENDING = 1  # its release was requested, but another stream may still use it
    SPLIT = 2  # free between live blocks: it cannot be released
    CACHED = 3  # a free range as a whole, or free pages of an expandable one: it can be released
    MIXED = 4  # several small pieces


class SegmentMap(NamedTuple):
    """Reserved ranges and their pieces.

    Attributes:
        ranges: (s,) indices in `Moment.ranges` of the largest ranges, by pool, stream and address.
        range: (p,) indices in `ranges` of each piece.
        addr: (p,) addresses in bytes.
        size: (p,) bytes.
        requested: (p,) requested bytes.
        used: (p,) bytes of blocks.
        kind: (p,) values of `Piece`.
        block: (p,) rows of the blocks, -1 for other pieces.
        merged_below: Smaller neighboring pieces were merged, in bytes; 0 if all pieces are shown.
    """

    ranges: Ints
    range: Ints
    addr: Ints
    size: Ints
    requested: Ints
    used: Ints
    kind: Bytes
    block: Ints
    merged_below: int


def segment_map(trace: Trace, now: Moment, max_pieces: int = MAX_PIECES) -> SegmentMap:
    """Return the ranges of a moment with at most `max_pieces` pieces.

    The smallest pieces are merged with their neighbors until the number is small enough. Of more than `MAX_SEGMENTS`
    ranges, the largest are returned.
    """
    heap = heap_of(trace)
    ranges = heap.ranges
    shown = np.sort(np.argsort(-ranges.size[now.ranges], kind="stable")[:MAX_SEGMENTS])
    rows = now.ranges[shown]
    pools = heap.tables.pool[np.maximum(ranges.pool[rows], 0)]
    shown = shown[np.lexsort((ranges.addr[rows], ranges.small[rows], ranges.stream[rows], pools[:, 1], pools[:, 0]))]
    place = np.full(len(now.ranges) + 1, -1)
    place[shown] = np.arange(len(shown))
    pieces = _all_pieces(trace, now, place)
    below = 0
    while len(pieces.addr) > max_pieces:
        below = max(below * 2, int(np.quantile(pieces.size, 1 - max_pieces / len(pieces.addr))))
        merged = _merge(pieces, below)
        if len(merged.addr) == len(pieces.addr):
            below = max(below * 2, 1 << 20)
        pieces = merged
    return pieces._replace(ranges=shown, merged_below=below)


def _all_pieces(trace: Trace, now: Moment, place: Ints) -> SegmentMap:
    """Return every block and every free piece in the order of ranges and addresses."""
    heap = heap_of(trace)
    inside = now.range_of_block >= 0
    blocks = now.blocks[inside]
    has_blocks = np.zeros(len(now.ranges), bool)
    has_blocks[now.range_of_block[inside]] = True
    is_split = has_blocks & (heap.ranges.expandable[now.ranges] == 0)
    gap_kind = np.where(is_split[now.gap_range], Piece.SPLIT, Piece.CACHED)
    none = np.zeros(len(now.gap_addr), np.int64)
    columns: dict[str, Ints] = {
        "range": np.concatenate((place[now.range_of_block[inside]], place[now.gap_range])),
        "addr": np.concatenate((heap.blocks.addr[blocks], now.gap_addr)),
        "size": np.concatenate((heap.blocks.size[blocks], now.gap_bytes)),
        "requested": np.concatenate((heap.blocks.requested[blocks], none)),
        "used": np.concatenate((heap.blocks.size[blocks], none)),
        "kind": np.concatenate((np.where(now.is_pending[inside], Piece.PENDING, Piece.USED), gap_kind)),
        "block": np.concatenate((blocks, none - 1)),
    }
    order = np.lexsort((columns["addr"], columns["range"]))
    order = order[columns["range"][order] >= 0]
    columns = {name: column[order] for name, column in columns.items()}
    kind = columns.pop("kind").astype(np.uint8)
    return SegmentMap(ranges=none, kind=kind, merged_below=0, **columns)


def _merge(pieces: SegmentMap, below: int) -> SegmentMap:
    """Merge consecutive pieces of one range that are smaller than some bytes."""
    small = pieces.size < below
    joins = small[1:] & small[:-1] & (pieces.range[1:] == pieces.range[:-1])
    starts = np.flatnonzero(np.concatenate(([True], ~joins)))
    counts = np.diff(np.append(starts, len(small)))
    return SegmentMap(
        ranges=pieces.ranges,
        range=pieces.range[starts],
        addr=pieces.addr[starts],
        size=np.add.reduceat(pieces.size, starts),
        requested=np.add.reduceat(pieces.requested, starts),
        used=np.add.reduceat(pieces.used, starts),
        kind=np.where(counts > 1, Piece.MIXED, pieces.kind[starts]).astype(np.uint8),
        block=np.where(counts > 1, -1, pieces.block[starts]),
        merged_below=below,
    )


def range_use(trace: Trace, now: Moment) -> tuple[Ints, Ints, Ints]:
    """Return the used bytes, the number of blocks and the largest free piece of each range of a moment."""
    count, sizes = len(now.ranges), heap_of(trace).blocks.size
    inside = now.range_of_block >= 0
    used = np.bincount(now.range_of_block[inside], sizes[now.blocks[inside]], count).astype(np.int64)
    blocks: Ints = np.bincount(now.range_of_block[inside], minlength=count)
    largest = np.zeros(count, np.int64)
    np.maximum.at(largest, now.gap_range, now.gap_bytes)
    return used, blocks, largest
