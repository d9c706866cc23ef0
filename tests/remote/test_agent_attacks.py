"""Hostile models: leftovers, output and resources."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.remote.agent_runs import ROOT, StartAgent, agents, server, start
from tests.remote.fake_server import FakeServer
from tests.remote.test_agent_faults import small_disk
from visualprof.remote.agent.child_files import remove_folder
from visualprof.remote.agent.link.transfer import collect_files
from visualprof.remote.agent.machine import sandbox
from visualprof.remote.agent.work.child_events import EventReader, sanitize

pytestmark = pytest.mark.slow

__all__ = ["server", "small_disk", "start"]

needs_bwrap = pytest.mark.skipif(bool(sandbox.bubblewrap_problem()), reason=sandbox.bubblewrap_problem() or "-")


def deep(folder: Path, levels: int = 3000) -> None:
    """Folders in folders, beyond the longest path."""
    code = f"import os\nos.chdir({str(folder)!r})\nfor _ in range({levels}): os.mkdir('d'); os.chdir('d')"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- what they leave ---


def test_folders_beyond_any_path_are_left_out_and_removed(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"measure=0.05 deep=3000")
    agent = start()
    assert server.finished(task)["state"] == "succeeded"
    assert "points.jsonl" in task.result
    other = server.submit(b"measure=0.05")
    assert server.finished(other)["state"] == "succeeded", "the agent goes on"
    server.wait(lambda: not list((agent.state / "work").iterdir()))


def test_an_agent_starts_despite_folders_with_too_long_paths(
    server: FakeServer, start: StartAgent, tmp_path: Path
) -> None:
    left = tmp_path / "state" / "work" / "left"
    left.mkdir(parents=True)
    deep(left)
    task = server.submit(b"measure=0.05")
    start()
    assert server.finished(task)["state"] == "succeeded"
    assert not left.exists()


def test_a_result_among_very_many_files_is_whole(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"many=20000 measure=0.05")
    start()
    assert server.finished(task)["state"] == "succeeded"
    assert {"job.json", "env.json", "status.json", "points.jsonl", "monitor.jsonl", "log.txt"} <= set(task.result)
    assert len(task.result) <= 200


def test_files_larger_than_a_server_takes_are_left_out(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"sparse=big.bin sparse=latencies.bin measure=0.05")
    start()
    report = server.finished(task)
    assert report["state"] == "succeeded"
    assert "points.jsonl" in task.result
    assert all(name in report["warnings"][-1] for name in ("big.bin", "latencies.bin"))


def test_a_result_is_limited_to_the_size_that_servers_accept(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "status.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(40)
    limits = pytest.MonkeyPatch()
    limits.setattr("visualprof.remote.agent.link.transfer.MAX_TOTAL_BYTES", 100)
    pieces, left_out = collect_files(tmp_path)
    limits.undo()
    assert [piece.name for piece in pieces] == ["status.json", "a"]
    assert left_out == ["b", "c"]


def test_files_with_odd_names_are_left_out(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"odd_names measure=0.05")
    start()
    assert server.finished(task)["state"] == "succeeded"
    assert {name for name in task.result if not name.endswith((".json", ".jsonl", ".txt"))} == {"-rf"}


def test_a_folder_that_its_owner_may_not_enter_is_removed(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs another user")
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "shut").mkdir()
    (folder / "shut" / "file").touch()
    (folder / "shut").chmod(0)
    for path in (folder, folder / "shut", folder / "shut" / "file"):
        os.chown(path, 65534, 65534)
    code = f"""
        import os, sys
        sys.path.insert(0, {str(ROOT)!r})
        from pathlib import Path
        from visualprof.remote.agent.child_files import remove_folder
        os.chdir({str(folder)!r}); os.setuid(65534)
        for path in Path(".").iterdir(): remove_folder(path)
        print(os.listdir("."))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_nothing_outside_is_removed_through_a_link(tmp_path: Path) -> None:
    kept_folder, folder = tmp_path / "kept", tmp_path / "work"
    kept_folder.mkdir()
    (kept_folder / "file").touch()
    folder.mkdir()
    (folder / "link").symlink_to(kept_folder)
    deep(folder)
    remove_folder(folder)
    assert not folder.exists()
    assert (kept_folder / "file").exists()


# --- what they say ---


def test_impossible_values_do_not_cost_the_result(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"measure=0.05 odd_effective")
    start()
    assert server.finished(task)["state"] == "succeeded"
    env = task.json("env.json")
    assert env["effective"]["ok"] == "1"
    assert [env["effective"][name] for name in ("nan", "inf", "big", "half")] == [None, None, None, "?"]
    for name in ("env.json", "status.json"):
        assert b"NaN" not in task.result[name]
        assert b"Infinity" not in task.result[name]
        assert b"\\ud800" not in task.result[name]


def test_events_after_an_endless_line_are_read(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"long_line=20 measure=0.05")
    start()
    assert server.finished(task)["state"] == "succeeded"
    assert len(task.points) == 1


def test_values_of_events_are_limited_to_what_json_can_represent() -> None:
    wide = {str(i): i for i in range(1000)}
    assert len(sanitize(wide)) == 100
    assert sanitize([[[[["x"]]]]]) == [[[None]]]
    assert sanitize({"a": [1, 2.5, True, None, "b"]}) == {"a": [1, 2.5, True, None, "b"]}
    assert sanitize(-(1 << 63)) == -(1 << 63)
    assert sanitize(1 << 63) is None


def test_a_line_that_never_ends_takes_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with path.open("wb") as file:
        file.truncate(100 << 20)
        file.seek(0, 2)
        file.write(b'\n{"event": "done"}\n')
    events, events_read, before = EventReader(path), list[dict[str, object]](), -1
    while before != events.offset:
        before = events.offset
        events_read += events.read()
    assert events_read == [{"event": "done"}]


# --- what they take ---


def test_a_model_that_starts_processes_without_end_is_ended(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"forks=1100")
    agent = start()
    report = server.finished(task)
    assert report["reason"] == "crashed"
    assert "processes were started, 1000 are allowed" in report["error"]
    assert agent.children() == []


def test_a_model_that_nearly_fills_the_disk_is_ended(server: FakeServer, small_disk: Path) -> None:
    with agents(server, small_disk) as start_there:
        task = server.submit(b"measure=0.05 write=78 hang")
        start_there()
        report = server.finished(task)
        assert report["reason"] == "disk_full"
        assert "nearly full" in report["error"]
        assert len(task.lines("points.jsonl")) == 1


@needs_bwrap
@pytest.mark.parametrize("where", ["/tmp/x", "/dev/shm/x"])
def test_memory_that_belongs_to_no_process_counts(server: FakeServer, start: StartAgent, where: str) -> None:
    task = server.submit(b"measure=0.05 hoard=" + where.encode())
    start("--sandbox", "require", "--memory", "0.2")
    report = server.finished(task)
    assert report["reason"] == "out_of_memory"
    assert "0.20 are allowed" in report["error"]


@needs_bwrap
def test_a_sandboxed_model_sees_and_reaches_nothing_of_the_agents(
    server: FakeServer, start: StartAgent, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    other = state / "work" / "other"
    secrets = [state / "identity.json", state / "journal.sqlite", state / "blobs", other, Path("/etc/shadow")]
    secrets += [Path("~root/.ssh").expanduser(), Path("/home"), Path("/var/log"), Path("/proc/1/environ")]
    task = server.submit(b"probe=" + ",".join(map(str, secrets)).encode())
    start("--sandbox", "require")
    assert server.finished(task)["state"] == "succeeded"
    answer = task.json("probe.json")
    assert {str(path): answer[str(path)] for path in secrets[:-1]} == dict.fromkeys(
        map(str, secrets[:-1]), "No such file or directory"
    )
    assert answer["pids"][0] == 1
    assert len(answer["pids"]) <= 4, "its own alone"
    assert answer["lo"] != 0
    assert answer["out"] != 0
    assert len(answer["files"]) <= 5, "nothing of the agent's is open"


@needs_bwrap
def test_a_daemon_of_a_sandboxed_model_ends_with_it(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"family measure=0.05")
    agent = start("--sandbox", "require")
    assert server.finished(task)["state"] == "succeeded"
    end = time.monotonic() + 5
    while agent.children() and time.monotonic() < end:
        time.sleep(0.05)
    assert agent.children() == []
