"""Add kernels with hardware counters, measured one at a time as by Nsight Compute, to a trace.

The common metrics become arguments with names of our own. In addition every metric becomes an argument under the name
that the file uses, so that the web UI can show them all.
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

METRIC_PREFIX = "metric\t"  # prefix of the arguments of metrics; section, name and unit follow
MAX_METRICS, MAX_NAME_CHARS, MAX_TEXT_CHARS, MAX_VALUE = 5000, 4000, 300, 1e30
_NS_PER_UNIT = {
    "s": 1e9,
    "second": 1e9,
    "ms": 1e6,
    "msecond": 1e6,
    "us": 1e3,
    "usecond": 1e3,
    "ns": 1.0,
    "nsecond": 1.0,
}
_DURATION_METRICS = ("Duration", "gpu__time_duration.sum")
# Ratios by our name, with the names on the details page and in the raw list, where they are percentages
_RATIO_METRICS = {
    "occupancy": ("Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    "theoretical_occupancy": ("Theoretical Occupancy", "sm__maximum_warps_per_active_cycle_pct"),
    "sm_throughput": ("Compute (SM) Throughput", "SOL SM", "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
    "memory_throughput": (
        "Memory Throughput",
        "SOL Memory",
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "dram_throughput": (
        "DRAM Throughput",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "l2_throughput": ("L2 Cache Throughput", "lts__throughput.avg.pct_of_peak_sustained_elapsed"),
    "l1_throughput": ("L1/TEX Cache Throughput", "l1tex__throughput.avg.pct_of_peak_sustained_active"),
}
_COUNT_METRICS = {
    "registers": ("Registers Per Thread", "launch__registers_per_thread"),
    "waves_per_sm": ("Waves Per SM", "launch__waves_per_multiprocessor"),
}
_SHARED_MEMORY_METRICS = (
    "Static Shared Memory Per Block",
    "Dynamic Shared Memory Per Block",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
)
_INTEGER_ARGS = ("registers", "shared_memory")
_BYTES_PER_UNIT = {"Kbyte": 1e3, "Mbyte": 1e6, "byte": 1.0, "": 1.0}


class Metric(NamedTuple):
    """One measured number; `section` is "" if the file has none."""

    section: str
    name: str
    unit: str
    value: float


class MeasuredKernel(msgspec.Struct):
    """One kernel launch with its metrics.

    Attributes:
        name: The kernel's name.
        grid: The grid size, `[8, 1, 1]`; "" if unknown.
        block: The block size, like `grid`.
        stream: The stream's number as text.
        device: The device's number.
        metrics: In the order of the file.
    """

    name: str
    grid: str = ""
    block: str = ""
    stream: str = ""
    device: int = 0
    metrics: list[Metric] = []


def add_kernels(builder: TraceBuilder, kernels: Sequence[MeasuredKernel]) -> None:
    """Add the kernels end to end on their streams, in the order of the file: only their durations are known."""
    n = len(kernels)
    rows = np.arange(n)
    dur = np.array([_find_metric(kernel, _DURATION_METRICS, _NS_PER_UNIT, 1.0) for kernel in kernels], np.float64)
    measured = ~np.isnan(dur)
    dur_ns = np.where(measured, np.clip(np.nan_to_num(dur), 0, 2.0**50), -1).astype(np.int64)
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
        name=builder.strings(kernel.name[:MAX_NAME_CHARS] for kernel in kernels),
        category=Category.KERNEL,
        track=np.array([tracks[kernel.device, kernel.stream] for kernel in kernels], np.int64),
        row=rows,
    )
    for name, texts in (("grid", [k.grid for k in kernels]), ("block", [k.block for k in kernels])):
        present = np.array([bool(text) for text in texts], bool)
        builder.arg(name, rows[present], builder.strings(text[:MAX_TEXT_CHARS] for text in texts)[present], text=True)
    _add_common_args(builder, kernels)
    _add_metrics(builder, kernels)
    builder.warn(
        msg(
            "reader.nsight_compute_runs_each",
            "Nsight Compute runs each kernel alone, often several times: kernels are shown end to end, without gaps",
        )
    )


def _add_common_args(builder: TraceBuilder, kernels: Sequence[MeasuredKernel]) -> None:
    """Add the common metrics as arguments with names of our own."""
    for name, names in _RATIO_METRICS.items():
        _add_arg(
            builder, name, np.array([_find_metric(kernel, names, {"%": 0.01}, 0.01) for kernel in kernels], np.float64)
        )
    for name, names in _COUNT_METRICS.items():
        _add_arg(builder, name, np.array([_find_metric(kernel, names, {}, 1.0) for kernel in kernels], np.float64))
    _add_arg(builder, "shared_memory", np.array([_shared_memory_bytes(kernel) for kernel in kernels], np.float64))


def _find_metric(kernel: MeasuredKernel, names: Sequence[str], units: dict[str, float], default_scale: float) -> float:
    """Return the first metric with one of the names and units, converted to our unit; NaN without a match.

    Args:
        kernel: The kernel.
        names: Accepted names.
        units: Factors by unit; an empty mapping accepts any unit without conversion.
        default_scale: The factor of a number without a unit.
    """
    for metric in kernel.metrics:
        if metric.name in names and (not units or not metric.unit or metric.unit in units):
            return metric.value * (units.get(metric.unit, default_scale) if units else default_scale)
    return float("nan")


def _shared_memory_bytes(kernel: MeasuredKernel) -> float:
    """Return the static and dynamic shared memory per block in bytes, NaN if unknown."""
    parts = [
        m.value * _BYTES_PER_UNIT.get(m.unit.partition("/")[0], 1.0)
        for m in kernel.metrics
        if m.name in _SHARED_MEMORY_METRICS
    ]
    return sum(parts) if parts else float("nan")


def _add_metrics(builder: TraceBuilder, kernels: Sequence[MeasuredKernel]) -> None:
    """Add every metric as an argument under the name that the file uses."""
    columns: dict[str, tuple[list[int], list[float]]] = {}
    dropped = 0
    for row, kernel in enumerate(kernels):
        for metric in kernel.metrics:
            key = METRIC_PREFIX + "\t".join(part[:MAX_TEXT_CHARS].replace("\t", " ") for part in metric[:3])
            if key not in columns and len(columns) == MAX_METRICS:
                dropped += 1
                continue
            rows, values = columns.setdefault(key, ([], []))
            if not rows or rows[-1] != row:
                rows.append(row)
                values.append(metric.value)
    for key, (rows, values) in columns.items():
        builder.arg(key, np.array(rows, np.int64), np.array(values, np.float64))
    if dropped:
        builder.warn(
            msg(
                "reader.over_different_metrics_rest",
                f"of over {MAX_METRICS:,} different metrics the rest was left out: {dropped:,} values",
            )
        )


def _add_arg(builder: TraceBuilder, name: str, values: Floats) -> None:
    """Add an argument for the kernels that have a value."""
    rows = np.flatnonzero(~np.isnan(values))
    rounded = np.rint(np.clip(values[rows], 0, 2.0**53)).astype(np.int64)
    builder.arg(name, rows, rounded if name in _INTEGER_ARGS else values[rows])


def format_axes(numbers: Iterable[int]) -> str:
    """Return a grid or block size as `[8, 1, 1]`, "" if unknown."""
    sizes = list(numbers)
    return str(sizes) if sizes and sizes[0] > 0 else ""


def is_plausible(value: float) -> bool:
    """Return whether a counter can have that value."""
    return abs(value) < MAX_VALUE
