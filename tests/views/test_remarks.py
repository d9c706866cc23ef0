"""Remarks: when "no known problem" would be wrong, and where the time goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Write, answer
from tests.recordings import recording_path
from tests.views.test_steps import host, kernel, launch, step


def remarks(path: Path) -> dict[str, dict[str, Any]]:
    return {remark["id"]: remark["evidence"] for remark in answer("findings", path)["remarks"]}


def run(write: Write, *lengths: int) -> Path:
    """Return steps of some lengths, each with one operator that takes the whole step."""
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    events = [
        event
        for i, (ts, dur) in enumerate(zip(starts, lengths, strict=True))
        for event in (step(i, ts, dur), host("cpu_op", "aten::mm", ts, dur))
    ]
    return write(events)


def test_steps_of_even_length_have_no_doubt_but_a_top_operator(write: Write) -> None:
    assert remarks(run(write, 100, 102, 104)) == {"top_operator": {"operator": "aten::mm", "self_ratio": 1.0}}


def test_typical_steps_that_differ_by_half_are_uneven(write: Write) -> None:
    found = remarks(run(write, 120, 100, 200, 110))
    assert found["uneven_steps"] == {"shortest_step_ns": 100_000, "longest_step_ns": 200_000, "steps": 4}
    assert "slow_first_step" not in found


def test_a_slow_first_step_is_named(write: Write) -> None:
    found = remarks(run(write, 500, 100, 104, 108))
    assert found["slow_first_step"] == {"first_step_ns": 500_000, "median_step_ns": 104_000}
    assert "uneven_steps" not in found  # it is not a typical step


@pytest.mark.parametrize(("used", "busy"), [(95, True), (80, False)])
def test_a_device_that_works_for_90_percent_is_busy(write: Write, used: int, busy: bool) -> None:
    """Kernels take 95 or 80 of 100 us, three quarters of that in matrix products."""
    products = used * 3 // 4
    events = [step(0, 0, 100), launch(1, 1), launch(3, 2)]
    events += [
        kernel(5, products, 1, "sgemm_128x64"),
        kernel(5 + products, used - products, 2, "softmax_warp_forward"),
    ]
    found = remarks(write(events))
    assert found["top_kernels"] == {"family": "gemm", "kernel_ratio": pytest.approx(0.75, abs=0.01)}
    assert ("device_busy" in found) is busy
    if busy:
        assert found["device_busy"] == {"device": 0, "utilization_ratio": pytest.approx(0.95)}


def test_a_file_that_ends_in_the_middle_is_cut_off(write: Write) -> None:
    path = run(write, 100, 100, 100)
    text = path.read_text()
    path.write_text(text[: text.rindex("{")])
    assert "cut_off" in remarks(path)


def test_steps_of_124_to_759_ms_are_not_without_a_problem() -> None:
    found = remarks(recording_path("traces/torch_cpu/resnet_small.pt.trace.json.gz"))
    spread = found["uneven_steps"]
    assert (round(spread["shortest_step_ns"] / 1e6), round(spread["longest_step_ns"] / 1e6)) == (124, 759)
    assert found["top_operator"]["operator"] == "aten::mkldnn_convolution"
