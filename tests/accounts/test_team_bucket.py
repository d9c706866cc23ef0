"""A team with files in a bucket: owners and limits of uploads, none of which pass through the server."""

from __future__ import annotations

import hashlib
import os
import threading
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from queue_sites import FakeAgent, request, result
from sites import MakeSite, Site
from teams import MODEL_FILE, SHELL, Browser

from tests.server_settings import server_settings
from tests.swift import Swift
from visualprof.accounts.service import Accounts
from visualprof.cli._server import Server as Commands
from visualprof.cli._server import Unreachable
from visualprof.remote.agent.link import client as client_module
from visualprof.remote.agent.link.client import Client
from visualprof.remote.agent.link.transfer import ResultFile, download, upload_result
from visualprof.remote.protocol import Lease, build
from visualprof.remote.queue.store import s3 as s3_module
from visualprof.remote.queue.store.bucket_url import parse_bucket_url
from visualprof.remote.queue.store.quotas import Quota, set_quota
from visualprof.server.app import create_app
from visualprof.server.job_service import JobService
from visualprof.server.serve import Server

pytestmark = pytest.mark.slow

PASSWORD = "four words are enough"
MODEL = MODEL_FILE.read_bytes()
SHA256 = hashlib.sha256(MODEL).hexdigest()


@pytest.fixture
def site(swift: Swift, make_site: MakeSite) -> Iterator[tuple[Site, JobService]]:
    """People with accounts, and a bucket."""
    new_site = make_site()
    settings = server_settings(accounts=True, store=parse_bucket_url(swift.new()))
    remote = JobService(new_site.logdir.roots[0], settings.queue)
    new_site.app = create_app(new_site.logdir, settings, remote, new_site.reader)
    accounts = Accounts(remote.open().database)
    for name, role in (("ann", "member"), ("bob", "member"), ("root", "admin")):
        accounts.users.create(SHELL, f"{name}@example.org", name, role, PASSWORD)  # type: ignore[arg-type]
    yield new_site, remote
    remote.close()


def browser(site: Site, name: str) -> Browser:
    browser_client = Browser(site.app.test_client())
    assert browser_client.log_in(f"{name}@example.org").status_code == 200
    return browser_client


def announced(who: Browser, data: bytes = MODEL, blob: str = "", **more: Any) -> Any:
    body = {"name": "net.onnx", "size_bytes": len(data), "blob": blob, **more}
    answer = who.ask("POST", "uploads/direct", json=body)
    assert answer.status_code == 201, answer.get_json()
    return answer.get_json()


def put(way: Any, data: bytes) -> None:
    for part in way["parts"]:
        piece = data[part["offset"] :][: part["size_bytes"]]
        urllib.request.urlopen(urllib.request.Request(part["url"], piece, method="PUT")).close()


def test_a_model_goes_past_the_server_into_a_job(site: tuple[Site, JobService]) -> None:
    ann = browser(site[0], "ann")
    assert ann.ask("GET", "session").get_json()["direct"] is True
    way = announced(ann, blob=SHA256)
    assert ann.ask("POST", f"uploads/direct/{way['upload']}").status_code == 422, "it is not there yet"
    put(way, MODEL)
    assert ann.ask("GET", f"uploads/direct/{way['upload']}").get_json() == {
        "upload": way["upload"],
        "have_bytes": len(MODEL),
        "parts": [],
    }
    answer = ann.ask("POST", f"uploads/direct/{way['upload']}")
    assert (answer.status_code, answer.get_json()["blob"], answer.get_json()["kind"]) == (201, SHA256, "model")
    assert ann.ask("GET", f"uploads/direct/{way['upload']}").status_code == 404, "it is a blob now"
    assert ann.ask("POST", "uploads/known", json={"blob": SHA256, "name": "again.onnx"}).get_json()["files"]
    draft = ann.ask("POST", "jobs/draft", json={"model": SHA256}).get_json()["request"]
    job = ann.ask("POST", "jobs", json={**draft, "specs": [{"id": "cpu", "backend": "onnxruntime"}]})
    assert job.status_code == 201
    model = ann.ask("GET", "models").get_json()["models"][0]["id"]
    site[1].open().store.local_path(SHA256).unlink()
    assert ann.ask("GET", f"graph?model={model}").status_code == 200, "the copy is fetched again"


def test_files_bypass_the_server(site: tuple[Site, JobService]) -> None:
    refused = browser(site[0], "ann").ask("POST", "uploads?name=net.onnx", data=MODEL)
    assert (refused.status_code, refused.get_json()["hint"]) == (409, "announce them: POST /api/v1/uploads/direct")


def test_anothers_upload_is_not_there(site: tuple[Site, JobService]) -> None:
    ann, bob, root = (browser(site[0], name) for name in ("ann", "bob", "root"))
    way = announced(ann, blob=SHA256)
    put(way, MODEL)
    for other in (bob, root):
        for method in ("GET", "POST", "DELETE"):
            assert other.ask(method, f"uploads/direct/{way['upload']}").status_code == 404
    theirs = announced(bob, blob=SHA256)
    assert (theirs["have_bytes"], len(theirs["parts"])) == (0, 1), "what ann has sent is not told"
    assert ann.ask("POST", f"uploads/direct/{way['upload']}").status_code == 201
    assert bob.ask("POST", "uploads/known", json={"blob": SHA256, "name": "n.onnx"}).get_json() == {"files": []}


def test_a_file_that_is_not_a_model_is_not_stored(site: tuple[Site, JobService]) -> None:
    ann = browser(site[0], "ann")
    way = announced(ann, b"nothing")
    put(way, b"nothing")
    assert ann.ask("POST", f"uploads/direct/{way['upload']}").status_code == 422
    store = site[1].open().store
    assert (store.list_names("incoming"), list(store.local_path("x").parent.iterdir())) == ([], [])


def test_announced_bytes_are_limited_before_a_url_is_issued(site: tuple[Site, JobService]) -> None:
    ann, queue = browser(site[0], "ann"), site[1].open()
    user = ann.ask("GET", "session").get_json()["person"]["id"]
    with queue.database.write() as connection:
        set_quota(connection, user, Quota(upload_bytes=2 * len(MODEL)))
    first = announced(ann, blob=SHA256)
    assert announced(ann, blob=SHA256)["upload"] == first["upload"], "the same goes on"
    announced(ann)
    refused = ann.ask("POST", "uploads/direct", json={"name": "a.onnx", "size_bytes": 1})
    assert (refused.status_code, "uploads:" in refused.get_json()["error"]) == (429, True)
    assert queue.quotas.get(user)[1].upload_bytes == 2 * len(MODEL)
    assert ann.ask("DELETE", f"uploads/direct/{first['upload']}").status_code == 204
    assert queue.quotas.get(user)[1].upload_bytes == len(MODEL)
    huge = ann.ask("POST", "uploads/direct", json={"name": "a.onnx", "size_bytes": (8 << 30) + 1})
    assert huge.status_code == 413


def test_an_archive_becomes_its_files_in_the_bucket(site: tuple[Site, JobService], tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "net.zip", "w") as archive:
        archive.writestr("net.onnx", MODEL)
    data = (tmp_path / "net.zip").read_bytes()
    ann = browser(site[0], "ann")
    way = announced(ann, data)
    put(way, data)
    assert ann.ask("POST", f"uploads/direct/{way['upload']}").get_json()["blob"] == SHA256
    store = site[1].open().store
    store.local_path(SHA256).unlink()
    assert store.path(f"blobs/{SHA256}").read_bytes() == MODEL


def test_an_unavailable_store_is_named_in_the_error(swift: Swift, site: tuple[Site, JobService]) -> None:
    ann = browser(site[0], "ann")
    way = announced(ann)
    put(way, MODEL)
    swift.stop("proxy")
    for method in ("GET", "POST"):
        answer = ann.ask(method, f"uploads/direct/{way['upload']}")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.get_json()["error"].startswith("the store s3://bucket")
    swift.start()
    assert ann.ask("POST", f"uploads/direct/{way['upload']}").status_code == 201


def test_the_page_may_send_to_the_bucket_alone(site: tuple[Site, JobService]) -> None:
    place = site[1]._settings.store
    assert place
    policy = site[0].app.test_client().get("/api/v1/session").headers["Content-Security-Policy"]
    assert policy.startswith(f"connect-src 'self' {place.endpoint}; default-src 'self';")


# Over HTTP, without accounts: the command's upload, and what an agent does.


@contextmanager
def served(folder: Path, url: str) -> Iterator[Server]:
    folder.mkdir()
    with Server([folder], 0, server_settings(store=parse_bucket_url(url))) as server:
        server.start()
        yield server


@pytest.fixture
def server(swift: Swift, tmp_path: Path) -> Iterator[Server]:
    with served(tmp_path / "runs", swift.new()) as server:
        yield server


def test_an_interrupted_upload_command_resumes(
    swift: Swift, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_module, "PART_BYTES", 5 << 20)
    monkeypatch.setattr("visualprof.cli._server.TRIES", 0)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(os.urandom(11 << 20))
    sizes: list[int] = []

    def progress(sent: int, _: int) -> None:
        if sent > 6 << 20 and "proxy" in swift.running:
            swift.stop("proxy")

    with pytest.raises(Unreachable, match="the store at 127"):
        Commands(server.url).upload(weights, progress, part="true")
    swift.start()
    answer = Commands(server.url).upload(weights, lambda sent, _: sizes.append(sent), part="true")
    assert (answer["size_bytes"], answer["kind"]) == (11 << 20, "part")
    assert sizes[0] > 5 << 20, "the first part is there"
    assert sizes[-1] == 11 << 20


def leased(server: Server) -> tuple[Client, Lease]:
    """An agent with a task of an uploaded model."""
    queue = server.job_service.open()
    Commands(server.url).upload(MODEL_FILE, lambda *_: None)
    asked = request("k")
    queue.jobs.submit(replace(asked, model=replace(asked.model, blob=SHA256)))
    agent = FakeAgent(server.url.rstrip("/"), server.job_service.registration_token).register()
    lease = agent.lease()
    assert lease
    return Client(server.url, agent.own), build(Lease, lease)


def test_an_agent_resumes_downloads_from_the_bucket(server: Server, tmp_path: Path) -> None:
    client, lease = leased(server)
    [file] = lease.files
    assert not file.url.startswith(server.url)
    target = tmp_path / "model"
    half = tmp_path / f"model.{threading.get_ident()}.part"
    half.write_bytes(MODEL[:1000])
    download(client, lease, file, target, threading.Event())
    assert target.read_bytes() == MODEL


def test_an_agent_asks_for_an_address_that_is_still_good(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "BACKOFF_S", (0.01, 0.1))
    client, lease = leased(server)
    [file] = lease.files
    old = replace(file, url=file.url.replace("X-Amz-Signature=", "X-Amz-Signature=0"))
    download(client, lease, old, tmp_path / "model", threading.Event())
    assert (tmp_path / "model").read_bytes() == MODEL


def test_an_agent_uploads_its_result_to_the_bucket_once_it_is_available(
    swift: Swift, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_module, "PART_BYTES", 5 << 20)
    monkeypatch.setattr(s3_module, "MAX_PART_URLS", 1)
    client, lease = leased(server)
    trace = os.urandom(11 << 20)
    files = result(lease.job, lease.task, **{"trace.bin": trace})
    out: list[ResultFile] = []
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        out.append(ResultFile(name, tmp_path / name, len(data), hashlib.sha256(data).hexdigest()))
    swift.stop("proxy")
    starting = threading.Timer(0.5, swift.start)
    starting.start()
    upload_result(client, lease, out, threading.Event())
    starting.join()
    client.post(lease.path("finish"), {"state": "succeeded", "warnings": [], "files": list(files)})
    run = server.logdir.roots[0].path / lease.run
    assert (run / "trace.bin").read_bytes() == trace
    assert (run / "net.onnx").read_bytes() == MODEL
    store = server.job_service.open().store
    assert (store.list_names("incoming"), store.list_names("blobs")) == ([], [SHA256])
