"""Steps from ranges that programs name, in hand-made traces and in reported ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Write, answer, rows
from tests.recordings import recording_path
from visualprof.cli import main
from visualprof.errors import BadParameter
from visualprof.reader import Trace, read_trace
from visualprof.reader.trace.step_ranges import matching_names, step_label, with_step_range

US = 1000


def ranges(spans: Sequence[tuple[str, int, int]], tid: int = 1) -> list[dict[str, Any]]:
    """Return user ranges (name, start, duration), with an operator of 1 us at the start of each."""
    place = {"ph": "X", "pid": 1, "tid": tid}
    events = [{"cat": "user_annotation", "name": name, "ts": ts, "dur": dur, **place} for name, ts, dur in spans]
    return events + [{"cat": "cpu_op", "name": "aten::mm", "ts": ts, "dur": 1, **place} for _, ts, _ in spans]


def steps(trace: Trace) -> list[tuple[str, int, int]]:
    columns = (trace.steps.name, trace.steps.ts, trace.steps.dur)
    return [(trace.strings[name], int(ts) // US, int(dur) // US) for name, ts, dur in zip(*columns, strict=True)]


@pytest.mark.parametrize(
    "name",
    [
        "step 5",
        "training_step_5",
        "train_step 5",
        "iteration=5",
        "Iteration: 5",
        "batch_5",
        "epoch 1 step 5/100",
        "Epoch[2] Step[5]",
        "ProfilerStep#5",
        "## global_step 5 ##",
        "eval_iter-5",
    ],
)
def test_names_of_steps(name: str) -> None:
    assert step_label(name) == "5"


@pytest.mark.parametrize(
    "name", ["step", "forward_step_5", "optimizer_step_5", "micro_batch_5", "timestep_5", "batch_norm2d_5", "layer 5"]
)
def test_names_of_parts_of_steps(name: str) -> None:
    assert step_label(name) is None


def test_numbered_ranges_of_a_program_are_steps(write: Write) -> None:
    spans = [("training_step_7", 0, 100), ("forward", 10, 20), ("training_step_8", 100, 90)]
    trace = read_trace(write(ranges(spans)))
    assert steps(trace) == [("7", 0, 100), ("8", 100, 90)]


def test_inner_and_overlapping_ranges_of_other_names_are_not_steps(write: Write) -> None:
    loader = ranges([("batch_0", 5, 30), ("batch_1", 105, 30)], tid=2)
    inner = ranges([("step 0", 0, 100), ("iteration 0", 10, 20), ("iteration 1", 40, 20), ("step 1", 100, 90)])
    assert steps(read_trace(write([*inner, *loader]))) == [("0", 0, 100), ("1", 100, 90)]


def test_steps_of_two_names_in_turn_keep_their_names(write: Write) -> None:
    spans = [("train_step_0", 0, 100), ("train_step_1", 100, 100), ("eval_step_0", 200, 50)]
    assert [name for name, _, _ in steps(read_trace(write(ranges(spans))))] == [name for name, _, _ in spans]


def test_the_size_of_a_batch_is_no_number_of_a_step(write: Write) -> None:
    assert steps(read_trace(write(ranges([("batch_1", 0, 10), ("batch_2", 10, 10), ("batch_4", 20, 10)])))) == []
    assert steps(read_trace(write(ranges([("batch_32", 0, 10)])))) == []
    assert len(steps(read_trace(write(ranges([("batch_3", 0, 10), ("batch_4", 10, 10)]))))) == 2


def test_marks_of_the_profiler_win(write: Write) -> None:
    spans = [("ProfilerStep#3", 0, 100), ("ProfilerStep#4", 100, 100), ("iteration 0", 10, 50)]
    assert steps(read_trace(write(ranges(spans)))) == [("3", 0, 100), ("4", 100, 100)]


def test_a_repeated_step_name_selects_every_step_of_it(write: Write) -> None:
    spans = [("step 0", 0, 50), ("step 1", 50, 50), ("step 0", 100, 50), ("step 1", 150, 50)]
    path = write(ranges(spans))
    assert [name for name, _, _ in steps(read_trace(path))] == ["0", "1", "0", "1"]
    assert rows(answer("operator", path, step="0"), "calls") == {"aten::mm": [2]}


LOOP = [("load", 0, 10), ("work", 10, 80), ("load", 100, 10), ("work", 110, 70), ("work", 120, 5)]


def test_a_chosen_range_is_a_step(write: Write) -> None:
    trace = read_trace(write(ranges(LOOP)))
    assert steps(trace) == []
    assert steps(with_step_range(trace, "work")) == [("0", 10, 80), ("1", 110, 70)]
    assert with_step_range(trace, "") is trace
    assert steps(with_step_range(read_trace(write(ranges([("my 4", 0, 9), ("my 6", 9, 9)]))), "my*")) == [
        ("4", 0, 9),
        ("6", 9, 9),
    ]
    with pytest.raises(BadParameter, match="no range has a name like 'nothing'"):
        with_step_range(trace, "nothing")


@pytest.mark.parametrize(
    ("pattern", "positions"),
    [("loop", [0]), ("loop*", [0, 1, 2]), ("loop ?", [1]), ("loop_", [2]), (r"^loop\W\d", [1]), ("(", []), ("op", [])],
)
def test_patterns_of_names(pattern: str, positions: list[int]) -> None:
    names = ["loop", "loop 5", "loop_12", "other"]
    assert matching_names(pattern, names)[: len(positions)] == positions


@pytest.mark.parametrize("pattern", ["(a+)+$", "a*a*a*a*a*a*b", "a+" * 90, "[" * 150, "x" * 5000])
def test_no_pattern_takes_long(pattern: str) -> None:
    assert matching_names(pattern, ["a" * 5000] * 100) == []


def test_the_command_takes_a_pattern(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    path = write(ranges(LOOP))
    assert main(["view", "overview", str(path), "--step-range", "work", "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["steps"]["total_ns"] == [80 * US, 70 * US]
    assert main(["view", "overview", str(path), "--format", "json"]) == 0
    assert len(json.loads(capfd.readouterr().out)["steps"]["name"]) == 1
    assert main(["view", "overview", str(path), "--step-range", "nothing"]) == 2
    assert "Ranges of the file: load, work" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["megatron_bridge", "plain", "batch", "train_step"])
def test_reported_step_names(name: str) -> None:
    path: Path = recording_path(f"cases/reports/40-nvtx-step-names/{name}.sqlite")
    assert answer("overview", path)["steps"]["total_ns"] == [900 * US] * 4
