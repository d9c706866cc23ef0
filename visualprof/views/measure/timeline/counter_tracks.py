"""Counters of a timeline: those of the file, and derived ones of memory, utilization, queued launches and copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from visualprof.reader.trace import Category, Floats, Ints, Trace, TrackKind
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.columns.intervals import covered_ns
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.devices.gaps import work_sequences
from visualprof.views.measure.devices.memory import memory_curve, memory_devices
from visualprof.views.measure.devices.queues import launch_queue
from visualprof.views.measure.launches.launch import is_device_work
from visualprof.views.measure.steps.windows import device_kernels

UTILIZATION_BUCKETS = 1000  # equal parts of the recording


@dataclass(frozen=True)
class CounterTrack:
    """Samples of one counter.

    Attributes:
        name: Name, which ends in the unit.
        process: Process of the counter.
        ts: (n,) ns, ascending.
        value: (n,) values.
    """

    name: str
    process: str
    ts: Ints
    value: Floats


@cached_on_trace
def counter_tracks(trace: Trace) -> dict[int, CounterTrack]:
    """Return every counter with samples by its number.

    The number of a recorded counter is that of its track. Derived counters are numbered from the
    number of tracks on.
    """
    recorded = dict(_recorded(trace))
    derived = [*_memory(trace), *_utilization(trace), *_queues(trace), *_copies(trace)]
    return recorded | {len(trace.tracks) + i: counter for i, counter in enumerate(derived)}


def _recorded(trace: Trace) -> Iterator[tuple[int, CounterTrack]]:
    """Yield the number and the counter of every counter track of the file."""
    counters = trace.counters
    for i, track in enumerate(trace.tracks):
        if track.kind == TrackKind.COUNTER:
            first, last = np.searchsorted(counters.track, (i, i + 1))
            if last > first:
                yield i, CounterTrack(track.name, track.process, counters.ts[first:last], counters.value[first:last])


def _memory(trace: Trace) -> Iterator[CounterTrack]:
    """Yield allocated and reserved memory of each device."""
    for device in memory_devices(trace):
        totals = memory_curve(trace, device)
        for name, total in (("allocated", totals.allocated), ("reserved", totals.reserved)):
            is_known = total != -1
            if is_known.any():
                place = "host" if device < 0 else f"{trace.meta.device_type}:{device}"
                label = f"{place} memory {name} bytes"
                yield CounterTrack(label, "", totals.ts[is_known], total[is_known].astype(np.float64))


def _utilization(trace: Trace) -> Iterator[CounterTrack]:
    """Yield the share of each part of the recording in which a device ran a kernel, for devices that ran any."""
    edges = distinct(np.linspace(*trace.span_ns, UTILIZATION_BUCKETS + 1).astype(np.int64))
    for device, device_kernel_times in device_kernels(trace).items():
        share = 100 * covered_ns(device_kernel_times.spans, edges[:-1], edges[1:]) / np.diff(edges)
        yield CounterTrack(f"{trace.meta.device_type}:{device} utilization %", "", edges[:-1], share)


def _queues(trace: Trace) -> Iterator[CounterTrack]:
    """Yield the number of queued launches of each stream."""
    for sequence in work_sequences(trace):
        if sequence.track >= 0 and len((waiting := launch_queue(trace, sequence)).ts):
            name, process = f"{sequence.stream_name(trace)} launches waiting", trace.tracks[sequence.track].process
            yield CounterTrack(name, process, waiting.ts, waiting.length.astype(np.float64))


def _copies(trace: Trace) -> Iterator[CounterTrack]:
    """Yield the bandwidth of copies and fills by direction; each copy counts with its mean bandwidth."""
    events = trace.events
    rows = np.flatnonzero(
        is_device_work(trace) & events.category_mask(Category.MEMCPY, Category.MEMSET) & (events.dur > 0)
    )
    sizes = trace.arg("bytes", rows, 0).astype(np.float64)
    rows, sizes = rows[sizes > 0], sizes[sizes > 0]
    labels: list[str] = [trace.strings[int(i)].partition(" (")[0] for i in events.name[rows]]
    for name in sorted(set(labels)):
        is_direction = np.array([label == name for label in labels], bool)
        bandwidth = sizes[is_direction] / events.dur[rows[is_direction]]  # bytes/ns: GB/s
        ts = np.concatenate((events.ts[rows[is_direction]], events.end[rows[is_direction]]))
        order = np.argsort(ts, kind="stable")
        level = np.cumsum(np.concatenate((bandwidth, -bandwidth))[order])
        yield CounterTrack(f"{name} GB/s", "", ts[order], level.clip(0))
