"""Kernels measured by Nsight Compute, with the times of the same kernels in the other recordings of the run."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.messages import msg
from visualprof.reader.kernel_metrics import METRIC_PREFIX
from visualprof.reader.trace import Floats, Ids, Ints, Trace
from visualprof.views import Params, RunView
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, Table
from visualprof.views.measure.columns.groups import Groups, group
from visualprof.views.measure.columns.timing import name_texts, sort_columns
from visualprof.views.measure.launches.launch import is_kernel

_ANONYMOUS = "(anonymous namespace)"
_RATIOS = (
    "sm_throughput",
    "memory_throughput",
    "dram_throughput",
    "l2_throughput",
    "l1_throughput",
    "occupancy",
    "theoretical_occupancy",
)


class CounterColumns(Columns):
    """Kernels by name: means over the measured launches.

    Attributes:
        mean_ns: Duration alone on the device, at the clock of Nsight Compute.
        sm_throughput_ratio: Share of the hardware maximum, as the other throughputs.
        run_calls: Calls of kernels with this name in the other recordings of the run; None without such recordings.
        run_total_ns: Total time of those calls; None without any.
        run_mean_ns: Mean time of those calls; None without any.
    """

    name: kinds.NameColumn
    launches: kinds.CountColumn
    mean_ns: kinds.DurationColumn
    sm_throughput_ratio: kinds.RatioColumn
    memory_throughput_ratio: kinds.RatioColumn
    dram_throughput_ratio: kinds.RatioColumn
    l2_throughput_ratio: kinds.RatioColumn
    l1_throughput_ratio: kinds.RatioColumn
    occupancy_ratio: kinds.RatioColumn
    theoretical_occupancy_ratio: kinds.RatioColumn
    registers_per_thread: kinds.CountColumn
    shared_memory_bytes: kinds.SizeColumn
    waves_per_sm: kinds.CountColumn
    run_calls: kinds.CountColumn
    run_total_ns: kinds.DurationColumn
    run_mean_ns: kinds.DurationColumn


class MetricColumns(Columns):
    """Metrics by kernel, with the names and in the order of the files.

    Attributes:
        value: Mean over the launches.
    """

    kernel: kinds.NameColumn
    section: kinds.TextColumn
    name: kinds.TextColumn
    unit: kinds.WordColumn
    value: kinds.CountColumn
    least: kinds.CountColumn
    most: kinds.CountColumn


class CountersAnswer(Table[CounterColumns]):
    """Measured kernels.

    Attributes:
        matched: Number of kernels that another recording of the run has.
    """

    matched: kinds.Count
    metrics: Table[MetricColumns]


class CountersPart(msgspec.Struct, frozen=True):
    """Kernels of one recording.

    Attributes:
        measured: Whether the recording has counters. If not, it is used for comparison.
        reference: (calls, ns) of the kernels by plain name, of a recording for comparison.
        kernels: Columns of `CounterColumns` of the measured kernels.
        metrics: Rows of `MetricColumns`.
    """

    measured: bool
    reference: dict[str, tuple[int, int]]
    kernels: dict[str, list[str | int | float | None]]
    metrics: list[tuple[str, str | None, str, str | None, float, float, float]]


def needs(trace: Trace) -> bool:
    """Whether the trace has a metric of a kernel."""
    return any(name.startswith(METRIC_PREFIX) for name in trace.args)


def counters_part(trace: Trace) -> CountersPart:
    """Return the part of a trace."""
    measured = needs(trace)
    return CountersPart(
        measured,
        {} if measured else _times(trace),
        _kernels(trace) if measured else {},
        list(_lines(trace)) if measured else [],
    )


def compute(workers: Sequence[tuple[str, CountersPart]], params: Params) -> CountersAnswer:
    """Return kernels, those with the most time in the run first.

    Source: docs/views/counters.md
    """
    del params
    parts = [part for _, part in workers]
    reference = dict[str, tuple[int, int]]()
    for part in parts:
        for name, (calls, total_ns) in part.reference.items():
            previous = reference.get(name, (0, 0))
            reference[name] = previous[0] + calls, previous[1] + total_ns
    columns: dict[str, Column] = {
        key: [value for part in parts if part.measured for value in part.kernels[key]]
        for key in CounterColumns.__struct_fields__
        if not key.startswith("run_")
    }
    references = [reference.get(plain_name(str(name))) for name in columns["name"]]
    columns["run_calls"] = [times[0] if times else 0 if reference else None for times in references]
    columns["run_total_ns"] = [times[1] if times else None for times in references]
    columns["run_mean_ns"] = [times[1] / times[0] if times else None for times in references]
    columns["weight"] = [t or m or 0 for t, m in zip(columns["run_total_ns"], columns["mean_ns"], strict=True)]
    sorted_columns = sort_columns(columns, "weight")
    lines = [line for part in parts for line in part.metrics]
    metrics: list[list[object]] = [list(column) for column in zip(*lines, strict=True)] or [[] for _ in range(7)]
    return CountersAnswer(
        columns=CounterColumns(**{key: sorted_columns[key] for key in CounterColumns.__struct_fields__}),
        matched=sum(bool(times) for times in references),
        metrics=Table(columns=MetricColumns(**dict(zip(MetricColumns.__struct_fields__, metrics, strict=True)))),
    )


def plain_name(name: str) -> str:
    """Return a kernel's name without return type, arguments and blanks, which tools write differently.

    `void at::add<float>(float const*, int)` becomes `at::add<float>`.
    """
    name = re.sub(r"^(void|static|__global__)\s+", "", name).replace("<unnamed>", _ANONYMOUS)
    name = re.sub(r"\s+", "", name)
    if name.endswith(")"):
        depth = 0
        for place in range(len(name) - 1, 0, -1):
            depth += {")": 1, "(": -1}.get(name[place], 0)
            if depth == 0:
                return name[:place]
    return name


def _times(trace: Trace) -> dict[str, tuple[int, int]]:
    """Return (calls, ns) of the kernels by plain name."""
    rows = np.flatnonzero(is_kernel(trace))
    groups = group(trace.events.name[rows])
    texts = name_texts(trace, trace.events.name[rows][groups.first])
    totals: list[int] = groups.sum(trace.events.dur[rows]).tolist()
    times = dict[str, tuple[int, int]]()
    for text, count, total in zip(texts, groups.count.tolist(), totals, strict=True):
        previous = times.get(plain_name(text), (0, 0))
        times[plain_name(text)] = previous[0] + count, previous[1] + total
    return times


def _measured(trace: Trace) -> Ids:
    """Return the rows of the kernels with metrics, ascending."""
    wanted = np.zeros(len(trace.events), bool)
    for name, column in trace.args.items():
        if name.startswith(METRIC_PREFIX):
            wanted[column.events] = True
    return np.flatnonzero(wanted).astype(np.int32)


def _kernels(trace: Trace) -> dict[str, list[str | int | float | None]]:
    """Return the columns of one file."""
    rows = _measured(trace)
    groups = group(trace.events.name[rows])
    texts = name_texts(trace, trace.events.name[rows][groups.first])
    dur = np.where(trace.events.dur[rows] >= 0, trace.events.dur[rows], np.nan)
    figures: dict[str, Floats] = {"mean_ns": groups.mean(dur, np.ones(len(rows)))}
    for name in _RATIOS:
        figures[f"{name}_ratio"] = _mean(trace, groups, rows, name)
    figures["registers_per_thread"] = _mean(trace, groups, rows, "registers")
    figures["shared_memory_bytes"] = _mean(trace, groups, rows, "shared_memory")
    figures["waves_per_sm"] = _mean(trace, groups, rows, "waves_per_sm")
    return {
        "name": [*texts],
        "launches": [*groups.count.tolist()],
        **{key: [None if np.isnan(v) else v for v in values.tolist()] for key, values in figures.items()},
    }


def _mean(trace: Trace, groups: Groups, rows: Ids, name: str) -> Floats:
    return groups.mean(trace.arg(name, rows, np.nan).astype(np.float64), np.ones(len(rows)))


def _lines(trace: Trace) -> list[tuple[str, str | None, str, str | None, float, float, float]]:
    """Return (kernel, section, name, unit, mean, minimum, maximum) of each metric, kernel by kernel."""
    lines: list[tuple[int, tuple[str, str | None, str, str | None, float, float, float]]] = []
    for key, column in trace.args.items():
        if not key.startswith(METRIC_PREFIX):
            continue
        section, name, unit = key.removeprefix(METRIC_PREFIX).split("\t")
        ids = trace.events.name[column.events]
        values: Floats = column.values.astype(np.float64)
        groups = group(ids)
        mean = groups.mean(values, np.ones(len(values)))
        for place, first in enumerate(groups.first.tolist()):
            rows: Ints = np.flatnonzero(groups.ids == place)
            figures = float(mean[place]), float(values[rows].min()), float(values[rows].max())
            kernel = trace.strings[int(ids[first])]
            lines.append((int(column.events[first]), (kernel, section or None, name, unit or None, *figures)))
    return [line for _, line in sorted(lines, key=lambda line: line[0])]


VIEW = RunView(
    "counters",
    33,
    needs,
    Params,
    compute,
    map=counters_part,
    has_data=lambda part: part.measured,
    empty_hint=msg(
        "views.needs_metrics_kernels_nsight", "it needs metrics of kernels, as Nsight Compute measures them"
    ),
)
