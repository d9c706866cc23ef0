"""Runs in the bucket: every server shows them, caches the recently used, and loses none."""

from __future__ import annotations

import contextlib
import json
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from queue_sites import MODEL, FakeAgent, Http, Refused, request, result, upload

from tests.conftest import until
from tests.results import point
from tests.server_settings import server_settings
from tests.swift import Swift
from visualprof.remote.queue.store import blob_cache
from visualprof.remote.queue.store.bucket_url import parse_bucket_url
from visualprof.remote.queue.store.tables import artifacts
from visualprof.remote.queue.tasks import maintenance as upkeep_module
from visualprof.remote.queue.tasks.bucket_runs import MARKER_FILE
from visualprof.remote.queue.tasks.maintenance import remove_leftovers
from visualprof.server.serve import Server

pytestmark = pytest.mark.slow

EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10 * i, "dur": 5, "args": {"no": i}}
    for i in range(9)
]
TIMELINE = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}).encode()
LATENCIES = struct.pack("<9I", *range(1, 10))
POINTS = json.dumps(point(1, range(1, 10))).encode() + b"\n"
FILES = {
    "points.jsonl": POINTS,
    "timeline.json": TIMELINE,
    "latencies.bin": LATENCIES,
    "log.txt": b"measured\n",
    "deep/notes.json": b"{}",
}
HEADS = {"job.json", "env.json", "status.json", "points.jsonl", MARKER_FILE}


class Replica:
    """A server with a log directory and a cache of its own, over the database of all."""

    def __init__(self, server: Server) -> None:
        self.server, self.root = server, server.job_service.root.path
        self._http = Http(server.url.rstrip("/"))

    def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        return self._http(method, f"/api/v1/{path}", body)

    def patiently(self, path: str) -> Any:
        """As a page does: what is being fetched is asked for again."""

        def asked() -> Any:
            try:
                return self.ask(path)
            except Refused as refused:
                assert refused.status == 503, refused  # noqa: PT017
            time.sleep(0.1)
            return None

        return until(asked)

    def refusal(self, path: str) -> tuple[int, str]:
        with pytest.raises(Refused) as error:
            self.ask(path)
        return error.value.status, error.value.body["error"]

    def span(self, run: str) -> Any:
        runs = [row for row in self.ask("runs")["runs"] if row["id"] == run]
        return runs[0]["workers"][0]["spans"][0] if runs else None

    def report(self, run: str) -> Any:
        return next((row for row in self.ask("evaluation")["reports"] if row["id"] == run), None)

    def here(self, run: str) -> set[str]:
        folder = self.root / run
        return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


Start = Callable[..., Replica]


@pytest.fixture
def start(swift: Swift, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts servers that have the database and the bucket in common."""
    url = swift.new()
    with contextlib.ExitStack() as stack:

        def begin(name: str, cache_bytes: int = 1 << 30, store_runs: bool = True) -> Replica:
            monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / f"{name}-cache"))
            (tmp_path / name).mkdir(exist_ok=True)
            settings = server_settings(
                store=parse_bucket_url(url), store_runs=store_runs, cache_bytes=cache_bytes, data=tmp_path / "data"
            )
            server = stack.enter_context(Server([tmp_path / name], 0, settings))
            upload(server.job_service)
            server.start()
            return Replica(server)

        yield begin


def measured(on: Replica, key: str = "k", **more: bytes) -> str:
    """The run of a job that an agent has done."""
    on.server.job_service.open().jobs.submit(request(key))
    agent = FakeAgent(on.server.url.rstrip("/"), on.server.job_service.registration_token, key).register()
    lease = agent.lease()
    assert lease
    agent.succeed(lease, **FILES, **more)
    return lease["run"]


def overview(run: str) -> str:
    return f"view/overview?run={quote(run, safe='')}"


def objects(on: Replica) -> list[str]:
    bucket: Any = on.server.job_service.open().store
    return [row["Key"].removeprefix("runs/") for row in bucket._list("list_objects_v2", "Contents", "runs/runs/")]


def test_every_server_shows_a_run_and_downloads_requested_files(start: Start) -> None:
    first, other = start("first"), start("other")
    run = measured(first)
    assert until(lambda: first.span(run))["state"] in ("waiting", "parsing", "ready")
    assert until(lambda: other.span(run))["state"] == "waiting"
    until(lambda: other.report(run))
    assert other.here(run) == HEADS, "lists need no more"
    assert len(objects(first)) == 8, "all but the model, which is there already"
    of_first, of_other = first.patiently(overview(run)), other.patiently(overview(run))
    assert of_first == of_other
    assert other.here(run) == {*HEADS, "timeline.json"}
    point = f"evaluation/point?report={quote(run, safe='')}&batch=1"
    assert other.patiently(point)["facts"]["runs_shown"] == 9
    assert other.patiently(f"timeline/event?run={quote(run, safe='')}&event=3")["arguments"] == {"no": 3}
    assert (other.root / run / "latencies.bin").read_bytes() == LATENCIES
    found = [replica.server.logdir.listing().find(run).summary for replica in (first, other)]
    assert len({summary and summary.fingerprint for summary in found}) == 1, "it is the same file everywhere"


def test_the_log_and_the_model_of_a_run_come_from_the_bucket(start: Start, tmp_path: Path) -> None:
    first, other = start("first"), start("other")
    run = measured(first)
    task = first.ask("jobs")["jobs"][0]["tasks"][0]["id"]
    until(lambda: other.report(run))
    for log in (tmp_path / "data" / "logs").glob("*"):
        log.unlink()
    assert other.patiently(f"tasks/{task}/log?offset=0")["text"] == "measured\n"
    mirror = other.server.job_service.open().mirror
    assert mirror
    mirror.ensure_local(str(other.root / run / "net.onnx"))
    assert (other.root / run / "net.onnx").read_bytes() == MODEL


@pytest.mark.long
def test_a_server_on_an_empty_disk_shows_all_runs(start: Start) -> None:
    first = start("first")
    runs = {measured(first, f"k{i}") for i in range(3)}
    other = start("other")
    until(lambda: {row["id"] for row in other.ask("evaluation")["reports"]} >= runs)
    assert all(other.span(run)["state"] == "waiting" for run in runs)
    assert all(other.here(run) == HEADS for run in runs)


@pytest.mark.long
def test_the_least_recently_used_copies_are_evicted_and_fetched_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_cache, "_IN_USE_NS", 10**9)
    first = start("first", cache_bytes=1)
    run = measured(first)
    answer = first.patiently(overview(run))
    until(lambda: first.here(run) == HEADS)
    span = until(lambda: first.span(run))
    assert (span["state"], first.ask(overview(run))) == ("ready", answer), "what was read of it stays"
    first.server.logdir.rescan()
    assert first.span(run) == span, "it did not go"
    event = f"timeline/event?run={quote(run, safe='')}&event=3"
    assert first.patiently(event)["arguments"] == {"no": 3}


@pytest.mark.long
def test_files_being_read_are_not_evicted(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_cache, "_IN_USE_NS", 10**9)
    first = start("first", cache_bytes=1)
    busy: set[str] = set()
    first.server.job_service.busy_paths = lambda: busy
    run = measured(first)
    busy.add(str(first.root / run / "timeline.json"))
    mirror = first.server.job_service.open().mirror
    assert mirror
    mirror.ensure_local(str(first.root / run / "timeline.json"))
    mirror.ensure_local(str(first.root / run / "latencies.bin"))
    until(lambda: first.here(run) == {*HEADS, "timeline.json"})
    busy.clear()
    until(lambda: first.here(run) == HEADS)


@pytest.mark.long
def test_while_the_store_is_down_the_rest_is_served(swift: Swift, start: Start) -> None:
    first, other = start("first"), start("other")
    measured_job, strange = measured(first), measured(first, "k2")
    answer = other.patiently(overview(measured_job))
    until(lambda: other.report(strange))
    swift.stop("proxy")
    assert other.ask(overview(measured_job)) == answer
    assert {row["id"] for row in other.ask("evaluation")["reports"]} >= {measured_job, strange}

    def told() -> bool:
        status, error = other.refusal(overview(strange))
        assert status == 503
        return "the store s3://" in error

    until(told)
    status, error = other.refusal(f"evaluation/point?report={quote(strange, safe='')}&batch=1")
    assert (status, error.endswith(" does not answer")) == (503, True)
    swift.start()
    assert other.patiently(overview(strange)) == first.patiently(overview(strange))


@pytest.mark.long
def test_files_damaged_in_the_bucket_are_not_shown(swift: Swift, start: Start) -> None:
    first, other = start("first"), start("other")
    run = measured(first)
    until(lambda: other.report(run))
    bucket: Any = first.server.job_service.open().store
    [key] = [key for key in objects(first) if "." in key.rpartition("/")[2]]
    swift.client().put_object(Bucket=bucket.location.bucket, Key=f"runs/{key}", Body=b"x" * len(TIMELINE))
    until(lambda: other.refusal(overview(run))[0] == 500)
    assert "is missing or damaged in s3://" in other.refusal(overview(run))[1]
    assert other.here(run) == HEADS


@pytest.mark.long
def test_a_job_that_is_removed_goes_everywhere(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = start("first"), start("other")
    run = measured(first)
    until(lambda: other.report(run))
    other.patiently(overview(run))
    queue = other.server.job_service.open()
    job = queue.jobs.get_by_task(first.ask("jobs")["jobs"][0]["tasks"][0]["id"]).id
    total = sum(map(len, result(job, f"{job}-0", **FILES).values()))
    assert queue.deleter.estimate(job).size_bytes >= total
    first.ask(f"jobs/{job}", "DELETE")
    until(lambda: not other.span(run) and not other.report(run))
    until(lambda: not (other.root / run).parent.exists())
    assert not (first.root / run).parent.exists()
    remove_leftovers(queue.database, queue.store, queue.results.partial_folder)
    assert len(objects(first)) == 8, "files without a run may be of one that is being published"
    monkeypatch.setattr(upkeep_module, "_MIN_RUN_FILE_AGE_S", -60)
    remove_leftovers(queue.database, queue.store, queue.results.partial_folder)
    assert objects(first) == []


@pytest.mark.long
def test_a_later_attempt_replaces_an_earlier_one(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = start("first"), start("other")
    queue = first.server.job_service.open()
    queue.jobs.submit(request("k"))
    agent = FakeAgent(first.server.url.rstrip("/"), first.server.job_service.registration_token).register()
    for state, timeline in (("failed", TIMELINE), ("succeeded", TIMELINE.replace(b"aten::mm", b"aten::add"))):
        lease = until(agent.lease)
        files = result(lease["job"], lease["task"], **{"timeline.json": timeline})
        agent.send(lease, files)
        agent.finish(lease, state, files=list(files))
        until(partial(other.report, lease["run"]))
        shown = f"view/operator?run={quote(lease['run'], safe='')}"
        if state == "failed":
            assert "aten::mm" in json.dumps(other.patiently(shown))
            first.ask(f"jobs/{lease['job']}/retry", "POST")
    until(lambda: "aten::add" in json.dumps(other.patiently(shown)))
    with queue.database.read() as connection:
        assert {row.attempt for row in connection.execute(artifacts.select())} == {2}
    monkeypatch.setattr(upkeep_module, "_MIN_RUN_FILE_AGE_S", -60)
    remove_leftovers(queue.database, queue.store, queue.results.partial_folder)
    assert len(objects(first)) == 5, "what it replaced is removed"


@pytest.mark.long
def test_folders_stay_as_they_are(start: Start) -> None:
    first = start("first", store_runs=False)
    run = measured(first)
    assert (objects(first), MARKER_FILE in first.here(run)) == ([], False)
    other = start("other")
    later = measured(other, "k2")
    assert until(lambda: first.report(later)), "also a server that keeps its own as folders shows others"
    (first.root / later.partition("/")[0] / "mine").mkdir()
    (first.root / later.partition("/")[0] / "mine" / "notes.txt").write_text("mine")
    job = next(job["id"] for job in other.ask("jobs")["jobs"] if job["tasks"][0]["run"] == later)
    other.ask(f"jobs/{job}", "DELETE")
    until(lambda: not (first.root / later).exists())
    assert (first.root / later.partition("/")[0] / "mine" / "notes.txt").read_text() == "mine"
    assert first.report(run)
