"""Builds a `Trace`: the only way to make one, so that every format gets the same invariants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace import (
    NO_ADDRESS,
    Allocs,
    ArgColumn,
    Bytes,
    Category,
    Counters,
    Events,
    Floats,
    Ids,
    Ints,
    LinkKind,
    Links,
    Mask,
    Meta,
    Rows,
    Steps,
    Trace,
    Track,
    TrackKind,
    Values,
)
from visualprof.reader.trace.nesting import innermost_at, nest
from visualprof.reader.trace.pyramid import build_pyramid

# No device has as much memory; sums of a million such sizes would not fit 64 bits.
ABSURD_BYTES = 1 << 50


class TraceBuilder:
    """Takes columns in any order, keyed by the row of the event in its file; gives a sorted trace.

    A format calls `track`, `events`, then any of `arg`, `link`, `flow`, `counter`, `allocs`, `step`,
    `describe` and `warn`. Rows that became no event are dropped from arguments and links.
    """

    def __init__(self, format: str) -> None:
        self._ids: dict[str, int] = {"": 0}
        self._tracks: list[Track] = []
        self._events: list[tuple[Ints, Ints, Ids, Bytes, Ids, Ints, Ints]] = []
        self._args: dict[str, list[tuple[Rows, Values, bool]]] = {}
        self._links: list[tuple[Rows, Rows, LinkKind]] = []
        self._flows: list[tuple[Ids, Ints, Ids, Ints, LinkKind, Rows]] = []
        self._counters: list[tuple[int, Ints, Floats]] = []
        self._allocs: list[tuple[Allocs, Mask]] = []
        self._steps: list[tuple[int, int, int, int]] = []
        self._meta = Meta(format=format, framework=format)
        self._warnings: dict[str, None] = {}

    def string(self, text: str) -> int:
        """Id of a text in the dictionary."""
        return self._ids.setdefault(text, len(self._ids))

    def strings(self, texts: Iterable[str]) -> Ids:
        """Ids of many texts."""
        return np.array([self.string(t) for t in texts], np.int32)

    def track(self, kind: TrackKind, name: str, pid: str = "", tid: str = "", **fields: Any) -> int:
        """Adds a track and gives its number; `fields` are those of Track."""
        self._tracks.append(Track(kind=kind, name=name, pid=pid, tid=tid, **fields))
        return len(self._tracks) - 1

    def events(
        self, *, ts: Ints, dur: Ints, name: Rows, category: Rows, track: Rows, row: Rows, corr: Rows | None = None
    ) -> None:
        """Adds events. All arrays (n,): times ns (dur -1 for an instant), name string ids, row in the file."""
        negative = np.flatnonzero(dur < -1)
        if len(negative):
            self.warn(f"{len(negative):,} events have a negative duration and are shown with 0")
            dur = np.where(dur < -1, 0, dur)
        corr = np.zeros(len(ts), np.int64) if corr is None else corr.astype(np.int64)
        self._events.append(
            (
                ts,
                dur,
                name.astype(np.int32),
                category.astype(np.uint8),
                track.astype(np.int32),
                corr,
                row.astype(np.int64),
            )
        )

    def arg(self, name: str, rows: Rows, values: Values, text: bool = False) -> None:
        """Adds an argument of the events at the given rows of the file; values are string ids when text."""
        if len(rows):
            self._args.setdefault(name, []).append((rows, values, text))

    def link(self, src: Rows, dst: Rows, kind: LinkKind) -> None:
        """Links events by their rows in the file."""
        self._links.append((src, dst, kind))

    def flow(self, src_track: Rows, src_ts: Ints, dst_track: Rows, dst_ts: Ints, kind: LinkKind, dst_row: Rows) -> None:
        """Links the innermost events of the tracks at the given times (flow arrows).

        All (n,): times ns; dst_row >= 0 names the event itself.
        """
        self._flows.append((src_track.astype(np.int32), src_ts, dst_track.astype(np.int32), dst_ts, kind, dst_row))

    def counter(self, track: int, ts: Ints, value: Floats) -> None:
        """Adds samples of a counter track."""
        self._counters.append((track, ts, value))

    def allocs(
        self,
        *,
        ts: Ints,
        addr: Rows,
        bytes: Ints,
        device: Rows,
        event: Rows | None = None,
        allocated: Ints | None = None,
        reserved: Ints | None = None,
        category: Rows | None = None,
        complete: bool = False,
    ) -> None:
        """Adds memory events: the columns of Allocs, (n,) each.

        `event` is a row of the file: that of the memory event itself (category MEMORY), which happened in the event
        around it, or that of the event in which it happened. complete: these are all allocations that there were, so
        that `allocated` can be added up from 0. Sizes that cannot be are left out and totals that cannot be are
        unknown, with a warning.
        """
        n = len(ts)
        unknown = np.full(n, -1, np.int64)
        columns: dict[str, Values] = {
            "ts": ts, "addr": addr.astype(np.uint64), "bytes": bytes, "device": device,
            "event": unknown if event is None else event,
            "allocated": self._plausible(unknown if allocated is None else allocated, "allocated"),
            "reserved": self._plausible(unknown if reserved is None else reserved, "reserved"),
            "category": np.zeros(n, np.int32) if category is None else category,
            "next": unknown,
        }  # fmt: skip
        absurd = (bytes > ABSURD_BYTES) | (bytes < -ABSURD_BYTES)
        if absurd.any():
            largest = int(bytes[absurd][np.argmax(np.abs(bytes[absurd].astype(np.float64)))])
            self.warn(
                f"{int(absurd.sum()):,} memory events of over 1 PiB cannot be and were left out; "
                f"the largest: {largest:,} bytes"
            )
            columns = {k: v[~absurd] for k, v in columns.items()}
        self._allocs.append((Allocs(**columns), np.full(len(columns["ts"]), complete)))

    def _plausible(self, totals: Ints, what: str) -> Ints:
        """Totals of memory with what cannot be made unknown; those below zero stay and are noted."""
        wrapped = int((totals < -1).sum())
        if wrapped:
            self.warn(f"{wrapped:,} totals of {what} memory had wrapped below zero and are shown as negative")
        absurd = (totals > ABSURD_BYTES) | (totals < -ABSURD_BYTES)
        if absurd.any():
            self.warn(
                f"{int(absurd.sum()):,} totals of {what} memory are over 1 PiB, which cannot be, and were ignored"
            )
            return np.where(absurd, -1, totals)
        return totals

    def step(self, name: str, ts: int, dur: int, track: int = -1) -> None:
        """Adds a step."""
        self._steps.append((ts, dur, self.string(name), track))

    def describe(self, **fields: Any) -> None:
        """Sets fields of Meta."""
        self._meta = replace(self._meta, **fields)

    def warn(self, warning: str) -> None:
        """Notes a tolerated oddity, once."""
        self._warnings[warning] = None

    def build(self) -> Trace:
        """The trace."""
        ts, dur, name, category, track, corr, row = self._joined()
        order = _order(ts, dur, track)
        ts, dur, name, category = ts[order], dur[order], name[order], category[order]
        track, corr, row = track[order], corr[order], row[order]
        tracks, bounds = self._bounded_tracks(track)
        end = ts + np.maximum(dur, 0)
        parent, depth = nest(ts, end, bounds)
        kinds = np.array([t.kind for t in tracks] or [0], np.int8)[track]
        parent[kinds == TrackKind.STREAM] = -1
        event_of = np.full(int(row.max()) + 1 if len(row) else 0, -1, np.int32)
        event_of[row] = np.arange(len(row), dtype=np.int32)
        steps = self._sorted_steps()
        links = self._joined_links(ts, end, parent, bounds, kinds, corr, category, event_of)
        events = Events(ts, dur, name, category, track, corr, parent, depth, _steps_of(ts, kinds, steps, links), row)
        args = {n: _arg_column(parts, event_of) for n, parts in self._args.items()}
        allocs = self._joined_allocs(event_of, parent, category)
        if len(events) == 0:
            self.warn("the file has no events")
        meta = replace(self._meta, warnings=tuple(self._warnings))
        pyramid = build_pyramid(ts, dur, depth, track, len(tracks))
        return Trace(
            tuple(self._ids), events, tuple(tracks), args, links, self._joined_counters(), allocs, steps, pyramid, meta
        )

    def _joined(self) -> tuple[Any, ...]:
        if self._events:
            return tuple(np.concatenate(column) for column in zip(*self._events, strict=True))
        dtypes = (np.int64, np.int64, np.int32, np.uint8, np.int32, np.int64, np.int64)
        return tuple(np.zeros(0, dtype) for dtype in dtypes)

    def _bounded_tracks(self, track: Ids) -> tuple[list[Track], list[tuple[int, int]]]:
        """The tracks with their slices of the sorted events."""
        first: list[int] = np.searchsorted(track, np.arange(len(self._tracks) + 1)).tolist()
        bounds = list(pairwise(first))
        return [replace(t, first=a, count=b - a) for t, (a, b) in zip(self._tracks, bounds, strict=True)], bounds

    def _sorted_steps(self) -> Steps:
        rows = sorted(self._steps)
        ts, dur, name, track = (np.array(c, np.int64) for c in (zip(*rows, strict=True) if rows else ((), (), (), ())))
        return Steps(name.astype(np.int32), ts, dur, track.astype(np.int32))

    def _joined_links(
        self,
        ts: Ints,
        end: Ints,
        parent: Ids,
        bounds: list[tuple[int, int]],
        kinds: NDArray[np.int8],
        corr: Ints,
        category: Bytes,
        event_of: Ids,
    ) -> Links:
        """Launches by correlation id, then those that the file draws itself."""
        src, dst = _launches(corr, kinds, category)
        parts: list[tuple[Rows, Rows, Bytes]] = [(src, dst, np.full(len(src), LinkKind.LAUNCH, np.uint8))]
        for rows_a, rows_b, kind in self._links:
            a, b = _lookup(event_of, rows_a), _lookup(event_of, rows_b)
            parts.append((a, b, np.full(len(a), kind, np.uint8)))
        for track_a, ts_a, track_b, ts_b, kind, rows_b in self._flows:
            a = _at_times(ts, end, parent, bounds, track_a, ts_a)
            b = np.where(rows_b >= 0, _lookup(event_of, rows_b), _at_times(ts, end, parent, bounds, track_b, ts_b))
            parts.append((a, b, np.full(len(a), kind, np.uint8)))
        src, dst, kind = (np.concatenate(c) for c in zip(*parts, strict=True))
        good = (src >= 0) & (dst >= 0)
        order = np.argsort(dst[good], kind="stable")
        return Links(src[good][order].astype(np.int32), dst[good][order].astype(np.int32), kind[good][order])

    def _joined_counters(self) -> Counters:
        if not self._counters:
            return Counters(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0))
        track = np.concatenate([np.full(len(t), i, np.int32) for i, t, _ in self._counters])
        ts = np.concatenate([t for _, t, _ in self._counters])
        value = np.concatenate([v for _, _, v in self._counters])
        order = np.lexsort((ts, track))
        return Counters(track[order], ts[order], value[order])

    def _joined_allocs(self, event_of: Ids, parent: Ids, kind: Bytes) -> Allocs:
        """Memory events by time; each points to the event in which it happened, outside of all to its own instant."""
        dtypes = {
            "ts": np.int64, "addr": np.uint64, "bytes": np.int64, "device": np.int32, "event": np.int64,
            "allocated": np.int64, "reserved": np.int64, "category": np.int32, "next": np.int32,
        }  # fmt: skip
        joined: dict[str, Values] = {
            n: np.concatenate([getattr(a, n) for a, _ in self._allocs]).astype(d) if self._allocs else np.zeros(0, d)
            for n, d in dtypes.items()
        }
        own = _lookup(event_of, joined["event"])
        instant = own >= 0
        instant[instant] = kind[own[instant]] == Category.MEMORY
        above = np.where(instant, parent[own] if len(parent) else -1, -1)
        above[above >= 0] = np.where(kind[above[above >= 0]] == Category.MEMORY, -1, above[above >= 0])
        joined["event"] = np.where(above >= 0, above, own).astype(np.int32)
        order = np.argsort(joined["ts"], kind="stable")
        joined = {n: c[order] for n, c in joined.items()}
        if any(complete.any() for _, complete in self._allocs):
            _add_up(joined, np.concatenate([complete for _, complete in self._allocs])[order])
        joined["next"] = _next_of_address(joined["addr"], joined["device"])
        self._check_sums(joined)
        return Allocs(**joined)

    def _check_sums(self, allocs: dict[str, Values]) -> None:
        """Notes the devices without recorded totals of which more is released than was allocated."""
        devices: list[int] = np.unique(allocs["device"]).tolist()
        for device in devices:
            at = np.flatnonzero(allocs["device"] == device)
            least = int(np.cumsum(allocs["bytes"][at]).min())
            totals = allocs["allocated"][at]
            if least < 0 and ((totals == -1).all() or int(totals.min()) == least):
                what = "the host" if device < 0 else f"device {device}"
                self.warn(
                    f"more memory of {what} is released than was allocated: its total falls to {least:,} bytes, "
                    "because the file does not have what was allocated before"
                )


def _order(ts: Ints, dur: Ints, track: Ids) -> NDArray[np.intp]:
    """Order by (track, ts, -dur); files are nearly sorted, which the two stable sorts use."""
    order = np.argsort(ts, kind="stable")
    order = order[
        np.argsort(track[order].astype(np.uint16 if len(track) and track.max() < 65536 else np.int32), kind="stable")
    ]
    t, k = ts[order], track[order]
    tied = np.zeros(len(order), bool)
    same = (t[1:] == t[:-1]) & (k[1:] == k[:-1])
    tied[1:] |= same
    tied[:-1] |= same
    if tied.any():
        places = np.flatnonzero(tied)
        rows = order[places]
        order[places] = rows[np.lexsort((-dur[rows], ts[rows], track[rows]))]
    return order


def _next_of_address(addr: Rows, device: Rows) -> Ids:
    """Of each memory event the next one of its address on its device, -1 for none."""
    found = np.full(len(addr), -1, np.int32)
    order = np.argsort(addr, kind="stable")
    if len(device) and device.min() < device.max():
        order = order[np.argsort(device[order], kind="stable")]
    same = (addr[order[1:]] == addr[order[:-1]]) & (device[order[1:]] == device[order[:-1]])
    same &= addr[order[1:]] != NO_ADDRESS
    found[order[:-1][same]] = order[1:][same]
    return found


def _add_up(allocs: dict[str, Values], complete: Mask) -> None:
    """Fills the totals of memory events that are complete. A change of use is one event: its release is no dip."""
    size, addr, ts = allocs["bytes"], allocs["addr"], allocs["ts"]
    devices: list[int] = np.unique(allocs["device"][complete]).tolist()
    for device in devices:
        at = np.flatnonzero(complete & (allocs["device"] == device))
        here = size[at]
        moved = np.zeros(len(at), np.int64)
        change = (here[:-1] == -here[1:]) & (here[:-1] < 0) & (ts[at][:-1] == ts[at][1:])
        change &= (addr[at][:-1] == NO_ADDRESS) & (addr[at][1:] == NO_ADDRESS)
        moved[:-1][change] = here[1:][change]
        allocs["allocated"][at] = np.cumsum(here) + moved


def _launches(corr: Ints, kinds: NDArray[np.int8], category: Bytes) -> tuple[Ints, Ints]:
    """Rows of (call, device event) with the same correlation id; one call may launch many."""
    calls = np.flatnonzero((corr > 0) & (kinds == TrackKind.THREAD))
    calls = calls[np.lexsort((category[calls] != Category.RUNTIME, corr[calls]))]
    device = np.flatnonzero((corr > 0) & (kinds == TrackKind.STREAM))
    if not len(calls) or not len(device):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    place = np.minimum(np.searchsorted(corr[calls], corr[device]), len(calls) - 1)
    found = corr[calls[place]] == corr[device]
    return calls[place[found]], device[found]


def _lookup(event_of: Ids, rows: Rows) -> Ids:
    """Events of file rows, -1 where a row became none."""
    rows = rows.astype(np.int64)
    known = (rows >= 0) & (rows < len(event_of))
    return np.where(known, event_of[np.where(known, rows, 0)] if len(event_of) else -1, -1).astype(np.int32)


def _at_times(ts: Ints, end: Ints, parent: Ids, bounds: Sequence[tuple[int, int]], track: Ids, times: Ints) -> Ids:
    """Innermost event of a track at a time, for many (track, time)."""
    found = np.full(len(times), -1, np.int32)
    used: list[int] = np.unique(track).tolist()
    for t in used:
        here = np.flatnonzero(track == t)
        first, last = bounds[t]
        if t >= 0 and last > first:
            found[here] = innermost_at(ts, end, parent, first, last, times[here])
    return found


def _arg_column(parts: list[tuple[Rows, Values, bool]], event_of: Ids) -> ArgColumn:
    events = np.concatenate([_lookup(event_of, rows) for rows, _, _ in parts])
    values = np.concatenate([v for _, v, _ in parts])
    known = events >= 0
    order = np.argsort(events[known], kind="stable")
    return ArgColumn(events[known][order], values[known][order], parts[0][2])


def _steps_of(ts: Ints, kinds: NDArray[np.int8], steps: Steps, links: Links) -> Ids:
    """Step of every event: the one it starts in; of queued and device work the one that issued it."""
    if len(steps) == 0 or len(ts) == 0:
        return np.full(len(ts), -1, np.int32)
    place = np.searchsorted(steps.ts, ts, side="right") - 1
    step = np.where((place >= 0) & (ts < (steps.ts + steps.dur)[place]), place, -1).astype(np.int32)
    for kind in (LinkKind.ASYNC, LinkKind.LAUNCH):
        chosen = links.kind == kind
        src, dst = links.src[chosen], links.dst[chosen]
        issued = (kinds[dst] == TrackKind.STREAM) | (kind == LinkKind.ASYNC)
        step[dst[issued]] = step[src[issued]]
    return step
