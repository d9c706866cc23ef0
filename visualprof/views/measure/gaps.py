"""When nothing ran on a device or a stream, and what the next work waited for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import msgspec
import numpy as np

from visualprof.reader.trace import Ids, Ints, Trace
from visualprof.views.measure.groups import group, is_in
from visualprof.views.measure.launch import device_calls

Cause = Literal["host_wait", "graph", "kernel_wait", "dependency", "other", "unknown"]
CAUSES: tuple[Cause, ...] = get_args(Cause)
STREAM_REACTION_NS = 15_000  # within which a stream goes on when what it waited for on another one has ended


class WorkSequence(msgspec.Struct, frozen=True):
    """What ran on a device, or on one stream of it.

    track: of the stream, -1 for all of the device. work: (n,) rows of events by start. call: (n,) what launched each,
    -1 unknown.
    """

    device: int
    track: int
    work: Ids
    call: Ids

    def stream_name(self, trace: Trace) -> str | None:
        """What the stream is called, None for a device."""
        if self.track < 0:
            return None
        track = trace.tracks[self.track]
        return f"stream {track.stream}" if track.stream >= 0 else track.name


class Gaps(msgspec.Struct, frozen=True):
    """Gaps between work. start, end: (n,) ns, ascending, disjoint, not empty.

    after, before: (n,) rows of the work around each, -1 before the first. call: (n,) what launched the work behind
    it, -1 unknown. cause: (n,) places in CAUSES.
    """

    start: Ints
    end: Ints
    previous_work: Ids
    next_work: Ids
    call: Ids
    cause: Ints

    def select(self, rows: Ints) -> Gaps:
        """Some of them."""
        return Gaps(*(getattr(self, name)[rows] for name in self.__struct_fields__))

    def spans(self, *causes: Cause) -> Ints:
        """Those of some causes, (m, 2) ns; all without any."""
        chosen = is_in(self.cause, [CAUSES.index(one) for one in causes]) if causes else np.ones(len(self.start), bool)
        return np.stack((self.start, self.end), axis=1)[chosen]


def work_sequences(trace: Trace) -> Iterator[WorkSequence]:
    """Each device that did any work, and behind it its streams."""
    work, call, _ = device_calls(trace)
    track = trace.events.track[work]
    device = np.array([t.device for t in trace.tracks] or [0])[track]
    order = np.argsort(trace.events.ts[work], kind="stable")
    for members in group(device[order]).members():
        mine = order[members]
        number = int(device[mine[0]])
        yield WorkSequence(number, -1, work[mine], call[mine])
        for rows in group(track[mine]).members():
            yield WorkSequence(number, int(track[mine[rows[0]]]), work[mine[rows]], call[mine[rows]])


def find_gaps(
    trace: Trace, sequence: WorkSequence, ends: Ints, kernel_wait_ns: int, start_ns: int | None = None
) -> Gaps:
    """The gaps of a lane with their causes; the first one from `since` to its first work, if that is later.

    graph: the work before it and behind it is of one launch of a captured graph. host_wait: the work behind the gap
    was launched after the work before it had ended; or before all recorded work, if that launch took most of the gap,
    as else the device still worked on what was asked for before the recording. kernel_wait: it was queued already, and
    the gap is shorter than kernel_wait_ns. dependency: another stream's work ended within the gap, at most 15 us before
    it did. unknown: the file does not tell what launched it.

    Args: ends: (m,) ns, ascending: when each work of the device ended.
    Source: HTA's idle time breakdown, whose `other` has `dependency` in it; docs/views.md#idle.
    """
    events = trace.events
    start, end = events.ts[sequence.work], events.end[sequence.work]
    ended = np.maximum.accumulate(np.append(start[:1] if start_ns is None else start_ns, end))[:-1]
    last = np.maximum.accumulate(np.where(np.append(0, end[:-1]) == ended, np.arange(len(end)), 0)) - 1
    behind = np.flatnonzero(start > ended)
    begins, stops, call = ended[behind], start[behind], sequence.call[behind]
    latest = np.append(ends, 0)[np.searchsorted(ends, stops, side="right") - 1]
    after = np.append(sequence.work, np.int32(-1))[last[behind]]
    before = np.append(sequence.call, np.int32(-1))[last[behind]]
    queued = stops - events.end[call]
    held = (last[behind] < 0) & (queued >= kernel_wait_ns) & (queued > events.ts[call] - begins)
    cause = np.select(
        [
            call < 0,
            call == before,
            (events.ts[call] > begins) & ~held,
            stops - begins < kernel_wait_ns,
            (latest > begins) & (stops - latest <= STREAM_REACTION_NS),
        ],
        [CAUSES.index(one) for one in ("unknown", "graph", "host_wait", "kernel_wait", "dependency")],
        CAUSES.index("other"),
    )
    return Gaps(begins, stops, after, sequence.work[behind], call, cause)
