"""The command line of the agent, and its folder."""

from __future__ import annotations

import argparse
import json
import re
import stat
from pathlib import Path

import pytest

from visualprof.cli import main
from visualprof.remote.agent import command
from visualprof.remote.agent.errors import AgentError, failed_outcome, to_task_failure
from visualprof.remote.agent.machine.sandbox import Sandbox, outermost_folders
from visualprof.remote.agent.state import Identity, Journal, StateFolder, default_state_folder
from visualprof.remote.protocol import Lease, ModelRef, Request, Spec, TaskFailure


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(list(arguments)))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "--server is missing"),
        (["--server", "host:8040"], "is not an address"),
        (["--server", "ftp://host"], "is not an address"),
        (["--server", "http://host"], "--token is missing"),
        (["--runtime", "nothing", "probe"], "is not BACKEND=PYTHON"),
        (["--runtime", "caffe=/x", "probe"], "is not BACKEND=PYTHON"),
    ],
)
def test_missing_or_wrong_options_are_named(arguments: list[str], error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(command.TOKEN_VARIABLE, raising=False)
    with pytest.raises(AgentError, match=re.escape(error)) as told:
        run(*arguments)
    assert told.value.hint


def test_an_error_of_the_agent_is_reported_by_the_command_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["agent"]) == 2
    err = capfd.readouterr().err
    assert "visualprof: --server is missing" in err
    assert "Hint: " in err


def test_probe_prints_json(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VISUALPROF_RUNTIMES", str(tmp_path))
    monkeypatch.setattr(
        "visualprof.remote.agent.machine.probe.PROBE_TIMEOUT_S", 0.001
    )  # what it has is not the question here
    assert main(["agent", "--tags", "lab, fast", "probe"]) == 0
    assert json.loads(capfd.readouterr().out)["tags"] == ["lab", "fast"]


def test_the_state_is_apart_for_each_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_state_folder("http://host:8040/a") == tmp_path / "visualprof" / "agent" / "host_8040"
    assert default_state_folder("http://../..") == tmp_path / "visualprof" / "agent" / "server"


def test_a_token_is_kept_for_its_server_alone(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "state")
    state.save_identity(Identity("http://a", "a1", "secret"))
    assert state.load_identity("http://a") == Identity("http://a", "a1", "secret")
    assert state.load_identity("http://b") is None
    assert stat.S_IMODE((state.path / "identity.json").stat().st_mode) == 0o600
    (state.path / "identity.json").write_text("[1")
    assert state.load_identity("http://a") is None


def test_fetched_files_beyond_their_share_go_oldest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    state = StateFolder(tmp_path)
    for i, name in enumerate("abc"):
        file = state.blobs / name
        file.write_bytes(bytes(10))
        os.utime(file, (i, i))
    monkeypatch.setattr("visualprof.remote.agent.state.MAX_BLOB_BYTES", 25)
    state.trim_blobs()
    assert {item.name for item in state.blobs.iterdir()} == {"b", "c"}


def test_a_file_that_was_just_used_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateFolder(tmp_path)
    (state.blobs / "a").write_bytes(bytes(10))
    monkeypatch.setattr("visualprof.remote.agent.state.MAX_BLOB_BYTES", 5)
    state.trim_blobs()
    assert (state.blobs / "a").exists()


def test_folders_inside_others_are_not_mounted_twice(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "ab").mkdir()
    paths = [str(tmp_path / name) for name in ("a/b", "a", "ab", "none")]
    assert outermost_folders([*paths, "/", "/usr/lib", "", "relative"]) == [str(tmp_path / "a"), str(tmp_path / "ab")]


def test_a_sandbox_shows_the_folder_of_weights_that_its_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("HF_TOKEN", "secret")
    sandbox = Sandbox(Path("/box"), Path("/usr/bin/python3"))
    command, env = sandbox.command(2, "-c", "")
    assert env["TORCH_HOME"] == str(tmp_path)
    assert ["--ro-bind", str(tmp_path), str(tmp_path)] in [command[i : i + 3] for i in range(len(command))]
    assert "HF_TOKEN" not in env


def test_a_hash_that_is_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a SHA-256"):
        StateFolder(tmp_path).blob_path("../../identity.json")


def lease(attempt: int = 1) -> Lease:
    return Lease(
        task="t1",
        job="j1",
        run="r",
        attempt=attempt,
        lease="token",
        spec=Spec("s", "b"),
        request=Request("k", ModelRef("x", "m"), []),
        files=[],
    )


def test_a_journal_stores_its_entries(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite", print)
    journal.add(lease(), "http://a", tmp_path / "work")
    journal.add(lease(2), "http://a", tmp_path / "work2")
    journal.record_child(lease(), 12, 34)
    outcome = failed_outcome(TaskFailure("timeout", "too slow"))
    journal.record_outcome(lease(2), outcome)
    journal.count_start(lease(2))
    journal.close()
    again = Journal(tmp_path / "journal.sqlite", print)
    first, second = again.entries()
    assert (first.lease, first.pid, first.start_ticks, first.starts, first.outcome) == (lease(), 12, 34, 1, None)
    assert (second.lease, second.folder, second.starts) == (lease(2), tmp_path / "work2", 2)
    assert second.outcome == outcome
    again.remove(lease())
    assert [entry.lease.attempt for entry in again.entries()] == [2]
    again.close()


def test_a_journal_that_cannot_be_read_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_bytes(b"no database" * 100)
    messages: list[str] = []
    journal = Journal(tmp_path / "journal.sqlite", messages.append)
    assert journal.entries() == []
    journal.close()
    assert "cannot be read" in messages[0]
    assert (tmp_path / "journal.sqlite.broken").exists()


@pytest.mark.parametrize(("number", "reason"), [(28, "disk_full"), (122, "disk_full"), (13, "agent_error")])
def test_an_error_of_the_disk_is_named(number: int, reason: str) -> None:
    assert to_task_failure(OSError(number, "why")).reason == reason
