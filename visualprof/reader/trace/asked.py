"""Which step asked for an event: not always the one during which it ran."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Category, Events, Ids, Ints, LinkKind, Links, Mask, Steps, Track, TrackKind


def steps_of(events: Events, tracks: list[Track], steps: Steps, links: Links) -> Ids:
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
    step = _at(ts, steps, np.arange(len(steps)))
    marking: list[int] = np.unique(steps.track).tolist()
    for number in (n for n in marking if n >= 0 and len(marking) > 1):  # threads that run steps side by side
        rows = slice(tracks[number].first, tracks[number].first + tracks[number].count)
        step[rows] = _at(ts[rows], steps, np.flatnonzero(steps.track == number))
    kinds = np.array([t.kind for t in tracks], np.int8)[events.track]
    queued, from_queue = _marked(links, LinkKind.ASYNC, np.ones(len(ts), bool), step)
    for track in np.unique(events.track[queued & (kinds == TrackKind.THREAD)]):
        _follow_queue(step, from_queue, events, tracks[int(track)], queued)
    launched, from_call = _marked(links, LinkKind.LAUNCH, kinds == TrackKind.STREAM, step)
    step[launched] = from_call[launched]
    if launched.any():
        first = int(ts[launched].min())
        for track in (t for t in tracks if t.kind == TrackKind.STREAM and t.count):
            _follow_stream(step, track, launched, before=ts < first)
    return step


def _at(ts: Ints, steps: Steps, among: Ints) -> Ids:
    """Which of some steps holds each time, -1 for none."""
    place = np.searchsorted(steps.ts[among], ts, side="right") - 1
    held = (place >= 0) & (ts < (steps.ts + steps.dur)[among[place]])
    return np.where(held, among[place], -1).astype(np.int32)


def _marked(links: Links, kind: LinkKind, allowed: Mask, step: Ids) -> tuple[Mask, Ids]:
    """Of each event: does a link of that kind lead to it, and the step of where it comes from."""
    chosen = (links.kind == kind) & allowed[links.dst]
    linked, origin = np.zeros(len(step), bool), np.full(len(step), -1, np.int32)
    linked[links.dst[chosen]] = True
    origin[links.dst[chosen]] = step[links.src[chosen]]
    return linked, origin


def _follow_queue(step: Ids, origin: Ids, events: Events, track: Track, queued: Mask) -> None:
    """Sets the steps on a thread that works off a queue: of an event that of the first queued work in it or before."""
    rows = np.arange(track.first, track.first + track.count)
    work = rows[queued[rows]]
    after = np.searchsorted(work, rows)
    inside = after < len(work)
    closed = events.ts[rows] + np.maximum(events.dur[rows], 1)
    inside[inside] = events.ts[work[after[inside]]] < closed[inside]
    place = np.where(inside, after, after - 1)
    known = (place >= 0) & (events.category[rows] != Category.OVERHEAD)
    step[rows[known]] = origin[work[place[known]]]


def _follow_stream(step: Ids, track: Track, launched: Mask, before: Mask) -> None:
    """Sets the steps of a stream's work without a launch: that of the launched work before it, none at the head.

    A stream on which nothing was launched keeps the steps by time, but for what started before all launched work.
    """
    rows = np.arange(track.first, track.first + track.count)
    known = np.flatnonzero(launched[rows])
    if not len(known):
        step[rows[before[rows]]] = -1
        return
    last = np.searchsorted(known, np.arange(len(rows)), side="right") - 1
    step[rows] = np.where(last >= 0, step[rows[known[np.maximum(last, 0)]]], -1)
