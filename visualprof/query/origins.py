"""The operator, module and user range that each event comes from, through the launch for device work."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Category, Ids, Ints, LinkKind, Mask, Rows, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.intervals import span_lengths_by_group
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch import RANGE_CATEGORIES, is_call, is_operator, launches
from visualprof.views.measure.operators.call_paths import CallPaths, call_paths
from visualprof.views.measure.operators.path_owners import forward_operators

NO_TIME = -(2**62)  # time of something that did not happen


@cached_on_trace
def sites(trace: Trace) -> Ids:
    """Return, per event, the event with the surroundings from which it comes, -1 for none.

    Host events are their own sites. The site of device work is the call that launched it, or its place in a captured
    graph. Events that a profiler projects onto devices have no site.
    """
    launched = launches(trace)
    site = np.where(is_call(trace), np.arange(len(trace.events), dtype=np.int32), np.int32(-1))
    site[launched.work] = np.where(launched.site >= 0, launched.site, launched.op)
    return site


@cached_on_trace
def launch_calls(trace: Trace) -> Ids:
    """Return, per event, the call that launched it, -1 for host events and unknown calls."""
    launched = launches(trace)
    calls = np.full(len(trace.events), -1, np.int32)
    calls[launched.work] = launched.call
    return calls


@cached_on_trace
def operators(trace: Trace) -> Ids:
    """Return, per event, the innermost operator at or around its site, -1 for none."""
    launched = launches(trace)
    op = nearest_ancestor(trace.events.parent, is_operator(trace), sites(trace))
    op[launched.work] = launched.op
    return op


@cached_on_trace
def is_module(trace: Trace) -> Mask:
    """Return, per event, whether it is a call of a module."""
    return trace.events.category_mask(Category.MODULE) & is_call(trace) & (trace.events.dur >= 0)


@cached_on_trace
def is_range(trace: Trace) -> Mask:
    """Return, per event, whether it is a user range or a stage."""
    return trace.events.category_mask(*RANGE_CATEGORIES) & is_call(trace) & (trace.events.dur >= 0)


@cached_on_trace
def module_paths(trace: Trace) -> CallPaths:
    """Return the call paths of modules."""
    return call_paths(trace, is_module(trace))


@cached_on_trace
def range_paths(trace: Trace) -> CallPaths:
    """Return the call paths of user ranges."""
    return call_paths(trace, is_range(trace))


@cached_on_trace
def backward_sites(trace: Trace) -> Ids:
    """Return, per event, the forward operator if the event belongs to a backward pass outside of modules, else -1."""
    forward = forward_operators(trace)
    parent, site = trace.events.parent, _enqueuers(trace)
    marked = is_module(trace) | (forward[:-1] >= 0)
    enclosing = nearest_ancestor(parent, marked, site)
    is_backward = (enclosing >= 0) & (forward[enclosing] >= 0) & ~np.append(is_module(trace), False)[enclosing]
    return np.where(is_backward, forward[enclosing], np.int32(-1))


def _enqueuers(trace: Trace) -> Ids:
    """Return the sites of events; for work that a thread dequeues, the call that enqueued it."""
    site, links = sites(trace), trace.links
    is_async = links.kind == LinkKind.ASYNC
    if not is_async.any():
        return site
    source = np.full(len(trace.events) + 1, -1, np.int32)
    source[links.dst[is_async]] = links.src[is_async]
    queued = source[nearest_ancestor(trace.events.parent, source[:-1] >= 0, site)]
    return np.where(queued >= 0, queued, site)


@cached_on_trace
def modules(trace: Trace) -> Ids:
    """Return, per event, the innermost module call at or around its site, -1 for none.

    Backward work belongs to the module of its forward operator.
    """
    forward = backward_sites(trace)
    return nearest_ancestor(trace.events.parent, is_module(trace), np.where(forward >= 0, forward, _enqueuers(trace)))


@cached_on_trace
def module_path_ids(trace: Trace) -> Ids:
    """Return, per event, the path of its module as a row of `module_paths`, -1 for none."""
    forward = backward_sites(trace)
    return module_paths(trace).enclosing_paths(trace, np.where(forward >= 0, forward, _enqueuers(trace)))


@cached_on_trace
def user_ranges(trace: Trace) -> Ids:
    """Return, per event, the innermost user range at or around its site, -1 for none."""
    return nearest_ancestor(trace.events.parent, is_range(trace), sites(trace))


def device_spans(trace: Trace, is_member: Mask, rows: Rows) -> tuple[Ints, Ints, Ints]:
    """Return first start, last end and covered time of the device work that was launched inside some events.

    Args:
        trace: The trace.
        is_member: (n,) events of the kind of `rows`, which may nest.
        rows: (m,) events.

    Returns:
        Three arrays (m,) in ns; the start and the end are `NO_TIME` without work.
    """
    events, launched = trace.events, launches(trace)
    position = np.full(len(events) + 1, -1, np.int64)
    position[rows] = np.arange(len(rows))
    site = sites(trace)[launched.work]
    work, around = launched.work, nearest_ancestor(events.parent, is_member, site)
    owners, members = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
    while len(work := work[around >= 0]):  # one round per level of nesting
        around = around[around >= 0]
        owners.append(position[around])
        members.append(work)
        around = nearest_ancestor(events.parent, is_member, events.parent[around])
    owner, member = np.concatenate(owners), np.concatenate(members)
    owner, member = owner[owner >= 0], member[owner >= 0]
    start, end = (np.full(len(rows), NO_TIME, np.int64) for _ in range(2))
    covered = np.zeros(len(rows), np.int64)
    if len(owner):
        by_owner = group(owner)
        owned = owner[by_owner.first]
        start[owned], end[owned] = by_owner.min(events.ts[member]), by_owner.max(events.end[member])
        covered = span_lengths_by_group(owner, events.ts[member], events.end[member], len(rows))
    return start, end, covered
