"""A search through a real server and agent: it resumes after a kill, and keeps its trials when canceled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.conftest import ROOT, until
from tests.remote.agent_runs import marked
from tests.remote.child_runs import tiny_onnx
from tests.remote.queue_sites import ServerProcess, token_of
from visualprof.cli._server import Server as Client

pytestmark = [pytest.mark.slow, pytest.mark.long]
WHERE = "p99<5s, memory<2GiB, error<1e-2"
OVER = {"batch": "1,4", "threads": "1,2", "optimization": "all, basic, disable"}
ENDED = ("succeeded", "failed", "cancelled")


@contextmanager
def agent(server: ServerProcess, state: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An agent with the runtimes of this interpreter, killed at the end with what it started."""
    command = [sys.executable, "-m", "visualprof", "agent", "--server", server.url, "--state", str(state)]
    env = {**os.environ, "VISUALPROF_AGENT_TOKEN": token_of(server.folder), "VISUALPROF_RUNTIMES": str(state / "none")}
    with subprocess.Popen(
        [*command, "--name", "box", "--public"],
        env=env,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    for pid in marked(state):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "runs").mkdir()
    server = ServerProcess(folder / "runs", folder / "cache").start()
    try:
        Client(server.url).get("agents")  # writes the registration token
        yield server
    finally:
        server.kill()


def submitted(client: Client, model: Path, **search: Any) -> str:
    """A job with a search of a tiny model; its id."""
    sent = client.upload(model, lambda done, size: None)
    draft = {"model": sent["blob"], "key": model.name, "profile_runs": "0", "measure": {"min_s": "0.1", "max_s": "1"}}
    search = {"objective": "throughput", "over": OVER, "where": WHERE, "trial_s": "0.05", **search}
    drafted = client.post("jobs/draft", {**draft, "specs": [{"backends": ["onnxruntime"]}], "search": search})
    assert not drafted["errors"], drafted["errors"]
    return client.post("jobs", drafted["request"])["job"]["id"]


def trials(state: Path) -> list[dict[str, Any]]:
    """Those that the agent's machine has of the task that runs."""
    for file in state.glob("work/*/box/out/search.json"):
        return json.loads(file.read_text())["trials"]
    return []


def ended(client: Client, job: str) -> dict[str, Any]:
    """The job, once it is over."""

    def over() -> Any:
        stored_job = client.get(f"jobs/{job}")["job"]
        return stored_job if stored_job["state"] in ENDED else None

    return until(over, 240)


def shown(client: Client, job: dict[str, Any]) -> dict[str, Any]:
    """The Results page's answer about a job's report."""
    return until(lambda: _overlay(client, job["tasks"][0]["run"]))


def _overlay(client: Client, run: str) -> dict[str, Any] | None:
    response = client.get(f"evaluation/overlay?reports={quote(run, safe='')}")
    return response if response["search"]["report"] else None


def test_a_search_survives_its_agent_and_all_trials_are_shown(server: ServerProcess, tmp_path: Path) -> None:
    client, state = Client(server.url), tmp_path / "state"
    with agent(server, state):
        until(lambda: any(one["capabilities"]["runtimes"] for one in client.get("agents")["agents"]), 60)
        job = submitted(client, tiny_onnx(tmp_path / "net.onnx"), trials="8")
        until(lambda: len(trials(state)) > 3, 120)
    before = [one for one in trials(state) if one["state"] != "running"]
    with agent(server, state):
        done = ended(client, job)
    assert done["state"] == "succeeded"
    (warning,) = done["tasks"][0]["warnings"]
    assert "its agent stopped during the task and was restarted" in warning
    (file,) = server.folder.glob("*/*/search.json")
    body = json.loads(file.read_text())
    assert body["trials"][: len(before)] == before, "nothing is measured twice"
    assert (len({one["at"] for one in body["trials"]}), body["settings"], body["complete"]) == (8, 12, True)
    feasible = [one for one in body["trials"] if one["state"] == "feasible"]
    ranked = sorted(feasible, key=lambda one: one["ratio"]["value"])
    assert {ranked[0]["at"]} <= {one["at"] for one in body["again"]} <= {one["at"] for one in ranked[:3]}
    for one in feasible:
        figures = one["figures"]
        assert (figures["p99_ns"] < 5e9, figures["rss_bytes"] < 2 << 30, figures["error"] < 1e-2) == (True,) * 3
    answer = shown(client, done)
    kinds = answer["search"]["kind"]
    assert [kinds.count(kind) for kind in ("default", "trial", "again")] == [1, 8, len(body["again"])]
    assert answer["searched"]["where"] == [["p99<5s", "memory<2GiB", "error<1e-2"]]
    assert answer["searched"]["method"] == ["gaussian_process"]


def test_a_canceled_search_keeps_its_trials(server: ServerProcess, tmp_path: Path) -> None:
    client, state = Client(server.url), tmp_path / "state"
    with agent(server, state):
        job = submitted(client, tiny_onnx(tmp_path / "other.onnx"))
        until(lambda: len(trials(state)) > 2, 120)
        client.post(f"jobs/{job}/cancel", {})
        done = ended(client, job)
    assert done["state"] == "cancelled"
    answer = shown(client, done)
    assert answer["search"]["kind"].count("trial") >= 2
    assert (answer["searched"]["complete"], answer["searched"]["total"]) == ([False], [12])
    assert not any(answer["search"]["best"])
