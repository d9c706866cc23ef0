"""Confidence intervals of means, the best point, and whether its lead is significant."""

from __future__ import annotations

from dataclasses import replace
from math import atan, pi, sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visualprof.reader.results.points import Point
from visualprof.reader.results.report import Report, build_report
from visualprof.views.evaluation import EvaluationParams, compute, overlay_charts
from visualprof.views.measure.reports.best_points import (
    HIGHEST_THROUGHPUT,
    LOWEST_LATENCY,
    equivalent_batches,
    standings,
)
from visualprof.views.measure.reports.evaluation import confidence_margin
from visualprof.views.measure.reports.significance import confidence_interval, p_value, t_quantile, two_sided_tail
from visualprof.views.measure.reports.verdicts import find_verdicts


def test_quantiles_equal_students_table() -> None:
    table = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262, 29: 2.045, 120: 1.980}
    assert {n: round(t_quantile(n), 3) for n in table} == table


@given(st.floats(0.01, 300))
def test_the_distribution_equals_its_closed_forms(t: float) -> None:
    assert two_sided_tail(t, 1) == pytest.approx(1 - 2 * atan(t) / pi, rel=1e-9, abs=1e-12)
    assert two_sided_tail(t, 2) == pytest.approx(1 - t / sqrt(2 + t * t), rel=1e-7, abs=1e-12)


def test_an_interval_is_the_mean_and_t_times_its_standard_error() -> None:
    # 10, 12, 14: mean 12, standard deviation 2, t for two degrees of freedom 4.303: 4.303 * 2 / sqrt(3) = 4.968
    assert confidence_interval([10, 12, 14]) == pytest.approx((12 - 4.968, 12 + 4.968), abs=0.001)
    assert confidence_interval([7, 7]) == (7, 7)
    assert confidence_interval([7]) is None


def test_welchs_test_equals_the_one_computed_by_hand() -> None:
    # a: mean 11.5, variance 5/3, n 4; b: mean 14, variance 2.5, n 5: t = 2.5 / sqrt(5/12 + 1/2) = 2.6112
    # freedom (11/12)^2 / ((5/12)^2 / 3 + (1/2)^2 / 4) = 0.84028 / 0.12037 = 6.981
    a, b = [10, 11, 12, 13], [12, 13, 15, 16, 14]
    assert p_value(a, b) == pytest.approx(two_sided_tail(2.6112, 6.981), rel=1e-4)
    assert p_value(a, b) == pytest.approx(0.0349, abs=1e-4)
    assert p_value(b, a) == p_value(a, b)
    assert (p_value([5, 5], [5, 5]), p_value([5, 5], [6, 6]), p_value([5], [6, 7])) == (1.0, 0.0, None)


def point(batch: int, rates: list[float], **fields: Any) -> dict[str, Any]:
    """Return a line of points.jsonl whose repeats have some throughputs; the latency is 1e9 / rate ns."""
    common = {"batch": batch, "n": 700, "trusted": [50, 99], "stable": True, **fields}
    repeats = [{**common, "samples_per_s": rate, "qps": rate, "p50_ns": round(1e9 / rate)} for rate in rates]
    mean = sum(rates) / len(rates)
    mean_point = {
        **common,
        "samples_per_s": mean,
        "qps": mean,
        "p50_ns": round(1e9 / mean),
        "p99_ns": round(2e9 / mean),
    }
    return {**mean_point, "repeats": repeats} if len(rates) > 1 else mean_point


def report(spec: str, *points: dict[str, Any], precision: str = "", requested: str = "") -> Report:
    job = {"spec": {"id": spec, "precision": requested}, "model": {"sha256": "a"}}
    return build_report(f"m/{spec}", job, {"effective": {"precision": precision}}, {"state": "succeeded"}, points)


QUICK, ALIKE, SLOW = [1000.0, 1010, 990], [995.0, 1015, 985], [700.0, 705, 695]


def columns(*reports: Report, slo_ns: int | None = None) -> Any:
    return compute(reports, EvaluationParams(slo_ns)).best.columns


def test_the_margin_is_half_the_interval() -> None:
    (only_point,) = report("a", point(1, QUICK)).points
    assert len(only_point.repeats) == 3
    assert confidence_margin(only_point.repeats, "samples_per_s") == pytest.approx(4.3027 * 10 / sqrt(3), abs=0.001)
    assert confidence_margin(only_point.repeats[:1], "samples_per_s") is None
    assert confidence_margin(only_point.repeats, "p99_ns") is None, "no repeat has this value"
    table = compute([report("a", point(1, QUICK), point(2, [500.0]))], EvaluationParams()).columns
    assert table.repeats == [3, 1]
    assert table.samples_per_s_margin == [pytest.approx(24.84, abs=0.01), None]


def test_the_best_report_is_named_only_if_its_lead_is_significant() -> None:
    best = columns(report("quick", point(1, QUICK)), report("alike", point(1, ALIKE)), report("slow", point(1, SLOW)))
    assert best.most_samples_standing == ["not_significant", "not_significant", "worse"]
    assert best.least_latency_standing == ["not_significant", "not_significant", "worse"]
    best = columns(report("quick", point(1, QUICK)), report("slow", point(1, SLOW)))
    assert best.most_samples_standing == ["best", "worse"]


def test_a_single_repeat_cannot_be_compared() -> None:
    best = columns(report("quick", point(1, [1000.0])), report("slow", point(1, SLOW)))
    assert best.most_samples_standing == ["one_repeat", "one_repeat"]
    assert best.most_samples_alike == [None, []]
    assert columns(report("alone", point(1, QUICK))).most_samples_standing == [None]


def test_sizes_that_are_not_significantly_worse_are_named() -> None:
    best = columns(report("a", point(1, SLOW), point(2, ALIKE), point(4, QUICK), point(8, [1.0])), slo_ns=10**9)
    assert (best.most_samples_batch, best.most_samples_alike, best.slo_alike) == ([4], [[2]], [[2]])
    assert columns(report("a", point(1, SLOW), point(2, ALIKE)), slo_ns=2_500_000).slo_alike == [[]]


def test_doubtful_points_are_candidates_and_are_marked() -> None:
    noisy, busy = point(2, [5000.0, 5001], stable=False), point(4, [4000.0, 4001], host_busy=True)
    best = columns(report("a", point(1, SLOW), noisy, busy), report("b", busy), report("c", point(1, [600.0, 601])))
    assert best.most_samples_batch == [2, 4, 1]
    assert best.least_latency_batch == [2, 4, 1]
    assert best.most_samples_standing == ["doubtful", "doubtful", "worse"]
    assert best.most_samples_alike == [None, None, []]


def test_a_point_from_a_busy_host_that_is_slower_does_not_win() -> None:
    best = columns(report("a", point(1, QUICK), point(2, [1.0, 1.1], host_busy=True)), report("b", point(1, SLOW)))
    assert (best.most_samples_batch, best.most_samples_standing) == ([1, 1], ["best", "worse"])


def test_the_first_of_equal_points_is_the_best() -> None:
    points = [Point(4, 700, samples_per_s=10.0, p50_ns=5), Point(8, 700, samples_per_s=10.0, p50_ns=5), Point(1, 9)]
    assert HIGHEST_THROUGHPUT.best(points) == LOWEST_LATENCY.best(points) == points[0]
    assert HIGHEST_THROUGHPUT.best(points[2:]) is None
    assert standings([None, points[0]], HIGHEST_THROUGHPUT) == [None, None]
    assert equivalent_batches(points, None, HIGHEST_THROUGHPUT) is None


def verdict_summary(*reports: Report) -> list[tuple[str, str, str]]:
    return [
        (verdict.id, verdict.severity, verdict.report)
        for verdict in find_verdicts(reports)
        if verdict.id not in ("precision_changed", "n_too_small")
    ]


def test_a_difference_that_chance_explains_is_a_verdict() -> None:
    assert verdict_summary(
        report("quick", point(1, QUICK)), report("alike", point(1, ALIKE)), report("slow", point(1, SLOW))
    ) == [("not_significant", "low", "m/alike")]
    (verdict,) = find_verdicts([report("quick", point(1, QUICK)), report("alike", point(1, ALIKE))])
    assert verdict.evidence["best_spec"] == "quick"
    assert verdict.evidence["chance_ratio"] == pytest.approx(p_value(QUICK, ALIKE))


def test_different_precisions_are_a_verdict() -> None:
    default, same_precision = (
        report("ort", point(1, SLOW), precision="as the model"),
        report("ov", point(1, QUICK), precision="f32"),
    )
    assert verdict_summary(default, same_precision) == []
    lower = report("ov", point(1, QUICK), precision="bf16")
    assert verdict_summary(default, lower) == [("precision_differs", "high", "m/ov")]
    assert verdict_summary(default, report("ov", point(1, QUICK), precision="bf16", requested="bf16")) == [
        ("precision_differs", "low", "m/ov")
    ]
    assert verdict_summary(default, replace(lower, model_sha256="another")) == []
    assert verdict_summary(lower) == []


def test_charts_show_intervals_as_lines() -> None:
    reports = [report("a", point(1, QUICK), point(2, [500.0])), report("b", point(1, SLOW))]
    option: Any = overlay_charts(reports)["throughput"]
    (stroke, other) = [series for series in option["series"] if series.get("id", "").endswith("|interval")]
    assert (stroke["name"], other["name"]) == ("a", "b")
    assert stroke["data"] == [
        [1, pytest.approx(1000 - 24.84, abs=0.01)],
        [1, pytest.approx(1024.84, abs=0.01)],
        [1, None],
    ]


def test_charts_show_intervals_as_a_band_with_gaps_for_single_repeats() -> None:
    rates = {8: SLOW, 1: QUICK, 2: [500.0], 4: QUICK}
    option: Any = overlay_charts([report("a", *(point(batch, rates[batch]) for batch in rates))])["throughput"]
    (band,) = [series for series in option["series"] if series["type"] == "custom"]
    assert (band["name"], band["silent"]) == ("a", True)
    low, high = pytest.approx(975.16, abs=0.01), pytest.approx(1024.84, abs=0.01)
    # Student's t of 2 degrees, 4.3027, times the standard deviation 5 over the root of 3: 12.42.
    slow = pytest.approx(687.58, abs=0.01), pytest.approx(712.42, abs=0.01)
    assert band["data"] == [[1, low, high], [2, None, None], [4, low, high], [8, *slow]]
    once: Any = overlay_charts([report("a", point(1, [500.0]))])["throughput"]
    assert not [series for series in once["series"] if series["type"] == "custom"]
