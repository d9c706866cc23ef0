"""Series of step times: the band, the file, and when a recording is asked for."""

from __future__ import annotations

import json
import time
from array import array
from pathlib import Path

import pytest

from tests.capture.test_live import beat
from visualprof.capture import CaptureError, live, watch
from visualprof.capture.files import Worker
from visualprof.capture.live import RecordingOptions
from visualprof.capture.requests import Place
from visualprof.capture.watch import SKIPPED, Band, Series, limit_ns

MS = 10**6


def series(folder: Path, every: int = 0, at: tuple[int, ...] = (), slow: bool = True, least_ns: int = 0) -> Series:
    watcher = Series(RecordingOptions(), every, at, slow, least_ns)
    watcher.begin(Place(Worker(0, 2, "far", 5), folder, "torch", [], ""), 1, time.perf_counter_ns())
    return watcher


def read(folder: Path) -> tuple[dict[str, object], list[int]]:
    (path,) = folder.glob("*.steps.bin")
    head, _, numbers = path.read_bytes().partition(b"\n")
    return json.loads(head), list(array("q", numbers))


def test_the_band_ends_six_deviations_or_a_fifth_above_the_median() -> None:
    # Differences from 100 are 20, 10, 0, 10, 20: their median is 10.
    assert limit_ns([80, 90, 100, 110, 120]) == pytest.approx(188.956)
    assert limit_ns([99, 100, 100, 101]) == 100 + 20  # 6 x 1.4826 x 0.5 is less


def test_three_slow_steps_of_five_leave_the_band() -> None:
    band = Band()
    assert not any(band.left(1000 * MS) for _ in range(SKIPPED))  # they say nothing
    assert not any(band.left(100 * MS) for _ in range(31))
    assert band.limit_ns is None
    assert not band.left(100 * MS)
    assert band.limit_ns == 120 * MS
    assert [band.left(ms * MS) for ms in (121, 119, 121, 119, 119, 119, 121, 119, 121, 121)] == [False] * 9 + [True]
    band.rest()
    assert not any(band.left(1000 * MS) for _ in range(SKIPPED))
    assert [band.left(121 * MS) for _ in range(3)] == [False, False, True]


def test_the_file_holds_steps_and_marks(tmp_path: Path) -> None:
    watcher = series(tmp_path)
    watcher.take([10, 20])
    watcher.flush()
    watcher.mark(live.NOTICED)
    watcher.take([30])
    watcher.mark(live.OVER)
    watcher.flush()
    head, numbers = read(tmp_path)
    assert numbers == [10, 20, -2, 30, -3]
    assert (head[live.SERIES], head["rank"], head["step"], head["framework"]) == (1, 0, 1, "torch")
    assert abs(time.time_ns() - int(str(head["t_ns"]))) < 60 * 10**9


def test_the_older_half_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_SERIES_STEPS", 8)
    watcher = series(tmp_path)
    watcher.take([1, 2, 3])
    watcher.mark(live.ASKED)
    watcher.take([4, 5, 6, 7])
    watcher.flush()
    before, numbers = read(tmp_path)
    assert numbers == [1, 2, 3, -1, 4, 5, 6, 7]
    watcher.take([8, 9])
    watcher.flush()
    head, numbers = read(tmp_path)
    assert numbers == [5, 6, 7, 8, 9]  # five of ten went: four steps of 10 ns, and a mark
    assert head["step"] == 1 + 4
    assert int(str(head["t_ns"])) == int(str(before["t_ns"])) + 10
    watcher.take([10])
    watcher.flush()
    assert read(tmp_path)[1] == [5, 6, 7, 8, 9, 10]


def test_leftovers_of_a_full_disk_are_overwritten(tmp_path: Path) -> None:
    watcher = series(tmp_path)
    watcher.take([1])
    watcher.flush()
    with next(tmp_path.glob("*.bin")).open("ab") as file:
        file.write(b"hal")
    watcher.take([2])
    watcher.flush()
    assert read(tmp_path)[1] == [1, 2]


def test_slow_steps_are_wished_for_once_in_a_while(tmp_path: Path) -> None:
    watcher = series(tmp_path, least_ns=3600 * 10**9)
    watcher.take([MS] * (SKIPPED + 32))
    assert watcher.wish(beat()) is None
    watcher.take([2 * MS] * 3)
    assert watcher.wish(beat()) == RecordingOptions()
    watcher.take([2 * MS] * 3)
    assert watcher.wish(beat()) is None
    other = series(tmp_path, slow=False)
    other.take([MS] * (SKIPPED + 32) + [2 * MS] * 3)
    assert other.wish(beat()) is None


def test_due_steps_are_requested_when_they_are_close(tmp_path: Path) -> None:
    made = series(tmp_path, at=(105, 300))  # steps of 1 s: a margin of 4, so that 8 steps are close
    assert made.wish(beat(step=96)) is None
    assert made.wish(beat(step=97)) == RecordingOptions(first=105)
    assert made.wish(beat(step=98)) is None
    assert series(tmp_path, at=(105,)).wish(beat(1, step=97)) is None  # the first rank sees to it
    every = series(tmp_path, every=100)
    assert every.wish(beat(step=191)) is None
    assert every.wish(beat(step=192)) == RecordingOptions(first=200)
    assert every.wish(beat(step=200)) is None


def test_the_settings_are_checked(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no number of steps"):
        watch(tmp_path, every=-1)
    with pytest.raises(CaptureError, match="cannot be recorded at a time"):
        watch(tmp_path, steps=500)
