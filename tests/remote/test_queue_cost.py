"""The cost of a lease for the server: statements, and the number of waiters that look for a task."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from queue_sites import FAILED, capabilities, member, opened, point, request, runtime, waiters
from sqlalchemy import event

from tests.conftest import until
from visualprof.remote.protocol import Lease, Spec
from visualprof.remote.queue.errors import LeaseExpired
from visualprof.remote.queue.service import JobServices
from visualprof.remote.queue.store.records import Agent
from visualprof.remote.queue.tasks.jobs import _BY_KEY
from visualprof.remote.queue.tasks.leases import TaskHeartbeat
from visualprof.remote.queue.tasks.notifier import Notifier


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[JobServices]:
    with opened(tmp_path / "runs") as remote:
        yield remote.open()


@contextmanager
def statements(queue: JobServices) -> Iterator[list[str]]:
    """Every statement in the block as its verb and its first table."""
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
        words = text.replace('"', "").split()
        verb = words[0]
        table = words[words.index("FROM") + 1] if verb in ("SELECT", "DELETE") else words[2 if verb == "INSERT" else 1]
        seen.append(f"{verb} {table}")

    event.listen(queue.database.engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(queue.database.engine, "before_cursor_execute", note)


TOUCHED = ["UPDATE revisions", "UPDATE jobs"]


def test_statements_of_a_task_from_its_lease_to_its_end(queue: JobServices) -> None:
    queue.jobs.submit(request("k"))
    agent = member(queue)
    with statements(queue) as seen:
        lease = queue.leases.lease(agent, ["cpu"], 0)
    assert lease
    whose_turn = "SELECT tasks"
    assert seen == [whose_turn, "SELECT tasks", "SELECT jobs", "SELECT blobs", "UPDATE tasks", *TOUCHED]
    with statements(queue) as seen:
        queue.leases.heartbeat(agent, [TaskHeartbeat(lease.task, lease.lease, "measuring", 0.5)])
    assert seen == ["SELECT tasks", "UPDATE tasks", *TOUCHED]
    with statements(queue) as seen:
        queue.leases.save_point(agent, lease.task, lease.lease, 1, point())
    assert seen == ["DELETE points", "INSERT points", *TOUCHED]


def test_reports_that_wait_for_their_turn_are_kept_together(queue: JobServices) -> None:
    queue.jobs.submit(request("k"))
    agent = member(queue)
    lease = queue.leases.lease(agent, ["cpu"], 0)
    assert lease
    task, token, answers = lease.task, lease.lease, dict[str, object]()
    held = queue.leases.leased_task(agent, task, token)

    def tell(name: str, report: Callable[[], object]) -> None:
        try:
            answers[name] = report()
        except (LeaseExpired, OverflowError) as error:
            answers[name] = type(error)

    acts: dict[str, Callable[[], object]] = {
        "point": lambda: queue.leases.save_point(agent, task, token, 1, point()),
        "log": lambda: queue.logs.append(held, 0, b"a line\n"),
        "beat": lambda: queue.leases.heartbeat(agent, [TaskHeartbeat(task, token, "measuring", 0.5)]),
        "another's": lambda: queue.leases.save_point(agent, task, "0" * 32, 2, point()),
    }
    with statements(queue) as seen:
        assert together(queue, tell, acts) == 1, "the others' changes are counted once"
        assert seen.count("UPDATE revisions") == 1
    assert answers == {"point": None, "log": (7, False), "beat": ([], []), "another's": LeaseExpired}
    acts = {"poison": lambda: queue.leases.save_point(agent, task, token, 2**70, point()), "point": acts["point"]}
    together(queue, tell, acts)
    assert answers["poison"] is OverflowError
    assert answers["point"] is None, "what the database refuses is tried alone"
    job = queue.jobs.get(lease.job)
    assert (job.tasks[0].log_bytes, job.tasks[0].progress) == (7, 0.5)
    assert queue.jobs.points(job) == {task: [point()]}


def together(queue: JobServices, tell: Callable[[str, Any], None], acts: dict[str, Callable[[], object]]) -> int:
    """Has all wait for their turn at once; by how much the revision of the jobs grew."""
    before = queue.jobs.revision()
    with queue.database.write():
        threads = [threading.Thread(target=tell, args=act) for act in acts.items()]
        [thread.start() for thread in threads]
        end = time.monotonic() + 20
        while len(queue.leases.reports.pending) < len(acts) and time.monotonic() < end:
            time.sleep(0.001)
    [thread.join(20) for thread in threads]
    return queue.jobs.revision() - before


def test_statements_of_a_task_that_ends_with_nothing_to_show(queue: JobServices) -> None:
    queue.jobs.submit(request("k"))
    agent = member(queue)
    lease = queue.leases.lease(agent, ["cpu"], 0)
    assert lease
    with statements(queue) as seen:
        queue.finalizer.finish(agent, lease.task, lease.lease, FAILED)
    ended = ["SELECT tasks", "UPDATE tasks", *TOUCHED, "DELETE artefacts"]
    assert seen == ["SELECT tasks", *ended, "SELECT tasks"]


def waiting(queue: JobServices, agents: list[Agent], found: list[tuple[str, Lease | None]]) -> list[threading.Thread]:
    """Agents that wait, in this order."""

    def wait(agent: Agent) -> None:
        lease = queue.leases.lease(agent, ["cpu"], 20, lambda: agent.name == "gone")
        found.append((agent.name, lease))

    threads = [threading.Thread(target=wait, args=(agent,)) for agent in agents]
    for count, thread in enumerate(threads, 1):
        thread.start()
        until(lambda count=count: waiters(queue) == count)
    return threads


def ended(queue: JobServices, threads: list[threading.Thread]) -> None:
    queue.notifier.close()
    [thread.join(5) for thread in threads]


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks again by himself."""
    monkeypatch.setattr(Notifier, "recheck_interval_s", 60)


@pytest.mark.usefixtures("_patient")
def test_only_one_waiter_looks_for_a_new_task(queue: JobServices) -> None:
    collected: list[tuple[str, Lease | None]] = []
    threads = waiting(queue, [member(queue, f"a{i}") for i in range(6)], collected)
    with statements(queue) as seen:
        queue.jobs.submit(request("k"))
        threads[0].join(5)
        time.sleep(0.1)
    assert [(name, lease is not None) for name, lease in collected] == [("a0", True)], "the one that waited longest"
    assert seen.count("SELECT tasks") == 2, "whose turn it is, and that user's task"
    ended(queue, threads)


@pytest.mark.usefixtures("_patient")
def test_as_many_are_woken_as_there_are_tasks(queue: JobServices) -> None:
    collected: list[tuple[str, Lease | None]] = []
    threads = waiting(queue, [member(queue, f"a{i}") for i in range(4)], collected)
    queue.jobs.submit(request("k", *(Spec(f"s{i}", "onnxruntime") for i in range(3)), spread=True))
    [thread.join(5) for thread in threads[:3]]
    assert sorted(lease.spec.id for _, lease in collected if lease) == ["s0", "s1", "s2"]
    ended(queue, threads)


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize("first", ["other", "gone"])
def test_a_waiter_that_finds_no_task_wakes_the_next(queue: JobServices, first: str) -> None:
    fits, lacks = capabilities(runtimes=[runtime("openvino")]), capabilities()
    agents = [member(queue, f"{first}", known=lacks if first == "other" else fits)]
    agents += [member(queue, f"lacks{i}", known=lacks) for i in range(2)] + [member(queue, "fits", known=fits)]
    collected: list[tuple[str, Lease | None]] = []
    threads = waiting(queue, agents, collected)
    queue.jobs.submit(request("k", Spec("s", "openvino")))
    threads[-1].join(5)
    assert [name for name, lease in collected if lease] == ["fits"]
    ended(queue, threads)


def test_a_jobs_key_is_found_by_its_index(queue: JobServices) -> None:
    statement = _BY_KEY.compile(queue.database.engine, compile_kwargs={"literal_binds": False})
    with queue.database.read() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", ("", "k"))
        assert "USING INDEX jobs_by_key" in plan.one()[-1]


@pytest.mark.usefixtures("_patient")
def test_waiters_do_not_look_for_a_claimed_task(queue: JobServices) -> None:
    collected: list[tuple[str, Lease | None]] = []
    threads = waiting(queue, [member(queue, f"a{i}") for i in range(4)], collected)
    quick = member(queue, "quick")
    with statements(queue) as seen:
        with queue.notifier._condition:  # who was woken comes too late
            queue.jobs.submit(request("k"))
            assert queue.leases.lease(quick, ["cpu"], 0)
        time.sleep(0.2)
    assert seen.count("SELECT tasks") == 2, "by who took it"
    assert not collected
    ended(queue, threads)
