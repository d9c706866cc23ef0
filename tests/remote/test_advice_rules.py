"""The rules of advice, by hand-worked numbers: docs/advice.md."""

from __future__ import annotations

import numpy as np
import pytest

from visualprof.remote.child.advice.errors import Comparison, OutputError
from visualprof.remote.child.advice.rules import (
    MARGIN,
    VERDICT_ROUNDS,
    Interval,
    judge_ratio,
    latency_interval,
    noise_margin,
    pareto_front,
    ratio_interval,
    wilson_interval,
)


def compared(original: object, candidate: object, dtype: str = "float32") -> OutputError:
    comparison = Comparison()
    comparison.add([np.array(original, dtype)], [np.array(candidate, dtype)])
    return comparison.error()


def test_a_ratio_is_that_of_the_rounds_that_were_disturbed_least() -> None:
    # 11 rounds: the 10 % quantile is the second smallest. Most rounds of both were disturbed, each by something else.
    ours = [2.0, 9.0, 2.2, 7.0, 8.0, 6.0, 5.0, 8.0, 9.0, 7.0, 9.0]
    theirs = [9.0, 4.0, 8.0, 4.4, 7.0, 8.0, 9.0, 6.0, 7.0, 8.0, 9.0]
    assert ratio_interval(ours, theirs).value == pytest.approx(2.2 / 4.4)
    assert latency_interval(ours).value == pytest.approx(2.2)
    with pytest.raises(ValueError, match="shorter"):
        ratio_interval([1, 2, 3], [1, 2])


def test_an_interval_of_equal_rounds_has_zero_width() -> None:
    assert latency_interval([7.0] * 15) == Interval(7.0, 7.0, 7.0)


@pytest.mark.parametrize("rounds", [9, 15, 27, 45])
def test_an_interval_of_few_rounds_that_scatter_is_wide(rounds: int) -> None:
    """Searches take so few: in blocks of 10, nine rounds drawn anew would be the same nine."""
    ours, theirs = np.exp(np.random.default_rng(1).normal(0, 0.3, (2, rounds)))
    ratio = ratio_interval(ours, theirs)
    assert ratio.high - ratio.low > 0.05


def disturbed(rng: np.random.Generator, rounds: int, latency: float = 1.0) -> list[float]:
    """Rounds on a busy machine: half of them are slower, in runs of neighbors."""
    busy = np.repeat(rng.random(-(-rounds // 6)) < 0.5, 6)[:rounds]
    return (latency * (1 + 0.01 * rng.standard_normal(rounds)) * (1 + busy * rng.exponential(0.5, rounds))).tolist()


def decided(rng: np.random.Generator, ratio: float) -> str:
    """The verdict as the stage finds it: at the first look that decides."""
    ours, theirs = disturbed(rng, VERDICT_ROUNDS[-1], ratio), disturbed(rng, VERDICT_ROUNDS[-1])
    found = (judge_ratio(ratio_interval(ours[:n], theirs[:n]), MARGIN) for n in VERDICT_ROUNDS)
    return next((verdict for verdict in found if verdict != "undecided"), "undecided")


@pytest.mark.parametrize(("ratio", "verdict"), [(1.0, "equal"), (0.85, "faster"), (1.2, "slower"), (0.5, "faster")])
def test_verdicts_repeat_on_a_busy_machine(ratio: float, verdict: str) -> None:
    rng = np.random.default_rng(7)
    found = [decided(rng, ratio) for _ in range(20)]
    assert found.count(verdict) >= 18
    assert set(found) <= {verdict, "undecided"}, "what is not sure is not told"


@pytest.mark.parametrize(
    ("ratio", "margin", "verdict"),
    [
        (Interval(0.9, 0.88, 0.94), 0.05, "faster"),
        (Interval(0.9, 0.88, 0.96), 0.05, "undecided"),  # the interval touches the margin
        (Interval(0.9, 0.88, 0.94), 0.08, "undecided"),  # the original is not closer to itself
        (Interval(1.2, 1.1, 1.3), 0.05, "slower"),
        (Interval(1.2, 1.04, 1.3), 0.05, "undecided"),
        (Interval(1.0, 0.9, 1.1), 0.05, "undecided"),  # too wide to say that it is equal
        (Interval(1.0, 0.96, 1.04), 0.05, "equal"),
        (Interval(1.0, 0.93, 1.07), 0.2, "undecided"),  # a wide margin makes nothing equal
    ],
)
def test_faster_and_slower_need_an_interval_beyond_the_margin(ratio: Interval, margin: float, verdict: str) -> None:
    assert judge_ratio(ratio, margin) == verdict


def test_the_margin_is_five_percent_or_the_noise_of_the_original() -> None:
    assert noise_margin(Interval(1.0, 0.99, 1.02)) == 0.05
    assert noise_margin(Interval(0.9, 0.85, 0.92)) == pytest.approx(0.10)
    assert noise_margin(Interval(1.01, 0.45, 1.07)) == 0.05, "a busy minute widens no margin"


def test_the_error_of_an_output_by_hand() -> None:
    error = compared([[3.0, 4.0]], [[3.0, 3.0]])
    # difference (0, -1): max 1 of 4; norm 1 of 5; cos = (9 + 12) / (5 * sqrt 18)
    assert (error.max_abs, error.relative, error.l2) == (1.0, 0.25, 0.2)
    assert error.cosine == pytest.approx(1 - 21 / (5 * np.sqrt(18)))


def test_outputs_with_one_number_per_sample_have_an_error_but_no_angle() -> None:
    error = compared([[0.56]], [[0.02]])
    assert error.cosine is None
    assert error.relative == pytest.approx(0.54 / 0.56)


def test_the_worst_output_is_shown_over_all_sets_of_inputs() -> None:
    comparison = Comparison()
    first, two = np.ones((1, 3), "float32"), np.full((1, 3), 2, "float32")
    comparison.add([first, two], [first, two])
    comparison.add([first, two], [first, np.full((1, 3), 2.5, "float32")])
    error = comparison.error()
    assert (error.output, error.max_abs, error.relative, error.top1) == (1, 0.5, 0.25, None)


@pytest.mark.parametrize(
    ("candidate", "why"),
    [
        (np.zeros((1, 3), "float32"), "the shape [1, 3] instead of [1, 2]"),
        (np.zeros((1, 2), "float16"), "float16 instead of float32"),
        (np.array([[np.nan, 1]], "float32"), "1 NaN or Inf of 2"),
        (np.array([[np.inf, np.inf]], "float32"), "2 NaN or Inf of 2"),
    ],
)
def test_outputs_of_another_kind_are_broken(candidate: object, why: str) -> None:
    comparison = Comparison()
    comparison.add([np.ones((1, 2), "float32")], [candidate])
    assert why in comparison.error().broken
    assert comparison.error().relative is None


def test_values_missing_in_the_original_may_be_missing() -> None:
    error = compared([[np.nan, np.inf, 2.0]], [[np.nan, np.inf, 1.0]])
    assert (error.broken, error.max_abs) == ("", 1.0)
    assert "1 NaN or Inf" in compared([[np.inf, 1.0]], [[-np.inf, 1.0]]).broken


def test_a_missing_output_is_broken() -> None:
    comparison = Comparison()
    comparison.add([np.ones(2), np.ones(2)], [np.ones(2)])
    assert comparison.error().broken == "1 outputs instead of 2"
    assert Comparison().error().broken


def test_whole_numbers_are_compared_without_overflow() -> None:
    assert compared([[255, 0]], [[0, 0]], "uint8").max_abs == 255.0


def test_zeros_in_the_original_leave_the_absolute_error() -> None:
    assert compared([[0.0, 0.0]], [[0.0, 0.5]]).relative == 0.5


def test_top1_counts_ties_as_agreement_and_reports_them() -> None:
    original = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.6, 0.5]]
    candidate = [[0.9, 0.1], [0.8, 0.2], [0.5, 0.5], [0.6, 0.5]]
    top1 = compared(original, candidate).top1
    assert top1 is not None
    assert (top1.rows, top1.agreed, top1.ties) == (4, 3, 1)
    assert top1.sure == 0  # the largest error is 0.6, no margin exceeds 1.2
    equal = compared(original, original).top1
    assert equal is not None
    assert (equal.agreed, equal.sure) == (4, 4)


def test_wilson_of_450_of_450() -> None:
    low, high = wilson_interval(450, 450)
    assert low == pytest.approx(0.9915, abs=1e-4)
    assert high == pytest.approx(1.0)
    assert wilson_interval(5, 10)[0] == pytest.approx(0.2366, abs=1e-4)


def test_the_front_has_the_candidates_that_no_other_dominates() -> None:
    rows = [(1.0, 0.0, 10), (0.5, 1e-2, 5), (0.6, 1e-2, 5), (0.7, 1e-3, 10), (1.0, 0.0, 10)]
    assert pareto_front(rows) == [True, True, False, True, True]  # equal rows do not beat each other
    assert pareto_front([]) == []
