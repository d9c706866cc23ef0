"""A point that was measured several times, each time in a new process, as one point that holds them all.

Its rates and latencies are the means of the repeats; how sure they are is said by whoever shows them, of `repeats`.
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


# What becomes of the values that all repeats have; other fields are those of the last one.
_OF_ALL: dict[Callable[..., Any], tuple[str, ...]] = {
    _mean: (
        "qps", "samples_per_s", "whole_samples_per_s", "load_ns", "first_ns", "mean_ns", "p50_ns", "p90_ns", "p95_ns",
        "p99_ns", "p999_ns", "iqr_ns", "pressure", "energy_j_per_sample",
    ),
    sum: ("n", "duration_ns", "warmup_n", "involuntary_switches"),
    min: ("min_ns", "start_ns"),
    max: ("max_ns", "end_ns", "rss_bytes", "gpu_memory_bytes"),
    all: ("stable",),
    any: ("host_busy", "throttled"),
}  # fmt: skip
_LISTS = ("window_p50_ns", "window_mean_ns", "window_p99_ns")  # one after the other


class Repeats:
    """The points of a task as they come."""

    def __init__(self) -> None:
        self._measured: dict[Hashable, list[Json]] = {}

    def add(self, point: Json) -> Json:
        """A point together with those of the same size that came before it."""
        same = self._measured.setdefault(_size(point), [])
        same.append(point)
        return merge_repeats(same)


def merge_repeats(points: Sequence[Json]) -> Json:
    """Repeats of a point as one, in the order in which they were measured; a single one as it is."""
    if len(points) == 1:
        return points[0]
    one = dict(points[-1])
    for combine, names in _OF_ALL.items():
        for name in filter(one.__contains__, names):
            values = [point.get(name) for point in points]
            known = all(map(_is_number, values)) or (combine is any and True in values)
            one[name] = combine(values) if known else None
    for name in filter(one.__contains__, _LISTS):
        one[name] = [value for point in points for value in _list(point.get(name))]
    return {**one, "trusted": _trusted(points), "repeats": list(map(_brief, points))}


def _brief(point: Json) -> Json:
    """A repeat without the steps of its load: those of the last one stand for them, and a point has 64 KiB."""
    load = point.get("load")
    return {**point, "load": {**load, "steps": []}} if is_object(load) else point


def merge_points_file(file: Path) -> None:
    """Makes of the lines of `points.jsonl` that are of one size a single line; lines that are no points stay."""
    if not is_regular(file) or file.stat().st_size > MAX_POINTS_BYTES:
        return
    found: dict[Hashable, list[Json]] = {}
    with file.open("rb") as lines:
        for line in lines:
            point = _point(line)
            found.setdefault(line if point is None else _size(point), []).append(point or {})
    part = file.with_name(file.name + ".part")
    remove_path(part)
    with part.open("wb") as out:
        for size, points in found.items():
            out.write(size if isinstance(size, bytes) else json.dumps(merge_repeats(points)).encode() + b"\n")
    part.replace(file)


def _point(line: bytes) -> Json | None:
    try:
        point = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return point if is_object(point) and isinstance(point.get("batch"), int) else None


def _size(point: Json) -> Hashable:
    batch = point.get("batch")
    return batch if isinstance(batch, int) else None


def _trusted(points: Sequence[Json]) -> list[Any]:
    """The percentiles for which the runs of every repeat suffice."""
    lists = [_list(point.get("trusted")) for point in points]
    return [percent for percent in lists[0] if all(percent in trusted for trusted in lists)]


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
