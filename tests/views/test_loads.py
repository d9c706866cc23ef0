"""Load tests: the table of load steps, the curve of latency over rate, and the cost of a million samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.results import write_result
from tests.views.test_evaluation import FAST, Report, overlay, reports_in
from visualprof.views.evaluation import overlay_charts
from visualprof.views.measure.reports.point import point_facts

MS = 1_000_000


def step(
    concurrency: int,
    offered_rate: float | None,
    achieved_rate: float,
    tail_ms: float | None,
    verdict: str | None = None,
) -> Any:
    tail = None if tail_ms is None else round(tail_ms * MS)
    return {
        "concurrency": concurrency,
        "offered_per_s": offered_rate,
        "achieved_per_s": achieved_rate,
        "n": 1000,
        "unserved": 0,
        "p50_ns": MS,
        "tail_ns": tail,
        "tail_bound_ns": tail and tail + 1,
        "verdict": verdict,
    }


SEARCH = {
    "scenario": "search",
    "percentile": 99.0,
    "limit_ns": 50 * MS,
    "verdict": "PASS",
    "step": step(2, 50.0, 49.9, 20.0, "PASS"),
    "steps": [
        step(2, None, 100.0, 10.0),
        step(2, 50.0, 49.9, 20.0, "PASS"),
        step(2, 75.0, 74.5, 51.0, "FAIL"),
        step(2, 62.5, 62.0, None, "FAIL"),
    ],
}


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., Report]:
    def make(load: Any, **more: Any) -> Report:
        write_result(tmp_path / "m-1" / "ort", {4: FAST}, points={4: {"load": load}}, **more)
        return reports_in(tmp_path)["m-1/ort"]

    return make


def test_every_load_step_is_a_row(report: Callable[..., Report]) -> None:
    columns = overlay([report(SEARCH)])["loads"]["columns"]
    assert columns["offered_per_s"] == [None, 50.0, 75.0, 62.5]
    assert columns["verdict"] == [None, "PASS", "FAIL", "FAIL"]
    assert columns["limit_ns"] == [50 * MS] * 4
    table = overlay([report(SEARCH)])["columns"]
    assert [table[name] for name in ("scenario", "concurrency", "offered_per_s", "verdict")] == [
        ["search"],
        [2],
        [50.0],
        ["PASS"],
    ]


def test_the_curve_shows_open_loop_steps_sorted_by_rate(report: Callable[..., Report]) -> None:
    """The closed loop is only the start of a search; a step with an unknown tail has no dot."""
    series: Any = overlay_charts([report(SEARCH)])["load"]["series"]
    dots, line = series
    assert [dot["value"][:2] for dot in dots["data"]] == [[49.9, 20 * MS], [74.5, 51 * MS]]
    assert [dot["symbol"] for dot in dots["data"]] == ["circle", "emptyCircle"]
    assert line["data"] == [[49.9, 20 * MS], [74.5, 51 * MS]]
    assert dots["data"][0]["id"] == "m-1/ort|4"


def test_a_closed_loop_is_one_curve_and_an_open_loop_one_per_concurrency(report: Callable[..., Report]) -> None:
    closed = {"scenario": "closed", "percentile": 99, "steps": [step(2, None, 180.0, 2.0), step(1, None, 100.0, 1.0)]}
    series: Any = overlay_charts([report(closed)])["load"]["series"]
    assert [curve["data"] for curve in series if curve["type"] == "line"] == [[[100.0, MS], [180.0, 2 * MS]]]
    rates = {"scenario": "poisson", "steps": [step(1, 50.0, 50.0, 2.0), step(2, 50.0, 50.0, 1.0)]}
    series = overlay_charts([report(rates)])["load"]["series"]
    assert [curve["data"] for curve in series if curve["type"] == "line"] == [[[50.0, 2 * MS]], [[50.0, MS]]]


def test_sequential_runs_have_no_load_chart(report: Callable[..., Report]) -> None:
    plain = report({"scenario": "closed", "step": step(1, None, 100.0, 1.0), "steps": []})
    assert "load" not in overlay_charts([plain])
    assert overlay([plain])["columns"]["concurrency"] == [1]


@pytest.mark.parametrize("load", [None, 5, [], {"steps": 3, "step": []}, {"steps": [1, {}], "verdict": "MAYBE"}])
def test_a_damaged_load_is_unknown(report: Callable[..., Report], load: Any) -> None:
    read = report(load)
    assert overlay([read])["columns"]["verdict"] == [None]
    overlay_charts([read])
    assert point_facts(read, read.points[0], runs_shown=1, kernels_are=None, profile_batch=None).verdict is None


def test_the_cost_of_a_million_samples_depends_on_price_and_rate(report: Callable[..., Report]) -> None:
    """Runs of 4 samples take 0.1 ms: 40,000 per second, a million in 25 s; at 3.6 per hour that costs 0.025."""
    priced = report(SEARCH, env={"price_per_hour": 3.6})
    assert overlay([priced])["columns"]["cost_per_million"] == [pytest.approx(0.025)]
    columns = point_facts(priced, priced.points[0], runs_shown=1, kernels_are=None, profile_batch=None)
    assert (columns.cost_per_million, columns.energy_j_per_million) == (pytest.approx(0.025), None)
    job_price = report(SEARCH, env={"price_per_hour": 3.6}, job={"request": {"price_per_hour": 7.2}})
    assert overlay([job_price])["columns"]["cost_per_million"] == [pytest.approx(0.05)]
    for price in (None, -1, "3", True):
        assert overlay([report(SEARCH, env={"price_per_hour": price})])["columns"]["cost_per_million"] == [None]
