"""Collapsed stacks: frames contain each other, and the values become times; sums are those of the lines below."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import answer, rows
from tests.reader.test_formats import check_invariants
from tests.recordings import recording_path
from visualprof.errors import FormatError
from visualprof.reader import read_trace
from visualprof.reader.formats.stacks import begins
from visualprof.reader.logdir.listing import scan_profiles

TORCH = "train.py(10): step;model.py(5): forward;aten::mm 1200\ntrain.py(10): step;aten::add 300\n"


def test_frames_contain_each_other_in_microseconds(tmp_path: Path) -> None:
    path = tmp_path / "rank0_stacks.txt"
    path.write_text(TORCH)
    trace = read_trace(path)
    check_invariants(trace)
    assert trace.meta.format == "stacks"
    durations = {trace.strings[n]: d for n, d in zip(trace.events.name, trace.events.dur.tolist(), strict=True)}
    assert durations == {
        "train.py(10): step": 1_500_000,
        "model.py(5): forward": 1_200_000,
        "aten::mm": 1_200_000,
        "aten::add": 300_000,
    }
    assert trace.meta.warnings == ("the file has no unit: values are shown as microseconds, as torch writes",)
    assert [run.id for run in scan_profiles([tmp_path]).runs] == ["stacks"]


def test_the_reported_file_is_read() -> None:
    path = recording_path("cases/reports/27-torchtune-text/rank0_stacks.txt")
    assert rows(answer("operator", path), "host_self_ns") == {"aten::mm": [1_200_000], "aten::add": [300_000]}


def test_equal_stacks_on_several_lines_are_one_call_and_other_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "perf.folded"
    path.write_text("main;a 2\nmain;b 1\n# comment\nmain;a 3\n")
    with pytest.raises(FormatError):  # the first lines of a file of stacks are all stacks
        read_trace(path)
    path.write_text("main;a 2\nmain;b 1\nmain;a 3\n" + "x;y 1\n" * 20_000 + "cut;off")
    trace = read_trace(path)
    calls = sorted((trace.strings[n], d) for n, d in zip(trace.events.name, trace.events.dur.tolist(), strict=True))
    assert calls == [("a", 5_000), ("b", 1_000), ("main", 6_000), ("x", 20_000_000), ("y", 20_000_000)]
    assert trace.meta.warnings == (
        "1 lines are not stacks and were left out",
        "the file has no unit: each sample is shown as one microsecond",
    )


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (b"main;a 2\n", True),
        (b";".join([b"frame.py(1): f"] * 40), True),
        (b"int a = 1;\nint b = 2;\n", False),
        (b"a{b:c;d:e;f:g;h:i;j:k}" * 30, False),
        (b"{;;;;;;", False),
    ],
)
def test_other_texts_are_not_examined(first: bytes, expected: bool) -> None:
    assert begins(first) is expected
