"""Merges repeated measurements of a point, each from a new process, into one point.

Rates and latencies become means of the repeats. Readers derive their uncertainty from `repeats`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from visualprof.remote.agent.child_files import is_regular, remove_path
from visualprof.remote.agent.work.child_events import is_object

MAX_POINTS_BYTES = 64 << 20
Json = dict[str, Any]


def _mean(values: Sequence[float]) -> float:
    mean = fmean(values)
    return round(mean) if all(isinstance(value, int) for value in values) else mean


# How the values of all repeats are combined. Other fields are copied from the last repeat.
_COMBINED_FIELDS: dict[Callable[..., Any], tuple[str, ...]] = {
    _mean: (
        "qps",
        "samples_per_s",
        "whole_samples_per_s",
        "load_ns",
        "first_ns",
        "mean_ns",
        "p50_ns",
        "p90_ns",
        "p95_ns",
        "p99_ns",
        "p999_ns",
        "iqr_ns",
        "pressure",
        "energy_j_per_sample",
    ),
    sum: ("n", "duration_ns", "warmup_n", "involuntary_switches"),
    min: ("min_ns", "start_ns"),
    max: ("max_ns", "end_ns", "rss_bytes", "gpu_memory_bytes"),
    all: ("stable",),
    any: ("host_busy", "throttled"),
}
_CONCATENATED_FIELDS = ("window_p50_ns", "window_mean_ns", "window_p99_ns")  # in the order of measurement


class Repeats:
    """Merges the points of a task as they arrive."""

    def __init__(self) -> None:
        self._measured: dict[Hashable, list[Json]] = {}

    def add(self, point: Json) -> Json:
        """Return a point merged with the earlier points of the same size."""
        same = self._measured.setdefault(_batch_size(point), [])
        same.append(point)
        return merge_repeats(same)


def merge_repeats(points: Sequence[Json]) -> Json:
    """Merge repeats of a point, in the order of measurement. A single point stays unchanged."""
    if len(points) == 1:
        return points[0]
    merged = dict(points[-1])
    for combine, names in _COMBINED_FIELDS.items():
        for name in filter(merged.__contains__, names):
            values = [point.get(name) for point in points]
            complete = all(map(_is_number, values)) or (combine is any and True in values)
            merged[name] = combine(values) if complete else None
    for name in filter(merged.__contains__, _CONCATENATED_FIELDS):
        merged[name] = [value for point in points for value in _list(point.get(name))]
    return {**merged, "trusted": _common_percentiles(points), "repeats": list(map(_without_load_steps, points))}


def _without_load_steps(point: Json) -> Json:
    """Return a repeat without the steps of its load test, which the last repeat keeps: a point is limited to 64 KiB."""
    load = point.get("load")
    return {**point, "load": {**load, "steps": []}} if is_object(load) else point


def merge_points_file(file: Path) -> None:
    """Merge the lines of `points.jsonl` that have the same size. Lines that are not points stay unchanged."""
    if not is_regular(file) or file.stat().st_size > MAX_POINTS_BYTES:
        return
    groups: dict[Hashable, list[Json]] = {}
    with file.open("rb") as lines:
        for line in lines:
            point = _parse_point(line)
            groups.setdefault(line if point is None else _batch_size(point), []).append(point or {})
    part = file.with_name(file.name + ".part")
    remove_path(part)
    with part.open("wb") as out:
        for key, points in groups.items():
            out.write(key if isinstance(key, bytes) else json.dumps(merge_repeats(points)).encode() + b"\n")
    part.replace(file)


def _parse_point(line: bytes) -> Json | None:
    try:
        point = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return point if is_object(point) and isinstance(point.get("batch"), int) else None


def _batch_size(point: Json) -> Hashable:
    batch = point.get("batch")
    return batch if isinstance(batch, int) else None


def _common_percentiles(points: Sequence[Json]) -> list[Any]:
    """Return the percentiles for which every repeat has enough runs."""
    lists = [_list(point.get("trusted")) for point in points]
    return [percent for percent in lists[0] if all(percent in trusted for trusted in lists)]


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
