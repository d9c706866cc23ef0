"""Call paths: a call tree in which equal calls under equal callers are merged."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ids, Ints, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import innermost_on_tracks, nearest_ancestor
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch import RANGE_CATEGORIES, inclusive_totals, is_call, is_operator
from visualprof.views.measure.names.tensor_core import match_names

SCOPE_CATEGORIES = (Category.MODULE, *RANGE_CATEGORIES)
FRAME_CATEGORIES = (Category.PYTHON, Category.MODULE)
BACKWARD_LABEL = "(backward)"  # child of a path, for its backward pass
_RECORDER_FRAME = re.compile(r"(^|[/\\])visualprof[/\\]capture[/\\]")
_THREAD_START = re.compile(r"threading\.py\(\d+\): (_bootstrap|_bootstrap_inner|run)$")
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
