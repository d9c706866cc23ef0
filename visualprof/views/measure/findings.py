"""What slows a run down, with the measured evidence and a bound of the gain; one function a rule.

Thresholds are torch-tb-profiler's where it has the rule. Texts are the page's; a finding carries numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Literal

import msgspec
import numpy as np

from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Category, Ints, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import innermost_at, nearest_ancestor
from visualprof.views.answers.kinds import Duration, Identifier, keyed
from visualprof.views.measure.devices import DeviceSummary
from visualprof.views.measure.groups import distinct
from visualprof.views.measure.intervals import covered, intersect, merge, subtract, union
from visualprof.views.measure.launch import Launches, is_kernel, is_operator
from visualprof.views.measure.once import once
from visualprof.views.measure.steps import Windows, kernels
from visualprof.views.measure.tensor_core import can_use_tensor_core, names_with

Severity = Literal["high", "medium", "low"]
HIGH: Severity = "high"
MEDIUM: Severity = "medium"
LOW: Severity = "low"
TENSOR_CORE_CAPABILITY = 7.0
TENSOR_CORE_SPEEDUP = 2.0  # what float16 or TF32 gives a product at least, on the devices that have them
COLD = 1.5  # a first step that takes over this many medians of the others also warms up
LIKE = 0.5  # a step that does less than this share of the median step's work is none to judge by
BUSY_PRESSURE = 0.1  # from this on a measurement counts as disturbed
PRESSURE_COUNTER = "CPU pressure %"  # as the monitor of a job names it
BURST = 50  # launches that the timeline shows of many

# The measured numbers of a finding, those of its rule.
Evidence = Annotated[
    Mapping[str, int | float | str],
    keyed(
        device="id", devices="count", calls="count", pageable_copies="count", utilization="ratio", occupancy="ratio",
        dataloader_ratio="ratio", communication_ratio="ratio", eligible_ratio="ratio", short_kernel_ratio="ratio",
        host_ratio="ratio", memcpy_ratio="ratio", outside_ratio="ratio", dataloader_ns="ns", communication_ns="ns",
        eligible_ns="ns", idle_ns="ns", host_ns="ns", outside_ns="ns", memcpy_ns="ns", kernel_mean_ns="ns",
        median_step_ns="ns", longest_step_ns="ns", peak_bytes="bytes", memory_bytes="bytes", cpu_pressure_ratio="ratio",
    ),
]  # fmt: skip


class Finding(msgspec.Struct, frozen=True):
    """Something worth changing; its text is in the page's locales under `finding.ID`.

    gain_ns_per_step: at most this much of the median step could be saved, None where it cannot be told.
    link: the page with the numbers behind it. start_ns, end_ns: where on the timeline it is seen, since the first
    event; None where it is seen nowhere. track: the row of the timeline on which it is seen best.
    """

    id: str
    severity: Severity
    gain_ns_per_step: Duration | None
    evidence: Evidence
    link: str
    start_ns: Duration | None = None
    end_ns: Duration | None = None
    track: Identifier | None = None


class Extent(msgspec.Struct, frozen=True):
    """Where the evidence of a finding is. start, end: ns. track: -1 for any."""

    start: int
    end: int
    track: int = -1


class Case(msgspec.Struct, frozen=True, dict=True):
    """What the rules look at.

    parts: (n steps,) ns of each part of the steps under PART_ns, and total_ns. exposed: disjoint intervals of the same
    parts, whether in a step or not.
    """

    trace: Trace
    windows: Windows
    parts: Mapping[str, Ints]
    exposed: Mapping[str, Ints]
    devices: list[DeviceSummary]
    joined: Launches

    @cached_property
    def typical(self) -> Mask:
        """The steps to judge by: those that do the work of most of them, less a cold first one."""
        work = _work(self.trace, self.windows)
        like = work >= LIKE * np.median(work) if len(work) else np.zeros(0, bool)
        total, chosen = self.parts["total_ns"], np.flatnonzero(like)
        if len(chosen) > 1 and total[chosen[0]] > COLD * np.median(total[chosen[1:]]):
            like[chosen[0]] = False
        return like

    @cached_property
    def spans(self) -> Ints:
        """The time of these steps, disjoint (m, 2) ns."""
        return np.stack((self.windows.start, self.windows.end), axis=1)[self.typical]

    @cached_property
    def step(self) -> float:
        """Time of the median step."""
        return self.spent("total")

    def median(self, values: Ints) -> float:
        """Median of a number of each step (n,) over the typical ones."""
        return float(np.median(values[self.typical])) if self.typical.any() else 0.0

    def within(self, spans: Ints) -> float:
        """Time of the median step that disjoint intervals cover."""
        return self.median(covered(spans, self.windows.start, self.windows.end))

    def spent(self, *parts: str) -> float:
        """Time of the median step that some parts fill."""
        return self.median(np.sum([self.parts[f"{part}_ns"] for part in parts], axis=0))

    def share(self, spent: float) -> float:
        """A time as share of the median step."""
        return spent / self.step if self.step else 0.0

    def idle(self, device: int) -> float:
        """Time of the median step in which a device runs no kernel."""
        return self.step - self.within(kernels(self.trace)[device].spans)

    def longest(self, spans: Ints, rows: Rows) -> Extent | None:
        """The longest of some disjoint intervals inside the typical steps, on the track of most of these events."""
        inside = intersect(spans, self.spans)
        if not len(inside):
            return None
        start, end = inside[np.argmax(inside[:, 1] - inside[:, 0])]
        return _extent(self.trace, int(start), int(end), rows)

    def of(self, *categories: Category) -> Rows:
        """The events of some categories, their device's annotations aside."""
        chosen = self.trace.events.of(*categories)
        return np.flatnonzero(chosen & ~self.trace.track_mask(TrackKind.GPU_ANNOTATION))

    def on_gpu(self) -> bool:
        """Are there kernels of a device, and do we see kernels rather than operators?"""
        return bool(self.devices) and self.trace.meta.device_work == "kernel"


def findings(case: Case) -> list[Finding]:
    """Every finding, the largest gain first within a severity."""
    rank = {HIGH: 0, MEDIUM: 1, LOW: 2}
    every = (finding for rule in RULES for finding in rule(case))
    return sorted(every, key=lambda f: (rank[f.severity], -(f.gain_ns_per_step or 0)))


def _work(trace: Trace, windows: Windows) -> Ints:
    """Kernels and operators of each step, those of data loading aside."""
    if (windows.index < 0).any():
        return np.ones(len(windows), np.int64)
    events = trace.events
    rows = np.flatnonzero((is_operator(trace) | is_kernel(trace)) & (events.step >= 0)).astype(np.int32)
    rows = rows[nearest_ancestor(events.parent, events.category == Category.DATALOADER, rows) < 0]
    return np.bincount(events.step[rows], minlength=len(trace.steps))[windows.index]


def _finding(
    case: Case,
    name: str,
    severity: Severity,
    link: str,
    extent: Extent | None = None,
    gain: float | None = None,
    **evidence: int | float | str,
) -> Iterator[Finding]:
    first = case.trace.span_ns[0]
    start, end = (None, None) if extent is None else (extent.start - first, extent.end - first)
    track = None if extent is None or extent.track == -1 else extent.track
    most = float(np.median(case.parts["total_ns"])) if gain is not None else 0.0
    yield Finding(name, severity, None if gain is None else round(min(gain, most)), evidence, link, start, end, track)


def _part_bound(case: Case, part: str, category: Category, least: float, severe: float, link: str) -> Iterator[Finding]:
    """A part fills more than `least` of the median step, badly so from `severe` on."""
    spent = case.spent(part)
    share = case.share(spent)
    if share > least:
        extent = case.longest(case.exposed[part], case.of(category))
        numbers = {f"{part}_ratio": share, f"{part}_ns": round(spent)}
        severity = HIGH if share > severe else MEDIUM
        yield from _finding(case, f"{part}_bound", severity, link, extent, spent, **numbers)


def _dataloader(case: Case) -> Iterator[Finding]:
    return _part_bound(case, "dataloader", Category.DATALOADER, 0.05, 0.2, "/overview?chart=steps")


def _utilization(case: Case) -> Iterator[Finding]:
    for device in case.devices if case.on_gpu() else ():
        idle = case.idle(device.id)
        used = 1 - case.share(idle)
        if used < 0.5 and idle:
            mine = kernels(case.trace)[device.id]
            extent = case.longest(subtract(case.spans, mine.spans), mine.rows)
            numbers = {"device": device.id, "utilization": used, "idle_ns": round(idle)}
            severity = HIGH if used < 0.3 else MEDIUM
            yield from _finding(case, "low_gpu_utilization", severity, "/idle", extent, idle, **numbers)


def _tensor_cores(case: Case) -> Iterator[Finding]:
    """At best their kernels, those on several streams at a time counted once, take half of the time."""
    if not case.on_gpu() or case.trace.meta.device_type != "cuda":
        return
    capable = [d for d in case.devices if _capability(d) >= TENSOR_CORE_CAPABILITY]
    unused = all(d.tensor_core_ratio == 0 for d in capable)
    events, joined = case.trace.events, case.joined
    owned = (joined.op >= 0) & (events.category[joined.work] == Category.KERNEL)
    rows = joined.work[owned][names_with(case.trace, events.name[joined.op[owned]], can_use_tensor_core)]
    spans = _spans(case.trace, rows)
    gain = case.within(spans) * (1 - 1 / TENSOR_CORE_SPEEDUP)
    if capable and unused and gain:
        spent, kernels = int(events.dur[rows].sum()), int(np.maximum(events.dur[is_kernel(case.trace)], 0).sum())
        share = case.share(gain)
        severity = HIGH if share > 0.15 else MEDIUM if share > 0.05 else LOW
        numbers = {"eligible_ratio": spent / kernels, "eligible_ns": spent}
        extent, link = case.longest(spans, rows), "/operator?sort=device_self_ns"
        yield from _finding(case, "tensor_cores_unused", severity, link, extent, gain, **numbers)


def _memory(case: Case) -> Iterator[Finding]:
    allocs = case.trace.allocs
    for device in case.trace.meta.devices:
        here = allocs.device == device.id
        peak = int(np.maximum(allocs.allocated[here].max(), allocs.reserved[here].max())) if here.any() else 0
        if device.memory_bytes and peak > 0.9 * device.memory_bytes:
            numbers = {"device": device.id, "peak_bytes": peak, "memory_bytes": device.memory_bytes}
            yield from _finding(case, "memory_nearly_full", MEDIUM, "/memory", None, None, **numbers)


def _data_parallel(case: Case) -> Iterator[Finding]:
    if len(case.devices) < 2:
        return
    named = names_with(case.trace, case.trace.events.name, lambda name: bool(DATA_PARALLEL.search(name)))
    if named.any():
        extent = _longest_event(case.trace, np.flatnonzero(named))
        yield from _finding(case, "data_parallel", MEDIUM, "/overview", extent, devices=len(case.devices))


def _backend(case: Case) -> Iterator[Finding]:
    backend, on_cuda = case.trace.meta.properties.get("backend", "nccl"), case.trace.meta.device_type == "cuda"
    if backend in ("gloo", "mpi") and case.on_gpu() and on_cuda and max(map(_capability, case.devices)) >= 3.5:
        extent = _longest_event(case.trace, case.of(Category.COMM))
        yield from _finding(case, "not_nccl", MEDIUM, "/distributed", extent, backend=backend)


def _communication(case: Case) -> Iterator[Finding]:
    return _part_bound(case, "communication", Category.COMM, 0.1, 0.3, "/distributed")


def _small_kernels(case: Case) -> Iterator[Finding]:
    """Calls that last longer than all the kernels that they launch keep the device waiting for the host."""
    joined, events = case.joined, case.trace.events
    chosen = (joined.call >= 0) & (events.category[joined.work] == Category.KERNEL)
    work, call = joined.work[chosen], joined.call[chosen]
    calls = distinct(call)
    if not case.on_gpu() or len(calls) < 100:
        return
    short = np.bincount(call, events.dur[work])[calls] < events.dur[calls]
    if short.mean() > 0.5 and any(case.share(case.idle(d.id)) > 0.2 for d in case.devices):
        busy = merge(*(mine.spans for mine in kernels(case.trace).values()))
        gain = case.within(subtract(_spans(case.trace, calls[short]), busy))
        kernel_mean = round(float(events.dur[work].mean()))
        numbers = {"calls": len(calls), "short_kernel_ratio": float(short.mean()), "kernel_mean_ns": kernel_mean}
        extent = _densest(case.trace, calls[short])
        yield from _finding(case, "many_small_kernels", MEDIUM, "/idle", extent, gain, **numbers)


def _occupancy(case: Case) -> Iterator[Finding]:
    for device in case.devices:
        if device.occupancy is not None and device.occupancy < 0.2 and case.share(case.idle(device.id)) < 0.7:
            rows = kernels(case.trace)[device.id].rows
            extent = _longest_event(case.trace, rows[case.trace.arg("occupancy", rows, np.nan) < 0.2])
            numbers = {"device": device.id, "occupancy": device.occupancy}
            yield from _finding(case, "low_occupancy", LOW, "/kernel?group=launch", extent, **numbers)


def _cpu(case: Case) -> Iterator[Finding]:
    spent = case.spent("cpu", "runtime")
    if case.on_gpu() and case.share(spent) > 0.4:
        numbers = {"host_ratio": case.share(spent), "host_ns": round(spent)}
        work = case.of(Category.OP, Category.OPTIMIZER, Category.RUNTIME, Category.SYNC)
        extent = case.longest(merge(case.exposed["cpu"], case.exposed["runtime"]), work)
        yield from _finding(case, "cpu_bound", MEDIUM, "/operator?sort=host_self_ns", extent, spent, **numbers)


def _outside(case: Case) -> Iterator[Finding]:
    """Neither a device nor an operator works: Python between the operators, or waiting that nobody records."""
    spent = case.spent("other")
    if case.share(spent) > 0.4 and is_operator(case.trace).any():
        gaps = subtract(case.spans, merge(*case.exposed.values()))
        numbers = {"outside_ratio": case.share(spent), "outside_ns": round(spent), **_python_in(case.trace, gaps)}
        extent, link = case.longest(gaps, case.of(Category.OP)), "/overview?chart=steps"
        yield from _finding(case, "outside_operators", MEDIUM, link, extent, spent, **numbers)


def _copies(case: Case) -> Iterator[Finding]:
    spent = case.spent("memcpy")
    if case.share(spent) > 0.03:
        rows = np.flatnonzero(case.trace.events.category == Category.MEMCPY)
        count = int(names_with(case.trace, case.trace.events.name[rows], lambda name: "Pageable" in name).sum())
        extent = case.longest(case.exposed["memcpy"], case.of(Category.MEMCPY))
        numbers = {"pageable_copies": count, "memcpy_ratio": case.share(spent), "memcpy_ns": round(spent)}
        link = "/kernel?table=memory_operations"
        yield from _finding(case, "copies_blocking", MEDIUM, link, extent, spent, **numbers)


def _jitter(case: Case) -> Iterator[Finding]:
    length, median = case.parts["total_ns"][case.typical], case.spent("total")
    if len(case.windows) >= 5 and len(length) and length.max() > 1.5 * median:
        worst = int(np.flatnonzero(case.typical)[np.argmax(length)])
        step, longest = case.windows.names[worst], int(length.max())
        numbers = {"step": step, "median_step_ns": round(median), "longest_step_ns": longest}
        extent = Extent(int(case.windows.start[worst]), int(case.windows.end[worst]))
        gain = min(max(0.0, float(length.mean()) - median), median)
        yield from _finding(case, "step_jitter", LOW, f"/overview?step={step}", extent, gain, **numbers)


def _host_busy(case: Case) -> Iterator[Finding]:
    """Others wanted the CPUs meanwhile, so that host times are partly theirs."""
    pressure = cpu_pressure(case.trace)
    if pressure is not None and pressure > BUSY_PRESSURE:
        yield from _finding(case, "host_busy", MEDIUM, "", cpu_pressure_ratio=pressure)


@once
def cpu_pressure(trace: Trace) -> float | None:
    """Mean share of the time in which some task waited for a CPU; None where nothing sampled it."""
    measured = np.array([track.name == PRESSURE_COUNTER for track in trace.tracks], bool)
    samples = trace.counters.value[measured[trace.counters.track]]
    return float(samples.mean()) / 100 if len(samples) else None


def _capability(device: DeviceSummary) -> float:
    try:
        return float(str(device.compute_capability))
    except ValueError:
        return 0.0


def _spans(trace: Trace, rows: Rows) -> Ints:
    """Disjoint intervals of some events."""
    return union(trace.events.ts[rows], trace.events.end[rows])


def _extent(trace: Trace, start: int, end: int, rows: Rows) -> Extent:
    """A stretch of time on the track with most of some events in it, or with most of them where none is in it."""
    events = trace.events
    inside = np.minimum(events.end[rows], end) - np.maximum(events.ts[rows], start)
    weight = np.maximum(inside if (inside > 0).any() else events.dur[rows], 0)
    return Extent(start, end, int(np.bincount(events.track[rows], weight).argmax()) if len(rows) else -1)


def _longest_event(trace: Trace, rows: Rows) -> Extent | None:
    if not len(rows):
        return None
    row = int(rows[np.argmax(trace.events.dur[rows])])
    return Extent(int(trace.events.ts[row]), int(trace.events.end[row]), int(trace.events.track[row]))


def _densest(trace: Trace, rows: Rows) -> Extent:
    """The least time in which BURST of some events follow each other."""
    order = rows[np.argsort(trace.events.ts[rows], kind="stable")]
    count = min(BURST, len(order))
    first = int(np.argmin(trace.events.ts[order[count - 1 :]] - trace.events.ts[order[: len(order) - count + 1]]))
    burst = order[first : first + count]
    return _extent(trace, int(trace.events.ts[burst[0]]), int(trace.events.end[burst].max()), burst)


def _python_in(trace: Trace, gaps: Ints) -> dict[str, str]:
    """The Python function that fills most of some time, told by the middle of each gap on the busiest thread."""
    events = trace.events
    python = (events.category == Category.PYTHON) & trace.track_mask(TrackKind.THREAD)
    if not python.any():
        return {}
    track = trace.tracks[int(np.bincount(events.track[python]).argmax())]
    first, last = track.first, track.first + track.count
    middle = gaps[:, 0] + (gaps[:, 1] - gaps[:, 0]) // 2
    inner = innermost_at(events.ts, events.end, events.parent, first, last, middle)
    row = nearest_ancestor(events.parent, python, inner)
    length = np.where(row >= 0, gaps[:, 1] - gaps[:, 0], 0)
    names, of = np.unique(events.name[row], return_inverse=True)
    total = np.bincount(of, length)
    return {"function": trace.strings[int(names[total.argmax()])]} if total.any() else {}


DATA_PARALLEL = pattern(r"(?<![A-Za-z])DataParallel(?![A-Za-z])")
RULES: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    _dataloader, _utilization, _tensor_cores, _memory, _data_parallel, _backend, _communication,
    _small_kernels, _occupancy, _cpu, _outside, _copies, _jitter, _host_busy,
)  # fmt: skip
