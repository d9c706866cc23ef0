"""What a rule looks at, and what it says: the typical steps, and where the evidence is. The rules: views/rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ints, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import innermost_at, nearest_ancestor
from visualprof.reader.trace.serving import Engine
from visualprof.views.measure.devices import DeviceSummary, device_summaries
from visualprof.views.measure.groups import distinct, group
from visualprof.views.measure.intervals import covered_ns, intersect, union
from visualprof.views.measure.launch import Launches, is_kernel, is_operator, launches
from visualprof.views.measure.serving_steps import ServingSteps, serving_steps
from visualprof.views.measure.stages import find_stages
from visualprof.views.measure.steps import (
    StepWindows,
    breakdown,
    category_spans,
    device_kernels,
    exposed_spans,
    step_windows,
)

Severity = Literal["high", "medium", "low"]
Confidence = Literal["high", "medium", "low"]
COLD_STEP_FACTOR = 1.5  # a first step that takes over this many medians of the others also warms up
MIN_TYPICAL_WORK = 0.5  # a step that does less than this share of the median step's work is none to judge by
MAX_NAMED_KERNELS = 10  # kernels that a change names at most
MAX_CALLEE_SHARE = 0.2  # of a function's time in what it calls, up to which it can be taken away alone
MAX_BURST_LAUNCHES = 50  # launches that the timeline shows of many


class Extent(msgspec.Struct, frozen=True):
    """Where the evidence of a finding is. start, end: ns. track: -1 for any."""

    start: int
    end: int
    track: int = -1


class Detection(msgspec.Struct, frozen=True):
    """What a rule has seen in a recording.

    evidence: the measured numbers. link: the page with more of them. most_ns: time of the typical step that the cause
    takes, more than which no remedy saves; None where no time tells. change: what a remedy does, as whatif has it, ""
    where no replay can tell. severity: where no time tells.
    """

    evidence: Mapping[str, int | float | str]
    link: str
    extent: Extent | None = None
    max_gain_ns: float | None = None
    change: str = ""
    severity: Severity = "low"


class Rule(msgspec.Struct, frozen=True):
    """One rule, called as its file.

    look: what it sees. confidence: how sure it is that the cause is the one that it names and the remedy does what the
    change says: high, both are seen; medium, the remedy's effect is assumed; low, a sign that may have other causes.
    code: the remedy in code, by framework; server: of an inference server, by engine. training: what it sees is no
    fault of a server; where one marks its steps it says nothing.
    """

    detect: Callable[[RuleContext], Iterator[Detection]]
    confidence: Confidence
    code: Mapping[str, str] = {}
    server_code: Mapping[Engine, str] = {}
    training_only: bool = False


class RuleContext:
    """What the rules look at."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.windows: StepWindows = step_windows(trace)

    @cached_property
    def server(self) -> ServingSteps | None:
        """The steps of an inference server, or of a loop that generates and learns nothing."""
        found = serving_steps(self.trace)
        marked = found is not None and found.source == "annotations"
        return found if marked or "backward" not in find_stages(self.trace) else None

    def applies(self, rule: Rule) -> bool:
        """Is what a rule looks for none of an inference server's own ways?"""
        return not (rule.training_only and self.server is not None and self.server.source == "annotations")

    def code(self, rule: Rule) -> str:
        """The remedy of a rule in code, "" for none."""
        if self.server is None:
            return rule.code.get(self.trace.meta.framework, "")
        return rule.server_code.get(self.server.engine, "") if self.server.engine else ""

    @cached_property
    def exposed(self) -> dict[str, Ints]:
        """Disjoint intervals of each part of the steps but other, whether in a step or not."""
        return exposed_spans(category_spans(self.trace, np.ones(len(self.trace.events), bool)))

    @cached_property
    def part_ns(self) -> dict[str, Ints]:
        """(n steps,) ns of each part, and of the whole as `total`."""
        return {"total": self.windows.end - self.windows.start, **breakdown(self.exposed, self.windows)}

    @cached_property
    def devices(self) -> list[DeviceSummary]:
        """The devices that ran a kernel."""
        return device_summaries(self.trace, self.windows)

    @cached_property
    def launches(self) -> Launches:
        """Device work and what launched it."""
        return launches(self.trace)

    @cached_property
    def is_typical(self) -> Mask:
        """The steps to judge by: those that do the work of most of them, less a cold first one.

        Of a server's steps those of the phase that most of the time goes to.
        """
        work, alike = _work(self.trace, self.windows), self.windows.main_phase()[1]
        like = alike & (work >= MIN_TYPICAL_WORK * np.median(work[alike])) if len(work) else np.zeros(0, bool)
        total, chosen = self.part_ns["total"], np.flatnonzero(like)
        if len(chosen) > 1 and total[chosen[0]] > COLD_STEP_FACTOR * np.median(total[chosen[1:]]):
            like[chosen[0]] = False
        return like

    @cached_property
    def typical_spans(self) -> Ints:
        """The time of these steps, disjoint (m, 2) ns."""
        return np.stack((self.windows.start, self.windows.end), axis=1)[self.is_typical]

    @cached_property
    def step_ns(self) -> float:
        """Time of the median step."""
        return self.part_time("total")

    def median(self, values: Ints) -> float:
        """Median of a number of each step (n,) over the typical ones."""
        return float(np.median(values[self.is_typical])) if self.is_typical.any() else 0.0

    def covered_ns(self, spans: Ints) -> float:
        """Time of the median step that disjoint intervals cover."""
        return self.median(covered_ns(spans, self.windows.start, self.windows.end))

    def part_time(self, *parts: str) -> float:
        """Time of the median step that some parts fill."""
        return self.median(np.sum([self.part_ns[part] for part in parts], axis=0))

    def share(self, spent: float) -> float:
        """A time as share of the median step."""
        return spent / self.step_ns if self.step_ns else 0.0

    def idle_ns(self, device: int) -> float:
        """Time of the median step in which a device runs no kernel."""
        return self.step_ns - self.covered_ns(device_kernels(self.trace)[device].spans)

    def in_typical_steps(self, rows: Rows) -> Rows:
        """Those of some events that begin in a typical step."""
        place = np.searchsorted(self.typical_spans[:, 0], self.trace.events.ts[rows], side="right") - 1
        ends = np.append(self.typical_spans[:, 1], 0)
        return rows[(place >= 0) & (self.trace.events.ts[rows] < ends[place])]

    def count_per_step(self, rows: Rows) -> float:
        """How many of some events a typical step has on average."""
        return len(self.in_typical_steps(rows)) / max(len(self.typical_spans), 1)

    def longest_extent(self, spans: Ints, rows: Rows) -> Extent | None:
        """The longest of some disjoint intervals inside the typical steps, on the track of most of these events."""
        inside = intersect(spans, self.typical_spans)
        if not len(inside):
            return None
        start, end = inside[np.argmax(inside[:, 1] - inside[:, 0])]
        return extent_with_track(self.trace, int(start), int(end), rows)

    def event_spans(self, rows: Rows) -> Ints:
        """Disjoint intervals of some events."""
        return union(self.trace.events.ts[rows], self.trace.events.end[rows])

    def events_of(self, *categories: Category) -> Rows:
        """The events of some categories, their device's annotations aside."""
        chosen = self.trace.events.category_mask(*categories)
        return np.flatnonzero(chosen & ~self.trace.projected_mask())

    def has_gpu_kernels(self) -> bool:
        """Are there kernels of a device, and do we see kernels rather than operators?"""
        return bool(self.devices) and self.trace.meta.device_work == "kernel"

    def event_name(self, row: int) -> str:
        """What an event is called."""
        return self.trace.strings[int(self.trace.events.name[row])]


def _work(trace: Trace, windows: StepWindows) -> Ints:
    """Kernels and operators of each step, those of data loading aside."""
    if (windows.index < 0).any():
        return np.ones(len(windows), np.int64)
    events = trace.events
    rows = np.flatnonzero((is_operator(trace) | is_kernel(trace)) & (events.step >= 0)).astype(np.int32)
    rows = rows[nearest_ancestor(events.parent, events.category == Category.DATALOADER, rows) < 0]
    return np.bincount(events.step[rows], minlength=len(trace.steps))[windows.index]


def extent_with_track(trace: Trace, start: int, end: int, rows: Rows) -> Extent:
    """A stretch of time on the track with most of some events in it, or with most of them where none is in it."""
    events = trace.events
    inside = np.minimum(events.end[rows], end) - np.maximum(events.ts[rows], start)
    weight = np.maximum(inside if (inside > 0).any() else events.dur[rows], 0)
    return Extent(start, end, int(np.bincount(events.track[rows], weight).argmax()) if len(rows) else -1)


def longest_event(trace: Trace, rows: Rows) -> Extent | None:
    """The longest of some events."""
    if not len(rows):
        return None
    row = int(rows[np.argmax(trace.events.dur[rows])])
    return Extent(int(trace.events.ts[row]), int(trace.events.end[row]), int(trace.events.track[row]))


def densest_burst(trace: Trace, rows: Rows) -> Extent:
    """The least time in which BURST of some events follow each other."""
    order = rows[np.argsort(trace.events.ts[rows], kind="stable")]
    count = min(MAX_BURST_LAUNCHES, len(order))
    first = int(np.argmin(trace.events.ts[order[count - 1 :]] - trace.events.ts[order[: len(order) - count + 1]]))
    burst = order[first : first + count]
    return extent_with_track(trace, int(trace.events.ts[burst[0]]), int(trace.events.end[burst].max()), burst)


def dominant_function(trace: Trace, gaps: Ints) -> str:
    """The Python function that fills most of some time, told by the middle of each gap on the busiest thread."""
    events = trace.events
    python = (events.category == Category.PYTHON) & trace.track_mask(TrackKind.THREAD)
    if not python.any() or not len(gaps):
        return ""
    track = trace.tracks[int(np.bincount(events.track[python]).argmax())]
    first, last = track.first, track.first + track.count
    middle = gaps[:, 0] + (gaps[:, 1] - gaps[:, 0]) // 2
    inner = innermost_at(events.ts, events.end, events.parent, first, last, middle)
    row = nearest_ancestor(events.parent, python, inner)
    at = np.flatnonzero(row >= 0)
    if not len(at):
        return ""
    groups = group(events.name[row[at]])
    longest = int(groups.first[groups.sum((gaps[:, 1] - gaps[:, 0])[at]).argmax()])
    return trace.strings[int(events.name[row[at[longest]]])]


def removal_change(trace: Trace, name: str) -> str:
    """The change that takes away what threads do under a name, "" where most of its time is that of what it calls."""
    events = trace.events
    if not name or set("];") & set(name):
        return ""
    rows = np.flatnonzero((events.name == trace.strings.index(name)) & trace.track_mask(TrackKind.THREAD))
    own = np.zeros(len(events), bool)
    own[rows] = True
    inner = np.flatnonzero((events.dur > 0) & ~own & trace.track_mask(TrackKind.THREAD)).astype(np.int32)
    inner = inner[nearest_ancestor(events.parent, own, inner) >= 0]
    total, called = union(events.ts[rows], events.end[rows]), union(events.ts[inner], events.end[inner])
    spent = int((total[:, 1] - total[:, 0]).sum())
    return f"host[{name}]=0" if int((called[:, 1] - called[:, 0]).sum()) <= MAX_CALLEE_SHARE * spent else ""


def speedup_change(names: Iterable[str], factor: float) -> str:
    """The change of the first NAMED kernels of some names; those with a bracket or a semicolon cannot be written."""
    written = [name for name in names if not set("];") & set(name)]
    return "; ".join(f"kernel[{name}]*{factor:.3g}" for name in written[:MAX_NAMED_KERNELS])


def time_by_name(trace: Trace, rows: Rows) -> dict[str, float]:
    """Summed time of some events by name, the longest first."""
    spent = np.bincount(trace.events.name[rows], np.maximum(trace.events.dur[rows], 0), len(trace.strings))
    names = distinct(trace.events.name[rows])
    order: list[int] = names[np.argsort(-spent[names], kind="stable")].tolist()
    return {trace.strings[i]: float(spent[i]) for i in order}
