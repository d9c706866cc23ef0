"""Downsample the scalars of a line to buckets that keep every extreme."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from visualprof.reader.run_data.event_file import Points
from visualprof.reader.run_data.rows import UNKNOWN_NS, unix_seconds
from visualprof.reader.trace import Floats, Ints

Axis = Literal["step", "relative", "wall"]


class Buckets(NamedTuple):
    """Buckets in ascending order of x; all columns are (n,), NaN where a bucket has no finite value.

    Attributes:
        x: Position of the last point.
        step: Step of the last point.
        min: Smallest value.
        max: Largest value.
        last: Value of the last point.
        smoothed: Smoothed value of the last point.
        points: Number of points.
    """

    x: Floats
    step: Ints
    min: Floats
    max: Floats
    last: Floats
    smoothed: Floats
    points: Ints


def axis_values(points: Points, axis: Axis, origin_ns: int) -> Floats:
    """Return the position of each point, (n,): its step, seconds since the origin, or Unix time in seconds.

    The position of a point without a time is NaN.
    """
    if axis == "step":
        return points.step.astype(np.float64)
    if axis == "wall":
        return unix_seconds(points.wall_ns)
    return np.where(points.wall_ns == UNKNOWN_NS, np.nan, (points.wall_ns - origin_ns) / 1e9)


def earliest_ns(points: Points) -> int:
    """Return the time of the earliest point, `UNKNOWN_NS` without any."""
    times = points.wall_ns[points.wall_ns != UNKNOWN_NS]
    return int(times.min()) if len(times) else UNKNOWN_NS


def make_buckets(
    x: Floats, points: Points, smoothed: Floats, count: int, window: tuple[float | None, float | None] = (None, None)
) -> Buckets:
    """Return at most `count` buckets of equal width; a point per bucket if there are no more points.

    Args:
        x: (n,) positions. Points at NaN are left out.
        points: The points.
        smoothed: (n,) smoothed values.
        count: Largest number of buckets.
        window: First and last position, `None` for the ends of the line. One point on each side is added, so that the
            line crosses the border.
    """
    order = np.argsort(x, kind="stable")
    order = order[: int(np.isfinite(x).sum())]
    position = x[order]
    first = 0 if window[0] is None else max(int(np.searchsorted(position, window[0])) - 1, 0)
    end = len(order) if window[1] is None else int(np.searchsorted(position, window[1], side="right")) + 1
    order, position = order[first:end], position[first:end]
    start = _bucket_starts(position, count)
    last = order[np.append(start[1:], len(order)) - 1] if len(order) else order
    values = points.value[order].astype(np.float64)
    finite = np.isfinite(values)
    low = np.minimum.reduceat(np.where(finite, values, np.inf), start) if len(order) else values
    high = np.maximum.reduceat(np.where(finite, values, -np.inf), start) if len(order) else values
    return Buckets(
        x=x[last],
        step=points.step[last],
        min=np.where(np.isfinite(low), low, np.nan),
        max=np.where(np.isfinite(high), high, np.nan),
        last=points.value[last].astype(np.float64),
        smoothed=smoothed[last],
        points=np.diff(np.append(start, len(order))),
    )


def _bucket_starts(position: Floats, count: int) -> Ints:
    """Return the rows at which the buckets of sorted positions start."""
    if len(position) <= count:
        return np.arange(len(position))
    width = (position[-1] - position[0]) / count
    bucket = np.minimum((position - position[0]) / width, count - 1).astype(np.int64) if width > 0 else position * 0
    return np.flatnonzero(np.append(True, bucket[1:] != bucket[:-1]))
