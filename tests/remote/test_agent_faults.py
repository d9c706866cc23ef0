"""Faults around the agent: kills, network failures, interrupted uploads, lost tokens."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.remote.agent_runs import ROOT, AgentProcess, StartAgent, agents, server, start
from tests.remote.fake_server import FakeServer, Task
from visualprof.remote.agent.daemon import RESTART_WARNING
from visualprof.remote.protocol import Intervals, Profile

pytestmark = pytest.mark.slow

__all__ = ["server", "start"]


def hanging(server: FakeServer, start: StartAgent, *arguments: str) -> tuple[Task, AgentProcess]:
    """A task that has measured a point and hangs."""
    task = server.submit(b"measure=0.05 hang")
    agent = start(*arguments)
    server.wait(lambda: task.points and agent.children())
    return task, agent


def test_after_sigkill_the_orphan_is_gone_and_the_task_is_done_again(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"family measure=0.3 say=done")
    agent = start()
    server.wait(lambda: len(agent.children()) >= 3)
    old = agent.children()
    agent.signal(signal.SIGKILL)
    agent.ended()
    start()
    report = server.finished(task)
    assert report["state"] == "succeeded"
    assert task.finishes == 1
    assert not set(old) & set(agent.children())
    assert task.result["log.txt"] == b"done\n", "the log is that of the second time"
    assert report["warnings"] == task.json("status.json")["warnings"] == [RESTART_WARNING]


@pytest.mark.parametrize("sandbox", ["off", "auto"])
def test_a_killed_agent_takes_the_measuring_child_with_it(server: FakeServer, start: StartAgent, sandbox: str) -> None:
    _, agent = hanging(server, start, "--sandbox", sandbox)
    agent.signal(signal.SIGKILL)
    server.wait(lambda: not agent.children(), 10)


def test_a_task_that_was_given_out_meanwhile_is_dropped(server: FakeServer, start: StartAgent) -> None:
    task, agent = hanging(server, start)
    agent.signal(signal.SIGKILL)
    agent.ended()
    task.stale = True
    again = start()
    other = server.submit(b"measure=0.05")
    assert server.finished(other)["state"] == "succeeded"
    assert task.finishes == 0
    assert "dropped" in again.said


@pytest.mark.long
def test_a_task_that_kills_its_agent_twice_is_left_to_the_server(server: FakeServer, start: StartAgent) -> None:
    task, agent = hanging(server, start)
    for said in ("task ", "registered"):  # the first restart does it again, the second one does not
        agent.signal(signal.SIGKILL)
        agent.ended()
        agent = start()
        server.wait(lambda agent=agent, said=said: said in agent.said)
    beats = len(server.beats)
    server.wait(lambda: len(server.beats) > beats + 1)
    server.wait(lambda: not agent.children())  # it may still be looking for runtimes
    assert server.beats[-1]["tasks"] == [], "its lease runs out"
    assert task.report is None


@pytest.mark.long
def test_a_result_that_was_not_reported_is_reported_after_the_restart(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"measure=1 file=extra.json profile.fail=crashed", profile=Profile(2))
    agent = start()
    server.wait(lambda: agent.children())
    server.down = True
    server.wait(lambda: not agent.children())
    server.wait(lambda: list((agent.state / "work").glob("*/box/out/status.json")))
    time.sleep(0.1)  # the journal is written right after it
    agent.signal(signal.SIGKILL)
    agent.ended()
    measured = next((agent.state / "work").glob("*/box/out/points.jsonl")).read_bytes()
    server.down = False
    start()
    assert server.finished(task)["state"] == "succeeded"
    assert task.result["points.jsonl"] == measured, "it was not measured again"
    assert task.report
    assert task.report["warnings"] == task.json("status.json")["warnings"] != []
    assert RESTART_WARNING not in task.report["warnings"]
    assert task.result["extra.json"] == b"content of extra.json"


@pytest.mark.long
def test_a_cut_longer_than_a_lease_costs_nothing(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"say=before measure=3.5 say=after")
    agent = start()
    server.wait(lambda: task.log)
    server.down = True
    time.sleep(server.intervals.lease_s * 1.2)
    assert len(agent.children()) == 1, "it works on"
    server.down = False
    assert server.finished(task)["state"] == "succeeded"
    assert task.log == task.result["log.txt"] == b"before\nafter\n"
    assert len(task.points) == 1
    assert agent.said.count("cannot reach") == 1
    assert agent.said.count("answers again") == 1


def test_an_interrupted_upload_resumes_at_its_offset(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"big=20 measure=0.05")
    start()
    server.wait(lambda: len(task.files.get("big.json", b"")) >= 8 << 20)
    server.cut_after = 100
    assert server.finished(task)["state"] == "succeeded"
    starts = [
        int(headers["Content-Range"].split()[1].split("-")[0])
        for method, path, headers in server.requests
        if method == "PUT" and path.endswith("big.json")
    ]
    assert starts == sorted(starts), "no byte that had arrived was sent again"
    assert server.cut_after == -1


def test_a_result_that_arrives_damaged_is_sent_again(server: FakeServer, start: StartAgent) -> None:
    server.damage = True
    task = server.submit(b"measure=0.05")
    start()
    assert server.finished(task)["state"] == "succeeded"
    assert task.finishes == 2


def test_a_result_that_never_arrives_whole_is_named(server: FakeServer, start: StartAgent) -> None:
    server.unfit = 10
    task = server.submit(b"measure=0.05")
    start()
    report = server.finished(task)
    assert (report["state"], report["reason"], report["files"]) == ("failed", "upload_failed", [])


def test_a_full_disk_of_the_server_is_named(server: FakeServer, start: StartAgent) -> None:
    server.full = True
    task = server.submit(b"measure=0.05")
    start()
    report = server.finished(task)
    assert (report["state"], report["reason"], report["files"]) == ("failed", "disk_full", [])
    assert "the server's disk is full" in report["error"]


def test_a_disk_of_the_server_that_is_full_at_the_very_end_is_named(server: FakeServer, start: StartAgent) -> None:
    server.full_at_finish = True
    task = server.submit(b"measure=0.05")
    start()
    report = server.finished(task)
    assert (report["state"], report["reason"], report["files"]) == ("failed", "disk_full", [])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("only root can mount a small disk")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=90m", "tmpfs", str(folder)], check=False).returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_of_the_agent_is_named(server: FakeServer, small_disk: Path) -> None:
    with agents(server, small_disk) as start_there:
        task = server.submit(b"measure=0.05 write=200")
        agent = start_there()
        report = server.finished(task)
        assert (report["state"], report["reason"]) == ("failed", "disk_full"), report
        assert task.json("status.json")["reason"] == "disk_full"
        assert len(task.lines("points.jsonl")) == 1
        again = server.submit(b"measure=0.05")
        assert server.finished(again)["state"] == "succeeded", "its room is free again"
        assert agent.process.poll() is None


def test_a_second_agent_with_the_same_folder_is_refused(server: FakeServer, start: StartAgent) -> None:
    first = start()
    server.wait(lambda: "registered" in first.said)
    second = start()
    assert second.ended() == 2
    assert "already runs with the state folder" in second.said
    assert str(first.process.pid) in second.said


def test_a_wrong_token_is_explained(server: FakeServer, start: StartAgent) -> None:
    agent = start(VISUALPROF_AGENT_TOKEN="vp_r_wrong")
    assert agent.ended() == 2
    assert "does not accept this agent: this is not the server's token" in agent.said
    assert "vp_r_wrong" not in agent.said


def test_an_unavailable_server_is_reported_once_and_awaited(server: FakeServer, start: StartAgent) -> None:
    server.down = True
    agent = start()
    server.wait(lambda: "cannot reach" in agent.said)
    time.sleep(1)
    server.down = False
    server.wait(lambda: "registered" in agent.said)
    assert agent.said.count("cannot reach") == 1


def test_a_restart_keeps_the_id_and_a_private_token(server: FakeServer, start: StartAgent) -> None:
    agent = start()
    server.wait(lambda: len(server.polls) > 0)
    agent.signal(signal.SIGTERM)
    assert agent.ended() == 0
    identity = agent.state / "identity.json"
    assert stat.S_IMODE(identity.stat().st_mode) == 0o600
    start()
    server.wait(lambda: len(server.registrations) == 2)
    assert server.registrations[1]["agent"] == "a1"
    assert server.registrations[1]["token"] == json.loads(identity.read_text())["token"]


def test_an_agent_that_the_server_forgot_registers_again(server: FakeServer, start: StartAgent) -> None:
    agent = start()
    server.wait(lambda: server.polls)
    server.agents.clear()
    server.wait(lambda: len(server.registrations) == 2)
    task = server.submit(b"measure=0.05")
    assert server.finished(task)["state"] == "succeeded"
    assert agent.process.poll() is None


def test_sigterm_lets_the_task_end_first(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"measure=1")
    agent = start()
    server.wait(lambda: agent.children())
    agent.signal(signal.SIGTERM)
    assert server.finished(task)["state"] == "succeeded"
    assert agent.ended() == 0
    server.submit(b"measure=1")
    assert len(server.waiting) == 1, "it takes no further one"


def test_an_idle_agent_leaves_at_once(server: FakeServer, start: StartAgent) -> None:
    server.intervals = Intervals(poll_s=30.0)
    agent = start()
    server.wait(lambda: server.polls)
    began = time.monotonic()
    agent.signal(signal.SIGTERM)
    assert agent.ended() == 0
    assert time.monotonic() - began < 10, "it does not wait for the poll's answer"


@pytest.mark.long
@pytest.mark.parametrize("signals", [[signal.SIGTERM, signal.SIGTERM], [signal.SIGINT], [signal.SIGQUIT]])
def test_a_task_that_is_left_is_done_by_the_next_start(
    server: FakeServer, start: StartAgent, signals: list[signal.Signals]
) -> None:
    task = server.submit(b"measure=1.5")
    agent = start()
    server.wait(lambda: agent.children())
    for each in signals:
        agent.signal(each)
        time.sleep(0.3)
    assert agent.ended() == 0
    assert agent.children() == []
    assert task.finishes == 0
    start()
    assert server.finished(task)["state"] == "succeeded"


@pytest.mark.parametrize("away", [False, True])
def test_an_agent_ends_with_the_process_that_started_it(server: FakeServer, tmp_path: Path, away: bool) -> None:
    server.down = away
    pid_file, log = tmp_path / "pid", tmp_path / "log"
    script = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "tests/remote/agent_runs.py", "--server", "{server.url}",
    "--state", "{tmp_path / "state"}", "--sandbox", "off", "--exit-with-parent"])
open("{pid_file}", "w").write(str(child.pid))
time.sleep(60)
"""
    environment = {**os.environ, "VISUALPROF_AGENT_TOKEN": "vp_r_right", "VISUALPROF_RUNTIMES": str(tmp_path / "none")}
    with log.open("wb") as out:
        parent = subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=out, cwd=ROOT)
    try:
        server.wait(lambda: ("cannot reach" if away else "registered") in log.read_text())
    finally:
        parent.kill()
        parent.wait()
    pid = int(pid_file.read_text())
    try:
        server.wait(lambda: not is_alive(pid))
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Whether it runs; nobody may be there to reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
