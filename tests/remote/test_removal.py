"""Removing jobs: freed and remaining files; and drained or blocked machines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from queue_sites import MODEL, FakeAgent, Http, Refused, member, opened, request, served, submitted, token_of
from queue_sites import upload as keep
from sqlalchemy import func, select
from test_queue_results import Bench, leased

from tests.conftest import until
from visualprof.errors import NotFound
from visualprof.remote.protocol import ModelRef, Spec
from visualprof.remote.queue.errors import Conflict, PayloadTooLarge, ServerBusy
from visualprof.remote.queue.store import agents as agents_module
from visualprof.remote.queue.store.tables import metadata

pytestmark = pytest.mark.both_databases


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path / "runs") as remote:
        yield leased(remote)


def finished(bench: Bench, **more: bytes) -> str:
    """Its task has a result and a log of 10 bytes."""
    bench.queue.logs.append(bench.task, 0, b"x" * 10)
    files = bench.result(**more)
    bench.send(files)
    bench.finish(files)
    return bench.lease.job


def rows(bench: Bench) -> dict[str, int]:
    with bench.queue.database.read() as connection:
        tables = [table for table in metadata.sorted_tables if table.name not in ("agents", "revisions")]
        return {t.name: connection.execute(select(func.count()).select_from(t)).scalar_one() for t in tables}


def test_a_removed_job_leaves_nothing(bench: Bench) -> None:
    job = finished(bench, **{"trace.json": b"[" + b" " * 998 + b"]"})
    held = sum(path.stat().st_size for path in bench.run.iterdir() if path.name != "net.onnx") + len(MODEL) + 10
    assert bench.queue.deleter.estimate(job) == bench.queue.deleter.delete(job)
    assert not bench.run.parent.exists()
    assert set(rows(bench).values()) == {0}
    below = bench.root / ".visualprof"
    for folder in ("blobs", "logs", "incoming", "results.partial"):
        assert not (below / folder).is_dir() or list((below / folder).iterdir()) == []
    with pytest.raises(NotFound):
        bench.queue.jobs.get(job)
    assert held > 1000


def test_removal_reports_the_freed_bytes(bench: Bench) -> None:
    """The model counts once, though it has two names, and only when no other job and no other folder has it."""
    job = finished(bench)
    run_bytes = sum(path.stat().st_size for path in bench.run.iterdir() if path.name != "net.onnx") + 10
    assert bench.queue.deleter.estimate(job).size_bytes == run_bytes + len(MODEL)
    os.link(bench.run / "net.onnx", bench.root / "kept.onnx")
    assert bench.queue.deleter.estimate(job).size_bytes == run_bytes
    (bench.root / "kept.onnx").unlink()
    other, _ = bench.queue.jobs.submit(request("other"))
    assert bench.queue.deleter.delete(job).size_bytes == run_bytes
    assert bench.queue.blobs.path(bench.queue.jobs.get(other).request.model.blob).read_bytes() == MODEL


def test_files_that_are_not_results_of_the_job_stay(bench: Bench) -> None:
    job = finished(bench)
    note = bench.run.parent / "notes" / "why.txt"
    note.parent.mkdir()
    note.write_text("mine")
    stolen = bench.run.parent / "other"
    stolen.mkdir()
    (stolen / "job.json").write_text(json.dumps({"job": "another"}))
    assert bench.queue.deleter.delete(job).runs == [bench.lease.run]
    assert not bench.run.exists()
    assert (note.read_text(), stolen.is_dir()) == ("mine", True)


def test_a_moved_result_stays(bench: Bench) -> None:
    job = finished(bench)
    bench.run.rename(bench.root / "best")
    assert bench.queue.deleter.delete(job).runs == []
    assert (bench.root / "best" / "points.jsonl").is_file()


def test_a_job_that_has_not_ended_stays(bench: Bench) -> None:
    with pytest.raises(Conflict, match="has not ended"):
        bench.queue.deleter.delete(bench.lease.job)
    assert bench.task.state == "running"


def test_the_page_and_the_shell_remove_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from visualprof.cli import main

    with served(tmp_path / "runs") as server:
        agent = FakeAgent(server.url, token_of(tmp_path / "runs")).register()
        http = Http(server.url)
        names = [http("POST", "/api/v1/jobs", submitted(key, Spec("ort", "onnxruntime")))["job"]["id"] for key in "ab"]
        with pytest.raises(Refused) as refused:
            http("DELETE", f"/api/v1/jobs/{names[0]}")
        assert refused.value.status == 409
        for _ in names:
            lease = agent.lease()
            assert lease
            agent.succeed(lease)
        space = http("GET", f"/api/v1/jobs/{names[0]}/space")
        assert space["runs"] == [f"net-{names[0]}/ort"]
        assert http("DELETE", f"/api/v1/jobs/{names[0]}") == space
        assert [job["id"] for job in http("GET", "/api/v1/jobs")["jobs"]] == [names[1]]
        for words, is_kept in (([], True), (["--no-more"], False)):
            assert main(["jobs", "--server", server.url, "keep", names[1], *words]) == 0
            assert http("GET", f"/api/v1/jobs/{names[1]}")["kept"] is is_kept
        assert main(["jobs", "--server", server.url]) == 0
        assert names[1] in capsys.readouterr().out
        assert main(["jobs", "--server", server.url, "remove", names[1], "--dry-run"]) == 0
        assert "would free" in capsys.readouterr().out
        assert main(["jobs", "--server", server.url, "--json", "remove", "--older-than", "0"]) == 0
        assert set(json.loads(capsys.readouterr().out)) == {names[1]}
        assert http("GET", "/api/v1/jobs")["jobs"] == []
        assert main(["jobs", "--server", server.url, "remove"]) == 2
        assert main(["jobs", "--server", server.url, "remove", names[1]]) == 2
        assert f"There is no job '{names[1]}'" in capsys.readouterr().err


def test_a_drained_machine_finishes_its_task_and_gets_no_other(tmp_path: Path) -> None:
    with served(tmp_path / "runs") as server:
        agent = FakeAgent(server.url, token_of(tmp_path / "runs")).register()
        http = Http(server.url)
        for key in "ab":
            http("POST", "/api/v1/jobs", submitted(key))
        lease = agent.lease()
        assert lease
        answer = http("PATCH", f"/api/v1/agents/{agent.id}", {"standing": "drained"}, Content_Type="application/json")
        assert answer["agents"][0]["standing"] == "drained"
        assert agent.beat(lease) == {**agent.beat(lease), "cancel": [], "stale": []}
        agent.succeed(lease)
        assert agent.lease() is None
        unserved = [http("GET", f"/api/v1/jobs/{job['id']}")["unserved"] for job in http("GET", "/api/v1/jobs")["jobs"]]
        assert unserved == [["ort"], ["ort"]]
        http("PATCH", f"/api/v1/agents/{agent.id}", {"standing": "works"}, Content_Type="application/json")
        assert agent.lease()


def test_a_machine_that_is_put_out_loses_its_task_and_does_not_come_back(tmp_path: Path) -> None:
    with served(tmp_path / "runs", lease_s=1.0) as server:
        token = token_of(tmp_path / "runs")
        agent, other = (FakeAgent(server.url, token, name).register() for name in ("bad", "good"))
        http = Http(server.url)
        http("POST", "/api/v1/jobs", submitted("k"))
        lease = agent.lease()
        assert lease
        http("PATCH", f"/api/v1/agents/{agent.id}", {"standing": "out"}, Content_Type="application/json")
        for ask in (agent.lease, lambda: agent.beat(lease), lambda: agent.finish(lease)):
            with pytest.raises(Refused) as refused:
                ask()
            assert refused.value.status == 401
        with pytest.raises(Refused) as refused:
            agent.register(agent=agent.id, token=agent.own)
        assert (refused.value.status, "was put out" in refused.value.body["error"]) == (403, True)
        again = until(lambda: other.lease())
        assert (again["task"], again["warnings"]) == (
            lease["task"],
            ["measured again from the beginning (attempt 2): agent bad was lost"],
        )
        http("PATCH", f"/api/v1/agents/{agent.id}", {"standing": "works"}, Content_Type="application/json")
        assert agent.register(agent=agent.id, token=agent.own).own == agent.own
        http("PATCH", f"/api/v1/agents/{agent.id}", {"standing": "out"}, Content_Type="application/json")
        left = http("DELETE", f"/api/v1/agents/{agent.id}")["agents"]
        assert [row["name"] for row in left] == ["good"], "though it was heard of a moment ago"


def test_the_servers_own_machine_is_not_put_out(tmp_path: Path) -> None:
    with opened(tmp_path / "runs") as remote:
        agents = remote.open().agents
        own, _ = agents.register(
            "local", public=True, local=True, address="", capabilities=member(remote.open()).capabilities
        )
        with pytest.raises(Conflict, match="belongs to this server"):
            agents.update(own, None, None, "out")
        agents.update(own, None, None, "drained")


def test_registered_agents_stay_after_token_rotation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from visualprof.cli import main

    with served(tmp_path / "runs") as server:
        old = token_of(tmp_path / "runs")
        agent = FakeAgent(server.url, old).register()
        assert main(["machines", "--server", server.url, "new-token"]) == 0
        new = token_of(tmp_path / "runs")
        assert capsys.readouterr().out.strip().endswith(f"--token {new}")
        with pytest.raises(Refused) as refused:
            FakeAgent(server.url, old, "stranger").register()
        assert refused.value.status == 401
        with pytest.raises(Refused):
            FakeAgent(server.url, old, "thief").register(agent=agent.id, token="vp_a_guessed")
        assert agent.register(agent=agent.id, token=agent.own).id == agent.id, "with the old token of its command"
        FakeAgent(server.url, new, "another").register()
        assert main(["machines", "--server", server.url, "drain", "another"]) == 0
        assert "drained" in capsys.readouterr().out
        assert main(["machines", "--server", server.url, "out", "nobody"]) == 2
        assert "No machine called 'nobody'" in capsys.readouterr().err


def test_a_crowd_of_machines_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents_module, "MAX_NEW_PER_MINUTE", 3)
    with opened(tmp_path / "runs") as remote:
        queue = remote.open()
        for name in "abc":
            member(queue, name)
        with pytest.raises(ServerBusy, match="in the last minute"):
            member(queue, "d")
        monkeypatch.setattr(agents_module, "MAX_NEW_PER_MINUTE", 99)
        monkeypatch.setattr(agents_module, "MAX_AGENTS", 3)
        with pytest.raises(ServerBusy, match="3 machines are registered"):
            member(queue, "d")
        assert len(queue.agents.list_visible()) == 3


def test_descriptions_of_machines_are_limited(tmp_path: Path) -> None:
    from dataclasses import replace

    from queue_sites import capabilities

    with opened(tmp_path / "runs") as remote:
        queue = remote.open()
        long = replace(capabilities(), cpu="x" * 900_000)
        with pytest.raises(PayloadTooLarge, match="at most 64 KiB of itself, not 879"):
            member(queue, known=long)
        with pytest.raises(PayloadTooLarge):
            queue.agents.mark_seen(member(queue), long)


def test_a_blob_that_two_jobs_name_goes_with_the_second(tmp_path: Path) -> None:
    with opened(tmp_path / "runs") as remote:
        queue = remote.open()
        blob = keep(remote, b"other", "other.onnx")
        jobs = [queue.jobs.submit(request(key, name=key))[0] for key in "ab"]
        third, _ = queue.jobs.submit(request("c"))
        assert queue.jobs.get(third).request.model != ModelRef(blob, "other.onnx")
        for job in (*jobs, third):
            queue.jobs.cancel(job)
        assert [queue.deleter.delete(job).size_bytes for job in (*jobs, third)] == [0, 0, len(MODEL)]
        assert queue.blobs.path(blob).is_file(), "nobody submitted it yet"
