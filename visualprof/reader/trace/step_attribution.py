"""Attribute events to the step that launched them, which is not always the step during which they ran."""

from __future__ import annotations

from ctypes import c_int64

import numpy as np

from visualprof.reader.native import INT32, INT64, function
from visualprof.reader.trace import Category, Events, Ids, Ints, LinkKind, Links, Mask, Steps, Track, TrackKind
from visualprof.reader.trace.order import group_rows


def attribute_steps(events: Events, tracks: list[Track], steps: Steps, links: Links) -> Ids:
    """Return the step of every event, -1 for none.

    - Host work belongs to the step in which it starts. If several threads have steps, its own thread decides.
    - On a thread that dequeues work, queued work belongs to the step that enqueued it. Other work of that thread
      belongs to the step of the queued work that it contains, else of the queued work before it.
    - Device work belongs to the step of its launch.
    - If the file has launches, device work without one belongs to the step of the previous launched work on its stream.
      At the head of a stream it dates from before the recording and belongs to no step.

    Source: docs/views/overview.md#steps.
    """
    ts = events.ts
    if len(steps) == 0 or len(ts) == 0:
        return np.full(len(ts), -1, np.int32)
    end = steps.ts + steps.dur
    step = _steps_at_times(ts, steps.ts, end)
    step_tracks: list[int] = np.flatnonzero(np.bincount(steps.track + 1)).tolist()
    if len(step_tracks) > 1:  # threads that run steps concurrently
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
    """Return for each time the last step that has started, -1 if that step has ended or none has started.

    Args:
        ts: (n,) times in ns.
        start: (steps,) starts in ns, ascending.
        end: (steps,) ends in ns.
    """
    native = function("vp_steps_at_times", None, INT64, c_int64, INT64, INT64, c_int64, INT32)
    if native:
        steps = np.empty(len(ts), np.int32)
        native(ts, len(ts), np.ascontiguousarray(start), np.ascontiguousarray(end), len(start), steps)
        return steps
    index = np.searchsorted(start, ts, side="right") - 1
    return np.where((index >= 0) & (ts < end[index]), index, -1).astype(np.int32)


def _steps_of_link_targets(links: Links, kind: LinkKind, allowed: Mask | None, step: Ids) -> tuple[Mask, Ids]:
    """Return for each (allowed) event whether a link of that kind leads to it, and the step of the link's source."""
    selected = links.kind == kind
    if allowed is not None:
        selected &= allowed[links.dst]
    linked, origin = np.zeros(len(step), bool), np.full(len(step), -1, np.int32)
    linked[links.dst[selected]] = True
    origin[links.dst[selected]] = step[links.src[selected]]
    return linked, origin


def _follow_queue(step: Ids, origin: Ids, events: Events, track: Track, queued: Mask) -> None:
    """Set the step of each event on a dequeuing thread: that of the queued work inside the event, or before it."""
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
    """Set the steps of a stream's work without a launch: that of the launched work before it, -1 at the head.

    A stream without any launch keeps the steps by time, except for work that started before all launched work.
    """
    launched_rows = np.flatnonzero(launched)
    if not len(launched_rows):
        step[precedes_launches] = -1
        return
    launched_index = np.cumsum(launched) - 1
    step[:] = np.where(launched_index >= 0, step[launched_rows[np.maximum(launched_index, 0)]], -1)
