"""A memory snapshot: tiles of stacked allocations, the map of segments, totals and blocks at any moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote

import msgspec
import numpy as np
from flask import Response
from msgspec import Meta

from visualprof.reader.logdir.listing import Span
from visualprof.reader.trace import Ints, Trace
from visualprof.server.api.snapshot_joins import located_spans
from visualprof.server.api.stepped_traces import SteppedTraces
from visualprof.server.api.table_rows import Order, Sort, sort_order
from visualprof.server.api.trace_requests import compute_from_trace
from visualprof.server.responses import TSV_TYPE, bytes_response, csv_response, json_response
from visualprof.server.routes import SPAN_ERRORS, Resource, SpanQuery, get
from visualprof.server.services import Services
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Answer, Columns, Selection, Table, select_rows
from visualprof.views.measure.heap.block_filter import BlockFilter, filter_of, filtered_blocks
from visualprof.views.measure.heap.call_tree import flame_nodes
from visualprof.views.measure.heap.choice import choose_device, choose_entry, heap_of
from visualprof.views.measure.heap.holders import select_blocks
from visualprof.views.measure.heap.labels import GroupBy
from visualprof.views.measure.heap.moment import device_entries, failed_entries, moment, totals
from visualprof.views.measure.heap.out_of_memory import explain_failure
from visualprof.views.measure.heap.overview import HeapMeta, entry_times, heap_meta
from visualprof.views.measure.heap.recorded_times import JoinedRecording
from visualprof.views.measure.heap.segment_map import MAX_PIECES, segment_map
from visualprof.views.measure.heap.stacked import TILE_BUCKETS, block_names, make_tile, stacked_blocks
from visualprof.views.measure.heap.tables import (
    AliveColumns,
    BlockColumns,
    CallTreeColumns,
    SegmentColumns,
    SegmentPieceColumns,
    block_columns,
    call_tree_columns,
    holder_table,
    piece_columns,
    segment_columns,
)

T = TypeVar("T")
MAX_LEVEL = 40
Device = Annotated[str, Meta(description="number of a device; the one with the most reserved memory when absent")]
At = Annotated[
    str,
    Meta(
        description="moment: peak, oom, end, the name of a step, an entry counted from 0 (-1: before the history), or "
        "NS@FILE: a time of a joined recording"
    ),
]
Entry = Annotated[int, Meta(ge=0, le=2**53)]


class HeapQuery(SpanQuery):
    """A device of a snapshot."""

    device: Device = ""


class BlocksFilter(HeapQuery):
    """A device, and the conditions of the blocks; all of them apply."""

    text: Annotated[str, Meta(description="part of a frame, category or pool, in any case; or an address 0x...")] = ""
    line: Annotated[str, Meta(description="label of by=line")] = ""
    function: Annotated[str, Meta(description="label of by=function")] = ""
    file: Annotated[str, Meta(description="label of by=file")] = ""
    operator: Annotated[str, Meta(description="label of by=operator")] = ""
    module: Annotated[str, Meta(description="label of by=module")] = ""
    category: Annotated[str, Meta(description="label of by=category")] = ""
    pool: Annotated[str, Meta(description="label of by=pool")] = ""
    stream: Annotated[str, Meta(description="label of by=stream")] = ""
    frame: Annotated[int, Meta(ge=0, description="number of a frame in the call stack")] | None = None
    block: Annotated[int, Meta(ge=0, description="number of a block")] | None = None


class HeapTileQuery(BlocksFilter, kw_only=True):
    """A tile of stacked allocations. `v` makes the answer immutable."""

    v: Annotated[str, Meta(description="version from the `meta` answer; makes the answer immutable")] = ""
    level: Annotated[int, Meta(ge=0, le=MAX_LEVEL, description="buckets of 2**level entries")]
    index: Annotated[int, Meta(ge=0, le=2**40, description="number of the tile, counted from entry 0")]
    min_bytes: (
        Annotated[int, Meta(ge=0, description="requested bytes from which a block is shown on its own")] | None
    ) = None


class MapQuery(BlocksFilter):
    """A moment of a device, and the conditions of the blocks that are marked."""

    at: At = "peak"
    max_pieces: Annotated[int, Meta(ge=100, le=MAX_PIECES, description="small neighbors are merged above it")] = (
        MAX_PIECES
    )


class SelectedQuery(BlocksFilter):
    """Blocks that are alive at a moment, or were allocated in a range of entries."""

    at: Annotated[str, Meta(description="moment as for the map, or all: all blocks of the history")] = "peak"
    first: Annotated[Entry, Meta(description="first entry of a range; replaces the moment")] | None = None
    last: Annotated[Entry, Meta(description="last entry of the range")] | None = None


class TotalsQuery(SelectedQuery):
    """Blocks, their grouping, and the direction of the tree of calls."""

    by: Annotated[GroupBy, Meta(description="what the table groups by")] = "line"
    inverted: Annotated[bool, Meta(description="whether the tree of calls starts at the innermost frame")] = False


class BlockRowsQuery(SelectedQuery):
    """Blocks, and the order and page of the table."""

    sort: Sort = ""
    order: Order = "desc"
    offset: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=0, le=10_000, description="default 200; all rows in csv and tsv")] | None = None
    format: Literal["json", "csv", "tsv"] = "json"


class TileBlockColumns(Columns):
    """Blocks of a tile that are shown on their own, in the order in which they are stacked: the oldest first.

    The bottom of a block in a bucket is the bottom of its category's band, plus the bytes of the rows above it in this
    table that have the same category and are alive in the bucket. The rest of the band is on top.

    Attributes:
        block: Number of the block.
        category: Row of `categories`.
        bytes: Requested bytes.
        first_bucket: First bucket of the tile that shows the block.
        last_bucket: Last bucket that shows it.
        born: Entry that allocated it; -1 for before the history.
        died: Entry that released it; the number of entries if it is alive at the end.
        name: Row of `names`: the line that allocated it.
    """

    block: kinds.IdentifierColumn
    category: kinds.IdentifierColumn
    bytes: kinds.SizeColumn
    first_bucket: kinds.CountColumn
    last_bucket: kinds.CountColumn
    born: kinds.IdentifierColumn
    died: kinds.IdentifierColumn
    name: kinds.IdentifierColumn


class HeapTile(Answer, kw_only=True):
    """A tile of stacked allocations, of at most 256 buckets. Each bucket shows its moment with most requested bytes.

    Attributes:
        first_entry: First entry of the first bucket.
        bucket_entries: Number of entries of a bucket.
        entry: Moment of each bucket; fewer than 256 at the end of the history.
        time_ns: Time from the first entry to the moment of each bucket; None without times.
        categories: Categories, in the order in which their bands are stacked.
        bands: Requested bytes of each category in each bucket, (categories, buckets).
        allocated_bytes: Bytes of all live blocks in each bucket, whatever the filter.
        reserved_bytes: Bytes of all reserved ranges in each bucket, whatever the filter.
        names: Lines that allocated the blocks.
        blocks: The largest blocks, at most 2,000.
        hidden_blocks: Number of other blocks that are alive within the tile.
    """

    first_entry: int
    bucket_entries: int
    entry: list[int]
    time_ns: list[int] | None
    categories: list[str]
    bands: list[list[int]]
    allocated_bytes: list[int]
    reserved_bytes: list[int]
    names: list[str]
    blocks: Table[TileBlockColumns]
    hidden_blocks: int


class HeapMap(Answer, kw_only=True):
    """The map of segments at a moment.

    Attributes:
        entry: The moment: an entry of the device, counted from 0.
        ts_ns: Time from the first entry; None without times.
        requested_bytes: Requested by live blocks.
        allocated_bytes: Bytes of live blocks, as `torch.cuda.memory_allocated()`.
        active_bytes: Also blocks that another stream may still use.
        reserved_bytes: Reserved ranges, as `torch.cuda.memory_reserved()`.
        cached_bytes: Ranges without a live block, which `empty_cache()` would release.
        inactive_split_bytes: Free memory between live blocks, which cannot be released.
        largest_free_bytes: The largest free piece.
        rounding_bytes: Bytes of blocks beyond the requested ones.
        segments: Reserved ranges, by pool, stream and address; at most the 5,000 largest.
        pieces: Their used and free pieces.
        merged_below_bytes: Smaller neighboring pieces are merged; 0 if all pieces are shown.
    """

    device: kinds.Identifier
    entry: kinds.Identifier
    ts_ns: kinds.Duration | None
    requested_bytes: kinds.Size
    allocated_bytes: kinds.Size
    active_bytes: kinds.Size
    reserved_bytes: kinds.Size
    cached_bytes: kinds.Size
    inactive_split_bytes: kinds.Size
    largest_free_bytes: kinds.Size
    rounding_bytes: kinds.Size
    segments: Table[SegmentColumns]
    pieces: Table[SegmentPieceColumns]
    merged_below_bytes: kinds.Size


class HeapTotals(Answer, kw_only=True):
    """Totals of the selected blocks.

    Attributes:
        bytes: Requested bytes.
        block_bytes: Bytes of the blocks.
        blocks: Number of blocks.
        groups: Totals by group, the 500 largest.
        calls: The tree of calls, at most 4,000 nodes; a node comes after its parent.
        folded_calls: Number of smaller calls, which are left out.
    """

    bytes: kinds.Size
    block_bytes: kinds.Size
    blocks: kinds.Count
    groups: Table[AliveColumns]
    calls: Table[CallTreeColumns]
    folded_calls: kinds.Count


class BlockTable(Table[BlockColumns]):
    """The selected blocks."""


class Snapshot(Resource):
    """The routes for memory snapshots."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._traces = services.get(SteppedTraces)

    def _find_span(self, query: SpanQuery) -> Span:
        return self._visible.listing().find(query.run, query.worker, query.span)

    def _compute(self, query: SpanQuery, function: Callable[..., T], *arguments: Any) -> T:
        span = self._find_span(query)
        return compute_from_trace(
            self._traces, span, "snapshot", function, *arguments, step_range=query.step_range, work="pass"
        )

    def _with_span(self, query: SpanQuery, recording: JoinedRecording) -> JoinedRecording:
        """Return a recording with its run, worker and span, if a user may see it."""
        spans = located_spans(self._visible.listing(), self._find_span(query), recording.file)
        for run, worker, span in spans[:1]:
            return msgspec.structs.replace(recording, run=run, worker=worker, span=span.id)
        return recording

    @get("/snapshot/meta", errors=SPAN_ERRORS, needs="link")
    def meta(self, query: HeapQuery) -> HeapMeta:
        """Return the devices, categories and markers of a memory snapshot."""
        version = quote(self._traces.version(self._find_span(query), query.step_range), safe="")
        meta = self._compute(query, compute_meta, query.device, version)
        recordings = [self._with_span(query, recording) for recording in meta.recordings]
        return msgspec.structs.replace(meta, recordings=recordings)

    @get("/snapshot/tile", errors=SPAN_ERRORS, needs="link")
    def tile(self, query: HeapTileQuery) -> HeapTile | Response:
        """Return a tile of stacked allocations."""
        answer = self._compute(query, compute_tile, query)
        if not query.v:
            return answer
        response = json_response(answer)
        response.headers["Cache-Control"] = "private, max-age=31536000, immutable"
        return response

    @get("/snapshot/map", errors=SPAN_ERRORS, needs="link")
    def map(self, query: MapQuery) -> HeapMap:
        """Return the segments at a moment, with their used and free pieces."""
        return self._compute(query, compute_map, query)

    @get("/snapshot/totals", errors=SPAN_ERRORS, needs="link")
    def totals(self, query: TotalsQuery) -> HeapTotals:
        """Return the totals of blocks by group, and by call path."""
        return self._compute(query, compute_totals, query)

    @get("/snapshot/blocks", media=("application/json", "text/csv", TSV_TYPE), errors=SPAN_ERRORS, needs="link")
    def blocks(self, query: BlockRowsQuery) -> BlockTable | Response:
        """Return blocks with their lifetimes."""
        table = self._compute(query, compute_blocks, query)
        if query.format == "tsv":
            return bytes_response(table.to_csv("\t").encode("utf-8", "replace"), TSV_TYPE)
        return csv_response(table.to_csv(), "blocks") if query.format == "csv" else table


def compute_meta(trace: Trace, device: str, version: str) -> HeapMeta:
    """Return the description of a device."""
    return heap_meta(trace, choose_device(heap_of(trace), device), version)


def compute_tile(trace: Trace, query: HeapTileQuery) -> HeapTile:
    """Return a tile of stacked allocations."""
    heap = heap_of(trace)
    device, conditions = choose_device(heap, query.device), filter_of(query)
    tile = make_tile(trace, device, conditions, query.level, query.index, query.min_bytes)
    times = entry_times(trace, device)
    names, first = block_names(trace, tile.blocks), device_entries(heap, device)[0]
    return HeapTile(
        first_entry=query.index * TILE_BUCKETS << query.level,
        bucket_entries=1 << query.level,
        entry=tile.entry.tolist(),
        time_ns=None if times is None else times[tile.entry].tolist(),
        categories=stacked_blocks(trace, device, conditions).categories,
        bands=[band.tolist() for band in tile.bands],
        allocated_bytes=tile.allocated.tolist(),
        reserved_bytes=tile.reserved.tolist(),
        names=names.names,
        blocks=Table(
            columns=TileBlockColumns(
                block=tile.blocks,
                category=tile.category,
                bytes=heap.blocks.requested[tile.blocks],
                first_bucket=tile.first_bucket,
                last_bucket=tile.last_bucket,
                born=heap.blocks.born[tile.blocks] - first,
                died=heap.blocks.died[tile.blocks] - first,
                name=names.label,
            )
        ),
        hidden_blocks=tile.hidden,
    )


def compute_map(trace: Trace, query: MapQuery) -> HeapMap:
    """Return the map of segments at a moment."""
    heap = heap_of(trace)
    device = choose_device(heap, query.device)
    entry, first = choose_entry(trace, device, query.at), device_entries(heap, device)[0]
    now, times = moment(heap, device, entry), entry_times(trace, device)
    layout, sums = segment_map(trace, now, query.max_pieces), totals(heap, now)
    failed = entry in failed_entries(heap, device).tolist()
    in_the_way = explain_failure(heap, device, entry).in_the_way if failed else np.zeros(0, np.int64)
    return HeapMap(
        device=device,
        entry=entry - first,
        ts_ns=None if times is None or entry < first else int(times[entry - first]),
        requested_bytes=sums.requested,
        allocated_bytes=sums.allocated,
        active_bytes=sums.active,
        reserved_bytes=sums.reserved,
        cached_bytes=sums.cached,
        inactive_split_bytes=sums.inactive_split,
        largest_free_bytes=sums.largest_free,
        rounding_bytes=sums.rounding,
        segments=Table(columns=segment_columns(trace, now, layout.ranges), total_rows=len(now.ranges)),
        pieces=Table(
            columns=piece_columns(trace, now, layout, in_the_way, filtered_blocks(trace, device, filter_of(query)))
        ),
        merged_below_bytes=layout.merged_below,
    )


def compute_totals(trace: Trace, query: TotalsQuery) -> HeapTotals:
    """Return the totals of the selected blocks."""
    heap, (device, conditions, selected) = heap_of(trace), _selected(trace, query)
    groups, number = holder_table(trace, device, conditions, selected, query.by)
    nodes = flame_nodes(trace, selected, query.inverted)
    return HeapTotals(
        bytes=int(heap.blocks.requested[selected].sum()),
        block_bytes=int(heap.blocks.size[selected].sum()),
        blocks=len(selected),
        groups=Table(columns=groups, total_rows=number),
        calls=Table(columns=call_tree_columns(trace, nodes)),
        folded_calls=nodes.folded,
    )


def compute_blocks(trace: Trace, query: BlockRowsQuery) -> BlockTable:
    """Return the selected blocks of the requested page."""
    device, _, selected = _selected(trace, query)
    limit = 200 if query.limit is None and query.format == "json" else query.limit
    rows = Selection(sort=sort_order(query.sort, query.order), offset=query.offset, limit=limit)
    return select_rows(BlockTable(columns=block_columns(trace, device, selected)), rows)


def _selected(trace: Trace, query: SelectedQuery) -> tuple[int, BlockFilter, Ints]:
    """Return the device, the conditions, and the rows of the selected blocks."""
    device, conditions = choose_device(heap_of(trace), query.device), filter_of(query)
    return device, conditions, select_blocks(trace, device, conditions, query.at, query.first, query.last)
