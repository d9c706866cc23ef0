"""Find work that a stream was told to wait for."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Category, Ids, Ints, Trace
from visualprof.views.measure.columns.groups import distinct, is_in

STREAM_WAIT_CALL = "StreamWaitEvent"


def find_stream_waits(trace: Trace, call: Ids, stream: Ids) -> tuple[Ints, Ints]:
    """Return the work that a stream was told to wait for, and the first work that waits for it, as indices.

    A thread's next launch after cudaStreamWaitEvent waits for the last earlier launch on another stream.

    Args:
        trace: The recording.
        call: (w,) call that launched each piece of work, -1 for none.
        stream: (w,) track of each piece of work.
    """
    events = trace.events
    name_ids = [i for i, name in enumerate(trace.strings) if STREAM_WAIT_CALL in name]
    rows = np.flatnonzero(is_in(events.name, name_ids) & (events.category == Category.RUNTIME))
    launched = np.flatnonzero(call >= 0)
    if not len(rows) or not len(launched):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    launched = launched[np.argsort(events.ts[call[launched]], kind="stable")]
    launch_thread = events.track[call[launched]]
    waiting = np.full(len(rows), -1)
    for track in distinct(events.track[rows]).tolist():
        rows_of_track, launched_by_thread = (
            np.flatnonzero(events.track[rows] == track),
            launched[launch_thread == track],
        )
        position = np.searchsorted(events.ts[call[launched_by_thread]], events.ts[rows[rows_of_track]], side="right")
        waiting[rows_of_track] = np.append(launched_by_thread, -1)[np.minimum(position, len(launched_by_thread))]
    rows, waiting = rows[waiting >= 0], waiting[waiting >= 0]
    # Keep the last of several waits before a launch.
    is_last = np.append(waiting[1:] != waiting[:-1], True)[: len(waiting)]
    rows, waiting = rows[is_last], waiting[is_last]
    awaited, latest_launch = np.full(len(rows), -1), np.full(len(rows), np.iinfo(np.int64).min)
    for number in distinct(stream).tolist():
        on_stream = launched[stream[launched] == number]
        launch_times = events.ts[call[on_stream]]
        position = np.searchsorted(launch_times, events.ts[rows]) - 1
        is_valid = (position >= 0) & (stream[waiting] != number)
        launch_time = np.where(is_valid, launch_times[np.maximum(position, 0)], latest_launch)
        is_later = is_valid & (launch_time > latest_launch)
        awaited, latest_launch = (
            np.where(is_later, on_stream[np.maximum(position, 0)], awaited),
            np.where(is_later, launch_time, latest_launch),
        )
    return awaited[awaited >= 0], waiting[awaited >= 0]
