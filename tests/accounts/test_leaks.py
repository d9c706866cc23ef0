"""Knowing the id or content of another user's item reveals nothing, not even that it exists."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from queue_sites import point
from sites import kineto
from sqlalchemy import update
from teams import MODEL_FILE, Browser, Team, machine
from test_permissions import BODIES, NEEDS, QUERIES, VIEWER, Asked, asked
from werkzeug.test import TestResponse

from visualprof.remote.queue import uploads
from visualprof.remote.queue.store.tables import blobs as blobs_table
from visualprof.remote.queue.tasks.maintenance import remove_leftovers

__all__ = ["asked"]

pytestmark = pytest.mark.both_databases

CPU = {"id": "cpu", "backend": "onnxruntime"}


def unknown(text: str) -> str:
    """An id of the same form that nothing has."""
    others = str.maketrans("0123456789abcdefghijklmnopqrstuvwxyz", "1234567890bcdefahijklmnopqrstuvwxyzg")
    return ":".join([*text.split(":")[:-1], text.split(":")[-1].translate(others)])


Told = tuple[int, str, dict[str, str]]


def told(answer: TestResponse, subjects: dict[str, str]) -> Told:
    """Return the answer about items, without the ids in the request."""
    text = answer.get_data(as_text=True)
    for name, value in sorted(subjects.items(), key=lambda one: -len(one[1])):
        if value.isdecimal():  # a version's number, as others are in every answer
            continue
        for shown in (value, value[:60], value[:40], value.partition("@")[0]):
            text = text.replace(shown, name)
    headers = {name: value for name, value in answer.headers.items() if name not in ("Content-Length", "ETag")}
    return answer.status_code, text, headers


@pytest.fixture
def nothing(asked: Asked) -> Asked:
    """The same about ids that nothing has."""
    del asked.subjects["<booking>"], asked.subjects["<name>"]
    changed = {subject: unknown(value) for subject, value in asked.subjects.items()}
    assert not set(changed.values()) & set(asked.subjects.values())
    return replace(asked, subjects=changed)


@pytest.mark.parametrize("name", ["bob", "eve"])
def test_items_of_other_users_answer_like_missing_items(asked: Asked, nothing: Asked, name: str) -> None:
    browser = asked.team.browser(name)
    about = {route for route in NEEDS if any(subject in _request(route) for subject in nothing.subjects)}
    routes = [route for route in sorted(about) if NEEDS[route] in (VIEWER, "link") or name == "bob"]
    assert len(routes) > 20
    pairs = {route: [told(a.answer(browser, route), a.subjects) for a in (asked, nothing)] for route in routes}
    assert {route: pair for route, pair in pairs.items() if pair[0] != pair[1]} == {}


def _request(route: str) -> str:
    return f"{route}?{QUERIES.get(route, '')} {BODIES.get(route, '')}"


def test_own_items_do_not_reveal_items_of_other_users(asked: Asked, nothing: Asked) -> None:
    """A model compared with another's, a job of another's files or machine, what is shared with others' projects."""
    bob, site = asked.team.browser("bob"), asked.team.site
    model = upload(bob, "bobs.onnx", other_model())["blob"]
    machine_of_bob, _ = machine(bob)
    request = bob.ask("POST", "jobs/draft", json={"model": model, "specs": [CPU]}).get_json()["request"]
    job_id = bob.ask("POST", "jobs", json={**request, "key": "k"}).get_json()["job"]["id"]
    run = f"{asked.team.remote.open().jobs.get(job_id).folder}/cpu"
    site.write(f"{run}/trace.json", kineto())
    weights = {"model": {**request["model"], "parts": [{"path": "w", "blob": "BLOB"}]}}
    fed = {"inputs": [{**request["inputs"][0], "fill": "file", "blob": "BLOB"}]}
    elsewhere = {"specs": [{**request["specs"][0], "agent": "<agent>"}]}
    jobs = [{**request, "key": str(i), **change} for i, change in enumerate((weights, fed, elsewhere))]
    questions = [
        ("GET", f"graph/compare?model=upload:{model}&other=MODEL", None),
        ("GET", f"graph/profile?model=MODEL&run={run}", None),
        ("GET", f"graph/profile?model=upload:{model}&run=RUN", None),
        ("GET", f"evaluation/overlay?reports={run},RUN", None),
        ("GET", "runs/changes?shown=RUN", None),
        ("POST", "jobs/draft", {"model": model, "arrays": ["BLOB"], "parts": {"w": "BLOB"}}),
        ("POST", "jobs/draft", {"model": model, "inputs": [{"name": "x", "fill": "file", "blob": "BLOB"}]}),
        ("POST", "jobs/draft", {"model": model, "specs": [{"backends": ["onnxruntime"], "agent": "<agent>"}]}),
        *(("POST", path, body) for body in jobs for path in ("jobs/check", "jobs")),
        ("POST", f"jobs/{job_id}/retry?task=<task>", None),
        ("PUT", "runs/access", {"run": run, "visibility": "project", "project": "<project>"}),
        ("POST", f"agents/{machine_of_bob}/grants", {"project": "<project>"}),
        ("DELETE", f"agents/{machine_of_bob}/grants/<holder>", None),
        ("DELETE", f"projects/<project>/members/{asked.team.ids['bob']}", None),
    ]
    for method, path, body in questions:
        pair = [told(ask(bob, method, path, body, a.subjects), a.subjects) for a in (asked, nothing)]
        assert pair[0] == pair[1], path
        assert pair[0][0] in (200, 400, 404, 409), (path, pair)


def test_nor_to_a_machine_of_ones_own(asked: Asked, nothing: Asked) -> None:
    """It has a token, and asks for others' tasks and files."""
    token = {"Authorization": f"Bearer {machine(asked.team.browser('bob'), 'box')[1]}"}
    client = asked.team.site.app.test_client()
    beat = {"tasks": [{"task": "<task>", "lease": "x", "phase": "measuring", "progress": 0.5}]}
    finished = {"state": "succeeded"}
    questions = [
        ("POST", "agent/heartbeat", beat, 200),
        ("POST", "agent/tasks/<task>/log?lease=x&offset=0", {}, 409),
        ("POST", "agent/tasks/<task>/points?lease=x", point(), 409),
        ("POST", "agent/tasks/<task>/uploads?lease=x", {"files": []}, 409),
        ("POST", "agent/tasks/<task>/finish?lease=x", finished, 409),
        ("GET", "agent/files/blobs/BLOB", None, 403),
        ("GET", "agent/files/blobs/BLOB?expires=99999999999&signature=x", None, 403),
    ]
    for method, path, body, status in questions:
        pair: list[Told] = []
        for about in (asked, nothing):
            sent = filled([path, body], about.subjects)
            answer = client.open(f"/api/v1/{sent[0]}", method=method, json=sent[1], headers=token)
            pair.append(told(answer, about.subjects))
        assert pair[0] == pair[1], path
        assert pair[0][0] == status, pair


def test_keys_of_jobs_are_each_ones_own(team: Team) -> None:
    bob = team.browser("bob")
    model = upload(bob, "net.onnx", MODEL_FILE.read_bytes())["blob"]
    request = bob.ask("POST", "jobs/draft", json={"model": model}).get_json()["request"]
    anns = team.remote.open().jobs.get(team.job).request.key
    assert bob.ask("POST", "jobs", json={**request, "specs": [CPU], "key": anns}).status_code == 201


def filled(what: Any, subjects: dict[str, str]) -> Any:
    text = json.dumps(what)
    for name, value in subjects.items():
        text = text.replace(name, value)
    return json.loads(text)


def ask(browser: Browser, method: str, path: str, body: Any, subjects: dict[str, str]) -> TestResponse:
    path, body = filled([path, body], subjects)
    return browser.ask(method, path, **({} if body is None else {"json": body}))


def other_model() -> bytes:
    model = onnx.load(MODEL_FILE)
    model.doc_string = "another"
    return model.SerializeToString()


def array(value: int = 0) -> bytes:
    file = io.BytesIO()
    np.save(file, np.full((1, 3, 96, 96), value, np.float32))
    return file.getvalue()


def upload(browser: Browser, name: str, data: bytes, query: str = "") -> dict[str, Any]:
    answer = browser.ask("POST", f"uploads?name={name}{query}", data=data)
    assert answer.status_code == 201, answer.get_json()
    return answer.get_json()


def submit(browser: Browser, model: str, blob: str) -> dict[str, Any]:
    draft = {"model": model, "arrays": [blob], "sizes": "1", "key": blob[:20]}
    request = browser.ask("POST", "jobs/draft", json=draft).get_json()["request"]
    answer = browser.ask("POST", "jobs", json={**request, "specs": [CPU]})
    assert answer.status_code == 201, answer.get_json()
    return answer.get_json()["job"]


@pytest.mark.slow
def test_the_same_content_of_two_is_two_files(team: Team) -> None:
    """Neither names nor sizes, quotas or removals reveal to either user that the other has the file."""
    ann, bob, root = team.browser("ann"), team.browser("bob"), team.browser("root")
    for browser, name in ((ann, "anns"), (bob, "bobs"), (ann, "anns-again")):
        blob = upload(browser, f"{name}.npy", array())["blob"]
        model = upload(browser, f"{name}.onnx", MODEL_FILE.read_bytes())["blob"]
    draft = bob.ask("POST", "jobs/draft", json={"model": model, "arrays": [blob]})
    assert draft.get_json()["request"]["model"]["name"] == "bobs.onnx"
    assert "anns" not in draft.get_data(as_text=True)
    no_model = bob.ask("POST", "jobs/draft", json={"model": blob, "model_name": "x.onnx", "specs": [CPU]})
    assert "bobs.npy is an array" in no_model.get_data(as_text=True)
    assert {entry["name"] for entry in bob.ask("GET", "models").get_json()["models"]} == {"bobs.onnx"}
    assert {entry["name"] for entry in ann.ask("GET", "models").get_json()["models"]} == {"anns-again.onnx"}
    assert {entry["name"] for entry in root.ask("GET", "models").get_json()["models"]} == {
        "ann.onnx, anns.onnx, bobs.onnx, anns-again.onnx",
    }


def test_arrays_of_a_job_have_their_owners_names(team: Team) -> None:
    bob, ann = team.browser("bob"), team.browser("ann")
    model = upload(bob, "net.onnx", MODEL_FILE.read_bytes())["blob"]
    job = submit(bob, model, upload(bob, "bobs.npy", array())["blob"])
    upload(ann, "anns-secret.npy", array())
    for path in ("jobs", f"jobs/{job['id']}", f"jobs/{job['id']}/files", f"jobs/{job['id']}/draft"):
        assert "secret" not in bob.ask("GET", path).get_data(as_text=True), path
    bob.ask("POST", f"jobs/{job['id']}/cancel")
    assert bob.ask("GET", f"jobs/{job['id']}").get_json()["job"]["data"] == ["bobs.npy"]


def test_uploads_of_other_users_are_read_again(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the time, and a name that would be refused, told that somebody has the same file."""
    read: list[str] = []
    inspect = uploads.inspect_file

    def noted(path: Path, name: str) -> object:
        read.append(name)
        return inspect(path, name)

    monkeypatch.setattr(uploads, "inspect_file", noted)
    ann, bob = team.browser("ann"), team.browser("bob")
    assert bob.ask("POST", "uploads?name=bob.npy", data=MODEL_FILE.read_bytes()).status_code == 422
    for browser in (ann, bob, bob, ann):
        upload(browser, f"{len(read)}.onnx", MODEL_FILE.read_bytes())
    assert read == ["bob.npy", "1.onnx"], "ann had it before, and bob when he sent it again"


@pytest.mark.slow
def test_removing_a_job_neither_affects_nor_reveals_other_jobs(team: Team) -> None:
    """What it frees, and what its owner has then, do not depend on who else has the same files."""
    ann, bob = team.browser("ann"), team.browser("bob")
    blobs, freed, used = team.remote.folder / "blobs", list[int](), list[int]()
    upload(bob, "net.onnx", MODEL_FILE.read_bytes())
    for value, others in enumerate(("nobody", "who uploaded it", "who has a job of it")):
        blob = upload(ann, "anns.npy", array(value))["blob"]
        job = submit(ann, team.blob, blob)
        folder = team.site.folder / team.remote.open().jobs.get(job["id"]).folder / "cpu"
        folder.mkdir(parents=True)
        (folder / "job.json").write_text(json.dumps({"job": job["id"]}))
        os.link(blobs / blob, folder / "anns.npy")
        if others != "nobody":
            upload(bob, "bobs.npy", array(value))
        if others == "who has a job of it":
            submit(bob, team.blob, blob)
        ann.ask("POST", f"jobs/{job['id']}/cancel")
        freed += [
            ann.ask(*asked, f"jobs/{job['id']}{suffix}").get_json()["size_bytes"]
            for asked, suffix in ((("GET",), "/space"), (("DELETE",), ""))
        ]
        used.append(ann.ask("GET", "account").get_json()["used"]["upload_bytes"])
        assert not folder.exists()
        assert (blobs / blob).exists() == (others != "nobody")
        assert ann.ask("POST", "uploads/known", json={"blob": blob, "name": "x.npy"}).get_json() == {"files": []}
    assert set(freed) == {len(array()) + len(json.dumps({"job": team.job}))}, "ids are of one length"
    assert set(used) == {MODEL_FILE.stat().st_size}
    assert bob.ask("GET", "account").get_json()["used"]["upload_bytes"] == MODEL_FILE.stat().st_size + 2 * len(array())


def test_a_cleaned_up_file_no_longer_belongs_to_its_former_owner(team: Team) -> None:
    """A later upload of another user does not return the file to its former owner."""
    bob, data, queue = team.browser("bob"), other_model(), team.remote.open()
    blob = upload(bob, "bobs.onnx", data)["blob"]
    with queue.database.write() as connection:
        connection.execute(update(blobs_table).where(blobs_table.c.sha256 == blob).values(kept_ns=0))
    remove_leftovers(queue.database, queue.store, team.remote.folder / "results.partial")
    upload(team.browser("ann"), "anns.onnx", data)
    assert bob.ask("GET", "models").get_json()["models"] == []
    assert bob.ask("GET", "account").get_json()["used"]["upload_bytes"] == 0


def test_no_count_reveals_the_work_of_other_users(team: Team) -> None:
    """Neither in lists that are asked for anew nor in what changed since: not before something of one's own does."""
    ann, bob = team.browser("ann"), team.browser("bob")
    paths = {"runs": "", "runs/changes": "since", "jobs": "since", "evaluation": "", "agents": ""}

    def asked_for(known: dict[str, Any]) -> dict[str, Any]:
        return {
            path: bob.ask(
                "GET", path, query_string={since: known[path]["revision"]} if since and known else {}
            ).get_json()
            for path, since in paths.items()
        }

    first = asked_for({})
    before = asked_for(first)
    draft = ann.ask("POST", "jobs/draft", json={"model": team.blob}).get_json()["request"]
    job = ann.ask("POST", "jobs", json={**draft, "key": "more", "specs": [CPU]}).get_json()["job"]["id"]
    ann.ask("POST", f"jobs/{job}/cancel")
    machine(ann, "hers")
    folder = team.remote.open().jobs.get(job).folder
    team.site.write(f"{folder}/cpu/trace.json", kineto())
    assert f"{folder}/cpu" in {run["id"] for run in ann.ask("GET", "runs").get_json()["runs"]}
    assert asked_for(first) == before
    draft = bob.ask("POST", "jobs/draft", json={"model": upload(bob, "bobs.onnx", other_model())["blob"]}).get_json()
    assert bob.ask("POST", "jobs", json={**draft["request"], "specs": [CPU]}).status_code == 201
    assert asked_for(before)["jobs"]["revision"] > before["jobs"]["revision"]
    assert len(asked_for(before)["jobs"]["jobs"]) == 1
    team.site.write("mine/trace.json", kineto())
    after = asked_for(before)
    assert [run["id"] for run in after["runs/changes"]["runs"]] == ["mine"]
    assert after["runs"]["revision"] > before["runs"]["revision"]


def test_the_name_of_a_hidden_project_is_not_reported_as_taken(team: Team) -> None:
    ann, bob, root = (team.browser(name) for name in ("ann", "bob", "root"))
    responses = [browser.ask("POST", "projects", json={"name": "Vision"}) for browser in (ann, bob)]
    assert [answer.status_code for answer in responses] == [201, 201]
    assert [len(answer.get_json()["projects"]) for answer in responses] == [1, 1]
    assert ann.ask("POST", "projects", json={"name": "vision"}).status_code == 409, "her own"
    assert root.ask("POST", "projects", json={"name": "VISION"}).status_code == 409, "who sees both"
    his = bob.ask("POST", "projects", json={"name": "speech"}).get_json()["projects"][0]
    assert his["name"] == "speech"
    assert bob.ask("PATCH", f"projects/{his['id']}", json={"name": "Vision"}).status_code == 409
    names = [project["name"] for project in root.ask("GET", "projects").get_json()["projects"]]
    assert names == ["speech", "Vision", "Vision"]
