"""Tables of memory snapshots: holders of memory, the tree of calls, segments, their pieces, and blocks."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Ints, Trace
from visualprof.reader.trace.heap import no_origins
from visualprof.views.answers import kinds
from visualprof.views.answers.table import AddressColumn, Columns, LazyTextColumn
from visualprof.views.measure.heap.block_filter import BlockFilter
from visualprof.views.measure.heap.call_tree import FlameNodes
from visualprof.views.measure.heap.choice import heap_of
from visualprof.views.measure.heap.holders import holders, lifetimes
from visualprof.views.measure.heap.labels import (
    GroupBy,
    block_labels,
    frame_texts,
    own_frames,
    pool_name,
    stack_frames,
    stream_name,
)
from visualprof.views.measure.heap.moment import Moment, device_entries
from visualprof.views.measure.heap.segment_map import Piece, SegmentMap, range_use

MAX_ROWS = 500


class AliveColumns(Columns):
    """Memory by group, the largest first: alive at the moment, or allocated in the range.

    Attributes:
        name: The group.
        bytes: Requested bytes.
        block_bytes: Bytes of the blocks, which are rounded up.
        blocks: Number of blocks.
        share: Share of all requested bytes.
        peak_bytes: Requested bytes at the peak of the device.
        history_bytes: Requested bytes of all blocks of the history.
        history_blocks: Number of all blocks of the history.
        lifetime_ns: Median time from the allocation to the release.
        lifetime_entries: Median number of entries from the allocation to the release.
        stack: The call stack of the largest block of the group, the innermost frame first.
    """

    name: kinds.NameColumn
    bytes: kinds.SizeColumn
    block_bytes: kinds.SizeColumn
    blocks: kinds.CountColumn
    share: kinds.RatioColumn
    peak_bytes: kinds.SizeColumn
    history_bytes: kinds.SizeColumn
    history_blocks: kinds.CountColumn
    lifetime_ns: kinds.DurationColumn
    lifetime_entries: kinds.CountColumn
    stack: kinds.TextColumn


class CallTreeColumns(Columns):
    """Calls by path, each after its parent: a flame graph of memory.

    Attributes:
        name: `file(line): function`; "" for blocks without a call stack.
        parent: Row of the parent, -1 for outermost frames.
        depth: Number of ancestors.
        bytes: Requested bytes of the blocks below this call.
        own_bytes: Requested bytes of the blocks with a path that ends here.
        blocks: Number of blocks below this call.
        frame: Number of the frame, for the filter `frame`; -1 without a call stack.
        is_own: Whether it is the user's own source.
    """

    name: kinds.NameColumn
    parent: kinds.IdentifierColumn
    depth: kinds.CountColumn
    bytes: kinds.SizeColumn
    own_bytes: kinds.SizeColumn
    blocks: kinds.CountColumn
    frame: kinds.IdentifierColumn
    is_own: kinds.FlagColumn


class SegmentColumns(Columns):
    """Reserved ranges of addresses.

    Attributes:
        pool: `default`, or the two numbers of a private pool.
        kind: small for blocks of at most 1 MiB, otherwise large; expandable ranges grow.
        largest_free_bytes: The largest free piece.
    """

    address: kinds.WordColumn
    bytes: kinds.SizeColumn
    used_bytes: kinds.SizeColumn
    free_bytes: kinds.SizeColumn
    largest_free_bytes: kinds.SizeColumn
    blocks: kinds.CountColumn
    pool: kinds.WordColumn
    stream: kinds.WordColumn
    kind: kinds.WordColumn


class SegmentPieceColumns(Columns):
    """Pieces of reserved ranges, in the order of the ranges and of addresses.

    Attributes:
        segment: Row of the table of segments.
        offset_bytes: Bytes from the start of the segment.
        bytes: Bytes of the piece.
        requested_bytes: Requested bytes in it.
        used_bytes: Bytes of blocks in it; those beyond the requested ones are rounding.
        kind: used, pending (another stream may still use it), split (free between live blocks), cached (free, and can
            be released), or mixed (several small pieces).
        category: Role of the memory; None unless it is a block.
        block: Number of the block, -1 for other pieces.
        in_the_way: Whether this block must be released first for the failed allocation, if this is its moment.
        matches: Whether this block meets the conditions; False for other pieces.
    """

    segment: kinds.IdentifierColumn
    offset_bytes: kinds.SizeColumn
    bytes: kinds.SizeColumn
    requested_bytes: kinds.SizeColumn
    used_bytes: kinds.SizeColumn
    kind: kinds.WordColumn
    category: kinds.WordColumn
    block: kinds.IdentifierColumn
    in_the_way: kinds.FlagColumn
    matches: kinds.FlagColumn


class BlockColumns(Columns):
    """Allocated blocks.

    Attributes:
        block: Number of the block, for the filter `block`.
        address: Address.
        bytes: Requested bytes.
        block_bytes: Bytes of the block; a lower bound unless `is_exact`.
        is_exact: Whether the bytes of the block are known.
        category: Role of the memory.
        born: Entry that allocated it, counted from 0 on the device; -1 for before the history.
        died: Entry that released it; None if it is alive at the end.
        lifetime_ns: Time from the allocation to the release; None if unknown.
        lifetime_entries: Number of entries from the allocation to the release.
        name: Line that allocated it.
        operator: Operator that allocated it, in a recording of the same process; None if unknown.
        module: Path of modules around the operator.
        recording: File name of the recording.
        recording_ns: Time of the allocation since the first event of the recording.
        stack: Call stack of the allocation, the innermost frame first.
        free_stack: Call stack of the release.
    """

    block: kinds.IdentifierColumn
    address: kinds.WordColumn
    bytes: kinds.SizeColumn
    block_bytes: kinds.SizeColumn
    is_exact: kinds.FlagColumn
    category: kinds.WordColumn
    pool: kinds.WordColumn
    stream: kinds.WordColumn
    born: kinds.IdentifierColumn
    died: kinds.IdentifierColumn
    lifetime_ns: kinds.DurationColumn
    lifetime_entries: kinds.CountColumn
    name: kinds.NameColumn
    operator: kinds.NameColumn
    module: kinds.NameColumn
    recording: kinds.WordColumn
    recording_ns: kinds.DurationColumn
    stack: kinds.TextColumn
    free_stack: kinds.TextColumn


def holder_table(
    trace: Trace, device: int, conditions: BlockFilter, selected: Ints, by: GroupBy
) -> tuple[AliveColumns, int]:
    """Return the groups with the most memory, at most `MAX_ROWS`, and the number of all groups."""
    groups = holders(trace, device, conditions, selected, by)
    stacks = heap_of(trace).blocks.stack[groups.largest[:MAX_ROWS]]
    history = groups.history
    columns = AliveColumns(
        name=groups.names[:MAX_ROWS],
        bytes=groups.bytes[:MAX_ROWS],
        block_bytes=groups.block_bytes[:MAX_ROWS],
        blocks=groups.blocks[:MAX_ROWS],
        share=groups.bytes[:MAX_ROWS] / max(int(groups.bytes.sum()), 1),
        peak_bytes=history.peak_bytes[:MAX_ROWS],
        history_bytes=history.bytes[:MAX_ROWS],
        history_blocks=history.blocks[:MAX_ROWS],
        lifetime_ns=history.lifetime_ns[:MAX_ROWS],
        lifetime_entries=history.lifetime_entries[:MAX_ROWS],
        stack=LazyTextColumn(stacks, lambda stack: _stack_text(trace, stack)),
    )
    return columns, len(groups.names)


def call_tree_columns(trace: Trace, nodes: FlameNodes) -> CallTreeColumns:
    """Return the nodes of a tree of calls."""
    texts, is_own = [*frame_texts(trace), ""], np.append(own_frames(trace), False)
    frames: list[int] = nodes.frame.tolist()
    return CallTreeColumns(
        name=[texts[frame] for frame in frames],
        parent=nodes.parent,
        depth=nodes.depth,
        bytes=nodes.bytes,
        own_bytes=nodes.own_bytes,
        blocks=nodes.blocks,
        frame=nodes.frame,
        is_own=is_own[nodes.frame],
    )


def segment_columns(trace: Trace, now: Moment, shown: Ints) -> SegmentColumns:
    """Return some ranges of a moment, given as indices in `now.ranges`."""
    heap = heap_of(trace)
    ranges, rows = heap.ranges, now.ranges[shown]
    used, blocks, largest = range_use(trace, now)
    return SegmentColumns(
        address=AddressColumn(ranges.addr[rows].astype(np.uint64)),
        bytes=ranges.size[rows],
        used_bytes=used[shown],
        free_bytes=ranges.size[rows] - used[shown],
        largest_free_bytes=largest[shown],
        blocks=blocks[shown],
        pool=[pool_name(heap, pool) for pool in ranges.pool[rows].tolist()],
        stream=[stream_name(heap, stream) for stream in ranges.stream[rows].tolist()],
        kind=[_kind(small, grows) for small, grows in zip(ranges.small[rows], ranges.expandable[rows], strict=True)],
    )


def piece_columns(
    trace: Trace, now: Moment, layout: SegmentMap, in_the_way: Ints, matching: Ints
) -> SegmentPieceColumns:
    """Return the pieces of ranges.

    Args:
        trace: A memory snapshot.
        now: The moment.
        layout: Its ranges and pieces.
        in_the_way: Rows of the blocks that must be released first.
        matching: Rows of the blocks that meet the conditions.
    """
    heap, labels = heap_of(trace), block_labels(trace, "category")
    starts = heap.ranges.addr[now.ranges[layout.ranges]]
    names = [piece.name.lower() for piece in Piece]
    category = np.where(layout.block >= 0, labels.label[layout.block], len(labels.names))
    return SegmentPieceColumns(
        segment=layout.range,
        offset_bytes=layout.addr - starts[layout.range],
        bytes=layout.size,
        requested_bytes=layout.requested,
        used_bytes=layout.used,
        kind=LazyTextColumn(layout.kind, names.__getitem__),
        category=LazyTextColumn(category, [*labels.names, None].__getitem__),
        block=layout.block,
        in_the_way=np.isin(layout.block, in_the_way),
        matches=np.isin(layout.block, matching),
    )


def block_columns(trace: Trace, device: int, rows: Ints) -> BlockColumns:
    """Return some blocks, those with the most requested bytes first."""
    heap = heap_of(trace)
    blocks = heap.blocks
    rows = rows[np.argsort(-blocks.requested[rows], kind="stable")]
    first, end = device_entries(heap, device)
    category, line = block_labels(trace, "category"), block_labels(trace, "line")
    entries, times = lifetimes(trace, device, rows)
    is_known, died = entries >= 0, blocks.died[rows]
    origins = heap.origins if len(heap.origins) else no_origins(len(blocks.addr))
    return BlockColumns(
        block=rows,
        address=AddressColumn(blocks.addr[rows].astype(np.uint64)),
        bytes=blocks.requested[rows],
        block_bytes=blocks.size[rows],
        is_exact=blocks.exact[rows] != 0,
        category=LazyTextColumn(category.label[rows], category.names.__getitem__),
        pool=LazyTextColumn(blocks.pool[rows], lambda pool: pool_name(heap, pool)),
        stream=LazyTextColumn(blocks.stream[rows], lambda stream: stream_name(heap, stream)),
        born=blocks.born[rows] - first,
        died=np.where(died < end, died - first, np.nan),
        lifetime_ns=np.full(len(rows), np.nan) if times is None else np.where(is_known, times, np.nan),
        lifetime_entries=np.where(is_known, entries, np.nan),
        name=LazyTextColumn(line.label[rows], line.names.__getitem__),
        operator=LazyTextColumn(origins.operator[rows], lambda name: trace.strings[name] or None),
        module=LazyTextColumn(origins.module[rows], lambda name: trace.strings[name] or None),
        recording=LazyTextColumn(origins.file[rows], lambda name: trace.strings[name] or None),
        recording_ns=np.where(origins.file[rows] > 0, origins.ts[rows], np.nan),
        stack=LazyTextColumn(blocks.stack[rows], lambda stack: _stack_text(trace, stack)),
        free_stack=LazyTextColumn(blocks.free_stack[rows], lambda stack: _stack_text(trace, stack)),
    )


def _stack_text(trace: Trace, stack: int) -> str:
    return " < ".join(stack_frames(trace, stack))


def _kind(small: int, expandable: int) -> str:
    return f"{'small' if small else 'large'}{' expandable' if expandable else ''}"
