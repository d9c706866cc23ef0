"""Snapshots compared: two moments of one snapshot, and two snapshots by the function that allocated the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES
from tests.heap_programs import FORWARD, Program
from tests.views.test_diff import diffed
from visualprof.errors import BadParameter
from visualprof.reader import read_trace
from visualprof.reader.trace import Trace
from visualprof.views.measure.heap.labels import place_name
from visualprof.views.snapshot import VIEW, SnapshotAnswer, SnapshotParams

MIB = 1 << 20
LOSS = ("/job/train.py:7:step",)


def answer(trace: Trace, **params: Any) -> SnapshotAnswer:
    result = VIEW.answer(trace, SnapshotParams(**params))
    assert isinstance(result, SnapshotAnswer)
    return result


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """Entries: 0 the segment, 1 and 2 allocations of the model, 3 and 4 a release, 5 and 6 allocations of the loss."""
    program = Program()
    first = program.alloc(4 * MIB, FORWARD)
    program.alloc(2 * MIB, FORWARD)
    program.free(first)
    program.alloc(MIB, LOSS)
    program.alloc(MIB, LOSS)
    return read_trace(program.write(tmp_path / "run.pickle"))


def test_changes_since_a_moment_are_the_difference_of_the_live_blocks(trace: Trace) -> None:
    result = answer(trace, at="end", base_at="2")
    assert (result.base_entry, result.entry, result.delta_bytes) == (2, 6, -2 * MIB)
    changes = result.changes.columns
    rows = zip(changes.name, changes.base_bytes, changes.bytes, changes.delta_bytes, changes.new_bytes, strict=True)
    assert list(rows) == [
        ("/job/model.py:10 forward", 6 * MIB, 2 * MIB, -4 * MIB, 0),
        ("/job/train.py:7 step", 0, 2 * MIB, 2 * MIB, 2 * MIB),
    ]
    assert (list(changes.base_blocks), list(changes.blocks)) == ([2, 0], [1, 2])


def test_changes_are_those_of_the_matching_blocks(trace: Trace) -> None:
    result = answer(trace, at="end", base_at="2", function="step", by="category")
    assert result.delta_bytes == 2 * MIB
    assert list(result.changes.columns.name) == ["unknown"]


def test_without_a_base_there_are_no_changes(trace: Trace) -> None:
    result = answer(trace, at="end")
    assert (result.base_entry, result.delta_bytes, list(result.changes.columns.name)) == (None, None, [])
    with pytest.raises(BadParameter, match="no moment"):
        answer(trace, base_at="later")


def sizes(base: Path, new: Path, what: str) -> dict[str, tuple[int, int]]:
    columns = diffed(base, new, "memory")["memory"]["columns"]
    rows = zip(columns["name"], columns["what"], columns["base_bytes"], columns["new_bytes"], strict=True)
    return {name: (before, after) for name, kind, before, after in rows if kind == what}


def steps(path: Path, line: int, size: int, folder: str) -> Path:
    program = Program()
    for step in range(2):
        program.start(f"ProfilerStep#{step}")
        program.alloc(size, (f"{folder}/metrics.py:{line}:remember",))
        program.end(f"ProfilerStep#{step}")
    return program.write(path)


def test_functions_are_compared_wherever_they_are_and_whatever_their_line(tmp_path: Path) -> None:
    base = steps(tmp_path / "base.pickle", 22, MIB, "/home/ann/job")
    new = steps(tmp_path / "new.pickle", 25, 3 * MIB, "/opt/job")
    assert sizes(base, new, "held_at_peak") == {"metrics.py remember": (2 * MIB, 6 * MIB)}
    assert sizes(base, new, "allocated") == {"metrics.py remember": (MIB, 3 * MIB)}
    assert sizes(base, new, "peak_allocated") == {"device 0": (2 * MIB, 6 * MIB)}


def test_snapshots_without_steps_or_times_are_compared() -> None:
    path = FIXTURES / "memory_snapshots" / "rank0_snapshot.pickle"
    held = sizes(path, path, "held_at_peak")
    assert held
    assert all(before == after for before, after in held.values())


@pytest.mark.parametrize(
    ("line", "place"),
    [("/job/a.py:3 f", "a.py f"), ("C:\\job\\a.py:3 <module>", "a.py <module>"), ("f", "f"), ("", "")],
)
def test_places_have_no_folder_and_no_line(line: str, place: str) -> None:
    assert place_name(line) == place
