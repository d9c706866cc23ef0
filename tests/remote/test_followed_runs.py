"""Live runs of another machine: an agent that follows a folder and reports to the server."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from flask.testing import FlaskClient
from queue_sites import opened
from test_agent_api import Agent, clients

from tests.live_files import acknowledge, heartbeat, request, series
from visualprof.capture import live
from visualprof.capture.ask import ask, margin
from visualprof.remote.agent.link.client import RequestRejected, Unreachable
from visualprof.remote.agent.work import followed_folder
from visualprof.remote.agent.work import run_mirror as agents
from visualprof.remote.agent.work.run_mirror import RunMirror
from visualprof.remote.queue.service import JobService
from visualprof.server import followed_runs, mirrored_files

NAME = "rank0_node7_40.step1300.pt.trace.json.gz"


class Wire:
    """What the agent's client does, without a network. sent: bytes of files that were PUT."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.sent = 0
        self.cut = 0  # after so many bytes of a file the connection breaks
        self.down = False

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.down:
            raise Unreachable("connection refused")
        answer = self._agent.post(path, json.loads(json.dumps(body)))
        if answer.status_code >= 400:
            raise RequestRejected(answer.status_code, answer.get_json())
        return cast("dict[str, Any]", answer.get_json())

    def put(self, url: str, body: Iterable[bytes], size: int, headers: Mapping[str, str]) -> None:
        data = b"".join(body)
        assert len(data) == size
        token = {"Authorization": f"Bearer {self._agent.token}"}
        if self.cut:
            start = int(headers["Content-Range"].split(" ")[1].partition("-")[0])
            headers = {"Content-Range": f"bytes {start}-{start + self.cut - 1}/{start + size}"}
            data, self.cut = data[: self.cut], 0
            self.sent += len(data)
            assert self._agent.client.put(url, data=data, headers={**headers, **token}).status_code == 201
            raise Unreachable("broke off")
        self.sent += size
        assert self._agent.client.put(url, data=data, headers={**headers, **token}).status_code == 201


@dataclass
class Far:
    """A machine with an agent. runs: its folder there; mirror: what the server has of it."""

    wire: Wire
    runs: Path
    logdir: Path
    agent: Agent
    said: list[str]
    followed: RunMirror

    def turn(self) -> None:
        self.followed._searched_s = float("-inf")
        self.followed.report_changes()
        self.followed.upload_recordings()

    def again(self, agent: str = "") -> RunMirror:
        """The agent after a restart, or another one."""
        registration: Any = SimpleNamespace(client=self.wire, agent=agent or self.agent.id)
        self.followed = RunMirror(self.runs, registration, self.said.append, threading.Event())
        return self.followed


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[JobService]:
    with opened(tmp_path / "runs") as remote:
        yield remote


@pytest.fixture
def client(tmp_path: Path, remote: JobService) -> Iterator[FlaskClient]:
    yield from clients(tmp_path, remote)


@pytest.fixture
def make_far(client: FlaskClient, remote: JobService, tmp_path: Path) -> Callable[..., Far]:
    def make(name: str = "gpu box", runs: str = "there") -> Far:
        agent = Agent(client, remote)
        assert agent.register(name=name).status_code == 200
        (tmp_path / runs).mkdir(exist_ok=True)
        far = Far(Wire(agent), tmp_path / runs, tmp_path / "runs", agent, [], cast("Any", None))
        far.again()
        return far

    return make


@pytest.fixture
def far(make_far: Callable[..., Far]) -> Far:
    return make_far()


def recording(run: Path, name: str = NAME, size: int = 0) -> bytes:
    content = gzip.compress(b'{"traceEvents": []}') + os.urandom(size)
    run.mkdir(parents=True, exist_ok=True)
    (run / name).write_bytes(content)
    return content


def test_a_requested_recording_is_made_remotely_and_uploaded(far: Far) -> None:
    for rank in (0, 1):
        heartbeat(far.runs / "job", rank)
    far.turn()
    folder = far.logdir / "gpu-box" / "job"
    assert [beat.worker for beat in live.beats(folder)] == ["rank0_node7_40", "rank1_node7_41"]
    asked = ask(folder, live.RecordingOptions(3), "page")
    first = live.beats(folder)[0].step
    for rank in (0, 1):
        heartbeat(far.runs / "job", rank, step=first + 500)
    far.turn()
    response = request(far.runs / "job")
    assert (response.id, response.count, response.by) == (asked.id, 3, "page")
    assert response.starts[0] == first + 500 + margin(47_000_000)  # of now, not of when it was asked
    assert live.request(folder) == response
    acknowledge(far.runs / "job", asked.id, 0, "armed")
    far.turn()
    assert [turn.state for turn in live.turns(folder, response)] == ["armed", "asked"]
    content = recording(far.runs / "job")
    for rank in (0, 1):
        acknowledge(far.runs / "job", asked.id, rank, "done", file=NAME if rank == 0 else "gone.step1.json.gz")
    far.followed.report_changes()
    assert [turn.state for turn in live.turns(folder, response)] == ["writing", "failed"]  # until it is here
    far.turn()
    heartbeat(far.runs / "job", 0)
    far.turn()
    assert (folder / NAME).read_bytes() == content
    assert [(turn.state, turn.file) for turn in live.turns(folder, response)] == [("done", NAME), ("failed", "")]
    assert far.said == [f"job/{NAME} was uploaded, {len(content)} bytes"]


def test_nothing_is_sent_twice_and_nothing_is_lost(far: Far) -> None:
    recording(far.runs / "job", size=1000)
    heartbeat(far.runs / "job", 0)
    far.wire.down = True
    with pytest.raises(Unreachable):
        far.turn()
    far.wire.down = False
    far.wire.cut = 300
    with pytest.raises(Unreachable):
        far.turn()
    assert far.wire.sent == 300
    far.again()  # the agent starts again
    far.turn()
    size = (far.runs / "job" / NAME).stat().st_size
    assert far.wire.sent == size
    for _ in range(2):
        far.again()
        far.turn()
        far.turn()
    assert far.wire.sent == size
    assert not list((far.logdir / ".visualprof" / "incoming").glob("*/*"))


def test_a_removed_run_does_not_reappear(far: Far) -> None:
    recording(far.runs / "job")
    heartbeat(far.runs / "job", 0)
    far.turn()
    shutil.rmtree(far.logdir / "gpu-box" / "job")
    sent = far.wire.sent
    far.again()
    heartbeat(far.runs / "job", 0)
    far.turn()
    assert (far.wire.sent, os.listdir(far.logdir / "gpu-box")) == (sent, [".agent"])


def test_a_series_grows_and_begins_anew(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_folder, "MAX_REQUEST_BYTES", 100)
    path = series(far.runs / "job", 0, [1, 2, 3])
    heartbeat(far.runs / "job", 0)
    folder = far.logdir / "gpu-box" / "job" / path.name
    for _ in range(4):
        far.turn()
    assert folder.read_bytes() == path.read_bytes()
    with path.open("ab") as out:
        out.write(bytes(200))
    heartbeat(far.runs / "job", 0)
    far.turn()
    part = folder.stat().st_size
    assert path.stat().st_size > part > 24
    for _ in range(4):
        far.turn()
    assert folder.read_bytes() == path.read_bytes()
    series(far.runs / "job", 0, [4, 5], first=77)  # the older half went
    heartbeat(far.runs / "job", 0)
    for _ in range(4):
        far.turn()
    assert folder.read_bytes() == path.read_bytes()


def test_links_and_other_files_are_not_uploaded(far: Far, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    recording(secret, "secret.step1.json.gz")
    heartbeat(secret, 3)
    run = far.runs / "job"
    heartbeat(run, 0)
    (run / "link.step1.json.gz").symlink_to(secret / "secret.step1.json.gz")
    (run / "notes.txt").write_text("mine")
    (run / "job.json").write_text("{}")
    os.mkfifo(run / "pipe.step1.json.gz")
    (run / ".live" / "rank3_node7_43.json").symlink_to(secret / ".live" / "rank3_node7_43.json")
    (run / ".live" / "..json").write_text("{}")
    (far.runs / "linked").symlink_to(secret)
    (far.runs / "hollow").mkdir()
    (far.runs / "hollow" / ".live").symlink_to(secret / ".live")
    far.turn()
    assert sorted(os.listdir(far.logdir / "gpu-box")) == [".agent", "job"]
    assert sorted(os.listdir(far.logdir / "gpu-box" / "job")) == [".live"]
    assert os.listdir(far.logdir / "gpu-box" / "job" / ".live") == ["rank0_node7_40.json"]


@pytest.mark.parametrize(
    "said",
    [
        {"run": "../up"},
        {"run": "/etc"},
        {"run": ".hidden"},
        {"run": "a/b/c"},
        {"folder": "x"},
        {"clock_ns": -1},
        {"grown": [{"name": "monitor.jsonl", "size_bytes": 1, "offset": -1, "head": "", "data": ""}]},
    ],
)
def test_the_server_rejects_paths_outside_the_run(far: Far, said: dict[str, Any]) -> None:
    body = {"folder": "0" * 32, "clock_ns": time.time_ns(), "run": "job", "live": {}, "files": [], "grown": [], **said}
    assert far.agent.post("runs", body).status_code in (400, 422)
    assert not list(far.logdir.glob("[!.]*"))


def test_the_server_stores_only_files_of_the_expected_form(far: Far, tmp_path: Path) -> None:
    beat = heartbeat(tmp_path / "x", 0)
    text = (tmp_path / "x" / ".live" / f"{beat.worker}.json").read_text()
    names = {
        f"{beat.worker}.json": text,
        "../x.json": text,
        "other.json": text,
        "ack.x.json": "{}",
        "request.json": "7",
    }
    grown = [
        {"name": name, "size_bytes": 3, "offset": 0, "head": "YQ==", "data": "YWFh"} for name in ("job.json", "a.py")
    ]
    body = {"folder": "0" * 32, "clock_ns": time.time_ns(), "run": "job", "live": names, "grown": grown}
    answer = far.agent.post("runs", {**body, "files": [{"name": "../a.step1.b.gz", "size_bytes": 1}]})
    assert answer.get_json() == {"want": [], "have": {}, "request": None}
    folder = far.logdir / "gpu-box" / "job"
    assert [path.name for path in folder.rglob("*") if path.is_file()] == [f"{beat.worker}.json"]
    for name in ("../a.step1.b.gz", "job.json"):
        file = {"name": name, "size_bytes": 1, "sha256": "0" * 64}
        assert far.agent.post("runs/uploads", {**body, "files": [file]}).status_code == 422
        assert far.agent.post("runs/finish", {**body, "file": file, "modified_ns": 0}).status_code == 422


def test_a_file_that_differs_from_its_sum_is_not_shown(far: Far) -> None:
    body = {"folder": "0" * 32, "clock_ns": time.time_ns(), "run": "job"}
    file = {"name": NAME, "size_bytes": 3, "sha256": "0" * 64}
    (told,) = far.agent.post("runs/uploads", {**body, "files": [file]}).get_json()["files"]
    assert far.agent.post("runs/finish", {**body, "file": file, "modified_ns": 0}).status_code == 422
    far.wire.put(told["url"], [b"abc"], 3, {})
    refused = far.agent.post("runs/finish", {**body, "file": file, "modified_ns": 0})
    assert (refused.status_code, refused.get_json()["error"]) == (422, f"{NAME} differs from its sha256")
    assert not list((far.logdir / "gpu-box" / "job").iterdir())


def test_links_on_the_server_are_not_followed(far: Far, tmp_path: Path) -> None:
    heartbeat(far.runs / "job", 0)
    far.turn()
    run, aside = far.logdir / "gpu-box" / "job", tmp_path / "aside"
    run.rename(aside)
    run.symlink_to(aside)
    before = sorted(aside.rglob("*"))
    heartbeat(far.runs / "job", 1)
    heartbeat(far.runs / "other", 1)
    far.turn()
    assert far.said == ["job was rejected: job is a link, or no folder"]
    assert sorted(aside.rglob("*")) == before
    assert (far.logdir / "gpu-box" / "other" / ".live").is_dir()


def test_runs_of_the_same_name_from_two_machines_stay_apart(make_far: Callable[..., Far]) -> None:
    first, two = make_far(), make_far(runs="elsewhere")
    for far, rank in ((first, 0), (two, 1)):
        heartbeat(far.runs / "job", rank)
        far.turn()
    assert sorted(path.name for path in first.logdir.glob("*/job")) == ["job", "job"]
    for place, rank in (("gpu-box", 0), ("gpu-box-2", 1)):
        assert [beat.rank for beat in live.beats(first.logdir / place / "job")] == [rank]


def test_a_folder_of_the_log_directory_that_was_there_is_left_alone(far: Far) -> None:
    (far.logdir / "gpu-box" / "job").mkdir(parents=True)
    heartbeat(far.runs / "job", 0)
    far.turn()
    assert not list((far.logdir / "gpu-box" / "job").iterdir())
    assert (far.logdir / "gpu-box-2" / "job" / ".live").is_dir()


def test_a_second_agent_on_a_folder_takes_over_when_the_first_stops(
    make_far: Callable[..., Far], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, two = make_far(), make_far("second")
    assert first.runs == two.runs
    recording(first.runs / "job")
    heartbeat(first.runs / "job", 0)
    first.turn()
    two.turn()
    assert (two.wire.sent, two.said) == (0, [f"{first.runs} is followed by another agent ({first.agent.id})"])
    monkeypatch.setattr(agents, "CLAIM_TIMEOUT_S", 0.0)  # nothing was heard of it for a minute
    two.turn()
    assert two.wire.sent == 0  # what is there is not sent again, nor shown twice
    assert sorted(os.listdir(first.logdir)) == [".visualprof", "gpu-box"]
    monkeypatch.setattr(agents, "CLAIM_TIMEOUT_S", 60.0)
    first.turn()
    assert first.said[-1] == f"{first.runs} is followed by another agent ({two.agent.id})"


@pytest.mark.parametrize("ahead_s", [-300, 300])
def test_clocks_that_differ_do_not_matter(far: Far, monkeypatch: pytest.MonkeyPatch, ahead_s: int) -> None:
    clock = SimpleNamespace(time_ns=lambda: time.time_ns() + ahead_s * 10**9, monotonic=time.monotonic)
    monkeypatch.setattr(agents, "time", clock)
    heartbeat(far.runs / "job", 0, ago_s=-ahead_s)
    far.turn()
    folder = far.logdir / "gpu-box" / "job"
    (beat,) = live.beats(folder)
    assert live.health(beat, time.time_ns()) == ("listening", 0)
    asked = ask(folder, live.RecordingOptions(), "page")
    heartbeat(far.runs / "job", 0, ago_s=-ahead_s)
    far.turn()
    response = request(far.runs / "job")
    assert response.id == asked.id
    assert response.expires_ns - clock.time_ns() == pytest.approx(asked.expires_ns - time.time_ns(), abs=2e9)


def test_a_killed_process_of_this_machine_has_ended(far: Far) -> None:
    heartbeat(far.runs / "job", 0, where=live.machine_id(), pid=2**22 + 1, started=1)
    far.turn()
    (beat,) = live.beats(far.logdir / "gpu-box" / "job")
    assert beat.state == "ended"


def test_of_thousands_of_folders_and_files_the_newest_count(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_folder, "MAX_RUNS", 3)
    monkeypatch.setattr(followed_folder, "MAX_FILES", 2)
    monkeypatch.setattr(mirrored_files, "MAX_FILES", 2)
    for number in range(6):
        heartbeat(far.runs / f"group/job{number}", 0)
        os.utime(far.runs / f"group/job{number}" / ".live", (number, number))
    for step in range(5):
        recording(far.runs / "group/job5", f"a.step{step}.json.gz")
        os.utime(far.runs / "group/job5" / f"a.step{step}.json.gz", (step, step))
    far.turn()
    place = far.logdir / "gpu-box" / "group"
    assert sorted(os.listdir(place)) == ["job3", "job4", "job5"]
    assert sorted(path.name for path in (place / "job5").glob("*.gz")) == ["a.step3.json.gz", "a.step4.json.gz"]
    recording(far.runs / "group/job5", "a.step5.json.gz")
    far.turn()
    heartbeat(far.runs / "group/job5", 0)
    far.turn()
    assert sorted(path.name for path in (place / "job5").glob("*.gz")) == ["a.step4.json.gz", "a.step5.json.gz"]


def test_a_rejected_file_stays_and_the_reason_is_reported(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_runs, "MAX_FILE_BYTES", 10)
    monkeypatch.setattr(mirrored_files, "MAX_FILE_BYTES", 10)
    recording(far.runs / "job")
    heartbeat(far.runs / "job", 0)
    acknowledge(far.runs / "job", "x", 0, "done", file=NAME)
    far.turn()
    asked: Any = SimpleNamespace(id="x")
    assert live.answer(far.logdir / "gpu-box" / "job", asked, "rank0_node7_40") == live.Ack(
        "x", "failed", 1300, why="its file stays on its machine: its agent says why"
    )


def test_only_agents_tell_of_runs(far: Far) -> None:
    body = {"folder": "0" * 32, "clock_ns": 1, "run": "job", "live": {}, "files": [], "grown": []}
    assert far.agent.post("runs", body, token="vp_a_wrong").status_code == 401
    assert far.agent.post("runs", body, Origin="http://localhost").status_code == 403
