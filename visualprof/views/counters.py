"""Kernels that Nsight Compute measured, beside what the other recordings of the run say of kernels of their name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from visualprof.reader.kernel_metrics import METRIC
from visualprof.reader.trace import Floats, Ids, Ints, Trace
from visualprof.views import Params, View
from visualprof.views.answers import kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, Table
from visualprof.views.measure.groups import Groups, group
from visualprof.views.measure.launch import is_kernel
from visualprof.views.measure.timing import names, ordered

_ANONYMOUS = "(anonymous namespace)"
_RATIOS = (
    "sm_throughput", "memory_throughput", "dram_throughput", "l2_throughput", "l1_throughput", "occupancy",
    "theoretical_occupancy",
)  # fmt: skip


class CounterColumns(Columns):
    """Kernels by name: means of all the launches that were measured.

    mean_ns: alone on the device, at the clock of Nsight Compute. throughputs: of the most that the hardware can.
    run_calls, run_total_ns, run_mean_ns: of kernels of that name in the other recordings of the run; None where there
    is no such recording.
    """

    name: kinds.Names
    launches: kinds.Counts
    mean_ns: kinds.Durations
    sm_throughput_ratio: kinds.Ratios
    memory_throughput_ratio: kinds.Ratios
    dram_throughput_ratio: kinds.Ratios
    l2_throughput_ratio: kinds.Ratios
    l1_throughput_ratio: kinds.Ratios
    occupancy_ratio: kinds.Ratios
    theoretical_occupancy_ratio: kinds.Ratios
    registers_per_thread: kinds.Counts
    shared_memory_bytes: kinds.Sizes
    waves_per_sm: kinds.Counts
    run_calls: kinds.Counts
    run_total_ns: kinds.Durations
    run_mean_ns: kinds.Durations


class MetricColumns(Columns):
    """Metrics as the files call them, by kernel, in the order of the files. value: mean of the launches."""

    kernel: kinds.Names
    section: kinds.Texts
    name: kinds.Texts
    unit: kinds.Words
    value: kinds.Counts
    least: kinds.Counts
    most: kinds.Counts


class CountersAnswer(Table[CounterColumns]):
    """Measured kernels. matched: how many of them another recording of the run has, too."""

    matched: kinds.Count
    metrics: Table[MetricColumns]


class _Beside(msgspec.Struct):
    """Kernels of a name in recordings that measure no counters."""

    calls: int = 0
    total_ns: int = 0


def needs(trace: Trace) -> bool:
    """At least one metric of a kernel."""
    return any(name.startswith(METRIC) for name in trace.args)


def compute(workers: Sequence[tuple[str, Trace]], params: Params) -> CountersAnswer:
    """Kernels, those that take the most time in the run first. Source: docs/views.md#counters."""
    del params
    beside: dict[str, _Beside] = {}
    measured = [trace for _, trace in workers if needs(trace)]
    for _, trace in workers:
        if not needs(trace):
            _add_times(beside, trace)
    parts = [_kernels(trace, beside) for trace in measured]
    columns: dict[str, Column] = {
        key: [value for part in parts for value in part[key]] for key in CounterColumns.__struct_fields__
    }
    calls = columns["run_calls"]
    columns["weight"] = [t or m or 0 for t, m in zip(columns["run_total_ns"], columns["mean_ns"], strict=True)]
    sorted_columns = ordered(columns, "weight")
    return CountersAnswer(
        columns=CounterColumns(**{key: sorted_columns[key] for key in CounterColumns.__struct_fields__}),
        matched=sum(bool(number) for number in calls),
        metrics=Table(columns=_metrics(measured)),
    )


def plain_name(name: str) -> str:
    """A kernel's name without its result, its arguments and blanks, as tools write them differently.

    `at::add<float>` of `void at::add<float>(float const*, int)`.
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


def _add_times(beside: dict[str, _Beside], trace: Trace) -> None:
    rows = np.flatnonzero(is_kernel(trace))
    groups = group(trace.events.name[rows])
    texts = names(trace, trace.events.name[rows][groups.first])
    totals = groups.sum(trace.events.dur[rows])
    for text, count, total in zip(texts, groups.count.tolist(), totals.tolist(), strict=True):
        known = beside.setdefault(plain_name(text), _Beside())
        known.calls += count
        known.total_ns += total


def _measured(trace: Trace) -> Ids:
    """Rows of the kernels with metrics, ascending."""
    wanted = np.zeros(len(trace.events), bool)
    for name, column in trace.args.items():
        if name.startswith(METRIC):
            wanted[column.events] = True
    return np.flatnonzero(wanted).astype(np.int32)


def _kernels(trace: Trace, beside: dict[str, _Beside]) -> dict[str, list[object]]:
    """The columns of one file."""
    rows = _measured(trace)
    groups = group(trace.events.name[rows])
    texts = names(trace, trace.events.name[rows][groups.first])
    there = [beside.get(plain_name(text)) for text in texts]
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
        "run_calls": [known.calls if known else 0 if beside else None for known in there],
        "run_total_ns": [known.total_ns if known else None for known in there],
        "run_mean_ns": [known.total_ns / known.calls if known else None for known in there],
    }


def _mean(trace: Trace, groups: Groups, rows: Ids, name: str) -> Floats:
    return groups.mean(trace.arg(name, rows, np.nan).astype(np.float64), np.ones(len(rows)))


def _metrics(measured: Sequence[Trace]) -> MetricColumns:
    """All metrics of all files; a loop over metrics, of which a report has a thousand."""
    found = [line for trace in measured for line in _lines(trace)]
    columns: list[list[object]] = [list(column) for column in zip(*found, strict=True)] or [[] for _ in range(7)]
    return MetricColumns(**dict(zip(MetricColumns.__struct_fields__, columns, strict=True)))


def _lines(trace: Trace) -> Iterator[tuple[object, ...]]:
    """Kernel, section, name, unit, mean, least and most of each metric, kernel by kernel."""
    lines: list[tuple[int, tuple[object, ...]]] = []
    for key, column in trace.args.items():
        if not key.startswith(METRIC):
            continue
        section, name, unit = key.removeprefix(METRIC).split("\t")
        ids = trace.events.name[column.events]
        values: Floats = column.values.astype(np.float64)
        groups = group(ids)
        mean = groups.mean(values, np.ones(len(values)))
        for place, first in enumerate(groups.first.tolist()):
            mine: Ints = np.flatnonzero(groups.of == place)
            line = (section or None, name, unit or None, mean[place], values[mine].min(), values[mine].max())
            lines.append((int(column.events[first]), (trace.strings[int(ids[first])], *line)))
    yield from (line for _, line in sorted(lines, key=lambda known: known[0]))


VIEW = View("counters", 33, needs, Params, compute, subject="run")
