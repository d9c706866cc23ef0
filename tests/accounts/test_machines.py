"""How machines join a team, and for which users and when they work, in the API and in leases."""

from __future__ import annotations

import time
from typing import Any

import pytest
from queue_sites import request, upload
from sqlalchemy import update
from teams import MODEL_FILE, SHELL, Browser, Team, machine, register
from werkzeug.test import TestResponse

from tests.server_settings import server_settings
from visualprof.remote.protocol import Lease, Spec
from visualprof.remote.queue.service import JobServices
from visualprof.remote.queue.store.records import Agent
from visualprof.remote.queue.store.tables import agents, bookings
from visualprof.server.app import create_app
from visualprof.server.job_service import JobService

pytestmark = pytest.mark.both_databases

HOUR_NS = 3600 * 10**9


@pytest.fixture
def queue(team: Team) -> JobServices:
    """Without the job that the team comes with."""
    queue = team.remote.open()
    queue.jobs.cancel(team.job)
    upload(team.remote)
    return queue


def shown(browser: Browser) -> dict[str, dict[str, Any]]:
    return {agent["name"]: agent for agent in browser.ask("GET", "agents").get_json()["agents"]}


def added(team: Team, queue: JobServices, name: str = "ann") -> Agent:
    return queue.agents.authenticate(machine(team.browser(name), f"{name}'s")[1])


def submit(team: Team, queue: JobServices, name: str, agent: str = "") -> str:
    return queue.jobs.submit(request(f"{time.time_ns()}", Spec("s", "onnxruntime", agent=agent)), team.ids[name])[0]


def leased(queue: JobServices, agent: Agent) -> str | None:
    lease: Lease | None = queue.leases.lease(agent, ["cpu"], 0)
    return lease and lease.job


def deeds(team: Team) -> list[tuple[str, str]]:
    return [(deed.email, deed.action) for deed in team.accounts.audit_events(None, 10) if deed.action != "log in"]


def test_a_machine_joins_by_a_code_and_is_its_users_alone(team: Team) -> None:
    ann = team.browser("ann")
    enrolment = ann.ask("POST", "agents/codes")
    code = enrolment.get_json()["code"]
    assert enrolment.status_code == 201
    assert enrolment.get_json()["command"] == f"visualprof agent --server http://localhost --token {code}"
    assert register(ann, code, public=True).status_code == 200
    found = shown(ann)["box"]
    facts = ("owner", "public", "changeable", "address")
    assert [found[name] for name in facts] == ["ann@example.org", False, True, "127.0.0.1"]
    assert shown(team.browser("bob")) == shown(team.browser("eve")) == {}
    assert shown(team.browser("root"))["box"]["owner"] == "ann@example.org"
    assert deeds(team)[:2] == [("ann@example.org", "add machine"), ("ann@example.org", "make machine code")]
    again = register(ann, code, "second")
    assert (again.status_code, again.get_json()["error"]) == (401, "invalid or already used join code")


def test_a_code_lasts_ten_minutes_and_as_long_as_its_users_rights(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, bob = team.browser("ann"), team.browser("bob")
    codes = [browser.ask("POST", "agents/codes").get_json()["code"] for browser in (ann, ann, bob)]
    team.accounts.users.update(SHELL, team.ids["bob"], role="viewer")
    assert register(ann, codes[2]).status_code == 400
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 599 * 10**9)
    assert register(ann, codes[0]).status_code == 200
    monkeypatch.setattr(time, "time_ns", lambda: now + 601 * 10**9)
    assert register(ann, codes[1]).status_code == 400
    assert list(shown(team.browser("root"))) == ["box"]


def test_the_servers_token_opens_nothing_but_for_its_own_agent(team: Team, queue: JobServices) -> None:
    root = team.browser("root")
    remote = JobService(team.site.logdir.roots[0])  # the token is written down
    assert register(root, remote.registration_token).status_code == 401
    answer = root.ask("GET", "agents").get_json()
    assert (answer["command"], answer["by_code"]) == ("visualprof agent --server http://localhost", True)
    assert remote.registration_token not in root.ask("GET", "agents").get_data(as_text=True)
    assert root.ask("POST", "agents/token").status_code == 409


def test_the_servers_own_agent_joins_without_a_code(team: Team) -> None:
    app = create_app(team.site.logdir, server_settings(accounts=True), team.remote, team.site.reader)
    root = Browser(app.test_client())
    answer = register(root, team.remote.local_token, "local")
    assert answer.status_code == 200
    assert shown(team.browser("eve"))["local"]["public"] is True, "as the server started it"
    registration = {"agent": answer.get_json()["agent"], "token": answer.get_json()["token"]}
    team.browser("root").ask("PATCH", f"agents/{registration['agent']}", json={"public": False})
    assert register(root, team.remote.local_token, "local", **registration).status_code == 200
    assert shown(team.browser("eve")) == {}, "as an administrator decided"


def test_a_machine_does_not_make_itself_public(team: Team) -> None:
    ann, root = team.browser("ann"), team.browser("root")
    agent, token = machine(ann)
    assert register(ann, "vp_c_spent", agent=agent, token=token, public=True).get_json()["agent"] == agent
    assert shown(ann)["box"]["public"] is False
    assert ann.ask("PATCH", f"agents/{agent}", json={"public": True}).status_code == 403
    assert root.ask("PATCH", f"agents/{agent}", json={"public": True}).status_code == 200
    assert register(ann, "vp_c_spent", agent=agent, token=token, public=False).status_code == 200
    assert shown(team.browser("eve"))["box"]["public"] is True
    seen = shown(team.browser("bob"))["box"]
    assert (seen["owner"], seen["changeable"], seen["grants"]) == (None, False, [])
    assert team.browser("bob").ask("PATCH", f"agents/{agent}", json={"standing": "out"}).status_code == 403
    assert ann.ask("PATCH", f"agents/{agent}", json={"standing": "drained"}).status_code == 200
    assert deeds(team)[0] == ("ann@example.org", "change machine")


def grants(browser: Browser, agent: Agent, **whom: str) -> TestResponse:
    return browser.ask("POST", f"agents/{agent.id}/grants", json=whom)


def test_a_private_machine_serves_its_owner_and_granted_users(team: Team, queue: JobServices) -> None:
    ann, agent = team.browser("ann"), added(team, queue)
    of_bob, of_root = submit(team, queue, "bob"), submit(team, queue, "root")
    assert leased(queue, agent) is None
    of_ann = submit(team, queue, "ann")
    assert leased(queue, agent) == of_ann
    answer = grants(ann, agent, email="bob@example.org")
    assert answer.get_json()["agents"][0]["grants"] == [
        {"holder": team.ids["bob"], "kind": "user", "name": "bob@example.org"}
    ]
    assert leased(queue, agent) == of_bob
    assert list(shown(team.browser("bob"))) == ["ann's"]
    assert shown(team.browser("eve")) == {}
    assert leased(queue, agent) is None, f"{of_root} is an administrator's, whom nothing is granted"


def test_a_grant_revoked_while_a_task_waits_has_no_effect(team: Team, queue: JobServices) -> None:
    ann, agent = team.browser("ann"), added(team, queue)
    grants(ann, agent, email="bob@example.org")
    submit(team, queue, "bob", agent.id)
    assert ann.ask("DELETE", f"agents/{agent.id}/grants/{team.ids['bob']}").status_code == 200
    assert leased(queue, agent) is None
    assert ann.ask("DELETE", f"agents/{agent.id}/grants/{team.ids['bob']}").status_code == 404


def test_permission_is_checked_again_when_the_task_is_claimed(
    team: Team, queue: JobServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, agent = team.browser("ann"), added(team, queue)
    grants(ann, agent, email="bob@example.org")
    submit(team, queue, "bob")
    files = queue.leases._files

    def revoked(*asked: Any) -> Any:
        """Between finding the task and taking it."""
        assert ann.ask("DELETE", f"agents/{agent.id}/grants/{team.ids['bob']}").status_code == 200
        return files(*asked)

    monkeypatch.setattr(queue.leases, "_files", revoked)
    assert leased(queue, agent) is None


def test_a_job_continues_on_another_machine_if_the_first_loses_its_permission(team: Team, queue: JobServices) -> None:
    ann, first, second = team.browser("ann"), added(team, queue), added(team, queue, "bob")
    grants(ann, first, email="bob@example.org")
    specs = [Spec(name, "onnxruntime") for name in ("s0", "s1", "s2")]
    job, _ = queue.jobs.submit(request("k", *specs), team.ids["bob"])
    assert leased(queue, first) == job
    assert leased(queue, second) is None, "the machine that began has all of a job"
    ann.ask("DELETE", f"agents/{first.id}/grants/{team.ids['bob']}")
    assert leased(queue, second) == job


def test_members_of_a_project_have_its_machines(team: Team, queue: JobServices) -> None:
    ann, agent = team.browser("ann"), added(team, queue)
    project = ann.ask("POST", "projects", json={"name": "vision"}).get_json()["projects"][0]["id"]
    theirs = team.browser("bob").ask("POST", "projects", json={"name": "bob's"}).get_json()["projects"][0]["id"]
    assert grants(ann, agent, project=theirs).status_code == 404
    assert grants(ann, agent).status_code == grants(ann, agent, email="a", project=project).status_code == 400
    assert grants(ann, agent, project=project).status_code == 200
    waits = submit(team, queue, "bob")
    assert (leased(queue, agent), shown(team.browser("bob"))) == (None, {})
    ann.ask("POST", f"projects/{project}/members", json={"email": "bob@example.org"})
    assert shown(team.browser("bob"))["ann's"]["changeable"] is False
    assert leased(queue, agent) == waits
    submit(team, queue, "bob")
    ann.ask("DELETE", f"projects/{project}")
    assert shown(ann)["ann's"]["grants"] == []
    assert leased(queue, agent) is None


def test_anothers_machine_is_unknown_to_a_job(team: Team, queue: JobServices) -> None:
    agent = added(team, queue)
    for name in ("bob", "root"):
        browser = team.browser(name)
        blob = browser.ask("POST", "uploads?name=a.onnx", data=MODEL_FILE.read_bytes()).get_json()["blob"]
        drafted = browser.ask("POST", "jobs/draft", json={"model": blob}).get_json()["request"]
        spec = {"id": "s", "backend": "onnxruntime", "agent": agent.id}
        answer = browser.ask("POST", "jobs", json={**drafted, "key": "k", "specs": [spec]})
        assert (answer.status_code, answer.get_json()["errors"][0]["field"]) == (400, "specs[0].agent")
        assert "ann" not in answer.get_data(as_text=True)


@pytest.mark.parametrize(
    ("name", "priority", "status"), [("ann", "high", 400), ("ann", "low", 201), ("root", "high", 201)]
)
def test_administrators_alone_are_urgent(team: Team, name: str, priority: str, status: int) -> None:
    browser = team.browser(name)
    blob = browser.ask("POST", "uploads?name=a.onnx", data=MODEL_FILE.read_bytes()).get_json()["blob"]
    spec = {"id": "s", "backend": "onnxruntime"}
    draft = {"model": blob, "priority": priority}
    drafted = browser.ask("POST", "jobs/draft", json=draft).get_json()
    assert drafted["request"]["priority"] == priority
    answer = browser.ask("POST", "jobs", json={**drafted["request"], "key": "k", "specs": [spec]})
    assert answer.status_code == status
    assert status == 201 or answer.get_json()["errors"][0]["field"] == "priority"


def book(browser: Browser, agent: Agent, begin_h: float, end_h: float, email: str = "") -> TestResponse:
    """From and to so many hours from now."""
    start = time.time_ns()
    body = {"from_ns": round(start + begin_h * HOUR_NS), "until_ns": round(start + end_h * HOUR_NS), "email": email}
    return browser.ask("POST", f"agents/{agent.id}/bookings", json=body)


def public(team: Team, queue: JobServices) -> tuple[Browser, Agent]:
    root, agent = team.browser("root"), added(team, queue, "root")
    root.ask("PATCH", f"agents/{agent.id}", json={"public": True})
    return root, agent


def test_a_reserved_machine_serves_one_user_until_the_reservation_ends(team: Team, queue: JobServices) -> None:
    root, agent = public(team, queue)
    assert book(root, agent, -1, 1, "bob@example.org").status_code == 200
    of_ann, of_bob = submit(team, queue, "ann"), submit(team, queue, "bob")
    assert (leased(queue, agent), leased(queue, agent)) == (of_bob, None)
    shown_to = {name: shown(team.browser(name))["root's"]["bookings"][0] for name in ("root", "bob", "ann")}
    assert {name: (row["kind"], row["mine"], row["email"]) for name, row in shown_to.items()} == {
        "root": ("reservation", False, "bob@example.org"),
        "bob": ("reservation", True, "bob@example.org"),
        "ann": ("reservation", False, None),
    }
    assert deeds(team)[0] == ("root@example.org", "reserve machine")
    with queue.database.write() as connection:  # whose clock may be its own
        connection.execute(update(bookings).values(until_ns=bookings.c.until_ns - HOUR_NS))
    assert leased(queue, agent) == of_ann
    assert shown(root)["root's"]["bookings"] == []


def test_no_task_is_assigned_during_maintenance(team: Team, queue: JobServices) -> None:
    root, agent = public(team, queue)
    waits = submit(team, queue, "root")
    booked = book(root, agent, -1, 1).get_json()["agents"][0]["bookings"]
    assert [(row["kind"], row["mine"], row["email"]) for row in booked] == [("maintenance", False, None)]
    assert leased(queue, agent) is None
    assert root.ask("DELETE", f"agents/{agent.id}/bookings/{booked[0]['id']}").status_code == 200
    assert root.ask("DELETE", f"agents/{agent.id}/bookings/{booked[0]['id']}").status_code == 404
    assert leased(queue, agent) == waits


def test_bookings_do_not_overlap(team: Team, queue: JobServices) -> None:
    root, agent = public(team, queue)
    assert book(root, agent, 1, 2).status_code == 200
    assert book(root, added(team, queue), 1, 2).status_code == 200, "of another machine"
    for begin_h, end_h in ((1, 2), (0.5, 1.5), (1.4, 1.6), (0, 3)):
        assert book(root, agent, begin_h, end_h, "bob@example.org").status_code == 409, (begin_h, end_h)
    for begin_h, end_h in ((3, 3), (-2, -1)):
        assert book(root, agent, begin_h, end_h, "bob@example.org").status_code == 400, (begin_h, end_h)
    end_ns = shown(root)["root's"]["bookings"][0]["until_ns"]
    body = {"from_ns": end_ns, "until_ns": end_ns + 1, "email": "bob@example.org"}
    answer = root.ask("POST", f"agents/{agent.id}/bookings", json=body)
    assert answer.status_code == 200, "one ends as the other begins"


def test_a_private_machine_can_be_reserved_only_for_users_whom_it_serves(team: Team, queue: JobServices) -> None:
    root, agent = team.browser("root"), added(team, queue)
    assert book(root, agent, 1, 2, "bob@example.org").status_code == 409
    assert book(root, agent, 1, 2, "nobody@example.org").status_code == 404
    assert grants(root, agent, email="bob@example.org").status_code == 200
    assert book(root, agent, 1, 2, "bob@example.org").status_code == 200


def test_a_machine_drained_while_it_waits_gets_no_task(team: Team, queue: JobServices) -> None:
    root, agent = public(team, queue)
    submit(team, queue, "ann")
    root.ask("PATCH", f"agents/{agent.id}", json={"standing": "drained"})
    assert leased(queue, agent) is None, "as it was told before"


def test_a_deleted_machine_leaves_no_rows(team: Team, queue: JobServices) -> None:
    root, agent = public(team, queue)
    grants(root, agent, email="bob@example.org")
    book(root, agent, 1, 2)
    with queue.database.write() as connection:
        connection.execute(update(agents).values(seen_ns=agents.c.seen_ns - 31 * 10**9))
    assert root.ask("DELETE", f"agents/{agent.id}").status_code == 200
    assert (team.accounts.machines.grants(), team.accounts.machines.bookings()) == ({}, {})
