"""Call paths: a call tree in which equal calls under equal callers are merged."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import Category, Ids, Ints, LinkKind, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import innermost_on_tracks, nearest_ancestor
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch import (
    RANGE_CATEGORIES,
    host_durations,
    inclusive_totals,
    is_call,
    is_operator,
    launches,
)
from visualprof.views.measure.names.tensor_core import match_names
from visualprof.views.measure.steps.windows import step_indices

SCOPE_CATEGORIES = (Category.MODULE, *RANGE_CATEGORIES)
FRAME_CATEGORIES = (Category.PYTHON, Category.MODULE)
BACKWARD_LABEL = "(backward)"  # child of a path, for its backward pass
_RECORDER_FRAME = re.compile(r"(^|[/\\])visualprof[/\\]capture[/\\]")
_THREAD_START = re.compile(r"threading\.py\(\d+\): (_bootstrap|_bootstrap_inner|run)$")
AUTOGRAD_ENGINE = "autograd::engine::evaluate_function"
_MODULE_PREFIX_OR_ADDRESS = re.compile(r"^nn\.Module: | at 0x[0-9a-fA-F]+")


class CallPaths(msgspec.Struct, frozen=True):
    """Distinct call paths of some events.

    A path comes before the paths inside it. Paths with the same caller are in the order of their
    first calls.

    Attributes:
        parent: (p,) path of the caller, -1 for none.
        name: (p,) string id of the last call; no two paths with the same caller have equal labels.
        level: (p,) number of paths around it; 0 for the outermost.
        first: (p,) row of the first call.
        is_member: (n,) which events of the trace the paths are made of.
        path_ids: (n + 1,) path of each event; -1 for events that are not members, and for the last
            entry.
    """

    parent: Ids
    name: Ids
    level: Ids
    first: Ids
    is_member: Mask
    path_ids: Ids

    def __len__(self) -> int:
        return len(self.parent)

    def enclosing_paths(self, trace: Trace, rows: Rows) -> Ids:
        """Return the path of the innermost member event at or above each row, -1 for none.

        Paddle records Python calls and the C++ code that they run as two threads. For rows of the
        C++ thread without an enclosing member event, the Python call that was open at that time is
        used.
        """
        events = trace.events
        path = self.path_ids[nearest_ancestor(events.parent, self.is_member, rows)]
        if not len(events):
            return path
        python_track = python_tracks(trace)[events.track[rows]]
        missing = np.flatnonzero((path < 0) & (rows >= 0) & (python_track >= 0))
        if len(missing):
            track_starts = np.array([*(track.first for track in trace.tracks), len(events)])
            ts = events.ts[rows[missing]]
            enclosing = innermost_on_tracks(
                events.ts, events.end, events.parent, track_starts, python_track[missing], ts
            )
            path[missing] = self.path_ids[nearest_ancestor(events.parent, self.is_member, enclosing)]
        return path

    def inclusive(self, *exclusive: Ints) -> list[Ints]:
        """Return the values of each path plus those of all paths inside it."""
        return inclusive_totals(exclusive, self.parent, self.level)


def call_paths(trace: Trace, is_member: Mask) -> CallPaths:
    """Assign a number to every distinct pair of caller path and label, level by level.

    The level of a call is the number of member events around it, not its nesting depth in the trace: a
    call with an operator or a range around it that is not a member has the same path as one without.

    Args:
        trace: The trace.
        is_member: (n,) which events of the trace to use.
    """
    events = trace.events
    rows = np.flatnonzero(is_member).astype(np.int32)
    name = _label_ids(trace, events.name[rows])
    position = np.full(len(events) + 1, -1, np.int32)
    position[rows] = np.arange(len(rows))
    caller = position[nearest_ancestor(events.parent, is_member, events.parent[rows])]
    depth = _tree_depth(caller)
    path_of_call = np.full(len(rows) + 1, -1, np.int32)
    parents, firsts = ([np.zeros(0, np.int32)] for _ in range(2))
    order, count = np.argsort(depth, kind="stable"), 0
    for level_calls in np.split(order, np.flatnonzero(np.diff(depth[order])) + 1):
        parent_paths = path_of_call[caller[level_calls]]
        paths_of_level = group(parent_paths, name[level_calls])
        path_of_call[level_calls] = count + paths_of_level.ids
        parents.append(parent_paths[paths_of_level.first])
        firsts.append(level_calls[paths_of_level.first].astype(np.int32))
        count += len(paths_of_level.first)
    parent, first = (np.concatenate(column) for column in (parents, firsts))
    level = depth[first]
    place = _time_order(parent, level, events.ts[rows[first]])
    order = np.argsort(place)
    place = np.append(place, np.int32(-1))
    path_ids = np.full(len(events) + 1, -1, np.int32)
    path_ids[rows] = place[path_of_call[:-1]]
    return CallPaths(place[parent[order]], name[first[order]], level[order], rows[first[order]], is_member, path_ids)


def _tree_depth(parent: Ids) -> Ids:
    """Return the number of ancestors of each entry, in a number of passes that is logarithmic in the deepest."""
    depth = np.append(parent >= 0, False).astype(np.int32)
    jump = np.append(parent, np.int32(-1))
    climbing = np.flatnonzero(jump >= 0)
    while len(climbing):
        target = jump[climbing]
        depth[climbing], jump[climbing] = depth[climbing] + depth[target], jump[target]
        climbing = climbing[jump[climbing] >= 0]
    return depth[:-1]


def _label_ids(trace: Trace, name: Ids) -> Ids:
    """Return string ids that are equal for names with equal labels."""
    used, index = np.unique(name, return_inverse=True)
    used_ids: list[int] = used.tolist()
    ids: dict[str, int] = {}
    labels = [ids.setdefault(_label(str(trace.strings[i])), i) for i in used_ids]
    return np.array(labels, np.int32)[index]


def _time_order(parent: Ids, level: Ids, ts: Ints) -> Ids:
    """Return the position of each path in a depth-first order, with siblings sorted by time.

    Args:
        parent: (p,) caller of each path; callers come before the paths inside them.
        level: (p,) ascending.
        ts: (p,) ns of the first call.
    """
    size = inclusive_totals([np.ones(len(parent), np.int64)], parent, level)[0]
    order = np.lexsort((ts, parent))
    preceding = np.cumsum(size[order]) - size[order]  # sizes of all paths that come earlier, under any caller
    caller = parent[order]
    caller_starts = np.flatnonzero(np.diff(caller, prepend=-2))
    position = np.empty(len(parent), np.int64)
    position[order] = preceding - np.repeat(preceding[caller_starts], np.diff(caller_starts, append=len(order)))
    for level_rows in np.split(np.arange(len(parent)), np.flatnonzero(np.diff(level)) + 1):
        with_parent = level_rows[parent[level_rows] >= 0]
        position[with_parent] += position[parent[with_parent]] + 1
    return position.astype(np.int32)


@cached_on_trace
def scope_paths(trace: Trace) -> CallPaths:
    """Return the paths of modules, layers, scopes and ranges.

    These events name places in a program.
    """
    return call_paths(trace, is_scope(trace))


def is_scope(trace: Trace) -> Mask:
    """Return, per event, whether it names a place in a program, as in `scope_paths`."""
    return trace.events.category_mask(*SCOPE_CATEGORIES) & is_call(trace) & (trace.events.dur >= 0)


@cached_on_trace
def frame_paths(trace: Trace) -> CallPaths:
    """Return the paths of Python frames and modules, without those of visualprof's recorder."""
    on_threads = trace.track_mask(TrackKind.THREAD) & (trace.events.dur >= 0)
    return call_paths(trace, trace.events.category_mask(*FRAME_CATEGORIES) & on_threads & ~recorder_frames(trace))


@cached_on_trace
def recorder_frames(trace: Trace) -> Mask:
    """Return, per event, whether it is a frame of visualprof's recorder, inside one, or the start of its threads."""
    events = trace.events
    rows = np.flatnonzero(trace.events.category_mask(Category.PYTHON) & trace.track_mask(TrackKind.THREAD))
    entered = rows[match_names(trace, events.name[rows], lambda name: bool(_RECORDER_FRAME.search(name)))]
    if not len(entered):
        return np.zeros(len(events), bool)
    is_entry, is_start = (np.zeros(len(events), bool) for _ in range(2))
    is_entry[entered] = True
    is_start[rows] = match_names(trace, events.name[rows], lambda name: bool(_THREAD_START.match(name)))
    caller = events.parent[entered]
    while len(caller := caller[caller >= 0]):  # a thread of the recorder has only frames of `threading` above its own
        caller = caller[is_start[caller]]
        is_entry[caller] = True
        caller = events.parent[caller]
    return nearest_ancestor(events.parent, is_entry, np.arange(len(events), dtype=np.int32)) >= 0


@cached_on_trace
def operator_paths(trace: Trace) -> CallPaths:
    """Return the paths of nested operators."""
    return call_paths(trace, is_operator(trace))


@cached_on_trace
def python_tracks(trace: Trace) -> Ids:
    """Return, per track, the track with the Python calls of the same thread; -1 for none."""
    track_of_thread = {(track.pid, track.tid): i for i, track in enumerate(trace.tracks)}
    python_tracks = [
        track_of_thread.get((track.pid, track.tid.replace("(C++)", "(Python)")), -1) for track in trace.tracks
    ]
    return np.array([-1 if i == j else j for i, j in enumerate(python_tracks)] or [-1], np.int32)


def path_labels(paths: CallPaths, strings: Sequence[str]) -> list[str]:
    """Return the label of the last call on each path."""
    ids: list[int] = paths.name.tolist()
    return [_label(str(strings[i])) for i in ids]


def _label(name: str) -> str:
    """Return a name without object addresses, which differ from run to run, and without the prefix of module calls."""
    return _MODULE_PREFIX_OR_ADDRESS.sub("", name) if " at 0x" in name or name.startswith("nn.Module: ") else name


def path_texts(paths: CallPaths, strings: Sequence[str]) -> list[str]:
    """Return the names on each path from the outermost inwards, joined by slashes."""
    texts: list[str] = []
    for parent, label in zip(paths.parent.tolist(), path_labels(paths, strings), strict=True):
        texts.append(f"{texts[parent]}/{label}" if parent >= 0 else label)
    return texts


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
