"""Pairing of begin and end marks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.recordings import recording_path
from visualprof.reader import read_trace
from visualprof.reader.trace.pairing import pair_marks

# A slice per (name, begin, end); `b` and `c` touch, `z` has no length.
SLICES = [("step", 0, 100), ("a", 10, 30), ("z", 20, 20), ("b", 40, 60), ("c", 60, 80)]


def pairs(marks: list[tuple[str, int, int]]) -> set[tuple[str, int, int]]:
    """Return the slices of marks (name, sign, time) in the order of a file; ends have no usable name."""
    signs, times = np.array([sign for _, sign, _ in marks]), np.array([ts for _, _, ts in marks])
    begin, end = pair_marks(np.arange(len(marks)), times, signs, np.zeros(len(marks), np.int64))
    return {(marks[b][0], int(times[b]), int(times[e])) for b, e in zip(begin, end, strict=True)}


def test_all_begins_before_all_ends_are_paired_by_time() -> None:
    begins = [(name, 1, begin) for name, begin, _ in SLICES]
    ends = [("", -1, end) for _, _, end in SLICES]
    assert pairs(begins + ends) == set(SLICES)


def test_marks_in_order_of_time_keep_the_order_of_the_file_at_equal_times() -> None:
    marks = [("step", 1, 0), ("a", 1, 10), ("z", 1, 20), ("", -1, 20), ("", -1, 30)]
    marks += [("b", 1, 40), ("", -1, 60), ("c", 1, 60), ("", -1, 80), ("", -1, 100)]
    assert pairs(marks) == set(SLICES)


@pytest.mark.parametrize("seed", range(5))
def test_marks_in_any_order_are_paired_by_time(seed: int) -> None:
    slices = [(name, begin, end - (end == 60)) for name, begin, end in SLICES if begin < end]
    marks = [(name, 1, begin) for name, begin, _ in slices] + [("", -1, end) for _, _, end in slices]
    order = np.random.default_rng(seed).permutation(len(marks))
    assert pairs([marks[i] for i in order]) == set(slices)


def test_whole_slices_that_overlap_are_paired_as_written() -> None:
    marks = [("a", 1, 0), ("", -1, 50), ("b", 1, 40), ("", -1, 60), ("late", 1, 20), ("", -1, 30)]
    assert pairs(marks) == {("a", 0, 50), ("b", 40, 60), ("late", 20, 30)}


def test_marks_without_a_counterpart_stay_unpaired() -> None:
    assert pairs([("", -1, 5), ("a", 1, 10), ("open", 1, 20), ("", -1, 30)]) == {("open", 20, 30)}
    assert pairs([]) == set()


def test_chrome_marks_are_paired_by_time(tmp_path: Path) -> None:
    marks = [{"ph": "B", "name": name, "pid": 1, "tid": 1, "ts": begin} for name, begin, _ in SLICES]
    marks += [{"ph": "E", "pid": 1, "tid": 1, "ts": end} for _, _, end in SLICES]
    path = tmp_path / "marks.json"
    path.write_text(json.dumps({"traceEvents": marks}))
    trace = read_trace(path)
    names = [trace.strings[i] for i in trace.events.name]
    assert dict(zip(names, trace.events.dur.tolist(), strict=True)) == {
        name: (end - begin) * 1000 for name, begin, end in SLICES
    }


@pytest.mark.parametrize("name", ["trace.pftrace", "sorted.pftrace"])
def test_perfetto_slices_of_torch_do_not_depend_on_the_order_of_packets(name: str) -> None:
    path = recording_path(f"cases/reports/41-torch-pftrace/{name}")
    durations = {key: sum(values) for key, values in durations_by_name(path).items()}
    assert durations["cudaLaunchKernel"] == 15_000
    assert durations["aten::mm"] == 90_000
    assert durations["gemm_k"] == 240_000
    assert max(durations.values()) == 1_000_000


def durations_by_name(path: Path) -> dict[str, list[int]]:
    """Return the durations of a file's events by name."""
    trace, by_name = read_trace(path), dict[str, list[int]]()
    for name, dur in zip(trace.events.name.tolist(), trace.events.dur.tolist(), strict=True):
        by_name.setdefault(trace.strings[name], []).append(dur)
    return by_name
