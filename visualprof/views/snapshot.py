"""Memory snapshot: the allocator's memory at any moment, its holders, and why an allocation failed."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from visualprof.reader.trace import Trace
from visualprof.reader.trace.heap import NO_TIME, Heap, is_at
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Answer, Columns, Table, from_rows
from visualprof.views.measure.heap.block_filter import BlockFilter, filter_of, filtered_blocks
from visualprof.views.measure.heap.call_tree import flame_nodes
from visualprof.views.measure.heap.changes import MomentChangeColumns, moment_changes
from visualprof.views.measure.heap.choice import choose_device, choose_entry, heap_of
from visualprof.views.measure.heap.growth import find_growth, step_entries
from visualprof.views.measure.heap.holders import select_blocks
from visualprof.views.measure.heap.labels import GroupBy, block_labels, stack_frames
from visualprof.views.measure.heap.moment import (
    Moment,
    device_entries,
    failed_entries,
    moment,
    requested_curve,
    totals,
)
from visualprof.views.measure.heap.out_of_memory import Cause, explain_failure
from visualprof.views.measure.heap.remedies import failure_holders, find_remedies, missing_bytes
from visualprof.views.measure.heap.tables import (
    MAX_ROWS,
    AliveColumns,
    CallTreeColumns,
    SegmentColumns,
    call_tree_columns,
    holder_table,
    segment_columns,
)


@dataclass(frozen=True)
class SnapshotParams(Params, BlockFilter):
    """Parameters of the view: the moment, and the conditions of the blocks.

    Attributes:
        device: Number of the device; "" for the device with the most reserved memory.
        at: The moment: `peak` (of the step, if a step is given), `oom` (the last failed allocation, or the end if none
            failed), `end`, the name of a step (its peak), or the number of an entry, counted from 0 on the device.
        base_at: A moment to compare with, like `at`; "" for none. `changes` then shows the differences.
        by: Property by which memory is grouped.
        first: First entry of a range. `alive` and `calls` then show the blocks allocated in the range.
        last: Last entry of the range.
        inverted: Whether the tree of calls starts at the innermost frame.
    """

    device: str = ""
    at: str = "peak"
    base_at: str = ""
    by: GroupBy = "line"
    first: int | None = None
    last: int | None = None
    inverted: bool = False


class GrowthColumns(Columns):
    """Places that keep memory from every step until the end of the history.

    Attributes:
        bytes: Requested bytes that remain from all steps.
        step_bytes: Requested bytes that remain from an average step.
    """

    name: kinds.NameColumn
    bytes: kinds.SizeColumn
    step_bytes: kinds.SizeColumn
    steps: kinds.CountColumn


class FailureHolderColumns(Columns):
    """Lines that hold memory when an allocation fails, the largest first.

    Attributes:
        change_bytes: Increase of the line's requested bytes since the last step started; None without steps.
    """

    name: kinds.NameColumn
    bytes: kinds.SizeColumn
    blocks: kinds.CountColumn
    change_bytes: kinds.SizeColumn


class RemedyColumns(Columns):
    """Remedies of a failed allocation, sufficient ones first.

    Attributes:
        kind: expandable_segments: let segments grow, so that free pieces join. fix_growth: release the memory that a
            line keeps in every step. checkpoint_activations: compute activations again. smaller_batch: activations,
            inputs and temporary memory shrink with the batch. smaller_optimizer: an optimizer with less state, or one
            that shares it among ranks. release_streams: memory that waits for another stream. release_pools: memory
            of other pools and streams. raise_limit: the limit of the process, `set_per_process_memory_fraction`.
        bytes: Bytes that the remedy makes available at most.
        may_fit: Whether these cover the missing bytes of the device.
        name: Line of the program that keeps the memory.
        batch_ratio: Share of the batch that would fit.
    """

    kind: kinds.WordColumn
    bytes: kinds.SizeColumn
    may_fit: kinds.FlagColumn
    name: kinds.NameColumn
    batch_ratio: kinds.RatioColumn


class FailureAnswer(msgspec.Struct):
    """A failed allocation.

    Attributes:
        entry: Number of the entry on the device.
        cause: not_allocator: a free piece was large enough, so another limit applies. fragmentation: the usable free
            pieces are large enough together, but none alone. other_pool: there is enough free memory in other
            pools, streams or sizes. capacity: the memory is in use.
        needed_bytes: Bytes of the block.
        segment_bytes: Bytes that the allocator requested from the device.
        device_free_bytes: Free memory of the device.
        usable_bytes: Free bytes in the pool, the stream and the size class of the request.
        usable_pieces: Number of usable free pieces.
        largest_usable_bytes: Size of the largest usable piece.
        elsewhere_bytes: Reserved free bytes that are not usable for the request.
        pending_bytes: Bytes that another stream may still use.
        in_the_way_bytes: Size of the smallest group of neighboring blocks that must be released to make room; None if
            no range is large enough.
        in_the_way_blocks: Number of these blocks.
        in_the_way_lines: Lines that allocated these blocks.
        missing_bytes: Bytes that the device lacks for the segment.
        stack: The call stack of the request, the innermost frame first.
    """

    entry: kinds.Identifier
    cause: Cause
    needed_bytes: kinds.Size
    segment_bytes: kinds.Size
    device_free_bytes: kinds.Size
    usable_bytes: kinds.Size
    usable_pieces: kinds.Count
    largest_usable_bytes: kinds.Size
    elsewhere_bytes: kinds.Size
    pending_bytes: kinds.Size
    in_the_way_bytes: kinds.Size | None
    in_the_way_blocks: kinds.Count
    in_the_way_lines: list[str]
    missing_bytes: kinds.Size
    stack: list[str]
    holders: Table[FailureHolderColumns]
    remedies: Table[RemedyColumns]


class RequestedCurveColumns(Columns):
    """Requested bytes of live blocks after each entry, downsampled to the extremes of equal ranges of entries."""

    entry: kinds.CountColumn
    requested_bytes: kinds.SizeColumn


class SnapshotAnswer(Answer, kw_only=True):
    """The allocator's memory at a moment.

    Attributes:
        entry: Number of the entry on the device, -1 for before the first one.
        entries: Number of entries of the device.
        ts_ns: Time since the first entry; None if the entries have no times.
        requested_bytes: Bytes that the program requested, in live blocks.
        allocated_bytes: Bytes of live blocks, as `torch.cuda.memory_allocated()`.
        active_bytes: Allocated bytes, plus blocks that another stream may still use.
        reserved_bytes: Reserved ranges, as `torch.cuda.memory_reserved()`.
        cached_bytes: Ranges without a live block, which `empty_cache()` would release.
        inactive_split_bytes: Free memory between live blocks, which cannot be released.
        largest_free_bytes: The largest free piece.
        rounding_bytes: Bytes of blocks beyond the requested ones.
        before_history_bytes: Requested bytes of blocks that are older than the history.
        base_entry: Number of the entry to compare with; None if none was requested.
        delta_bytes: Increase of the requested bytes since then, of blocks that meet the conditions.
    """

    device: kinds.Identifier
    devices: list[int]
    entry: kinds.Identifier
    entries: kinds.Count
    ts_ns: kinds.Duration | None
    requested_bytes: kinds.Size
    allocated_bytes: kinds.Size
    active_bytes: kinds.Size
    reserved_bytes: kinds.Size
    cached_bytes: kinds.Size
    inactive_split_bytes: kinds.Size
    largest_free_bytes: kinds.Size
    rounding_bytes: kinds.Size
    before_history_bytes: kinds.Size
    base_entry: kinds.Identifier | None
    delta_bytes: kinds.Size | None
    failure: FailureAnswer | None
    alive: Table[AliveColumns]
    changes: Table[MomentChangeColumns]
    calls: Table[CallTreeColumns]
    segments: Table[SegmentColumns]
    growth: Table[GrowthColumns]
    curve: Table[RequestedCurveColumns]


def needs(trace: Trace) -> bool:
    """Whether the trace is of a memory snapshot."""
    return trace.heap is not None and len(trace.heap.tables.device) > 0


def compute(trace: Trace, params: SnapshotParams) -> SnapshotAnswer:
    """Return the memory of one device at a moment.

    Source: definitions of torch.cuda.memory_stats; docs/views/snapshot.md
    """
    heap, conditions = heap_of(trace), filter_of(params)
    device = choose_device(heap, params.device)
    first, end = device_entries(heap, device)
    entry = choose_entry(trace, device, params.step if params.step and params.at == "peak" else params.at)
    now = moment(heap, device, entry)
    sums = totals(heap, now)
    older = now.blocks[heap.blocks.born[now.blocks] < first]
    failures = failed_entries(heap, device)
    times = heap.entries.time_us[first:end]
    has_time = first <= entry < end and bool((times != NO_TIME).all())
    selected = select_blocks(trace, device, conditions, str(entry - first), params.first, params.last)
    alive, groups = holder_table(trace, device, conditions, selected, params.by)
    base_entry = choose_entry(trace, device, params.base_at) if params.base_at else None
    changes, delta_bytes = _changes(trace, params, device, entry, base_entry)
    return SnapshotAnswer(
        device=device,
        devices=heap.tables.device.tolist(),
        entry=entry - first,
        entries=end - first,
        ts_ns=int(times[entry - first] - times[0]) * 1000 if has_time else None,
        requested_bytes=sums.requested,
        allocated_bytes=sums.allocated,
        active_bytes=sums.active,
        reserved_bytes=sums.reserved,
        cached_bytes=sums.cached,
        inactive_split_bytes=sums.inactive_split,
        largest_free_bytes=sums.largest_free,
        rounding_bytes=sums.rounding,
        before_history_bytes=int(heap.blocks.requested[older].sum()),
        base_entry=None if base_entry is None else base_entry - first,
        delta_bytes=delta_bytes,
        failure=_failure(trace, device, int(failures[-1])) if len(failures) else None,
        alive=Table(columns=alive, total_rows=groups),
        changes=Table(columns=changes),
        calls=Table(columns=call_tree_columns(trace, flame_nodes(trace, selected, params.inverted))),
        segments=_segments(trace, heap, now),
        growth=Table(columns=_growth(trace, heap, device)),
        curve=Table(columns=_curve(heap, device)),
    )


def _changes(
    trace: Trace, params: SnapshotParams, device: int, entry: int, base_entry: int | None
) -> tuple[MomentChangeColumns, int | None]:
    """Return the changes since the first moment, and the increase of all requested bytes; no rows without one."""
    blocks, rows = heap_of(trace).blocks, filtered_blocks(trace, device, filter_of(params))
    if base_entry is None:
        return moment_changes(trace, rows[:0], rows[:0], params.by), None
    base, new = (rows[is_at(blocks.born[rows], blocks.died[rows], at)] for at in (base_entry, entry))
    increase = int(blocks.requested[new].sum() - blocks.requested[base].sum())
    return moment_changes(trace, base, new, params.by), increase


def _segments(trace: Trace, heap: Heap, now: Moment) -> Table[SegmentColumns]:
    """Return the largest ranges."""
    order = np.argsort(-heap.ranges.size[now.ranges], kind="stable")
    return Table(columns=segment_columns(trace, now, order[:MAX_ROWS]), total_rows=len(order))


def _growth(trace: Trace, heap: Heap, device: int) -> GrowthColumns:
    labels, names = block_labels(trace, "line")
    rows = find_growth(heap, device, step_entries(trace, heap, device), labels)
    return GrowthColumns(
        name=[names[row.label] for row in rows],
        bytes=[sum(row.step_bytes) for row in rows],
        step_bytes=[sum(row.step_bytes) // len(row.step_bytes) for row in rows],
        steps=[len(row.step_bytes) for row in rows],
    )


def _failure(trace: Trace, device: int, entry: int) -> FailureAnswer:
    heap = heap_of(trace)
    failure, first = explain_failure(heap, device, entry), device_entries(heap, device)[0]
    lines = block_labels(trace, "line")
    pinned: list[int] = lines.label[failure.in_the_way].tolist()
    return FailureAnswer(
        entry=failure.entry - first,
        cause=failure.cause,
        needed_bytes=failure.needed,
        segment_bytes=failure.segment,
        device_free_bytes=failure.device_free,
        usable_bytes=failure.usable,
        usable_pieces=failure.usable_pieces,
        largest_usable_bytes=failure.largest_usable,
        elsewhere_bytes=failure.elsewhere,
        pending_bytes=failure.pending,
        in_the_way_bytes=failure.in_the_way_bytes if len(failure.in_the_way) else None,
        in_the_way_blocks=len(failure.in_the_way),
        in_the_way_lines=sorted({lines.names[label] for label in pinned}),
        missing_bytes=missing_bytes(failure),
        stack=stack_frames(trace, int(heap.entries.stack[entry])),
        holders=Table(columns=from_rows(FailureHolderColumns, failure_holders(trace, device, failure))),
        remedies=Table(columns=from_rows(RemedyColumns, find_remedies(trace, device, failure))),
    )


def _curve(heap: Heap, device: int) -> RequestedCurveColumns:
    from visualprof.views.measure.devices.memory import downsample

    held = requested_curve(heap, device)
    at = downsample(np.arange(len(held)), held)
    return RequestedCurveColumns(entry=at - 1, requested_bytes=held[at])


def make_charts(result: SnapshotAnswer, params: SnapshotParams, top: int) -> dict[str, charts.Option]:
    """Return the chart `curve` of requested bytes over the entries, with the moment, and `alive` by group."""
    curve, alive = result.curve.columns, result.alive.columns
    option = charts.lines([("@t:column.requested_bytes", curve.entry, curve.requested_bytes)], ("count", "bytes"))
    out = {"curve": option} if len(curve.entry) > 1 else {}
    if len(alive.name):
        out["alive"] = charts.bars(list(alive.name)[:top], [("@t:column.bytes", alive.bytes[:top])])
    return out


VIEW = View("snapshot", 61, needs, SnapshotParams, compute, make_charts)
