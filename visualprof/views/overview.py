"""Overview: parts of the mean step, device utilization, stages and annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ints, Mask, Trace
from visualprof.reader.trace.serving import Phase
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Answer, Columns, Table, from_rows, take_rows
from visualprof.views.measure.columns.intervals import span_length
from visualprof.views.measure.columns.timing import duration_columns, sort_columns
from visualprof.views.measure.devices.pressure import cpu_pressure
from visualprof.views.measure.devices.utilization import DeviceSummary, device_summaries
from visualprof.views.measure.launches.device_work import busy_devices
from visualprof.views.measure.launches.launch import launches
from visualprof.views.measure.operators.annotations import AnnotationColumns, annotation_times
from visualprof.views.measure.steps.extents import are_concurrent
from visualprof.views.measure.steps.parts import STEP_PARTS, has_step_work, step_breakdown
from visualprof.views.measure.steps.stage_events import StageEventColumns, stage_events
from visualprof.views.measure.steps.stage_times import stage_times
from visualprof.views.measure.steps.stage_totals import StageColumns, stage_totals
from visualprof.views.measure.steps.stages import STAGES, Stage, find_stages, unknown_stages
from visualprof.views.measure.steps.step_time import step_time_ns, typical_steps
from visualprof.views.measure.steps.windows import (
    CategorySpans,
    DroppedStep,
    StepWindows,
    category_spans,
    is_in_step,
    step_windows,
)


class StepColumns(Columns):
    """Parts of each step.

    Attributes:
        host_ns: Duration of the step annotation, without the device work after it.
        phase: Phase of a server's step: prefill, decode, ...
    """

    name: kinds.WordColumn
    phase: kinds.WordColumn
    total_ns: kinds.DurationColumn
    host_ns: kinds.DurationColumn
    kernel_ns: kinds.DurationColumn
    memcpy_ns: kinds.DurationColumn
    memset_ns: kinds.DurationColumn
    communication_ns: kinds.DurationColumn
    runtime_ns: kinds.DurationColumn
    dataloader_ns: kinds.DurationColumn
    cpu_ns: kinds.DurationColumn
    other_ns: kinds.DurationColumn


class AverageStep(msgspec.Struct):
    """Mean over the steps; for servers, over the steps of the phase with the most time."""

    name: str
    phase: kinds.Word | None
    total_ns: kinds.Duration
    kernel_ns: kinds.Duration
    memcpy_ns: kinds.Duration
    memset_ns: kinds.Duration
    communication_ns: kinds.Duration
    runtime_ns: kinds.Duration
    dataloader_ns: kinds.Duration
    cpu_ns: kinds.Duration
    other_ns: kinds.Duration


class DeviceStepColumns(Columns):
    """Mean over the steps for each device that computes or communicates; empty if none does.

    `average_step` is that of the main device.
    """

    device: kinds.IdentifierColumn
    total_ns: kinds.DurationColumn
    kernel_ns: kinds.DurationColumn
    memcpy_ns: kinds.DurationColumn
    memset_ns: kinds.DurationColumn
    communication_ns: kinds.DurationColumn
    runtime_ns: kinds.DurationColumn
    dataloader_ns: kinds.DurationColumn
    cpu_ns: kinds.DurationColumn
    other_ns: kinds.DurationColumn


class Headline(msgspec.Struct):
    """The most important numbers. Step times cover the phase of the average step.

    Attributes:
        step_median_ns: The step time: the median of the typical steps.
        step_least_ns: Shortest step time of all steps.
        step_most_ns: Longest step time of all steps.
        typical_steps: Number of typical steps.
        steps_per_s: Steps over the time from the first to the last if threads run steps at the same time, else
            1 / median; None if steps have phases, which alternate.
        cpu_pressure_ratio: Share of the recording in which some task of the machine waited for a CPU.
    """

    step_median_ns: kinds.Duration | None
    step_least_ns: kinds.Duration | None
    step_most_ns: kinds.Duration | None
    typical_steps: kinds.Count | None
    steps_per_s: kinds.Number | None
    cpu_pressure_ratio: kinds.Ratio | None


class StageSteps(Columns):
    """Time of each step by the stage that launched the work. The stages add up to the step."""

    name: kinds.WordColumn
    dataloader_ns: kinds.DurationColumn
    forward_ns: kinds.DurationColumn
    backward_ns: kinds.DurationColumn
    optimizer_ns: kinds.DurationColumn
    other_ns: kinds.DurationColumn


class EventColumns(Columns):
    """Events by category, separately for host and device.

    Attributes:
        total_ns: Union of their time.
        sum_ns: Sum of their durations.
    """

    category: kinds.WordColumn
    track_kind: kinds.WordColumn
    calls: kinds.CountColumn
    total_ns: kinds.DurationColumn
    sum_ns: kinds.DurationColumn
    mean_ns: kinds.DurationColumn
    max_ns: kinds.DurationColumn
    min_ns: kinds.DurationColumn


class Environment(msgspec.Struct):
    """Environment of the recording, according to the file."""

    framework: kinds.Word
    format: kinds.Word
    producer: str
    host: str
    rank: kinds.Identifier | None
    world_size: kinds.Count | None
    device_type: kinds.Word
    device_work: Literal["kernel", "operator"]
    events: kinds.Count
    duration_ns: kinds.Duration
    steps: kinds.Count
    stages_derived: list[str]
    stages_unknown: list[str]
    process_cpu_ratio: kinds.Ratio | None
    system_cpu_ratio: kinds.Ratio | None


class OverviewAnswer(Answer):
    """Summary of a file."""

    headline: Headline
    steps: StepColumns
    dropped_steps: list[DroppedStep]
    average_step: AverageStep
    average_step_by_device: Table[DeviceStepColumns]
    devices: list[DeviceSummary]
    stages: Table[StageColumns]
    stage_steps: StageSteps
    events: Table[EventColumns]
    stage_events: Table[StageEventColumns]
    annotations: Table[AnnotationColumns]
    environment: Environment


def compute(trace: Trace, params: Params) -> OverviewAnswer:
    """Return everything that the page shows; `step` restricts stages, events and annotations.

    Source: docs/views/overview.md
    """
    windows = step_windows(trace)
    inside = is_in_step(trace, params.step)
    parts = step_breakdown(trace, windows)
    total = windows.end - windows.start
    filled: dict[str, Ints] = {"total_ns": total, **{f"{p}_ns": parts[p] for p in STEP_PARTS}}
    phase, alike = windows.main_phase()
    average = {k: float(np.mean(v[alike])) if alike.any() else 0.0 for k, v in filled.items()}
    joined = launches(trace)
    devices = device_summaries(trace, windows)
    stages = find_stages(trace)
    shown = windows.select_step(params.step) if params.step else windows
    by_stage: dict[str, Column] = {**stage_times(trace, windows, stages, joined)}
    if unknown := unknown_stages(trace):
        by_stage |= dict.fromkeys((*unknown, "other"), [None] * len(windows))
    return OverviewAnswer(
        headline=_headline(trace, windows, total[alike], phase),
        steps=StepColumns(
            name=list(windows.names),
            phase=list(windows.phases),
            host_ns=windows.host_spans[:, 1] - windows.host_spans[:, 0],
            **filled,
        ),
        dropped_steps=list(windows.dropped),
        average_step=AverageStep("average", phase, **{k: round(v) for k, v in average.items()}),
        average_step_by_device=Table(columns=_average_by_device(trace, windows, alike)),
        devices=devices,
        stages=Table(columns=stage_totals(trace, shown, stages, joined)),
        stage_steps=StageSteps(name=list(windows.names), **{f"{name}_ns": v for name, v in by_stage.items()}),
        events=Table(columns=_events(trace, category_spans(trace, inside))),
        stage_events=Table(columns=stage_events(trace, shown, stages, joined)),
        annotations=Table(columns=annotation_times(trace, inside, joined)),
        environment=_environment(trace, stages),
    )


def _average_by_device(trace: Trace, windows: StepWindows, alike: Mask) -> DeviceStepColumns:
    """Return the mean step of each device over some of the steps."""
    rows: list[tuple[int, ...]] = []
    total = (windows.end - windows.start)[alike]
    for device in busy_devices(trace) if alike.any() else ():
        parts = step_breakdown(trace, windows, device)
        means = (total, *(parts[part][alike] for part in STEP_PARTS))
        rows.append((device, *(round(float(np.mean(values))) for values in means)))
    return from_rows(DeviceStepColumns, rows)


def _steps_per_s(trace: Trace, windows: StepWindows, median_ns: int) -> float:
    """Return the throughput: count over span if threads run steps at the same time, else 1 / median."""
    if not are_concurrent(trace):
        return 1e9 / median_ns
    return len(windows) / int(windows.end.max() - windows.start.min()) * 1e9


def _headline(trace: Trace, windows: StepWindows, total: Ints, phase: Phase | None) -> Headline:
    steps, step_ns = total[total > 0] if len(trace.steps) else total[:0], step_time_ns(trace)
    median = None if step_ns is None else round(step_ns)
    return Headline(
        step_median_ns=median,
        step_least_ns=int(steps.min()) if len(steps) else None,
        step_most_ns=int(steps.max()) if len(steps) else None,
        typical_steps=int(typical_steps(trace).sum()) if len(trace.steps) else None,
        steps_per_s=_steps_per_s(trace, windows, median) if median and phase is None else None,
        cpu_pressure_ratio=cpu_pressure(trace),
    )


def make_charts(result: OverviewAnswer, params: Params, top: int) -> dict[str, charts.Option]:
    """Return the charts with data of `average_step`, `steps`, `stages`, `events` and `stage_events`."""
    steps, stages, events = result.steps, result.stage_steps, result.events.columns
    used = {p: column for p in STEP_PARTS if np.any(column := getattr(steps, f"{p}_ns"))}
    average = [(f"@t:part.{p}", getattr(result.average_step, f"{p}_ns")) for p in used]
    out = {
        "average_step": charts.pie(average, colors=True),
        "steps": charts.bars(steps.name, [(f"@t:part.{p}", column) for p, column in used.items()]),
    }
    used_stages = {s: column for s in (*STAGES, "other") if np.any(column := getattr(stages, f"{s}_ns"))}
    derived = result.environment.stages_derived
    tokens = {s: f"@t:{'derived' if s in derived else 'stage'}.{s}" for s in (*STAGES, "other")}
    if used_stages.keys() - {"other"}:
        out["stages"] = charts.bars(stages.name, [(tokens[s], column) for s, column in used_stages.items()])
    # Sessions are left out: the recording itself and runtime sessions contain all other events.
    rows = zip(events.category, events.track_kind, events.total_ns, strict=True)
    spent = {(category, side): ns for category, side, ns in rows if category != "session"}
    if spent:
        out["events"] = charts.bars(_sides(spent), [("@t:metric.total_ns", list(spent.values()))], stack=False)
    if len(result.stage_events):
        out["stage_events"] = _stage_event_chart(result.stage_events.columns, tokens)
    return out


def _stage_event_chart(table: StageEventColumns, tokens: dict[str, str]) -> charts.Option:
    """Return the chart of the time by category and stage, separately for host and device."""
    keys = list(zip(table.category, table.track_kind, strict=True))
    places = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    spent = {stage: [0] * len(places) for stage in tokens if stage in table.stage}
    for key, stage, ns in zip(keys, table.stage, table.total_ns, strict=True):
        spent[stage][places[key]] = int(ns)
    return charts.bars(_sides(places), [(tokens[stage], times) for stage, times in spent.items()])


def _sides(keys: Collection[tuple[str, str]]) -> list[str]:
    """Return labels of (category, side). The side is named if a category has both."""
    twice = Counter(category for category, _ in keys)
    return [f"@t:category.{name}{f'|{side}' if twice[name] > 1 else ''}" for name, side in keys]


def _events(trace: Trace, ran: CategorySpans) -> EventColumns:
    """Return events by category, separately for host and device: calls, union and sum of time.

    Steps have a table of their own. torch's session is the recording itself, not work.
    """
    marks = {Category.STEP, Category.SESSION} if trace.meta.format == "kineto" else {Category.STEP}
    timed = duration_columns(trace, ran.rows, ran.groups)
    columns: dict[str, Column] = {
        "category": [category.name.lower() for category, _ in ran.keys],
        "track_kind": ["device" if on_device else "host" for _, on_device in ran.keys],
        "calls": timed["calls"],
        "total_ns": np.array([span_length(spans) for spans in ran.spans], np.int64),
        "sum_ns": timed["total_ns"],
        **{k: timed[k] for k in ("mean_ns", "max_ns", "min_ns")},
    }
    shown = np.array([i for i, (category, _) in enumerate(ran.keys) if category not in marks], np.int64)
    return EventColumns(
        **sort_columns({name: take_rows(column, shown) for name, column in columns.items()}, "total_ns")
    )


def _environment(trace: Trace, stages: dict[str, Stage]) -> Environment:
    meta, (start, end) = trace.meta, trace.span_ns
    return Environment(
        framework=meta.framework,
        format=meta.format,
        producer=meta.producer,
        host=meta.host,
        rank=meta.rank if meta.rank >= 0 else None,
        world_size=meta.world_size if meta.world_size >= 0 else None,
        device_type=meta.device_type,
        device_work="operator" if meta.device_work == "operator" else "kernel",
        events=len(trace.events),
        duration_ns=end - start,
        steps=len(trace.steps),
        stages_derived=[name for name, stage in stages.items() if stage.derived],
        stages_unknown=list(unknown_stages(trace)),
        process_cpu_ratio=meta.process_cpu_ratio if meta.process_cpu_ratio >= 0 else None,
        system_cpu_ratio=meta.system_cpu_ratio if meta.system_cpu_ratio >= 0 else None,
    )


VIEW = View("overview", 10, has_step_work, Params, compute, make_charts)
