"""Messages between live processes and clients, exchanged through files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from visualprof.capture import CaptureBusy, CaptureError, files, live, notes
from visualprof.capture.ask import agreed, ask, margin
from visualprof.capture.live import Ack, Heartbeat, RecordingOptions, Request, WorkerProgress

S = 10**9
NOW = 1_000 * S


def beat(rank: int = 0, **said: Any) -> Heartbeat:
    """A rank of two that has just said that it lives: of another machine, so that no process is looked for."""
    whole: dict[str, Any] = {
        "worker": f"rank{rank}_far_{rank + 5}",
        "rank": rank,
        "world_size": 2,
        "host": "far",
        "pid": rank + 5,
        "where": "",
        "started": None,
        "framework": "torch",
        "can": ["memory"],
        "problem": "",
        "step": 100,
        "step_ns": S,
        "fastest_ns": S,
        "stepped_ns": NOW,
        "watches": False,
        "state": "listening",
        "t_ns": NOW,
        "monotonic_ns": 0,
    }
    return Heartbeat(**(whole | said))


def put(run: Path, *said: Heartbeat | Request | Ack, worker: str = "") -> None:
    folder = run / live.FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for one in said:
        name = f"{one.worker}.json" if isinstance(one, Heartbeat) else f"ack.{worker}.json"
        notes.write(folder / (live.REQUEST if isinstance(one, Request) else name), one)


def lively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live.time, "time_ns", lambda: NOW)


def test_the_margin_is_two_steps_and_those_of_a_second_and_a_fifth() -> None:
    assert margin(S) == 4
    assert margin(100_000_000) == 2 + 12
    assert margin(4_000_000) == 2 + 300


def test_starts_are_four_times_as_far_each_and_a_quarter_of_the_way_is_for_the_answers() -> None:
    starts, read_by = agreed([beat(step=100), beat(1, step=103, fastest_ns=2 * S)])
    assert starts == [103 + 4, 103 + 16, 103 + 64, 103 + 256]
    assert read_by == [107 - 1, 119 - 4, 167 - 16, 359 - 64]
    assert agreed([beat(step=100)], first=1_000)[0] == [1_000, 1_012, 1_060, 1_252]
    with pytest.raises(CaptureError, match="first steps have not ended"):
        agreed([beat(fastest_ns=None)])


def test_running_hanging_and_ended_workers_are_distinguished() -> None:
    fields: dict[str, Any] = {"where": live.machine_id(), "pid": os.getpid(), "started": files.started(os.getpid())}
    assert live.health(beat(**fields), NOW + 9 * S) == ("listening", 0)
    assert live.health(beat(state="ended"), NOW + S) == ("ended", S)
    assert live.health(beat(), NOW + 11 * S) == ("silent", 11 * S)
    assert live.health(beat(t_ns=NOW + 30 * S), NOW + 31 * S) == ("hung", 31 * S)
    assert live.health(beat(t_ns=NOW + 30 * S, step_ns=2 * S), NOW + 31 * S) == ("listening", 0)  # 20 steps of 2 s
    if live.machine_id():
        fields["started"] = 1
        assert live.health(beat(**fields), NOW) == ("ended", 0)  # another process has its number
        fields["where"] = "elsewhere"
        assert live.health(beat(**fields), NOW) == ("listening", 0)


@pytest.mark.skipif(not live.machine_id(), reason="no /proc")
def test_a_zombie_process_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        started = files.started(child.pid)
        assert started
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert files.started(child.pid) is None
        assert live.health(beat(where=live.machine_id(), pid=child.pid, started=started), NOW)[0] == "ended"


def test_ranks_are_asked_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lively(monkeypatch)
    single = beat(-1, worker="far_9", world_size=-1)
    put(tmp_path, beat(), beat(1, step=101), single, beat(2, state="ended"), beat(3, t_ns=0), beat(4, problem="none"))
    asked = ask(tmp_path, RecordingOptions(3, stacks=True), "command")
    assert asked == live.request(tmp_path)
    assert asked.workers == ["rank0_far_5", "rank1_far_6"]  # neither those that ended or are silent, nor that without
    assert (asked.count, asked.starts[0]) == (3, 105)
    assert asked.options == {"memory": True, "shapes": True, "stacks": True}
    assert not list(tmp_path.rglob(".asking"))


def test_processes_without_ranks_begin_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lively(monkeypatch)
    first, second = (beat(-1, worker=f"far_{pid}", world_size=-1, fastest_ns=None) for pid in (7, 8))
    put(tmp_path, first, second)
    asked = ask(tmp_path, RecordingOptions(), "page")
    assert (asked.workers, asked.starts) == (["far_7", "far_8"], [])
    put(tmp_path, Ack(asked.id, "done", 1), worker="far_7")
    with pytest.raises(CaptureBusy, match="5 steps are being recorded, asked for by page"):
        ask(tmp_path, RecordingOptions(), "command")
    put(tmp_path, Ack(asked.id, "refused", 1), worker="far_8")
    assert ask(tmp_path, RecordingOptions(), "signal", "far_8").workers == ["far_8"]


def test_nothing_is_requested_if_no_worker_can_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lively(monkeypatch)
    with pytest.raises(CaptureError, match="no longer listen for requests"):
        ask(tmp_path, RecordingOptions(), "page")
    put(tmp_path, beat(problem="no framework is imported yet"))
    with pytest.raises(CaptureError, match="nothing can be recorded: no framework"):
        ask(tmp_path, RecordingOptions(), "page")
    put(tmp_path, beat())
    (tmp_path / live.FOLDER / ".asking").touch()
    with pytest.raises(CaptureBusy, match="another request is in progress"):
        ask(tmp_path, RecordingOptions(), "page")
    aside = (tmp_path / live.FOLDER / ".asking").stat().st_mtime - 11
    os.utime(tmp_path / live.FOLDER / ".asking", (aside, aside))
    assert ask(tmp_path, RecordingOptions(), "page")
    for count in (0, 101):
        with pytest.raises(CaptureError, match="cannot be recorded at a time"):
            RecordingOptions(count)


def test_each_worker_is_listed_with_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lively(monkeypatch)
    states = ("asked", "armed", "recording", "done", "late", "ended", "silent", "hung")
    for rank, state in enumerate(states):
        change = {"state": "ended"} if state == "ended" else {"t_ns": NOW - 11 * S} if state == "silent" else {}
        change |= {"stepped_ns": NOW - 30 * S} if state == "hung" else {}
        put(tmp_path, beat(rank, **change))
    names = [found.worker for found in live.beats(tmp_path)]
    asked = Request(
        id="a1",
        by="page",
        count=5,
        options=RecordingOptions().options,
        workers=[*names, "rank9_gone_1"],
        starts=[],
        read_by=[],
        t_ns=NOW,
        expires_ns=NOW + S,
    )
    for name, state in zip(names, states, strict=True):
        answered = state in ("armed", "recording", "done", "late")
        put(tmp_path, Ack("a1" if answered else "older", state, 3, None, "why", "a.gz"), worker=name)
    turns = live.turns(tmp_path, asked, NOW)
    assert [turn.state for turn in turns] == [*states, "ended"]
    assert turns[3] == WorkerProgress(names[3], "done", "why", "a.gz")
    put(tmp_path, Ack("a1", "done", 3, None, "", "../../secret"), worker=names[3])
    assert live.answer(tmp_path, asked, names[3]) is None
    put(tmp_path, Ack("a1", "done", 3, None, "", "a.gz"), worker=names[3])
    assert turns[7] == WorkerProgress(names[7], "hung", since_ns=30 * S)
    assert not live.is_over(tmp_path, asked, NOW)
    late = live.turns(tmp_path, asked, NOW + 2 * S)
    assert [turn.state for turn in late] == [
        "late",
        "late",
        "recording",
        "done",
        "late",
        "ended",
        "late",
        "late",
        "ended",
    ]
    assert [turn.why for turn in late[6:8]] == ["nothing was heard of it", "it ended no step"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"id": 1}',
        "[" * 50_000,
        "x" * (notes.MAX_FILE_BYTES + 1),
        '{"id": "\\ud800"}',
        "NaN",
        "\0",
    ],
)
def test_an_invalid_request_gives_none(tmp_path: Path, text: str) -> None:
    (tmp_path / live.FOLDER).mkdir()
    (tmp_path / live.FOLDER / live.REQUEST).write_text(text)
    (tmp_path / live.FOLDER / "x_1.json").write_text(text)
    assert live.request(tmp_path) is None
    assert live.beats(tmp_path) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 0},
        {"count": 101},
        {"count": True},
        {"count": 1.5},
        {"starts": []},
        {"starts": [5, 5], "read_by": [1, 2]},
        {"starts": [5], "read_by": [5]},
        {"starts": list(range(9, 14)), "read_by": list(range(5))},
        {"options": {}},
        {"options": {"memory": True, "shapes": True, "stacks": True, "logdir": True}},
        {"workers": [1]},
        {"options": {"memory": "/etc", "shapes": True, "stacks": True}},
        {"id": "x" * 1001},
        {"expires_ns": 1 << 63},
    ],
)
def test_a_request_asks_for_nothing_else(tmp_path: Path, wrong: dict[str, Any]) -> None:
    good = Request(
        id="a1",
        by="page",
        count=5,
        options=RecordingOptions().options,
        workers=["x_1"],
        starts=[5],
        read_by=[4],
        t_ns=NOW,
        expires_ns=NOW,
    )
    put(tmp_path, good)
    assert live.request(tmp_path) == good
    path = tmp_path / live.FOLDER / live.REQUEST
    path.write_text(json.dumps(json.loads(path.read_text()) | wrong))
    assert live.request(tmp_path) is None


def test_an_incomplete_character_is_invalid(tmp_path: Path) -> None:
    put(tmp_path, beat())
    path = tmp_path / live.FOLDER / f"{beat().worker}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"host": "\ud800"}))
    assert live.beats(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no links and pipes")
def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    notes.write(secret, beat())
    run = tmp_path / "run"
    put(run, beat(1))
    (run / live.FOLDER / f"{beat().worker}.json").symlink_to(secret)
    os.mkfifo(run / live.FOLDER / "pipe_1.json")
    (run / live.FOLDER / "other_name.json").write_bytes(secret.read_bytes())  # a heartbeat under another's name
    assert live.beats(run) == [beat(1)]
    notes.write(run / live.FOLDER / f"{beat().worker}.json", beat(step=7))
    assert live.read(secret, Heartbeat) == beat()
    assert live.beats(run)[0] == replace(beat(), step=7)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / live.FOLDER).symlink_to(run / live.FOLDER)
    assert live.beats(tmp_path / "linked") == []
    assert live.folders(tmp_path) == live.folders(run) == [run]
