"""Counters of a timeline: those that the file has, and what its memory events and kernels come to over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from visualprof.reader.trace import Floats, Ints, Trace, TrackKind
from visualprof.views.measure.groups import distinct
from visualprof.views.measure.intervals import covered
from visualprof.views.measure.memory import curve, devices_of
from visualprof.views.measure.once import once
from visualprof.views.measure.steps import kernels

PARTS = 1000  # of the recording, each with its utilization


@dataclass(frozen=True)
class CounterTrack:
    """Samples of one counter. ts: (n,) ns, ascending. value: (n,). A name ends in its unit."""

    name: str
    process: str
    ts: Ints
    value: Floats


@once
def counter_tracks(trace: Trace) -> dict[int, CounterTrack]:
    """Every counter with samples by its number: that of its track, behind the last track where no file has it."""
    found = dict(_recorded(trace))
    derived = [*_memory(trace), *_utilization(trace)]
    return found | {len(trace.tracks) + i: counter for i, counter in enumerate(derived)}


def _recorded(trace: Trace) -> Iterator[tuple[int, CounterTrack]]:
    counters = trace.counters
    for i, track in enumerate(trace.tracks):
        if track.kind == TrackKind.COUNTER:
            first, last = np.searchsorted(counters.track, (i, i + 1))
            if last > first:
                yield i, CounterTrack(track.name, track.process, counters.ts[first:last], counters.value[first:last])


def _memory(trace: Trace) -> Iterator[CounterTrack]:
    for device in devices_of(trace):
        over_time = curve(trace, device)
        for name, total in (("allocated", over_time.allocated), ("reserved", over_time.reserved)):
            known = total != -1
            if known.any():
                where = "host" if device < 0 else f"{trace.meta.device_type}:{device}"
                label = f"{where} memory {name} bytes"
                yield CounterTrack(label, "", over_time.ts[known], total[known].astype(np.float64))


def _utilization(trace: Trace) -> Iterator[CounterTrack]:
    """Share of each part of the recording in which a device ran a kernel, of those on which one ran at all."""
    edges = distinct(np.linspace(*trace.span_ns, PARTS + 1).astype(np.int64))
    for device, mine in kernels(trace).items():
        share = 100 * covered(mine.spans, edges[:-1], edges[1:]) / np.diff(edges)
        yield CounterTrack(f"{trace.meta.device_type}:{device} utilization %", "", edges[:-1], share)
