"""Times of steps: the file, the end of the band, the chart."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from visualprof.errors import SourceError
from visualprof.reader.results.steps import Recorded, StepTimes, read_step_times
from visualprof.views.measure.steps.step_times import step_time_limits, step_times_chart

MS = 1_000_000
HEAD = {"visualprof_steps": 1, "worker": "rank0_a_1", "rank": 0, "step": 100, "t_ns": 10**18}


def write(path: Path, numbers: list[int], **head: Any) -> Path:
    line = json.dumps(HEAD | head).encode() + b"\n"
    path.write_bytes(line + np.array(numbers, "<i8").tobytes())
    return path


def times(durations: list[int], *recorded: Recorded) -> StepTimes:
    return StepTimes("w", 0, 0, np.array(durations, np.int64), recorded)


def test_durations_and_recordings_are_distinguished(tmp_path: Path) -> None:
    path = write(tmp_path / "rank0_a_1.steps.bin", [5, 6, -1, 70, 80, -3, 7, -2, 90])
    with path.open("ab") as file:
        file.write(b"\x01\x02")  # a number that is being written
    step_times = read_step_times(str(path))
    assert (step_times.worker, step_times.first, step_times.begin_ns) == ("rank0_a_1", 100, 10**18)
    assert step_times.durations.tolist() == [5, 6, 70, 80, 7, 90]
    # Steps 102 and 103 were asked for; the process began another one with step 105, which goes on.
    assert step_times.recorded == (Recorded(2, 2, "asked"), Recorded(5, None, "noticed"))


def test_the_end_of_a_recording_without_its_start_is_ignored(tmp_path: Path) -> None:
    step_times = read_step_times(str(write(tmp_path / "w.steps.bin", [9, -3, 5, -1, 6, -1, 7])))
    assert step_times.recorded == (Recorded(2, 1, "asked"), Recorded(3, None, "asked"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[1]\n",
        b"{" * 70_000,
        b'{"visualprof_steps": 2, "step": 0, "t_ns": 1}\n',
        b'{"visualprof_steps": 1, "step": "x", "t_ns": 1}\n',
        b'{"visualprof_steps": 1, "step": 0}\n',
        b'{"visualprof_steps": 1, "step": 0, "t_ns": 1}\n' + (-4).to_bytes(8, "little", signed=True),
        b'{"visualprof_steps": 1, "step": 0, "t_ns": 1}\n' + 2 * (2**62).to_bytes(8, "little"),
        b'{"visualprof_steps": 1, "step": 0, "t_ns": 1, "x": "\\ud800' + b"[" * 60_000 + b"\n",
    ],
)
def test_invalid_values_are_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "w.steps.bin"
    path.write_bytes(content)
    with pytest.raises(SourceError):
        read_step_times(str(path))


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="no links that can be told here")
def test_neither_links_nor_pipes_are_read(tmp_path: Path) -> None:
    (tmp_path / "link.steps.bin").symlink_to(write(tmp_path / "secret", [1]))
    os.mkfifo(tmp_path / "pipe.steps.bin")
    for name in ("link.steps.bin", "pipe.steps.bin", "none.steps.bin"):
        with pytest.raises(SourceError):
            read_step_times(str(tmp_path / name))


def test_a_file_is_read_up_to_the_size_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visualprof.reader.results.steps.MAX_STEPS", 3)
    assert read_step_times(str(write(tmp_path / "w.steps.bin", [1, 2, 3, 4]))).durations.tolist() == [1, 2, 3]


def test_the_band_by_hand() -> None:
    # 50 that do not count, then 64 of 10 ms and 64 of 11 ms: median 10.5, median absolute deviation 0.5 ms, and
    # 6 x 1.4826 x 0.5 = 4.4478 is more than 20 % of 10.5.
    steps = times([99 * MS] * 50 + [10 * MS, 11 * MS] * 64 + [50 * MS])
    limit = step_time_limits(steps, np.array([177, 178]))
    assert np.isnan(limit[0])
    assert limit[1] == pytest.approx((10.5 + 6 * 1.4826 * 0.5) * MS)
    # All alike: 20 % more.
    assert step_time_limits(times([10 * MS] * 200), np.array([190]))[0] == pytest.approx(12 * MS)


def test_recorded_steps_and_the_following_ones_are_not_typical() -> None:
    steps = times([10 * MS] * 178 + [90 * MS] * 4 + [30 * MS] * 50 + [10 * MS] * 10, Recorded(178, 4, "asked"))
    assert step_time_limits(steps, np.array([178, 231, 241])).tolist() == pytest.approx([12 * MS] * 3)


def test_few_steps_are_drawn_individually_and_many_in_ranges() -> None:
    few = step_times_chart(times([10, 20, 30], Recorded(1, 2, "asked"), Recorded(3, None, "asked")))
    assert [row["name"] for row in few["series"]] == ["@t:live.step_time", "@t:live.recordings"]
    assert few["series"][0]["data"] == [[0.0, 10.0], [10.0, 20.0], [30.0, 30.0]]
    # The second recording has no step yet.
    assert few["series"][1]["data"] == [{"id": "1", "name": "1", "value": [10, 20]}]
    many = step_times_chart(times([10] * 5999 + [500]))
    names = [row["name"].rpartition(".")[2] for row in many["series"]]
    assert (names, len(many["series"][0]["data"])) == (["max", "median", "limit", "recordings"], 600)
    assert (many["series"][0]["data"][-1][1], many["series"][1]["data"][-1][1]) == (500, 10)
    assert step_times_chart(times([])) == {}
