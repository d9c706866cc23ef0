"""Which step asked for an event: not always the one during which it ran."""

from __future__ import annotations

from ctypes import c_int64

import numpy as np

from visualprof.reader.native import INT32, INT64, function
from visualprof.reader.trace import Category, Events, Ids, Ints, LinkKind, Links, Mask, Steps, Track, TrackKind
from visualprof.reader.trace.order import group_rows


def attribute_steps(events: Events, tracks: list[Track], steps: Steps, links: Links) -> Ids:
    """Step of every event, -1 for none.

    Work on the host belongs to the step in which it starts, of its own thread where several have steps, but on a
    thread that works off a queue to the step that put it there, and what such a thread does besides to that of the
    queued work in it or else before it. Work on a device belongs to the step of its launch. Where a file has launches,
    device work without one belongs to the step of what its stream ran before; at the head of a stream it is from
    before the recording and of no step. Source: docs/views.md#steps.
    """
    ts = events.ts
    if len(steps) == 0 or len(ts) == 0:
        return np.full(len(ts), -1, np.int32)
    end = steps.ts + steps.dur
    step = _steps_at_times(ts, steps.ts, end)
    step_tracks: list[int] = np.flatnonzero(np.bincount(steps.track + 1)).tolist()
    if len(step_tracks) > 1:  # threads that run steps side by side
        order, bounds = group_rows(steps.track + 1, len(tracks) + 1)
        for number in filter(None, step_tracks):
            step_rows = order[bounds[number] : bounds[number + 1]]
            rows = _slice(tracks[number - 1])
            step[rows] = np.append(step_rows, -1)[_steps_at_times(ts[rows], steps.ts[step_rows], end[step_rows])]
    kinds = np.repeat(np.array([t.kind for t in tracks], np.int8), [t.count for t in tracks])
    queued, from_queue = _steps_of_link_targets(links, LinkKind.ASYNC, None, step)
    queue_tracks: list[int] = np.flatnonzero(np.bincount(events.track[queued & (kinds == TrackKind.THREAD)])).tolist()
    for track in queue_tracks:
        _follow_queue(step, from_queue, events, tracks[track], queued)
    launched, from_call = _steps_of_link_targets(links, LinkKind.LAUNCH, kinds == TrackKind.STREAM, step)
    step[launched] = from_call[launched]
    if launched.any():
        first = int(ts[launched].min())
        for track in (t for t in tracks if t.kind == TrackKind.STREAM and t.count):
            rows = _slice(track)
            _follow_stream(step[rows], launched[rows], precedes_launches=ts[rows] < first)
    return step


def _slice(track: Track) -> slice:
    return slice(track.first, track.first + track.count)


def _steps_at_times(ts: Ints, start: Ints, end: Ints) -> Ids:
    """Of each time the last of the steps that has begun, if it has not ended, else -1. start: ascending."""
    native = function("vp_held", None, INT64, c_int64, INT64, INT64, c_int64, INT32)
    if native:
        steps = np.empty(len(ts), np.int32)
        native(ts, len(ts), np.ascontiguousarray(start), np.ascontiguousarray(end), len(start), steps)
        return steps
    index = np.searchsorted(start, ts, side="right") - 1
    return np.where((index >= 0) & (ts < end[index]), index, -1).astype(np.int32)


def _steps_of_link_targets(links: Links, kind: LinkKind, allowed: Mask | None, step: Ids) -> tuple[Mask, Ids]:
    """Of each event (that is allowed): does a link of that kind lead to it, and the step of where it comes from."""
    selected = links.kind == kind
    if allowed is not None:
        selected &= allowed[links.dst]
    linked, origin = np.zeros(len(step), bool), np.full(len(step), -1, np.int32)
    linked[links.dst[selected]] = True
    origin[links.dst[selected]] = step[links.src[selected]]
    return linked, origin


def _follow_queue(step: Ids, origin: Ids, events: Events, track: Track, queued: Mask) -> None:
    """Set the steps on a thread that works off a queue: of an event that of the first queued work in it or before."""
    rows = np.arange(track.first, track.first + track.count)
    work = rows[queued[rows]]
    next_work = np.searchsorted(work, rows)
    contains_work = next_work < len(work)
    closed = events.ts[rows] + np.maximum(events.dur[rows], 1)
    contains_work[contains_work] = events.ts[work[next_work[contains_work]]] < closed[contains_work]
    work_index = np.where(contains_work, next_work, next_work - 1)
    attributed = (work_index >= 0) & (events.category[rows] != Category.OVERHEAD)
    step[rows[attributed]] = origin[work[work_index[attributed]]]


def _follow_stream(step: Ids, launched: Mask, precedes_launches: Mask) -> None:
    """Set the steps of a stream's work without a launch: that of the launched work before it, none at the head.

    A stream on which nothing was launched keeps the steps by time, but for what started before all launched work.
    """
    launched_rows = np.flatnonzero(launched)
    if not len(launched_rows):
        step[precedes_launches] = -1
        return
    launched_index = np.cumsum(launched) - 1
    step[:] = np.where(launched_index >= 0, step[launched_rows[np.maximum(launched_index, 0)]], -1)
