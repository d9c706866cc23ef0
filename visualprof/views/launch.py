"""Launch overhead: launching calls, launch delays and queue depths of streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np

from visualprof.reader.trace import Ints, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, Table
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.timing import sort_columns
from visualprof.views.measure.devices.gaps import WorkSequence, work_sequences
from visualprof.views.measure.devices.queues import MAX_QUEUED_LAUNCHES, LaunchQueue, launch_queue
from visualprof.views.measure.launches.launch import device_calls, is_operator, launch_delays
from visualprof.views.measure.steps.windows import is_in_step

BINS_NS = 10.0 ** np.arange(2, 9.01, 1 / 3)  # ns


@dataclass(frozen=True)
class LaunchParams(Params):
    """Parameters of the view.

    Attributes:
        slow_call_ns: Longer calls are counted as slow.
        late_ns: Work with a longer launch delay is counted as late.
    """

    slow_call_ns: Annotated[int, msgspec.Meta(ge=0)] = 50_000
    late_ns: Annotated[int, msgspec.Meta(ge=0)] = 100_000


class LaunchColumns(Columns):
    """Launches by name and operator.

    Attributes:
        name: Name of the work; of the call if it launches several work items, as a captured graph does.
        work: Mean number of device work items per launch.
        call_ns: Mean duration of the call.
        work_ns: Mean duration of the work.
        launch_delay_ns: Mean time from the end of the call to the start of its first work; of those that are known.
        short: Launches whose work is shorter than the call.
        slow_calls: Calls longer than the parameter.
        late: Launches with a longer delay than the parameter.
        queued: Mean queue depth at launch, including this launch.
        max_queued: Largest queue depth at launch.
    """

    name: kinds.NameColumn
    operator: kinds.NameColumn
    launches: kinds.CountColumn
    work: kinds.CountColumn
    call_ns: kinds.DurationColumn
    work_ns: kinds.DurationColumn
    launch_delay_ns: kinds.DurationColumn
    max_launch_delay_ns: kinds.DurationColumn
    short: kinds.CountColumn
    slow_calls: kinds.CountColumn
    late: kinds.CountColumn
    queued: kinds.CountColumn
    max_queued: kinds.CountColumn


class QueueColumns(Columns):
    """Streams.

    Attributes:
        queued: Mean queue depth from the first launch to the start of the last work.
        full_ns: Time with a queue depth of at least 1,024.
    """

    device: kinds.IdentifierColumn
    stream: kinds.NameColumn
    launches: kinds.CountColumn
    queued: kinds.CountColumn
    max_queued: kinds.CountColumn
    full_ns: kinds.DurationColumn


class SpreadColumns(Columns):
    """Histogram of durations: rows with delays, calls and work of at least `from_ns` and less than the next row."""

    from_ns: kinds.DurationColumn
    delays: kinds.CountColumn
    calls: kinds.CountColumn
    work: kinds.CountColumn


class LaunchAnswer(Table[LaunchColumns]):
    """Launches.

    Attributes:
        call_ns: Sum over all launches.
        work_ns: Sum over all launches.
        launch_delay_ns: Sum over all launches; `None` if some are unknown.
    """

    launches: kinds.Count
    short: kinds.Count
    call_ns: kinds.Duration
    work_ns: kinds.Duration
    launch_delay_ns: kinds.Duration | None
    streams: Table[QueueColumns]
    spread: Table[SpreadColumns]


def needs(trace: Trace) -> bool:
    """Whether the trace has device work with a known launch."""
    return bool((device_calls(trace)[1] >= 0).any())


def compute(trace: Trace, params: LaunchParams) -> LaunchAnswer:
    """Return launches by name and operator, the longest work first.

    Source: HTA's launch statistics and queue length, docs/views/launch.md
    """
    events = trace.events
    streams = [(lane, launch_queue(trace, lane)) for lane in work_sequences(trace) if lane.track >= 0]
    inside = is_in_step(trace, params.step)
    parts = [np.flatnonzero(inside[queued.work]) for _, queued in streams]
    call, work, depth, pieces, work_ns = (
        np.concatenate([getattr(queued, key)[at] for (_, queued), at in zip(streams, parts, strict=True)])
        for key in ("call", "work", "depth", "work_count", "work_ns")
    )
    call_ns, delay = np.maximum(events.dur[call], 0), launch_delays(trace, call, work)
    owner = nearest_ancestor(events.parent, is_operator(trace), call)
    name = np.where(pieces == 1, events.name[work], events.name[call])
    operator = np.where(owner >= 0, events.name[owner], 0)
    groups = group(name, operator)
    flags = {"short": work_ns < call_ns, "slow_calls": call_ns > params.slow_call_ns}
    late = delay > params.late_ns
    means = {"work": pieces, "call_ns": call_ns, "work_ns": work_ns, "queued": depth}
    mean_delay = groups.mean(delay, np.ones(len(delay)))
    max_delay = groups.max(np.where(np.isnan(delay), -1, delay).astype(np.int64)).astype(np.float64)
    columns: dict[str, Column] = {
        "name": [trace.strings[int(i)] for i in name[groups.first]],
        "operator": [trace.strings[int(i)] or None for i in operator[groups.first]],
        "launches": groups.count,
        **{key: groups.sum(values) / groups.count for key, values in means.items()},
        **{key: groups.sum(values) for key, values in flags.items()},
        "late": [None if np.isnan(mean) else int(n) for mean, n in zip(mean_delay, groups.sum(late), strict=True)],
        "launch_delay_ns": mean_delay,
        "max_launch_delay_ns": np.where(max_delay < 0, np.nan, max_delay),
        "max_queued": groups.max(depth),
        "total_ns": groups.sum(work_ns),
    }
    sorted_columns = sort_columns(columns, "total_ns")
    return LaunchAnswer(
        columns=LaunchColumns(**{key: sorted_columns[key] for key in LaunchColumns.__struct_fields__}),
        launches=len(call),
        short=int(flags["short"].sum()),
        call_ns=int(call_ns.sum()),
        work_ns=int(work_ns.sum()),
        launch_delay_ns=None if np.isnan(delay).any() else int(delay.sum()),
        streams=Table(columns=_streams(trace, streams)),
        spread=Table(columns=_spread(delay[~np.isnan(delay)].astype(np.int64), call_ns, work_ns)),
    )


def make_charts(result: LaunchAnswer, params: LaunchParams, top: int) -> dict[str, charts.Option]:
    """Return the chart `spread`: histograms of the delays, calls and launched work."""
    spread = result.spread.columns
    bars = [(f"@t:idle.spread.{key}", getattr(spread, key)) for key in ("delays", "calls", "work")]
    return {"spread": charts.bars([_time(ns) for ns in spread.from_ns], bars, unit="count", stack=False)}


def _streams(trace: Trace, streams: list[tuple[WorkSequence, LaunchQueue]]) -> QueueColumns:
    rows = [(lane, queued) for lane, queued in streams if len(queued.call)]
    spans = [np.diff(queued.ts) for _, queued in rows]
    return QueueColumns(
        device=[lane.device for lane, _ in rows],
        stream=[lane.stream_name(trace) for lane, _ in rows],
        launches=[len(queued.call) for _, queued in rows],
        queued=[
            float((queued.length[:-1] * span).sum() / max(int(span.sum()), 1))
            for (_, queued), span in zip(rows, spans, strict=True)
        ],
        max_queued=[int(queued.length.max()) for _, queued in rows],
        full_ns=[
            int(span[queued.length[:-1] >= MAX_QUEUED_LAUNCHES].sum())
            for (_, queued), span in zip(rows, spans, strict=True)
        ],
    )


def _spread(*lengths: Ints) -> SpreadColumns:
    """Return counts by duration, three rows per decade, from the shortest to the longest."""
    counts = [
        np.bincount(np.searchsorted(BINS_NS, values, side="right"), minlength=len(BINS_NS) + 1) for values in lengths
    ]
    some = np.flatnonzero(np.sum(counts, axis=0))
    rows = slice(int(some[0]), int(some[-1]) + 1) if len(some) else slice(0, 0)
    starts = np.round(np.append(0, BINS_NS)).astype(np.int64)
    return SpreadColumns(
        from_ns=starts[rows], **{k: c[rows] for k, c in zip(("delays", "calls", "work"), counts, strict=True)}
    )


def _time(ns: int) -> str:
    """Format a duration: 215443 as `215 µs`."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns} ns"


VIEW = View("launch", 46, needs, LaunchParams, compute, make_charts)
