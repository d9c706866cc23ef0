"""Memory snapshot: the allocator's memory at any moment, who holds it, and why an allocation failed."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import Trace
from visualprof.reader.trace.heap import NO_TIME, Heap
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import AddressColumn, Answer, Columns, Table
from visualprof.views.measure.heap.growth import find_growth, step_entries
from visualprof.views.measure.heap.labels import GroupBy, block_labels
from visualprof.views.measure.heap.moment import (
    Moment,
    alive_bytes,
    device_entries,
    failed_entries,
    moment,
    peak_entry,
    requested_curve,
    totals,
)
from visualprof.views.measure.heap.out_of_memory import Cause, Failure, explain_failure

MAX_ROWS = 500


@dataclass(frozen=True)
class SnapshotParams(Params):
    """Parameters of the view.

    Attributes:
        device: Number of the device; "" for the device with the most reserved memory.
        at: The moment: `peak`, `oom` (where memory ran out, the end without such an entry), `end`, or the number of an
            entry, counted from 0 on the device.
        by: What live memory is grouped by.
    """

    device: str = ""
    at: str = "peak"
    by: GroupBy = "line"


class AliveColumns(Columns):
    """Live memory by group, the largest first.

    Attributes:
        name: The group.
        bytes: Requested bytes.
        block_bytes: Bytes of the blocks, which are rounded up.
        blocks: Number of blocks.
        share: Share of all requested bytes.
        stack: The call stack of the largest block of the group, the innermost frame first.
    """

    name: kinds.NameColumn
    bytes: kinds.SizeColumn
    block_bytes: kinds.SizeColumn
    blocks: kinds.CountColumn
    share: kinds.RatioColumn
    stack: kinds.TextColumn


class SegmentColumns(Columns):
    """Reserved ranges of addresses, the largest first.

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


class GrowthColumns(Columns):
    """Places with memory of every step that is alive at the end of the history.

    Attributes:
        bytes: Requested bytes that are left of all steps.
        step_bytes: Requested bytes that are left of an average step.
    """

    name: kinds.NameColumn
    bytes: kinds.SizeColumn
    step_bytes: kinds.SizeColumn
    steps: kinds.CountColumn


class FailureAnswer(msgspec.Struct):
    """A failed allocation.

    Attributes:
        entry: Number of the entry on the device.
        cause: not_allocator: a free piece was large enough, so another limit applies. fragmentation: the usable free
            pieces are large enough together, but none alone. other_pool: there is enough free memory in other
            pools, streams or sizes. capacity: the memory is in use.
        needed_bytes: Bytes of the block.
        segment_bytes: Bytes that the allocator asked of the device.
        device_free_bytes: Free memory of the device.
        usable_bytes: Free bytes in the pool, the stream and the size class of the request.
        usable_pieces: Number of these pieces.
        largest_usable_bytes: The largest of them.
        elsewhere_bytes: Other free bytes that are reserved.
        pending_bytes: Bytes that another stream may still use.
        in_the_way_bytes: Fewest bytes of neighboring blocks that would make room if released; None if no range is large
            enough.
        in_the_way_blocks: Number of these blocks.
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
    stack: list[str]


class RequestedCurveColumns(Columns):
    """Requested bytes of live blocks after each entry, reduced to the extremes of equal ranges of entries."""

    entry: kinds.CountColumn
    requested_bytes: kinds.SizeColumn


class SnapshotAnswer(Answer, kw_only=True):
    """The allocator's memory at a moment.

    Attributes:
        entry: Number of the entry on the device, -1 for before the first one.
        entries: Number of entries of the device.
        ts_ns: Time since the first entry; None without times.
        requested_bytes: Requested by live blocks.
        allocated_bytes: Bytes of live blocks, as `torch.cuda.memory_allocated()`.
        active_bytes: Also blocks that another stream may still use.
        reserved_bytes: Reserved ranges, as `torch.cuda.memory_reserved()`.
        cached_bytes: Ranges without a live block, which `empty_cache()` would release.
        inactive_split_bytes: Free memory between live blocks, which cannot be released.
        largest_free_bytes: The largest free piece.
        rounding_bytes: Bytes of blocks beyond the requested ones.
        before_history_bytes: Requested bytes of blocks that are older than the history.
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
    failure: FailureAnswer | None
    alive: Table[AliveColumns]
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
    heap = trace.heap
    assert heap is not None
    device = _device(heap, params.device)
    first, end = device_entries(heap, device)
    entry = _entry(heap, device, params.at)
    now = moment(heap, device, entry)
    sums = totals(heap, now)
    older = now.blocks[heap.blocks.born[now.blocks] < first]
    failures = failed_entries(heap, device)
    times = heap.entries.time_us[first:end]
    has_time = first <= entry < end and bool((times != NO_TIME).all())
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
        failure=_failure(trace, explain_failure(heap, device, int(failures[-1])), first) if len(failures) else None,
        alive=Table(columns=_alive(trace, heap, now, params.by)),
        segments=Table(columns=_segments(heap, now)),
        growth=Table(columns=_growth(trace, heap, device)),
        curve=Table(columns=_curve(heap, device)),
    )


def _device(heap: Heap, text: str) -> int:
    devices: list[int] = heap.tables.device.tolist()
    if text.isdigit() and int(text) in devices:
        return int(text)
    reserved = [int(heap.ranges.size[heap.ranges.device == device].sum()) for device in devices]
    return devices[int(np.argmax(reserved))]


def _entry(heap: Heap, device: int, at: str) -> int:
    """Return the number of the entry that the parameter names.

    Raises:
        BadParameter: It is no moment of the device.
    """
    first, end = device_entries(heap, device)
    failures = failed_entries(heap, device)
    named = {
        "peak": peak_entry(heap, device) if end > first else end - 1,
        "oom": int(failures[-1]) if len(failures) else end - 1,
        "end": end - 1,
    }
    if at in named:
        return named[at]
    number = int(at) if at.lstrip("-").isdigit() and len(at) < 19 else -2
    if not -1 <= number < end - first:
        raise BadParameter(
            msg("views.no_moment", f"{at!r} is no moment of the snapshot"),
            msg("views.moments", f"peak, oom, end, or a number from 0 to {end - first - 1:,}"),
        )
    return first + number


def _alive(trace: Trace, heap: Heap, now: Moment, by: GroupBy) -> AliveColumns:
    labels, names = block_labels(trace, heap, by)
    requested, size, blocks = alive_bytes(heap, now, labels)
    order = np.argsort(-requested, kind="stable")
    order = order[blocks[order] > 0][:MAX_ROWS]
    total = max(int(requested.sum()), 1)
    largest = now.blocks[np.argsort(-heap.blocks.requested[now.blocks], kind="stable")]
    _, first_of_label = np.unique(labels[largest], return_index=True)
    row_of_label = dict(zip(labels[largest][first_of_label].tolist(), largest[first_of_label].tolist(), strict=True))
    shown: list[int] = order.tolist()
    stacks = [_frames(trace, int(heap.blocks.stack[row_of_label[label]])) for label in shown]
    return AliveColumns(
        name=[names[label] for label in shown],
        bytes=requested[order],
        block_bytes=size[order],
        blocks=blocks[order],
        share=requested[order] / total,
        stack=[" < ".join(frames) for frames in stacks],
    )


def _frames(trace: Trace, stack: int) -> list[str]:
    """Return the frames of a stack in the notation of Kineto: `file(line): function`."""
    heap = trace.heap
    assert heap is not None
    stacks, strings = heap.stacks, trace.strings
    return [
        f"{strings[int(stacks.file[row])]}({int(stacks.line[row])}): {strings[int(stacks.name[row])]}"
        for row in stacks.stack(stack).tolist()
    ]


def _segments(heap: Heap, now: Moment) -> SegmentColumns:
    ranges, rows = heap.ranges, now.ranges
    count = len(rows)
    inside = now.range_of_block >= 0
    used = np.bincount(now.range_of_block[inside], heap.blocks.size[now.blocks[inside]], count).astype(np.int64)
    blocks = np.bincount(now.range_of_block[inside], minlength=count)
    largest = np.zeros(count, np.int64)
    np.maximum.at(largest, now.gap_range, now.gap_bytes)
    order = np.argsort(-ranges.size[rows], kind="stable")[:MAX_ROWS]
    rows = rows[order]
    return SegmentColumns(
        address=AddressColumn(ranges.addr[rows].astype(np.uint64)),
        bytes=ranges.size[rows],
        used_bytes=used[order],
        free_bytes=ranges.size[rows] - used[order],
        largest_free_bytes=largest[order],
        blocks=blocks[order],
        pool=[_pool(heap, pool) for pool in ranges.pool[rows].tolist()],
        stream=[hex(int(heap.tables.stream[stream])) for stream in ranges.stream[rows].tolist()],
        kind=[_kind(small, grows) for small, grows in zip(ranges.small[rows], ranges.expandable[rows], strict=True)],
    )


def _pool(heap: Heap, row: int) -> str | None:
    if row < 0:
        return None
    first, second = heap.tables.pool[row].tolist()
    return "default" if (first, second) == (0, 0) else f"{first}:{second}"


def _kind(small: int, expandable: int) -> str:
    return f"{'small' if small else 'large'}{' expandable' if expandable else ''}"


def _growth(trace: Trace, heap: Heap, device: int) -> GrowthColumns:
    labels, names = block_labels(trace, heap, "line")
    rows = find_growth(heap, device, step_entries(trace, heap, device), labels)
    return GrowthColumns(
        name=[names[row.label] for row in rows],
        bytes=[sum(row.step_bytes) for row in rows],
        step_bytes=[sum(row.step_bytes) // len(row.step_bytes) for row in rows],
        steps=[len(row.step_bytes) for row in rows],
    )


def _failure(trace: Trace, failure: Failure, first: int) -> FailureAnswer:
    heap = trace.heap
    assert heap is not None
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
        stack=_frames(trace, int(heap.entries.stack[failure.entry])),
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
