"""Scalars: smoothing as in TensorBoard, buckets that keep every extreme, the rows of the view."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from visualprof.errors import BadParameter, MissingData
from visualprof.reader.run_data.event_file import Points
from visualprof.reader.run_data.folders import DataFile
from visualprof.reader.run_data.rows import UNKNOWN_NS
from visualprof.reader.run_data.run import RunData
from visualprof.reader.trace import Floats
from visualprof.views import view
from visualprof.views.measure.run_data.buckets import axis_values, earliest_ns, make_buckets
from visualprof.views.measure.run_data.smoothing import smooth
from visualprof.views.scalars import compute

SAMPLES = Path(__file__).parents[1] / "fixtures" / "run_data" / "tensorboard"


def smooth_one_by_one(values: list[float], weight: float) -> list[float]:
    """The formula of TensorBoard, value by value."""
    average, count, out = 0.0, 0, list[float]()
    for value in values:
        if not math.isfinite(value):
            out.append(value)
            continue
        average, count = weight * average + (1 - weight) * value, count + 1
        out.append(average / (1 - weight**count))
    return out


@pytest.mark.parametrize("weight", [0.3, 0.6, 0.99, 0.999])
def test_smoothing_follows_the_formula_of_tensorboard(weight: float) -> None:
    values = np.random.default_rng(1).normal(5, 2, 1000)
    values[[0, 63, 64, 500]] = math.nan, math.inf, -math.inf, math.nan
    np.testing.assert_allclose(smooth(values, weight), smooth_one_by_one(values.tolist(), weight), rtol=1e-12)


def test_constant_lines_and_a_weight_of_zero_stay_as_they_are() -> None:
    assert smooth(np.full(5, 0.1), 0.9).tolist() == [0.1] * 5
    assert smooth(np.array([1.0, 2.0]), 0.0).tolist() == [1.0, 2.0]
    assert len(smooth(np.zeros(0), 0.6)) == 0


def points(values: Floats) -> Points:
    steps = np.arange(len(values))
    return Points(steps, steps * 10**9 + 5 * 10**9, values)


def test_every_spike_is_in_the_extremes_of_its_bucket() -> None:
    values = np.zeros(10_000)
    spikes = np.random.default_rng(2).choice(10_000, 20, replace=False)
    values[spikes] = 100 + np.arange(20)
    line = points(values)
    buckets = make_buckets(line.step.astype(float), line, values, 500)
    assert len(buckets.x) == 500
    assert buckets.points.sum() == 10_000
    bucket = np.searchsorted(buckets.x, spikes)
    for spike, index in zip(spikes.tolist(), bucket.tolist(), strict=True):
        assert buckets.max[index] >= values[spike]


def test_few_points_are_their_own_buckets_and_gaps_stay() -> None:
    line = points(np.array([1.0, math.nan, math.inf, 4.0]))
    buckets = make_buckets(line.step.astype(float), line, line.value, 500)
    assert buckets.points.tolist() == [1, 1, 1, 1]
    np.testing.assert_array_equal(buckets.min, [1.0, math.nan, math.nan, 4.0])
    assert len(make_buckets(np.zeros(0), points(np.zeros(0)), np.zeros(0), 10).x) == 0


def test_a_window_has_a_point_on_each_side() -> None:
    line = points(np.arange(100.0))
    buckets = make_buckets(line.step.astype(float), line, line.value, 500, (10.0, 20.0))
    assert buckets.step.tolist() == list(range(9, 22))


def test_axes_are_steps_relative_and_unix_time() -> None:
    line = Points(np.array([3, 4]), np.array([UNKNOWN_NS, 7 * 10**9]), np.array([1.0, 2.0]))
    assert axis_values(line, "step", 0).tolist() == [3.0, 4.0]
    np.testing.assert_array_equal(axis_values(line, "relative", earliest_ns(line)), [math.nan, 0.0])
    np.testing.assert_array_equal(axis_values(line, "wall", 0), [math.nan, 7.0])
    assert earliest_ns(Points(*(column[:1] for column in line))) == UNKNOWN_NS


def open_sample(name: str) -> RunData:
    data = RunData()
    files = sorted(path for path in (SAMPLES / name).rglob("*tfevents*"))
    data.update([DataFile("", str(path)) for path in files])
    return data


def test_rows_are_sorted_by_tag_and_step() -> None:
    scalars = view("scalars")
    columns: Any = compute(open_sample("restart"), scalars.parse({})).columns
    assert list(columns.tag) == ["x"] * 12
    assert list(columns.run) == ["."] * 12
    assert columns.step.tolist() == list(range(12))
    assert columns.value.tolist() == [0, 1, 2, 3, 4, 5, 106, 107, 108, 109, 110, 111]
    assert columns.wall_time_s[:2].tolist() == [1_800_000_000, 1_800_000_000.25]


def test_tags_are_selected_by_a_regular_expression() -> None:
    scalars, data = view("scalars"), open_sample("torch")
    columns: Any = compute(data, scalars.parse({"tag": "^new/(double|float)$"})).columns
    assert set(columns.tag) == {"new/double", "new/float"}
    with pytest.raises(MissingData, match="no scalars of such a tag"):
        scalars.answer(data, scalars.parse({"tag": "nothing"}))
    for pattern in ("(", "x" * 300):
        with pytest.raises(BadParameter, match="is not a short regular expression"):
            scalars.answer(data, scalars.parse({"tag": pattern}))
