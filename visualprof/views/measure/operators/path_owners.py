"""Assign work and time to call paths."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import Ids, Ints, LinkKind, Mask, Rows, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch import host_durations, launches
from visualprof.views.measure.names.tensor_core import match_names
from visualprof.views.measure.operators.call_paths import CallPaths, path_texts, scope_paths
from visualprof.views.measure.steps.windows import step_indices

AUTOGRAD_ENGINE = "autograd::engine::evaluate_function"


@cached_on_trace
def forward_operators(trace: Trace) -> Ids:
    """Return, per event, the forward operator that it is the backward of, -1 for none.

    The file links the forward operator to the event. Files without such links have
    sequence numbers: then it is the last operator with the same number that began earlier. The
    autograd engine's events around a backward operator get the same forward operator.

    Returns: (n + 1,) rows of events; the last entry stands for no event.
    """
    links, events = trace.links, trace.events
    forward = np.full(len(events) + 1, -1, np.int32)
    is_forward_link = links.kind == LinkKind.FWDBWD
    forward[links.dst[is_forward_link]] = links.src[is_forward_link]
    if not is_forward_link.any() and "sequence" in trace.args:
        _link_by_sequence(trace, forward)
    rows = np.flatnonzero(forward[:-1] >= 0)
    parent = events.parent[rows]
    is_engine = (parent >= 0) & match_names(trace, events.name[parent], lambda name: name.startswith(AUTOGRAD_ENGINE))
    forward[parent[is_engine]] = forward[rows[is_engine]]
    return forward


def _link_by_sequence(trace: Trace, forward: Ids) -> None:
    """Set the forward operators of events with the same sequence number."""
    events = trace.events
    column = trace.args["sequence"]
    rows = column.events[column.values >= 0]
    rows = rows[np.lexsort((events.ts[rows], trace.arg("sequence", rows)))]
    is_backward = match_names(trace, events.name[rows], lambda name: "Backward" in name)
    last_forward = np.maximum.accumulate(np.where(is_backward, -1, np.arange(len(rows))))
    linked = np.flatnonzero(is_backward & (last_forward >= 0))
    forward_rows, backward_rows = rows[last_forward[linked]], rows[linked]
    is_same = trace.arg("sequence", forward_rows) == trace.arg("sequence", backward_rows)
    forward[backward_rows[is_same]] = forward_rows[is_same]


class PathOwners(msgspec.Struct, frozen=True):
    """The path that each of some rows belongs to.

    Attributes:
        path: (m,) -1 for none.
        is_backward: (m,) whether the row belongs to the backward pass of the path.
    """

    path: Ids
    is_backward: Mask


def path_owners(trace: Trace, paths: CallPaths, rows: Rows) -> PathOwners:
    """Return the path that each row belongs to.

    It is that of the innermost call around the row. Inside a backward operator it is that of its
    forward operator. Work that a thread dequeues belongs to the call that enqueued it.
    """
    forward, parent, links = forward_operators(trace), trace.events.parent, trace.links
    is_async = links.kind == LinkKind.ASYNC
    if is_async.any():
        source = np.full(len(parent) + 1, -1, np.int32)
        source[links.dst[is_async]] = links.src[is_async]
        queued = source[nearest_ancestor(parent, source[:-1] >= 0, rows)]
        rows = np.where(queued >= 0, queued, rows)
    enclosing = nearest_ancestor(parent, paths.is_member | (forward[:-1] >= 0), rows)
    is_async = (forward[enclosing] >= 0) & ~np.append(paths.is_member, False)[enclosing]
    forward_path = paths.enclosing_paths(trace, np.where(is_async, forward[enclosing], -1))
    is_backward = is_async & (forward_path >= 0)
    return PathOwners(np.where(is_backward, forward_path, paths.enclosing_paths(trace, rows)), is_backward)


def is_inside_module(trace: Trace, module: str, rows: Ids) -> Mask:
    """Return, per row, whether it ran on a module path or a path inside it, or belongs to their backward pass.

    Raises:
        BadParameter: There is no such module path.
    """
    paths = scope_paths(trace)
    names = path_texts(paths, trace.strings)
    if module not in names:
        raise BadParameter(
            msg("views.there_no_module", f"there is no module {module!r}"),
            msg("views.see_visualprof_view_modules", "see `visualprof view modules`"),
        )
    is_selected = np.array([*(name == module or name.startswith(f"{module}/") for name in names), False])
    return is_selected[path_owners(trace, paths, rows).path]


class PathTimes(msgspec.Struct, frozen=True):
    """Calls and times of each path, excluding paths inside it; all (p,).

    Attributes:
        calls: Number of calls.
        host: Host time of the calls, ns.
        device: Time of the device work that the calls launched, ns.
        backward_host: Host time of the path's backward pass, ns.
        backward_device: Time of the device work launched by that backward, ns.
        outside_ns: Time of device work that belongs to no path.
    """

    calls: Ints
    host: Ints
    device: Ints
    backward_host: Ints
    backward_device: Ints
    outside_ns: int


def path_times(trace: Trace, paths: CallPaths, step: str = "") -> PathTimes:
    """Return the time per path, in one step or in the whole trace.

    A call that is longer than the step counts with its part inside the step.
    """
    events = trace.events
    rows = np.flatnonzero(paths.is_member).astype(np.int32)
    time_in_step, is_in_step = _time_in_step(trace, rows, step)
    path, count = paths.path_ids[rows], len(paths)
    total = np.bincount(path, time_in_step, count).astype(np.int64)
    has_parent = paths.parent >= 0
    host = np.maximum(total - np.bincount(paths.parent[has_parent], total[has_parent], count).astype(np.int64), 0)
    launched = launches(trace)
    work = launched.work if not step else launched.work[is_in_step[launched.work]]
    sites = np.where(launched.site >= 0, launched.site, launched.op)
    sites = sites if not step else sites[is_in_step[launched.work]]
    owners = path_owners(trace, paths, sites)
    has_path = owners.path >= 0

    def device(chosen: Mask) -> Ints:
        return np.bincount(owners.path[chosen], events.dur[work[chosen]], count).astype(np.int64)

    return PathTimes(
        calls=np.bincount(path[(time_in_step > 0) | is_in_step[rows]], minlength=count),
        host=host,
        device=device(has_path & ~owners.is_backward),
        backward_host=_backward_by_path(trace, paths, is_in_step),
        backward_device=device(owners.is_backward),
        outside_ns=int(events.dur[work[~has_path]].sum()),
    )


def _time_in_step(trace: Trace, rows: Ids, step: str) -> tuple[Ints, Mask]:
    """Return the time of events inside the steps of a name, (m,) ns, and which of all events belong to them."""
    events, spent = trace.events, host_durations(trace)[rows]
    if not step:
        return spent, np.ones(len(events), bool)
    indices = step_indices(trace, step)
    time_in_step = np.zeros(len(rows), np.int64)
    for low, dur in zip(trace.steps.ts[indices].tolist(), trace.steps.dur[indices].tolist(), strict=True):
        inside = np.minimum(events.ts[rows] + spent, low + dur) - np.maximum(events.ts[rows], low)
        time_in_step += np.maximum(inside, 0)
    return time_in_step, np.isin(events.step, indices)


class BackwardTimes(msgspec.Struct, frozen=True):
    """Backward operators, with the autograd engine's events around them; all (m,).

    Attributes:
        rows: Rows of the events.
        forward: Forward operator of each.
        ns: Host time, excluding nested backward operators.
    """

    rows: Ids
    forward: Ids
    ns: Ints


def backward_times(trace: Trace) -> BackwardTimes:
    """Return the host time of the backward operators whose forward operator is known."""
    events, forward = trace.events, forward_operators(trace)
    rows = np.flatnonzero(forward[:-1] >= 0).astype(np.int32)
    position = np.full(len(events) + 1, -1)
    position[rows] = np.arange(len(rows))
    enclosing = position[nearest_ancestor(events.parent, position[:-1] >= 0, events.parent[rows])]
    exclusive = np.maximum(events.dur[rows], 0)
    exclusive = exclusive - np.bincount(enclosing[enclosing >= 0], exclusive[enclosing >= 0], len(exclusive)).astype(
        np.int64
    )
    return BackwardTimes(rows, forward[rows], np.maximum(exclusive, 0))


def _backward_by_path(trace: Trace, paths: CallPaths, is_in_step: Mask) -> Ints:
    """Return the host time of backward operators per path of their forward operator."""
    times = backward_times(trace)
    path = paths.enclosing_paths(trace, times.forward)
    is_counted = (path >= 0) & is_in_step[times.rows]
    return np.bincount(path[is_counted], times.ns[is_counted], len(paths)).astype(np.int64)
