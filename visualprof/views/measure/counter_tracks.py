"""Counters of a timeline: those of the file, and what its memory, kernels, launches and copies come to over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from visualprof.reader.trace import Category, Floats, Ints, Trace, TrackKind
from visualprof.views.measure.gaps import work_sequences
from visualprof.views.measure.groups import distinct
from visualprof.views.measure.intervals import covered_ns
from visualprof.views.measure.launch import is_device_work
from visualprof.views.measure.memory import memory_curve, memory_devices
from visualprof.views.measure.queues import launch_queue
from visualprof.views.measure.steps import device_kernels
from visualprof.views.measure.trace_cache import cached_on_trace

UTILIZATION_BUCKETS = 1000  # of the recording, each with its utilization


@dataclass(frozen=True)
class CounterTrack:
    """Samples of one counter. ts: (n,) ns, ascending. value: (n,). A name ends in its unit."""

    name: str
    process: str
    ts: Ints
    value: Floats


@cached_on_trace
def counter_tracks(trace: Trace) -> dict[int, CounterTrack]:
    """Every counter with samples by its number: that of its track, behind the last track where no file has it."""
    found = dict(_recorded(trace))
    derived = [*_memory(trace), *_utilization(trace), *_queues(trace), *_copies(trace)]
    return found | {len(trace.tracks) + i: counter for i, counter in enumerate(derived)}


def _recorded(trace: Trace) -> Iterator[tuple[int, CounterTrack]]:
    counters = trace.counters
    for i, track in enumerate(trace.tracks):
        if track.kind == TrackKind.COUNTER:
            first, last = np.searchsorted(counters.track, (i, i + 1))
            if last > first:
                yield i, CounterTrack(track.name, track.process, counters.ts[first:last], counters.value[first:last])


def _memory(trace: Trace) -> Iterator[CounterTrack]:
    for device in memory_devices(trace):
        over_time = memory_curve(trace, device)
        for name, total in (("allocated", over_time.allocated), ("reserved", over_time.reserved)):
            known = total != -1
            if known.any():
                where = "host" if device < 0 else f"{trace.meta.device_type}:{device}"
                label = f"{where} memory {name} bytes"
                yield CounterTrack(label, "", over_time.ts[known], total[known].astype(np.float64))


def _utilization(trace: Trace) -> Iterator[CounterTrack]:
    """Share of each part of the recording in which a device ran a kernel, of those on which one ran at all."""
    edges = distinct(np.linspace(*trace.span_ns, UTILIZATION_BUCKETS + 1).astype(np.int64))
    for device, mine in device_kernels(trace).items():
        share = 100 * covered_ns(mine.spans, edges[:-1], edges[1:]) / np.diff(edges)
        yield CounterTrack(f"{trace.meta.device_type}:{device} utilization %", "", edges[:-1], share)


def _queues(trace: Trace) -> Iterator[CounterTrack]:
    """Launches that wait for each stream."""
    for lane in work_sequences(trace):
        if lane.track >= 0 and len((waiting := launch_queue(trace, lane)).ts):
            name, process = f"{lane.stream_name(trace)} launches waiting", trace.tracks[lane.track].process
            yield CounterTrack(name, process, waiting.ts, waiting.length.astype(np.float64))


def _copies(trace: Trace) -> Iterator[CounterTrack]:
    """What copies and fills move at a time, by direction; each as if at one pace from its start to its end."""
    events = trace.events
    rows = np.flatnonzero(
        is_device_work(trace) & events.category_mask(Category.MEMCPY, Category.MEMSET) & (events.dur > 0)
    )
    moved = trace.arg("bytes", rows, 0).astype(np.float64)
    rows, moved = rows[moved > 0], moved[moved > 0]
    names: list[str] = [trace.strings[int(i)].partition(" (")[0] for i in events.name[rows]]
    for name in sorted(set(names)):
        mine = np.array([one == name for one in names], bool)
        pace = moved[mine] / events.dur[rows[mine]]  # bytes/ns: GB/s
        ts = np.concatenate((events.ts[rows[mine]], events.end[rows[mine]]))
        order = np.argsort(ts, kind="stable")
        level = np.cumsum(np.concatenate((pace, -pace))[order])
        yield CounterTrack(f"{name} GB/s", "", ts[order], level.clip(0))
