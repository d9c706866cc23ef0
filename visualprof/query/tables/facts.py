"""Tables of other facts: tracks, links, counters, steps, gaps, collectives and metadata."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import numpy as np

from visualprof.query import origins
from visualprof.query.tables.columns import Builder, Values, event_ids, objects, words
from visualprof.query.tables.events import names_of, step_names
from visualprof.reader.trace import Ints, LinkKind, Trace, TrackKind
from visualprof.views.measure.devices.gaps import CAUSES, Gaps, find_gaps, work_sequences
from visualprof.views.measure.ranks.collectives import Collectives, collectives
from visualprof.views.measure.ranks.communication_events import bus_bytes
from visualprof.views.measure.steps.serving_steps import step_loads
from visualprof.views.measure.steps.windows import step_windows
from visualprof.views.measure.timeline.counter_tracks import counter_tracks

KERNEL_WAIT_NS = 30_000  # as in the view `idle`
_KINDS = {
    name: value
    for name, _, value in (
        pair.partition("=")
        for pair in """
        allreduce=all_reduce allgather=all_gather reducescatter=reduce_scatter alltoall=all_to_all
        broadcast=broadcast isend=send send=send irecv=recv recv=recv barrier=barrier gather=gather
        scatter=scatter reduce=reduce permute=collective_permute
    """.split()
    )
}
_NOT_LETTERS = re.compile(r"[^a-z]+")


class Facts:
    """Tables of a trace that are not made of event rows."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        raise NotImplementedError


class Rows(Facts):
    """A small table, written row by row."""

    names: tuple[str, ...] = ()

    @cached_property
    def records(self) -> list[tuple[Any, ...]]:
        """Return the rows."""
        raise NotImplementedError

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        return {name: self._builder(name, i) for i, name in enumerate(self.names)}

    def _builder(self, name: str, place: int) -> Builder:
        return lambda: self._values(name, [record[place] for record in self.records])

    def _values(self, name: str, values: list[Any]) -> Values:
        del name
        return objects(values)


class TrackTable(Rows):
    """Tracks."""

    names = ("id", "name", "kind", "process", "pid", "tid", "device", "stream", "utid", "upid")

    @cached_property
    def records(self) -> list[tuple[Any, ...]]:
        """Return one row per track."""
        processes = {pid: i for i, pid in enumerate(dict.fromkeys(track.pid for track in self.trace.tracks))}
        return [
            (
                i,
                track.name,
                track.kind.name.lower(),
                track.process,
                track.pid,
                track.tid,
                track.device if track.device >= 0 else None,
                track.stream if track.stream >= 0 else None,
                i if track.kind == TrackKind.THREAD else None,
                processes[track.pid],
            )
            for i, track in enumerate(self.trace.tracks)
        ]

    def _values(self, name: str, values: list[Any]) -> Values:
        if name in ("id", "utid", "upid"):
            numbers = np.array([-1 if value is None else value for value in values], np.int64)
            return Values(numbers, "process" if name == "upid" else "track", -1)
        return objects(values)


class ThreadTrackTable(TrackTable):
    """Tracks of threads."""

    names = ("id", "name", "utid")

    @cached_property
    def records(self) -> list[tuple[Any, ...]]:
        """Return one row per thread."""
        return [(i, t.name, i) for i, t in enumerate(self.trace.tracks) if t.kind == TrackKind.THREAD]


class ThreadTable(TrackTable):
    """Threads."""

    names = ("utid", "tid", "name", "upid")

    @cached_property
    def records(self) -> list[tuple[Any, ...]]:
        """Return one row per thread."""
        processes = {pid: i for i, pid in enumerate(dict.fromkeys(track.pid for track in self.trace.tracks))}
        tracks = enumerate(self.trace.tracks)
        return [(i, t.tid, t.name, processes[t.pid]) for i, t in tracks if t.kind == TrackKind.THREAD]


class ProcessTable(TrackTable):
    """Processes."""

    names = ("upid", "pid", "name")

    @cached_property
    def records(self) -> list[tuple[Any, ...]]:
        """Return one row per process."""
        names: dict[str, str] = {}
        for track in self.trace.tracks:
            names[track.pid] = names.get(track.pid) or track.process
        return [(i, pid, name) for i, (pid, name) in enumerate(names.items())]


class FlowTable(Facts):
    """Links between events."""

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        links = self.trace.links
        names = [kind.name.lower() for kind in LinkKind]
        return {
            "slice_out": lambda: event_ids(links.src),
            "slice_in": lambda: event_ids(links.dst),
            "kind": lambda: words(links.kind, names),
        }


class CounterTable(Facts):
    """Samples of counters."""

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        tracks = counter_tracks(self.trace)
        counts = [len(track.ts) for track in tracks.values()]
        empty = np.zeros(0)
        return {
            "track_id": lambda: Values(np.repeat(np.array(list(tracks), np.int64), counts), "track"),
            "ts": lambda: Values(
                np.concatenate([empty.astype(np.int64), *(track.ts for track in tracks.values())]), "time"
            ),
            "value": lambda: Values(np.concatenate([empty, *(track.value for track in tracks.values())])),
        }


class CounterTrackTable(TrackTable):
    """Counters."""

    names = ("id", "name", "process", "derived")

    @cached_property
    def records(self) -> list[tuple[Any, ...]]:
        """Return one row per counter."""
        recorded = len(self.trace.tracks)
        return [(i, t.name, t.process, i >= recorded) for i, t in counter_tracks(self.trace).items()]


class StepTable(Facts):
    """Steps."""

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        steps = self.trace.steps
        loads = step_loads(self.trace) or [None] * len(steps)
        return {
            "id": lambda: Values(np.arange(len(steps)), "step", -1),
            "name": lambda: Values(steps.name, "text"),
            "ts": lambda: Values(steps.ts, "time"),
            "dur": lambda: Values(steps.dur),
            "track_id": lambda: Values(steps.track, "track", -1),
            "phase": lambda: objects([load and load.phase for load in loads]),
            "batch": lambda: objects([load and load.batch for load in loads]),
            "tokens": lambda: objects([load and load.tokens for load in loads]),
        }


class CollectiveTable(Facts):
    """Collectives."""

    @cached_property
    def calls(self) -> Collectives:
        """Return the calls of the rank."""
        return collectives(self.trace)

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        calls, steps = self.calls, self.trace.events.step
        return {
            "id": lambda: event_ids(calls.event),
            "ts": lambda: Values(self._starts(), "time"),
            "dur": lambda: Values(calls.latency_ns),
            "name": lambda: words(calls.name, calls.names),
            "kind": lambda: words(calls.name, [kind_of_collective(name) for name in calls.names]),
            "bytes": lambda: Values(calls.bytes, missing=-1),
            "group_name": lambda: words(calls.group, [group.description or group.name for group in calls.groups]),
            "group_size": lambda: Values(calls.group_size, missing=-1),
            "sequence": lambda: Values(calls.sequence, missing=-1),
            "source": lambda: Values(calls.source, missing=-1),
            "destination": lambda: Values(calls.destination, missing=-1),
            "bus_bandwidth": lambda: Values(self._bus_bandwidths()),
            "step_id": lambda: Values(steps[calls.event], "step", -1),
            "step": lambda: Values(step_names(self.trace)[steps[calls.event]], "text"),
        }

    def _starts(self) -> Ints:
        calls = self.calls
        start = np.full(len(calls), np.iinfo(np.int64).max)
        np.minimum.at(start, calls.part_call, calls.part_start)
        return start

    def _bus_bandwidths(self) -> Ints:
        calls = self.calls
        size, duration = calls.bytes.astype(np.float64), calls.latency_ns
        moved = np.full(len(calls), np.nan)
        for i, name in enumerate(calls.names):
            at = calls.name == i
            moved[at] = bus_bytes(name, size[at], calls.group_size[at])
        return np.where(duration > 0, moved / np.maximum(duration, 1) * 1e9, np.nan)


def kind_of_collective(name: str) -> str:
    """Return the kind of a collective by its name, such as all_reduce for `ncclDevKernel_AllReduce_Sum_f32`."""
    letters = _NOT_LETTERS.sub("", name.lower())
    return next((kind for word, kind in _KINDS.items() if word in letters), "other")


class GapTable(Facts):
    """Gaps between device work."""

    @cached_property
    def gaps(self) -> tuple[Gaps, Ints, Ints]:
        """Return all gaps, with the device and the stream of each; -1 for whole devices."""
        trace = self.trace
        windows = step_windows(trace)
        since = int(windows.start[0]) if len(windows) else None
        gap_sets: list[Gaps] = []
        places: list[tuple[int, int]] = []
        ends = np.zeros(0, np.int64)
        for sequence in work_sequences(trace):
            if sequence.track < 0:
                ends = np.sort(trace.events.end[sequence.work])
            gap_sets.append(find_gaps(trace, sequence, ends, KERNEL_WAIT_NS, since))
            places.append((sequence.device, trace.tracks[sequence.track].stream if sequence.track >= 0 else -1))
        if not gap_sets:
            empty = np.zeros(0, np.int64)
            no_rows = np.zeros(0, np.int32)
            return Gaps(empty, empty, no_rows, no_rows, no_rows, empty), empty, empty
        merged = Gaps(*(np.concatenate([getattr(g, name) for g in gap_sets]) for name in Gaps.__struct_fields__))
        counts = [len(gaps.start) for gaps in gap_sets]
        device, stream = (np.repeat(np.array([place[i] for place in places]), counts) for i in range(2))
        return merged, device, stream

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        trace, (gaps, device, stream) = self.trace, self.gaps
        step = trace.events.step
        return {
            "id": lambda: Values(np.arange(len(gaps.start)), "gap"),
            "ts": lambda: Values(gaps.start, "time"),
            "dur": lambda: Values(gaps.end - gaps.start),
            "device": lambda: Values(device),
            "stream": lambda: Values(stream, missing=-1),
            "cause": lambda: words(gaps.cause, CAUSES),
            "previous_id": lambda: event_ids(gaps.previous_work),
            "previous": lambda: Values(names_of(trace, gaps.previous_work), "text"),
            "next_id": lambda: event_ids(gaps.next_work),
            "next": lambda: Values(names_of(trace, gaps.next_work), "text"),
            "launch_id": lambda: event_ids(gaps.call),
            "op_id": lambda: event_ids(origins.operators(trace)[gaps.next_work]),
            "op": lambda: Values(names_of(trace, origins.operators(trace)[gaps.next_work]), "text"),
            "step_id": lambda: Values(step[gaps.next_work], "step", -1),
            "step": lambda: Values(step_names(trace)[step[gaps.next_work]], "text"),
        }


class MetaTable(Rows):
    """Facts about the recording."""

    names = ("key", "value")

    @cached_property
    def records(self) -> list[tuple[Any, ...]]:
        """Return one row per known fact."""
        meta = self.trace.meta
        names = ("format", "framework", "producer", "host", "rank", "world_size", "device_type", "clock_origin_ns")
        facts = [(name, getattr(meta, name)) for name in names]
        facts += [("device", device.name) for device in meta.devices] + [("warning", text) for text in meta.warnings]
        facts += meta.properties.items()
        return [(key, str(value)) for key, value in facts if value not in ("", -1)]
