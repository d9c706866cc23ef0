"""Which operator launched a kernel, and what that costs it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ids, Ints, LinkKind, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.matching import match_ids, number_processes
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.tensor_core import match_names, uses_tensor_core
from visualprof.views.measure.trace_cache import cached_on_trace

DEVICE_CATEGORIES = (Category.KERNEL, Category.MEMCPY, Category.MEMSET, Category.COMM)
OPERATOR_CATEGORIES = (Category.OP, Category.COMM)
RANGE_CATEGORIES = (Category.ANNOTATION, Category.FORWARD, Category.BACKWARD, Category.OPTIMIZER, Category.DATALOADER)


class Launches(msgspec.Struct, frozen=True):
    """Rows of events, -1 for none.

    work: device events, ascending. call: what launched each. issue: what asked for it on the host, the call itself
    unless it is of work that ran from a queue. op: the operator that owns each. range: of work of no operator the
    innermost user range or stage around what asked for it, or the repeated block of a graph without a capture.
    place: where each belongs: inside a captured graph, else to what asked for it.
    """

    work: Ids
    call: Ids
    issuer: Ids
    op: Ids
    range: Ids
    site: Ids


@cached_on_trace
def is_kernel(trace: Trace) -> Mask:
    """Of each event: a kernel on a device, a collective's included."""
    return (
        trace.events.category_mask(Category.KERNEL, Category.COMM) & trace.track_mask(TrackKind.STREAM) & _timed(trace)
    )


def is_api_call(trace: Trace) -> Mask:
    """Of each event: a call of the device API (CUDA, HIP, ...) on the host."""
    return (trace.events.category == Category.RUNTIME) & trace.track_mask(TrackKind.THREAD) & _timed(trace)


def _timed(trace: Trace) -> Mask:
    """Of each event: is it known how long it took?"""
    return trace.events.dur >= 0


@cached_on_trace
def is_operator(trace: Trace) -> Mask:
    """Of each event: an operator on the host, or inside the launch of a captured graph.

    A collective's range inside a collective's operator is not a second one, and nor is what repeats an operator.
    """
    comm, parent = trace.events.category == Category.COMM, trace.events.parent
    operators = _is_operator_event(trace) & ~is_nested_duplicate(trace)
    inner = np.flatnonzero(comm & (parent >= 0))
    operators[inner[comm[parent[inner]]]] = False
    return operators


def is_nested_duplicate(trace: Trace) -> Mask:
    """Of each event: is it an operator that is all that there is in one of its name (`aten::sum` in `aten::sum`)?

    The two are one call. Source: torch's `key_averages()`.
    """
    ops, parent, name = _is_operator_event(trace), trace.events.parent, trace.events.name
    rows = np.flatnonzero(ops & (parent >= 0))
    rows = rows[name[parent[rows]] == name[rows]]
    rows = rows[ops[parent[rows]]]
    found = np.zeros(len(ops), bool)
    if len(rows):
        inside = np.bincount(np.where(_timed(trace), parent, -1) + 1, minlength=len(ops) + 1)
        found[rows[inside[parent[rows] + 1] == 1]] = True
    return found


def _is_operator_event(trace: Trace) -> Mask:
    return trace.events.category_mask(*OPERATOR_CATEGORIES) & is_call(trace) & _timed(trace)


@cached_on_trace
def is_call(trace: Trace) -> Mask:
    """Of each event: is it on a thread, or inside the launch of a captured graph?"""
    return trace.track_mask(TrackKind.THREAD) | trace.track_mask(TrackKind.GRAPH)


@cached_on_trace
def host_durations(trace: Trace) -> Ints:
    """How long each event kept the host, ns: 0 of what is inside a captured graph, and of an instant."""
    return np.where(trace.track_mask(TrackKind.GRAPH), 0, np.maximum(trace.events.dur, 0))


@cached_on_trace
def call_depth(trace: Trace) -> Ids:
    """How deep each event is in what it is called by: more than what is around it. Inside graphs, below all threads."""
    depth, inside = trace.events.depth.astype(np.int32), trace.track_mask(TrackKind.GRAPH)
    at = rows = np.flatnonzero(inside)
    if len(rows):
        depth[rows] = int(depth[~inside].max()) + 1
    while len(rows):
        at = trace.events.parent[at]
        deeper = inside[at] & (at >= 0)
        rows, at = rows[deeper], at[deeper]
        depth[rows] += 1
    return depth


def is_device_work(trace: Trace) -> Mask:
    """Of each event: a kernel, copy or fill on a device."""
    return trace.track_mask(TrackKind.STREAM) & trace.events.category_mask(*DEVICE_CATEGORIES) & _timed(trace)


@cached_on_trace
def device_calls(trace: Trace) -> tuple[Ids, Ids, Ids]:
    """`work`, `call` and `issue` of Launches."""
    links = trace.links
    work = np.flatnonzero(is_device_work(trace)).astype(np.int32)
    call, queued = (np.full(len(trace.events) + 1, -1, np.int32) for _ in range(2))
    for kind, source in ((LinkKind.LAUNCH, call), (LinkKind.ASYNC, queued)):
        chosen = links.kind == kind
        source[links.dst[chosen]] = links.src[chosen]
    call = call[work]
    if not (links.kind == LinkKind.ASYNC).any():
        return work, call, call
    around = nearest_ancestor(trace.events.parent, queued[:-1] >= 0, call)
    return work, call, np.where(around >= 0, queued[around], call)


@cached_on_trace
def is_first_of_launch(trace: Trace) -> Mask:
    """Of each piece of device work, as in `calls`: is it the first that its call launched, or of no known call?"""
    work, call, _ = device_calls(trace)
    order = np.argsort(trace.events.ts[work], kind="stable")[::-1]
    first = np.full(len(trace.events) + 1, -1)
    first[call[order]] = order  # of several assignments the last one stays
    return (call < 0) | (first[call] == np.arange(len(work)))


def issue_times(trace: Trace, rows: Ids, ts: Ints) -> Ints:
    """When the host asked for what happened at times in events, (n,) ns.

    On a thread that works off a queue that is when the last work that it began was put there.

    Args: rows: (n,) events in which it happened, -1 for none. ts: (n,) ns.
    """
    events, later = trace.events, trace.links.kind == LinkKind.ASYNC
    if not later.any():
        return ts
    source, last = (np.full(len(events) + 1, -1, np.int32) for _ in range(2))
    source[trace.links.dst[later]] = trace.links.src[later]
    last[:-1] = np.maximum.accumulate(np.where(source[:-1] >= 0, np.arange(len(events)), -1))
    known = np.flatnonzero(last[rows] >= 0)
    queued = last[rows[known]]
    same = events.track[queued] == events.track[rows[known]]
    asked: Ints = np.array(ts)
    asked[known[same]] = events.ts[source[queued[same]]]
    return asked


@cached_on_trace
def launches(trace: Trace) -> Launches:
    """Device work, the call that launched it, and the operator that the call stands in.

    The call is the runtime event with the same correlation id (or the file's own launch link). The owner is
    the operator that the kernel's external id names, if that operator encloses the call, else the innermost
    operator around the call; without a call the external id alone decides. Source: docs/views.md#launch-join.
    """
    events = trace.events
    work, call, issue = device_calls(trace)
    ops = is_operator(trace)
    around = nearest_ancestor(events.parent, ops, call)
    named = _named_by_external_id(trace, work, ops)
    at, end = events.ts[call], events.end
    holds = (
        (named >= 0)
        & (call >= 0)
        & (events.track[named] == events.track[call])
        & (events.ts[named] <= at)
        & (end[named] >= at)
    )
    owner = np.where(holds, named, around)
    owner = np.where((owner < 0) & ~holds, named, owner).astype(np.int32)
    place, inside = _inside_graphs(trace, work, issue)
    owner[inside] = nearest_ancestor(events.parent, ops, place[inside])
    ranges = events.category_mask(*RANGE_CATEGORIES) & is_call(trace)
    around = nearest_ancestor(events.parent, ranges, np.where(owner < 0, place, -1))
    return Launches(work, call, issue, owner, around, place)


def _inside_graphs(trace: Trace, work: Ids, issue: Ids) -> tuple[Ids, Rows]:
    """`place` of Launches, and which of the work is of captured graphs."""
    links = trace.links
    owned = links.kind == LinkKind.OWNER
    if not owned.any():
        return issue, np.zeros(0, np.int64)
    owner = np.full(len(trace.events), -1, np.int32)
    owner[links.dst[owned]] = links.src[owned]
    place = np.where(owner[work] >= 0, owner[work], issue)
    return place, np.flatnonzero(owner[work] >= 0)


def _named_by_external_id(trace: Trace, work: Ids, ops: Mask) -> Ids:
    """The operator whose external id a device event carries, -1 where none does."""
    column = trace.args.get("external_id")
    if column is None:
        return np.full(len(work), -1, np.int32)
    own = np.flatnonzero(_is_operator_event(trace)[column.events])
    own = own[column.values[own] > 0]
    rows = column.events[own]
    pid, track = number_processes(t.pid for t in trace.tracks), trace.events.track
    place = match_ids(column.values[own], pid[track[rows]], column.values_at(work, 0), pid[track[work]])
    return nearest_ancestor(trace.events.parent, ops, np.append(rows, np.int32(-1))[place])


class OperatorTimes(msgspec.Struct, frozen=True):
    """rows: rows of operators. parent: place in `rows` of the enclosing operator, -1 for none. The others: (n,) ns."""

    rows: Ids
    parent: Ids
    host_self: Ints
    host_total: Ints
    device_self: Ints
    device_total: Ints
    tensor_core_self: Ints
    tensor_core_total: Ints


def operator_times(trace: Trace, joined: Launches) -> OperatorTimes:
    """Host and device time of every operator.

    Host self time is the operator's own less its direct child operators and runtime calls; device time is that of
    the work it launched, total with that of the operators inside it.

    Source: torch-tb-profiler's definitions, docs/views.md#operator.
    """
    events = trace.events
    ops = is_operator(trace)
    rows = np.flatnonzero(ops).astype(np.int32)
    place = np.full(len(events) + 1, -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    dur, host = np.maximum(events.dur, 0), host_durations(trace)
    calls = (events.category == Category.RUNTIME) & trace.track_mask(TrackKind.THREAD)
    inner = np.flatnonzero(ops | calls)
    above = nearest_ancestor(events.parent, ops | calls, events.parent[inner])
    direct = (above >= 0) & ops[above]
    spent = np.bincount(place[above[direct]], host[inner[direct]], len(rows)).astype(np.int64)
    parent = place[nearest_ancestor(events.parent, ops, events.parent[rows])]
    owned = joined.op >= 0
    work = joined.work[owned]
    owner, cost, tensor_core = (
        place[joined.op[owned]],
        dur[work],
        match_names(trace, events.name[work], uses_tensor_core),
    )
    device_self = np.bincount(owner, cost, len(rows)).astype(np.int64)
    core_self = np.bincount(owner, cost * tensor_core, len(rows)).astype(np.int64)
    device_total, core_total = inclusive_totals((device_self, core_self), parent, call_depth(trace)[rows])
    return OperatorTimes(
        rows,
        parent,
        np.maximum(host[rows] - spent, 0),
        host[rows],
        device_self,
        device_total,
        core_self,
        core_total,
    )


def inclusive_totals(own: Sequence[Ints], parent: Rows, level: Rows) -> list[Ints]:
    """Own values plus those of everything inside, the deepest level first."""
    totals = [np.array(values) for values in own]
    some = [total for total in totals if total.any()]
    order = np.argsort(level, kind="stable") if some else np.zeros(0, np.int64)
    edges = np.flatnonzero(np.diff(level[order])) + 1
    for group in reversed(np.split(order, edges)):
        inside = group[parent[group] >= 0]
        around = parent[inside]
        for total in some:
            np.add.at(total, around, total[inside])
    return totals
