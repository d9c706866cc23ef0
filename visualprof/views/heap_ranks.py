"""Memory snapshots of all ranks of a run: the peak of each rank, and the function that makes it higher than others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from visualprof.messages import msg
from visualprof.reader.trace import Trace
from visualprof.views import Params, RunView
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.table import Columns, Table, from_rows
from visualprof.views.measure.heap.choice import heap_of
from visualprof.views.measure.heap.labels import block_labels, place_name
from visualprof.views.measure.heap.moment import device_entries, failed_entries, moment, peak_entry
from visualprof.views.measure.heap.stacked import device_curves

MAX_PLACES = 200  # of a rank; smaller ones cannot explain a peak


class DevicePeak(msgspec.Struct):
    """The peak of one device of a rank.

    Attributes:
        device: Number of the device.
        peak_bytes: Most requested bytes.
        reserved_bytes: Most reserved bytes.
        failures: Number of failed allocations.
        places: Requested bytes at the peak by file and function, the largest `MAX_PLACES`.
    """

    device: int
    peak_bytes: int
    reserved_bytes: int
    failures: int
    places: dict[str, int]


class RankMemory(msgspec.Struct):
    """The peaks of one rank, without those of unused devices."""

    peaks: list[DevicePeak]


class HeapRankColumns(Columns):
    """Peaks of memory by rank and device, in the order of the ranks.

    Attributes:
        peak_bytes: Most requested bytes.
        excess_bytes: Peak minus the median of all rows.
        reserved_bytes: Most reserved bytes.
        place: File and function whose memory at the peak exceeds the median of all rows most; None if none does.
        place_bytes: Requested bytes of this function.
        place_excess_bytes: These minus their median over all rows.
        failures: Number of failed allocations.
    """

    worker: kinds.WordColumn
    device: kinds.IdentifierColumn
    peak_bytes: kinds.SizeColumn
    excess_bytes: kinds.SizeColumn
    reserved_bytes: kinds.SizeColumn
    place: kinds.NameColumn
    place_bytes: kinds.SizeColumn
    place_excess_bytes: kinds.SizeColumn
    failures: kinds.CountColumn


class HeapRanksAnswer(Table[HeapRankColumns]):
    """Peaks of memory by rank.

    Attributes:
        median_bytes: Median of the peaks.
        excess_ratio: Highest peak over the median, minus 1; None if the median is 0.
    """

    median_bytes: kinds.Size
    excess_ratio: kinds.Ratio | None


def needs(trace: Trace) -> bool:
    """Whether the trace is of a memory snapshot."""
    return trace.heap is not None and len(trace.heap.tables.device) > 0


def rank_memory(trace: Trace) -> RankMemory:
    """Return the peaks of one rank."""
    if not needs(trace):
        return RankMemory([])
    devices: list[int] = heap_of(trace).tables.device.tolist()
    return RankMemory([_device_peak(trace, device) for device in devices])


def _device_peak(trace: Trace, device: int) -> DevicePeak:
    heap, labels = heap_of(trace), block_labels(trace, "line")
    first, end = device_entries(heap, device)
    alive = moment(heap, device, peak_entry(heap, device) if end > first else end - 1).blocks
    sizes = np.bincount(labels.label[alive], heap.blocks.requested[alive], len(labels.names)).astype(np.int64)
    places: dict[str, int] = {}
    for name, size in zip(labels.names, map(int, sizes), strict=True):
        places[place_name(name)] = places.get(place_name(name), 0) + size
    largest = sorted(places.items(), key=lambda item: -item[1])[:MAX_PLACES]
    return DevicePeak(
        device=device,
        peak_bytes=int(sizes.sum()),
        reserved_bytes=int(device_curves(trace, device).reserved.at(np.arange(first - 1, end)).max(initial=0)),
        failures=len(failed_entries(heap, device)),
        places={name: size for name, size in largest if size},
    )


def compute(ranks: Sequence[tuple[str, RankMemory]], params: Params) -> HeapRanksAnswer:
    """Return the peaks of all ranks, each with the function that exceeds its median over the ranks most.

    Source: docs/views/heap_ranks.md
    """
    del params
    rows = [(worker, peak) for worker, part in ranks for peak in part.peaks]
    peaks = [peak.peak_bytes for _, peak in rows]
    middle = round(float(np.median(peaks))) if peaks else 0
    names = dict.fromkeys(name for _, peak in rows for name in peak.places)
    medians = {name: round(float(np.median([peak.places.get(name, 0) for _, peak in rows]))) for name in names}
    columns = from_rows(HeapRankColumns, [_row(worker, peak, middle, medians) for worker, peak in rows])
    ratio = max(peaks, default=0) / middle - 1 if middle else None
    return HeapRanksAnswer(columns=columns, median_bytes=middle, excess_ratio=ratio)


def _row(worker: str, peak: DevicePeak, middle: int, medians: dict[str, int]) -> tuple[Any, ...]:
    """Return a row of the table."""
    place = max(peak.places, key=lambda name: peak.places[name] - medians[name], default=None)
    excess = 0 if place is None else peak.places[place] - medians[place]
    reason = (place, peak.places[place], excess) if place is not None and excess > 0 else (None, None, None)
    return (
        worker,
        peak.device,
        peak.peak_bytes,
        peak.peak_bytes - middle,
        peak.reserved_bytes,
        *reason,
        peak.failures,
    )


def make_charts(result: HeapRanksAnswer, params: Params, top: int) -> dict[str, charts.Option]:
    """Return the chart `peaks` by rank."""
    del params, top
    columns = result.columns
    return {"peaks": charts.bars(list(columns.worker), [("@t:column.peak_bytes", columns.peak_bytes)])}


VIEW = RunView(
    "heap_ranks",
    62,
    needs,
    Params,
    compute,
    make_charts,
    map=rank_memory,
    has_data=lambda part: bool(part.peaks),
    empty_hint=msg("views.needs_snapshots", "it needs a memory snapshot of each rank"),
)
