"""Idle time of devices and streams, and what the next work waited for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import msgspec
import numpy as np

from visualprof.reader.trace import Ids, Ints, Trace
from visualprof.views.measure.columns.groups import group, is_in
from visualprof.views.measure.columns.intervals import positions
from visualprof.views.measure.launches.launch import device_calls

Cause = Literal["host_wait", "graph", "kernel_wait", "dependency", "other", "unknown"]
CAUSES: tuple[Cause, ...] = get_args(Cause)
STREAM_REACTION_NS = 15_000  # a stream resumes within this time after the work it waited for ended


class WorkSequence(msgspec.Struct, frozen=True):
    """Work of a device, or of one of its streams, in the order of its start.

    Attributes:
        device: Device number.
        track: Track of the stream, -1 for the whole device.
        work: (n,) rows of events by start.
        call: (n,) call that launched each, -1 unknown.
    """

    device: int
    track: int
    work: Ids
    call: Ids

    def stream_name(self, trace: Trace) -> str | None:
        """Return the name of the stream; `None` for a device."""
        if self.track < 0:
            return None
        track = trace.tracks[self.track]
        return f"stream {track.stream}" if track.stream >= 0 else track.name


class Gaps(msgspec.Struct, frozen=True):
    """Gaps between work, ascending, disjoint, not empty; all (n,).

    Attributes:
        start: ns.
        end: ns.
        previous_work: Row of the work before the gap, -1 before the first.
        next_work: Row of the work after the gap.
        call: Call that launched the work after the gap, -1 unknown.
        cause: Index into `CAUSES`.
    """

    start: Ints
    end: Ints
    previous_work: Ids
    next_work: Ids
    call: Ids
    cause: Ints

    def select(self, rows: Ints) -> Gaps:
        """Return some of the gaps."""
        return Gaps(*(getattr(self, name)[rows] for name in self.__struct_fields__))

    def spans(self, *causes: Cause) -> Ints:
        """Return the gaps of some causes, (m, 2) ns; all gaps if no cause is given."""
        is_chosen = (
            is_in(self.cause, [CAUSES.index(cause) for cause in causes]) if causes else np.ones(len(self.start), bool)
        )
        return np.stack((self.start, self.end), axis=1)[is_chosen]


def work_sequences(trace: Trace) -> Iterator[WorkSequence]:
    """Yield the work of each device that did any, followed by that of each of its streams."""
    work, call, _ = device_calls(trace)
    work_track = trace.events.track[work]
    device = np.array([track.device for track in trace.tracks] or [0])[work_track]
    order = np.argsort(trace.events.ts[work], kind="stable")
    for members in group(device[order]).members():
        device_work = order[members]
        device_id = int(device[device_work[0]])
        yield WorkSequence(device_id, -1, work[device_work], call[device_work])
        for rows in group(work_track[device_work]).members():
            yield WorkSequence(
                device_id, int(work_track[device_work[rows[0]]]), work[device_work[rows]], call[device_work[rows]]
            )


def find_gaps(
    trace: Trace, sequence: WorkSequence, ends: Ints, kernel_wait_ns: int, start_ns: int | None = None
) -> Gaps:
    """Return the gaps of a work sequence with their causes.

    The first gap is the one from `start_ns` to the first work, if that starts later.

    - graph: the work before and after the gap belongs to one launch of a captured graph.
    - host_wait: the work after the gap was launched after the work before it had ended. For a gap
      before all recorded work: only if that launch took most of the gap; otherwise the device still
      ran work from before the recording.
    - kernel_wait: the work was already queued, and the gap is shorter than `kernel_wait_ns`.
    - dependency: work of another stream ended within the gap, at most 15 us before the end of the
      gap.
    - unknown: the file does not record what launched the work.

    Args:
        trace: The trace.
        sequence: Work of a device or a stream.
        ends: (m,) ns, ascending: when each work of the device ended.
        kernel_wait_ns: Limit for kernel_wait.
        start_ns: Start of the first gap; by default there is no gap before the first work.

    Source: HTA's idle time breakdown, whose `other` includes `dependency`; docs/views/idle.md.
    """
    events = trace.events
    start, end = events.ts[sequence.work], events.end[sequence.work]
    busy_until = np.maximum.accumulate(np.append(start[:1] if start_ns is None else start_ns, end))[:-1]
    last_ended = np.maximum.accumulate(np.where(np.append(0, end[:-1]) == busy_until, np.arange(len(end)), 0)) - 1
    gap_rows = np.flatnonzero(start > busy_until)
    gap_start, gap_end, call = busy_until[gap_rows], start[gap_rows], sequence.call[gap_rows]
    latest_end = np.append(ends, 0)[positions(ends, gap_end, after_equal=True) - 1]
    previous_work = np.append(sequence.work, np.int32(-1))[last_ended[gap_rows]]
    previous_call = np.append(sequence.call, np.int32(-1))[last_ended[gap_rows]]
    queued_ns = gap_end - events.end[call]
    is_backlog = (last_ended[gap_rows] < 0) & (queued_ns >= kernel_wait_ns) & (queued_ns > events.ts[call] - gap_start)
    cause = np.select(
        [
            call < 0,
            call == previous_call,
            (events.ts[call] > gap_start) & ~is_backlog,
            gap_end - gap_start < kernel_wait_ns,
            (latest_end > gap_start) & (gap_end - latest_end <= STREAM_REACTION_NS),
        ],
        [CAUSES.index(name) for name in ("unknown", "graph", "host_wait", "kernel_wait", "dependency")],
        CAUSES.index("other"),
    )
    return Gaps(gap_start, gap_end, previous_work, sequence.work[gap_rows], call, cause)
