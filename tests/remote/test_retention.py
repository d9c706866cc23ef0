"""Retention rules: what they remove, what stays, and their preview."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from queue_sites import MODEL, opened, upload
from sqlalchemy import func, insert, select, update
from test_queue_results import Bench, leased
from test_removal import finished

from tests.conftest import until
from visualprof.errors import NotFound
from visualprof.remote.queue.service import JobService, JobServices
from visualprof.remote.queue.store.records import RetentionRule
from visualprof.remote.queue.store.retention import DAY_NS
from visualprof.remote.queue.store.tables import audit, blobs, jobs, notices, projects, runs, tasks, users
from visualprof.remote.queue.tasks import retention as retention_module
from visualprof.remote.queue.tasks.retention import RemovalPreview

pytestmark = pytest.mark.both_databases


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[JobService]:
    with opened(tmp_path / "runs") as remote:
        yield remote


def old(remote: JobService, key: str, days: float, visibility: str = "", project: str | None = None) -> Bench:
    """A job that ended so many days ago, with a result."""
    bench = leased(remote, key)
    finished(bench)
    with bench.queue.database.write() as connection:
        ended = time.time_ns() - int(days * DAY_NS)
        connection.execute(update(tasks).where(tasks.c.job == bench.lease.job).values(updated_ns=ended))
        if visibility:
            folder = connection.execute(select(jobs.c.folder).where(jobs.c.id == bench.lease.job)).scalar_one()
            connection.execute(insert(runs).values(folder=folder, visibility=visibility, project=project))
    return bench


def there(queue: JobServices) -> set[str]:
    return {job.request.key for job in queue.jobs.changes_since(-1).jobs}


def make_project(queue: JobServices, name: str) -> str:
    with queue.database.write() as connection:
        connection.execute(insert(projects).values(id=name, name=name, created_ns=0))
    return name


def test_without_rules_nothing_goes(remote: JobService) -> None:
    old(remote, "a", 9999)
    queue = remote.open()
    assert (queue.retention.apply(), queue.retention.due_times(), there(queue)) == (False, {}, {"a"})


def test_projects_have_own_retention_days_and_public_or_kept_runs_stay(remote: JobService) -> None:
    queue = remote.open()
    short, long = make_project(queue, "short"), make_project(queue, "long")
    old_job = old(remote, "kept", 99)
    old(remote, "public", 99, "public")
    gone = [old(remote, "mine", 31), old(remote, "of-short", 8, "project", short)]
    young = old(remote, "young", 29, "private")
    old(remote, "of-long", 99, "project", long)
    running = leased(remote, "running")
    with queue.database.write() as connection:
        connection.execute(update(tasks).where(tasks.c.job == running.lease.job).values(updated_ns=0))
    queue.retention.set_kept(old_job.lease.job, True)
    for rule in (RetentionRule("jobs", "", 30), RetentionRule("jobs", short, 7), RetentionRule("jobs", long, None)):
        queue.retention.change(rule)
    due = queue.retention.due_times()
    assert set(due) == {bench.lease.job for bench in (*gone, young)}
    assert due[young.lease.job] == pytest.approx(time.time_ns() + DAY_NS, abs=60e9), "after 29 of 30 days"
    assert queue.retention.due_times(young.lease.job) == {young.lease.job: due[young.lease.job]}
    assert queue.retention.apply() is False
    assert there(queue) == {"kept", "public", "young", "of-long", "running"}
    assert [bench.run.exists() for bench in (*gone, old_job, young)] == [False, False, True, True]
    queue.retention.set_kept(old_job.lease.job, False)
    queue.retention.drop(long)
    queue.retention.apply()
    assert there(queue) == {"public", "young", "running"}, "what was of the dropped rule follows that of all others"
    with queue.database.read() as connection:
        rows = connection.execute(select(audit.c.email, audit.c.action, audit.c.subject).order_by(audit.c.seq)).all()
    assert [tuple(row) for row in rows] == [("visualprof", "remove old jobs", n) for n in "22"]


def test_a_rule_previews_what_it_would_remove(remote: JobService) -> None:
    queue = remote.open()
    benches = [old(remote, key, 10) for key in ("a", "b")]
    sizes = [file.stat().st_size for bench in benches for file in bench.run.rglob("*") if file.name != "net.onnx"]
    logs = 2 * 10
    before = queue.retention.preview(RetentionRule("jobs", "", 9))
    assert before == RemovalPreview(2, sum(sizes) + logs + len(MODEL), 2), "both together free their model, too"
    assert queue.retention.preview(RetentionRule("jobs", "", 11)) == RemovalPreview(0, 0, 0)
    assert queue.retention.preview(RetentionRule("jobs", "", None)) == RemovalPreview(0, None, 0)
    assert there(queue) == {"a", "b"}
    blob = upload(remote, b"x" * 1000, "old.onnx")
    with queue.database.write() as connection:
        connection.execute(update(blobs).where(blobs.c.sha256 == blob).values(kept_ns=time.time_ns() - 3 * DAY_NS))
    assert queue.retention.preview(RetentionRule("uploads", "", 2)) == RemovalPreview(1, 1000, 1)
    assert queue.retention.preview(RetentionRule("uploads", "", 4)) == RemovalPreview(0, 0, 0)


def test_the_log_is_cut_by_age_which_is_a_row_of_it(remote: JobService) -> None:
    queue, now = remote.open(), time.time_ns()
    row = {"email": "ann", "action": "log in", "subject": "", "address": ""}
    with queue.database.write() as connection:
        connection.execute(insert(audit), [{"at_ns": now - days * DAY_NS, **row} for days in (99, 50, 1)])
        connection.execute(insert(users).values(id="u", email="a@b.c", name="", role="member", created_ns=0))
        values_by_name = {"user": "u", "kind": "trial", "name": ""}
        connection.execute(
            insert(notices), [{**values_by_name, "at_ns": now - d * DAY_NS, "subject": f"{d}"} for d in (9, 2)]
        )
    assert queue.retention.preview(RetentionRule("audit", "", 40)) == RemovalPreview(2, None, 0)
    assert queue.retention.preview(RetentionRule("notices", "", 5)) == RemovalPreview(1, None, 0)
    queue.retention.change(RetentionRule("audit", "", 40))
    for _ in range(2):  # the second time there is nothing to tell
        queue.retention.apply()
    with queue.database.read() as connection:
        left = connection.execute(select(audit.c.action, audit.c.subject).order_by(audit.c.seq)).all()
    assert [tuple(row) for row in left] == [("log in", ""), ("remove old log rows", "2, older than 40 days")]


def test_a_rule_of_a_missing_project_is_rejected(remote: JobService) -> None:
    with pytest.raises(NotFound, match="no project"):
        remote.open().retention.change(RetentionRule("jobs", "nobody's", 1))


def test_a_job_kept_meanwhile_stays(remote: JobService, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = old(remote, "a", 10)
    queue = bench.queue
    queue.retention.change(RetentionRule("jobs", "", 1))
    looked = retention_module._due_jobs  # type: ignore[attr-defined]

    def keeps(*args: Any) -> object:
        candidates = list(looked(*args))
        monkeypatch.setattr(retention_module, "_due_jobs", looked)
        queue.retention.set_kept(bench.lease.job, True)
        return candidates

    monkeypatch.setattr(retention_module, "_due_jobs", keeps)
    queue.retention.apply()
    assert there(queue) == {"a"}
    assert bench.run.is_dir()


def test_a_round_is_limited_and_the_next_continues(remote: JobService, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = remote.open()
    for key in "abc":
        old(remote, key, 10)
    queue.retention.change(RetentionRule("jobs", "", 1))
    ticks = iter(range(0, 100, 3))
    clock = SimpleNamespace(monotonic=lambda: next(ticks))  # of this module: the database has a clock, too
    monkeypatch.setattr(retention_module, "time", clock)
    assert queue.retention.apply() is True  # began at 0, and looked at 3 (removed) and 6: over
    assert len(there(queue)) == 2
    monkeypatch.undo()
    assert (queue.retention.apply(), there(queue)) == (False, set())


def test_the_upkeep_follows_the_rules_at_once_and_then_hourly(tmp_path: Path) -> None:
    with opened(tmp_path / "runs", lease_s=0.4) as remote:
        queue = remote.open()
        queue.retention.change(RetentionRule("jobs", "", 1))
        assert queue.maintenance
        queue.maintenance.run_once()
        old(remote, "late", 10)
        queue.maintenance.run_once()
        assert there(queue) == {"late"}, "not before the next hour"
    with opened(tmp_path / "runs", lease_s=0.4) as remote:
        upkeep = remote.open().maintenance
        assert upkeep
        upkeep.run_once()  # or a thread of its own does, at the same time
        until(lambda: not there(remote.open()))
        with remote.open().database.read() as connection:
            assert connection.execute(select(func.count()).select_from(jobs)).scalar_one() == 0
