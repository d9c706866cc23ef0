"""What a view of a whole run needs of one rank: its steps and collectives, a few kilobytes of megabytes of events."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import Category, Floats, Ints, Mask, Trace, TrackKind
from visualprof.reader.trace.process_group import ProcessGroup, decode_ranks
from visualprof.views.measure.alignment import TraceClock, trace_clock
from visualprof.views.measure.collectives import Collectives, collectives
from visualprof.views.measure.devices import DeviceSummary, device_summaries
from visualprof.views.measure.groups import group
from visualprof.views.measure.intervals import covered_ns, intersect, merge, subtract, union
from visualprof.views.measure.processes import RankLocation, rank_location
from visualprof.views.measure.steps import StepWindows, step_windows
from visualprof.views.measure.trace_cache import cached_on_trace

MAX_KERNELS = 12


class RankSteps(msgspec.Struct, frozen=True):
    """One rank of a run, of n steps.

    start, end, computation_ns, communication_ns, overlap_ns: (n,) ns; overlap is in both. loading_ns: (n,) in which a
    thread loads data and nothing computes or communicates. message_ns: (n,) in which messages are exchanged on the
    device and nothing computes. blocks: (n,) of the kernels for each multiprocessor, NaN where that is not recorded.
    kernels: names of those that take longest, k at most 12; kernel_ns: (k x n,) ns of each in each step.
    groups: those that list the rank.
    """

    location: RankLocation
    clock: TraceClock
    host: str
    groups: tuple[ProcessGroup, ...]
    steps: tuple[str, ...]
    start: Ints
    end: Ints
    computation_ns: Ints
    communication_ns: Ints
    overlap_ns: Ints
    loading_ns: Ints
    message_ns: Ints
    kernel_blocks: Floats
    kernel_names: tuple[str, ...]
    kernel_ns: Ints
    devices: tuple[DeviceSummary, ...]


class RankSummary(RankSteps, frozen=True):
    """The same with its collectives, of m parts. step: (m,) the place among the steps, -1 for none."""

    collectives: Collectives
    part_step: Ints

    def is_in_step(self, name: str) -> Mask:
        """Which parts (m,) are of the step of that name.

        Raises: BadParameter: there is no such step.
        """
        if name not in self.steps:
            raise BadParameter(
                msg("views.there_no_step", f"there is no step {name!r}"),
                msg("views.steps", f"steps: {', '.join(self.steps[:20])}")
                if self.steps
                else msg("views.trace_no_steps", "this trace has no steps"),
            )
        return self.part_step == self.steps.index(name)

    def without_collectives(self) -> RankSteps:
        """What is left when all has been taken of the collectives, which are most of it."""
        return RankSteps(*(getattr(self, name) for name in RankSteps.__struct_fields__))


@cached_on_trace
def rank_summary(trace: Trace) -> RankSummary:
    """The part of a trace. Computation is of kernels, of operators where nothing runs on a device."""
    windows, calls = step_windows(trace), collectives(trace)
    computing, communicating = _spans(trace)
    spans = (computing, communicating, intersect(computing, communicating))
    computation, communication, overlap = (covered_ns(each, windows.start, windows.end) for each in spans)
    place = np.full(len(trace.steps) + 1, -1)
    place[windows.index] = np.arange(len(windows))  # the last one is for what is in no step
    messages = (calls.source >= 0)[calls.part_call] & calls.is_transfer
    waiting = subtract(union(calls.part_start[messages], calls.part_end[messages]), computing)
    kernels, kernel_ns, blocks = _kernels(trace, place, len(windows))
    return RankSummary(
        rank_location(trace),
        trace_clock(trace),
        trace.meta.host,
        tuple(one for one in trace.meta.groups if trace.meta.rank in decode_ranks(one.runs)),
        windows.names,
        windows.start,
        windows.end,
        computation,
        communication,
        overlap,
        _loading(trace, windows, merge(computing, communicating)),
        covered_ns(waiting, windows.start, windows.end),
        blocks,
        kernels,
        kernel_ns,
        tuple(device_summaries(trace, windows)),
        calls,
        place[trace.events.step[calls.part_row]],
    )


def _spans(trace: Trace) -> tuple[Ints, Ints]:
    """Disjoint intervals of computation and communication."""
    events = trace.events
    stream, thread = trace.track_mask(TrackKind.STREAM), trace.track_mask(TrackKind.THREAD)
    kernel = stream & (events.category == Category.KERNEL)
    if not (stream & events.category_mask(Category.KERNEL, Category.COMM)).any():
        kernel = thread & (events.category == Category.OP)
    comm = (stream | thread) & (events.category == Category.COMM)
    computing, communicating = (np.flatnonzero(m & (events.dur > 0)) for m in (kernel, comm))
    return (
        union(events.ts[computing], events.end[computing]),
        union(events.ts[communicating], events.end[communicating]),
    )


def _loading(trace: Trace, windows: StepWindows, busy: Ints) -> Ints:
    events = trace.events
    rows = np.flatnonzero(
        (events.category == Category.DATALOADER) & trace.track_mask(TrackKind.THREAD) & (events.dur > 0)
    )
    spans = subtract(union(events.ts[rows], events.end[rows]), busy)
    return covered_ns(spans, windows.start, windows.end)


def _kernels(trace: Trace, place: Ints, steps: int) -> tuple[tuple[str, ...], Ints, Floats]:
    """Names of the kernels that take longest, ns of each in each step (kernels x steps), and the steps' blocks."""
    events = trace.events
    mine = trace.track_mask(TrackKind.STREAM) & (events.category == Category.KERNEL) & (events.dur > 0)
    rows = np.flatnonzero(mine & (place[events.step] >= 0))
    step, blocks = place[events.step[rows]], trace.arg("blocks_per_sm", rows, np.nan).astype(np.float64)
    known = ~np.isnan(blocks).all()
    told = np.bincount(step, blocks, steps).astype(np.float64)[:steps] if known else np.full(steps, np.nan)
    names = group(events.name[rows])
    strings: list[int] = events.name[rows[names.first]].tolist()
    longest = np.argsort(-names.sum(events.dur[rows]), kind="stable")[:MAX_KERNELS]
    chosen: list[int] = longest.tolist()
    kept = tuple(trace.strings[strings[i]] for i in chosen)
    order = np.full(len(names.first), -1)
    order[longest] = np.arange(len(longest))
    at = order[names.ids]
    cell, took = (at * steps + step)[at >= 0], events.dur[rows][at >= 0]
    total: Ints = np.bincount(cell, took, len(longest) * steps).astype(np.int64)
    return kept, total, told
