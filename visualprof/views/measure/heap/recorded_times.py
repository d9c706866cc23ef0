"""The history of a memory snapshot on the timeline of a recording with which it is joined."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Ints, Trace
from visualprof.reader.trace.heap import Heap
from visualprof.views.measure.heap.moment import device_entries


class JoinedRecording(msgspec.Struct):
    """A recording of the same process, with which the snapshot is joined.

    Attributes:
        file: File name.
        allocations: Number of allocations that both contain.
        start_ns: First entry of the history in ns since the first event of the recording.
        end_ns: Last entry.
        run: Run in the log directory; None in a report, and if the recording is not listed.
        worker: Worker of the run.
        span: Span of the worker.
    """

    file: str
    allocations: int
    start_ns: int
    end_ns: int
    run: str | None = None
    worker: str | None = None
    span: str | None = None


def joined_recordings(trace: Trace, heap: Heap, device: int) -> list[JoinedRecording]:
    """Return the recordings with which a snapshot is joined, with the extent of a device's history."""
    counts: list[int] = np.bincount(heap.origins.file).tolist()
    return [
        JoinedRecording(trace.strings[file], count, int(times[0]), int(times[-1]))
        for file, count in enumerate(counts)
        if file and count and len(times := _entry_times(heap, device, file))
    ]


def recorded_entry(trace: Trace, heap: Heap, device: int, file: str, ns: int) -> int | None:
    """Return the last entry until a time of a recording, `None` outside of the history.

    The clocks of both files have different units. Allocations that both contain are compared by their times in the
    recording, so that the moment of an allocation includes it.

    Args:
        trace: A memory snapshot.
        heap: Its memory.
        device: Number of the device.
        file: File name of the recording.
        ns: Time since the first event of the recording.
    """
    number = next((int(i) for i in np.unique(heap.origins.file) if i and trace.strings[int(i)] == file), 0)
    times = _entry_times(heap, device, number) if number else np.zeros(0, np.int64)
    if not len(times) or not times[0] <= ns <= times[-1]:
        return None
    first = device_entries(heap, device)[0]
    rows = np.flatnonzero((heap.origins.file == number) & (heap.blocks.device == device))
    is_later = heap.origins.ts[rows] > ns
    low = heap.blocks.born[rows[~is_later]].max(initial=first)
    high = heap.blocks.born[rows[is_later]].min(initial=first + len(times)) - 1
    by_clock = first + int(np.searchsorted(times, ns, side="right")) - 1
    return int(max(low, min(by_clock, high)))


def _entry_times(heap: Heap, device: int, file: int) -> Ints:
    """Return the entries of a device in ns since the first event of a recording."""
    first, end = device_entries(heap, device)
    rows = np.flatnonzero(heap.origins.file == file)
    # Unix times in ns exceed the precision of the median, which is a float.
    times = (heap.entries.time_us - heap.entries.time_us[first]) * 1000
    return times[first:end] + int(np.median(heap.origins.ts[rows] - times[heap.blocks.born[rows]]))
