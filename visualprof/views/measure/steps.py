"""Step windows and what fills them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Category, Ints, LinkKind, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.reader.trace.serving import Phase
from visualprof.views.answers.kinds import Count
from visualprof.views.measure.groups import Groups, group
from visualprof.views.measure.intervals import covered_ns, merge, split_at, subtract, unions_by_group
from visualprof.views.measure.launch import device_calls, is_device_work, is_kernel, is_operator
from visualprof.views.measure.serving_steps import step_loads
from visualprof.views.measure.tensor_core import match_names, uses_tensor_core
from visualprof.views.measure.trace_cache import cached_on_trace

HOST_WORK = (
    Category.OP, Category.RUNTIME, Category.COMM, Category.DATALOADER, Category.FORWARD, Category.BACKWARD,
    Category.OPTIMIZER, Category.ANNOTATION, Category.MODULE,
)  # fmt: skip
STEP_PARTS = ("kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu", "other")
MIN_COMPLETE_SHARE = 0.8
PART_CATEGORIES = {  # PARTS but other: categories, on a device (True) or on threads
    "kernel": ((Category.KERNEL, True),), "memcpy": ((Category.MEMCPY, True),), "memset": ((Category.MEMSET, True),),
    "communication": ((Category.COMM, True), (Category.COMM, False)),
    "runtime": ((Category.RUNTIME, False), (Category.SYNC, False)), "dataloader": ((Category.DATALOADER, False),),
    "cpu": ((Category.OP, False), (Category.OPTIMIZER, False)),
}  # fmt: skip
DISTANT_PAST = np.iinfo(np.int64).min
MIN_QUEUED_NS = 1_000_000  # in its queue: longer than any launch takes
DEVICE_SYNC = pattern(r"^(?:(?:cuda|hip)DeviceSynchronize|cuCtxSynchronize)")
DropReason = Literal["empty", "incomplete", "overtaken"]


class DroppedStep(msgspec.Struct, frozen=True):
    """A step that the recording marks and that no figure counts, with the reason.

    empty: it has no work, and nor has any step after it. incomplete: the last step with work, and it has less than
    80 % of that of the step before, as the recording ended inside it. overtaken: work of an earlier step was still
    running when all of its own had ended. work: pieces of device work, of operators where nothing runs on a device;
    before: those of the step before.
    """

    name: str
    reason: DropReason
    work: Count
    before: Count | None


class CategorySpans(msgspec.Struct, frozen=True):
    """Events by category and whether on a device. rows: of events, grouped. keys: of the groups.

    spans: disjoint intervals in which those of each group ran.
    """

    rows: Rows
    groups: Groups
    keys: list[tuple[Category, bool]]
    spans: list[Ints]


class StepWindows(msgspec.Struct, frozen=True):
    """Steps. start, end: (n,) ns, ascending, disjoint. asked: (n, 2) ns in which the host asked for their work.

    phases: of a server's steps, None of others. index: place of each in trace.steps, -1 for none. dropped: those that
    are left out.
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
        """The one step of that name; none where it was dropped."""
        return self._select([i for i, n in enumerate(self.names) if n == name])

    def drop(self, reasons: Mapping[int, DropReason], work: Ints) -> StepWindows:
        """The steps but for those at some places. work: (n,) pieces of work of each."""
        dropped = tuple(
            DroppedStep(self.names[i], reasons[i], int(work[i]), int(work[i - 1]) if i else None)
            for i in sorted(reasons)
        )
        return replace(self._select([i for i in range(len(self)) if i not in reasons]), dropped=dropped)

    def _select(self, places: list[int]) -> StepWindows:
        rows = np.array(places, np.int64)
        names = tuple(self.names[i] for i in places)
        phases: tuple[Phase | None, ...] = tuple(self.phases[i] for i in places)
        return StepWindows(names, self.start[rows], self.end[rows], self.index[rows], self.host_spans[rows], phases)

    def select_phase(self, phase: Phase | None) -> StepWindows:
        """The steps of that phase."""
        return self._select([i for i, own in enumerate(self.phases) if own == phase])

    def main_phase(self) -> tuple[Phase | None, Mask]:
        """The phase that most of the time goes to, and which of the steps (n,) are of it.

        Steps of several phases have no mean. Without phases all of them count.
        """
        if not len(self):
            return None, np.zeros(0, bool)
        phases = list(dict.fromkeys(self.phases))
        of = np.array([phases.index(phase) for phase in self.phases], np.int64)
        most = int(np.bincount(of, self.end - self.start).argmax())
        return phases[most], of == most

    def positions(self, trace: Trace, rows: Rows) -> Ints:
        """Place of the step of each event among these, -1 for none; the first of a trace without marks."""
        if not len(trace.steps):
            return np.zeros(len(rows), np.int64)
        place = np.full(len(trace.steps) + 1, -1)
        place[self.index] = np.arange(len(self))
        return place[trace.events.step[rows]]

    def split_spans(self, spans: Ints) -> tuple[Ints, Ints]:
        """What of disjoint intervals lies in the host sides of steps, cut at their ends; the step of each."""
        cut = split_at(spans, self.host_spans)
        place = self.positions_at(cut[:, 0])
        return cut[place >= 0], place[place >= 0]

    def positions_at(self, ts: Ints) -> Ints:
        """Place of the step whose host side holds each time, -1 for none."""
        if not len(self):
            return np.full(len(ts), -1)
        place = np.searchsorted(self.host_spans[:, 0], ts, side="right") - 1
        return np.where((place >= 0) & (ts < self.host_spans[place, 1]), place, -1)


@cached_on_trace
def step_windows(trace: Trace) -> StepWindows:
    """The steps, each from its mark to the end of the last device work that it asked for.

    A step begins when the device work of those before it has ended, of what was launched before the recording too, so
    that together they last as long as the work did. Incomplete ones are dropped. A trace without steps is one step.
    Source: torch-tb-profiler, docs/views.md#steps.
    """
    if len(trace.steps) == 0:
        return _single_step(trace)
    marks = np.stack((trace.steps.ts, trace.steps.ts + trace.steps.dur), axis=1)
    start, end = _extents(trace, marks)
    names = tuple(trace.strings[int(i)] for i in trace.steps.name)
    of_work = trace.events.step[is_device_work(trace)]
    work = np.bincount(of_work[of_work >= 0], minlength=len(names))
    on_device = bool(work.any())
    work = work if on_device else _operators(trace)
    hidden: list[int] = np.flatnonzero((start == end) & (marks[:, 1] > marks[:, 0])).tolist()
    reasons: dict[int, DropReason] = dict.fromkeys(hidden, "overtaken")
    loads = step_loads(trace) or [None] * len(names)
    phases: tuple[Phase | None, ...] = tuple(load.phase if load else None for load in loads)
    return StepWindows(names, start, end, np.arange(len(names)), marks, phases).drop(
        reasons | _incomplete(work, on_device, phases), work
    )


def _extents(trace: Trace, marks: Ints) -> tuple[Ints, Ints]:
    """Start and end of each step: from the end of all that was asked for before it to that of what it asked for."""
    work, _, issue = device_calls(trace)
    step, work_end = trace.events.step[work], trace.events.end[work]
    inside = step >= 0
    own = np.array(marks[:, 1])
    np.maximum.at(own, step[inside], work_end[inside])
    end = np.maximum.accumulate(own)
    # Work of no step is waited for by the first step after it was asked for, unless it runs beside that to its end.
    asked = np.where(issue >= 0, trace.events.ts[issue], DISTANT_PAST)[~inside]
    after, early = np.searchsorted(marks[:, 0], asked), work_end[~inside]
    awaited = (after < len(end)) & (early < np.append(end, DISTANT_PAST)[after])
    before = np.concatenate(([DISTANT_PAST], end[:-1]))
    np.maximum.at(before, after[awaited], early[awaited])
    before[0] = max(before[0], _unrecorded_until(trace, work, issue))
    return np.minimum(np.maximum(marks[:, 0], before), end), end


def _unrecorded_until(trace: Trace, work: Rows, issue: Rows) -> int:
    """When the devices had done what was asked for before the recording, of which this has nothing.

    So it is where the first work of all, one of the first step's, lay in its queue for longer than the recording had
    lasted: a server's step, cut out of others. Unless the host had waited for the device before.
    """
    if not len(work):
        return DISTANT_PAST
    events, first = trace.events, int(np.argmin(trace.events.ts[work]))
    row, call = int(work[first]), int(issue[first])
    if call < 0 or events.step[row] != 0:
        return DISTANT_PAST
    begins, queued = int(events.ts[row]), int(events.ts[row] - events.end[call])
    waits = match_names(trace, events.name, lambda name: bool(DEVICE_SYNC.match(name)))
    waited = bool((waits & (events.end <= begins)).any())
    recorded = int(events.ts[call]) - trace.span_ns[0]
    return DISTANT_PAST if waited or queued <= max(recorded, MIN_QUEUED_NS) else begins


def step_index(trace: Trace, name: str) -> int:
    """Place of a step in trace.steps by its name.

    Raises: BadParameter: there is no such step.
    """
    names = [trace.strings[int(i)] for i in trace.steps.name]
    if name not in names:
        raise BadParameter(
            msg("views.there_no_step", f"there is no step {name!r}"),
            msg("views.steps", f"steps: {', '.join(names[:20])}")
            if names
            else msg("views.trace_no_steps", "this trace has no steps"),
        )
    return names.index(name)


def is_in_step(trace: Trace, name: str) -> Mask:
    """Of each event: does it belong to the named step? Every event does when the name is empty."""
    if not name:
        return np.ones(len(trace.events), bool)
    return trace.events.step == step_index(trace, name)


def category_spans(trace: Trace, inside: Mask) -> CategorySpans:
    """Some of the events by category, those of devices and of threads apart."""
    events = trace.events
    rows = np.flatnonzero(inside & (events.dur >= 0) & ~trace.projected_mask())
    key = (events.category * np.uint8(2) + trace.track_mask(TrackKind.STREAM))[rows]
    groups = group(key)
    places: list[tuple[int, int]] = [divmod(k, 2) for k in key[groups.first].tolist()]
    keys = [(Category(category), side > 0) for category, side in places]
    return CategorySpans(rows, groups, keys, unions_by_group(groups, events.ts[rows], events.end[rows]))


def exposed_spans(ran: CategorySpans) -> dict[str, Ints]:
    """Disjoint intervals of each of PARTS but other: every instant counts once, for the first of them that covers it.

    Source: torch-tb-profiler's priorities; communication is both the host operators and the kernels of collectives.
    """
    spans = dict(zip(ran.keys, ran.spans, strict=True))
    done = np.zeros((0, 2), np.int64)
    out: dict[str, Ints] = {}
    for name, keys in PART_CATEGORIES.items():
        own = merge(*(spans[key] for key in keys if key in spans))
        out[name] = subtract(own, done)
        done = merge(done, own)
    return out


def breakdown(parts: Mapping[str, Ints], windows: StepWindows) -> dict[str, Ints]:
    """Nanoseconds of each step that the parts fill, and other, what they leave."""
    out = {name: covered_ns(spans, windows.start, windows.end) for name, spans in parts.items()}
    out["other"] = (windows.end - windows.start) - sum(out.values(), np.zeros(len(windows), np.int64))
    return out


class DeviceKernels(msgspec.Struct, frozen=True):
    """What ran on a device. spans: disjoint intervals in which at least one kernel ran.

    rows: (n,) kernels with a duration. tensor_core: (n,) does it use tensor cores, by its name?
    """

    rows: Rows
    spans: Ints
    uses_tensor_core: Mask


@cached_on_trace
def device_kernels(trace: Trace) -> dict[int, DeviceKernels]:
    """The kernels of each device that has any, in the order of the devices."""
    events = trace.events
    rows = np.flatnonzero(is_kernel(trace) & (events.dur > 0))
    device = np.array([t.device for t in trace.tracks] or [0])[events.track[rows]]
    groups = group(device)
    core = match_names(trace, events.name[rows], uses_tensor_core)
    spans = unions_by_group(groups, events.ts[rows], events.end[rows])
    found = [DeviceKernels(rows[of], own, core[of]) for of, own in zip(groups.members(), spans, strict=True)]
    return dict(zip(device[groups.first].tolist(), found, strict=True))


def _single_step(trace: Trace) -> StepWindows:
    """One step over all work of the host and of the devices; of the host alone where no launch joins the two."""
    events = trace.events
    rows = host = np.flatnonzero(trace.track_mask(TrackKind.THREAD) & events.category_mask(*HOST_WORK))
    if not len(host) or (trace.links.kind == LinkKind.LAUNCH).any():
        rows = np.concatenate((host, np.flatnonzero(is_device_work(trace))))
    if not len(rows):
        none = np.zeros(0, np.int64)
        return StepWindows((), none, none, none, np.zeros((0, 2), np.int64), ())
    start, end = events.ts[rows].min(keepdims=True), events.end[rows].max(keepdims=True)
    return StepWindows(("0",), start, end, np.array([-1]), np.stack((start, end), axis=1), (None,))


def _operators(trace: Trace) -> Ints:
    """Operators of each step, those of data loading aside."""
    events = trace.events
    rows = np.flatnonzero(is_operator(trace) & (events.step >= 0)).astype(np.int32)
    rows = rows[nearest_ancestor(events.parent, events.category == Category.DATALOADER, rows) < 0]
    return np.bincount(events.step[rows], minlength=len(trace.steps))


def _incomplete(work: Ints, on_device: bool, phases: tuple[Phase | None, ...]) -> dict[int, DropReason]:
    """Places of the steps at the end without work, and of the last one with work if it has clearly too little.

    A decode step has less work than the prefill before it: only steps of one phase compare. A profiler stops before a
    device has done all that a step asked it for; operators of the host it does not cut off.
    """
    with_work = np.flatnonzero(work)
    if not len(with_work):
        return {}
    last = int(with_work[-1])
    out: dict[int, DropReason] = dict.fromkeys(range(last + 1, len(work)), "empty")
    alike = last > 0 and phases[last] == phases[last - 1]
    if on_device and alike and work[last] < MIN_COMPLETE_SHARE * work[last - 1]:
        out[last] = "incomplete"
    return out
