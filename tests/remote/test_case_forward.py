"""Whole and core throughput, accuracy and MFU of a case, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from visualprof.remote.child.case.forward import (
    RoundTimer,
    TimedData,
    TimedEngine,
    batch_samples,
    case_pass,
    run_rounds,
    score_array,
    split_batch,
)
from visualprof.remote.child.case.summary import accuracy_verdict, extra_metrics, utilization
from visualprof.remote.child.host import LoadMeter


class Hand:
    """A clock that only moves when it is told to."""

    now = 0

    def __call__(self) -> int:
        return self.now


def _loaded(clock: Hand, batches: list[Any], load_ns: int) -> Any:
    class Loader:
        def __len__(self) -> int:
            return len(batches)

        def __iter__(self) -> Any:
            for batch in batches:
                clock.now += load_ns
                yield batch

    return Loader()


def test_whole_and_core_times_follow_the_clock() -> None:
    """3 batches of 4, 4 and 2 samples, twice: 100 ms to load, 50 ms in the engine of which 10 are foo, 20 to judge."""
    clock = Hand()
    batches = [(np.ones((size, 3)), np.ones(size)) for size in (4, 4, 2)]
    clocks = RoundTimer(lambda: None, 4, clock)

    def engine(inputs: list[Any]) -> tuple[list[Any], float]:
        clock.now += 50_000_000
        return [inputs[0][:, 0]], 0.01

    def evaluator(output: Any, target: Any) -> Any:
        clock.now += 20_000_000
        return output == target

    clocks.warm = lambda call, inputs: None  # type: ignore[method-assign]
    run_rounds(engine, _loaded(clock, batches, 100_000_000), evaluator, clocks, 2)
    pass_result = case_pass(clocks, LoadMeter())
    # A round: 3 x (100 + 50 + 20) - 3 x 10 = 480 ms for 10 samples; of these 3 x 40 = 120 ms core.
    assert pass_result["samples"] == 20
    assert math.isclose(pass_result["whole_per_s"], 10 / 0.480)
    assert math.isclose(pass_result["core_per_s"], 10 / 0.120)
    assert (pass_result["foo_ns"], pass_result["n"], pass_result["p50_ns"], pass_result["mean_ns"]) == (
        60_000_000,
        6,
        None,
        40_000_000,
    )
    assert [row["whole_per_s"] for row in pass_result["repeats"]] == pytest.approx([10 / 0.480] * 2)
    assert (pass_result["whole_ci"], pass_result["accuracy"], pass_result["first_ns"]) == (0.0, 1.0, 50_000_000)


@pytest.mark.long
def test_accuracy_is_that_of_all_samples() -> None:
    """Batches of different sizes: 1 of 4 and 2 of 2 are right, so 3 of 6, and not the mean of both shares."""
    batches = [(np.arange(4.0)[:, None], np.array([0.0, 9, 9, 9])), (np.arange(2.0)[:, None], np.arange(2.0))]
    for evaluator in (
        lambda output, target: output[:, 0] == target,
        lambda output, target: float((output[:, 0] == target).mean()),
    ):
        clocks = RoundTimer(lambda: None, 4)
        run_rounds(lambda inputs: (inputs, 0.0), batches, evaluator, clocks, 1)
        assert case_pass(clocks, LoadMeter())["accuracy"] == 0.5


def test_warm_up_is_apart() -> None:
    calls: list[int] = []
    batches = [(np.ones((2, 1)), np.ones(2))] * 3
    clock = Hand()
    clocks = RoundTimer(lambda: None, 2, clock)

    def engine(inputs: list[Any]) -> tuple[list[Any], float]:
        calls.append(1)
        clock.now += 100_000_000
        return inputs, 0.0

    run_rounds(engine, batches, lambda output, target: output[:, 0] == target, clocks, 4)
    pass_result = case_pass(clocks, LoadMeter())
    assert (pass_result["n"], len(pass_result["repeats"]), pass_result["samples"]) == (12, 4, 24)
    assert pass_result["warmup_n"] >= 3
    assert len(calls) - 12 == pytest.approx(pass_result["warmup_n"], abs=1)
    assert pass_result["p50_ns"] is not None
    assert pass_result["p90_ns"] is None  # 12 do not suffice for it


def test_the_interval_is_students() -> None:
    """Rounds of 1, 2 and 3 s for 6 samples: rates 6, 3, 2; mean 3.667, s = 2.0817, 4.303 x s / sqrt(3) = 5.1716."""
    clock = Hand()
    clocks = RoundTimer(lambda: None, 6, clock)
    for seconds in (1, 2, 3):
        for _ in TimedData([(np.ones((6, 1)), None)], clocks):
            clock.now += seconds * 10**9
    pass_result = case_pass(clocks, LoadMeter())
    assert [row["whole_per_s"] for row in pass_result["repeats"]] == [6.0, 3.0, 2.0]
    assert pass_result["whole_per_s"] == 3.0  # 18 samples in 6 s
    assert pass_result["whole_ci"] == pytest.approx(5.1716, abs=1e-3)
    assert (pass_result["core_per_s"], pass_result["core_ci"]) == (None, None)


def test_a_function_of_the_case_gives_the_rates_and_the_clocks_the_rest() -> None:
    clock = Hand()
    clocks = RoundTimer(lambda: None, 2, clock)

    def engine(inputs: list[Any]) -> tuple[list[Any], float]:
        clock.now += 1_000_000
        return inputs, 0.0

    compiled: Any = TimedEngine(engine, clocks)
    for inputs, _ in TimedData([(np.ones((2, 1)), None)] * 12, clocks):
        compiled([inputs])
    measured_values = (1234.5, np.float32(2000.0), float("nan"), {"tokens_per_s": 7, "x": "no number"})
    pass_result = case_pass(clocks, LoadMeter(), measured_values)
    assert (pass_result["own"], pass_result["whole_per_s"], pass_result["core_per_s"], pass_result["accuracy"]) == (
        True,
        1234.5,
        2000.0,
        None,
    )
    assert (pass_result["n"], pass_result["p50_ns"], pass_result["stable"]) == (12, 1_000_000, True)
    assert extra_metrics(measured_values) == {"tokens_per_s": 7.0}
    assert extra_metrics((1, 2, 3)) == {}


def test_mfu_by_hand() -> None:
    """4.09e9 multiplications and additions x 2 x 12,406 samples/s = 101.5 TFLOP/s; of 312 TFLOP/s that is 32.5 %."""
    row = utilization(2 * 4.09e9, 12_406.0, 312e12)
    assert row["flops_per_s"] == pytest.approx(101.481e12, rel=1e-5)
    assert row["mfu"] == pytest.approx(0.32526, abs=1e-5)
    assert utilization(8e9, 100.0, None)["mfu"] is None
    assert utilization(8e9, 100.0, 7e11) == {"flops_per_s": 8e11, "mfu": None}
    assert utilization(None, 100.0, 1e12) == {"flops_per_s": None, "mfu": None}
    assert utilization(8e9, None, 1e12) == {"flops_per_s": None, "mfu": None}


def test_the_verdict_is_by_the_tolerance() -> None:
    assert accuracy_verdict(0.762, 0.757, 0.01)["verdict"] == "same"
    assert accuracy_verdict(0.762, 0.700, 0.01) == {
        "accuracy_difference": pytest.approx(-0.062),
        "tolerance": 0.01,
        "verdict": "worse",
    }
    assert accuracy_verdict(0.7, 0.8, 0.01)["verdict"] == "better"
    assert accuracy_verdict(None, 0.8, 0.01)["verdict"] == ""


def test_batches_of_every_form() -> None:
    x = np.zeros((3, 2))
    assert [batch_samples(batch, 9) for batch in ((x, 1), [[x, x], 1], ("text", 1), ())] == [3, 3, 9, 9]
    assert [len(split_batch(batch)[0]) for batch in ((x, 1), ([x, x], 1), (x, x, 1))] == [1, 2, 2]
    assert score_array([True, False]).tolist() == [1.0, 0.0]
    assert score_array(0.5).tolist() == [0.5]
