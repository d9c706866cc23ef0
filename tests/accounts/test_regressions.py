"""Users are notified of regressions: by how much, since when, and only if they are certain."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from receivers import webhook
from sqlalchemy import insert, select, update
from teams import MODEL_FILE, Team
from test_notices import LEASE_S, choose, until

from visualprof.accounts.notifications.sender import NotificationSender
from visualprof.reader.results.points import Point, parse_points
from visualprof.remote.queue.store.tables import jobs, points, runs, tasks
from visualprof.remote.queue.tasks.jobs import bump_revision
from visualprof.views.measure.reports.regression import find_regressions

DAY_NS = 86400 * 10**9
NOVEMBER_20 = 1_795_132_800 * 10**9 + 8 * 3600 * 10**9  # 2026-11-20, 08:00 UTC
# Means of 100 and 88 samples a second, each of variance 1: a run takes 100 / 88 - 1 = 13.6 % longer, and
# t = 12 / sqrt(1 / 3 + 1 / 3) = 14.7 with 4 degrees of freedom, which chance makes once in 8,000.
FAST, SLOW = (99.0, 100.0, 101.0), (87.0, 88.0, 89.0)
BUSY: dict[str, Any] = {"host_busy": True}


def point(batch: int, rates: Sequence[float], scenario: str = "", **more: Any) -> dict[str, Any]:
    """Return a point like the child reports it; latencies follow the rates."""

    def one(rate: float) -> dict[str, Any]:
        return {
            "batch": batch,
            "n": 1000,
            "qps": rate / batch,
            "samples_per_s": rate,
            "p50_ns": round(1e9 / rate),
            "trusted": [50],
            "stable": True,
            "host_busy": False,
            **more,
        }

    load = {"load": {"scenario": scenario}} if scenario else {}
    return {**one(sum(rates) / len(rates)), **load, "repeats": [one(rate) for rate in rates] if len(rates) > 1 else []}


def read(*lines: dict[str, Any]) -> tuple[Point, ...]:
    return parse_points(lines)[0]


def test_a_point_that_takes_significantly_longer() -> None:
    regressions = find_regressions(read(point(8, FAST)), read(point(8, SLOW)))
    assert regressions == [(8, pytest.approx(100 / 88 - 1))]
    assert find_regressions(read(point(8, SLOW)), read(point(8, FAST))) == [], "faster is no regression"


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (point(8, (80, 100, 120)), point(8, (70, 88, 106))),  # t = 12 / sqrt((400 + 324) / 3) = 0.77
        (point(8, FAST), point(8, (95, 96, 97))),  # sure, but 100 / 96 - 1 = 4.2 %
        (point(8, FAST), point(8, (88.0,))),  # measured once
        (point(8, FAST), point(4, SLOW)),
        (point(8, FAST), point(8, SLOW, "closed")),
        (point(8, FAST, **BUSY), point(8, SLOW)),
        (point(8, FAST), point(8, SLOW, **BUSY)),
        (point(8, FAST, stable=False), point(8, SLOW)),
        (point(8, FAST), point(8, SLOW, stable=False)),
        (point(8, FAST), point(8, SLOW, throttled=True)),
        (point(8, FAST), {**point(8, SLOW), "repeats": [point(8, (rate,), **BUSY) for rate in SLOW]}),
    ],
)
def test_small_or_uncertain_regressions_are_not_notified(before: dict[str, Any], now: dict[str, Any]) -> None:
    assert find_regressions(read(before), read(now)) == []


def test_runs_that_arrive_are_compared_by_their_latency() -> None:
    """Half as fast, though as many are served."""
    arriving = {"samples_per_s": 50.0}
    before, now = (point(1, rates, "poisson", **arriving) for rates in (FAST, (49.5, 50.0, 50.5)))
    assert find_regressions(read(before), read(now)) == [(1, pytest.approx(1.0, abs=1e-3))]
    assert find_regressions(read({**before, "load": {}}), read({**now, "load": {}})) == []


def test_the_margin_is_chosen() -> None:
    before, now = read(point(8, FAST)), read(point(8, SLOW))
    assert find_regressions(before, now, 0.14) == []
    assert len(find_regressions(before, now, 0.13)) == 1


class History:
    """Jobs of the team's model, each with one task that has ended."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self.post = NotificationSender(
            team.accounts.database,
            LEASE_S,
            networks=["127.0.0.1"],
            base_url="https://dash.example.org",
            compare=find_regressions,
        )
        self.post.run_once()

    def job(self, who: str, at_ns: int, *measured: dict[str, Any], agent: str = "box", **changed: Any) -> str:
        """A job that ended, by the API and then by the database. changed: of its request; backend, of its spec."""
        browser = self.team.browser(who)
        request = (
            self.team.browser("ann").ask("POST", "jobs/draft", json={"model": self.team.blob}).get_json()["request"]
        )
        spec = {"id": f"s{at_ns}"[-40:], "backend": "onnxruntime", **changed.pop("spec", {})}
        if who != "ann":
            browser.ask("POST", "uploads?name=ann.onnx", data=MODEL_FILE.read_bytes())
        job_request = {**request, "key": f"{who}-{at_ns}", "specs": [spec], **changed}
        answer = browser.ask("POST", "jobs", json=job_request)
        assert answer.status_code == 201, answer.get_json()
        job = answer.get_json()["job"]
        task = job["tasks"][0]["id"]
        with self.team.accounts.database.write() as connection:
            folder = connection.execute(select(jobs.c.folder).where(jobs.c.id == job["id"])).scalar_one()
            ended = {"state": "succeeded", "updated_ns": at_ns, "agent": agent, "on_device": "cpu", "attempt": 1}
            connection.execute(update(tasks).where(tasks.c.id == task).values(**ended, run=f"{folder}/{spec['id']}"))
            rows = [{"task": task, "attempt": 1, "batch": p["batch"], "point": json.dumps(p)} for p in measured]
            connection.execute(insert(points), rows)
            bump_revision(connection, job["id"])
        self.post.run_once()
        return f"{folder}/{spec['id']}"

    def told(self, who: str = "ann") -> list[dict[str, Any]]:
        notices = self.team.browser(who).ask("GET", "notices").get_json()["notices"]
        return [notice for notice in notices if notice["kind"] == "regression"]


@pytest.fixture
def history(team: Team) -> History:
    return History(team)


@pytest.mark.both_databases
def test_the_owner_is_notified_once_of_the_worst_regression(history: History) -> None:
    now = time.time_ns()
    then = history.job("ann", NOVEMBER_20, point(1, FAST), point(8, FAST), point(16, FAST))
    with webhook() as hook:
        choose(history.team.browser("ann"), kinds=["regression"], webhook=hook.url)
        run = history.job("ann", now, point(1, FAST), point(8, SLOW), point(16, (93.0, 94.0, 95.0)))
        until(lambda: hook.got)
        sent = json.loads(hook.got[0][1])
    history.post.run_once()
    (notice,) = history.told()
    assert notice["name"] == "ann onnxruntime batch 8"
    assert notice["slower"] == {
        "ratio": pytest.approx(12 / 88),
        "before_ns": NOVEMBER_20,
        "reports": [then, run],
        "more": 1,
    }
    assert len(hook.got) == 1, "that the job finished was not wanted"
    assert sent["subject"] == notice["subject"]
    text = "ann onnxruntime batch 8 is 14 % slower than on 2026-11-20. So are 1 more of its job."
    assert sent["text"] == f"[visualprof] ann onnxruntime batch 8: 14 % slower: {text}"
    assert (
        sent["link"]
        == f"https://dash.example.org/#/evaluation?reports={then.replace('/', '%2F')}%2C{run.replace('/', '%2F')}"
    )


def test_the_last_of_the_same_counts(history: History) -> None:
    """Neither an older one, nor what is not the same."""
    now = time.time_ns()
    history.job("ann", now - 9 * DAY_NS, point(8, FAST))
    history.job("ann", now - 5 * DAY_NS, point(8, SLOW))
    others: list[dict[str, Any]] = [
        {"agent": "other"},
        {"spec": {"precision": "f16"}},
        {"spec": {"threads": 2}},
        {"measure": {"load": {"concurrency": [2]}}},
    ]
    for number, other in enumerate(others):
        history.job("ann", now - 4 * DAY_NS + number, point(8, FAST), **other)
    history.job("bob", now - 3 * DAY_NS, point(8, FAST))
    history.job("ann", now, point(8, SLOW))
    assert history.told() == []


def test_a_project_measures_together(history: History) -> None:
    """Bob's results count for ann where they are shared with a project of both."""
    accounts, now = history.team.accounts, time.time_ns()
    then = history.job("bob", now - DAY_NS, point(8, FAST))
    projects = history.team.browser("ann").ask("POST", "projects", json={"name": "vision"}).get_json()["projects"]
    project = projects[0]["id"]
    with accounts.database.write() as connection:
        is_old_run = runs.c.folder == then.rpartition("/")[0]
        assert connection.execute(update(runs).where(is_old_run).values(visibility="project", project=project)).rowcount
    history.job("ann", now, point(8, SLOW))
    assert [notice["slower"]["reports"][0] for notice in history.told()] == [then]
    assert history.told("bob") == []
