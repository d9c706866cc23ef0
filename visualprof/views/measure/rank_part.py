"""What a view of a whole run needs of one rank: its steps and collectives, a few kilobytes of megabytes of events."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ints, Trace, TrackKind
from visualprof.views.measure.collectives import Collectives, collectives
from visualprof.views.measure.devices import DeviceSummary, device_summary
from visualprof.views.measure.intervals import covered, intersect, merge, subtract, union
from visualprof.views.measure.processes import Place, takes_part
from visualprof.views.measure.shared import once
from visualprof.views.measure.steps import Windows, step_windows


class RankPart(msgspec.Struct, frozen=True):
    """One rank of a run, of n steps and m parts of collectives.

    start, end, computation_ns, communication_ns, overlap_ns: (n,) ns; overlap is in both. loading_ns: of a step on
    average, in which a thread loads data and nothing computes or communicates. blocks: of a step's kernels for each
    multiprocessor on average, NaN where that is not recorded. step: (m,) the place among the steps, -1 for none.
    """

    place: Place
    host: str
    steps: tuple[str, ...]
    start: Ints
    end: Ints
    computation_ns: Ints
    communication_ns: Ints
    overlap_ns: Ints
    loading_ns: float
    blocks: float
    calls: Collectives
    step: Ints
    devices: tuple[DeviceSummary, ...]


@once
def rank_part(trace: Trace) -> RankPart:
    """The part of a trace. Computation is of kernels, of operators where nothing runs on a device."""
    windows, calls = step_windows(trace), collectives(trace)
    computing, communicating = _spans(trace)
    spans = (computing, communicating, intersect(computing, communicating))
    computation, communication, overlap = (covered(each, windows.start, windows.end) for each in spans)
    place = np.full(len(trace.steps) + 1, -1)
    place[windows.index] = np.arange(len(windows))  # the last one is for what is in no step
    return RankPart(
        Place(trace.meta.rank, trace.meta.world_size, takes_part(trace)),
        trace.meta.host,
        windows.names,
        windows.start,
        windows.end,
        computation,
        communication,
        overlap,
        _loading(trace, windows, merge(computing, communicating)),
        _blocks(trace, windows),
        calls,
        place[trace.events.step[calls.row]],
        tuple(device_summary(trace, windows)),
    )


def _spans(trace: Trace) -> tuple[Ints, Ints]:
    """Disjoint intervals of computation and communication."""
    events = trace.events
    stream, thread = trace.track_mask(TrackKind.STREAM), trace.track_mask(TrackKind.THREAD)
    kernel = stream & (events.category == Category.KERNEL)
    if not (stream & events.of(Category.KERNEL, Category.COMM)).any():
        kernel = thread & (events.category == Category.OP)
    comm = (stream | thread) & (events.category == Category.COMM)
    computing, communicating = (np.flatnonzero(m & (events.dur > 0)) for m in (kernel, comm))
    return (
        union(events.ts[computing], events.end[computing]),
        union(events.ts[communicating], events.end[communicating]),
    )


def _loading(trace: Trace, windows: Windows, busy: Ints) -> float:
    if not len(windows):
        return 0.0
    events = trace.events
    rows = np.flatnonzero(
        (events.category == Category.DATALOADER) & trace.track_mask(TrackKind.THREAD) & (events.dur > 0)
    )
    spans = subtract(union(events.ts[rows], events.end[rows]), busy)
    return float(covered(spans, windows.start, windows.end).mean())


def _blocks(trace: Trace, windows: Windows) -> float:
    mine = trace.track_mask(TrackKind.STREAM) & (trace.events.category == Category.KERNEL) & (trace.events.step >= 0)
    blocks = trace.arg("blocks_per_sm", np.flatnonzero(mine), np.nan).astype(np.float64)
    return float(blocks.sum()) / max(len(windows), 1) if len(blocks) else np.nan
