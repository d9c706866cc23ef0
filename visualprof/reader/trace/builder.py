"""Builds a `Trace`. All traces are built here, so that every format gets the same invariants."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec.structs import replace

from visualprof.messages import msg
from visualprof.reader.trace import (
    NO_ADDRESS,
    UNNAMED,
    Category,
    Counters,
    Events,
    Floats,
    Ids,
    Ints,
    LinkKind,
    Meta,
    Rows,
    Steps,
    Trace,
    Track,
    TrackKind,
    Values,
)
from visualprof.reader.trace.allocs import build_allocs, check_totals, drop_implausible_sizes
from visualprof.reader.trace.clock import EARLIEST_NS, LATEST_NS, MAX_DURATION_NS, plausible_time_range
from visualprof.reader.trace.columns import ALLOC_DTYPES, COUNTER_DTYPES, EVENT_DTYPES, concatenate, typed_columns
from visualprof.reader.trace.communication import communication_kernels, count_untimed_calls
from visualprof.reader.trace.device_times import duration_text, early_start_warning, impossible_starts, overlong_ends
from visualprof.reader.trace.file_rows import build_arg_columns, index_rows, lookup
from visualprof.reader.trace.heap import Heap
from visualprof.reader.trace.layout import FileLinks, Flows, Layout, build_links
from visualprof.reader.trace.matching import match_launches
from visualprof.reader.trace.nesting import nest
from visualprof.reader.trace.order import sort_events
from visualprof.reader.trace.pyramid import build_pyramid
from visualprof.reader.trace.step_attribution import attribute_steps
from visualprof.reader.trace.step_ranges import named_steps


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
        self._links: list[FileLinks] = []
        self._flows: list[Flows] = []
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
        self._events.append(typed_columns(columns | {"corr": 0 if corr is None else corr}, EVENT_DTYPES, len(ts)))

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
        self._counters.append(typed_columns({"track": track, "ts": ts, "value": value}, COUNTER_DTYPES, len(ts)))

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
        columns = typed_columns(values, ALLOC_DTYPES, len(ts))
        for total_name in ("allocated", "reserved"):
            columns[total_name] = check_totals(columns[total_name], total_name, self.warn)
        self._allocs.append(drop_implausible_sizes(columns, self.warn))

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
        columns = self._drop_impossible_times(concatenate(self._events, EVENT_DTYPES), "events")
        layout = self._correct_device_times(columns, self._lay_out(columns))
        columns, tracks, parent, links = layout.columns, layout.tracks, layout.parent, layout.links
        ts, dur, category, depth = columns["ts"], columns["dur"], columns["category"], layout.depth
        level_rows = slice(None if levels else 0)
        pyramid = build_pyramid(
            ts[level_rows],
            ts[level_rows] + np.maximum(dur[level_rows], 0),
            dur[level_rows],
            depth[level_rows],
            layout.first if levels else np.zeros_like(layout.first),
        )
        event_of_row = layout.event_of_row
        if not self._steps:
            self._add_named_steps(layout)
        if calls := count_untimed_calls(list(self._ids), columns, tracks):
            self.warn(
                msg(
                    "reader.kernels_communication_missing",
                    f"{calls:,} calls of communication have no kernels in the file: the calls return before the "
                    "transfer, so times and bandwidths of transfers are unknown",
                )
            )
        steps = self._sorted_steps()
        self._mark_communication(layout)
        events = Events(**columns, parent=parent, depth=depth, step=np.full(len(ts), -1, np.int32))
        events = replace(events, step=attribute_steps(events, tracks, steps, links))
        args = build_arg_columns(self._args, event_of_row)
        alloc_columns = self._drop_impossible_times(
            concatenate(self._allocs, ALLOC_DTYPES), msg("reader.memory_events", "memory events")
        )
        alloc_events = lookup(event_of_row, alloc_columns["event"])
        allocs = build_allocs(alloc_columns, alloc_events, parent, category, self.warn)
        counters = self._build_counters()
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

    def _lay_out(self, columns: dict[str, Values]) -> Layout:
        """Sort the columns in place, nest the events and link them."""
        order, first = sort_events(columns["ts"], columns["dur"], columns["track"], len(self._tracks))
        for name in columns:
            columns[name] = columns[name][order]
        ts = columns["ts"]
        tracks = [
            replace(t, first=a, count=b - a) for t, (a, b) in zip(self._tracks, pairwise(first.tolist()), strict=True)
        ]
        end = ts + np.maximum(columns["dur"], 0)
        parent, depth = nest(ts, end, first)
        for track in tracks:
            if track.kind is TrackKind.STREAM:
                parent[track.first : track.first + track.count] = -1
        event_of_row = index_rows(columns["row"])
        launches = match_launches(columns, tracks)
        links = build_links(
            launches, self._links, self._flows, ts=ts, end=end, parent=parent, first=first, event_of_row=event_of_row
        )
        return Layout(columns, tracks, first, parent, depth, event_of_row=event_of_row, links=links)

    def _add_named_steps(self, layout: Layout) -> None:
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

    def _correct_device_times(self, columns: dict[str, Values], layout: Layout) -> Layout:
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
        if warning := early_start_warning(ts[launch[0]] - ts[launch[1]]):
            self.warn(warning)
        return layout

    def _mark_communication(self, layout: Layout) -> None:
        """Set the category of kernels that communicate by their arguments or by their launch."""
        columns = layout.columns
        on_stream = np.array([track.kind is TrackKind.STREAM for track in self._tracks], bool)[columns["track"]]
        rows_with_collective = [rows for rows, _, _ in self._args.get("collective", ())]
        with_collective = lookup(layout.event_of_row, np.concatenate([np.zeros(0, np.int64), *rows_with_collective]))
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

    def _build_counters(self) -> Counters:
        columns = self._drop_impossible_times(concatenate(self._counters, COUNTER_DTYPES), "samples")
        ts, durations = columns["ts"], np.zeros(len(columns["ts"]), np.int64)
        order, _ = sort_events(ts, durations, columns["track"], len(self._tracks))
        return Counters(**{name: column[order] for name, column in columns.items()})
