"""Builds a `Trace`. All traces are built here, so that every format gets the same invariants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import c_int64
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from visualprof.messages import msg
from visualprof.reader.communication import returns_before_transfer
from visualprof.reader.native import INT32, INT64, UINT8, function
from visualprof.reader.trace import (
    NO_ADDRESS,
    UNNAMED,
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
    Meta,
    Rows,
    Steps,
    Trace,
    Track,
    TrackKind,
    Values,
)
from visualprof.reader.trace.allocs import compute_totals, negative_totals, next_event_at_address
from visualprof.reader.trace.clock import EARLIEST_NS, LATEST_NS, MAX_DURATION_NS, plausible_time_range
from visualprof.reader.trace.communication import communication_kernels
from visualprof.reader.trace.device_times import JITTER_NS, duration_text, impossible_starts, overlong_ends
from visualprof.reader.trace.heap import Heap
from visualprof.reader.trace.matching import Calls, match_ids, number_track_processes
from visualprof.reader.trace.nesting import innermost_on_tracks, nest
from visualprof.reader.trace.order import sort_events, sort_unique
from visualprof.reader.trace.pyramid import build_pyramid
from visualprof.reader.trace.step_attribution import attribute_steps
from visualprof.reader.trace.step_ranges import named_steps

# No device has that much memory, and sums of a million larger sizes would not fit 64 bits.
MAX_PLAUSIBLE_BYTES = 1 << 50
MAX_ID_RANGE_RATIO = 4  # if the id range exceeds this multiple of the events, ids are searched instead of tabulated
_Dtypes = Mapping[str, type[np.generic]]
_EVENT_DTYPES: _Dtypes = {
    "ts": np.int64,
    "dur": np.int64,
    "name": np.int32,
    "category": np.uint8,
    "track": np.int32,
    "corr": np.int64,
    "row": np.int64,
}
_ALLOC_DTYPES: _Dtypes = {
    "ts": np.int64,
    "addr": np.uint64,
    "bytes": np.int64,
    "device": np.int32,
    "event": np.int64,
    "allocated": np.int64,
    "reserved": np.int64,
    "category": np.int32,
    "complete": np.bool_,
}
_COUNTER_DTYPES: _Dtypes = {"track": np.int32, "ts": np.int64, "value": np.float64}


class _Layout(NamedTuple):
    """Sorted columns of the events, and what follows from their order."""

    columns: dict[str, Values]
    tracks: list[Track]
    first: Ints
    parent: Ids
    depth: NDArray[np.uint16]
    event_of_row: Ids
    links: Links

    def launches(self, kinds: Rows) -> tuple[Rows, Rows]:
        """Return calls on threads and the work on streams that they launched; `kinds` are the kinds of the tracks."""
        src, dst = self.links.src, self.links.dst
        is_launch = (self.links.kind == LinkKind.LAUNCH) & (src >= 0) & (dst >= 0)
        is_launch &= (kinds[src] == TrackKind.THREAD) & (kinds[dst] == TrackKind.STREAM)
        return src[is_launch], dst[is_launch]


class TraceBuilder:
    """Collects columns in any order, keyed by the row of the event in its file, and builds a sorted trace.

    A format calls `track`, `events`, then any of `arg`, `link`, `flow`, `counter`, `allocs`, `step`, `describe` and
    `warn`. Arguments and links of rows that became no event are dropped.
    """

    def __init__(self, format: str) -> None:
        self._ids: dict[str, int] = {"": 0}
        self._tracks: list[Track] = []
        self._events: list[dict[str, Values]] = []
        self._args: dict[str, list[tuple[Rows, Values, bool]]] = {}
        self._links: list[tuple[Rows, Rows, LinkKind]] = []
        self._flows: list[tuple[Ids, Ints, Ids, Ints, LinkKind, Rows]] = []
        self._counters: list[dict[str, Values]] = []
        self._allocs: list[dict[str, Values]] = []
        self._steps: list[tuple[int, int, int, int]] = []
        self._meta = Meta(format=format, framework=format)
        self._heap: Heap | None = None
        self._warnings: dict[str, None] = {}
        self._times = EARLIEST_NS, LATEST_NS

    def string(self, text: str) -> int:
        """Return the string id of a text."""
        return self._ids.setdefault(text, len(self._ids))

    def strings(self, texts: Iterable[str]) -> Ids:
        """Return the string ids of texts."""
        return np.array([self.string(t) for t in texts], np.int32)

    def texts(self) -> list[str]:
        """Return the texts of all string ids."""
        return list(self._ids)

    def track(self, kind: TrackKind, name: str, pid: str = "", tid: str = "", **fields: Any) -> int:
        """Add a track and return its number; `fields` are the fields of `Track`."""
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
        """Add events. All columns are (n,), or one value for all.

        Args:
            ts: Start in ns.
            dur: Duration in ns, -1 for an instant. Smaller values mean unknown: the event becomes an instant, with a
                warning.
            name: String ids; events without a name are called "(unnamed)".
            category: Values of `Category`.
            track: Numbers from `track`.
            row: Rows in the file.
            corr: Correlation ids, 0 for none.
        """
        unknown = int(np.count_nonzero(np.less(dur, -1)))
        if unknown:
            self.warn(
                msg(
                    "reader.events_without_duration_missing",
                    f"events without a duration (it is missing, negative or no number): {unknown:,}; "
                    "drawn as instants, counted in no table",
                )
            )
            dur = np.maximum(dur, -1)
        if not np.all(name):  # the id of ""
            name = np.where(name == 0, self.string(UNNAMED), name)
        columns = {"ts": ts, "dur": dur, "name": name, "category": category, "track": track, "row": row}
        self._events.append(_columns(columns | {"corr": 0 if corr is None else corr}, _EVENT_DTYPES, len(ts)))

    def arg(self, name: str, rows: Rows, values: Values, text: bool = False) -> None:
        """Add an argument of the events at the given rows of the file; values are string ids if `text`."""
        if len(rows):
            self._args.setdefault(name, []).append((rows, values, text))

    def link(self, src: Rows, dst: Rows, kind: LinkKind) -> None:
        """Link events by their rows in the file."""
        self._links.append((src, dst, kind))

    def flow(self, src_track: Rows, src_ts: Ints, dst_track: Rows, dst_ts: Ints, kind: LinkKind, dst_row: Rows) -> None:
        """Link the innermost events of tracks at the given times (flow arrows).

        All columns are (n,), times in ns. A `dst_row` >= 0 names the target event itself.
        """
        self._flows.append((src_track.astype(np.int32), src_ts, dst_track.astype(np.int32), dst_ts, kind, dst_row))

    def counter(self, track: Rows | int, ts: Ints, value: Floats) -> None:
        """Add samples of counter tracks. All columns are (n,), or one track for all."""
        self._counters.append(_columns({"track": track, "ts": ts, "value": value}, _COUNTER_DTYPES, len(ts)))

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
        """Add memory events: columns of `Allocs`, (n,) each, or one value for all.

        Implausible sizes are dropped and implausible totals become unknown, with a warning.

        Args:
            ts: Time in ns.
            bytes: Size, negative for a release.
            device: Device number, -1 for the host.
            addr: Address.
            event: Row in the file: that of the memory event itself (category MEMORY), or that of the event during which
                it happened.
            allocated: Total after the event, -1 if unknown.
            reserved: Like `allocated`, for reserved memory.
            category: String id of the memory's purpose.
            complete: These are all allocations, so that `allocated` can be summed up from 0.
        """
        values = {
            "ts": ts,
            "addr": addr,
            "bytes": bytes,
            "device": device,
            "event": event,
            "allocated": allocated,
            "reserved": reserved,
            "category": category,
            "complete": complete,
        }
        columns = _columns(values, _ALLOC_DTYPES, len(ts))
        for total_name in ("allocated", "reserved"):
            columns[total_name] = self._check_totals(columns[total_name], total_name)
        absurd = (bytes > MAX_PLAUSIBLE_BYTES) | (bytes < -MAX_PLAUSIBLE_BYTES)
        if absurd.any():
            largest = int(bytes[absurd][np.argmax(np.abs(bytes[absurd].astype(np.float64)))])
            self.warn(
                msg(
                    "reader.memory_events_over_1",
                    f"{int(absurd.sum()):,} memory events of over 1 PiB cannot be and were left out; "
                    f"the largest: {largest:,} bytes",
                )
            )
            columns = {name: column[~absurd] for name, column in columns.items()}
        self._allocs.append(columns)

    def _check_totals(self, totals: Ints, total_name: str) -> Ints:
        """Return the totals with implausible ones set to unknown. Negative totals stay, with a warning."""
        wrapped = int((totals < -1).sum())
        if wrapped:
            self.warn(
                msg(
                    "reader.totals_memory_wrapped_below",
                    f"{wrapped:,} totals of {total_name} memory had wrapped below zero and are shown as negative",
                )
            )
        absurd = (totals > MAX_PLAUSIBLE_BYTES) | (totals < -MAX_PLAUSIBLE_BYTES)
        if absurd.any():
            self.warn(
                msg(
                    "reader.totals_memory_over_1",
                    f"{int(absurd.sum()):,} totals of {total_name} memory are over 1 PiB, which cannot be, "
                    "and were ignored",
                )
            )
            return np.where(absurd, -1, totals)
        return totals

    def step(self, name: str, ts: int, dur: int, track: int = -1) -> None:
        """Add a step."""
        self._steps.append((ts, dur, self.string(name), track))

    def heap(self, heap: Heap) -> None:
        """Set the memory of a caching allocator."""
        self._heap = heap

    def describe(self, **fields: Any) -> None:
        """Set fields of `Meta`. Numbers that are not finite or exceed 63 bits stay unknown."""
        valid = {name: v for name, v in fields.items() if not isinstance(v, (int, float)) or abs(v) < 2**62}
        self._meta = replace(self._meta, **valid)

    def warn(self, warning: str) -> None:
        """Add a warning about a tolerated irregularity; duplicates are dropped."""
        self._warnings[warning] = None

    def mentions(self, fragment: str) -> bool:
        """Return whether any text contains the fragment."""
        return any(fragment in text for text in self._ids)

    def build(self, levels: bool = True) -> Trace:
        """Build the trace and release the collected columns, so that they are not held twice.

        Args:
            levels: Build the pyramid. It is left empty otherwise, for a trace to which events are added later.
        """
        columns = self._drop_impossible_times(_concatenate(self._events, _EVENT_DTYPES), "events")
        layout = self._correct_device_times(columns, self._lay_out(columns))
        columns, tracks, first, parent, links = (
            layout.columns,
            layout.tracks,
            layout.first,
            layout.parent,
            layout.links,
        )
        ts, dur, category, depth = columns["ts"], columns["dur"], columns["category"], layout.depth
        level_rows = slice(None if levels else 0)
        pyramid = build_pyramid(
            ts[level_rows],
            ts[level_rows] + np.maximum(dur[level_rows], 0),
            dur[level_rows],
            depth[level_rows],
            first if levels else np.zeros_like(first),
        )
        event_of_row = layout.event_of_row
        if not self._steps:
            self._add_named_steps(layout)
        self._warn_of_untimed_communication(layout)
        steps = self._sorted_steps()
        self._mark_communication(layout)
        events = Events(**columns, parent=parent, depth=depth, step=np.full(len(ts), -1, np.int32))
        events = replace(events, step=attribute_steps(events, tracks, steps, links))
        args = _build_arg_columns(self._args, event_of_row)
        allocs, counters = self._build_allocs(event_of_row, parent, category), self._build_counters()
        if len(events) == 0:
            self.warn(msg("reader.file_no_events", "the file has no events"))
        meta = replace(self._meta, warnings=tuple(self._warnings))
        return Trace(
            strings=tuple(self._ids),
            events=events,
            tracks=tuple(tracks),
            args=args,
            links=links,
            counters=counters,
            allocs=allocs,
            steps=steps,
            pyramid=pyramid,
            meta=meta,
            heap=self._heap,
        )

    def _lay_out(self, columns: dict[str, Values]) -> _Layout:
        """Sort the columns in place, nest the events and link them."""
        order, first = sort_events(columns["ts"], columns["dur"], columns["track"], len(self._tracks))
        for name in columns:
            columns[name] = columns[name][order]
        ts = columns["ts"]
        tracks = [replace(t, first=a, count=b - a) for t, (a, b) in zip(self._tracks, _slices(first), strict=True)]
        end = ts + np.maximum(columns["dur"], 0)
        parent, depth = nest(ts, end, first)
        for track in tracks:
            if track.kind is TrackKind.STREAM:
                parent[track.first : track.first + track.count] = -1
        event_of_row = _index_rows(columns["row"])
        launches = _match_launches(columns, tracks)
        links = self._build_links(launches, ts, end, parent, first, event_of_row)
        return _Layout(columns, tracks, first, parent, depth, event_of_row, links)

    def _add_named_steps(self, layout: _Layout) -> None:
        """Make steps of the ranges with names of steps, for a file that marks none otherwise."""
        columns = layout.columns
        is_thread = np.array([track.kind is TrackKind.THREAD for track in layout.tracks] or [False])
        rows, labels = named_steps(
            list(self._ids),
            columns["name"],
            columns["category"],
            columns["ts"],
            columns["dur"],
            layout.parent,
            is_thread[columns["track"]],
        )
        columns["category"][rows] = Category.STEP
        places = (columns[name][rows].tolist() for name in ("ts", "dur", "track"))
        for label, ts, dur, track in zip(labels, *places, strict=True):
            self.step(label, ts, dur, track)

    def _warn_of_untimed_communication(self, layout: _Layout) -> None:
        """Warn if the file has launches of communication but none of its kernels."""
        columns = layout.columns
        is_communication = columns["category"] == Category.COMM
        if not is_communication.any():
            return
        on_thread = np.array([track.kind is TrackKind.THREAD for track in layout.tracks])[columns["track"]]
        if not on_thread[is_communication].all():
            return
        texts = list(self._ids)
        counts = np.bincount(columns["name"][is_communication & (columns["dur"] >= 0)], minlength=len(texts))
        used: list[int] = np.flatnonzero(counts).tolist()
        calls = sum(int(counts[i]) for i in used if returns_before_transfer(texts[i], False))
        if calls:
            self.warn(
                msg(
                    "reader.kernels_communication_missing",
                    f"{calls:,} calls of communication have no kernels in the file: the calls return before the "
                    "transfer, so times and bandwidths of transfers are unknown",
                )
            )

    def _correct_device_times(self, columns: dict[str, Values], layout: _Layout) -> _Layout:
        """Return the layout without device events whose times cannot be, and with possible ends, with warnings.

        Operators on lanes of the processor are timed by the host itself, and may be dispatched by others.
        """
        is_accelerator = self._meta.device_type != "cpu" and self._meta.device_work == "kernel"
        if not is_accelerator or not any(track.kind is TrackKind.STREAM for track in layout.tracks):
            return layout
        kinds = np.repeat([t.kind for t in layout.tracks], [t.count for t in layout.tracks])
        launch = layout.launches(kinds)
        ts = columns["ts"]
        is_impossible = impossible_starts(ts, ts + np.maximum(columns["dur"], 0), kinds, launch)
        if is_impossible.any():
            self.warn(
                msg(
                    "reader.device_events_times_cannot",
                    f"{int(is_impossible.sum()):,} device events have times that cannot be, long before the calls that "
                    "launched them or far away from the recording: they were left out",
                )
            )
            for name in columns:
                columns[name] = columns[name][~is_impossible]
            layout = self._lay_out(columns)
            launch = layout.launches(kinds[~is_impossible])
            ts = columns["ts"]
        end = ts + np.maximum(columns["dur"], 0)
        rows, ends = overlong_ends(ts, end, columns["category"], layout.tracks, launch)
        if len(rows):
            excess = duration_text(int((end[rows] - ends).max()))
            self.warn(
                msg(
                    "reader.device_events_outlast_later",
                    f"{len(rows):,} device events outlast later work of their stream, by up to {excess}, which cannot "
                    "be: they were cut off at the start of the next work",
                )
            )
            columns["dur"][rows] = ends - ts[rows]
            layout = self._lay_out(columns)
        lead = ts[launch[0]] - ts[launch[1]]
        early = int((lead > JITTER_NS).sum())
        if early:
            longest = duration_text(int(lead.max()))
            self.warn(
                msg(
                    "reader.device_events_start_before",
                    f"{early:,} of {len(lead):,} device events start before the call that launched them, by up to "
                    f"{longest}: the clocks of host and device differ by at least that, and launch delays are unknown",
                )
            )
        return layout

    def _mark_communication(self, layout: _Layout) -> None:
        """Set the category of kernels that communicate by their arguments or by their launch."""
        columns = layout.columns
        on_stream = np.array([track.kind is TrackKind.STREAM for track in self._tracks], bool)[columns["track"]]
        rows_with_collective = [rows for rows, _, _ in self._args.get("collective", ())]
        with_collective = _lookup(layout.event_of_row, np.concatenate([np.zeros(0, np.int64), *rows_with_collective]))
        rows = communication_kernels(
            texts=tuple(self._ids),
            name=columns["name"],
            category=columns["category"],
            parent=layout.parent,
            links=layout.links,
            is_on_stream=on_stream,
            with_collective=with_collective[with_collective >= 0],
        )
        columns["category"][rows] = Category.COMM

    def _drop_impossible_times(self, columns: dict[str, Values], label: str) -> dict[str, Values]:
        """Return the columns without rows at implausible times, with a warning. Events must come first."""
        ts, dur = columns["ts"], columns.get("dur", np.zeros(1, np.int64))
        if label == "events":
            self._times = plausible_time_range(ts)
        earliest, latest = self._times
        if not len(ts) or (ts.min() >= earliest and ts.max() <= latest and dur.max() <= MAX_DURATION_NS):
            return columns
        absurd = (ts < earliest) | (ts > latest) | (dur > MAX_DURATION_NS)
        self.warn(
            msg(
                "reader.months_long_away_all",
                f"{int(absurd.sum()):,} {label} are months long or away from all others: they were left out",
            )
        )
        return {name: column[~absurd] for name, column in columns.items()}

    def _sorted_steps(self) -> Steps:
        rows: Ints = np.array(sorted(self._steps), np.int64).reshape(-1, 4)
        steps = self._drop_impossible_times(
            {name: rows[:, i] for i, name in enumerate(("ts", "dur", "name", "track"))}, "steps"
        )
        ts, dur, name, track = steps.values()
        return Steps(name.astype(np.int32), ts, dur, track.astype(np.int32))

    def _build_links(
        self,
        launches: tuple[Rows, Rows],
        ts: Ints,
        end: Ints,
        parent: Ids,
        first: Ints,
        event_of_row: Ids,
    ) -> Links:
        """Return launches matched by correlation id, followed by the links of the file."""
        parts: list[tuple[Rows, Rows, LinkKind]] = [(*launches, LinkKind.LAUNCH)]
        parts += [(_lookup(event_of_row, a), _lookup(event_of_row, b), kind) for a, b, kind in self._links]
        for track_a, ts_a, track_b, ts_b, kind, rows_b in self._flows:
            a = innermost_on_tracks(ts, end, parent, first, track_a, ts_a)
            b = np.where(
                rows_b >= 0, _lookup(event_of_row, rows_b), innermost_on_tracks(ts, end, parent, first, track_b, ts_b)
            )
            parts.append((a, b, kind))
        src, dst = (np.concatenate([part[i] for part in parts]).astype(np.int32, copy=False) for i in (0, 1))
        kinds = np.concatenate([np.full(len(a), kind, np.uint8) for a, _, kind in parts])
        if len(launches[0]) == len(src):  # launches are already in order
            return Links(src, dst, kinds)
        valid = np.flatnonzero((src >= 0) & (dst >= 0))
        order = valid[np.argsort(dst[valid], kind="stable")]
        return Links(src[order], dst[order], kinds[order])

    def _build_counters(self) -> Counters:
        columns = self._drop_impossible_times(_concatenate(self._counters, _COUNTER_DTYPES), "samples")
        ts, durations = columns["ts"], np.zeros(len(columns["ts"]), np.int64)
        order, _ = sort_events(ts, durations, columns["track"], len(self._tracks))
        return Counters(**{name: column[order] for name, column in columns.items()})

    def _build_allocs(self, event_of_row: Ids, parent: Ids, kind: Bytes) -> Allocs:
        """Return memory events by time.

        Each refers to its enclosing event, or outside of all events to its own instant.
        """
        columns = self._drop_impossible_times(
            _concatenate(self._allocs, _ALLOC_DTYPES), msg("reader.memory_events", "memory events")
        )
        event_rows = _lookup(event_of_row, columns["event"])
        instant = event_rows >= 0
        instant[instant] = kind[event_rows[instant]] == Category.MEMORY
        enclosing = np.where(instant, parent[event_rows] if len(parent) else -1, -1)
        enclosing[enclosing >= 0] = np.where(
            kind[enclosing[enclosing >= 0]] == Category.MEMORY, -1, enclosing[enclosing >= 0]
        )
        columns["event"] = np.where(enclosing >= 0, enclosing, event_rows).astype(np.int32)
        order = np.argsort(columns["ts"], kind="stable")
        for name in columns:
            columns[name] = columns[name][order]
        complete = columns.pop("complete")
        if complete.any():
            compute_totals(columns, complete)
        columns["next"] = next_event_at_address(columns["addr"], columns["device"])
        for device, minimum in negative_totals(columns):
            memory = msg("reader.host", "the host") if device < 0 else f"device {device}"
            self.warn(
                msg(
                    "reader.more_memory_released_than",
                    f"more memory of {memory} is released than allocated: the total falls to {minimum:,} bytes, "
                    "because the file lacks earlier allocations",
                )
            )
        return Allocs(**columns)


def _columns(values: Mapping[str, Rows | Floats | int], dtypes: _Dtypes, n: int) -> dict[str, Values]:
    """Return (n,) arrays of each column's type; a single value is broadcast without a copy."""
    arrays = {name: np.asarray(values[name], dtype) for name, dtype in dtypes.items()}
    return {name: a if a.shape == (n,) else np.broadcast_to(a, n) for name, a in arrays.items()}


def _concatenate(parts: Sequence[dict[str, Values]], dtypes: _Dtypes) -> dict[str, Values]:
    """Concatenate the parts. Each column is removed from the parts when it is done."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([np.zeros(0, dtypes[name]), *(part.pop(name) for part in parts)]) for name in dtypes}


def _slices(first: Ints) -> Iterator[tuple[int, int]]:
    bounds: list[int] = first.tolist()
    return pairwise(bounds)


def _match_launches(columns: Mapping[str, Values], tracks: Sequence[Track]) -> tuple[Rows, Rows]:
    """Return rows of (call, device event) with the same process and correlation id; one call may launch many."""
    corr, track, category = columns["corr"], columns["track"], columns["category"]
    kinds = np.array([t.kind for t in tracks], np.int8)
    process = number_track_processes(tracks)
    calls = np.flatnonzero((corr > 0) & (kinds == TrackKind.THREAD)[track])
    calls = calls[np.argsort(category[calls] != Category.RUNTIME, kind="stable")]
    call_process, ids = process[track[calls]], corr[calls]
    streams = kinds == TrackKind.STREAM
    low, size = (int(ids.min()), int(np.ptp(ids)) + 1) if len(ids) else (1, 0)
    native = function("vp_match_launches", c_int64, INT64, INT32, c_int64, UINT8, INT32, c_int64, c_int64, INT32, INT32)
    if native and len(calls) and call_process.min() == call_process.max() and size <= MAX_ID_RANGE_RATIO * len(corr):
        table = np.full(size, -1, np.int32)
        table[ids[::-1] - low] = calls[::-1]  # the last assignment wins: that of the first call
        src, dst = np.empty((2, len(corr)), np.int32)
        count = native(corr, track, len(corr), streams.view(np.uint8), table, low, size, src, dst)
        return src[:count], dst[:count]
    device = np.flatnonzero((corr > 0) & streams[track])
    seeker = process[track[device]]
    if len(calls) and call_process.min() < call_process.max():
        made = Calls(ids, call_process, columns["ts"][calls], columns["row"][calls])
        shared = np.isin(corr[device], made.shared_ids()) & ~np.isin(seeker, made.processes)
        rows, numbers = device[shared], np.array([t.device for t in tracks], np.int64)
        if len(rows):
            found = made.resolve(corr[rows], numbers[track[rows]], columns["ts"][rows], columns["row"][rows])
            seeker[shared] = np.where(found >= 0, found, seeker[shared])
    index = match_ids(ids, call_process, corr[device], seeker)
    return calls[index[index >= 0]], device[index >= 0]


def _index_rows(row: Ints) -> Ids:
    """Return the event of each file row, from row -1 to one after the last; -1 for a row that became no event."""
    event_of_row = np.full(int(row.max()) + 3 if len(row) else 2, -1, np.int32)
    event_of_row[1:][row] = np.arange(len(row), dtype=np.int32)
    return event_of_row


def _lookup(event_of_row: Ids, rows: Rows) -> Ids:
    """Return the events of file rows, -1 for rows that became no event."""
    return event_of_row.take(rows + 1, mode="clip")


def _build_arg_columns(args: dict[str, list[tuple[Rows, Values, bool]]], event_of_row: Ids) -> dict[str, ArgColumn]:
    """Return the argument columns. Arguments with the same rows, which are common, share their event column."""
    columns: dict[str, ArgColumn] = {}
    orders: dict[int, tuple[Rows, Ids, Ints | None]] = {}  # by number of rows
    for name in list(args):
        parts = args.pop(name)
        rows, values, text = parts[0]
        if len(parts) > 1:
            rows, values = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        if len(rows) not in orders or not np.array_equal(rows, orders[len(rows)][0]):
            orders[len(rows)] = rows, *_sort_events(_lookup(event_of_row, rows), len(event_of_row))
        _, events, order = orders[len(rows)]
        columns[name] = ArgColumn(events, values if order is None else values[order], text)
    return columns


def _sort_events(events: Ids, limit: int) -> tuple[Ids, Ints | None]:
    """Return events in ascending order and their positions, or `None` if they are sorted already, as in most files."""
    if not len(events) or (events[0] >= 0 and (events[1:] > events[:-1]).all()):
        return events, None
    return sort_unique(events, limit)
