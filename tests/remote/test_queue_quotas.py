"""Quotas: rejections at submission, waiting tasks, and accounting of device hours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from queue_sites import FAILED, member, opened, request
from sqlalchemy import insert, update

from visualprof.remote.protocol import Spec
from visualprof.remote.queue.errors import QuotaExceeded
from visualprof.remote.queue.service import JobServices
from visualprof.remote.queue.store.quotas import DEFAULT_USER, WINDOW_NS, Quota, set_quota
from visualprof.remote.queue.store.records import Agent
from visualprof.remote.queue.store.tables import device_use, tasks
from visualprof.remote.queue.tasks.maintenance import MaintenanceThread

pytestmark = pytest.mark.both_databases

HOUR_NS = 3600 * 10**9


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[JobServices]:
    with opened(tmp_path / "runs") as remote:
        yield remote.open()


def bound(queue: JobServices, user: str, quota: Quota | None) -> None:
    with queue.database.write() as connection:
        set_quota(connection, user, quota)


def used_hours(queue: JobServices, user: str, *spans: tuple[float, float | None]) -> None:
    """Attempts that had a device from so many hours ago until so many; None still has it."""
    now = time.time_ns()
    with queue.database.write() as connection:
        for number, (begun, ended) in enumerate(spans):
            row = {"task": f"old-{user}-{number}", "attempt": 1, "owner": user, "begun_ns": now - int(begun * HOUR_NS)}
            ended_ns = None if ended is None else now - int(ended * HOUR_NS)
            connection.execute(insert(device_use).values(**row, ended_ns=ended_ns))


def next_of(queue: JobServices, agent: Agent) -> str | None:
    lease = queue.leases.lease(agent, ["cpu"], 0)
    return lease.job if lease else None


def test_without_a_row_there_is_no_quota(queue: JobServices) -> None:
    for number in range(5):
        queue.jobs.submit(request(f"k{number}"), "ann")
    quota, used = queue.quotas.get("ann")
    assert (quota, used.jobs_waiting) == (Quota(), 5)


def test_a_user_quota_overrides_the_default_quota(queue: JobServices) -> None:
    bound(queue, DEFAULT_USER, Quota(jobs_waiting=1, upload_bytes=7))
    bound(queue, "ann", Quota(jobs_waiting=2))
    assert queue.quotas.get("ann")[0] == Quota(jobs_waiting=2)
    assert queue.quotas.get("bob")[0] == Quota(jobs_waiting=1, upload_bytes=7)
    for user, may in (("ann", 2), ("bob", 1)):
        for number in range(may):
            queue.jobs.submit(request(f"k{number}"), user)
        with pytest.raises(QuotaExceeded, match=f"jobs that wait: {may} of {may}"):
            queue.jobs.submit(request("more"), user)
        assert queue.jobs.submit(request("k0"), user)[1] is False, "what was accepted stays so"
    bound(queue, "ann", None)
    assert queue.quotas.get("ann")[0].jobs_waiting == 1


def test_running_tasks_do_not_count_as_waiting(queue: JobServices) -> None:
    bound(queue, DEFAULT_USER, Quota(jobs_waiting=1))
    job, _ = queue.jobs.submit(request("k0", Spec("a", "onnxruntime"), Spec("b", "onnxruntime")), "ann")
    agent = member(queue)
    lease = queue.leases.lease(agent, ["cpu"], 0)
    assert lease
    used = queue.quotas.get("ann")[1]
    assert (used.jobs_waiting, used.jobs_running) == (0, 1), "one of its specs runs, the other waits"
    queue.jobs.submit(request("k1"), "ann")
    queue.finalizer.finish(agent, lease.task, lease.lease, FAILED)
    with pytest.raises(QuotaExceeded):
        queue.jobs.retry(job)


def test_running_jobs_are_bounded_and_others_pass_by(queue: JobServices) -> None:
    bound(queue, DEFAULT_USER, Quota(jobs_running=1))
    both = Spec("a", "onnxruntime"), Spec("b", "onnxruntime")
    first, *rest = (queue.jobs.submit(request(f"k{n}", *both, spread=True), "ann")[0] for n in range(4))
    bobs, _ = queue.jobs.submit(request("k"), "bob")
    nobodys, _ = queue.jobs.submit(request("k"), None)
    agents = [member(queue, f"a{n}") for n in range(5)]
    held = [queue.leases.lease(agent, ["cpu"], 0) for agent in agents]
    assert [lease and lease.job for lease in held] == [first, bobs, nobodys, first, None]
    for agent, lease in ((agents[0], held[0]), (agents[3], held[3])):
        assert lease
        queue.finalizer.finish(agent, lease.task, lease.lease, FAILED)
    assert next_of(queue, agents[0]) == rest[0]


def test_a_user_with_spent_hours_waits(queue: JobServices) -> None:
    agent = member(queue)
    ann, _ = queue.jobs.submit(request("k"), "ann")
    bob, _ = queue.jobs.submit(request("k"), "bob")
    bound(queue, "ann", Quota(device_ns=2 * HOUR_NS))
    used_hours(queue, "ann", (3, 2), (1.5, None))
    assert next_of(queue, agent) == bob
    assert next_of(queue, agent) is None
    with pytest.raises(QuotaExceeded, match=r"hours of devices in 30 days: 2\.5 of 2\.0"):
        queue.jobs.submit(request("k2"), "ann")
    bound(queue, "ann", Quota(device_ns=3 * HOUR_NS))
    assert next_of(queue, agent) == ann


def test_hours_of_thirty_days_alone(queue: JobServices) -> None:
    month = WINDOW_NS / HOUR_NS
    used_hours(queue, "ann", (month + 5, month + 4), (month + 1, month - 2), (10, 9.5))
    used_hours(queue, "bob", (7, 0))
    assert queue.quotas.get("ann")[1].device_ns / HOUR_NS == pytest.approx(2.5, abs=0.01), "2 inside, and a half"


def test_an_attempt_counts_from_its_lease_to_its_end(queue: JobServices) -> None:
    queue.jobs.submit(request("k", retries=1), "ann")
    agent = member(queue)
    lease = queue.leases.lease(agent, ["cpu"], 0)
    assert lease

    def later(**columns: int) -> None:
        with queue.database.write() as connection:
            connection.execute(update(tasks).where(tasks.c.id == lease.task).values(**columns))

    def began(attempt: int, hours: float) -> None:
        is_own = (device_use.c.task == lease.task) & (device_use.c.attempt == attempt)
        with queue.database.write() as connection:
            begun_ns = time.time_ns() - int(hours * HOUR_NS)
            assert connection.execute(update(device_use).where(is_own).values(begun_ns=begun_ns)).rowcount == 1

    began(1, 4)
    assert queue.quotas.get("ann")[1].device_ns / HOUR_NS == pytest.approx(4, abs=0.01), "it runs"
    later(lease_until_ns=0)
    MaintenanceThread(queue.database, queue.notifier, 30, on_ended=lambda _: None).run_once()
    began(1, 5)  # it was lost just now, and has ended
    again = queue.leases.lease(agent, ["cpu"], 0)
    assert again
    assert again.attempt == 2
    began(2, 1)
    queue.finalizer.finish(agent, again.task, again.lease, FAILED)
    ended = queue.quotas.get("ann")[1].device_ns
    assert ended / HOUR_NS == pytest.approx(6, abs=0.01)
    queue.deleter.delete(lease.job)
    assert queue.quotas.get("ann")[1].device_ns == ended, "a removed job gives no hours back"
    assert queue.quotas.get("")[1].device_ns == 0
