"""Reasons why a job waits, by the conditions of the lease statement."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from queue_sites import FAILED, capabilities, member, request, runtime
from sqlalchemy import insert, update
from test_queue_fairness import submit, turn
from test_queue_quotas import bound, queue, used_hours

from visualprof.remote.protocol import ModelRef, Spec
from visualprof.remote.queue.service import JobServices
from visualprof.remote.queue.store.quotas import Quota
from visualprof.remote.queue.store.records import Agent, Wait
from visualprof.remote.queue.store.tables import agents, bookings, tasks
from visualprof.remote.queue.tasks.wait_reasons import _pace, wait_reasons

__all__ = ["queue"]
pytestmark = pytest.mark.both_databases
HOUR_NS = 3600 * 10**9


def told(queue: JobServices) -> dict[str, Wait]:
    """By the key of the job; each has one spec."""
    keys = {task.id: job.request.key for job in queue.jobs.changes_since(-1).jobs for task in job.tasks}
    all_waits = wait_reasons(queue.database, 30)
    for task, wait in all_waits.items():
        assert wait_reasons(queue.database, 30, task.rpartition("-")[0])[task] == wait, "a job alone is told the same"
    return {keys[task]: wait for task, wait in all_waits.items()}


def book(queue: JobServices, agent: Agent, user: str | None, until_ns: int) -> None:
    row = {"id": f"b{until_ns}", "agent": agent.id, "user": user, "from_ns": 0, "until_ns": until_ns}
    with queue.database.write() as connection:
        connection.execute(insert(bookings).values(row))


def next_of(queue: JobServices, agent: Agent) -> str | None:
    lease = queue.leases.lease(agent, ["cpu"], 0)
    return lease.request.key if lease else None


def test_without_waiting_tasks_there_are_no_reasons(queue: JobServices) -> None:
    assert wait_reasons(queue.database, 30) == {}


def test_a_missing_or_unsuitable_machine_is_a_reason(queue: JobServices) -> None:
    submit(queue, "ann", "a")
    assert told(queue) == {"a": Wait("machine")}
    member(queue, known=capabilities(runtimes=[runtime("openvino")]))
    assert told(queue) == {"a": Wait("machine")}
    fits = member(queue, "b")
    assert told(queue) == {"a": Wait("turn", n=1, of=1)}
    with queue.database.write() as connection:
        connection.execute(update(agents).where(agents.c.id == fits.id).values(seen_ns=0))
    assert told(queue) == {"a": Wait("machine")}, "it was not heard of for a lease"


def test_the_turn_is_the_order_in_which_jobs_are_claimed(queue: JobServices) -> None:
    machine = member(queue)
    submit(queue, "ann", "a1", "a2")
    submit(queue, "bob", "b1")
    submit(queue, "ann", "urgent", priority="high")
    expected = {"urgent": Wait("turn", n=1, of=3), "a1": Wait("turn", n=2, of=3), "a2": Wait("turn", n=3, of=3)}
    assert told(queue) == {**expected, "b1": Wait("turn", n=1, of=1)}
    order = [next_of(queue, machine) for _ in range(4)]
    assert [key for key in order if key != "b1"] == ["urgent", "a1", "a2"], "and so they are taken"
    assert told(queue) == {}


def test_a_quota_reason_has_the_numbers_used_by_leases(queue: JobServices) -> None:
    machine = member(queue)
    bound(queue, "ann", Quota(jobs_running=2))
    submit(queue, "ann", "a1", "a2", "a3", "a4")
    held = [turn(queue, machine) for _ in range(2)]
    assert told(queue) == dict.fromkeys(["a3", "a4"], Wait("jobs", n=2, of=2))
    assert next_of(queue, machine) is None
    queue.finalizer.finish(machine, held[0].task, held[0].lease, FAILED)
    assert told(queue) == {"a3": Wait("turn", n=1, of=2), "a4": Wait("turn", n=2, of=2)}
    assert next_of(queue, machine) == "a3"


def test_a_job_that_runs_already_does_not_wait_for_the_quota_of_jobs(queue: JobServices) -> None:
    machine = member(queue)
    bound(queue, "ann", Quota(jobs_running=1))
    queue.jobs.submit(request("two", Spec("x", "onnxruntime"), Spec("y", "onnxruntime")), "ann")
    turn(queue, machine)
    assert told(queue) == {"two": Wait("turn", n=1, of=1)}
    assert next_of(queue, machine) == "two"


def test_hours_that_are_used_up(queue: JobServices) -> None:
    machine = member(queue)
    submit(queue, "ann", "a")
    bound(queue, "ann", Quota(device_ns=2 * HOUR_NS))
    used_hours(queue, "ann", (4, 1))
    wait = told(queue)["a"]
    assert (wait.reason, wait.of) == ("hours", 2 * HOUR_NS)
    assert wait.n == pytest.approx(3 * HOUR_NS, rel=1e-3)
    assert next_of(queue, machine) is None


def test_a_booking_reason_has_its_end(queue: JobServices) -> None:
    machine, until = member(queue, "gpu-lab"), time.time_ns() + HOUR_NS
    submit(queue, "ann", "a")
    submit(queue, "bob", "b")
    book(queue, machine, "bob", until)
    assert told(queue) == {"a": Wait("reserved", "gpu-lab", until), "b": Wait("turn", n=1, of=1)}
    assert [next_of(queue, machine), next_of(queue, machine)] == ["b", None]
    other = member(queue, "second")
    assert told(queue) == {"a": Wait("turn", n=1, of=1)}, "another one takes it"
    book(queue, other, None, until - 1)
    assert told(queue) == {"a": Wait("maintenance", "second", until - 1)}, "the first that is free again"
    queue.agents.update(other.id, None, None, "drained")
    assert told(queue) == {"a": Wait("reserved", "gpu-lab", until)}


def test_a_drained_machine_is_a_reason_but_not_a_hidden_private_machine(queue: JobServices) -> None:
    machine = member(queue, "box")
    submit(queue, "ann", "a")
    queue.agents.update(machine.id, None, None, "drained")
    assert told(queue) == {"a": Wait("drained", "box")}
    queue.agents.update(machine.id, None, False, "works")
    with queue.database.write() as connection:
        connection.execute(update(agents).values(owner="bob"))
    assert told(queue) == {"a": Wait("machine")}
    assert next_of(queue, machine) is None


def test_a_job_without_its_files_waits_for_them(queue: JobServices) -> None:
    member(queue)
    lacking = request("lacking")
    queue.jobs.submit(type(lacking)(key="lacking", model=ModelRef("0" * 64, "x.onnx"), specs=lacking.specs), "ann")
    assert told(queue) == {"lacking": Wait("files")}


def test_reasons_of_ten_thousand_waiting_jobs_are_fast(queue: JobServices, tmp_path: Path) -> None:
    """Grouped by what they ask for: 50 machines and 10,000 tasks of 20 users; bounded generously for a busy machine."""
    for number in range(50):
        member(queue, f"m{number}")
    submit(queue, "u0", "first")
    with queue.database.write() as connection:
        connection.exec_driver_sql(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) "
            "INSERT INTO tasks (id, job, owner, spec_id, spec, backend, version, wanted_agent, platform, device, "
            "state, progress, attempt, tries, updated_ns, cancel, warnings, log_bytes, log_cut, priority) "
            "SELECT 't' || i, job, 'u' || mod(i, 20), spec_id, spec, backend, version, wanted_agent, platform, device, "
            "state, 0, 0, 0, 0, cancel, '[]', 0, 0, 1 FROM n CROSS JOIN tasks"
        )
    begun = time.process_time()
    result = wait_reasons(queue.database, 30)
    assert time.process_time() - begun < 5.0
    assert (len(result), result["t10000"]) == (10001, Wait("turn", n=1, of=1))


def test_the_estimated_start_follows_the_running_task_and_is_unknown_without_progress(queue: JobServices) -> None:
    agent = member(queue)
    for key in ("a", "b", "c"):
        submit(queue, "ann", key)
    assert next_of(queue, agent) == "a"
    assert {key: wait.until_ns for key, wait in told(queue).items()} == {"b": None, "c": None}
    now_ns = queue.database.now_ns()
    running = {"progress": 0.5, "started_ns": now_ns - HOUR_NS}
    with queue.database.write() as connection:
        connection.execute(update(tasks).where(tasks.c.state == "running").values(running))
    with queue.database.read() as connection:
        pace = _pace(connection, now_ns)
    assert (pace.running, pace.next_end_ns, pace.task_ns) == (1, now_ns + HOUR_NS, None)
    assert pace.with_start(Wait("turn", n=1, of=2)).until_ns == now_ns + HOUR_NS
    assert pace.with_start(Wait("turn", n=2, of=2)).until_ns is None  # no task has finished yet
    after_two = pace._replace(task_ns=HOUR_NS).with_start(Wait("turn", n=3, of=3))
    assert after_two.until_ns == now_ns + 3 * HOUR_NS
