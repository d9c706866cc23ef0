"""Computation and communication of each device of a process.

A process may drive several devices. Work on one device never hides communication on another, so overlaps are measured
per device. A single value for the process is the value of its main device.
"""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.communication import computes_and_communicates
from visualprof.reader.trace import Category, Ints, Mask, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.columns.intervals import covered_ns, intersect, merge, span_length, union
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch import device_calls
from visualprof.views.measure.names.tensor_core import match_names

HOST_DEVICE = -1


class DeviceWork(msgspec.Struct, frozen=True):
    """Disjoint intervals in which a device computes, and in which it communicates.

    Attributes:
        device: Number of the device, `HOST_DEVICE` if nothing runs on a device.
        computing: (n, 2) ns.
        communicating: (m, 2) ns.
    """

    device: int
    computing: Ints
    communicating: Ints

    def times(self, start: Ints, end: Ints) -> Ints:
        """Return (3, windows) ns of computation, communication, and both at once in each window."""
        spans = (self.computing, self.communicating, intersect(self.computing, self.communicating))
        return np.stack([covered_ns(intervals, start, end) for intervals in spans])


@cached_on_trace
def event_devices(trace: Trace) -> Ints:
    """Return the device of each event on a stream, `HOST_DEVICE` for other events."""
    devices = [track.device if track.kind == TrackKind.STREAM else HOST_DEVICE for track in trace.tracks]
    return np.repeat(np.array(devices, np.int64), [track.count for track in trace.tracks])


@cached_on_trace
def busy_devices(trace: Trace) -> list[int]:
    """Return the devices that compute or communicate, in ascending order."""
    selected = trace.track_mask(TrackKind.STREAM) & trace.events.category_mask(Category.KERNEL, Category.COMM)
    return sorted({*event_devices(trace)[selected & (trace.events.dur > 0)].tolist()})


@cached_on_trace
def only_launches_communication(trace: Trace) -> Mask:
    """Return, per event, whether it is a host operator of a collective that only enqueues recorded kernels.

    The kernels are the communication, and the time of such an operator is time of the host. In recordings of Paddle
    with a single device the operator counts, as in VisualDL, so no event is selected.

    Source: docs/views/distributed.md
    """
    events = trace.events
    if trace.meta.framework == "paddle" and len(busy_devices(trace)) < 2:
        return np.zeros(len(events), bool)
    is_host_operator = (events.category == Category.COMM) & trace.track_mask(TrackKind.THREAD)
    is_launching = np.zeros(len(events), bool)
    work, call, issuer = device_calls(trace)
    rows = np.concatenate([launcher[events.category[work] == Category.COMM] for launcher in (call, issuer)])
    rows = distinct(rows[rows >= 0])
    while len(rows):
        rows = distinct(nearest_ancestor(events.parent, is_host_operator, rows))
        rows = rows[rows >= 0]
        is_launching[rows] = True
        rows = events.parent[rows]
        rows = rows[rows >= 0]
    return is_launching


@cached_on_trace
def work_by_device(trace: Trace) -> list[DeviceWork]:
    """Return the work of each device that computes or communicates, or of the host if none does.

    - Computation is that of kernels; of operators if nothing runs on a device.
    - A kernel that multiplies matrices and communicates counts as both.
    - Communication is that of collectives' kernels, and of host operators that do not only launch recorded kernels.
      Host operators count for every device.
    """
    events = trace.events
    stream, thread = trace.track_mask(TrackKind.STREAM), trace.track_mask(TrackKind.THREAD)
    has_duration = events.dur > 0
    is_communication = (events.category == Category.COMM) & has_duration
    on_host = is_communication & thread & ~only_launches_communication(trace)
    devices = busy_devices(trace)
    if not devices:
        operators = np.flatnonzero(thread & (events.category == Category.OP) & has_duration)
        return [_device_work(trace, HOST_DEVICE, operators, np.flatnonzero(on_host))]
    by_device: list[DeviceWork] = []
    for device in devices:
        on_device = stream & (event_devices(trace) == device)
        kernels = np.flatnonzero(on_device & (events.category == Category.KERNEL) & has_duration)
        communicating = on_host | (is_communication & on_device)
        communicating[kernels] |= match_names(trace, events.name[kernels], computes_and_communicates)
        by_device.append(_device_work(trace, device, kernels, np.flatnonzero(communicating)))
    return by_device


@cached_on_trace
def main_work(trace: Trace) -> DeviceWork:
    """Return the work of the main device of the process.

    It is the device with the most communication that no computation of its own hides; of equal devices the one that
    computes and communicates for longest, then the first.
    """

    def priority(work: DeviceWork) -> tuple[int, int]:
        busy = span_length(merge(work.computing, work.communicating))
        return busy - span_length(work.computing), busy

    return max(work_by_device(trace), key=priority)


def _device_work(trace: Trace, device: int, computing: Ints, communicating: Ints) -> DeviceWork:
    """Return the work of a device, given the rows of its events."""
    events = trace.events
    return DeviceWork(device, *(union(events.ts[rows], events.end[rows]) for rows in (computing, communicating)))
