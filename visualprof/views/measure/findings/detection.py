"""The input and output of the rules for findings: typical steps, evidence, and extents. The rules: views/rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Literal, Protocol

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ints, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import innermost_at, nearest_ancestor
from visualprof.reader.trace.serving import Engine
from visualprof.views.measure.columns.groups import distinct, group
from visualprof.views.measure.columns.intervals import covered_ns, intersect, union
from visualprof.views.measure.devices.utilization import DeviceSummary, device_summaries
from visualprof.views.measure.launches.launch import Launches, launches
from visualprof.views.measure.steps.parts import step_breakdown, step_parts
from visualprof.views.measure.steps.serving_steps import ServingSteps, serving_steps
from visualprof.views.measure.steps.stages import find_stages, unknown_stages
from visualprof.views.measure.steps.step_time import typical_steps
from visualprof.views.measure.steps.windows import StepWindows, device_kernels, step_windows

Severity = Literal["high", "medium", "low"]
Confidence = Literal["high", "medium", "low"]
MAX_NAMED_KERNELS = 10  # per change
MAX_CALLEE_SHARE = 0.2  # a function with a larger share of its time in callees cannot be removed alone
MAX_BURST_LAUNCHES = 50  # launches in the extent that the timeline shows


class Extent(msgspec.Struct, frozen=True):
    """Location of the evidence of a finding on the timeline.

    Attributes:
        start: ns.
        end: ns.
        track: -1 for any track.
    """

    start: int
    end: int
    track: int = -1


class Detection(msgspec.Struct, frozen=True):
    """A problem that a rule detected in a recording.

    Attributes:
        evidence: The measured numbers.
        link: The page with more details.
        extent: Where the evidence is.
        max_gain_ns: Time of the typical step that the cause takes, an upper bound of the savings;
            `None` if unknown.
        change: The effect of the remedy as a change for `whatif`; "" if it cannot be replayed.
        severity: Severity if there is no time to derive it from.
        code: The remedy in code by framework, if it differs from that of the rule.
        variant: Name of the text, if what is seen calls for other advice than the usual.
    """

    evidence: Mapping[str, int | float | str]
    link: str
    extent: Extent | None = None
    max_gain_ns: float | None = None
    change: str = ""
    severity: Severity = "low"
    code: Mapping[str, str] = {}
    variant: str = ""


class Rule(msgspec.Struct, frozen=True):
    """One rule, named after its file.

    Attributes:
        detect: Yields what the rule detects.
        confidence: How certain the cause and the effect of the remedy are. high: both are measured;
            medium: the effect is assumed; low: the evidence may have other causes.
        code: The remedy in code, by framework.
        server_code: The remedy for an inference server, by engine.
        training_only: The rule does not apply to recordings of inference servers with annotated
            steps.
    """

    detect: Callable[[RuleContext], Iterator[Detection]]
    confidence: Confidence
    code: Mapping[str, str] = {}
    server_code: Mapping[Engine, str] = {}
    training_only: bool = False


class Remedy(Protocol):
    """Something that has a remedy in code."""

    @property
    def code(self) -> Mapping[str, str]:
        """The remedy by framework."""
        ...

    @property
    def server_code(self) -> Mapping[Engine, str]:
        """The remedy for an inference server, by engine."""
        ...


class RuleContext:
    """A recording and what the rules need to know about it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.windows: StepWindows = step_windows(trace)

    @cached_property
    def server(self) -> ServingSteps | None:
        """Return the steps of an inference server, or of a generating loop without a backward pass.

        `None` for other programs.
        """
        steps = serving_steps(self.trace)
        is_annotated = steps is not None and steps.source == "annotations"
        stages = {*find_stages(self.trace), *unknown_stages(self.trace)}
        return steps if is_annotated or "backward" not in stages else None

    def applies(self, rule: Rule) -> bool:
        """Return whether the rule applies to this recording; training-only rules do not apply to inference servers."""
        return not (rule.training_only and self.server is not None and self.server.source == "annotations")

    def code(self, remedy: Remedy, special: Mapping[str, str] = {}) -> str:
        """Return the remedy of a rule or a lever in code, "" for none.

        Args:
            remedy: The rule or lever.
            special: The remedy for this recording by framework, where it differs.
        """
        if self.server is None:
            return {**remedy.code, **special}.get(self.trace.meta.framework, "")
        return remedy.server_code.get(self.server.engine, "") if self.server.engine else ""

    @cached_property
    def exposed(self) -> dict[str, Ints]:
        """Return the disjoint intervals of each step part except `other`, inside and outside of steps."""
        return step_parts(self.trace)

    @cached_property
    def part_ns(self) -> dict[str, Ints]:
        """Return the time (n steps,) in ns of each step part, and of the whole step as `total`."""
        return {"total": self.windows.end - self.windows.start, **step_breakdown(self.trace, self.windows)}

    @cached_property
    def devices(self) -> list[DeviceSummary]:
        """Return the devices that ran a kernel."""
        return device_summaries(self.trace, self.windows)

    @cached_property
    def launches(self) -> Launches:
        """Return device work and what launched it."""
        return launches(self.trace)

    @cached_property
    def is_typical(self) -> Mask:
        """Return, per step, whether it is typical."""
        return typical_steps(self.trace)

    @cached_property
    def typical_spans(self) -> Ints:
        """Return the times of the typical steps, disjoint (m, 2) ns."""
        return np.stack((self.windows.start, self.windows.end), axis=1)[self.is_typical]

    @cached_property
    def step_ns(self) -> float:
        """Return the time of the median step."""
        return self.part_time("total")

    def median(self, values: Ints) -> float:
        """Return the median of a value per step (n,) over the typical steps."""
        return float(np.median(values[self.is_typical])) if self.is_typical.any() else 0.0

    def covered_ns(self, spans: Ints) -> float:
        """Return the time of the median step that disjoint intervals cover."""
        return self.median(covered_ns(spans, self.windows.start, self.windows.end))

    def part_time(self, *parts: str) -> float:
        """Return the time of the median step in some step parts."""
        return self.median(np.sum([self.part_ns[part] for part in parts], axis=0))

    def share(self, time_ns: float) -> float:
        """Return a time as a share of the median step."""
        return time_ns / self.step_ns if self.step_ns else 0.0

    def idle_ns(self, device: int) -> float:
        """Return the time of the median step in which a device runs no kernel."""
        return self.step_ns - self.covered_ns(device_kernels(self.trace)[device].spans)

    def in_typical_steps(self, rows: Rows) -> Rows:
        """Return the rows of events that begin in a typical step."""
        position = np.searchsorted(self.typical_spans[:, 0], self.trace.events.ts[rows], side="right") - 1
        ends = np.append(self.typical_spans[:, 1], 0)
        return rows[(position >= 0) & (self.trace.events.ts[rows] < ends[position])]

    def count_per_step(self, rows: Rows) -> float:
        """Return the mean number of some events per typical step."""
        return len(self.in_typical_steps(rows)) / max(len(self.typical_spans), 1)

    def longest_extent(self, spans: Ints, rows: Rows) -> Extent | None:
        """Return the longest of some intervals inside the typical steps, on the track of most of the events."""
        typical = intersect(spans, self.typical_spans)
        if not len(typical):
            return None
        start, end = typical[np.argmax(typical[:, 1] - typical[:, 0])]
        return extent_with_track(self.trace, int(start), int(end), rows)

    def event_spans(self, rows: Rows) -> Ints:
        """Return the disjoint intervals of some events."""
        return union(self.trace.events.ts[rows], self.trace.events.end[rows])

    def events_of(self, *categories: Category) -> Rows:
        """Return the events of some categories, without annotations that are projected onto devices."""
        is_category = self.trace.events.category_mask(*categories)
        return np.flatnonzero(is_category & ~self.trace.projected_mask())

    def has_gpu_kernels(self) -> bool:
        """Return whether the recording has kernels of a device, rather than operators only."""
        return bool(self.devices) and self.trace.meta.device_work == "kernel"

    def event_name(self, row: int) -> str:
        """Return the name of an event."""
        return self.trace.strings[int(self.trace.events.name[row])]


def extent_with_track(trace: Trace, start: int, end: int, rows: Rows) -> Extent:
    """Return an extent on the track where the events take most time in it.

    If none is in it, where they take most time.
    """
    events = trace.events
    overlap = np.minimum(events.end[rows], end) - np.maximum(events.ts[rows], start)
    weight = np.maximum(overlap if (overlap > 0).any() else events.dur[rows], 0)
    return Extent(start, end, int(np.bincount(events.track[rows], weight).argmax()) if len(rows) else -1)


def longest_event(trace: Trace, rows: Rows) -> Extent | None:
    """Return the extent of the longest of some events."""
    if not len(rows):
        return None
    row = int(rows[np.argmax(trace.events.dur[rows])])
    return Extent(int(trace.events.ts[row]), int(trace.events.end[row]), int(trace.events.track[row]))


def densest_burst(trace: Trace, rows: Rows) -> Extent:
    """Return the shortest extent in which `MAX_BURST_LAUNCHES` of some events follow each other."""
    order = rows[np.argsort(trace.events.ts[rows], kind="stable")]
    count = min(MAX_BURST_LAUNCHES, len(order))
    first = int(np.argmin(trace.events.ts[order[count - 1 :]] - trace.events.ts[order[: len(order) - count + 1]]))
    burst = order[first : first + count]
    return extent_with_track(trace, int(trace.events.ts[burst[0]]), int(trace.events.end[burst].max()), burst)


def dominant_function(trace: Trace, gaps: Ints) -> str:
    """Return the Python function that fills most of some gaps on the busiest Python thread.

    The middle of each gap decides which function fills it.
    """
    events = trace.events
    is_python = (events.category == Category.PYTHON) & trace.track_mask(TrackKind.THREAD)
    if not is_python.any() or not len(gaps):
        return ""
    track = trace.tracks[int(np.bincount(events.track[is_python]).argmax())]
    first, last = track.first, track.first + track.count
    middle = gaps[:, 0] + (gaps[:, 1] - gaps[:, 0]) // 2
    innermost = innermost_at(events.ts, events.end, events.parent, first, last, middle)
    row = nearest_ancestor(events.parent, is_python, innermost)
    with_function = np.flatnonzero(row >= 0)
    if not len(with_function):
        return ""
    groups = group(events.name[row[with_function]])
    longest = int(groups.first[groups.sum((gaps[:, 1] - gaps[:, 0])[with_function]).argmax()])
    return trace.strings[int(events.name[row[with_function[longest]]])]


def removal_change(trace: Trace, name: str) -> str:
    """Return the change that removes what threads do under a name; "" if its callees take most of its time."""
    events = trace.events
    if not name or set("];") & set(name):
        return ""
    rows = np.flatnonzero((events.name == trace.strings.index(name)) & trace.track_mask(TrackKind.THREAD))
    is_named = np.zeros(len(events), bool)
    is_named[rows] = True
    callees = np.flatnonzero((events.dur > 0) & ~is_named & trace.track_mask(TrackKind.THREAD)).astype(np.int32)
    callees = callees[nearest_ancestor(events.parent, is_named, callees) >= 0]
    named_spans, callee_spans = union(events.ts[rows], events.end[rows]), union(events.ts[callees], events.end[callees])
    named_ns = int((named_spans[:, 1] - named_spans[:, 0]).sum())
    return (
        f"host[{name}]=0" if int((callee_spans[:, 1] - callee_spans[:, 0]).sum()) <= MAX_CALLEE_SHARE * named_ns else ""
    )


def speedup_change(names: Iterable[str], factor: float) -> str:
    """Return the change that speeds up the first `MAX_NAMED_KERNELS` kernels.

    Names that the syntax cannot express are left out.
    """
    expressible = [name for name in names if not set("];") & set(name)]
    return "; ".join(f"kernel[{name}]*{factor:.3g}" for name in expressible[:MAX_NAMED_KERNELS])


def time_by_name(trace: Trace, rows: Rows) -> dict[str, float]:
    """Return the summed time of some events by name, the longest first."""
    total_ns = np.bincount(trace.events.name[rows], np.maximum(trace.events.dur[rows], 0), len(trace.strings))
    name_ids = distinct(trace.events.name[rows])
    order: list[int] = name_ids[np.argsort(-total_ns[name_ids], kind="stable")].tolist()
    return {trace.strings[i]: float(total_ns[i]) for i in order}
