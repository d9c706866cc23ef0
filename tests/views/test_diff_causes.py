"""Causes of a significant change of a step, and changes that all rows of a host share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.noise import HOST, tried
from tests.conftest import Write, json_of, trace_of
from tests.recordings import recording_path
from tests.views.test_steps import Event, host, step
from visualprof.cli._summary import markdown, table
from visualprof.views.diff.answer import DiffAnswer
from visualprof.views.diff.compare import Named, compare
from visualprof.views.diff.confidence import explained_by_load, mean_change
from visualprof.views.diff.side import SIDE, compute

# Loading takes 1 or 60 ms: every second step finds its batch ready. Its mean falls from 30.5 to 2 ms.
BASE_LOADER_MS, NEW_LOADER_MS = (1, 60, 1, 60, 1, 60), (1, 3, 1, 3, 1, 3)
COMPUTE_MS = (40, 41, 40, 42, 41, 40)


def recording(loader_ms: tuple[int, ...], compute_ms: tuple[int, ...] = COMPUTE_MS) -> list[Event]:
    """Return steps that load a batch, then compute."""
    events: list[Event] = []
    at = 0
    for number, (load, work) in enumerate(zip(loader_ms, compute_ms, strict=True)):
        length = 1000 * (load + work)
        events += [
            step(number, at, length),
            host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 1000 * load),
            host("cpu_op", "aten::mm", at + 1000 * load, 1000 * work),
        ]
        at += length
    return events


def compared(base: Path, new: Path) -> DiffAnswer:
    sides = [Named(p.name, compute(trace_of(p), SIDE.parse({"view": "overview"})), str(p)) for p in (base, new)]
    return compare("overview", sides[0], sides[1])


def significant_rows(answer: DiffAnswer) -> list[Any]:
    c = answer.rows.columns
    return [name for name, sure in zip(c.name, c.significant, strict=True) if sure]


def test_the_likely_cause_of_a_significant_change_is_named_with_its_uncertainty(write: Write) -> None:
    # the other work also halves, so that the step is significant although loading has two kinds of steps
    base = recording((1, 60, 1, 60, 1, 60), (100, 101, 100, 102, 101, 100))
    new = recording((1, 3, 1, 3, 1, 3), (50, 51, 50, 52, 51, 50))
    answer = compared(write(base, "base.json"), write(new, "new.json"))
    assert answer.step is not None
    assert answer.step.significant
    assert significant_rows(answer) == ["aten::mm"]
    causes = {cause.name: cause for cause in answer.causes}
    loading = next(cause for name, cause in causes.items() if "DataLoader" in name or name == "dataloader")
    # 30.5 of 131.17 ms, then 2 of 52.67 ms; the change is -28.5 of -78.5 ms
    assert loading.certainty == "likely"
    assert (loading.base_ns, loading.new_ns) == (30_500_000, 2_000_000)
    assert loading.base_share_ratio == pytest.approx(30.5 / 131.1667, rel=1e-4)
    assert loading.new_share_ratio == pytest.approx(2 / 52.6667, rel=1e-4)
    assert loading.share_of_change == pytest.approx(28.5 / 78.5)
    assert loading.low_ns < -28_500_000 < 0 < loading.high_ns
    assert causes["aten::mm"].certainty == "significant"
    assert answer.causes[0].name == "aten::mm", "the largest first"


def test_a_cause_is_named_only_for_a_significant_change(write: Write) -> None:
    base = write(recording(BASE_LOADER_MS), "base.json")
    assert not compared(base, write(recording(BASE_LOADER_MS, (41, 40, 42, 40, 41, 40)), "new.json")).causes
    answer = compared(write(recording((1, 3, 1), (40, 41, 40)), "few.json"), base)
    assert answer.step is not None
    assert answer.step.significant is None
    assert not answer.causes, "with fewer than 5 steps a change is not known to be real"


def test_causes_are_printed_with_shares_before_and_after(write: Write) -> None:
    base = recording((1, 60, 1, 60, 1, 60), (100, 101, 100, 102, 101, 100))
    new = recording((1, 3, 1, 3, 1, 3), (50, 51, 50, 52, 51, 50))
    answer = compared(write(base, "base.json"), write(new, "new.json"))
    for text in (table(answer), markdown(answer, [])):
        (line,) = [line for line in text.splitlines() if "cause: " in line and "(dataloader)" in line]
        assert "23.3 % -> 3.8 % of the mean step, -28.50 ms (95 %: " in line.replace("\\", "")
        assert line.endswith("likely, but within noise by itself")


def test_shares_of_parts_and_rows_are_those_of_the_mean_step(write: Write) -> None:
    base, new = write(recording(BASE_LOADER_MS), "base.json"), write(recording(NEW_LOADER_MS), "new.json")
    answer = json_of(compared(base, new))
    parts = answer["parts"]["columns"]
    loading = parts["part"].index("dataloader")
    assert parts["base_share_ratio"][loading] == pytest.approx(30.5 / (30.5 + 244 / 6))
    assert parts["new_share_ratio"][loading] == pytest.approx(2 / (2 + 244 / 6))
    for side in ("base", "new"):
        assert sum(parts[f"{side}_share_ratio"]) == pytest.approx(1)
        assert sum(answer["rows"]["columns"][f"{side}_share_ratio"]) == pytest.approx(1, abs=1e-6)


def test_the_v100_pair_names_data_loading_as_the_cause() -> None:
    names = ("0__worker0.1623143089861", "4__worker0.1623213129365")
    pair = [recording_path(f"traces/kineto/tb_plugin/resnet50_num_workers_{name}.pt.trace.json.gz") for name in names]
    (cause,) = compared(*pair).causes
    assert (cause.part, cause.certainty) == ("dataloader", "significant")
    assert cause.base_share_ratio == pytest.approx(0.3337, abs=1e-4)
    assert cause.new_share_ratio == pytest.approx(0.002, abs=1e-4)
    assert cause.low_ns < -58_970_000 < cause.high_ns < 0


def test_equal_runs_on_a_host_of_another_pace_are_attributed_to_load() -> None:
    # the paces of two recordings differ by 14 % in the mean pair
    answers = [tried(replace(HOST, steps=20, clock=0.1), 1.0, seed) for seed in range(20)]
    steps = [answer.step for answer in answers if answer.step is not None]
    assert sum(step.attributed_to_load for step in steps) >= 10
    assert sum(bool(step.significant) for step in steps) <= 2, "1 in 10 at most"
    assert not any(step.significant and step.attributed_to_load for step in steps)


def test_a_change_beyond_the_common_change_of_the_host_is_significant() -> None:
    rng = np.random.default_rng(1)
    base = 1e8 * np.exp(rng.normal(0, 0.02, 20))
    slower_host = 1e8 * 1.2 * np.exp(rng.normal(0, 0.02, 20))
    assert explained_by_load(base, slower_host, 0.2, is_alike=False)
    assert not explained_by_load(base, 1.3 * slower_host, 0.2, is_alike=False)
    assert explained_by_load(base, 1.3 * slower_host, 0.2, is_alike=True), "large rows may suffer more from load"
    assert not explained_by_load(base, slower_host, 0.0, is_alike=True), "without a common change"
    assert not explained_by_load(base, slower_host, -0.2, is_alike=True), "in the other direction"


def test_a_significant_row_of_a_loaded_step_is_explained() -> None:
    """One kernel takes three times as long, on a host of another pace."""
    answer = tried(replace(HOST, steps=20, clock=0.1), 3.0, 0)
    assert answer.step is not None
    assert answer.step.attributed_to_load
    assert significant_rows(answer) == ["kernel 20"]
    text = "attributed to load: the rows changed together; 1 significant rows changed by more than the others"
    assert text in table(answer)


def test_equal_runs_of_the_case_are_attributed_to_load() -> None:
    answer = compared(*(recording_path(f"cases/numbers/diff/p6{side}.json.gz") for side in "ab"))
    assert answer.step is not None
    assert (answer.step.significant, answer.step.attributed_to_load) == (False, True)
    assert not answer.causes


def test_the_interval_of_a_mean_contains_the_change_of_steady_steps() -> None:
    assert mean_change(np.full(6, 10.0), np.full(6, 7.0)) == (-3.0, -3.0)
    low, high = mean_change(np.array([1.0, 60, 1, 60, 1, 60]), np.array([1.0, 3, 1, 3, 1, 3]))
    assert low < -28.5 < high
