"""A backup as docs/operating.md makes it, and a server restored from it."""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sandbox
from sites import kineto
from teams import MODEL_FILE, PASSWORD, ROLES, SHELL
from test_team_document import BLOCK, ask

from tests.conftest import ROOT, until
from tests.postgres import Postgres
from tests.server_settings import server_settings
from visualprof.accounts.service import Accounts
from visualprof.server.serve import Server

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="the commands are those of a Unix")]


def documented() -> dict[str, str]:
    """Return the commands of the chapter by their purpose."""
    chapter = (ROOT / "docs" / "operating.md").read_text("utf-8").partition("\n## Backup")[2].partition("\n## ")[0]
    (files, sqlite), (unpack, copy), (dump, restore) = (block[1].splitlines() for block in BLOCK.findall(chapter))
    return {
        "back up sqlite": f"{files}\n{sqlite}",
        "restore sqlite": f"{unpack}\n{copy}",
        "back up postgresql": f"{files}\n{dump}",
        "restore postgresql": f"{unpack}\n{restore}",
    }


@contextmanager
def serving(runs: Path, database: str) -> Iterator[Server]:
    with Server([runs], 0, server_settings(accounts=True, database=database)) as server:
        server.start()
        yield server


def session(port: int, name: str) -> dict[str, str]:
    """Return the headers of a user's page."""
    answer = ask(port, "POST", "session", {"email": f"{name}@example.org", "password": PASSWORD})
    return {"Cookie": answer["cookie"].partition(";")[0], "X_Visualprof_Token": answer["token"]}


def runs_of(port: int, **headers: str) -> list[str]:
    return sorted(run["id"] for run in ask(port, "GET", "runs", **headers)["runs"])


def share(port: int, page: dict[str, str], run: str, project: str) -> None:
    ask(port, "PUT", "runs/access", {"run": run, "visibility": "project", "project": project}, **page)


def submit(server: Server, page: dict[str, str], key: str) -> str:
    """A job of the sample model, with a result; that's id."""
    headers = {name.replace("_", "-"): value for name, value in page.items()}
    path = "/api/v1/uploads?name=net.onnx"
    status, _, text = sandbox.asked(server.port, "POST", path, MODEL_FILE.read_bytes(), "127.0.0.1", headers)
    assert status == 201
    draft = ask(server.port, "POST", "jobs/draft", {"model": json.loads(text)["blob"]}, **page)["request"]
    spec = {"id": "cpu", "backend": "onnxruntime"}
    job = ask(server.port, "POST", "jobs", {**draft, "key": key, "specs": [spec]}, **page)["job"]["id"]
    folder = f"{server.job_service.open().jobs.get(job).folder}/cpu"
    (server.logdir.roots[0].path / folder).mkdir(parents=True)
    (server.logdir.roots[0].path / folder / "trace.json").write_text(kineto())
    return folder


def state(port: int, pages: dict[str, dict[str, str]]) -> Any:
    """Return what all users see."""
    runs_by_user = {name: runs_of(port, **page) for name, page in pages.items()}
    jobs = {name: ask(port, "GET", "jobs", **page)["jobs"] for name, page in pages.items()}
    models = {name: ask(port, "GET", "models", **page)["models"] for name, page in pages.items()}
    people = [(user["email"], user["role"]) for user in ask(port, "GET", "users", **pages["root"])["users"]]
    return runs_by_user, jobs, models, people, ask(port, "GET", "projects", **pages["root"])["projects"]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_restored_server_equals_the_backed_up_server(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    runs, backup = tmp_path / "runs", tmp_path / "backup"
    [folder.mkdir() for folder in (runs, backup)]
    postgres: Postgres | None = request.getfixturevalue("postgres") if kind == "postgresql" else None
    url = postgres.of(runs) if postgres else ""
    variables = {**os.environ, "URL": url.replace("+psycopg", "")}
    programs = [str(Path(sys.executable).parent), *([str(postgres.programs)] if postgres else [])]
    variables["PATH"] = os.pathsep.join([*programs, os.environ["PATH"]])

    def do(what: str) -> None:
        text = documented()[f"{what} {kind}"].replace("/data/runs", str(runs)).replace("/backup/", f"{backup}/")
        text = re.sub(r"2027-01-31", f"{datetime.date.today()}", text)
        subprocess.run(["bash", "-exc", text], env=variables, check=True)

    with serving(runs, url) as server:
        queue = server.job_service.open()
        for name, role in ROLES.items():
            Accounts(queue.database).users.create(SHELL, f"{name}@example.org", name, role, PASSWORD)  # type: ignore[arg-type]
        pages = {name: session(server.port, name) for name in ROLES}
        submit(server, pages["ann"], "private")
        shared = submit(server, pages["ann"], "shared")
        project = ask(server.port, "POST", "projects", {"name": "p"}, **pages["ann"])["projects"][0]["id"]
        ask(server.port, "POST", f"projects/{project}/members", {"email": "bob@example.org"}, **pages["ann"])
        until(lambda: len(runs_of(server.port, **pages["root"])) == 2)
        share(server.port, pages["ann"], shared, project)
        path = ask(server.port, "POST", "links", {"run": shared, "hours": 1}, **pages["ann"])["path"]
        by_link = {"X_Visualprof_Token": re.findall(r"link=([^#]+)", path)[0]}
        before = state(server.port, pages)
        do("back up")
        submit(server, pages["ann"], "later")
    shutil.rmtree(runs)
    runs.mkdir()
    if postgres:
        postgres.sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public", url.partition("@/")[2].partition("?")[0])
    do("restore")
    with serving(runs, url) as server:
        until(lambda: len(runs_of(server.port, **pages["root"])) == 2)
        assert state(server.port, pages) == before, "for sessions of before, too"
        assert [len(before[0][name]) for name in ROLES] == [2, 2, 1, 0]
        assert runs_of(server.port, **by_link) == [shared]
        session(server.port, "bob")
        submit(server, pages["ann"], "again")
