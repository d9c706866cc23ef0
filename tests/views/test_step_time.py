"""One step time per recording: every answer that shows a step time without a label shows the same one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import SAMPLES, Write, answer, json_of, trace_of
from tests.recordings import recording_path
from tests.views.test_diff import diffed
from tests.views.test_invariants import recordings
from tests.views.test_steps import host, kernel, launch, step
from visualprof.cli import main
from visualprof.cli._terminal import cell
from visualprof.errors import VisualprofError
from visualprof.views import all_views
from visualprof.views.measure.steps.step_time import step_time_ns, typical_mask, typical_steps
from visualprof.views.measure.steps.windows import step_windows
from visualprof.views.trend import figures

LARGEST = 400_000  # bytes of a file; the suite stays fast
# Single values about the length of steps, by where they are in an answer.
STEP_TIMES = {
    "overview.headline.step_median_ns",
    "findings.measured_ns",
    "findings.findings.evidence.median_step_ns",
    "findings.remarks.evidence.median_step_ns",
    "whatif.step.measured_ns",
    "plan.baseline_ns",
    "figures.figures.step.total",
    "diff.step.base_median_ns",
    "diff.step.new_median_ns",
}
# Those that mean something else, and are shown with that label: extremes, means, replays, and changes.
LABELED = {
    *("overview.headline.step_least_ns", "overview.headline.step_most_ns", "overview.average_step.total_ns"),
    *("findings.simulated_ns", "findings.together.predicted_ns", "findings.findings.evidence.longest_step_ns"),
    *("whatif.step.simulated_ns", "whatif.step.predicted_ns", "whatif.step.gain_ns"),
    *(f"findings.remarks.evidence.{name}_step_ns" for name in ("shortest", "longest", "first")),
    *("findings.findings.gain_ns_per_step", "findings.findings.most_ns_per_step"),
    *("roofline.totals.step_ns", "roofline.model.step_ns", "roofline.step_ns"),
    *("diff.step.base_ns", "diff.step.new_ns", "diff.step.delta_ns", "diff.step.median_delta_ns"),
    *("diff.step.low_ns", "diff.step.high_ns", "critical.measured_ns", "plan.planned_ns"),
}
STEP_IN_TEXT = re.compile(
    r"(?<!mean )(?<!typical )(?<!predicted )\bstep (\d[\d.,]* (?:ns|us|ms|s))\b(?: -> (\d[\d.,]* (?:ns|us|ms|s)))?"
)


def values_about_steps(value: Any, place: str) -> Iterator[tuple[str, float]]:
    """Yield place and value of each number about the length of a step."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from values_about_steps(inner, f"{place}.{key}")
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for inner in value:
            yield from values_about_steps(inner, place)
    elif isinstance(value, int | float) and _is_about_steps(place):
        yield place, value


def _is_about_steps(place: str) -> bool:
    *parents, key = place.split(".")
    if place.endswith("step.total") or key.endswith("_ns_per_step"):
        return True
    if key in ("measured_ns", "simulated_ns", "baseline_ns", "planned_ns"):
        return True
    return key.endswith("_ns") and (
        "step" in key or parents[-1] == "step" or (key == "total_ns" and "step" in parents[-1])
    )


def answers(path: Path) -> Iterator[tuple[str, Any]]:
    trace = trace_of(path)
    for view in (*all_views(), figures.VIEW):
        if view.subject == "trace" and view.needs(trace):
            yield view.name, json_of(view.compute(trace, view.parse({})))
    if step_time_ns(trace) is not None:
        yield "diff", diffed(path, path)


@pytest.mark.slow
def test_all_answers_have_the_same_step_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wrong, compared = list[str](), set[str]()
    for path in recordings(LARGEST):
        try:
            expected = step_time_ns(trace_of(path))
            found = [item for name, result in answers(path) for item in values_about_steps(result, name)]
        except VisualprofError:
            continue
        for place, value in found:
            assert place in STEP_TIMES | LABELED, f"{place} is about the length of a step: is it the step time?"
            if place in STEP_TIMES and expected is not None:
                compared.add(place)
                if abs(value - expected) > 1:
                    wrong.append(f"{path.name}: {place} is {value}, the step time {expected}")
    assert wrong == []
    assert compared == STEP_TIMES


@pytest.mark.parametrize("name", ["pytorch-h200/cnn", "pytorch-loader/no-workers", "synthetic-4gpu/rank0"])
def test_the_command_line_shows_the_step_time(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = SAMPLES / f"{name}.pt.trace.json.gz"
    expected = cell("ns", round(step_time_ns(trace_of(path)) or 0))
    assert (
        main(["report", str(path), "--format", "markdown", "--compare", str(path), "-o", str(tmp_path / "r.md")]) == 0
    )
    assert main(["diff", str(path), str(path), "--fail-on", "step.total>3%"]) == 0
    outputs = [(tmp_path / "r.md").read_text().replace("\\", ""), *capsys.readouterr()]
    shown = {time for text in outputs for times in STEP_IN_TEXT.findall(text) for time in times if time}
    assert shown == {expected}


def test_one_step_of_a_server_in_flight_has_one_step_time() -> None:
    """The host marks 47.2 ms, the device works 35.2 ms for the step; from the mark to the last work, 49.4 ms pass."""
    path = recording_path("traces/tracelens/h100_qwen05b.json.gz")
    times = {
        answer("overview", path)["headline"]["step_median_ns"],
        answer("findings", path)["measured_ns"],
        answer("whatif", path)["step"]["measured_ns"],
    }
    assert {round(time / 1e6, 1) for time in times} == {35.2}


def test_a_first_step_that_warms_up_is_not_typical(write: Write) -> None:
    """Steps of 500, 100, 104 and 108 us: the first takes over 1.5 times the median of the others, 104."""
    starts, lengths = (0, 500, 600, 704), (500, 100, 104, 108)
    events = [
        event
        for i, (ts, dur) in enumerate(zip(starts, lengths, strict=True))
        for event in (step(i, ts, dur), host("cpu_op", "aten::mm", ts, dur))
    ]
    path = write(events)
    assert step_time_ns(trace_of(path)) == 104_000
    assert answer("overview", path)["headline"] | {"steps_per_s": 0} == {
        "step_median_ns": 104_000,
        "step_least_ns": 100_000,
        "step_most_ns": 500_000,
        "typical_steps": 3,
        "steps_per_s": 0,
        "cpu_pressure_ratio": None,
    }


def test_a_step_with_little_work_is_not_typical() -> None:
    work, total = np.array([10, 10, 4, 10]), np.array([100, 100, 30, 100])
    np.testing.assert_array_equal(typical_mask(work, total, np.ones(4, bool)), [True, True, False, True])


def test_a_change_is_replayed_in_each_step_and_scaled_to_the_step_time(write: Write) -> None:
    """The device works 160, 80, 80 and 80 us for four steps. The first is a warm-up, so the step time is 80 us."""
    lengths = (160, 80, 80, 80)
    events = [
        event
        for i, dur in enumerate(lengths)
        for event in (
            step(i, 10 * i, 10),
            launch(10 * i + 1, i + 1),
            kernel(20 + sum(lengths[:i]), dur, i + 1, "k"),
        )
    ]
    path = write(events)
    windows, is_typical = step_windows(trace_of(path)), typical_steps(trace_of(path))
    result = answer("whatif", path, change="kernel[k]*0.5")["step"]
    assert (windows.end - windows.start)[is_typical].tolist() == [80_000] * 3
    assert (result["measured_ns"], result["predicted_ns"], result["gain_ns"]) == (80_000, 40_000, 40_000)


def test_a_comparison_has_the_step_time_of_both_runs_and_the_mean(write: Write) -> None:
    """The first of four steps takes 400 us; the others 100 us before, 120 us after."""

    def recorded(usual: int, name: str) -> Path:
        lengths = (400, usual, usual, usual)
        events = [
            event
            for i, dur in enumerate(lengths)
            for event in (step(i, sum(lengths[:i]), dur), host("cpu_op", "aten::mm", sum(lengths[:i]), dur))
        ]
        return write(events, name)

    change = diffed(recorded(100, "base.json"), recorded(120, "new.json"))["step"]
    assert (change["base_median_ns"], change["new_median_ns"], change["median_delta_ns"]) == (100_000, 120_000, 20_000)
    assert change["median_delta_ratio"] == pytest.approx(0.2)
    assert (change["base_ns"], change["new_ns"]) == (175_000, 190_000)
