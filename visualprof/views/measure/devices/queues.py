"""Queue of launched work per stream."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Ids, Ints, Trace
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.devices.gaps import WorkSequence

MAX_QUEUED_LAUNCHES = 1024  # capacity of a CUDA stream; one more launch blocks in its call


class LaunchQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Launches of a stream and how long they were queued.

    A call with several kernels, as of a captured graph, is one launch.

    Attributes:
        call: (n,) rows of the calls by start.
        work: (n,) first work of each.
        start_ns: (n,) when that work started.
        work_count: (n,) pieces of work of each.
        work_ns: (n,) their total time.
        depth: (n,) queued launches at the time of the call, including the call itself.
        ts: (2n,) ns, ascending, of each change of the queue length.
        length: (2n,) queue length from that time on.
    """

    call: Ids
    work: Ids
    start_ns: Ints
    work_count: Ints
    work_ns: Ints
    depth: Ints
    ts: Ints
    length: Ints


def launch_queue(trace: Trace, sequence: WorkSequence) -> LaunchQueue:
    """Return the launch queue of a stream. Source: HTA's queue length, docs/views/launch.md."""
    events = trace.events
    launched = np.flatnonzero(sequence.call >= 0)
    by_call = group(sequence.call[launched])  # work is in order of its start
    order = np.argsort(events.ts[sequence.call[launched[by_call.first]]], kind="stable")
    first = launched[by_call.first[order]]
    call, work = sequence.call[first], sequence.work[first]
    issued = events.ts[call]
    start = np.maximum(events.ts[work], issued)
    times = np.concatenate((issued, start))
    by_time = np.argsort(times, kind="stable")  # at equal times, launches come first
    length = np.cumsum(np.where(by_time < len(issued), 1, -1))
    depth = np.arange(1, len(issued) + 1) - np.searchsorted(np.sort(start), issued, side="left")
    work_ns = by_call.sum(np.maximum(events.dur[sequence.work[launched]], 0))[order]
    return LaunchQueue(
        call=call,
        work=work,
        start_ns=start,
        work_count=by_call.count[order],
        work_ns=work_ns,
        depth=depth,
        ts=times[by_time],
        length=length,
    )
