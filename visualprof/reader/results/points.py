"""The points of a report: lines of points.jsonl, in which any value may be missing or have a wrong type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from visualprof.messages import msg
from visualprof.reader.chrome.values import first_items, integer, json_object, json_objects, number
from visualprof.reader.source import DECODE_ERRORS

if TYPE_CHECKING:
    from visualprof.reader.logdir.scan import LogFile

MAX_POINTS_BYTES = 32 << 20
MAX_POINTS = 10_000
PERCENTILES = (("p50_ns", 50), ("p90_ns", 90), ("p95_ns", 95), ("p99_ns", 99), ("p999_ns", 99.9))

Json = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One loop of a load.

    Attributes:
        concurrency: Runs at the same time.
        offered_per_s: Arrivals per second, `None` in a closed loop.
        achieved_per_s: Completed runs per second.
        n: Number of runs.
        unserved: Runs that never started.
        p50_ns: Median latency.
        tail_ns: Latency at the load's percentile.
        tail_bound_ns: Upper bound of `tail_ns`, with 99 % confidence.
        verdict: PASS, FAIL or INCONCLUSIVE, "" without a limit.
    """

    concurrency: int | None = None
    offered_per_s: float | None = None
    achieved_per_s: float | None = None
    n: int | None = None
    unserved: int | None = None
    p50_ns: int | None = None
    tail_ns: int | None = None
    tail_bound_ns: int | None = None
    verdict: str = ""


@dataclass(frozen=True)
class PointLoad:
    """How runs were requested.

    Attributes:
        scenario: One of `SCENARIOS`.
        percentile: Percentile of the tail latency.
        limit_ns: Limit of the tail latency.
        verdict: PASS, FAIL or INCONCLUSIVE, "" without a limit.
        step: The step that represents the point.
        steps: All steps, () for a plain loop.
    """

    scenario: str = ""
    percentile: float | None = None
    limit_ns: int | None = None
    verdict: str = ""
    step: Step = field(default_factory=Step)
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Point:
    """One measured size of the swept dimension. `None` means unknown; a percentile is `None` if n is too small.

    Attributes:
        batch: The size.
        n: Number of runs.
        trusted: Percentiles for which n is sufficient.
        latencies: (byte offset, count) in latencies.bin.
        start_ns: Unix time of the start.
        end_ns: Unix time of the end.
        repeats: The points of which this one holds the means, each measured in its own process; () for a single
            measurement.
        load: How runs were requested.
    """

    batch: int
    n: int
    duration_ns: int | None = None
    load_ns: int | None = None
    first_ns: int | None = None
    warmup_n: int | None = None
    qps: float | None = None
    samples_per_s: float | None = None
    whole_samples_per_s: float | None = None
    mean_ns: int | None = None
    min_ns: int | None = None
    max_ns: int | None = None
    p50_ns: int | None = None
    p90_ns: int | None = None
    p95_ns: int | None = None
    p99_ns: int | None = None
    p999_ns: int | None = None
    trusted: tuple[float, ...] = ()
    iqr_ns: int | None = None
    window_p50_ns: tuple[int, ...] = ()
    window_mean_ns: tuple[int, ...] = ()
    window_p99_ns: tuple[int, ...] = ()
    stable: bool | None = None
    involuntary_switches: int | None = None
    pressure: float | None = None
    host_busy: bool | None = None
    rss_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    energy_j_per_sample: float | None = None
    throttled: bool | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    latencies: tuple[int, int] | None = None
    repeats: tuple[Point, ...] = ()
    load: PointLoad = field(default_factory=PointLoad)


def parse_points(lines: Iterable[Json]) -> tuple[tuple[Point, ...], list[str]]:
    """Return the points by size, the last one of each size, and warnings about invalid lines."""
    points: dict[int, Point] = {}
    invalid = 0
    for line in lines:
        point = _parse_point(line)
        if point is None:
            invalid += 1
        else:
            points[point.batch] = point
    warnings = (
        [msg("reader.points_jsonl_lines_no", f"points.jsonl: {invalid:,} lines are no points and were left out")]
        if invalid
        else []
    )
    return tuple(points[batch] for batch in sorted(points)), warnings


INTEGER_FIELDS = tuple(
    """
    duration_ns load_ns first_ns warmup_n mean_ns min_ns max_ns iqr_ns involuntary_switches rss_bytes
    gpu_memory_bytes start_ns end_ns
    """.split()
)
NUMBER_FIELDS = ("qps", "samples_per_s", "whole_samples_per_s", "pressure", "energy_j_per_sample")
STEP_INTEGER_FIELDS = ("concurrency", "n", "unserved", "p50_ns", "tail_ns", "tail_bound_ns")
SCENARIOS = ("closed", "poisson", "search", "SingleStream", "MultiStream", "Server", "Offline")
VERDICTS = ("PASS", "FAIL", "INCONCLUSIVE")
MAX_STEPS = 1000
WINDOW_FIELDS = ("window_p50_ns", "window_mean_ns", "window_p99_ns")  # of the thirds of a measurement
FLAG_FIELDS = ("stable", "host_busy", "throttled")


def _parse_point(line: Json) -> Point | None:
    batch, n = integer(line.get("batch")), integer(line.get("n"))
    if batch is None or n is None or batch < 0 or n < 1:
        return None
    trusted = tuple(v for v in map(number, first_items(line.get("trusted"))) if v is not None)
    fields: Json = {name: integer(line.get(name)) for name in INTEGER_FIELDS}
    fields |= {name: number(line.get(name)) for name in NUMBER_FIELDS}
    fields |= {name: line[name] if isinstance(line.get(name), bool) else None for name in FLAG_FIELDS}
    fields |= {name: integer(line.get(name)) if p in trusted else None for name, p in PERCENTILES}
    windows = {
        name: tuple(v for v in map(integer, first_items(line.get(name))) if v is not None) for name in WINDOW_FIELDS
    }
    latency_location = tuple(v for v in map(integer, first_items(line.get("latencies"))) if v is not None)
    latencies = (latency_location[0], latency_location[1]) if len(latency_location) == 2 else None
    fields |= {"trusted": trusted, **windows, "latencies": latencies, "repeats": _parse_repeats(line)}
    return Point(batch=batch, n=n, load=_parse_load(json_object(line.get("load"))), **fields)


def _parse_repeats(line: Json) -> tuple[Point, ...]:
    """Return the repeats of a point, which have no repeats of their own."""
    lines = (json_object(entry) for entry in first_items(line.get("repeats")))
    return tuple(point for entry in lines if (point := _parse_point({**entry, "repeats": None})))


def _parse_load(value: Json) -> PointLoad:
    steps = tuple(map(_parse_step, json_objects(value.get("steps"))[:MAX_STEPS]))
    percentile, limit = number(value.get("percentile")), integer(value.get("limit_ns"))
    words = _parse_word(value, "scenario", SCENARIOS), _parse_word(value, "verdict", VERDICTS)
    return PointLoad(words[0], percentile, limit, words[1], _parse_step(json_object(value.get("step"))), steps)


def _parse_step(value: Json) -> Step:
    fields: Json = {name: integer(value.get(name)) for name in STEP_INTEGER_FIELDS}
    fields |= {name: number(value.get(name)) for name in ("offered_per_s", "achieved_per_s")}
    return Step(**fields, verdict=_parse_word(value, "verdict", VERDICTS))


def _parse_word(value: Json, name: str, allowed: tuple[str, ...]) -> str:
    word = value.get(name)
    return word if word in allowed else ""


def read_lines(file: LogFile) -> tuple[list[Json], list[str]]:
    """Return the objects in a file of lines, and warnings about invalid lines.

    An incomplete last line is no reason for a warning.
    """
    try:
        with Path(file.path).open("rb") as stream:
            data = stream.read(MAX_POINTS_BYTES)
    except OSError as error:
        return [], [f"{file.name}: {error.strerror}"]
    lines = data.split(b"\n")
    objects: list[Json] = []
    damaged = 0
    for i, line in enumerate(lines[:MAX_POINTS]):
        try:
            if line.strip():
                objects.append(json_object(msgspec.json.decode(line)))
        except DECODE_ERRORS:  # noqa: PERF203 - few lines, and each may fail
            damaged += i < len(lines) - 1
    warnings = (
        [msg("reader.damaged_lines_left_out", f"{file.name}: {damaged:,} damaged lines were left out")]
        if damaged
        else []
    )
    if len(lines) > MAX_POINTS or len(data) == MAX_POINTS_BYTES:
        warnings.append(
            msg("reader.more_than_lines_rest", f"{file.name} has more than {MAX_POINTS:,} lines: the rest was left out")
        )
    return objects, warnings
