"""What slows a run down, with the measured evidence and an estimate of the gain; one function a rule.

Thresholds are torch-tb-profiler's where it has the rule. Texts are the page's; a finding carries numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ints, Trace
from visualprof.views.answers.kinds import Count, Duration, Identifier, Ratio, Size
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


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The measured numbers of a finding, those of its rule."""

    device: Identifier | None = None
    devices: Count | None = None
    backend: str | None = None
    step: str | None = None
    calls: Count | None = None
    pageable_copies: Count | None = None
    utilization: Ratio | None = None
    occupancy: Ratio | None = None
    dataloader_ratio: Ratio | None = None
    communication_ratio: Ratio | None = None
    eligible_ratio: Ratio | None = None
    short_kernel_ratio: Ratio | None = None
    host_ratio: Ratio | None = None
    memcpy_ratio: Ratio | None = None
    dataloader_ns: Duration | None = None
    communication_ns: Duration | None = None
    eligible_ns: Duration | None = None
    idle_ns: Duration | None = None
    host_ns: Duration | None = None
    memcpy_ns: Duration | None = None
    kernel_mean_ns: Duration | None = None
    median_step_ns: Duration | None = None
    longest_step_ns: Duration | None = None
    peak_bytes: Size | None = None
    memory_bytes: Size | None = None


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


def _part_bound(case: Case, part: str, least: float, severe: float, link: str) -> Iterator[Finding]:
    """A part fills more than `least` of the average step, badly so from `severe` on."""
    share = case.share(part)
    if share > least:
        spent = round(case.step[f"{part}_ns"])
        numbers: dict[str, Any] = {f"{part}_ratio": share, f"{part}_ns": spent}
        yield Finding(f"{part}_bound", HIGH if share > severe else MEDIUM, spent, Evidence(**numbers), link)


def _dataloader(case: Case) -> Iterator[Finding]:
    return _part_bound(case, "dataloader", 0.05, 0.2, "/overview?chart=steps")


def _utilization(case: Case) -> Iterator[Finding]:
    if not case.on_gpu():
        return
    for device in case.devices:
        used = device.utilization
        if used is not None and used < 0.5:
            idle = round(case.step["total_ns"] * (1 - used))
            yield Finding(
                "low_gpu_utilization",
                HIGH if used < 0.3 else MEDIUM,
                idle,
                Evidence(device=device.id, utilization=used, idle_ns=idle),
                "/overview?chart=steps",
            )


def _tensor_cores(case: Case) -> Iterator[Finding]:
    if not case.on_gpu() or case.trace.meta.device_type != "cuda":
        return
    capable = [d for d in case.devices if _capability(d) >= TENSOR_CORE_CAPABILITY]
    unused = all(d.tensor_core_ratio == 0 for d in capable)
    eligible = names_with(case.trace, case.trace.events.name[case.times.rows], can_use_tensor_core)
    spent = int(case.times.device_self[eligible].sum())
    kernels = int(np.maximum(case.trace.events.dur[is_kernel(case.trace)], 0).sum())
    if capable and unused and spent:
        gain = round(spent * (1 - 1 / TENSOR_CORE_SPEEDUP) / case.steps)
        yield Finding(
            "tensor_cores_unused",
            HIGH if spent > 0.3 * kernels else MEDIUM,
            gain,
            Evidence(eligible_ratio=spent / kernels if kernels else 0.0, eligible_ns=spent),
            "/operator?sort=device_self_ns",
        )


def _memory(case: Case) -> Iterator[Finding]:
    allocs = case.trace.allocs
    for device in case.trace.meta.devices:
        here = allocs.device == device.id
        if not device.memory_bytes or not here.any():
            continue
        peak = int(np.maximum(allocs.allocated[here].max(), allocs.reserved[here].max()))
        if peak > 0.9 * device.memory_bytes:
            yield Finding(
                "memory_nearly_full",
                MEDIUM,
                None,
                Evidence(device=device.id, peak_bytes=peak, memory_bytes=device.memory_bytes),
                "/memory",
            )


def _data_parallel(case: Case) -> Iterator[Finding]:
    if len(case.devices) > 1 and any("DataParallel" in s and "Distributed" not in s for s in case.trace.strings):
        yield Finding("data_parallel", MEDIUM, None, Evidence(devices=len(case.devices)), "/overview")


def _backend(case: Case) -> Iterator[Finding]:
    backend = case.trace.meta.properties.get("backend", "nccl")
    if (
        case.on_gpu()
        and case.trace.meta.device_type == "cuda"
        and backend in ("gloo", "mpi")
        and max(map(_capability, case.devices)) >= 3.5
    ):
        yield Finding("not_nccl", MEDIUM, None, Evidence(backend=backend), "/distributed")


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
    ratio = float(short.mean())
    if ratio > 0.5 and any(d.utilization is not None and d.utilization < 0.8 for d in case.devices):
        gain = int((events.dur[call] - events.dur[work])[short].sum()) // case.steps
        yield Finding(
            "many_small_kernels",
            MEDIUM,
            gain,
            Evidence(short_kernel_ratio=ratio, calls=len(work), kernel_mean_ns=round(float(events.dur[work].mean()))),
            "/kernel?sort=calls",
        )


def _occupancy(case: Case) -> Iterator[Finding]:
    for device in case.devices:
        occupancy, used = device.occupancy, device.utilization
        if occupancy is not None and occupancy < 0.2 and used is not None and used > 0.3:
            evidence = Evidence(device=device.id, occupancy=occupancy)
            yield Finding("low_occupancy", LOW, None, evidence, "/kernel?group=launch")


def _cpu(case: Case) -> Iterator[Finding]:
    exposed = case.step["cpu_ns"] + case.step["runtime_ns"]
    if case.on_gpu() and case.step["total_ns"] and exposed / case.step["total_ns"] > 0.4:
        yield Finding(
            "cpu_bound",
            MEDIUM,
            round(exposed),
            Evidence(host_ratio=exposed / case.step["total_ns"], host_ns=round(exposed)),
            "/operator?sort=host_self_ns",
        )


def _copies(case: Case) -> Iterator[Finding]:
    share = case.share("memcpy")
    pageable = names_with(case.trace, case.trace.events.name, lambda n: "Pageable" in n) & (
        case.trace.events.category == Category.MEMCPY
    )
    if share > 0.03:
        spent = round(case.step["memcpy_ns"])
        yield Finding(
            "copies_blocking",
            MEDIUM,
            spent,
            Evidence(memcpy_ratio=share, memcpy_ns=spent, pageable_copies=int(pageable.sum())),
            "/kernel?table=memory_operations",
        )


def _jitter(case: Case) -> Iterator[Finding]:
    length: Ints = case.windows.end - case.windows.start
    if len(length) >= 5:
        median = float(np.median(length))
        worst = int(np.argmax(length))
        if median > 0 and length[worst] > 1.5 * median:
            gain = max(0, round(float(length.mean()) - median))
            yield Finding(
                "step_jitter",
                LOW,
                gain,
                Evidence(
                    median_step_ns=round(median), longest_step_ns=int(length[worst]), step=case.windows.names[worst]
                ),
                f"/overview?step={case.windows.names[worst]}",
            )


def _capability(device: DeviceSummary) -> float:
    try:
        return float(str(device.compute_capability))
    except ValueError:
        return 0.0


Rule = Callable[[Case], Iterator[Finding]]
RULES: tuple[Rule, ...] = (
    _dataloader, _utilization, _tensor_cores, _memory, _data_parallel, _backend, _communication,
    _small_kernels, _occupancy, _cpu, _copies, _jitter,
)  # fmt: skip
