"""Builds a `Trace`: the only way to make one, so that every format gets the same invariants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec.structs import replace
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
)  # fmt: skip
from visualprof.reader.trace.asked import steps_of
from visualprof.reader.trace.clock import EARLIEST_NS, LATEST_NS, LONGEST_NS, likely_times
from visualprof.reader.trace.matching import entries_of, processes
from visualprof.reader.trace.nesting import innermost_of_tracks, nest
from visualprof.reader.trace.pyramid import build_pyramid

# No device has as much memory; sums of a million such sizes would not fit 64 bits.
ABSURD_BYTES = 1 << 50
_Dtypes = Mapping[str, type[np.generic]]
_EVENTS: _Dtypes = {
    "ts": np.int64, "dur": np.int64, "name": np.int32, "category": np.uint8, "track": np.int32, "corr": np.int64,
    "row": np.int64,
}  # fmt: skip
_ALLOCS: _Dtypes = {
    "ts": np.int64, "addr": np.uint64, "bytes": np.int64, "device": np.int32, "event": np.int64, "allocated": np.int64,
    "reserved": np.int64, "category": np.int32, "complete": np.bool_,
}  # fmt: skip


class TraceBuilder:
    """Takes columns in any order, keyed by the row of the event in its file; gives a sorted trace.

    A format calls `track`, `events`, then any of `arg`, `link`, `flow`, `counter`, `allocs`, `step`,
    `describe` and `warn`. Rows that became no event are dropped from arguments and links.
    """

    def __init__(self, format: str) -> None:
        self._ids: dict[str, int] = {"": 0}
        self._tracks: list[Track] = []
        self._events: list[dict[str, Values]] = []
        self._args: dict[str, list[tuple[Rows, Values, bool]]] = {}
        self._links: list[tuple[Rows, Rows, LinkKind]] = []
        self._flows: list[tuple[Ids, Ints, Ids, Ints, LinkKind, Rows]] = []
        self._counters: list[tuple[int, Ints, Floats]] = []
        self._allocs: list[dict[str, Values]] = []
        self._steps: list[tuple[int, int, int, int]] = []
        self._meta = Meta(format=format, framework=format)
        self._warnings: dict[str, None] = {}
        self._times = EARLIEST_NS, LATEST_NS

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
        self,
        *,
        ts: Ints,
        dur: Ints | int,
        name: Rows,
        category: Rows | int,
        track: Rows | int,
        row: Rows,
        corr: Rows | None = None,
    ) -> None:
        """Adds events. All (n,), or one for all: times ns, name string ids, row in the file.

        dur is -1 for an instant; what has less has an unknown duration and becomes an instant, with a warning.
        """
        unknown = int(np.count_nonzero(np.less(dur, -1)))
        if unknown:
            self.warn(
                f"events without a duration (it is missing, negative or no number): {unknown:,}; "
                "drawn as instants, counted in no table"
            )
            dur = np.maximum(dur, -1)
        columns = {"ts": ts, "dur": dur, "name": name, "category": category, "track": track, "row": row}
        self._events.append(_columns(columns | {"corr": 0 if corr is None else corr}, _EVENTS, len(ts)))

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
        bytes: Ints,
        device: Rows | int,
        addr: Rows | int = NO_ADDRESS,
        event: Rows | int = -1,
        allocated: Rows | int = -1,
        reserved: Rows | int = -1,
        category: Rows | int = 0,
        complete: bool = False,
    ) -> None:
        """Adds memory events: the columns of Allocs, (n,) each, or one for all.

        `event` is a row of the file: that of the memory event itself (category MEMORY), which happened in the event
        around it, or that of the event in which it happened. complete: these are all allocations that there were, so
        that `allocated` can be added up from 0. Sizes that cannot be are left out and totals that cannot be are
        unknown, with a warning.
        """
        values = {"ts": ts, "addr": addr, "bytes": bytes, "device": device, "event": event, "allocated": allocated,
                  "reserved": reserved, "category": category, "complete": complete}  # fmt: skip
        columns = _columns(values, _ALLOCS, len(ts))
        for what in ("allocated", "reserved"):
            columns[what] = self._plausible(columns[what], what)
        absurd = (bytes > ABSURD_BYTES) | (bytes < -ABSURD_BYTES)
        if absurd.any():
            largest = int(bytes[absurd][np.argmax(np.abs(bytes[absurd].astype(np.float64)))])
            self.warn(
                f"{int(absurd.sum()):,} memory events of over 1 PiB cannot be and were left out; "
                f"the largest: {largest:,} bytes"
            )
            columns = {name: column[~absurd] for name, column in columns.items()}
        self._allocs.append(columns)

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
        """Sets fields of Meta; numbers that are not finite or do not fit 63 bits stay unknown."""
        known = {name: v for name, v in fields.items() if not isinstance(v, (int, float)) or abs(v) < 2**62}
        self._meta = replace(self._meta, **known)

    def warn(self, warning: str) -> None:
        """Notes a tolerated oddity, once."""
        self._warnings[warning] = None

    def build(self) -> Trace:
        """The trace."""
        columns = self._possible(_joined(self._events, _EVENTS), "events")
        order = _order(columns["ts"], columns["dur"], columns["track"])
        columns = {name: column[order] for name, column in columns.items()}
        ts, dur, track, category, row = (columns[name] for name in ("ts", "dur", "track", "category", "row"))
        tracks, bounds = self._bounded_tracks(track)
        end = ts + np.maximum(dur, 0)
        parent, depth = nest(ts, end, bounds)
        kinds = np.array([t.kind for t in tracks] or [0], np.int8)[track]
        parent[kinds == TrackKind.STREAM] = -1
        event_of = np.full(int(row.max()) + 1 if len(row) else 0, -1, np.int32)
        event_of[row] = np.arange(len(row), dtype=np.int32)
        steps = self._sorted_steps()
        launches = _launches(columns["corr"], kinds, category, processes(t.pid for t in tracks)[track])
        links = self._joined_links(launches, ts, end, parent, bounds, event_of)
        events = Events(**columns, parent=parent, depth=depth, step=np.full(len(ts), -1, np.int32))
        events = replace(events, step=steps_of(events, tracks, steps, links))
        args = {name: _arg_column(parts, event_of) for name, parts in self._args.items()}
        allocs, counters = self._joined_allocs(event_of, parent, category), self._joined_counters()
        if len(events) == 0:
            self.warn("the file has no events")
        meta = replace(self._meta, warnings=tuple(self._warnings))
        pyramid = build_pyramid(ts, dur, depth, track, len(tracks))
        return Trace(tuple(self._ids), events, tuple(tracks), args, links, counters, allocs, steps, pyramid, meta)

    def _possible(self, columns: dict[str, Values], what: str) -> dict[str, Values]:
        """The columns without the rows whose times cannot be, with a warning. The events come first."""
        ts, dur = columns["ts"], columns.get("dur", np.zeros(1, np.int64))
        if what == "events":
            self._times = likely_times(ts)
        first, last = self._times
        absurd = (ts < first) | (ts > last) | (dur > LONGEST_NS)
        if not absurd.any():
            return columns
        self.warn(f"{int(absurd.sum()):,} {what} are months long or away from all others: they were left out")
        return {name: column[~absurd] for name, column in columns.items()}

    def _bounded_tracks(self, track: Ids) -> tuple[list[Track], list[tuple[int, int]]]:
        """The tracks with their slices of the sorted events."""
        first: list[int] = np.searchsorted(track, np.arange(len(self._tracks) + 1)).tolist()
        bounds = list(pairwise(first))
        return [replace(t, first=a, count=b - a) for t, (a, b) in zip(self._tracks, bounds, strict=True)], bounds

    def _sorted_steps(self) -> Steps:
        rows: Ints = np.array(sorted(self._steps), np.int64).reshape(-1, 4)
        steps = self._possible({name: rows[:, i] for i, name in enumerate(("ts", "dur", "name", "track"))}, "steps")
        ts, dur, name, track = steps.values()
        return Steps(name.astype(np.int32), ts, dur, track.astype(np.int32))

    def _joined_links(
        self,
        launches: tuple[Ints, Ints],
        ts: Ints,
        end: Ints,
        parent: Ids,
        bounds: list[tuple[int, int]],
        event_of: Ids,
    ) -> Links:
        """Launches by correlation id, then those that the file draws itself."""
        parts: list[tuple[Rows, Rows, LinkKind]] = [(*launches, LinkKind.LAUNCH)]
        parts += [(_lookup(event_of, a), _lookup(event_of, b), kind) for a, b, kind in self._links]
        for track_a, ts_a, track_b, ts_b, kind, rows_b in self._flows:
            a = innermost_of_tracks(ts, end, parent, bounds, track_a, ts_a)
            b = np.where(
                rows_b >= 0, _lookup(event_of, rows_b), innermost_of_tracks(ts, end, parent, bounds, track_b, ts_b)
            )
            parts.append((a, b, kind))
        src, dst = (np.concatenate([part[i] for part in parts]).astype(np.int32) for i in (0, 1))
        kinds = np.concatenate([np.full(len(a), kind, np.uint8) for a, _, kind in parts])
        good = np.flatnonzero((src >= 0) & (dst >= 0))
        order = good[np.argsort(dst[good], kind="stable")]
        return Links(src[order], dst[order], kinds[order])

    def _joined_counters(self) -> Counters:
        dtypes: _Dtypes = {"track": np.int32, "ts": np.int64, "value": np.float64}
        parts = [_columns({"track": i, "ts": ts, "value": value}, dtypes, len(ts)) for i, ts, value in self._counters]
        columns = self._possible(_joined(parts, dtypes), "samples")
        order = np.lexsort((columns["ts"], columns["track"]))
        return Counters(**{name: column[order] for name, column in columns.items()})

    def _joined_allocs(self, event_of: Ids, parent: Ids, kind: Bytes) -> Allocs:
        """Memory events by time; each points to the event in which it happened, outside of all to its own instant."""
        joined = self._possible(_joined(self._allocs, _ALLOCS), "memory events")
        own = _lookup(event_of, joined["event"])
        instant = own >= 0
        instant[instant] = kind[own[instant]] == Category.MEMORY
        above = np.where(instant, parent[own] if len(parent) else -1, -1)
        above[above >= 0] = np.where(kind[above[above >= 0]] == Category.MEMORY, -1, above[above >= 0])
        joined["event"] = np.where(above >= 0, above, own).astype(np.int32)
        order = np.argsort(joined["ts"], kind="stable")
        joined = {name: column[order] for name, column in joined.items()}
        complete = joined.pop("complete")
        if complete.any():
            _add_up(joined, complete)
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


def _columns(values: Mapping[str, Rows | Floats | int], dtypes: _Dtypes, n: int) -> dict[str, Values]:
    """(n,) of each column's type; what is one for all is repeated without being copied."""
    return {name: np.broadcast_to(np.asarray(values[name], dtype), n) for name, dtype in dtypes.items()}


def _joined(parts: Sequence[Mapping[str, Values]], dtypes: _Dtypes) -> dict[str, Values]:
    if not parts:
        return {name: np.zeros(0, dtype) for name, dtype in dtypes.items()}
    return {name: np.concatenate([part[name] for part in parts]) for name in dtypes}


def _order(ts: Ints, dur: Ints, track: Ids) -> NDArray[np.intp]:
    """Order by (track, ts, -dur); files are nearly sorted, which the two stable sorts use."""
    order = np.argsort(ts, kind="stable")
    narrow = np.uint16 if len(track) and track.max() < 65536 else np.int32  # of which numpy sorts by counting
    order = order[np.argsort(track[order].astype(narrow), kind="stable")]
    t, k = ts[order], track[order]
    same = (t[1:] == t[:-1]) & (k[1:] == k[:-1])
    if same.any():
        places = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
        rows = order[places]
        order[places] = rows[np.lexsort((-dur[rows], ts[rows], track[rows]))]
    return order


def _next_of_address(addr: Rows, device: Rows) -> Ids:
    """Of each memory event the next one of its address on its device, -1 for none."""
    after = np.full(len(addr), -1, np.int32)
    order = np.argsort(addr, kind="stable")
    if len(device) and device.min() < device.max():
        order = order[np.argsort(device[order], kind="stable")]
    same = (addr[order[1:]] == addr[order[:-1]]) & (device[order[1:]] == device[order[:-1]])
    same &= addr[order[1:]] != NO_ADDRESS
    after[order[:-1][same]] = order[1:][same]
    return after


def _add_up(allocs: dict[str, Values], complete: Mask) -> None:
    """Fills the totals of memory events that are complete. A change of use is one event: its release is no dip."""
    size, addr, ts = allocs["bytes"], allocs["addr"], allocs["ts"]
    devices: list[int] = np.unique(allocs["device"][complete]).tolist()
    for device in devices:
        at = np.flatnonzero(complete & (allocs["device"] == device))
        change = size[at]
        moved = np.zeros(len(at), np.int64)
        use = (change[:-1] == -change[1:]) & (change[:-1] < 0) & (ts[at][:-1] == ts[at][1:])
        use &= (addr[at][:-1] == NO_ADDRESS) & (addr[at][1:] == NO_ADDRESS)
        moved[:-1][use] = change[1:][use]
        allocs["allocated"][at] = np.cumsum(change) + moved


def _launches(corr: Ints, kinds: NDArray[np.int8], category: Bytes, process: Ids) -> tuple[Ints, Ints]:
    """Rows of (call, device event) of a process with the same correlation id; one call may launch many."""
    calls = np.flatnonzero((corr > 0) & (kinds == TrackKind.THREAD))
    calls = calls[np.argsort(category[calls] != Category.RUNTIME, kind="stable")]
    device = np.flatnonzero((corr > 0) & (kinds == TrackKind.STREAM))
    place = entries_of(corr[calls], process[calls], corr[device], process[device])
    return calls[place[place >= 0]], device[place >= 0]


def _lookup(event_of: Ids, rows: Rows) -> Ids:
    """Events of file rows, -1 where a row became none."""
    rows = rows.astype(np.int64)
    known = (rows >= 0) & (rows < len(event_of))
    return np.where(known, event_of[np.where(known, rows, 0)] if len(event_of) else -1, -1).astype(np.int32)


def _arg_column(parts: list[tuple[Rows, Values, bool]], event_of: Ids) -> ArgColumn:
    events = np.concatenate([_lookup(event_of, rows) for rows, _, _ in parts])
    values = np.concatenate([v for _, v, _ in parts])
    known = events >= 0
    order = np.argsort(events[known], kind="stable")
    return ArgColumn(events[known][order], values[known][order], parts[0][2])
