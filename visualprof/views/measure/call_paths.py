"""Calls by their path: a call tree in which equal calls under equal callers are one."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import Category, Ids, Ints, LinkKind, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import innermost_on_tracks, nearest_ancestor
from visualprof.views.measure.groups import group
from visualprof.views.measure.launch import (
    RANGE_CATEGORIES,
    call_depth,
    host_durations,
    inclusive_totals,
    is_call,
    is_operator,
    launches,
)
from visualprof.views.measure.steps import step_index
from visualprof.views.measure.tensor_core import match_names
from visualprof.views.measure.trace_cache import cached_on_trace

SCOPE_CATEGORIES = (Category.MODULE, *RANGE_CATEGORIES)
FRAME_CATEGORIES = (Category.PYTHON, Category.MODULE)
BACKWARD_LABEL = "(backward)"  # below a path: of what ran there
AUTOGRAD_ENGINE = "autograd::engine::evaluate_function"
_ADDED = re.compile(r"^nn\.Module: | at 0x[0-9a-fA-F]+")  # the mark of a module, and where an object lies


class CallPaths(msgspec.Struct, frozen=True):
    """Distinct paths of some events, each before those inside it; those of one caller by their first calls.

    parent: (p,) the path around each, -1 for none. name: (p,) string id. level: (p,) greater than that of `parent`.
    first: (p,) row of the first call. wanted: (n,) the events that are meant; of: (n + 1,) the path of each, -1 for the
    others.
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
        """Path of the innermost of the events at or above each row, -1 for none.

        Paddle writes what Python calls and what that runs in C++ as two threads: then of those open at the time.
        """
        events = trace.events
        found = self.path_ids[nearest_ancestor(events.parent, self.is_member, rows)]
        python = _python_sides(trace)[events.track[rows]]
        lost = np.flatnonzero((found < 0) & (rows >= 0) & (python >= 0))
        if len(lost):
            first = np.array([*(track.first for track in trace.tracks), len(events)])
            ts = events.ts[rows[lost]]
            above = innermost_on_tracks(events.ts, events.end, events.parent, first, python[lost], ts)
            found[lost] = self.path_ids[nearest_ancestor(events.parent, self.is_member, above)]
        return found

    def inclusive(self, *own: Ints) -> list[Ints]:
        """Values of paths with those of all paths inside."""
        return inclusive_totals(own, self.parent, self.level)


def call_paths(trace: Trace, wanted: Mask, name: Ids | None = None) -> CallPaths:
    """Numbers every distinct (path of the caller, name), level by level.

    Args: wanted: (n,) of each event. name: (n,) string ids, where they are not the events' own.
    """
    events = trace.events
    name = events.name if name is None else name
    rows = np.flatnonzero(wanted).astype(np.int32)
    above = nearest_ancestor(events.parent, wanted, events.parent[rows])
    of = np.full(len(events) + 1, -1, np.int32)
    parents, names, levels, firsts = ([np.zeros(0, np.int32)] for _ in range(4))
    depth = call_depth(trace)[rows]
    order, count = np.argsort(depth, kind="stable"), 0
    for at in np.split(order, np.flatnonzero(np.diff(depth[order])) + 1):
        around = of[above[at]]
        pairs = group(around, name[rows[at]])
        of[rows[at]] = count + pairs.ids
        parents.append(around[pairs.first])
        names.append(name[rows[at[pairs.first]]])
        levels.append(depth[at[pairs.first]].astype(np.int32))
        firsts.append(rows[at[pairs.first]])
        count += len(pairs.first)
    parent, called, level, first = (np.concatenate(column) for column in (parents, names, levels, firsts))
    place = _in_order(parent, level, events.ts[first])
    order = np.argsort(place)
    place = np.append(place, np.int32(-1))
    return CallPaths(place[parent[order]], called[order], level[order], first[order], wanted, place[of])


def _in_order(parent: Ids, level: Ids, ts: Ints) -> Ids:
    """Place of each path where all inside one follow it, and those of one caller are in order of time.

    Args: parent: (p,), those around before those inside. level: (p,) ascending.
    """
    size = inclusive_totals([np.ones(len(parent), np.int64)], parent, level)[0]
    order = np.lexsort((ts, parent))
    before = np.cumsum(size[order]) - size[order]  # of all that stand before, in any caller
    caller = parent[order]
    begins = np.flatnonzero(np.diff(caller, prepend=-2))
    place = np.empty(len(parent), np.int64)
    place[order] = before - np.repeat(before[begins], np.diff(begins, append=len(order)))
    for at in np.split(np.arange(len(parent)), np.flatnonzero(np.diff(level)) + 1):
        inside = at[parent[at] >= 0]
        place[inside] += place[parent[inside]] + 1
    return place.astype(np.int32)


@cached_on_trace
def scope_paths(trace: Trace) -> CallPaths:
    """Modules, layers, scopes and the ranges of users and of the framework: what names a place in a program."""
    return call_paths(trace, is_scope(trace))


def is_scope(trace: Trace) -> Mask:
    """Of each event: is it one of those?"""
    return trace.events.category_mask(*SCOPE_CATEGORIES) & is_call(trace) & (trace.events.dur >= 0)


@cached_on_trace
def frame_paths(trace: Trace) -> CallPaths:
    """Python frames and modules. An object's address in a name, which differs from run to run, is left out."""
    on_threads = trace.track_mask(TrackKind.THREAD) & (trace.events.dur >= 0)
    own = list(range(len(trace.strings)))
    ids: dict[str, int] = {}
    for i, text in enumerate(trace.strings):
        if " at 0x" in text:
            own[i] = ids.setdefault(_ADDED.sub("", text), i)
    return call_paths(
        trace, trace.events.category_mask(*FRAME_CATEGORIES) & on_threads, np.array(own, np.int32)[trace.events.name]
    )


@cached_on_trace
def operator_paths(trace: Trace) -> CallPaths:
    """Operators inside operators."""
    return call_paths(trace, is_operator(trace))


@cached_on_trace
def _python_sides(trace: Trace) -> Ids:
    """Of each track the one with the Python calls of the same thread, -1 where there is none."""
    place = {(t.pid, t.tid): i for i, t in enumerate(trace.tracks)}
    other = [place.get((t.pid, t.tid.replace("(C++)", "(Python)")), -1) for t in trace.tracks]
    return np.array([-1 if i == j else j for i, j in enumerate(other)] or [-1], np.int32)


def path_labels(paths: CallPaths, strings: Sequence[str]) -> list[str]:
    """What is called last on each path: no address, and no mark that tells a module from a function."""
    ids: list[int] = paths.name.tolist()
    return [_ADDED.sub("", str(strings[i])) for i in ids]


def path_texts(paths: CallPaths, strings: Sequence[str]) -> list[str]:
    """The names on each path from the outermost inwards, with a slash between."""
    out: list[str] = []
    for parent, own in zip(paths.parent.tolist(), path_labels(paths, strings), strict=True):
        out.append(f"{out[parent]}/{own}" if parent >= 0 else own)
    return out


@cached_on_trace
def forward_operators(trace: Trace) -> Ids:
    """Of each event: the operator that it is the backward of, -1 for none.

    As the file links the two; of files without such links by the number that both have: the last operator with it that
    began before. What the engine does around a backward operator belongs to it. (n + 1,), the last one for no event.
    """
    links, events = trace.links, trace.events
    found = np.full(len(events) + 1, -1, np.int32)
    known = links.kind == LinkKind.FWDBWD
    found[links.dst[known]] = links.src[known]
    if not known.any() and "sequence" in trace.args:
        _numbered(trace, found)
    rows = np.flatnonzero(found[:-1] >= 0)
    around = events.parent[rows]
    engine = (around >= 0) & match_names(trace, events.name[around], lambda name: name.startswith(AUTOGRAD_ENGINE))
    found[around[engine]] = found[rows[engine]]
    return found


def _numbered(trace: Trace, found: Ids) -> None:
    """Set the forward operators of those with the same number."""
    events = trace.events
    column = trace.args["sequence"]
    rows = column.events[column.values >= 0]
    rows = rows[np.lexsort((events.ts[rows], trace.arg("sequence", rows)))]
    back = match_names(trace, events.name[rows], lambda name: "Backward" in name)
    place = np.maximum.accumulate(np.where(back, -1, np.arange(len(rows))))
    at = np.flatnonzero(back & (place >= 0))
    source, row = rows[place[at]], rows[at]
    same = trace.arg("sequence", source) == trace.arg("sequence", row)
    found[row[same]] = source[same]


class PathOwners(msgspec.Struct, frozen=True):
    """Of some rows: the path that each belongs to, -1 for none, and whether as the backward of what ran there."""

    path: Ids
    is_backward: Mask


def path_owners(trace: Trace, tree: CallPaths, rows: Rows) -> PathOwners:
    """Where rows belong: to the innermost call around them, or, inside a backward operator, to that of its forward.

    What runs from a queue belongs to the call that put it there.
    """
    forward, parent, links = forward_operators(trace), trace.events.parent, trace.links
    later = links.kind == LinkKind.ASYNC
    if later.any():
        source = np.full(len(parent) + 1, -1, np.int32)
        source[links.dst[later]] = links.src[later]
        queued = source[nearest_ancestor(parent, source[:-1] >= 0, rows)]
        rows = np.where(queued >= 0, queued, rows)
    nearest = nearest_ancestor(parent, tree.is_member | (forward[:-1] >= 0), rows)
    later = (forward[nearest] >= 0) & ~np.append(tree.is_member, False)[nearest]
    led = tree.enclosing_paths(trace, np.where(later, forward[nearest], -1))
    backward = later & (led >= 0)
    return PathOwners(np.where(backward, led, tree.enclosing_paths(trace, rows)), backward)


def is_inside_module(trace: Trace, module: str, rows: Ids) -> Mask:
    """Of each row: did it run in the place of that path, or in one inside it, or is it the backward of what did?

    Raises: BadParameter: there is no such place.
    """
    tree = scope_paths(trace)
    names = path_texts(tree, trace.strings)
    if module not in names:
        raise BadParameter(
            msg("views.there_no_module", f"there is no module {module!r}"),
            msg("views.see_visualprof_view_modules", "see `visualprof view modules`"),
        )
    held = np.array([*(name == module or name.startswith(f"{module}/") for name in names), False])
    return held[path_owners(trace, tree, rows).path]


class PathTimes(msgspec.Struct, frozen=True):
    """Calls and ns of each path without those inside it, (p,).

    host: of its calls. device: of what it launched. backward_host, backward_device: of the backward of what it ran.
    outside_ns: of device work that belongs to no path.
    """

    calls: Ints
    host: Ints
    device: Ints
    backward_host: Ints
    backward_device: Ints
    outside_ns: int


def path_times(trace: Trace, tree: CallPaths, step: str = "") -> PathTimes:
    """Time by path, of one step or of all. A call that is longer than the step counts with what lies in it."""
    events = trace.events
    rows = np.flatnonzero(tree.is_member).astype(np.int32)
    within, inside = _within(trace, rows, step)
    path, count = tree.path_ids[rows], len(tree)
    whole = np.bincount(path, within, count).astype(np.int64)
    inner = tree.parent >= 0
    host = np.maximum(whole - np.bincount(tree.parent[inner], whole[inner], count).astype(np.int64), 0)
    joined = launches(trace)
    work = joined.work if not step else joined.work[inside[joined.work]]
    asked = np.where(joined.site >= 0, joined.site, joined.op)
    asked = asked if not step else asked[inside[joined.work]]
    by = path_owners(trace, tree, asked)
    known = by.path >= 0

    def device(mine: Mask) -> Ints:
        return np.bincount(by.path[mine], events.dur[work[mine]], count).astype(np.int64)

    return PathTimes(
        calls=np.bincount(path[(within > 0) | inside[rows]], minlength=count),
        host=host,
        device=device(known & ~by.is_backward),
        backward_host=_backward(trace, tree, inside),
        backward_device=device(by.is_backward),
        outside_ns=int(events.dur[work[~known]].sum()),
    )


def _within(trace: Trace, rows: Ids, step: str) -> tuple[Ints, Mask]:
    """Time of events inside a step, (m,), and of all events whether they belong to it."""
    events, spent = trace.events, host_durations(trace)[rows]
    if not step:
        return spent, np.ones(len(events), bool)
    index = step_index(trace, step)
    low = int(trace.steps.ts[index])
    high = low + int(trace.steps.dur[index])
    within = np.minimum(events.ts[rows] + spent, high) - np.maximum(events.ts[rows], low)
    return np.maximum(within, 0), events.step == index


class BackwardTimes(msgspec.Struct, frozen=True):
    """Backward operators and the engine's work around them, (m,), and the forward of each.

    ns: what is inside another counts there once.
    """

    rows: Ids
    forward: Ids
    ns: Ints


def backward_times(trace: Trace) -> BackwardTimes:
    """Host time of the backward operators whose forward is known."""
    events, forward = trace.events, forward_operators(trace)
    rows = np.flatnonzero(forward[:-1] >= 0).astype(np.int32)
    place = np.full(len(events) + 1, -1)
    place[rows] = np.arange(len(rows))
    around = place[nearest_ancestor(events.parent, place[:-1] >= 0, events.parent[rows])]
    own = np.maximum(events.dur[rows], 0)
    own = own - np.bincount(around[around >= 0], own[around >= 0], len(own)).astype(np.int64)
    return BackwardTimes(rows, forward[rows], np.maximum(own, 0))


def _backward(trace: Trace, tree: CallPaths, inside: Mask) -> Ints:
    """Host time of backward operators by the path of their forward."""
    back = backward_times(trace)
    path = tree.enclosing_paths(trace, back.forward)
    mine = (path >= 0) & inside[back.rows]
    return np.bincount(path[mine], back.ns[mine], len(tree)).astype(np.int64)
