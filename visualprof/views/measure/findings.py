"""What slows a run down, with the measured evidence and an estimate of the gain; one function a rule.

Thresholds are torch-tb-profiler's where it has the rule. Texts are the page's; a finding carries numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ints, Trace
from visualprof.views.answers.kinds import Duration, keyed
from visualprof.views.measure.devices import DeviceSummary
from visualprof.views.measure.launch import Launches, OperatorTimes, is_kernel
from visualprof.views.measure.steps import Windows
from visualprof.views.measure.tensor_core import can_use_tensor_core, names_with

Severity = Literal["high", "medium", "low"]
HIGH: Severity = "high"
MEDIUM: Severity = "medium"
LOW: Severity = "low"
TENSOR_CORE_CAPABILITY = 7.0
TENSOR_CORE_SPEEDUP = 2.0  # what float16 or TF32 gives a product at least, on the devices that have them


# The measured numbers of a finding, those of its rule.
Evidence = Annotated[
    Mapping[str, int | float | str],
    keyed(
        device="id", devices="count", calls="count", pageable_copies="count", utilization="ratio", occupancy="ratio",
        dataloader_ratio="ratio", communication_ratio="ratio", eligible_ratio="ratio", short_kernel_ratio="ratio",
        host_ratio="ratio", memcpy_ratio="ratio", dataloader_ns="ns", communication_ns="ns", eligible_ns="ns",
        idle_ns="ns", host_ns="ns", memcpy_ns="ns", kernel_mean_ns="ns", median_step_ns="ns", longest_step_ns="ns",
        peak_bytes="bytes", memory_bytes="bytes",
    ),
]  # fmt: skip


class Finding(msgspec.Struct, frozen=True):
    """Something worth changing; its text is in the page's locales under `finding.ID`.

    gain_ns_per_step: at most this much of an average step could be saved, None where it cannot be told.
    link: where the page shows the evidence.
    """

    id: str
    severity: Severity
    gain_ns_per_step: Duration | None
    evidence: Evidence
    link: str


@dataclass(frozen=True)
class Case:
    """What the rules look at: averages a step, devices, operators and launches."""

    trace: Trace
    windows: Windows
    step: Mapping[str, float]
    devices: list[DeviceSummary]
    joined: Launches
    times: OperatorTimes

    @property
    def steps(self) -> int:
        """Number of steps, at least 1."""
        return max(1, len(self.windows))

    def share(self, part: str) -> float:
        """Share of the average step that a part fills."""
        return self.step[f"{part}_ns"] / self.step["total_ns"] if self.step["total_ns"] else 0.0

    def on_gpu(self) -> bool:
        """Are there kernels of a device, and do we see kernels rather than operators?"""
        return bool(self.devices) and self.trace.meta.device_work == "kernel"


def findings(case: Case) -> list[Finding]:
    """Every finding, the largest gain first within a severity."""
    rank = {HIGH: 0, MEDIUM: 1, LOW: 2}
    every = (finding for rule in RULES for finding in rule(case))
    return sorted(every, key=lambda f: (rank[f.severity], -(f.gain_ns_per_step or 0)))


def _finding(
    name: str, severity: Severity, link: str, gain: int | None = None, **evidence: int | float | str
) -> Iterator[Finding]:
    yield Finding(name, severity, gain, evidence, link)


def _part_bound(case: Case, part: str, least: float, severe: float, link: str) -> Iterator[Finding]:
    """A part fills more than `least` of the average step, badly so from `severe` on."""
    share, spent = case.share(part), round(case.step[f"{part}_ns"])
    if share > least:
        numbers = {f"{part}_ratio": share, f"{part}_ns": spent}
        yield from _finding(f"{part}_bound", HIGH if share > severe else MEDIUM, link, spent, **numbers)


def _dataloader(case: Case) -> Iterator[Finding]:
    return _part_bound(case, "dataloader", 0.05, 0.2, "/overview?chart=steps")


def _utilization(case: Case) -> Iterator[Finding]:
    for device in case.devices if case.on_gpu() else ():
        used = device.utilization
        if used is not None and used < 0.5:
            idle, severity = round(case.step["total_ns"] * (1 - used)), HIGH if used < 0.3 else MEDIUM
            numbers = {"device": device.id, "utilization": used, "idle_ns": idle}
            yield from _finding("low_gpu_utilization", severity, "/overview?chart=steps", idle, **numbers)


def _tensor_cores(case: Case) -> Iterator[Finding]:
    if not case.on_gpu() or case.trace.meta.device_type != "cuda":
        return
    capable = [d for d in case.devices if _capability(d) >= TENSOR_CORE_CAPABILITY]
    unused = all(d.tensor_core_ratio == 0 for d in capable)
    eligible = names_with(case.trace, case.trace.events.name[case.times.rows], can_use_tensor_core)
    spent = int(case.times.device_self[eligible].sum())
    kernels = int(np.maximum(case.trace.events.dur[is_kernel(case.trace)], 0).sum())
    if capable and unused and spent:
        gain, severity = (
            round(spent * (1 - 1 / TENSOR_CORE_SPEEDUP) / case.steps),
            HIGH if spent > 0.3 * kernels else MEDIUM,
        )
        numbers = {"eligible_ratio": spent / kernels if kernels else 0.0, "eligible_ns": spent}
        yield from _finding("tensor_cores_unused", severity, "/operator?sort=device_self_ns", gain, **numbers)


def _memory(case: Case) -> Iterator[Finding]:
    allocs = case.trace.allocs
    for device in case.trace.meta.devices:
        here = allocs.device == device.id
        peak = int(np.maximum(allocs.allocated[here].max(), allocs.reserved[here].max())) if here.any() else 0
        if device.memory_bytes and peak > 0.9 * device.memory_bytes:
            numbers = {"device": device.id, "peak_bytes": peak, "memory_bytes": device.memory_bytes}
            yield from _finding("memory_nearly_full", MEDIUM, "/memory", **numbers)


def _data_parallel(case: Case) -> Iterator[Finding]:
    if len(case.devices) > 1 and any("DataParallel" in s and "Distributed" not in s for s in case.trace.strings):
        yield from _finding("data_parallel", MEDIUM, "/overview", devices=len(case.devices))


def _backend(case: Case) -> Iterator[Finding]:
    backend, on_cuda = case.trace.meta.properties.get("backend", "nccl"), case.trace.meta.device_type == "cuda"
    if backend in ("gloo", "mpi") and case.on_gpu() and on_cuda and max(map(_capability, case.devices)) >= 3.5:
        yield from _finding("not_nccl", MEDIUM, "/distributed", backend=backend)


def _communication(case: Case) -> Iterator[Finding]:
    return _part_bound(case, "communication", 0.1, 0.3, "/distributed")


def _small_kernels(case: Case) -> Iterator[Finding]:
    """Kernels shorter than the call that launched them keep the device waiting for the host."""
    joined, events = case.joined, case.trace.events
    chosen = (joined.call >= 0) & is_kernel(case.trace)[joined.work]
    work, call = joined.work[chosen], joined.call[chosen]
    if not case.on_gpu() or len(work) < 100:
        return
    short = events.dur[work] < events.dur[call]
    ratio, mean = float(short.mean()), round(float(events.dur[work].mean()))
    if ratio > 0.5 and any(d.utilization is not None and d.utilization < 0.8 for d in case.devices):
        gain = int((events.dur[call] - events.dur[work])[short].sum()) // case.steps
        numbers = {"calls": len(work), "short_kernel_ratio": ratio, "kernel_mean_ns": mean}
        yield from _finding("many_small_kernels", MEDIUM, "/kernel?sort=calls", gain, **numbers)


def _occupancy(case: Case) -> Iterator[Finding]:
    for device in case.devices:
        occupancy, used = device.occupancy, device.utilization
        if occupancy is not None and occupancy < 0.2 and used is not None and used > 0.3:
            yield from _finding("low_occupancy", LOW, "/kernel?group=launch", device=device.id, occupancy=occupancy)


def _cpu(case: Case) -> Iterator[Finding]:
    exposed, total = case.step["cpu_ns"] + case.step["runtime_ns"], case.step["total_ns"]
    if case.on_gpu() and total and exposed / total > 0.4:
        spent = round(exposed)
        numbers = {"host_ratio": exposed / total, "host_ns": spent}
        yield from _finding("cpu_bound", MEDIUM, "/operator?sort=host_self_ns", spent, **numbers)


def _copies(case: Case) -> Iterator[Finding]:
    share, spent = case.share("memcpy"), round(case.step["memcpy_ns"])
    pageable = names_with(case.trace, case.trace.events.name, lambda n: "Pageable" in n)
    pageable &= case.trace.events.category == Category.MEMCPY
    if share > 0.03:
        numbers = {"pageable_copies": int(pageable.sum()), "memcpy_ratio": share, "memcpy_ns": spent}
        yield from _finding("copies_blocking", MEDIUM, "/kernel?table=memory_operations", spent, **numbers)


def _jitter(case: Case) -> Iterator[Finding]:
    length: Ints = case.windows.end - case.windows.start
    median = float(np.median(length)) if len(length) >= 5 else 0.0
    if median > 0 and length.max() > 1.5 * median:
        worst, gain = int(np.argmax(length)), max(0, round(float(length.mean()) - median))
        step, longest = case.windows.names[worst], int(length[worst])
        numbers = {"step": step, "median_step_ns": round(median), "longest_step_ns": longest}
        yield from _finding("step_jitter", LOW, f"/overview?step={step}", gain, **numbers)


def _capability(device: DeviceSummary) -> float:
    try:
        return float(str(device.compute_capability))
    except ValueError:
        return 0.0


RULES: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    _dataloader, _utilization, _tensor_cores, _memory, _data_parallel, _backend, _communication,
    _small_kernels, _occupancy, _cpu, _copies, _jitter,
)  # fmt: skip
