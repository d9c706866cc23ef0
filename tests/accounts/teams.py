"""A team: an administrator, two members and a viewer; a member's job with a result, and a run without an owner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from queue_sites import capabilities
from sites import MakeSite, Site, kineto
from werkzeug.test import TestResponse

from visualprof.accounts.principal import SINGLE_USER, Actor
from visualprof.accounts.service import Accounts
from visualprof.remote.protocol import PROTOCOL
from visualprof.remote.queue import uploads
from visualprof.remote.queue.check.inspect import Inspected, inspect_file
from visualprof.server.job_service import JobService
from visualprof.server.session_token import TOKEN_HEADER

PASSWORD = "four words are enough"
SHELL = Actor(SINGLE_USER, "shell")
_KNOWN: dict[tuple[bytes, str], Inspected] = {}


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Argon2 as it is, but in a millisecond."""
    from pwdlib import PasswordHash
    from pwdlib.hashers.argon2 import Argon2Hasher

    quick = PasswordHash((Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1),))
    monkeypatch.setattr(PasswordHash, "recommended", classmethod(lambda _: quick))


@dataclass
class Browser:
    """Somebody's page: it sends the cookie and, with changes, what the session answered."""

    client: FlaskClient
    token: str = ""

    def ask(self, method: str, path: str, **options: Any) -> TestResponse:
        headers = {**({TOKEN_HEADER: self.token} if self.token else {}), **options.pop("headers", {})}
        return self.client.open(f"/api/v1/{path}", method=method, headers=headers, **options)

    def log_in(self, email: str, password: str = PASSWORD) -> TestResponse:
        answer = self.ask("POST", "session", json={"email": email, "password": password})
        if answer.status_code == 200:
            self.token = answer.get_json()["token"]
        return answer


@dataclass
class Team:
    site: Site
    remote: JobService
    accounts: Accounts
    ids: dict[str, str]
    job: str
    task: str
    run: str
    blob: str

    def browser(self, name: str = "") -> Browser:
        browser = Browser(self.site.app.test_client())
        if name:
            assert browser.log_in(f"{name}@example.org").status_code == 200
        return browser


def machine(browser: Browser, name: str = "box") -> tuple[str, str]:
    """Add a machine for a user; return its id and token."""
    answer = register(browser, browser.ask("POST", "agents/codes").get_json()["code"], name)
    assert answer.status_code == 200, answer.get_json()
    return answer.get_json()["agent"], answer.get_json()["token"]


def register(browser: Browser, by: str, name: str = "box", **more: Any) -> TestResponse:
    """Send a request like a machine: without cookies, with the code."""
    body = {"protocol": PROTOCOL, "name": name, "public": True, "capabilities": asdict(capabilities()), **more}
    client = browser.client.application.test_client()
    return client.post("/api/v1/agent/register", json=body, headers={"Authorization": f"Bearer {by}"})


ROLES = {"root": "admin", "ann": "member", "bob": "member", "eve": "viewer"}


def _inspected(path: Path, name: str) -> Inspected:
    """Every team uploads the same model: a process reads it for the first of them alone."""
    key = path.read_bytes(), name
    if key not in _KNOWN:
        _KNOWN[key] = inspect_file(path, name)
    return _KNOWN[key]


@pytest.fixture
def team(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    monkeypatch.setattr(uploads, "inspect_file", _inspected)
    site = make_site(accounts=True, registration="invitation")
    remote = JobService(site.logdir.roots[0])
    accounts = Accounts(remote.open().database)
    ids = {
        name: accounts.users.create(SHELL, f"{name}@example.org", name, role, PASSWORD).id  # type: ignore[arg-type]
        for name, role in ROLES.items()
    }
    built = Team(site, remote, accounts, ids, "", "", "", "")
    site.write("shared/trace.json", kineto())
    ann = built.browser("ann")
    model = MODEL_FILE.read_bytes()
    built.blob = ann.ask("POST", "uploads?name=ann.onnx", data=model).get_json()["blob"]
    request = ann.ask("POST", "jobs/draft", json={"model": built.blob}).get_json()["request"]
    answer = ann.ask("POST", "jobs", json={**request, "specs": [{"id": "cpu", "backend": "onnxruntime"}]})
    assert answer.status_code == 201, answer.get_json()
    job = answer.get_json()["job"]
    built.job, built.task = job["id"], job["tasks"][0]["id"]
    folder = remote.open().jobs.get(built.job).folder
    built.run = f"{folder}/cpu"
    site.write(f"{built.run}/trace.json", kineto())
    yield built
    remote.close()


MODEL_FILE = Path(__file__).parents[2] / "visualprof" / "samples" / "models" / "resnet10.onnx"
