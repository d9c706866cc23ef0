"""Rules of retention, health and reasons of waiting, as administrators and owners meet them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sqlalchemy import insert, update
from teams import Team, machine

from tests.manual_clock import ManualClock
from visualprof.remote.queue.store.tables import agents, audit, tasks
from visualprof.server.api import health as health_module
from visualprof.server.latency import LatencyMeter
from visualprof.server.throttled_cache import ThrottledCache

DAY_NS = 24 * 3600 * 10**9
pytestmark = pytest.mark.both_databases


def end(team: Team, days: float) -> None:
    """Set back the end of Ann's canceled job by a number of days."""
    team.remote.open().jobs.cancel(team.job)
    with team.remote.open().database.write() as connection:
        connection.execute(update(tasks).values(updated_ns=time.time_ns() - int(days * DAY_NS)))


def rules(answer: Any) -> dict[tuple[str, str], int | None]:
    return {(rule["kind"], rule["project"]): rule["days"] for rule in answer.get_json()["rules"]}


def test_retention_rules_of_an_administrator_are_in_the_audit_log(team: Team) -> None:
    root = team.browser("root")
    usual = {("jobs", ""): None, ("uploads", ""): 7, ("notices", ""): 90, ("audit", ""): None}
    assert rules(root.ask("GET", "retention")) == usual
    project = root.ask("POST", "projects", json={"name": "vision"}).get_json()["projects"][0]["id"]
    root.ask("PUT", "retention", json={"kind": "jobs", "days": 90})
    set_ = root.ask("PUT", "retention", json={"kind": "jobs", "project": project, "days": 7})
    assert set_.get_json()["projects"] == {project: "vision"}
    assert rules(set_) == {**usual, ("jobs", ""): 90, ("jobs", project): 7}
    refused = [
        ({"kind": "audit", "days": 29}, "days: 30 at least, or never"),
        ({"kind": "uploads", "project": project, "days": 9}, "project: only jobs belong to one"),
    ]
    for body, said in refused:
        answer = root.ask("PUT", "retention", json=body)
        assert (answer.status_code, answer.get_json()["error"]) == (400, said)
    assert rules(root.ask("DELETE", f"retention/{project}")) == {**usual, ("jobs", ""): 90}
    root.ask("PUT", "retention", json={"kind": "jobs", "project": project, "days": 3})
    root.ask("DELETE", f"projects/{project}")
    assert rules(root.ask("GET", "retention")) == {**usual, ("jobs", ""): 90}, "it goes with its project"
    told = [deed["subject"] for deed in root.ask("GET", "audit").get_json()["deeds"] if "retention" in deed["action"]]
    assert told[1:] == [f"jobs {project}: as all others", f"jobs {project}: after 7 days", "jobs: after 90 days"]


def test_a_rule_previews_what_it_would_remove_and_a_job_shows_when(team: Team) -> None:
    root, ann, bob = (team.browser(name) for name in ("root", "ann", "bob"))
    end(team, 10)
    assert root.ask("GET", "retention/removes?kind=jobs&days=9").get_json()["count"] == 1
    assert root.ask("GET", "retention/removes?kind=jobs&days=11").get_json()["count"] == 0
    assert ann.ask("GET", f"jobs/{team.job}").get_json()["removed_ns"] is None
    root.ask("PUT", "retention", json={"kind": "jobs", "days": 14})
    one = ann.ask("GET", f"jobs/{team.job}").get_json()
    assert one["removed_ns"] == pytest.approx(time.time_ns() + 4 * DAY_NS, abs=60e9)
    assert bob.ask("GET", "jobs").get_json()["leaving"] == {}
    listed = team.browser("ann").ask("GET", "jobs").get_json()
    assert listed["leaving"] == {team.job: one["removed_ns"]}
    assert bob.ask("PUT", f"jobs/{team.job}/kept", json={"kept": True}).status_code == 404
    kept = ann.ask("PUT", f"jobs/{team.job}/kept", json={"kept": True}).get_json()
    assert (kept["kept"], kept["removed_ns"]) == (True, None)
    assert ann.ask("GET", "jobs").get_json()["leaving"] == {}
    ann.ask("PUT", f"jobs/{team.job}/kept", json={"kept": False})
    access = ann.ask("GET", f"runs/access?run={team.run}").get_json()
    assert (access["job"], access["removed_ns"]) == (team.job, one["removed_ns"])
    root.ask("PUT", "retention", json={"kind": "jobs", "days": 365})
    assert ann.ask("GET", f"jobs/{team.job}").get_json()["removed_ns"] > time.time_ns() + 300 * DAY_NS
    assert root.ask("GET", "runs/access?run=shared").get_json()["removed_ns"] is None


def test_a_job_shows_why_it_waits_to_users_who_may_see_it(team: Team) -> None:
    ann = team.browser("ann")
    box, _ = machine(ann, "gpu-lab")
    one = ann.ask("GET", f"jobs/{team.job}").get_json()
    turn = {"reason": "turn", "machine": None, "until_ns": None, "n": 1, "of": 1}
    assert one["waits"] == {team.task: turn}
    team.browser("root").ask("PUT", "quotas", json={"user": team.ids["ann"], "quota": {"jobs_running": 0}})
    waits = ann.ask("GET", f"jobs/{team.job}").get_json()["waits"][team.task]
    assert (waits["reason"], waits["n"], waits["of"]) == ("jobs", 0, 0)
    until = time.time_ns() + DAY_NS
    team.browser("root").ask("POST", f"agents/{box}/bookings", json={"from_ns": 0, "until_ns": until})
    listed = ann.ask("GET", "jobs").get_json()["waits"]
    assert listed == {
        team.job: {**turn, "reason": "maintenance", "machine": "gpu-lab", "until_ns": until, "n": None, "of": None}
    }
    assert team.browser("bob").ask("GET", "jobs").get_json()["waits"] == {}


def test_health_reports_the_state_and_warnings(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    root = team.browser("root")
    machine(root, "box")
    monkeypatch.setattr(health_module, "MIN_FREE_RATIO", 0.0)
    monkeypatch.setattr(health_module, "MAX_LOAD_PER_CORE", 1e6)
    monkeypatch.setattr(health_module, "SLOW_RESPONSE_NS", 10**18)
    monkeypatch.setattr(health_module, "MIN_FREE_BYTES", 0)
    found = root.ask("GET", "health").get_json()
    assert (found["database"]["schema"], found["database"]["size_bytes"] > 0) == (found["database"]["known"], True)
    assert found["queue"]["waiting"] == 1
    assert found["queue"]["oldest_ns"] == pytest.approx(time.time_ns(), abs=60e9)
    assert found["machines"] == {"registered": 1, "online": 1, "lost": 0, "skewed": []}
    assert [disk["place"] for disk in found["disks"]][:2] == ["logs", "store"]
    assert found["answers"]["count"] > 5
    assert found["processes"]["server_bytes"] > 10 << 20
    assert (found["warnings"], found["backup_ns"]) == ([], None)


def test_each_problem_is_a_warning_with_a_hint(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    root = team.browser("root")
    ids = [machine(root, name)[0] for name in ("fast", "gone")]
    queue = team.remote.open()
    with queue.database.write() as connection:
        connection.execute(update(agents).where(agents.c.id == ids[1]).values(seen_ns=0))
        row = {"email": "x", "action": "backup", "subject": "", "address": ""}
        connection.execute(insert(audit).values(at_ns=time.time_ns() - 9 * DAY_NS, **row))
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    monkeypatch.setattr(health_module, "MIN_FREE_RATIO", 1.0)
    monkeypatch.setattr(health_module, "MAX_LOAD_PER_CORE", -1)
    monkeypatch.setattr(health_module, "SLOW_RESPONSE_NS", 0)
    # The application has a queue of its own over the same database.
    application = root.client.application
    found_by_agent = {"Authorization": f"Bearer {machine(root, 'third')[1]}"}
    beat = {"tasks": [], "clock_ns": time.time_ns() + 60 * 10**9}
    assert (
        application.test_client().post("/api/v1/agent/heartbeat", json=beat, headers=found_by_agent).status_code == 200
    )
    found = root.ask("GET", "health").get_json()
    assert found["machines"]["lost"] == 1
    assert [one["name"] for one in found["machines"]["skewed"]] == ["third"]
    said = " | ".join(warning["error"] for warning in found["warnings"])
    for words in (
        "nearly full",
        "is busy",
        "schema 9999",
        "third differs by +60 s",
        "lost: 1",
        "are slow",
        "9 days old",
    ):
        assert words in said, said
    assert all(warning["hint"] for warning in found["warnings"])


def test_the_pace_is_that_of_the_last_minutes() -> None:
    clock = ManualClock()
    meter = LatencyMeter(clock)
    meter.add(10**12, 500)
    clock.advance(301)
    for took in range(1, 101):
        meter.add(took, 503 if took == 7 else 500 if took == 8 else 200)
    pace = meter.stats()
    assert (pace.count, pace.p95_ns, pace.failed) == (100, 95, 1), "nearest rank of 1..100; 503 is no error"
    assert LatencyMeter().stats().p95_ns is None


def test_expensive_measurements_are_rarely_repeated() -> None:
    clock, asked = ManualClock(), list[str]()

    def ask(thing: str) -> list[str]:
        asked.append(thing)
        clock.advance(3)
        return [thing]

    lately = ThrottledCache(ask, 10, clock)
    first = lately.get("a")
    clock.advance(59.9)
    assert lately.get("a") is first
    assert len(asked) == 1, "it took 3 s: not before 60 s later"
    clock.advance(0.1)
    assert (lately.get("a") is first, len(asked)) == (True, 2), "asked again, and the same"
    assert (lately.get("b"), len(asked)) == (["b"], 3)
    lately.invalidate()
    lately.get("b")
    assert len(asked) == 4
