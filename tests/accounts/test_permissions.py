"""Every route of the server, and who may use it."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import Any

import pytest
from teams import MODEL_FILE, Browser, Team, machine
from werkzeug.test import TestResponse

from tests.live_files import heartbeat
from visualprof.accounts.notifications.store import notify
from visualprof.remote.queue.uploads import graph_id
from visualprof.server.api import all_routes
from visualprof.server.routes import ROOT
from visualprof.server.session_token import TOKEN_HEADER

pytestmark = pytest.mark.both_databases

OPEN, VIEWER, MEMBER, ADMIN = "anyone", "viewer", "member", "admin"
NEEDS = {f"{route.method} {route.path[1:]}": route.needs for route, _ in all_routes() if route.root == ROOT}

# Routes that need another role than a viewer's for GET and a member's for other methods. This list is written by hand,
# so that a declaration that opens a route by mistake fails here.
EXCEPTIONS = {
    OPEN: {
        "GET session",
        "POST session",
        "POST session/register",
        "POST session/password",
        "POST session/link",
        "POST session/issuer",
        "POST session/issued",
        "POST session/logged-out",
    },
    VIEWER: {
        "DELETE session",
        "POST account/password",
        "DELETE account/sessions/<session>",
        "POST account/tokens",
        "DELETE account/tokens/<token>",
        "PUT account/contact",
        "POST account/contact/trial",
        "POST notices/read",
    },
    MEMBER: {"GET links", "GET uploads/direct/<upload>"},
    ADMIN: {
        "GET users",
        "POST users",
        "PATCH users/<user>",
        "POST users/<user>/password",
        "POST invitations",
        "GET audit",
        "GET quotas",
        "PUT quotas",
        "GET retention",
        "GET retention/removes",
        "PUT retention",
        "DELETE retention/<project>",
        "GET health",
        "POST agents/token",
        "POST agents/<agent>/bookings",
        "DELETE agents/<agent>/bookings/<booking>",
    },
}

# What a link to a run opens of it, in addition to the routes for anyone.
BY_LINK = {
    "GET status",
    "GET runs",
    "GET runs/changes",
    "GET runs/headlines",
    "GET views",
    "GET view/<name>",
    "GET charts/<name>",
    "GET diff",
    "GET models",
    "GET models/match",
    "GET graph",
    "GET graph/node",
    "GET graph/profile",
    "GET graph/compare",
    "GET evaluation",
    "GET trend",
    "GET evaluation/overlay",
    "GET evaluation/point",
    "GET timeline/meta",
    "GET timeline/tile",
    "GET timeline/counter",
    "GET timeline/path",
    "GET timeline/strings",
    "GET timeline/event",
    "GET timeline/search",
    "GET timeline/longest",
    "GET timeline/window",
    "GET timeline/occurrence",
    "GET timeline/export",
    "GET timeline/alignment",
    "GET snapshot/meta",
    "GET snapshot/tile",
    "GET snapshot/map",
    "GET snapshot/totals",
    "GET snapshot/blocks",
    "GET snapshot/joined",
    "GET live",
    "GET live/steps",
    "GET data/tags",
    "GET data/recordings",
    "GET data/layouts",
    "GET data/scalars",
    "GET data/kinds",
    "GET data/series",
    "GET data/sample",
    "GET data/blob",
    "GET data/histograms",
    "GET data/curves",
    "GET data/trials",
    "GET data/embeddings",
    "GET data/embedding",
    "GET data/sprite",
    "GET data/neighbors",
    "GET data/projection",
    "POST data/projection/cancel",
    "GET report",
    "GET replay",
    "GET replay/script",
    "GET replay/call",
    "GET query",
    "POST query",
    "POST query/cancel",
    "GET query/schema",
    "GET query/stored",
}

# What a request carries besides its address. RUN is that of ann's job.
QUERIES = {
    "GET runs/access": "run=RUN",
    "GET links": "run=RUN",
    "GET live/steps": "run=RUN",
    "GET data/tags": 'runs=["RUN"]',
    "GET data/recordings": 'runs=["RUN"]',
    "GET data/layouts": 'runs=["RUN"]',
    "GET data/scalars": 'runs=["RUN"]&tag=loss',
    "GET data/kinds": 'runs=["RUN"]',
    "GET data/series": 'runs=["RUN"]&page=samples',
    "GET data/sample": "run=RUN&line=.&tag=t",
    "GET data/blob": "run=RUN&line=.&tag=t",
    "GET data/histograms": 'runs=["RUN"]&tag=t',
    "GET data/curves": 'runs=["RUN"]&tag=t',
    "GET data/trials": 'runs=["RUN"]',
    "GET data/embeddings": 'runs=["RUN"]',
    "GET data/embedding": "run=RUN&line=.&tag=t",
    "GET data/sprite": "run=RUN&line=.&tag=t",
    "GET data/neighbors": "run=RUN&line=.&tag=t&point=0",
    "GET data/projection": "run=RUN&line=.&tag=t",
    "GET cases/result": "run=RUN",
    "GET view/<name>": "run=RUN",
    "GET charts/<name>": "run=RUN",
    "GET diff": "run=RUN&base=RUN",
    "GET models/match": "run=RUN",
    "GET graph": "model=MODEL",
    "GET graph/node": "model=MODEL&node=0",
    "GET graph/profile": "model=MODEL&run=RUN",
    "GET graph/compare": "model=MODEL&other=MODEL",
    "GET timeline/meta": "run=RUN",
    "GET timeline/tile": "run=RUN&level=20&index=0",
    "GET timeline/path": "run=RUN&level=20&index=0",
    "GET timeline/counter": "run=RUN&level=20&index=0&track=0",
    "GET timeline/strings": "run=RUN",
    "GET timeline/event": "run=RUN&event=0",
    "GET runs/headlines": "runs=RUN",
    "GET timeline/search": "run=RUN&text=op",
    "GET timeline/longest": "run=RUN&name=op0",
    "GET timeline/occurrence": "run=RUN&name=op0&kind=thread",
    "GET timeline/window": "run=RUN",
    "GET timeline/export": "run=RUN",
    "GET timeline/alignment": "run=RUN",
    "GET snapshot/meta": "run=RUN",
    "GET snapshot/tile": "run=RUN&level=0&index=0",
    "GET snapshot/map": "run=RUN",
    "GET snapshot/totals": "run=RUN",
    "GET snapshot/blocks": "run=RUN",
    "GET snapshot/joined": "run=RUN",
    "GET report": "run=RUN",
    "GET replay": "run=RUN&operator=aten::mm",
    "GET replay/script": "run=RUN&operator=aten::mm",
    "GET replay/call": "run=RUN&operator=aten::mm",
    "GET query": "run=RUN&sql=SELECT 1",
    "GET query/schema": "run=RUN",
    "GET evaluation/overlay": "reports=RUN",
    "GET evaluation/point": "report=RUN&batch=1",
    "POST models": "name=a.onnx",
    "POST runs": "name=a.json",
    "GET registry/version": "address=ADDRESS",
    "GET retention/removes": "kind=jobs&days=9",
    "POST uploads": "name=a.onnx",
}
BODIES: dict[str, Any] = {
    "POST session": {"email": "x@example.org", "password": "wrong, all of it"},
    "POST session/register": {"email": "x@example.org", "password": "wrong, all of it"},
    "POST session/password": {"code": "vp_c_x", "password": "wrong, all of it"},
    "POST session/link": {"email": "x@example.org", "wish": "reset"},
    "POST session/issued": {"state": "x"},
    "POST account/password": {"old": "wrong", "new": "wrong, all of it"},
    "POST account/tokens": {"name": "ci"},
    "PUT account/contact": {"kinds": [], "language": "en", "mail": False, "webhook": ""},
    "POST notices/read": {"upto": 1},
    "POST live/record": {"run": "RUN"},
    "POST query": {"run": "RUN", "sql": "SELECT 1"},
    "POST query/cancel": {"id": "x"},
    "POST data/projection/cancel": {"run": "RUN", "line": ".", "tag": "t"},
    "POST query/saved": {"name": "mine", "sql": "SELECT 1"},
    "PATCH query/saved/<saved>": {"sql": "SELECT 2"},
    "POST users": {"email": "x@example.org", "password": "x"},
    "PATCH users/<user>": {},
    "POST invitations": {},
    "PUT quotas": {},
    "PUT retention": {"kind": "jobs", "days": 9},
    "PUT jobs/<job>/kept": {"kept": True},
    "POST projects": {"name": "vision"},
    "PATCH projects/<project>": {"name": "mine now"},
    "POST projects/<project>/members": {"email": "bob@example.org"},
    "PUT runs/access": {"run": "RUN", "visibility": "public"},
    "POST links": {"run": "RUN", "hours": 1},
    "POST uploads/known": {"blob": "BLOB", "name": "mine.onnx"},
    "POST uploads/direct": {"name": "mine.onnx", "size_bytes": 1},
    "POST advice/apply": {"report": "RUN"},
    "POST registry": {"name": "mine", "blob": "BLOB"},
    "PATCH registry/<model>": {"notes": "mine now"},
    "PUT registry/<model>/aliases/<alias>": {"number": 1},
    "PATCH registry/<model>/<version>": {"notes": "mine now"},
    "POST jobs": {},
    "POST cases/sent": {"blob": "BLOB", "name": "mine.zip"},
    "POST cases/jobs": {"case": "lunch", "agents": ["nobody"]},
    "POST jobs/check": {},
    "POST jobs/draft": {"model": "BLOB"},
    "PATCH agents/<agent>": {},
    "POST agents/<agent>/grants": {"email": "bob@example.org"},
    "POST agents/<agent>/bookings": {"from_ns": 0, "until_ns": 1 << 61},
}


def is_about_an_item(route: str) -> bool:
    """Whether a route of members answers or changes an item of ann's, which other users do not see."""
    sample = f"{route} {QUERIES.get(route, '')} {BODIES.get(route, '')}"
    lists = ("GET runs/headlines", "POST uploads/known", "POST jobs/draft")  # leave out what the user may not see
    if NEEDS[route] == ADMIN or route in lists or "uploads/direct" in route:  # see tests/accounts/test_team_bucket.py
        return False
    return re.search(r"<|\b(RUN|BLOB|MODEL|ADDRESS)\b", sample) is not None


def routes_for(*roles: str) -> list[str]:
    return [route for route, needs in NEEDS.items() if ("viewer" if needs == "link" else needs) in roles]


@dataclass
class Asked:
    """A route's request about things of ann's."""

    team: Team
    subjects: dict[str, str]

    def by(self, browser: Browser, route: str) -> int:
        with self.answer(browser, route) as answer:
            return answer.status_code

    def answer(self, browser: Browser, route: str) -> TestResponse:
        method, path = self._filled(f"{route}?{QUERIES.get(route, '')}").split(" ", 1)
        body = BODIES.get(route)
        options = {} if body is None else {"json": json.loads(self._filled(json.dumps(body)))}
        return browser.ask(method, path, **options)

    def _filled(self, text: str) -> str:
        for name, value in self.subjects.items():
            text = text.replace(name, value)
        return text


@pytest.fixture
def asked(team: Team) -> Asked:
    ann = team.browser("ann")
    account = ann.ask("POST", "account/tokens", json={"name": "ci"}).get_json()
    project = ann.ask("POST", "projects", json={"name": "ann's"}).get_json()["projects"][0]["id"]
    link = ann.ask("POST", "links", json={"run": team.run}).get_json()["links"][0]["id"]
    model = ann.ask("POST", "registry", json={"name": "ann's model", "blob": team.blob}).get_json()["model"]["id"]
    ann.ask("PUT", f"registry/{model}/aliases/best", json={"number": 1})
    saved = ann.ask("POST", "query/saved", json={"name": "ann's query", "sql": "SELECT 1"}).get_json()["queries"][0][
        "id"
    ]
    return Asked(
        team,
        {
            "<job>": team.job,
            "<task>": team.task,
            "RUN": team.run,
            "BLOB": team.blob,
            "MODEL": graph_id(team.blob, "onnx") or "",
            "<model>": model,
            "<version>": "1",
            "<alias>": "best",
            "ADDRESS": "ann's model@best",
            "<name>": "operator",
            "<session>": account["sessions"][0]["id"],
            "<token>": account["tokens"][0]["id"],
            "<project>": project,
            "<user>": team.ids["ann"],
            "<agent>": machine(ann, "ann's box")[0],
            "<link>": link,
            "<saved>": saved,
            "<holder>": team.ids["ann"],
            "<booking>": "none",
        },
    )


def test_every_route_of_the_application_is_declared(team: Team) -> None:
    rules = [rule for rule in team.site.app.url_map.iter_rules() if rule.rule.startswith(f"{ROOT}/")]
    served = {
        f"{method} {rule.rule.removeprefix(f'{ROOT}/')}"
        for rule in rules
        if not rule.rule.startswith(f"{ROOT}/agent/")
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert served == NEEDS.keys()


def test_only_the_listed_routes_need_another_role_than_their_method() -> None:
    default = {route: VIEWER if route.startswith("GET") else MEMBER for route in NEEDS}
    expected = default | {route: role for role, names in EXCEPTIONS.items() for route in names}
    assert expected | dict.fromkeys(BY_LINK, "link") == NEEDS


def test_strangers_are_rejected_by_every_route(asked: Asked) -> None:
    nobody = asked.team.browser()
    shut = {route: asked.by(nobody, route) for route in routes_for(VIEWER, MEMBER, ADMIN)}
    assert set(shut.values()) == {401}, shut


def test_a_viewer_changes_nothing_but_their_own_account(asked: Asked) -> None:
    eve = asked.team.browser("eve")
    shut = {route: asked.by(eve, route) for route in routes_for(MEMBER, ADMIN)}
    assert set(shut.values()) == {403}, shut


def test_members_do_not_administrate(asked: Asked) -> None:
    ann = asked.team.browser("ann")
    shut = {route: asked.by(ann, route) for route in routes_for(ADMIN)}
    assert set(shut.values()) == {403}, shut


@pytest.mark.parametrize("name", ["bob", "eve"])
def test_items_of_other_users_are_not_found(asked: Asked, name: str) -> None:
    browser = asked.team.browser(name)
    mine = filter(is_about_an_item, routes_for(VIEWER, *([MEMBER] if name == "bob" else [])))
    answers = {route: asked.answer(browser, route) for route in mine}
    assert {route: a.status_code for route, a in answers.items() if a.status_code != 404} == {}
    secrets = ("ann.onnx", "ann@example.org")
    assert [(route, s) for route, a in answers.items() for s in secrets if s in a.get_data(as_text=True)] == []


@pytest.mark.parametrize("name", ["bob", "eve"])
def test_no_list_contains_items_of_other_users(asked: Asked, name: str) -> None:
    browser, team = asked.team.browser(name), asked.team
    with team.remote.open().database.write() as connection:
        notify(connection, [team.ids["ann"]], "job_finished", team.job, "ann's", time.time_ns())
    paths = ("runs", "runs/changes", "live", "jobs", "models", "evaluation", "projects", "agents", "account", "notices")
    paths += ("registry", "cases", "query/saved")
    for path in paths:
        text = browser.ask("GET", path).get_data(as_text=True)
        for secret in (team.job, team.blob, "ann"):
            assert secret not in text, (path, secret)
    assert [run["id"] for run in browser.ask("GET", "runs").get_json()["runs"]] == ["shared"]


def test_its_owner_and_administrators_see_it(asked: Asked) -> None:
    questions = [route for route in NEEDS if route.startswith("GET") and is_about_an_item(route)]
    # The run has no such thing.
    absent = {
        "GET cases/result",
        "GET evaluation/overlay",
        "GET evaluation/point",
        "GET timeline/counter",
        "GET live/steps",
        *(route for route in questions if route.startswith("GET data/")),  # the run has no run data
    }
    for name in ("ann", "root"):
        browser = asked.team.browser(name)
        answers = {route: asked.by(browser, route) for route in questions if route not in absent}
        assert {route: status for route, status in answers.items() if status not in (200, 409)} == {}
        assert team_runs(browser) == {asked.team.run, "shared"}


def team_runs(browser: Browser) -> set[str]:
    return {run["id"] for run in browser.ask("GET", "runs").get_json()["runs"]}


def test_a_run_is_shared_with_a_project_and_with_all_users(asked: Asked) -> None:
    team, ann, bob, eve = asked.team, *(asked.team.browser(name) for name in ("ann", "bob", "eve"))
    project = asked.subjects["<project>"]
    revision = bob.ask("GET", "runs/changes").get_json()["revision"]
    ann.ask("POST", f"projects/{project}/members", json={"email": "bob@example.org"})
    assert team_runs(bob) == {"shared"}
    shared = ann.ask("PUT", "runs/access", json={"run": team.run, "visibility": "project", "project": project})
    assert shared.get_json()["changeable"]
    assert (team_runs(bob), team_runs(eve)) == ({"shared", team.run}, {"shared"})
    changes = bob.ask("GET", f"runs/changes?since={revision}").get_json()
    assert {run["id"] for run in changes["runs"]} == {"shared", team.run}
    assert bob.ask("GET", f"jobs/{team.job}").status_code == 200
    assert bob.ask("POST", f"jobs/{team.job}/cancel").status_code == 403
    assert bob.ask("GET", f"runs/access?run={team.run}").get_json()["changeable"] is False
    assert bob.ask("PUT", "runs/access", json={"run": team.run, "visibility": "public"}).status_code == 403
    ann.ask("DELETE", f"projects/{project}/members/{team.ids['bob']}")
    assert team_runs(bob) == {"shared"}
    ann.ask("PUT", "runs/access", json={"run": team.run, "visibility": "public"})
    assert team_runs(eve) == {"shared", team.run}
    team.browser("root").ask("PUT", "runs/access", json={"run": "shared", "visibility": "private"})
    assert team_runs(eve) == {team.run}


def test_steps_of_a_run_are_recorded_by_its_owner_and_of_nobodys_by_every_member(asked: Asked) -> None:
    team, (ann, bob, eve) = asked.team, (asked.team.browser(name) for name in ("ann", "bob", "eve"))

    def answers(run: str) -> list[int]:
        heartbeat(team.site.folder / run, 0)
        team.site.logdir.rescan()
        by = []
        for browser in (eve, bob, ann):
            by.append(browser.ask("POST", "live/record", json={"run": run}).status_code)
            runs = browser.ask("GET", "live").get_json()["runs"]
            assert [run_row["recordable"] for run_row in runs if run_row["run"] == run] == [by[-1] in (201, 409)] * (
                by[-1] != 404
            )
        return by

    assert answers("shared") == [403, 201, 409]
    ann.ask("PUT", "runs/access", json={"run": team.run, "visibility": "public"})
    assert answers(team.run) == [403, 403, 201]
    forged = ann.ask("POST", "live/record", json={"run": team.run}, headers={TOKEN_HEADER: "x"})
    assert forged.status_code == 401


def test_a_followed_run_belongs_to_the_owner_of_the_agent(asked: Asked) -> None:
    team, (ann, bob) = asked.team, (asked.team.browser(name) for name in ("ann", "bob"))
    beat = heartbeat(team.site.folder.parent / "far", 0)
    body = {"folder": "0" * 32, "clock_ns": time.time_ns(), "run": "job", "files": [], "grown": []}
    text = (team.site.folder.parent / "far" / ".live" / f"{beat.worker}.json").read_text()
    for browser, place in ((ann, "annes"), (bob, "bobs")):  # the same folder, said by another's machine, is another one
        (_, token), client = machine(browser, place), team.site.app.test_client()
        report = {**body, "live": {f"{beat.worker}.json": text}}
        response = client.post("/api/v1/agent/runs", json=report, headers={"Authorization": f"Bearer {token}"})
        assert response.status_code == 200, response.get_json()
    team.site.logdir.rescan()
    for name, seen in (
        ("ann", {"annes/job"}),
        ("bob", {"bobs/job"}),
        ("eve", set()),
        ("root", {"annes/job", "bobs/job"}),
    ):
        live = team.browser(name).ask("GET", "live").get_json()["runs"]
        assert {one["run"] for one in live if one["recordable"]} == seen
        assert team_runs(team.browser(name)) >= seen
    assert bob.ask("POST", "live/record", json={"run": "annes/job"}).status_code == 404
    assert ann.ask("POST", "live/record", json={"run": "annes/job"}).status_code == 201
    assert ann.ask("PUT", "runs/access", json={"run": "annes/job", "visibility": "public"}).status_code == 200
    assert bob.ask("POST", "live/record", json={"run": "annes/job"}).status_code == 403
    nobody = team.site.app.test_client().post("/api/v1/agent/runs", json=body)
    page = ann.ask("POST", "agent/runs", json=body)
    assert (nobody.status_code, page.status_code) == (401, 403)


def test_a_known_file_opens_nothing(asked: Asked) -> None:
    bob, blob = asked.team.browser("bob"), asked.team.blob
    request = {
        "model": {"blob": blob, "name": "a.onnx"},
        "specs": [{"id": "cpu", "backend": "onnxruntime"}],
        "key": "k",
    }
    refused = bob.ask("POST", "jobs", json=request)
    assert (refused.status_code, refused.get_json()["errors"][0]["field"]) == (400, "model.blob")
    assert bob.ask("POST", "uploads/known", json={"blob": blob, "name": "mine.onnx"}).get_json() == {"files": []}
    sent = {"blob": blob, "name": "mine.zip"}
    assert bob.ask("POST", "cases/sent", json=sent).status_code == 404
    assert bob.ask("POST", "cases/jobs", json={"sent": sent, "agents": ["any"]}).status_code == 404
    again = bob.ask("POST", "uploads?name=bob.onnx", data=MODEL_FILE.read_bytes())
    assert (again.status_code, again.get_json()["name"]) == (201, "bob.onnx")
    assert bob.ask("GET", f"graph?model={graph_id(blob, 'onnx')}").status_code == 200
    assert "ann" not in bob.ask("GET", "models").get_data(as_text=True)
