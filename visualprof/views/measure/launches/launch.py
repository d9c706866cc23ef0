"""Assign device work to the operators that launched it, and compute host and device times of operators."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int64

import msgspec
import numpy as np

from visualprof.reader.native import INT32, INT64, function
from visualprof.reader.trace import Category, Floats, Ids, Ints, LinkKind, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.matching import match_ids, number_track_processes
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.names.tensor_core import tensor_core_masks

DEVICE_CATEGORIES = (Category.KERNEL, Category.MEMCPY, Category.MEMSET, Category.COMM)
OPERATOR_CATEGORIES = (Category.OP, Category.COMM)
MAX_EARLY_SHARE = 0.01  # of a device's launches that start before their call by jitter of the clock
RANGE_CATEGORIES = (Category.ANNOTATION, Category.FORWARD, Category.BACKWARD, Category.OPTIMIZER, Category.DATALOADER)


class Launches(msgspec.Struct, frozen=True):
    """Device work and its launches: rows of events, -1 for none.

    Attributes:
        work: Device events, ascending.
        call: Call that launched each.
        issuer: Host event that issued the work: the call itself, or for work dequeued by a thread,
            the call that enqueued it.
        op: Operator that owns each.
        range: For work without an operator, the innermost user range or stage around the issuer, or
            the repeated block of a graph without a capture.
        site: Place in the program that the work belongs to: inside a captured graph, otherwise the
            issuer.
    """

    work: Ids
    call: Ids
    issuer: Ids
    op: Ids
    range: Ids
    site: Ids


@cached_on_trace
def is_kernel(trace: Trace) -> Mask:
    """Return, per event, whether it is a kernel on a device, including those of collectives."""
    return (
        trace.events.category_mask(Category.KERNEL, Category.COMM)
        & trace.track_mask(TrackKind.STREAM)
        & _has_duration(trace)
    )


def is_api_call(trace: Trace) -> Mask:
    """Return, per event, whether it is a call of the device API (CUDA, HIP, ...) on the host."""
    return (trace.events.category == Category.RUNTIME) & trace.track_mask(TrackKind.THREAD) & _has_duration(trace)


@cached_on_trace
def _has_duration(trace: Trace) -> Mask:
    """Return, per event, whether its duration is known."""
    return trace.events.dur >= 0


@cached_on_trace
def is_operator(trace: Trace) -> Mask:
    """Return, per event, whether it is an operator on the host or inside the launch of a captured graph.

    A collective's range inside a collective's operator is not counted again, nor is an operator
    that only repeats its parent.
    """
    is_comm, parent = trace.events.category == Category.COMM, trace.events.parent
    is_operator_event = _is_operator_event(trace) & ~is_nested_duplicate(trace)
    nested_comm = np.flatnonzero(is_comm & (parent >= 0))
    is_operator_event[nested_comm[is_comm[parent[nested_comm]]]] = False
    return is_operator_event


def is_nested_duplicate(trace: Trace) -> Mask:
    """Return, per event, whether it is an operator that only repeats its parent (`aten::sum` in `aten::sum`).

    It has the same name and is the only child, so both are one call. Source: torch's `key_averages()`.
    """
    is_op, parent, name = _is_operator_event(trace), trace.events.parent, trace.events.name
    rows = np.flatnonzero(is_op & (parent >= 0))
    rows = rows[name[parent[rows]] == name[rows]]
    rows = rows[is_op[parent[rows]]]
    is_duplicate = np.zeros(len(is_op), bool)
    if len(rows):
        is_duplicate[rows[child_counts(trace)[parent[rows]] == 1]] = True
    return is_duplicate


def child_counts(trace: Trace) -> Rows:
    """Return, per event, the number of events with a duration directly inside it."""
    parent, dur = trace.events.parent, trace.events.dur
    native = function("vp_count_children", None, INT32, INT64, c_int64, INT32)
    if native:
        count = np.zeros(len(parent), np.int32)
        native(np.ascontiguousarray(parent), np.ascontiguousarray(dur), len(parent), count)
        return count
    return np.bincount(parent[(parent >= 0) & (dur >= 0)], minlength=len(parent))


@cached_on_trace
def _is_operator_event(trace: Trace) -> Mask:
    """Return, per event, whether it is an operator, without removing nested duplicates."""
    return trace.events.category_mask(*OPERATOR_CATEGORIES) & is_call(trace) & _has_duration(trace)


@cached_on_trace
def is_call(trace: Trace) -> Mask:
    """Return, per event, whether it is on a thread or inside the launch of a captured graph."""
    return trace.track_mask(TrackKind.THREAD) | trace.track_mask(TrackKind.GRAPH)


@cached_on_trace
def host_durations(trace: Trace) -> Ints:
    """Return the host time of each event in ns: 0 for events inside a captured graph, and for instants."""
    return np.where(trace.track_mask(TrackKind.GRAPH), 0, np.maximum(trace.events.dur, 0))


@cached_on_trace
def call_depth(trace: Trace) -> Ids:
    """Return the nesting depth of each event, which is greater than that of its caller.

    Events inside graphs are deeper than those of all threads.
    """
    depth, is_in_graph = trace.events.depth.astype(np.int32), trace.track_mask(TrackKind.GRAPH)
    current = rows = np.flatnonzero(is_in_graph)
    if len(rows):
        depth[rows] = int(depth[~is_in_graph].max()) + 1
    while len(rows):
        current = trace.events.parent[current]
        is_nested = is_in_graph[current] & (current >= 0)
        rows, current = rows[is_nested], current[is_nested]
        depth[rows] += 1
    return depth


def is_device_work(trace: Trace) -> Mask:
    """Return, per event, whether it is a kernel, copy or fill on a device."""
    return trace.track_mask(TrackKind.STREAM) & trace.events.category_mask(*DEVICE_CATEGORIES) & _has_duration(trace)


@cached_on_trace
def device_calls(trace: Trace) -> tuple[Ids, Ids, Ids]:
    """Return `work`, `call` and `issuer` of `Launches`."""
    links = trace.links
    work = np.flatnonzero(is_device_work(trace)).astype(np.int32)
    call, enqueuer = (np.full(len(trace.events) + 1, -1, np.int32) for _ in range(2))
    for link_kind, column in ((LinkKind.LAUNCH, call), (LinkKind.ASYNC, enqueuer)):
        is_kind = links.kind == link_kind
        column[links.dst[is_kind]] = links.src[is_kind]
    call = call[work]
    if not (links.kind == LinkKind.ASYNC).any():
        return work, call, call
    dequeued = nearest_ancestor(trace.events.parent, enqueuer[:-1] >= 0, call)
    return work, call, np.where(dequeued >= 0, enqueuer[dequeued], call)


@cached_on_trace
def is_first_of_launch(trace: Trace) -> Mask:
    """Return, per piece of device work as in `device_calls`, whether it is the first of its launch.

    Work without a known call counts as the first.
    """
    work, call, _ = device_calls(trace)
    order = np.argsort(trace.events.ts[work], kind="stable")[::-1]
    first = np.full(len(trace.events) + 1, -1)
    first[call[order]] = order  # reversed, because the last of several assignments wins
    return (call < 0) | (first[call] == np.arange(len(work)))


@cached_on_trace
def _devices_off_clock(trace: Trace) -> set[int]:
    """Return the devices on which a notable share of the launched work starts before its call.

    Their clocks differ from the host's clock by at least the largest lead, so their launch delays are unknown.
    """
    events = trace.events
    work, call, _ = device_calls(trace)
    work, call = work[call >= 0], call[call >= 0]
    devices = np.array([track.device for track in trace.tracks] or [0])[events.track[work]]
    numbers, index = np.unique(devices, return_inverse=True)
    early = np.bincount(index, events.ts[work] < events.ts[call], len(numbers))
    return set(numbers[early > MAX_EARLY_SHARE * np.bincount(index, minlength=len(numbers))].tolist())


def launch_delays(trace: Trace, call: Rows, work: Rows) -> Floats:
    """Return the time from the end of each call to the start of its work in ns, NaN if unknown.

    The delay is 0 if the work starts during the call. It is unknown without a call, if the work starts before the call,
    and for all work of a device whose clock differs from the host's.

    Args:
        trace: The trace.
        call: (n,) calls, -1 for none.
        work: (n,) device work, or graphs that contain it.
    """
    events = trace.events
    delay = np.maximum(events.ts[work] - events.end[call], 0).astype(np.float64)
    off_clock = np.array([track.device in _devices_off_clock(trace) for track in trace.tracks] or [False])
    is_unknown = (call < 0) | (events.ts[work] < events.ts[call]) | off_clock[events.track[work]]
    return np.where(is_unknown, np.nan, delay)


def issue_times(trace: Trace, rows: Ids, ts: Ints) -> Ints:
    """Return, per time, when the host issued the work that it did at that time, (n,) ns.

    This is the time itself, except on a thread that dequeues work. There it is the time at which
    the work that the thread dequeued last had been enqueued.

    Args:
        trace: The trace.
        rows: (n,) event that contains each time, -1 for none.
        ts: (n,) times in ns.
    """
    events, is_async = trace.events, trace.links.kind == LinkKind.ASYNC
    if not is_async.any():
        return ts
    source, last_dequeued = (np.full(len(events) + 1, -1, np.int32) for _ in range(2))
    source[trace.links.dst[is_async]] = trace.links.src[is_async]
    last_dequeued[:-1] = np.maximum.accumulate(np.where(source[:-1] >= 0, np.arange(len(events)), -1))
    with_source = np.flatnonzero(last_dequeued[rows] >= 0)
    dequeued = last_dequeued[rows[with_source]]
    is_same_track = events.track[dequeued] == events.track[rows[with_source]]
    issued: Ints = np.array(ts)
    issued[with_source[is_same_track]] = events.ts[source[dequeued[is_same_track]]]
    return issued


@cached_on_trace
def launches(trace: Trace) -> Launches:
    """Return device work, the call that launched each piece, and the operator that contains the call.

    The call is the runtime event with the same correlation id, or the file's own launch link. The
    owner is the operator that the kernel's external id names, if that operator encloses the call;
    otherwise the innermost operator around the call, or around the event that enqueued the work for
    the thread of the call. Without a call, the external id alone decides.
    Source: docs/views/operator.md#launch-join.
    """
    events = trace.events
    work, call, issuer = device_calls(trace)
    ops = is_operator(trace)
    enclosing = nearest_ancestor(events.parent, ops, call)
    enclosing = np.where(enclosing < 0, nearest_ancestor(events.parent, ops, issuer), enclosing)
    named_op = _named_by_external_id(trace, work, ops)
    call_start, end = events.ts[call], events.end
    is_enclosing = (
        (named_op >= 0)
        & (call >= 0)
        & (events.track[named_op] == events.track[call])
        & (events.ts[named_op] <= call_start)
        & (end[named_op] >= call_start)
    )
    owner = np.where(is_enclosing, named_op, enclosing)
    owner = np.where((owner < 0) & ~is_enclosing, named_op, owner).astype(np.int32)
    site, in_graph = _graph_sites(trace, work, issuer)
    owner[in_graph] = nearest_ancestor(events.parent, ops, site[in_graph])
    is_range = events.category_mask(*RANGE_CATEGORIES) & is_call(trace)
    enclosing = nearest_ancestor(events.parent, is_range, np.where(owner < 0, site, -1))
    return Launches(work, call, issuer, owner, enclosing, site)


def _graph_sites(trace: Trace, work: Ids, issuer: Ids) -> tuple[Ids, Rows]:
    """Return `site` of `Launches`, and which of the work belongs to captured graphs."""
    links = trace.links
    is_owner_link = links.kind == LinkKind.OWNER
    if not is_owner_link.any():
        return issuer, np.zeros(0, np.int64)
    owner = np.full(len(trace.events), -1, np.int32)
    owner[links.dst[is_owner_link]] = links.src[is_owner_link]
    site = np.where(owner[work] >= 0, owner[work], issuer)
    return site, np.flatnonzero(owner[work] >= 0)


def _named_by_external_id(trace: Trace, work: Ids, ops: Mask) -> Ids:
    """Return the operator whose external id a device event carries, -1 for none."""
    column = trace.args.get("external_id")
    if column is None:
        return np.full(len(work), -1, np.int32)
    operator_entries = np.flatnonzero(_is_operator_event(trace)[column.events])
    operator_entries = operator_entries[column.values[operator_entries] > 0]
    rows = column.events[operator_entries]
    pid, track = number_track_processes(trace.tracks), trace.events.track
    position = match_ids(column.values[operator_entries], pid[track[rows]], column.values_at(work, 0), pid[track[work]])
    return nearest_ancestor(trace.events.parent, ops, np.append(rows, np.int32(-1))[position])


class OperatorTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Times of operators, all (n,) ns.

    Attributes:
        rows: (n,) rows of the operators.
        parent: (n,) index in `rows` of the enclosing operator, -1 for none.
        host_self: Host time without nested operators and runtime calls.
        host_total: Host time.
        device_self: Time of the device work that the operator itself launched.
        device_total: The same including nested operators.
        tensor_core_self: Part of `device_self` on tensor cores.
        tensor_core_total: Part of `device_total` on tensor cores.
        unknown_core_self: Part of `device_self` in kernels whose name does not say if they use tensor cores.
        unknown_core_total: Part of `device_total` in such kernels.
    """

    rows: Ids
    parent: Ids
    host_self: Ints
    host_total: Ints
    device_self: Ints
    device_total: Ints
    tensor_core_self: Ints
    tensor_core_total: Ints
    unknown_core_self: Ints
    unknown_core_total: Ints


def operator_times(trace: Trace, launched: Launches) -> OperatorTimes:
    """Return the host and device time of every operator.

    Host self time is the operator's duration minus its direct child operators and runtime calls. User ranges in an
    operator are part of it.
    Device self time is that of the work it launched; the total includes the operators inside it.

    Source: torch-tb-profiler's definitions, docs/views/operator.md.
    """
    events = trace.events
    is_op = is_operator(trace)
    rows = np.flatnonzero(is_op).astype(np.int32)
    position = np.full(len(events) + 1, -1, np.int32)
    position[rows] = np.arange(len(rows), dtype=np.int32)
    dur, host = np.maximum(events.dur, 0), host_durations(trace)
    is_runtime_call = (events.category == Category.RUNTIME) & trace.track_mask(TrackKind.THREAD)
    callees = np.flatnonzero(is_op | is_runtime_call)
    caller = nearest_ancestor(events.parent, is_op | is_runtime_call, events.parent[callees])
    has_operator_caller = (caller >= 0) & is_op[caller]
    callee_ns = np.bincount(
        position[caller[has_operator_caller]], host[callees[has_operator_caller]], len(rows)
    ).astype(np.int64)
    parent = position[nearest_ancestor(events.parent, is_op, events.parent[rows])]
    has_operator = launched.op >= 0
    work = launched.work[has_operator]
    owner, cost = position[launched.op[has_operator]], dur[work]
    tensor_core, unknown_core = tensor_core_masks(trace, events.name[work])
    unknown_core &= events.category_mask(Category.KERNEL)[work]
    device_self = np.bincount(owner, cost, len(rows)).astype(np.int64)
    core_self = np.bincount(owner, cost * tensor_core, len(rows)).astype(np.int64)
    unknown_self = np.bincount(owner, cost * unknown_core, len(rows)).astype(np.int64)
    device_total, core_total, unknown_total = inclusive_totals(
        (device_self, core_self, unknown_self), parent, call_depth(trace)[rows]
    )
    return OperatorTimes(
        rows=rows,
        parent=parent,
        host_self=np.maximum(host[rows] - callee_ns, 0),
        host_total=host[rows],
        device_self=device_self,
        device_total=device_total,
        tensor_core_self=core_self,
        tensor_core_total=core_total,
        unknown_core_self=unknown_self,
        unknown_core_total=unknown_total,
    )


def inclusive_totals(exclusive: Sequence[Ints], parent: Rows, level: Rows) -> list[Ints]:
    """Return each value plus the values of all nested rows, computed from the deepest level up.

    Args:
        exclusive: Columns (n,) of exclusive values.
        parent: (n,) index of the parent, -1 for none.
        level: (n,) greater than that of the parent.
    """
    totals = [np.array(values) for values in exclusive]
    not_zero = [total for total in totals if total.any()]
    order = np.argsort(level, kind="stable") if not_zero else np.zeros(0, np.int64)
    edges = np.flatnonzero(np.diff(level[order])) + 1
    for level_rows in reversed(np.split(order, edges)):
        with_parent = level_rows[parent[level_rows] >= 0]
        parents = parent[with_parent]
        for total in not_zero:
            np.add.at(total, parents, total[with_parent])
    return totals
