"""The heat map of runs small enough to work out by hand."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tests.conftest import SAMPLES, json_of, trace_of
from visualprof.errors import BadParameter
from visualprof.views import run_view
from visualprof.views.heatmap import heat_map
from visualprof.views.measure.columns.bins import bin_edges, merge_bins
from visualprof.views.measure.columns.row_order import similarity_order
from visualprof.views.measure.ranks.rank_metrics import RankMetrics

NAN = float("nan")


def run(computation: list[list[float]], total: float = 1000, **more: Any) -> RankMetrics:
    """A run in which a rank communicates when it does not compute; overlap and the rest are 0."""
    computed = np.array(computation, np.float64)
    n, steps = computed.shape
    figure_values: dict[str, Any] = {
        "labels": {},
        "transfer": np.full(computed.shape, NAN),
        "wait": np.full(computed.shape, NAN),
        "communication": total - computed,
        "overlap": computed * 0,
    }
    return RankMetrics(
        ranks=tuple(range(n)),
        workers=tuple(f"w{i}" for i in range(n)),
        steps=tuple(f"s{i}" for i in range(steps)),
        dropped_step_count=0,
        total=np.where(np.isnan(computed), NAN, total),
        computation=computed,
        **(figure_values | more),
    )


def heat(figures: RankMetrics, **params: str) -> dict[str, Any]:
    return json_of(heat_map(figures, run_view("heatmap").parse(params)))


def test_cells_are_stored_by_row() -> None:
    answer = heat(run([[1, 2, 3], [4, NAN, 6]]), figure="computation")
    assert answer["cells_ns"] == [1, 2, 3, 4, None, 6]
    assert (answer["least_ns"], answer["most_ns"], answer["ranks"], answer["steps"]) == (1, 6, 2, 3)
    assert answer["ranks_shown"]["mean_ns"] == [2, 5]
    assert answer["steps_shown"]["median_ns"] == [2, 2, 4]  # of 2.5 and 4.5, to even numbers
    assert "wait" not in answer["figures"]
    assert "computation" in answer["figures"]


def test_figures_follow_from_each_other() -> None:
    figures = run([[600]], overlap=np.array([[100.0]]), communication=np.array([[300.0]]))
    values_by_name = {name: heat(figures, figure=name)["cells_ns"][0] for name in ("exposed", "own", "other")}
    assert values_by_name == {"exposed": 200, "own": 800, "other": 200}


def test_an_excess_is_over_the_median_of_the_step() -> None:
    answer = heat(run([[10, 100], [20, 300], [60, 100]]), figure="computation", excess="true")
    assert answer["cells_ns"] == [-10, 0, 0, 200, 40, 0]


def test_a_part_has_the_requested_range_and_at_most_the_maximum_cells() -> None:
    figures = run([[10 * r + s for s in range(6)] for r in range(8)])
    part = heat(figures, figure="computation", row="2", rows="3", column="1", columns="2")
    assert part["cells_ns"] == [21, 22, 31, 32, 41, 42]
    assert part["ranks_shown"]["place"] == [2, 3, 4]
    coarse = heat(figures, figure="computation", height="2", width="3")
    assert coarse["cells_ns"] == [31, 33, 35, 71, 73, 75]
    assert (coarse["ranks_shown"]["ranks"], coarse["steps_shown"]["steps"]) == ([4, 4], [2, 2, 2])
    assert (coarse["steps_shown"]["step"], coarse["steps_shown"]["last"]) == (
        ["s0", "s2", "s4"],
        ["s1", "s3", "s5"],
    )
    mean = heat(figures, figure="computation", height="2", width="1", merge="mean")
    assert mean["cells_ns"] == [round(15 + 2.5), round(55 + 2.5)]


def test_a_part_beyond_the_map_is_its_end() -> None:
    answer = heat(run([[1, 2], [3, 4]]), figure="computation", row="9", rows="9", column="7")
    assert answer["cells_ns"] == [4]


def test_screens_are_bounded() -> None:
    with pytest.raises(BadParameter):
        heat(run([[1]]), height="513")


def test_one_step_is_one_column() -> None:
    assert heat(run([[1, 2], [3, 4]]), figure="computation", step="s1")["cells_ns"] == [2, 4]
    assert heat(run([[1, 2], [3, 4]]), figure="computation", step="none")["cells_ns"] == []


def test_groups_are_adjacent_in_the_requested_order() -> None:
    labels = {"host": ("a", "b", "a", "b", ""), "rack": ("r", "r", "r", "r", "")}
    figures = run([[1], [9], [3], [8], [2]], labels=labels)
    by_rank = heat(figures, figure="computation", grouped="host")
    assert by_rank["ranks_shown"]["rank"] == [0, 2, 1, 3, 4]
    assert by_rank["groups_shown"] == {"group": ["a", "b"], "place": [0, 2], "ranks": [2, 2], "mean_ns": [2, 8]}
    by_value = heat(figures, figure="computation", grouped="host", by="value")
    assert by_value["ranks_shown"]["rank"] == [1, 3, 2, 0, 4]
    assert heat(figures, figure="computation", by="value")["ranks_shown"]["rank"] == [1, 3, 2, 4, 0]
    assert by_rank["groupings"] == ["host", "rack"]
    below = heat(figures, grouped="host", row="3", rows="1")
    assert (below["groups_shown"]["group"], below["groups_shown"]["place"]) == (["b"], [2])


def test_rows_that_are_alike_are_neighbours() -> None:
    patterns = np.array([[0, 0, 9, 9], [0, 0, 0, 0], [9, 9, 0, 0]], np.float64)
    kind = np.array([0, 1, 2, 0, 1, 2, 0, 2, 1, 0])
    order = similarity_order(patterns[kind])
    assert sorted(order.tolist()) == list(range(10))
    assert (np.diff(kind[order]) != 0).sum() == 2
    assert similarity_order(patterns[kind]).tolist() == order.tolist()
    assert similarity_order(np.zeros((3, 0))).tolist() == [0, 1, 2]


def test_bins_are_of_equal_length() -> None:
    assert bin_edges(10, 4).tolist() == [0, 2, 5, 7, 10]
    assert bin_edges(3, 4).tolist() == [0, 1, 2, 3]
    assert bin_edges(0, 4).tolist() == [0]
    known = merge_bins(np.array([[1.0, NAN], [NAN, NAN]]), np.array([0, 2]), np.array([0, 1, 2]), mean=True)
    assert known[0, 0] == 1
    assert np.isnan(known[0, 1])


def test_the_map_of_a_run_has_the_figures_of_its_steps() -> None:
    traces = [(path.name, trace_of(path)) for path in sorted((SAMPLES / "synthetic-4gpu").glob("*.json.gz"))]
    steps, chosen = (
        json_of(run_view("distributed").compute_from_traces(traces, run_view("distributed").parse({}))),
        run_view("heatmap"),
    )
    waits = steps["waits"]["columns"]
    for figure, values in ("computation", steps["columns"]["computation_ns"]), ("wait", waits["wait_ns"]):
        answer = json_of(chosen.compute_from_traces(traces, chosen.parse({"figure": figure})))
        assert [cell for cell in answer["cells_ns"] if cell is not None] == values
        assert answer["ranks_shown"]["rank"] == [0, 1, 2, 3]


def test_a_thousand_ranks_take_a_moment() -> None:
    rng = np.random.default_rng(1)
    figures = run(rng.normal(500, 20, (1024, 100)).tolist())
    chosen = run_view("heatmap")
    took = list[float]()
    for by in ("rank", "value", "similarity") * 2:
        began = time.process_time()
        heat_map(figures, chosen.parse({"by": by, "height": "512"}))
        took.append(time.process_time() - began)
    assert min(took[2], took[5]) < 1  # 0.1 s on one processor; a loop over cells would take many times as long
