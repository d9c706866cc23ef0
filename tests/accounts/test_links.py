"""A link shows one run or report to anyone who has it, for its lifetime, and nothing else."""

from __future__ import annotations

import hashlib
import time
from urllib.parse import parse_qs, urlsplit

import pytest
from sites import kineto
from sqlalchemy import select
from teams import SHELL, Browser, Team
from test_permissions import (
    ADMIN,
    BY_LINK,
    MEMBER,
    VIEWER,
    Asked,
    asked,
    is_about_an_item,
    routes_for,
    team_runs,
)

from tests.conftest import ROOT
from visualprof.cli import main
from visualprof.remote.queue.store.tables import links
from visualprof.server.session_token import TOKEN_HEADER

pytestmark = pytest.mark.both_databases

__all__ = ["asked"]

MODEL = ROOT / "visualprof" / "samples" / "models" / "resnet10.onnx"
HOUR_NS = 3600 * 10**9


def code_of(path: str) -> str:
    return parse_qs(urlsplit(path).fragment.partition("?")[2])["link"][0]


def holder(team: Team, by: Browser, run: str, hours: float = 1) -> Browser:
    """Return a visitor who used a link, and a browser that is not logged in."""
    answer = by.ask("POST", "links", json={"run": run, "hours": hours})
    assert answer.status_code == 201, answer.get_json()
    return Browser(team.site.app.test_client(), code_of(answer.get_json()["path"]))


def test_every_route_by_link(asked: Asked) -> None:
    team = asked.team
    team.site.write(f"{team.run}/model.onnx", MODEL.read_bytes())
    asked.subjects["MODEL"] = f"{team.run}/model.onnx"
    by_link = holder(team, team.browser("ann"), team.run)
    answers = {route: asked.by(by_link, route) for route in routes_for(VIEWER, MEMBER, ADMIN)}
    # The run has no such thing.
    absent = {"GET evaluation/overlay", "GET evaluation/point", "GET timeline/counter", "GET live/steps"}
    shown = {route for route, status in answers.items() if status in (200, 409)}
    assert shown == BY_LINK - absent, {route: status for route, status in answers.items() if status not in (200, 404)}
    assert {status for route, status in answers.items() if route not in BY_LINK} == {404}


def test_a_link_opens_nothing_of_other_runs(asked: Asked) -> None:
    team = asked.team
    for name in ("shared/deeper", f"{team.run}/deeper", f"{team.run}2"):
        team.site.write(f"{name}/trace.json", kineto())
        team.site.write(f"{name}/model.onnx", MODEL.read_bytes())
    by_link = holder(team, team.browser("root"), "shared")
    asked.subjects["MODEL"] = "shared/deeper/model.onnx"
    for run in (team.run, "shared/deeper"):
        asked.subjects["RUN"] = run
        about = {route for route in BY_LINK if is_about_an_item(route)}
        assert {route: asked.by(by_link, route) for route in about if asked.by(by_link, route) != 404} == {}
    assert team_runs(by_link) == {"shared"}
    everything = [
        by_link.ask("GET", path).get_data(as_text=True) for path in ("runs", "models", "evaluation", "status")
    ]
    assert [text for text in everything if "deeper" in text or team.job in text or str(team.site.folder) in text] == []
    inside = holder(team, team.browser("ann"), team.run)
    assert team_runs(inside) == {team.run}
    assert inside.ask("GET", "models").get_json()["models"] == []


def test_a_link_is_made_by_the_owner_and_by_administrators(team: Team) -> None:
    ann, bob, eve, root = (team.browser(name) for name in ("ann", "bob", "eve", "root"))
    assert bob.ask("POST", "links", json={"run": team.run}).status_code == 404
    assert bob.ask("POST", "links", json={"run": "shared"}).status_code == 403
    assert bob.ask("GET", "links?run=shared").status_code == 403
    assert eve.ask("POST", "links", json={"run": "shared"}).status_code == 403
    for browser, run in ((ann, team.run), (root, team.run), (root, "shared")):
        assert team_runs(holder(team, browser, run)) == {run}
    listed = ann.ask("GET", f"links?run={team.run}").get_json()["links"]
    assert {link["by"] for link in listed} == {"ann@example.org", "root@example.org"}
    assert bob.ask("DELETE", f"links/{listed[0]['id']}").status_code == 404


def test_a_link_ends(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = team.browser("ann")
    by_time, by_ann = (holder(team, ann, team.run, hours) for hours in (1, 2))
    (first, *_) = ann.ask("GET", f"links?run={team.run}").get_json()["links"]
    ann.ask("DELETE", f"links/{first['id']}")
    assert (by_ann.ask("GET", "runs").status_code, by_time.ask("GET", "runs").status_code) == (401, 200)
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + HOUR_NS + 1)
    assert by_time.ask("GET", "runs").status_code == 401
    assert ann.ask("GET", f"links?run={team.run}").get_json()["links"] == []


@pytest.mark.parametrize("change", [{"disabled": True}, {"role": "viewer"}])
def test_a_link_shows_only_what_its_creator_may_share(team: Team, change: dict[str, object]) -> None:
    by_link = holder(team, team.browser("ann"), team.run)
    team.accounts.users.update(SHELL, team.ids["ann"], **change)  # type: ignore[arg-type]
    assert by_link.ask("GET", "runs").status_code == 401


def test_impossible_times(team: Team) -> None:
    ann = team.browser("ann")
    for hours in (0, 0.9, 90 * 24 + 1, -1, 1e300, "x"):
        answer = ann.ask("POST", "links", json={"run": team.run, "hours": hours})
        assert answer.status_code == 400, hours
        assert "hours" in answer.get_json()["error"]


def test_the_code_is_not_kept_and_everything_is_in_the_log(team: Team) -> None:
    root = team.browser("root")
    by_link = holder(team, root, "shared", 3)
    with team.remote.open().database.read() as connection:
        (link,) = connection.execute(select(links)).all()
    assert link.sha256 == hashlib.sha256(by_link.token.encode()).hexdigest()
    assert by_link.token not in str(link)
    assert by_link.ask("GET", "runs").status_code == 200
    (listed,) = root.ask("GET", "links?run=shared").get_json()["links"]
    assert listed["used_ns"]
    assert listed["expires_ns"] - listed["created_ns"] == 3 * HOUR_NS
    root.ask("DELETE", f"links/{listed['id']}")
    deeds = [(deed["action"], deed["subject"]) for deed in root.ask("GET", "audit").get_json()["deeds"]]
    assert deeds[:2] == [("end link", "shared"), ("make link", "shared for 3 hours")]
    assert by_link.token not in root.ask("GET", "audit").get_data(as_text=True)


def test_a_link_takes_effect_together_with_a_cookie(team: Team) -> None:
    root = team.browser("root")
    code = holder(team, root, "shared").token
    root.token = code
    assert root.ask("GET", "users").status_code == 404
    assert root.ask("GET", "runs", headers={TOKEN_HEADER: ""}).status_code == 200


def test_a_report_without_a_run(team: Team) -> None:
    folder = "measured/cpu"
    sample = ROOT / "tests" / "fixtures" / "evaluation" / "real_job" / "ov-cpu-1t-f32"
    for part in ("job.json", "env.json", "status.json", "points.jsonl", "latencies.bin"):
        for name in (folder, "measured/gpu"):
            team.site.write(f"{name}/{part}", (sample / part).read_bytes())
    root = team.browser("root")
    path = root.ask("POST", "links", json={"run": folder}).get_json()["path"]
    assert path.startswith("#/evaluation?reports=measured%2Fcpu&link=")
    by_link = Browser(team.site.app.test_client(), code_of(path))
    assert [report["id"] for report in by_link.ask("GET", "evaluation").get_json()["reports"]] == [folder]
    assert by_link.ask("GET", f"evaluation/overlay?reports={folder}").status_code == 200
    assert by_link.ask("GET", "evaluation/overlay?reports=measured/gpu").status_code == 404
    assert root.ask("POST", "links", json={"run": "measured"}).status_code == 404


def test_a_server_without_accounts_has_no_links(make_site: object) -> None:
    site = make_site(token="vp_s_x")  # type: ignore[operator]
    site.write("run/trace.json", kineto())
    answer = site.client.get("/api/v1/links?run=run", headers={TOKEN_HEADER: "vp_s_x"})
    assert (answer.status_code, answer.get_json()["hint"]) == (404, "start it with --accounts")


def test_the_command_prints_a_link(
    team: Team, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def post(_: object, path: str, body: object) -> object:
        asked.append((path, body))
        return team.browser("root").ask("POST", path, json=body).get_json()

    monkeypatch.setattr("visualprof.cli._server.Server.post", post)
    assert main(["share", "shared", "--days", "2", "--server", "http://dash.example.org:8040"]) == 0
    printed = capsys.readouterr().out.strip()
    assert asked == [("links", {"run": "shared", "hours": 48})]
    assert printed.startswith("http://dash.example.org:8040/#/overview?run=shared&link=vp_l_")
