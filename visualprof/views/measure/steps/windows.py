"""Step windows and the work that fills them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Bytes, Category, Ints, LinkKind, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.reader.trace.serving import Phase
from visualprof.views.answers.kinds import Count
from visualprof.views.measure.columns.groups import Groups, group
from visualprof.views.measure.columns.intervals import covered_ns, merge, split_at, subtract, unions_by_group
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.device_work import (
    busy_devices,
    event_devices,
    main_work,
    only_launches_communication,
)
from visualprof.views.measure.launches.launch import device_calls, is_device_work, is_kernel, is_operator
from visualprof.views.measure.names.tensor_core import match_names, tensor_core_masks
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
STEP_PARTS = ("kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu", "other")
MIN_COMPLETE_SHARE = 0.8
PART_CATEGORIES = {  # step parts except other: categories, on a device (True) or on threads
    "kernel": ((Category.KERNEL, True),),
    "memcpy": ((Category.MEMCPY, True),),
    "memset": ((Category.MEMSET, True),),
    "communication": ((Category.COMM, True), (Category.COMM, False)),
    "runtime": ((Category.RUNTIME, False), (Category.SYNC, False)),
    "dataloader": ((Category.DATALOADER, False),),
    "cpu": ((Category.OP, False), (Category.OPTIMIZER, False)),
}
DISTANT_PAST = np.iinfo(np.int64).min
MIN_QUEUED_NS = 1_000_000  # longer than any launch takes
DEVICE_SYNC = pattern(r"^(?:(?:cuda|hip)DeviceSynchronize|cuCtxSynchronize)")
Number = TypeVar("Number", np.int64, np.float64)
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
        next_step=np.searchsorted(trace.steps.ts, issued),
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


def step_parts(trace: Trace, device: int | None = None, thread: int | None = None) -> dict[str, Ints]:
    """Return the disjoint intervals of each step part except `other` on one device.

    All time counts once, for the first part that covers it. The host, and copies of devices that do nothing else, count
    for every device. Of several devices, a host operator that only enqueues recorded kernels of a collective counts as
    an operator, any other as communication. Source: torch-tb-profiler's priorities.

    Args:
        trace: The trace.
        device: Number of the device (default: the main device of the process).
        thread: Track of a thread, to select the work of its steps (default: all work).
    """
    events, devices = trace.events, busy_devices(trace)
    chosen = (events.dur >= 0) & ~trace.projected_mask()
    if len(devices) > 1:
        number = main_work(trace).device if device is None else device
        others = [other for other in devices if other != number]
        chosen &= ~np.isin(event_devices(trace), others)
    if thread is not None:
        chosen &= np.append(trace.steps.track, -1)[events.step] == thread
    rows, key = np.flatnonzero(chosen), _part_keys(trace)
    groups = group(key[rows])
    unions = unions_by_group(groups, events.ts[rows], events.end[rows])
    by_key = dict(zip(key[rows[groups.first]].tolist(), unions, strict=True))
    counted = np.zeros((0, 2), np.int64)
    exposed: dict[str, Ints] = {}
    for name, keys in PART_CATEGORIES.items():
        numbers = (2 * category + on_device for category, on_device in keys)
        part_spans = merge(*(by_key[number] for number in numbers if number in by_key))
        exposed[name] = subtract(part_spans, counted)
        counted = merge(counted, part_spans)
    return exposed


def is_in_part(trace: Trace, part: str) -> Mask:
    """Return, per event, whether it counts for a step part, unless another part covers it."""
    is_member = np.isin(_part_keys(trace), [2 * category + on_device for category, on_device in PART_CATEGORIES[part]])
    return is_member & (trace.events.dur >= 0) & ~trace.projected_mask()


@cached_on_trace
def _part_keys(trace: Trace) -> Bytes:
    """Return, per event, twice the category for which it counts, plus 1 on a device."""
    key: Bytes = trace.events.category * np.uint8(2) + trace.track_mask(TrackKind.STREAM)
    key[only_launches_communication(trace)] = Category.OP * 2
    return key


def step_breakdown(trace: Trace, windows: StepWindows, device: int | None = None) -> dict[str, Ints]:
    """Return the time of each step by part, in ns; the arguments are those of `step_parts`.

    Of steps that several threads run at the same time, each contains only the work of its own thread.
    """
    if not are_concurrent(trace):
        return breakdown(step_parts(trace, device), windows)
    part_ns = {name: np.zeros(len(windows), np.int64) for name in STEP_PARTS}
    threads = trace.steps.track[windows.index]
    for thread in np.unique(threads):
        rows = np.flatnonzero(threads == thread)
        of_thread = breakdown(step_parts(trace, device, int(thread)), windows.select_rows(rows))
        for name, spent in of_thread.items():
            part_ns[name][rows] = spent
    return part_ns


def breakdown(parts: Mapping[str, Ints], windows: StepWindows) -> dict[str, Ints]:
    """Return the time of each step that the parts fill, in ns, and `other`, the remaining time."""
    part_ns = {name: covered_ns(spans, windows.start, windows.end) for name, spans in parts.items()}
    part_ns["other"] = (windows.end - windows.start) - sum(part_ns.values(), np.zeros(len(windows), np.int64))
    return part_ns


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
