"""Find where steps start and end, by the work that they launched."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Ints, Rows, Trace
from visualprof.views.measure.columns.intervals import positions
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch import device_calls
from visualprof.views.measure.names.tensor_core import match_names

DISTANT_PAST = np.iinfo(np.int64).min
MIN_QUEUED_NS = 1_000_000  # longer than any launch takes
DEVICE_SYNC = pattern(r"^(?:(?:cuda|hip)DeviceSynchronize|cuCtxSynchronize)")
Number = TypeVar("Number", np.int64, np.float64)


class StepWork(NamedTuple):
    """Device work by step, and the order of steps. It decides where steps start and end, whatever the times are.

    Attributes:
        rows: (w,) events of device work.
        step: (w,) step that issued each piece, -1 for none.
        next_step: (w,) first step that starts after each piece was issued.
        backlog: Piece of work with which the first step starts, because older work filled the device until then; -1
            if there is no such piece.
        tracks: (n,) thread of each step if several threads run steps at the same time, otherwise `None`.
    """

    rows: Rows
    step: Rows
    next_step: Ints
    backlog: int
    tracks: Rows | None


@cached_on_trace
def step_work(trace: Trace) -> StepWork:
    """Return the device work by step."""
    work, _, issuer = device_calls(trace)
    issued = np.where(issuer >= 0, trace.events.ts[issuer], DISTANT_PAST)
    return StepWork(
        rows=work,
        step=trace.events.step[work],
        next_step=positions(trace.steps.ts, issued),
        backlog=_backlog(trace, work, issuer),
        tracks=trace.steps.track if are_concurrent(trace) else None,
    )


def step_extents(
    work: StepWork, annotations: NDArray[Number], work_start: NDArray[Number], work_end: NDArray[Number]
) -> tuple[NDArray[Number], NDArray[Number]]:
    """Return start and end (n,) of each step: from the end of all earlier work to the end of its own work.

    Args:
        work: The device work by step.
        annotations: (n, 2) start and end of each step on the host.
        work_start: (w,) start of each piece of work, in the same unit.
        work_end: (w,) end of each piece of work.
    """
    in_step = work.step >= 0
    own_end = np.array(annotations[:, 1])
    np.maximum.at(own_end, work.step[in_step], work_end[in_step])
    if work.tracks is not None:
        return _extents_by_thread(work.tracks, annotations, own_end)
    end = np.maximum.accumulate(own_end)
    # The first step after work without a step was issued waits for that work, unless the work outlasts the step.
    next_step, early_end = work.next_step[~in_step], work_end[~in_step]
    is_awaited = (next_step < len(end)) & (early_end < np.append(end, DISTANT_PAST)[next_step])
    busy_until = np.concatenate(([DISTANT_PAST], end[:-1])).astype(end.dtype)
    np.maximum.at(busy_until, next_step[is_awaited], early_end[is_awaited])
    if work.backlog >= 0:
        busy_until[0] = max(busy_until[0], work_start[work.backlog])
    return np.minimum(np.maximum(annotations[:, 0], busy_until), end), end


@cached_on_trace
def are_concurrent(trace: Trace) -> bool:
    """Return whether several threads run steps at the same time, such as threads that share a session."""
    steps = trace.steps
    if len(steps) < 2:
        return False
    end = steps.ts + steps.dur
    latest = np.maximum.accumulate(end)[:-1]
    running = np.flatnonzero(steps.ts[1:] < latest)  # the next step starts while an earlier one runs
    if not len(running):
        return False
    for track in np.unique(steps.track):
        of_other = np.where(steps.track != track, end, DISTANT_PAST)
        latest_other = np.maximum.accumulate(of_other)[:-1]
        if ((steps.track[1:] == track) & (steps.ts[1:] < latest_other)).any():
            return True
    return False


def _extents_by_thread(
    tracks: Rows, annotations: NDArray[Number], own_end: NDArray[Number]
) -> tuple[NDArray[Number], NDArray[Number]]:
    """Return start and end of steps that threads run concurrently: a step only waits for those of its own thread."""
    start, end = np.array(annotations[:, 0]), np.array(own_end)
    for track in np.unique(tracks):
        rows = np.flatnonzero(tracks == track)
        end[rows] = np.maximum.accumulate(own_end[rows])
        busy_until = np.concatenate(([DISTANT_PAST], end[rows][:-1]))
        start[rows] = np.minimum(np.maximum(annotations[rows, 0], busy_until), end[rows])
    return start, end


def _backlog(trace: Trace, work: Rows, issuer: Rows) -> int:
    """Return the first piece of work if it had to wait for work from before the recording, otherwise -1.

    It is the first piece of work, if that belongs to the first step and was queued for longer than
    the recording had lasted: a server's step, cut out of many. It does not exist if the host had
    waited for the device before.
    """
    if not len(work):
        return -1
    events, first_index = trace.events, int(np.argmin(trace.events.ts[work]))
    row, call = int(work[first_index]), int(issuer[first_index])
    if call < 0 or events.step[row] != 0:
        return -1
    work_start, queued_ns = int(events.ts[row]), int(events.ts[row] - events.end[call])
    is_sync = match_names(trace, events.name, lambda name: bool(DEVICE_SYNC.match(name)))
    has_synced = bool((is_sync & (events.end <= work_start)).any())
    recorded_ns = int(events.ts[call]) - trace.span_ns[0]
    return -1 if has_synced or queued_ns <= max(recorded_ns, MIN_QUEUED_NS) else first_index
