"""Description of a device of a memory snapshot: categories, markers, and the extent of the history."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ints, Trace
from visualprof.reader.trace.heap import NO_TIME, Action
from visualprof.views.measure.heap.block_filter import NO_FILTER
from visualprof.views.measure.heap.choice import heap_of
from visualprof.views.measure.heap.growth import named_steps
from visualprof.views.measure.heap.labels import pool_name, stream_name
from visualprof.views.measure.heap.moment import device_entries, failed_entries, peak_entry
from visualprof.views.measure.heap.recorded_times import JoinedRecording, joined_recordings
from visualprof.views.measure.heap.stacked import device_curves, max_level, stacked_blocks

MAX_MARKERS = 1000


class HeapRange(msgspec.Struct):
    """A named range of the program.

    Attributes:
        name: Its name.
        first: First entry, counted from 0 on the device.
        last: Last entry.
    """

    name: str
    first: int
    last: int


class HeapMeta(msgspec.Struct):
    """A device of a memory snapshot.

    Attributes:
        version: Identifies the contents of the file, for the parameter `v` of tiles.
        device: Number of the device.
        devices: Numbers of all devices.
        entries: Number of entries of the device.
        max_level: Level at which one tile shows all entries.
        finest_level: Level of the finest tiles: 0, or higher in a report.
        duration_ns: Time from the first to the last entry; None without times.
        categories: Categories of blocks, in the order in which their bands are stacked.
        pools: Memory pools.
        streams: Streams.
        peak_entry: First entry after which most bytes are requested; -1 is the state before the history.
        peak_bytes: Requested bytes at the peak.
        max_reserved_bytes: Most reserved bytes.
        before_history_bytes: Requested bytes of blocks that are older than the history.
        failures: Entries at which memory ran out, the first 1,000.
        snapshots: Entries at which a snapshot was taken, the first 1,000.
        steps: Steps, the first 1,000.
        annotations: Other named ranges, the first 1,000.
        recordings: Recordings with which the snapshot is joined.
    """

    version: str
    device: int
    devices: list[int]
    entries: int
    max_level: int
    finest_level: int
    duration_ns: int | None
    categories: list[str]
    pools: list[str]
    streams: list[str]
    peak_entry: int
    peak_bytes: int
    max_reserved_bytes: int
    before_history_bytes: int
    failures: list[int]
    snapshots: list[int]
    steps: list[HeapRange]
    annotations: list[HeapRange]
    recordings: list[JoinedRecording]


def heap_meta(trace: Trace, device: int, version: str) -> HeapMeta:
    """Return the description of a device.

    Args:
        trace: A memory snapshot.
        device: Number of the device.
        version: Identifies the contents of the file.
    """
    heap = heap_of(trace)
    first, end = device_entries(heap, device)
    stacked = stacked_blocks(trace, device, NO_FILTER)
    times = entry_times(trace, device)
    peak = peak_entry(heap, device) if end > first else end - 1
    blocks = heap.blocks
    at_peak = (blocks.device == device) & (blocks.born <= peak) & (blocks.died > peak)
    older = (blocks.device == device) & (blocks.born < first)
    reserved = device_curves(trace, device).reserved.at(np.arange(first - 1, end))
    actions = heap.entries.action[first:end]
    return HeapMeta(
        version=version,
        device=device,
        devices=heap.tables.device.tolist(),
        entries=end - first,
        max_level=max_level(end - first),
        finest_level=0,
        duration_ns=int(times[-1]) if times is not None else None,
        categories=stacked.categories,
        pools=[pool_name(heap, row) or "" for row in range(len(heap.tables.pool))],
        streams=[stream_name(heap, row) for row in range(len(heap.tables.stream))],
        peak_entry=peak - first,
        peak_bytes=int(blocks.requested[at_peak].sum()),
        max_reserved_bytes=int(reserved.max(initial=0)),
        before_history_bytes=int(blocks.requested[older].sum()),
        failures=(failed_entries(heap, device)[:MAX_MARKERS] - first).tolist(),
        snapshots=np.flatnonzero(actions == Action.SNAPSHOT)[:MAX_MARKERS].tolist(),
        steps=[
            HeapRange(name, low - first, high - first - 1)
            for name, (low, high) in list(named_steps(trace, heap, device).items())[:MAX_MARKERS]
        ],
        annotations=_annotations(trace, device),
        recordings=joined_recordings(trace, heap, device),
    )


def entry_times(trace: Trace, device: int) -> Ints | None:
    """Return the ns from the first entry of a device to each entry, `None` without times."""
    heap = heap_of(trace)
    first, end = device_entries(heap, device)
    times = heap.entries.time_us[first:end]
    return (times - times[0]) * 1000 if len(times) and (times != NO_TIME).all() else None


def _annotations(trace: Trace, device: int) -> list[HeapRange]:
    """Return the annotated ranges that are no steps and contain an entry, in the order of their starts."""
    heap, times = heap_of(trace), entry_times(trace, device)
    if times is None:
        return []
    origin = int(heap.entries.time_us[device_entries(heap, device)[0]]) * 1000
    events = trace.events
    rows = np.flatnonzero(events.category == Category.ANNOTATION)
    low = np.searchsorted(times, events.ts[rows] - origin)
    high = np.searchsorted(times, events.end[rows] - origin, side="right") - 1
    shown = np.flatnonzero(high >= low)[:MAX_MARKERS]
    names: list[int] = events.name[rows[shown]].tolist()
    bounds = zip(low[shown].tolist(), high[shown].tolist(), strict=True)
    return [HeapRange(trace.strings[name], *entries) for name, entries in zip(names, bounds, strict=True)]
