"""Charts of memory and of static profiles: what they draw, and that they draw nothing where there is nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES, answer, computed
from tests.recordings import recording_path
from visualprof.errors import BadParameter
from visualprof.views import view
from visualprof.views.answers.table import Selection, Table, select_rows

CNN = SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"
RESNET = SAMPLES / "megengine-inference" / "resnet18_w16.profile.json.gz"
TIMELINE = Path(__file__).parents[1] / "fixtures" / "torch_cuda" / "memory_timeline.raw.json.gz"


def drawn(name: str, path: Any, **params: str) -> dict[str, Any]:
    chosen = view(name)
    assert chosen.charts is not None
    charts = chosen.charts(computed(name, path, **params), chosen.parse(params), 10)
    return json.loads(json.dumps(charts, allow_nan=False))


def test_the_curve_marks_the_peak() -> None:
    result = answer("memory", CNN)
    series = drawn("memory", CNN)["curve"]["series"]
    assert [s["name"] for s in series] == ["@t:memory.reserved", "@t:memory.allocated"]
    [mark] = series[1]["markPoint"]["data"]
    assert mark["coord"] == [result["peak"]["ts_ns"], result["peak"]["allocated_bytes"]]
    assert mark["coord"][1] == max(y for _, y in series[1]["data"])
    assert "markLine" not in series[1], "the device has over 100 times as much"


def test_a_window_without_the_peak_has_no_marker() -> None:
    end = str(int(answer("memory", CNN)["peak"]["ts_ns"]) - 1)
    assert "markPoint" not in drawn("memory", CNN, end_ns=end)["curve"]["series"][-1]


def test_without_reserved_memory_there_is_no_reserved_curve() -> None:
    path = SAMPLES / "pytorch-ddp-cpu" / "rank0.pt.trace.json.gz"
    assert [s["name"] for s in drawn("memory", path)["curve"]["series"]] == ["@t:memory.allocated"]


def test_categories_are_stacked() -> None:
    series = drawn("memory", TIMELINE)["categories"]["series"]
    assert {"@t:category.parameter", "@t:category.gradient"} <= {s["name"] for s in series}
    assert {s["stack"] for s in series} == {"all"}


def test_the_roof_covers_every_point() -> None:
    *points, roof = drawn("profile", RESNET)["roofline"]["series"]
    (_, _), (ridge, flops), (high, _) = roof["data"]
    bandwidth = flops / ridge
    values = [p["value"] for s in points for p in s["data"]]
    assert values
    for intensity, rate, spent, moved in values:
        assert rate == pytest.approx(intensity * moved)
        assert rate <= min(flops, intensity * bandwidth) * (1 + 1e-9)
        assert intensity <= high
        assert spent > 0


def test_points_lead_to_their_rows() -> None:
    columns = answer("profile", RESNET)["columns"]
    points = [p for s in drawn("profile", RESNET)["roofline"]["series"][:-1] for p in s["data"]]
    assert len({p["id"] for p in points}) == len(points)
    for point in points:
        row = columns["id"].index(point["id"])
        assert (columns["name"][row], columns["flops"][row]) == (point["name"], point["value"][1])


def test_aggregated_points_are_types() -> None:
    series = drawn("profile", RESNET, aggregate="sum", aggregate_by="type")["roofline"]["series"][:-1]
    assert all([p["id"] for p in s["data"]] == [s["name"]] for s in series)


def test_nothing_known_draws_nothing() -> None:
    assert drawn("profile", RESNET, type="BatchNormForward") == {}


def test_cumulative_shares_end_at_all_of_it() -> None:
    columns = answer("profile", recording_path("traces/megengine/profile_analyze/lenet.profile.json"))["columns"]
    assert columns["cumulative_ratio"][-1] == pytest.approx(1)


def test_bounds_of_a_column() -> None:
    table = Table(columns={"name": ["a", "b", "c", "d"], "bytes": [1, 5, None, 9]})
    assert select_rows(table, Selection(least={"bytes": 5})).columns["name"] == ["b", "d"]
    assert select_rows(table, Selection(least={"bytes": 2}, most={"bytes": 5})).columns["name"] == ["b"]
    with pytest.raises(BadParameter, match="is no number"):
        select_rows(table, Selection(most={"name": 1}))
