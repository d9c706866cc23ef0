"""A shared folder as NFS is one: seen late, with errors in between, by clocks that differ. No NFS server is needed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.capture.test_live import NOW, S, beat, put
from tests.conftest import ROOT
from visualprof.capture import CaptureError, live, notes
from visualprof.capture.ask import ask
from visualprof.capture.live import Heartbeat, RecordingOptions, Request
from visualprof.cli import main

LOST = OSError(errno.ESTALE, "Stale file handle")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What was seen before is another test's."""
    live._seen.clear()
    yield
    live._seen.clear()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the clock of who looks."""
    return lambda ns: monkeypatch.setattr(live.time, "time_ns", lambda: ns)


@pytest.mark.parametrize("ahead", [-300 * S, 300 * S])
def test_a_worker_with_another_clock_is_alive_after_its_first_heartbeat(
    tmp_path: Path, now: Callable[[int], None], ahead: int
) -> None:
    for second in range(4):
        now(NOW + second * S)
        put(tmp_path, beat(t_ns=NOW + second * S + ahead, stepped_ns=NOW + second * S + ahead - S))
        (seen,) = live.beats(tmp_path)
        if second:
            assert live.health(seen, NOW + second * S) == ("listening", 0)
            assert seen.t_ns - seen.stepped_ns == S
    now(NOW + 20 * S)  # it has said nothing for 17 s
    (seen,) = live.beats(tmp_path)
    assert live.health(seen, NOW + 20 * S) == ("silent", 17 * S)


def test_a_worker_silent_between_two_distant_polls_is_silent(tmp_path: Path, now: Callable[[int], None]) -> None:
    for at in (0, 1):
        now(NOW + at * S)
        put(tmp_path, beat(t_ns=NOW + at * S))
        live.beats(tmp_path)
    now(NOW + 3600 * S)
    put(tmp_path, beat(t_ns=NOW + 1800 * S))  # the last word of a process that nobody looked at
    (seen,) = live.beats(tmp_path)
    assert live.health(seen, NOW + 3600 * S) == ("silent", 1800 * S)


def test_unreadable_files_keep_their_last_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, beat(0), beat(1))
    before = live.beats(tmp_path)
    really = os.open

    def stale(path: Any, *more: Any, **keywords: Any) -> int:
        if str(path).endswith("rank1_far_6.json"):
            raise LOST
        return really(path, *more, **keywords)

    monkeypatch.setattr(notes.os, "open", stale)
    assert live.beats(tmp_path) == before
    monkeypatch.setattr(live.os, "scandir", lambda _: (_ for _ in ()).throw(LOST))
    assert live.beats(tmp_path) == before


def test_all_workers_are_asked_even_if_one_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = time.time_ns()
    put(tmp_path, beat(0, t_ns=at, stepped_ns=at), beat(1, t_ns=at, stepped_ns=at))
    live.beats(tmp_path)
    read = live.read_now

    def stale(path: Path, kind: Any) -> Any:
        if path.name == "rank1_far_6.json":
            raise LOST
        return read(path, kind)

    monkeypatch.setattr(live, "read_now", stale)
    assert ask(tmp_path, RecordingOptions(), "page").workers == ["rank0_far_5", "rank1_far_6"]


@pytest.mark.parametrize("ahead_s", [-300, 300])
def test_an_abandoned_lock_expires_by_the_clock_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    at = time.time_ns()
    put(tmp_path, beat(t_ns=at, stepped_ns=at))
    lock = tmp_path / live.FOLDER / ".asking"
    lock.touch()
    really = time.time
    monkeypatch.setattr(time, "time", lambda: really() + ahead_s)
    with pytest.raises(CaptureError, match="another request is in progress"):
        ask(tmp_path, RecordingOptions(), "page")
    os.utime(lock, (really() - 11, really() - 11))
    ask(tmp_path, RecordingOptions(), "page")
    assert not lock.exists()


def test_the_command_looks_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = beat(t_ns=time.time_ns() - 300 * S)
    put(tmp_path, fields)

    def beat_again(_: float) -> None:
        put(tmp_path, replace(fields, t_ns=fields.t_ns + S, stepped_ns=fields.t_ns + S))

    monkeypatch.setattr("visualprof.cli.record.time", SimpleNamespace(sleep=beat_again, time_ns=time.time_ns))
    assert main(["record", str(tmp_path)]) == 0
    assert "5 steps of 1 processes" in capsys.readouterr().out


def test_an_answer_that_could_not_be_written_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from visualprof.capture import CaptureWarning, Options
    from visualprof.capture.files import Worker
    from visualprof.capture.requests import Place, RequestHandler

    place = Place(Worker(0, 2, "near", 7), tmp_path / "run", "torch", [], "it cannot")
    (place.folder / live.FOLDER).mkdir(parents=True)
    rank, at = RequestHandler(Options(tmp_path, run="run", monitor=False), place), time.time_ns()
    asked = Request(
        id="a1",
        by="page",
        count=2,
        options=RecordingOptions().options,
        workers=["rank0_near_7"],
        starts=[10],
        read_by=[8],
        t_ns=at,
        expires_ns=at + 60 * S,
    )
    really = notes.write
    monkeypatch.setattr(notes, "write", lambda *_: (_ for _ in ()).throw(LOST))
    with pytest.warns(CaptureWarning, match="is again"):
        rank.consider(asked, 3)
    rank.settle()
    assert live.answer(place.folder, asked, "rank0_near_7") is None
    monkeypatch.setattr(notes, "write", really)
    rank.settle()
    ack = live.answer(place.folder, asked, "rank0_near_7")
    assert ack
    assert (ack.state, ack.why) == ("refused", "it cannot")


# Two ranks and who asks them, each with a folder of its own; what one writes is seen by the others later.

RANK = """
import errno, os, random, sys, time
clock, folder, ahead, losses = time.time_ns, sys.argv[1], int(float(sys.argv[2]) * 1e9), float(sys.argv[3])
time.time_ns = lambda: clock() + ahead
random.seed(1)
import torch
from visualprof import capture
def losing(call):
    def lossy(path, *more, **keywords):
        if ".live" in str(path) and random.random() < losses:
            raise OSError(errno.ESTALE, "Stale file handle")
        return call(path, *more, **keywords)
    return lossy
for name in ("open", "replace", "scandir", "lstat"):
    setattr(os, name, losing(getattr(os, name)))
capture.listen(folder, run="job", monitor=False)
model = torch.nn.Linear(8, 8)
while True:
    model(torch.rand(4, 8)).sum().backward()
    time.sleep(0.02)
    capture.step()
"""


@dataclass
class Shared:
    """A disk, and folders that are as it was a while ago; what is written into them is on it at once."""

    disk: Path
    late_s: dict[Path, float]
    _known: dict[tuple[Path, str], int] = field(default_factory=dict[tuple[Path, str], int])
    _seen: dict[Path, int] = field(default_factory=dict[Path, int])  # of the history
    _history: list[tuple[float, Path, str, bytes]] = field(default_factory=list[tuple[float, Path, str, bytes]])

    def turn(self) -> None:
        """Brings what is new from the folders to the disk, and what is old enough from it to the folders."""
        for folder in self.late_s:
            for path in folder.rglob("*"):
                name = path.relative_to(folder).as_posix()
                if path.is_file() and not path.name.startswith("."):
                    self._take(folder, name, path)
        for folder, late_s in self.late_s.items():
            while self._seen.get(folder, 0) < len(self._history):
                at, origin, name, content = self._history[self._seen.get(folder, 0)]
                if time.monotonic() - at < late_s:
                    break
                self._seen[folder] = self._seen.get(folder, 0) + 1
                if origin != folder:
                    self._give(folder / name, content)
                    self._known[folder, name] = _version(folder / name)

    def _take(self, folder: Path, name: str, path: Path) -> None:
        if self._known.get((folder, name)) != (version := _version(path)):
            self._known[folder, name] = version
            content = path.read_bytes()
            self._give(self.disk / name, content)
            self._history.append((time.monotonic(), folder, name, content))

    @staticmethod
    def _give(path: Path, content: bytes) -> None:
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.shared")
            part.write_bytes(content)
            part.replace(path)


def _version(path: Path) -> int:
    status = path.stat()
    return status.st_mtime_ns ^ status.st_ino


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("late_s", "ahead_s", "losses"), [(1.5, 0.0, 0.0), (0.5, 240.0, 0.1)])
def test_ranks_record_the_same_steps_through_a_folder_that_is_late(
    tmp_path: Path, late_s: float, ahead_s: float, losses: float
) -> None:
    pytest.importorskip("torch")
    this_folder, folders = tmp_path / "here", [tmp_path / "rank0", tmp_path / "rank1"]
    shared = Shared(tmp_path / "disk", {this_folder: 0.0, folders[0]: 0.0, folders[1]: late_s})
    for folder in shared.late_s:
        folder.mkdir()
    event = threading.Event()

    def carry() -> None:
        while not event.wait(0.05):
            with_retry(shared.turn)

    environment = {**os.environ, "PYTHONPATH": str(ROOT), "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", RANK, str(folder), str(ahead_s * rank), str(losses * rank)],
            env=environment | {"RANK": str(rank)},
        )
        for rank, folder in enumerate(folders)
    ]
    carrier = threading.Thread(target=carry)
    carrier.start()
    try:
        run = this_folder / "job"
        until(lambda: len([beat_row for beat_row in alive(run) if beat_row.step > 5]) == 2, lambda: live.beats(run))
        outcomes = [recorded(run)]
        while not losses and outcomes[-1] != "done" and len(outcomes) < 3:  # a busy machine
            outcomes.append(recorded(run))
        assert losses or outcomes[-1] == "done", outcomes
    finally:
        for process in processes:
            process.kill()
            process.wait()
        event.set()
        carrier.join()
        shutil.rmtree(this_folder)


def recorded(run: Path) -> str:
    """Ask for a recording; return "done" or "late". Losses or a busy machine make all ranks late, but none alone."""
    asked = ask(run, RecordingOptions(2), "command")
    until(lambda: live.is_over(run, asked), lambda: (live.turns(run, asked), asked, live.beats(run)))
    turns = live.turns(run, asked)
    states: set[str] = {turn.state for turn in turns}
    assert states in ({"done"}, {"late"}), turns
    acks = [live.answer(run, asked, turn.worker) for turn in turns]
    (first,) = {ack.first for ack in acks if ack}
    assert first in (*asked.starts, *[None] * (states == {"late"}))
    return states.pop()


def alive(run: Path) -> list[Heartbeat]:
    return [beat_row for beat_row in live.beats(run) if live.health(beat_row, time.time_ns())[0] == "listening"]


def with_retry(turn: Callable[[], None]) -> None:
    try:
        turn()
    except FileNotFoundError:  # a file was renamed between two calls
        return


def until(found: Callable[[], object], otherwise: Callable[[], object]) -> None:
    end = time.monotonic() + 90
    while not found():
        assert time.monotonic() < end, otherwise()
        time.sleep(0.2)
