"""One point of a report.

Shows its latencies and their course over time, the state of the machine, and a profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np

from visualprof.reader.results.points import PERCENTILES, Point
from visualprof.reader.results.report import Report
from visualprof.reader.trace import Floats, Ints, Rows, Trace, TrackKind
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns
from visualprof.views.measure.columns.groups import distinct, group
from visualprof.views.measure.columns.timing import call_columns, name_texts, sort_columns
from visualprof.views.measure.launches.launch import is_api_call, is_kernel, is_operator, launches, operator_times
from visualprof.views.measure.reports.best_points import tail_latency
from visualprof.views.measure.reports.evaluation import MARGIN_FIELDS, confidence_margin
from visualprof.views.measure.reports.loads import cost_per_million, energy_per_million
from visualprof.views.measure.reports.verdicts import Verdict, find_verdicts

HISTOGRAM_BINS = 80
MIN_LOG_SPREAD = 2  # if the longest run takes more times the shortest, bins have equal ratios instead of equal widths
MAX_INTERVALS = 600
MAX_SLICES = 12
OPTIONAL_FIELDS = ("precision", "threads", "reason", "error", "hint", "started_ns")  # reports store "" or 0 for unknown


def histogram_chart(latencies: Ints, point: Point) -> charts.Option:
    """Return the histogram of the latencies, with the trusted percentiles marked.

    Args:
        latencies: (n,) ns.
        point: The point.
    """
    if not len(latencies):
        return {}
    count, edges = latency_histogram(latencies)
    option: dict[str, Any] = charts.lines([("@t:evaluation.runs", edges, np.append(count, 0))], ("ns", "count"))
    percentile_lines = [
        {"name": f"p{percent:g}", "xAxis": value}
        for name, percent in PERCENTILES
        if (value := getattr(point, name)) is not None
    ]
    option["series"][0] |= {"areaStyle": {"opacity": 0.5}, "markLine": {"data": percentile_lines}}
    if edges[-1] / edges[0] > MIN_LOG_SPREAD:
        option["xAxis"] |= {"type": "log"}
    return option


def latency_histogram(latencies: Ints) -> tuple[Ints, Floats]:
    """Return the counts and their n + 1 edges in ns; edges have equal ratios if latencies vary widely."""
    low, high = max(1, int(latencies.min())), max(2, int(latencies.max()))
    if high <= low:
        low, high = low - 1, low + 1
    is_wide = low > 0 and high / low > MIN_LOG_SPREAD
    edges = np.geomspace(low, high, HISTOGRAM_BINS + 1) if is_wide else np.linspace(low, high, HISTOGRAM_BINS + 1)
    edges[-1] = high  # rounding must not exclude the longest run
    return np.histogram(np.clip(latencies, low, high), edges)[0].astype(np.int64), edges


def latency_chart(latencies: Ints, duration_ns: int | None) -> charts.Option:
    """Return the shortest, median and longest run of each interval of the measurement, so that drift is visible.

    Times are the runs added up, scaled to the whole duration, which includes the overhead of the
    loop.
    """
    if not len(latencies):
        return {}
    time, shortest, median, longest = run_intervals(latencies)
    total = int(latencies.sum())
    time = time * (duration_ns / total) if duration_ns and total else time
    curves = (("max", longest), ("median", median), ("min", shortest))
    return charts.lines([(f"@t:evaluation.{name}", time, values) for name, values in curves], ("ns", "ns"), steps=False)


def run_intervals(latencies: Ints) -> tuple[Floats, Ints, Floats, Ints]:
    """Return the start, shortest, median and longest run of at most 600 intervals.

    Intervals contain equally many runs; starts are in ns since the first run.
    """
    count = len(latencies)
    first = distinct(np.linspace(0, count, min(count, MAX_INTERVALS), endpoint=False).astype(np.int64))
    start = (np.cumsum(latencies) - latencies)[first].astype(np.float64)
    median = np.array([np.median(part) for part in np.split(latencies, first[1:])], np.float64)
    return start, np.minimum.reduceat(latencies, first), median, np.maximum.reduceat(latencies, first)


def measurement_window(point: Point) -> tuple[int, int] | None:
    """Return the start and end of the measurement in epoch ns; `None` if the file does not record them."""
    if point.start_ns and point.end_ns and point.end_ns > point.start_ns:
        return point.start_ns, point.end_ns
    return None


def machine_charts(monitor: Trace, start_ns: int, end_ns: int) -> dict[str, charts.Option]:
    """Return the counters of the machine during the measurement, if they have samples.

    The charts are `monitor` (shares) and `clocks` (MHz).
    """
    shares = _counters(monitor, " %", start_ns, end_ns, 0.01)
    clocks = _counters(monitor, " MHz", start_ns, end_ns, 1.0)
    options: dict[str, Any] = {}
    if shares:
        options["monitor"] = charts.lines(shares, ("ns", "ratio"), steps=False)
    if clocks:
        options["clocks"] = charts.lines(clocks, ("ns", "count"), steps=False)
    return options


def _counters(trace: Trace, unit: str, start: int, end: int, factor: float) -> list[tuple[str, Ints, Floats]]:
    """Return the counters of a unit with their samples in a window."""
    counters: list[tuple[str, Ints, Floats]] = []
    for track_number, track in enumerate(trace.tracks):
        if track.kind is not TrackKind.COUNTER or not track.name.endswith(unit):
            continue
        first, stop = np.searchsorted(trace.counters.track, [track_number, track_number + 1])
        ts, value = trace.counters.ts[first:stop], trace.counters.value[first:stop] * factor
        inside = (ts >= start) & (ts <= end)
        if inside.any():
            counters.append((track.name.removesuffix(unit), ts[inside] - start, value[inside]))
    return counters


class WorkColumns(Columns):
    """Time of a profile pass by name, the largest total first."""

    name: kinds.NameColumn
    calls: kinds.CountColumn
    total_ns: kinds.DurationColumn


def work_columns(trace: Trace) -> tuple[str, WorkColumns | None]:
    """Return what the rows are, and where the profile's time went.

    The rows are kernels if there are any, otherwise host operators by `type`, or by name
    (`operator`). For operators, the time is self time.
    """
    kernels = np.flatnonzero(is_kernel(trace))
    if len(kernels):
        return trace.meta.device_work, _columns_by_name(trace, kernels)
    if not is_operator(trace).any():
        return "", None
    times = operator_times(trace, launches(trace))
    has_types = "type" in trace.args
    key = np.maximum(
        trace.arg("type", times.rows, 0).astype(np.int64) if has_types else trace.events.name[times.rows], 0
    )
    groups = group(key)
    columns: dict[str, Column] = {
        "name": name_texts(trace, key[groups.first]),
        "calls": groups.count,
        "total_ns": groups.sum(times.host_self),
    }
    return "type" if has_types else "operator", WorkColumns(**sort_columns(columns, "total_ns"))


def api_call_columns(trace: Trace) -> WorkColumns | None:
    """Return the calls of the device API, `None` without such calls."""
    rows = np.flatnonzero(is_api_call(trace))
    return _columns_by_name(trace, rows) if len(rows) else None


def _columns_by_name(trace: Trace, rows: Rows) -> WorkColumns:
    """Return events by name."""
    calls = call_columns(trace, rows)
    return WorkColumns(name=calls.name, calls=calls.calls, total_ns=calls.total_ns)


def share_chart(columns: WorkColumns) -> charts.Option:
    """Return the largest totals as a pie chart."""
    slices: Sequence[tuple[str, float]] = list(zip(columns.name, columns.total_ns, strict=True))
    return charts.pie(slices, top=MAX_SLICES)


class RepeatColumns(Columns):
    """The repeats of a point in their order, each measured in its own process."""

    start_ns: kinds.Column
    samples_per_s: kinds.CountColumn
    qps: kinds.CountColumn
    mean_ns: kinds.DurationColumn
    p50_ns: kinds.DurationColumn
    p99_ns: kinds.DurationColumn
    stable: kinds.FlagColumn
    host_busy: kinds.FlagColumn


class PointFacts(msgspec.Struct):
    """A point and how it was measured; null where the files do not record a value.

    Attributes:
        tail_percentile: Highest percentile that the number of runs allows.
        tail_ns: Latency at that percentile.
        limit_tail_ns: Latency at the percentile of the load's limit.
        limit_bound_ns: Upper bound of `limit_tail_ns` with 99 % confidence.
        effective: Configuration that really ran, as reported by the runtime.
        started_ns: Unix time; so are `start_ns` and `end_ns`.
        repeats: Null for a point that was measured once; otherwise the numbers of the point are
            means over these repeats.
        samples_per_s_margin: Half of the 95 % confidence interval. The other margins are like this
            one.
    """

    batch: kinds.Count
    n: kinds.Count
    duration_ns: kinds.Duration | None
    load_ns: kinds.Duration | None
    first_ns: kinds.Duration | None
    warmup_n: kinds.Count | None
    qps: kinds.Number | None
    samples_per_s: kinds.Number | None
    whole_samples_per_s: kinds.Number | None
    mean_ns: kinds.Duration | None
    min_ns: kinds.Duration | None
    max_ns: kinds.Duration | None
    p50_ns: kinds.Duration | None
    p90_ns: kinds.Duration | None
    p95_ns: kinds.Duration | None
    p99_ns: kinds.Duration | None
    p999_ns: kinds.Duration | None
    trusted: tuple[float, ...]
    iqr_ns: kinds.Duration | None
    window_p50_ns: tuple[int, ...]
    stable: bool | None
    involuntary_switches: kinds.Count | None
    pressure: kinds.Ratio | None
    host_busy: bool | None
    rss_bytes: kinds.Size | None
    gpu_memory_bytes: kinds.Size | None
    energy_j_per_sample: kinds.Energy | None
    energy_j_per_million: kinds.Energy | None
    cost_per_million: kinds.Number | None
    scenario: str | None
    concurrency: kinds.Count | None
    offered_per_s: kinds.Number | None
    unserved: kinds.Count | None
    limit_ns: kinds.Duration | None
    limit_percentile: kinds.Number | None
    limit_tail_ns: kinds.Duration | None
    limit_bound_ns: kinds.Duration | None
    verdict: kinds.Word | None
    throttled: bool | None
    start_ns: int | None
    end_ns: int | None
    latencies: tuple[int, int] | None
    repeats: RepeatColumns | None
    samples_per_s_margin: kinds.Number | None
    p50_margin_ns: kinds.Duration | None
    p99_margin_ns: kinds.Duration | None
    tail_percentile: kinds.Count | None
    tail_ns: kinds.Duration | None
    precision: str | None
    threads: kinds.Count | None
    effective: dict[str, str]
    environment: dict[str, str]
    state: str
    reason: str | None
    error: str | None
    hint: str | None
    warnings: tuple[str, ...]
    started_ns: int | None
    verdicts: list[Verdict]
    runs_shown: kinds.Count
    kernels_are: str | None
    profile_batch: kinds.Count | None


def repeat_columns(point: Point) -> RepeatColumns | None:
    """Return the repeats of a point; `None` for a point that was measured once."""
    names = RepeatColumns.__struct_fields__
    columns = {name: [getattr(repeat, name) for repeat in point.repeats] for name in names}
    return RepeatColumns(**columns) if point.repeats else None


def point_facts(report: Report, point: Point, **measured: Any) -> PointFacts:
    """Return a point and how it was measured.

    Args:
        report: The report of the point.
        point: The point.
        measured: Fields that come from other files.
    """
    percentile, tail_ns = tail_latency(point) or (None, None)
    reported: dict[str, Any] = {name: getattr(report, name) or None for name in OPTIONAL_FIELDS}
    reported |= {
        "repeats": repeat_columns(point),
        **{name: confidence_margin(point.repeats, field) for name, field in MARGIN_FIELDS.items()},
    }
    load, step = point.load, point.load.step
    point_fields = {name: value for name, value in asdict(point).items() if name in PointFacts.__struct_fields__}
    return PointFacts(
        **{**point_fields, **reported, **measured},
        energy_j_per_million=energy_per_million(point),
        cost_per_million=cost_per_million(report, point),
        scenario=load.scenario or None,
        concurrency=step.concurrency,
        offered_per_s=step.offered_per_s,
        unserved=step.unserved,
        limit_ns=load.limit_ns,
        limit_percentile=load.percentile,
        limit_tail_ns=step.tail_ns,
        limit_bound_ns=step.tail_bound_ns,
        verdict=load.verdict or None,
        tail_percentile=percentile,
        tail_ns=tail_ns,
        effective=dict(report.effective),
        environment=dict(report.environment),
        state=report.state,
        warnings=report.warnings,
        verdicts=[verdict for verdict in find_verdicts([report]) if point.batch in verdict.batches],
    )
