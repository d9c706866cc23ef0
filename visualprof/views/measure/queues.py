"""How much launched work waits for a stream."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Ids, Ints, Trace
from visualprof.views.measure.gaps import WorkSequence
from visualprof.views.measure.groups import group

MAX_QUEUED_LAUNCHES = 1024  # launches that a CUDA stream holds: one more waits in its call


class LaunchQueue(msgspec.Struct, frozen=True):
    """Launches on a stream that have not begun. A call with several kernels, a captured graph's, is one launch.

    call: (n,) rows of the calls by start. work: (n,) the first work of each. begun: (n,) ns when that started.
    pieces, work_ns: (n,) pieces of work of each, and their time together.
    depth: (n,) launches that wait when it is asked for, itself included. ts: (2n,) ns, ascending, of each change,
    length: (2n,) from then on.
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
    """The queue of a stream's lane. Source: HTA's queue length, docs/views.md#launch."""
    events = trace.events
    known = np.flatnonzero(sequence.call >= 0)
    by_call = group(sequence.call[known])  # work is in order of its start
    order = np.argsort(events.ts[sequence.call[known[by_call.first]]], kind="stable")
    first = known[by_call.first[order]]
    call, work = sequence.call[first], sequence.work[first]
    asked = events.ts[call]
    begun = np.maximum(events.ts[work], asked)
    times = np.concatenate((asked, begun))
    by_time = np.argsort(times, kind="stable")  # of one moment, what is asked for comes first
    length = np.cumsum(np.where(by_time < len(asked), 1, -1))
    depth = np.arange(1, len(asked) + 1) - np.searchsorted(np.sort(begun), asked, side="left")
    work_ns = by_call.sum(np.maximum(events.dur[sequence.work[known]], 0))[order]
    return LaunchQueue(call, work, begun, by_call.count[order], work_ns, depth, times[by_time], length)
