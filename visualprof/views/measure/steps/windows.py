"""Step windows and the work that fills them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import Category, Ints, LinkKind, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.reader.trace.serving import Phase
from visualprof.views.answers.kinds import Count
from visualprof.views.measure.columns.groups import Groups, group
from visualprof.views.measure.columns.intervals import split_at, unions_by_group
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch import is_device_work, is_kernel, is_operator
from visualprof.views.measure.names.tensor_core import tensor_core_masks
from visualprof.views.measure.steps.extents import step_extents, step_work
from visualprof.views.measure.steps.serving_steps import step_loads

HOST_WORK = (
    Category.OP,
    Category.RUNTIME,
    Category.COMM,
    Category.DATALOADER,
    Category.FORWARD,
    Category.BACKWARD,
    Category.OPTIMIZER,
    Category.ANNOTATION,
    Category.MODULE,
)
MIN_COMPLETE_SHARE = 0.8
DropReason = Literal["empty", "incomplete", "overtaken"]


class DroppedStep(msgspec.Struct, frozen=True):
    """An annotated step that no metric includes, with the reason.

    - empty: neither the step nor any later one has work.
    - incomplete: it is the last step with work, and has less than 80 % of the previous step's work,
      because the recording ended inside it.
    - overtaken: work of an earlier step was still running when all work of this step had ended.

    Attributes:
        name: Name of the step.
        reason: Why it is dropped.
        work: Pieces of device work, or of operators if nothing runs on a device.
        before: Those of the previous step.
    """

    name: str
    reason: DropReason
    work: Count
    before: Count | None


class CategorySpans(msgspec.Struct, frozen=True):
    """Events by category and by whether they ran on a device.

    Attributes:
        rows: Rows of events.
        groups: Groups of these rows.
        keys: Category and on_device of each group.
        spans: Disjoint intervals in which events of each group ran.
    """

    rows: Rows
    groups: Groups
    keys: list[tuple[Category, bool]]
    spans: list[Ints]


class StepWindows(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a trace.

    Attributes:
        names: (n,) names.
        start: (n,) ns, ascending.
        end: (n,) ns; steps of one thread do not overlap.
        index: (n,) index in trace.steps, -1 for none.
        host_spans: (n, 2) ns in which the host issued the steps' work.
        phases: (n,) phase of a server step, `None` for other steps.
        dropped: Steps that are left out.
    """

    names: tuple[str, ...]
    start: Ints
    end: Ints
    index: Ints
    host_spans: Ints
    phases: tuple[Phase | None, ...]
    dropped: tuple[DroppedStep, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def select_step(self, name: str) -> StepWindows:
        """Return the windows with the step of that name only; empty if it was dropped."""
        return self._select([i for i, step_name in enumerate(self.names) if step_name == name])

    def drop(self, reasons: Mapping[int, DropReason], work: Ints) -> StepWindows:
        """Return the windows without some steps.

        Args:
            reasons: Reason by index of the step.
            work: (n,) pieces of work of each step.
        """
        dropped = tuple(
            DroppedStep(self.names[i], reasons[i], int(work[i]), int(work[i - 1]) if i else None)
            for i in sorted(reasons)
        )
        return replace(self._select([i for i in range(len(self)) if i not in reasons]), dropped=dropped)

    def _select(self, indices: list[int]) -> StepWindows:
        """Return the windows with some steps only."""
        return self.select_rows(np.array(indices, np.int64))

    def select_rows(self, rows: Ints) -> StepWindows:
        """Return the windows with some steps only, given by their positions (m,)."""
        indices: list[int] = rows.tolist()
        names = tuple(self.names[i] for i in indices)
        phases: tuple[Phase | None, ...] = tuple(self.phases[i] for i in indices)
        return StepWindows(
            names=names,
            start=self.start[rows],
            end=self.end[rows],
            index=self.index[rows],
            host_spans=self.host_spans[rows],
            phases=phases,
        )

    def select_phase(self, phase: Phase | None) -> StepWindows:
        """Return the windows with the steps of a phase only."""
        return self._select([i for i, step_phase in enumerate(self.phases) if step_phase == phase])

    def main_phase(self) -> tuple[Phase | None, Mask]:
        """Return the phase that takes most of the time, and which steps (n,) belong to it.

        Means over steps of several phases are not meaningful. Without phases, all steps belong to
        it.
        """
        if not len(self):
            return None, np.zeros(0, bool)
        phases = list(dict.fromkeys(self.phases))
        phase_ids = np.array([phases.index(phase) for phase in self.phases], np.int64)
        longest = int(np.bincount(phase_ids, self.end - self.start).argmax())
        return phases[longest], phase_ids == longest

    def positions(self, trace: Trace, rows: Rows) -> Ints:
        """Return the position of each event's step among these steps, -1 for none.

        0 in a trace without annotated steps.
        """
        if not len(trace.steps):
            return np.zeros(len(rows), np.int64)
        position = np.full(len(trace.steps) + 1, -1)
        position[self.index] = np.arange(len(self))
        return position[trace.events.step[rows]]

    def split_spans(self, spans: Ints) -> tuple[Ints, Ints]:
        """Return the parts of disjoint intervals that are inside host spans, and the step of each.

        Intervals are split at the ends of the host spans.
        """
        pieces = split_at(spans, self.host_spans)
        position = self.positions_at(pieces[:, 0])
        return pieces[position >= 0], position[position >= 0]

    def positions_at(self, ts: Ints) -> Ints:
        """Return the position of the step whose host span contains each time, -1 for none."""
        if not len(self):
            return np.full(len(ts), -1)
        position = np.searchsorted(self.host_spans[:, 0], ts, side="right") - 1
        return np.where((position >= 0) & (ts < self.host_spans[position, 1]), position, -1)


@cached_on_trace
def step_windows(trace: Trace) -> StepWindows:
    """Return the steps, each from its annotation to the end of the last device work that it issued.

    A step begins when the device work of the previous steps has ended, including work launched
    before the recording. So all steps together last as long as the work did. Incomplete steps are
    dropped. A trace without steps is one step. Source: torch-tb-profiler, docs/views/overview.md#steps.
    """
    if len(trace.steps) == 0:
        return _whole_trace_step(trace)
    annotations = np.stack((trace.steps.ts, trace.steps.ts + trace.steps.dur), axis=1)
    work_of_steps = step_work(trace)
    rows = work_of_steps.rows
    start, end = step_extents(work_of_steps, annotations, trace.events.ts[rows], trace.events.end[rows])
    names = tuple(trace.strings[int(i)] for i in trace.steps.name)
    step_of_work = trace.events.step[is_device_work(trace)]
    work = np.bincount(step_of_work[step_of_work >= 0], minlength=len(names))
    on_device = bool(work.any())
    work = work if on_device else _operator_counts(trace)
    overtaken: list[int] = np.flatnonzero((start == end) & (annotations[:, 1] > annotations[:, 0])).tolist()
    reasons: dict[int, DropReason] = dict.fromkeys(overtaken, "overtaken")
    loads = step_loads(trace) or [None] * len(names)
    phases: tuple[Phase | None, ...] = tuple(load.phase if load else None for load in loads)
    windows = StepWindows(
        names=names, start=start, end=end, index=np.arange(len(names)), host_spans=annotations, phases=phases
    )
    return windows.drop(reasons | _incomplete(work, on_device, phases), work)


def step_indices(trace: Trace, name: str) -> Ints:
    """Return the indices in trace.steps of the steps of a name, which several have if counting starts again.

    Raises:
        BadParameter: There is no such step.
    """
    names = [trace.strings[int(i)] for i in trace.steps.name]
    if name not in names:
        raise BadParameter(
            msg("views.there_no_step", f"there is no step {name!r}"),
            msg("views.steps", f"steps: {', '.join(names[:20])}")
            if names
            else msg("views.trace_no_steps", "this trace has no steps"),
        )
    return np.array([i for i, step_name in enumerate(names) if step_name == name], np.int64)


def is_in_step(trace: Trace, name: str) -> Mask:
    """Return, per event, whether it belongs to a step of that name; all events do if the name is empty."""
    if not name:
        return np.ones(len(trace.events), bool)
    return np.isin(trace.events.step, step_indices(trace, name))


def category_spans(trace: Trace, chosen: Mask) -> CategorySpans:
    """Return some of the events by category, separately for devices and threads."""
    events = trace.events
    rows = np.flatnonzero(chosen & (events.dur >= 0) & ~trace.projected_mask())
    key = (events.category * np.uint8(2) + trace.track_mask(TrackKind.STREAM))[rows]
    groups = group(key)
    category_pairs: list[tuple[int, int]] = [divmod(number, 2) for number in key[groups.first].tolist()]
    keys = [(Category(category), side > 0) for category, side in category_pairs]
    return CategorySpans(rows, groups, keys, unions_by_group(groups, events.ts[rows], events.end[rows]))


class DeviceKernels(msgspec.Struct, frozen=True):
    """The kernels of a device.

    Attributes:
        rows: (n,) kernels with a duration.
        spans: Disjoint intervals in which at least one kernel ran.
        uses_tensor_core: (n,) whether the kernel uses tensor cores, by its name.
        is_unknown: (n,) whether the name does not say if the kernel uses tensor cores.
    """

    rows: Rows
    spans: Ints
    uses_tensor_core: Mask
    is_unknown: Mask


@cached_on_trace
def device_kernels(trace: Trace) -> dict[int, DeviceKernels]:
    """Return the kernels of each device that has any, in the order of the devices."""
    events = trace.events
    rows = np.flatnonzero(is_kernel(trace) & (events.dur > 0))
    device = np.array([track.device for track in trace.tracks] or [0])[events.track[rows]]
    groups = group(device)
    is_tensor_core, is_unknown = tensor_core_masks(trace, events.name[rows])
    spans = unions_by_group(groups, events.ts[rows], events.end[rows])
    kernels_by_group = [
        DeviceKernels(rows[members], busy, is_tensor_core[members], is_unknown[members])
        for members, busy in zip(groups.members(), spans, strict=True)
    ]
    return dict(zip(device[groups.first].tolist(), kernels_by_group, strict=True))


def _whole_trace_step(trace: Trace) -> StepWindows:
    """Return one step over all work of the host and the devices; of the host only if no launch connects the two."""
    events = trace.events
    rows = host = np.flatnonzero(trace.track_mask(TrackKind.THREAD) & events.category_mask(*HOST_WORK))
    if not len(host) or (trace.links.kind == LinkKind.LAUNCH).any():
        rows = np.concatenate((host, np.flatnonzero(is_device_work(trace))))
    if not len(rows):
        empty = np.zeros(0, np.int64)
        spans = np.zeros((0, 2), np.int64)
        return StepWindows(names=(), start=empty, end=empty, index=empty, host_spans=spans, phases=())
    start, end = events.ts[rows].min(keepdims=True), events.end[rows].max(keepdims=True)
    spans = np.stack((start, end), axis=1)
    return StepWindows(names=("0",), start=start, end=end, index=np.array([-1]), host_spans=spans, phases=(None,))


def _operator_counts(trace: Trace) -> Ints:
    """Return the number of operators of each step, excluding data loading."""
    events = trace.events
    rows = np.flatnonzero(is_operator(trace) & (events.step >= 0)).astype(np.int32)
    rows = rows[nearest_ancestor(events.parent, events.category == Category.DATALOADER, rows) < 0]
    return np.bincount(events.step[rows], minlength=len(trace.steps))


def _incomplete(work: Ints, on_device: bool, phases: tuple[Phase | None, ...]) -> dict[int, DropReason]:
    """Return the trailing steps without work, and the last step with work if it has clearly too little.

    A decode step has less work than the prefill before it, so only steps of one phase are compared.
    When a profiler stops, a device may not have finished the work of a step; host operators are not
    cut off.
    """
    with_work = np.flatnonzero(work)
    if not len(with_work):
        return {}
    last = int(with_work[-1])
    reasons: dict[int, DropReason] = dict.fromkeys(range(last + 1, len(work)), "empty")
    same_phase = last > 0 and phases[last] == phases[last - 1]
    if on_device and same_phase and work[last] < MIN_COMPLETE_SHARE * work[last - 1]:
        reasons[last] = "incomplete"
    return reasons
