"""One point of a report: its distribution, its course over time, the machine meanwhile, and where the time went."""

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
from visualprof.views.measure.best_points import tail_latency
from visualprof.views.measure.evaluation import MARGIN_FIELDS, Verdict, confidence_margin, find_verdicts
from visualprof.views.measure.groups import distinct, group
from visualprof.views.measure.launch import is_api_call, is_kernel, is_operator, launches, operator_times
from visualprof.views.measure.loads import cost_per_million, energy_per_million
from visualprof.views.measure.timing import call_columns, name_texts, sort_columns

HISTOGRAM_BINS = 80
MIN_LOG_SPREAD = 2  # the longest run takes so many times the shortest: bins of equal ratio, or it squeezes the others
MAX_INTERVALS = 600
MAX_SLICES = 12
OPTIONAL_FIELDS = ("precision", "threads", "reason", "error", "hint", "started_ns")  # of a report, which knows no None


def histogram_chart(latencies: Ints, point: Point) -> charts.Option:
    """How often a run took how long, the trusted percentiles marked.

    Args: latencies: (n,) ns.
    """
    if not len(latencies):
        return {}
    count, edges = latency_histogram(latencies)
    option: dict[str, Any] = charts.lines([("@t:evaluation.runs", edges, np.append(count, 0))], ("ns", "count"))
    marks = [
        {"name": f"p{percent:g}", "xAxis": value}
        for name, percent in PERCENTILES
        if (value := getattr(point, name)) is not None
    ]
    option["series"][0] |= {"areaStyle": {"opacity": 0.5}, "markLine": {"data": marks}}
    if edges[-1] / edges[0] > MIN_LOG_SPREAD:
        option["xAxis"] |= {"type": "log"}
    return option


def latency_histogram(latencies: Ints) -> tuple[Ints, Floats]:
    """Counts and their (n + 1) edges, ns: even steps, or even ratios where the runs spread far."""
    low, high = max(1, int(latencies.min())), max(2, int(latencies.max()))
    if high <= low:
        low, high = low - 1, low + 1
    far = low > 0 and high / low > MIN_LOG_SPREAD
    edges = np.geomspace(low, high, HISTOGRAM_BINS + 1) if far else np.linspace(low, high, HISTOGRAM_BINS + 1)
    edges[-1] = high  # rounding must not leave the longest run out
    return np.histogram(np.clip(latencies, low, high), edges)[0].astype(np.int64), edges


def latency_chart(latencies: Ints, duration_ns: int | None) -> charts.Option:
    """Shortest, median and longest run of each stretch of the measurement, so that drift shows.

    Times are those of the runs added up, stretched to the whole duration, which has the loop's own time in it.
    """
    if not len(latencies):
        return {}
    x, least, middle, most = run_intervals(latencies)
    whole = int(latencies.sum())
    x = x * (duration_ns / whole) if duration_ns and whole else x
    curves = (("max", most), ("median", middle), ("min", least))
    return charts.lines([(f"@t:evaluation.{name}", x, y) for name, y in curves], ("ns", "ns"), steps=False)


def run_intervals(latencies: Ints) -> tuple[Floats, Ints, Floats, Ints]:
    """Start (ns since the first run), shortest, median and longest of at most 600 stretches of equally many runs."""
    n = len(latencies)
    first = distinct(np.linspace(0, n, min(n, MAX_INTERVALS), endpoint=False).astype(np.int64))
    started = (np.cumsum(latencies) - latencies)[first].astype(np.float64)
    middle = np.array([np.median(part) for part in np.split(latencies, first[1:])], np.float64)
    return started, np.minimum.reduceat(latencies, first), middle, np.maximum.reduceat(latencies, first)


def measurement_window(point: Point) -> tuple[int, int] | None:
    """Epoch ns of the measurement; None where the file does not say."""
    if point.start_ns and point.end_ns and point.end_ns > point.start_ns:
        return point.start_ns, point.end_ns
    return None


def machine_charts(monitor: Trace, start_ns: int, end_ns: int) -> dict[str, charts.Option]:
    """The counters while the point was measured: `monitor` (shares) and `clocks` (MHz), those with samples."""
    shares = _counters(monitor, " %", start_ns, end_ns, 0.01)
    clocks = _counters(monitor, " MHz", start_ns, end_ns, 1.0)
    out: dict[str, Any] = {}
    if shares:
        out["monitor"] = charts.lines(shares, ("ns", "ratio"), steps=False)
    if clocks:
        out["clocks"] = charts.lines(clocks, ("ns", "count"), steps=False)
    return out


def _counters(trace: Trace, unit: str, start: int, end: int, factor: float) -> list[tuple[str, Ints, Floats]]:
    """Counters of a unit with their samples in a window; the last one before it holds at its start."""
    counters: list[tuple[str, Ints, Floats]] = []
    for number, track in enumerate(trace.tracks):
        if track.kind is not TrackKind.COUNTER or not track.name.endswith(unit):
            continue
        a, b = np.searchsorted(trace.counters.track, [number, number + 1])
        ts, value = trace.counters.ts[a:b], trace.counters.value[a:b] * factor
        inside = (ts >= start) & (ts <= end)
        if inside.any():
            counters.append((track.name.removesuffix(unit), ts[inside] - start, value[inside]))
    return counters


class WorkColumns(Columns):
    """Where the time of a profile pass went, the largest total first."""

    name: kinds.NameColumn
    calls: kinds.CountColumn
    total_ns: kinds.DurationColumn


def work_columns(trace: Trace) -> tuple[str, WorkColumns | None]:
    """Where the profile's time went: `kernel`s, or else the host's operators by `type`, by name (`operator`) at last.

    Of operators the time is their own, without those inside.
    """
    kernels = np.flatnonzero(is_kernel(trace))
    if len(kernels):
        return trace.meta.device_work, _by_name(trace, kernels)
    if not is_operator(trace).any():
        return "", None
    times = operator_times(trace, launches(trace))
    typed = "type" in trace.args
    key = np.maximum(trace.arg("type", times.rows, 0).astype(np.int64) if typed else trace.events.name[times.rows], 0)
    groups = group(key)
    columns: dict[str, Column] = {
        "name": name_texts(trace, key[groups.first]),
        "calls": groups.count,
        "total_ns": groups.sum(times.host_self),
    }
    return "type" if typed else "operator", WorkColumns(**sort_columns(columns, "total_ns"))


def api_call_columns(trace: Trace) -> WorkColumns | None:
    """Calls of the device API, None where there are none."""
    rows = np.flatnonzero(is_api_call(trace))
    return _by_name(trace, rows) if len(rows) else None


def _by_name(trace: Trace, rows: Rows) -> WorkColumns:
    calls = call_columns(trace, rows)
    return WorkColumns(name=calls.name, calls=calls.calls, total_ns=calls.total_ns)


def share_chart(columns: WorkColumns) -> charts.Option:
    """The largest totals as a pie."""
    slices: Sequence[tuple[str, float]] = list(zip(columns.name, columns.total_ns, strict=True))
    return charts.pie(slices, top=MAX_SLICES)


class RepeatColumns(Columns):
    """The repeats of a point, each in a process of its own, in their order."""

    start_ns: kinds.Column
    samples_per_s: kinds.CountColumn
    qps: kinds.CountColumn
    mean_ns: kinds.DurationColumn
    p50_ns: kinds.DurationColumn
    p99_ns: kinds.DurationColumn
    stable: kinds.FlagColumn
    host_busy: kinds.FlagColumn


class PointFacts(msgspec.Struct):
    """What is known of a point and of how it was measured; null where the files do not say.

    tail: the highest percentile that the number of runs allows. limit_tail, limit_bound: latency at the percentile of
    the load's limit, and what that is at most with 99 % confidence. effective: what really ran, as the runtime says.
    started_ns, start_ns, end_ns: Unix time. repeats: null for a point that was measured once; else the numbers above
    are their means, and margins half of their 95 % confidence intervals.
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
    """The repeats of a point; None for one that was measured once."""
    names = RepeatColumns.__struct_fields__
    columns = {name: [getattr(repeat, name) for repeat in point.repeats] for name in names}
    return RepeatColumns(**columns) if point.repeats else None


def point_facts(report: Report, point: Point, **measured: Any) -> PointFacts:
    """What is known of a point and of how it was measured. measured: fields that come from other files."""
    percent, tail_ns = tail_latency(point) or (None, None)
    reported: dict[str, Any] = {name: getattr(report, name) or None for name in OPTIONAL_FIELDS}
    reported |= {
        "repeats": repeat_columns(point),
        **{name: confidence_margin(point.repeats, of) for name, of in MARGIN_FIELDS.items()},
    }
    load, step = point.load, point.load.step
    own = {name: value for name, value in asdict(point).items() if name in PointFacts.__struct_fields__}
    return PointFacts(
        **{**own, **reported, **measured},
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
        tail_percentile=percent,
        tail_ns=tail_ns,
        effective=dict(report.effective),
        environment=dict(report.environment),
        state=report.state,
        warnings=report.warnings,
        verdicts=[verdict for verdict in find_verdicts([report]) if point.batch in verdict.batches],
    )
