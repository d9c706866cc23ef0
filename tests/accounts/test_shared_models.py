"""Registered models of several users: sharing, and what a version gives access to."""

from __future__ import annotations

import pytest
from teams import MODEL_FILE, Browser, Team
from test_links import holder

from visualprof.remote.queue.uploads import graph_id

pytestmark = pytest.mark.both_databases


def names(browser: Browser) -> list[str]:
    return [model["name"] for model in browser.ask("GET", "registry").get_json()["models"]]


def registered(team: Team, name: str = "net") -> str:
    answer = team.browser("ann").ask("POST", "registry", json={"name": name, "job": team.job})
    assert answer.status_code == 201, answer.get_json()
    assert answer.get_json()["version"]["source"] == {"kind": "job", "path": "", "job": team.job, "candidate": ""}
    return answer.get_json()["model"]["id"]


def test_a_shared_model_is_measured_without_a_new_upload(team: Team) -> None:
    model, (ann, bob) = registered(team), (team.browser(name) for name in ("ann", "bob"))
    request = {
        "key": "k",
        "model": {"blob": team.blob, "name": "net.onnx"},
        "specs": [{"id": "cpu", "backend": "onnxruntime"}],
    }
    draft = f"registry/{model}/1/draft"
    assert (names(bob), bob.ask("GET", draft).status_code) == ([], 404)
    assert bob.ask("POST", "jobs/check", json=request).get_json()["errors"][0]["field"] == "model.blob"
    project = ann.ask("POST", "projects", json={"name": "p"}).get_json()["projects"][0]["id"]
    ann.ask("POST", f"projects/{project}/members", json={"email": "bob@example.org"})
    shared = ann.ask("PATCH", f"registry/{model}", json={"visibility": "project", "project": project})
    assert shared.status_code == 200, shared.get_json()
    assert names(bob) == ["net"]
    composed = bob.ask("POST", "jobs/draft", json=bob.ask("GET", draft).get_json()).get_json()
    assert [e for e in composed["errors"] if e["field"].startswith("model")] == []
    assert bob.ask("GET", f"graph?model={graph_id(team.blob, 'onnx')}").status_code == 200
    with bob.ask("GET", f"registry/{model}/1/file") as file:
        assert file.get_data() == MODEL_FILE.read_bytes()
    job = bob.ask("POST", "jobs", json={**composed["request"], "specs": request["specs"]})
    assert job.status_code == 201, job.get_json()
    # It is not his: he changes nothing, and holds none of its bytes.
    for method, path, body in (("PATCH", "", {"notes": "x"}), ("DELETE", "", None), ("DELETE", "/1", None)):
        assert bob.ask(method, f"registry/{model}{path}", **({"json": body} if body else {})).status_code == 403
    assert bob.ask("POST", "registry", json={"name": "net", "blob": team.blob}).status_code == 403
    assert team.remote.open().quotas.get(team.ids["bob"])[1].upload_bytes == 0
    # Without the project he sees it no more; his job goes on, and the file is not gone with the version.
    ann.ask("DELETE", f"projects/{project}")
    assert (names(bob), names(ann)) == ([], ["net"])
    assert ann.ask("DELETE", f"registry/{model}?force=true").status_code == 200
    assert team.remote.open().blobs.path(team.blob).is_file()


def test_seeing_a_job_does_not_give_access_to_its_model(team: Team) -> None:
    ann, bob = team.browser("ann"), team.browser("bob")
    ann.ask("PUT", "runs/access", json={"run": team.run, "visibility": "public"})
    assert bob.ask("GET", f"jobs/{team.job}").status_code == 200
    refused = bob.ask("POST", "registry", json={"name": "mine", "job": team.job})
    assert (refused.status_code, names(bob)) == (404, [])


def test_a_public_model_is_visible_to_users_but_not_through_links(team: Team) -> None:
    model, ann = registered(team), team.browser("ann")
    ann.ask("PATCH", f"registry/{model}", json={"visibility": "public"})
    assert names(team.browser("eve")) == ["net"]
    linked = holder(team, ann, team.run)
    assert linked.ask("GET", "registry").status_code == 404
    assert linked.ask("GET", f"graph?model={graph_id(team.blob, 'onnx')}").status_code == 404


def test_two_users_may_have_models_of_the_same_name(team: Team) -> None:
    registered(team)
    bob = team.browser("bob")
    bob.ask("POST", "uploads?name=bob.onnx", data=MODEL_FILE.read_bytes())
    assert bob.ask("POST", "registry", json={"name": "net", "blob": team.blob}).status_code == 201
    root = team.browser("root")
    assert names(root) == ["net", "net"]
    assert root.ask("GET", "registry/version?address=net").status_code == 409
    assert bob.ask("GET", "registry/version?address=net").get_json()["version"]["address"] == "net/1"
