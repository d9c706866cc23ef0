"""Kernels that were measured one by one with hardware counters, as Nsight Compute does, put into a trace.

What everyone looks at becomes arguments of the kernels under names of our own; every metric, as the file calls it, is
an argument beside them, so that a page can show them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from visualprof.messages import msg
from visualprof.reader.trace import Category, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.types import Floats

METRIC = "metric\t"  # what the arguments of metrics begin with; section, name and unit follow
MAX_METRICS, MAX_NAME, MAX_TEXT, MAX_VALUE = 5000, 4000, 300, 1e30
_NS = {"s": 1e9, "second": 1e9, "ms": 1e6, "msecond": 1e6, "us": 1e3, "usecond": 1e3, "ns": 1.0, "nsecond": 1.0}
_TIME = ("Duration", "gpu__time_duration.sum")
# Ratios: (our name, the names on the details page and in the raw list), in percent there
_RATIOS = {
    "occupancy": ("Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    "theoretical_occupancy": ("Theoretical Occupancy", "sm__maximum_warps_per_active_cycle_pct"),
    "sm_throughput": ("Compute (SM) Throughput", "SOL SM", "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
    "memory_throughput": (
        "Memory Throughput", "SOL Memory", "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "dram_throughput": (
        "DRAM Throughput", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "l2_throughput": ("L2 Cache Throughput", "lts__throughput.avg.pct_of_peak_sustained_elapsed"),
    "l1_throughput": ("L1/TEX Cache Throughput", "l1tex__throughput.avg.pct_of_peak_sustained_active"),
}  # fmt: skip
_COUNTS = {
    "registers": ("Registers Per Thread", "launch__registers_per_thread"),
    "waves_per_sm": ("Waves Per SM", "launch__waves_per_multiprocessor"),
}
_SHARED = (
    "Static Shared Memory Per Block", "Dynamic Shared Memory Per Block",
    "launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic",
)  # fmt: skip
_WHOLE = ("registers", "shared_memory")
_KILO = {"Kbyte": 1e3, "Mbyte": 1e6, "byte": 1.0, "": 1.0}


class Metric(NamedTuple):
    """One number. section: "" where the file has none."""

    section: str
    name: str
    unit: str
    value: float


class MeasuredKernel(msgspec.Struct):
    """One launch of a kernel. grid, block: `[8, 1, 1]`, "" unknown. metrics: in the order of the file."""

    name: str
    grid: str = ""
    block: str = ""
    stream: str = ""
    device: int = 0
    metrics: list[Metric] = []


def add_kernels(builder: TraceBuilder, kernels: Sequence[MeasuredKernel]) -> None:
    """Kernels end to end on their streams, in the order of the file: only their durations are known."""
    n = len(kernels)
    rows = np.arange(n)
    dur = np.array([_first(kernel, _TIME, _NS, 1.0) for kernel in kernels], np.float64)
    known = ~np.isnan(dur)
    dur_ns = np.where(known, np.clip(np.nan_to_num(dur), 0, 2.0**50), -1).astype(np.int64)
    ends = np.cumsum(np.maximum(dur_ns, 0))
    tracks: dict[tuple[int, str], int] = {}
    for kernel in kernels:
        key = kernel.device, kernel.stream
        if key not in tracks:
            stream = int(kernel.stream) if kernel.stream.isdecimal() and len(kernel.stream) < 10 else -1
            title = f"stream {kernel.stream}".strip()
            tracks[key] = builder.track(
                TrackKind.STREAM, title, "", f"{kernel.device}.{kernel.stream}", device=kernel.device, stream=stream
            )
    builder.events(
        ts=ends - np.maximum(dur_ns, 0),
        dur=dur_ns,
        name=builder.strings(kernel.name[:MAX_NAME] for kernel in kernels),
        category=Category.KERNEL,
        track=np.array([tracks[kernel.device, kernel.stream] for kernel in kernels], np.int64),
        row=rows,
    )
    for name, texts in (("grid", [k.grid for k in kernels]), ("block", [k.block for k in kernels])):
        told = np.array([bool(text) for text in texts], bool)
        builder.arg(name, rows[told], builder.strings(text[:MAX_TEXT] for text in texts)[told], text=True)
    _add_figures(builder, kernels)
    _add_metrics(builder, kernels)
    builder.warn(
        msg(
            "reader.nsight_compute_runs_each",
            "Nsight Compute runs each kernel alone, often several times: kernels stand end to end, without gaps",
        )
    )


def _add_figures(builder: TraceBuilder, kernels: Sequence[MeasuredKernel]) -> None:
    for name, names in _RATIOS.items():
        _arg(builder, name, np.array([_first(kernel, names, {"%": 0.01}, 0.01) for kernel in kernels], np.float64))
    for name, names in _COUNTS.items():
        _arg(builder, name, np.array([_first(kernel, names, {}, 1.0) for kernel in kernels], np.float64))
    _arg(builder, "shared_memory", np.array([_shared(kernel) for kernel in kernels], np.float64))


def _first(kernel: MeasuredKernel, names: Sequence[str], units: dict[str, float], otherwise: float) -> float:
    """The first metric of one of these names and units, in ours; NaN where there is none.

    units: what each is worth; empty means any. otherwise: what a number without a unit is worth.
    """
    for metric in kernel.metrics:
        if metric.name in names and (not units or not metric.unit or metric.unit in units):
            return metric.value * (units.get(metric.unit, otherwise) if units else otherwise)
    return float("nan")


def _shared(kernel: MeasuredKernel) -> float:
    """Bytes of shared memory of a block, the program's own and what it asked for at the launch."""
    parts = [m.value * _KILO.get(m.unit.partition("/")[0], 1.0) for m in kernel.metrics if m.name in _SHARED]
    return sum(parts) if parts else float("nan")


def _add_metrics(builder: TraceBuilder, kernels: Sequence[MeasuredKernel]) -> None:
    columns: dict[str, tuple[list[int], list[float]]] = {}
    left = 0
    for row, kernel in enumerate(kernels):
        for metric in kernel.metrics:
            key = METRIC + "\t".join(part[:MAX_TEXT].replace("\t", " ") for part in metric[:3])
            if key not in columns and len(columns) == MAX_METRICS:
                left += 1
                continue
            rows, values = columns.setdefault(key, ([], []))
            if not rows or rows[-1] != row:
                rows.append(row)
                values.append(metric.value)
    for key, (rows, values) in columns.items():
        builder.arg(key, np.array(rows, np.int64), np.array(values, np.float64))
    if left:
        builder.warn(
            msg(
                "reader.over_different_metrics_rest",
                f"of over {MAX_METRICS:,} different metrics the rest was left out: {left:,} values",
            )
        )


def _arg(builder: TraceBuilder, name: str, values: Floats) -> None:
    known = np.flatnonzero(~np.isnan(values))
    whole = np.rint(np.clip(values[known], 0, 2.0**53)).astype(np.int64)
    builder.arg(name, known, whole if name in _WHOLE else values[known])


def axes(numbers: Iterable[int]) -> str:
    """`[8, 1, 1]` of a grid or block, "" where it is not told."""
    sizes = list(numbers)
    return str(sizes) if sizes and sizes[0] > 0 else ""


def possible(value: float) -> bool:
    """Is it a number that something may have counted?"""
    return abs(value) < MAX_VALUE
