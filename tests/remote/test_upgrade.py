"""Files of earlier releases: the database is migrated, agents are understood, cached columns are read again."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from queue_sites import NoParser, opened, request

from tests.conftest import FIXTURES
from tests.server_settings import server_settings
from visualprof.reader.cache import Cache, open_trace
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.scan import Root
from visualprof.remote.protocol import Lease, build
from visualprof.remote.queue.service import JobService
from visualprof.remote.queue.store.database import open_sqlite
from visualprof.remote.queue.store.files import DATABASE_FILE
from visualprof.remote.queue.store.tables import metadata
from visualprof.server.app import create_app

RELEASES = sorted(path for path in (FIXTURES / "releases").iterdir() if path.is_dir())
IDENTIFIERS = ("agent", "token", "task", "job", "lease")


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def release(request: pytest.FixtureRequest) -> Path:
    return request.param


def table_rows(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every table but the schema's version."""
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    rows = {name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")] for name in names}
    connection.close()
    del rows["alembic_version"]
    return rows


def restored(release: Path, path: Path) -> Path:
    """Return the database of a release."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript((release / "jobs.sql").read_text("utf-8"))
    connection.close()
    return path


def test_the_database_of_a_release_gets_the_present_tables_and_keeps_its_rows(release: Path, tmp_path: Path) -> None:
    path = restored(release, tmp_path / "jobs.sqlite")
    before = table_rows(path)
    assert all(before.values()), "a fixture has a row in every table"
    open_sqlite(path).close()
    after = table_rows(path)
    assert after.keys() >= {table.name for table in metadata.sorted_tables}
    for name, rows in before.items():
        present = [{key: row[key] for key in rows[0]} for row in after[name]]
        assert [row for row in rows if row not in present] == [], name


def test_the_jobs_of_a_release_are_shown(release: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "runs") as remote:
        folder = remote.root.path
    (path,) = folder.rglob(DATABASE_FILE)
    for file in path.parent.glob(f"{DATABASE_FILE}*"):
        file.unlink()
    restored(release, path)
    remote = JobService(Root(tmp_path / "runs", ""))
    (job,) = remote.open().jobs.ids()
    shown = remote.open().jobs.get(job)
    assert (shown.state, shown.request.model.name) == ("succeeded", "net.onnx")
    assert [agent.name for agent in remote.agents()] == ["a"]
    remote.close()


def test_columns_that_a_release_cached_are_read_again(release: Path, tmp_path: Path) -> None:
    """The key of an entry contains the version of its layout and a digest of the reader, so old entries are unused."""
    shutil.copytree(release / "cache", tmp_path / "cache")
    (old,) = (tmp_path / "cache").iterdir()
    content, cache = old.read_bytes(), Cache(tmp_path / "cache")
    shutil.copy(release / "trace.json", tmp_path)
    trace = open_trace(tmp_path / "trace.json", cache=cache)
    assert [trace.strings[i] for i in trace.events.name] == ["aten::mm"] * 3
    assert old.read_bytes() == content
    assert len(list((tmp_path / "cache").glob("*.vptrace"))) == 2


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[JobService]:
    with opened(tmp_path / "runs") as remote:
        remote.open().jobs.submit(request("k"))
        yield remote


@pytest.fixture
def client(remote: JobService, tmp_path: Path) -> Iterator[FlaskClient]:
    logdir = LogDirectory([tmp_path / "runs"], NoParser(), Cache(tmp_path / "cache"), events=False)
    yield create_app(logdir, server_settings(dist=tmp_path / "dist"), remote).test_client()
    logdir.close()


class Replay:
    """Requests of a recorded agent, with the identifiers and addresses that the present server chose."""

    def __init__(self, client: FlaskClient, registration_token: str, uploads: list[str]) -> None:
        self._client = client
        self._uploads = uploads
        self._present: dict[str, str] = {}
        self._token = registration_token

    def send(self, message: dict[str, Any]) -> Any:
        """Send a request, check status and fields of its answer, and return the answer."""
        answer = self._client.open(
            self._replaced(message["path"]),
            method=message["method"],
            data=self._replaced(message["body"]).encode("latin-1"),
            headers={"Authorization": f"Bearer {self._token}", **message["headers"]},
            content_type="application/json",
            buffered=True,
        )
        assert answer.status_code == message["status"], (message["path"], answer.data)
        present = answer.get_json(silent=True)
        if message["answer"]:
            self._learn(message["answer"], present)
            assert missing_fields(message["answer"], present) == []
        self._token = self._present.get("token", self._token)
        return present

    def _learn(self, recorded: Any, present: Any) -> None:
        for key in IDENTIFIERS:
            if key in recorded:
                self._present[recorded[key]] = present[key]
        if "token" in present:
            self._present["token"] = present["token"]
        if "lease" in recorded:  # files that name the job and the task have other digests
            for text in self._uploads:
                self._present[digest(text)] = digest(self._replaced(text))
        for old, new in zip(recorded.get("files", []), present.get("files", []), strict=True):
            self._present[old["url"]] = new["url"]

    def _replaced(self, text: str) -> str:
        known = sorted((old for old in self._present if old != "token"), key=len, reverse=True)
        return re.sub("|".join(map(re.escape, known)) or "$^", lambda found: self._present[found[0]], text)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("latin-1")).hexdigest()


def missing_fields(recorded: Any, present: Any, place: str = "") -> list[str]:
    """Return the fields of a recorded answer that the present one lacks."""
    if isinstance(recorded, dict):
        return [
            field
            for key, value in recorded.items()
            for field in (
                missing_fields(value, present[key], f"{place}.{key}") if key in present else [f"{place}.{key}"]
            )
        ]
    if isinstance(recorded, list):
        return [f for old, new in zip(recorded, present, strict=False) for f in missing_fields(old, new, place)]
    return []


def messages(release: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (release / "agent.jsonl").read_text("utf-8").splitlines()]


def test_an_agent_of_a_release_runs_a_job_of_the_present_server(
    release: Path, remote: JobService, client: FlaskClient
) -> None:
    uploads = [message["body"] for message in messages(release) if message["method"] == "PUT"]
    replay = Replay(client, remote.registration_token, uploads)
    answers: dict[str, list[Any]] = defaultdict(list)
    for message in messages(release):
        answers[message["path"].rpartition("/")[2].partition("?")[0]].append(replay.send(message))
    (lease,) = answers["lease"]
    assert remote.open().jobs.get(lease["job"]).state == "succeeded"
    assert (remote.root.path / lease["run"] / "status.json").is_file()


def test_a_lease_of_a_release_is_understood_by_the_present_agent(release: Path) -> None:
    (message,) = (message for message in messages(release) if message["path"].endswith("/lease"))
    lease = build(Lease, message["answer"])
    assert (lease.request.model.name, lease.spec.backend, lease.files[0].role) == ("net.onnx", "onnxruntime", "model")


def test_a_newer_protocol_is_rejected_with_advice(release: Path, remote: JobService, client: FlaskClient) -> None:
    body = json.loads(messages(release)[0]["body"])
    answer = client.post(
        "/api/v1/agent/register",
        json={**body, "protocol": body["protocol"] + 1},
        headers={"Authorization": f"Bearer {remote.registration_token}"},
    )
    assert answer.status_code == 400
    assert "same version of visualprof" in answer.get_json()["hint"]
