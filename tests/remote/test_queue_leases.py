"""Leases: assignment, duration, and what happens to tasks of lost agents."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from queue_sites import FAILED, capabilities, member, opened, point, request, runtime, waiters
from sqlalchemy import update

from tests.conftest import until
from visualprof.remote.protocol import Lease, Spec
from visualprof.remote.queue.errors import LeaseExpired, ServerBusy
from visualprof.remote.queue.service import JobServices
from visualprof.remote.queue.store.records import Agent, Task
from visualprof.remote.queue.store.tables import agents, tasks
from visualprof.remote.queue.tasks.leases import TaskHeartbeat, TaskReport
from visualprof.remote.queue.tasks.maintenance import MaintenanceThread

pytestmark = pytest.mark.both_databases

LEASE_S = 30.0


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[JobServices]:
    with opened(tmp_path / "runs") as remote:
        yield remote.open()


@pytest.fixture
def upkeep(queue: JobServices) -> MaintenanceThread:
    """Another one than the queue's own, which only looks when it is told to."""
    return MaintenanceThread(queue.database, queue.notifier, LEASE_S, on_ended=lambda _: None)


def taken(queue: JobServices, agent: Agent, *devices: str) -> Lease:
    lease = queue.leases.lease(agent, devices or ("cpu",), 0)
    assert lease
    return lease


def task_of(queue: JobServices, lease: Lease) -> Task:
    return next(task for task in queue.jobs.get(lease.job).tasks if task.id == lease.task)


def later(queue: JobServices, lease: Lease, **columns: Any) -> None:
    """As if time had passed."""
    with queue.database.write() as connection:
        connection.execute(update(tasks).where(tasks.c.id == lease.task).values(**columns))


def beat(queue: JobServices, agent: Agent, lease: Lease, phase: Any = "measuring", progress: float = 0.1) -> Any:
    return queue.leases.heartbeat(agent, [TaskHeartbeat(lease.task, lease.lease, phase, progress)])


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        (Spec("s", "onnxruntime"), True),
        (Spec("s", "onnxruntime", version="1.2"), True),
        (Spec("s", "onnxruntime", version="1.3"), False),
        (Spec("s", "openvino"), False),
        (Spec("s", "onnxruntime", platform="x86"), True),
        (Spec("s", "onnxruntime", platform="arm"), False),
        (Spec("s", "onnxruntime", agent="somebody else"), False),
        (Spec("s", "onnxruntime", device="cuda:0"), False),
        (Spec("s", "torch", version="2.0", device="cuda:1"), True),
        (Spec("s", "torch", version="2.0", device="cuda:0"), False),
        (Spec("s", "torch", device="cuda"), True),
        (Spec("s", "onnxruntime", device="cuda"), False),
        (Spec("s", "torch", version="1.2", device="cuda"), False),
    ],
)
def test_an_agent_gets_a_task_that_it_can_run_on_a_free_device(queue: JobServices, spec: Spec, fits: bool) -> None:
    known = [runtime(), runtime("torch", "2.0", "cpu", "cuda:0", "cuda:1")]
    agent = member(queue, known=capabilities("x86", known))
    queue.jobs.submit(request("k", spec))
    assert (queue.leases.lease(agent, ["cpu", "cuda:1"], 0) is not None) == fits


def test_a_task_that_names_an_agent_runs_only_there(queue: JobServices) -> None:
    other, named = member(queue, "other"), member(queue, "named")
    queue.jobs.submit(request("k", Spec("s", "onnxruntime", agent=named.id, platform="arm")))
    assert queue.leases.lease(other, ["cpu"], 0) is None
    assert queue.leases.lease(named, ["cpu"], 0)


def test_any_cuda_device_becomes_the_free_one(queue: JobServices) -> None:
    known = [runtime(), runtime("torch", "2.0", "cpu", "cuda:0", "cuda:1")]
    agent = member(queue, known=capabilities("cuda", known))
    queue.jobs.submit(request("k", Spec("s", "torch", device="cuda")))
    lease = taken(queue, agent, "cpu", "cuda:1")
    assert lease.spec.device == "cuda:1"
    assert lease.request.specs[0].device == "cuda"


def test_a_private_agent_works_for_its_owner_alone(queue: JobServices) -> None:
    private = member(queue, public=False)
    queue.jobs.submit(request("k"), "ann")
    assert queue.leases.lease(private, ["cpu"], 0) is None
    queue.jobs.submit(request("k", Spec("s", "onnxruntime", agent=private.id)), "bob")
    assert queue.leases.lease(private, ["cpu"], 0) is None
    queue.jobs.submit(request("k"))
    assert taken(queue, private)


def test_the_oldest_task_is_given_first(queue: JobServices) -> None:
    jobs = [queue.jobs.submit(request(str(i)))[0] for i in range(3)]
    agent = member(queue)
    assert [taken(queue, agent).job for _ in range(3)] == jobs


TWO = (Spec("1t", "onnxruntime", threads=1), Spec("2t", "onnxruntime", threads=2))


def test_specs_of_a_job_stay_on_the_machine_that_began_it(queue: JobServices) -> None:
    first, second = member(queue, "first"), member(queue, "second")
    job, _ = queue.jobs.submit(request("k", *TWO))
    began = taken(queue, first)
    assert queue.leases.lease(second, ["cpu"], 0) is None
    other, _ = queue.jobs.submit(request("l"))
    assert taken(queue, second).job == other, "the other machine goes on with the next job"
    queue.finalizer.finish(first, began.task, began.lease, FAILED)
    assert taken(queue, first).job == job


def test_a_job_that_may_spread_goes_to_every_machine(queue: JobServices) -> None:
    first, second = member(queue, "first"), member(queue, "second")
    queue.jobs.submit(request("k", *TWO, spread=True))
    assert taken(queue, first)
    assert taken(queue, second)


def test_tasks_that_the_machine_of_a_job_cannot_run_go_to_another(queue: JobServices) -> None:
    both = capabilities(runtimes=[runtime(), runtime("openvino")])
    first, second = member(queue, "first"), member(queue, "second", known=both)
    queue.jobs.submit(request("k", Spec("ort", "onnxruntime"), Spec("ov", "openvino"), Spec("ort2", "onnxruntime")))
    assert taken(queue, first).spec.id == "ort"
    assert taken(queue, second).spec.id == "ov"


@pytest.mark.parametrize("gone", [{"seen_ns": 1}, {"standing": "drained"}])
def test_a_job_does_not_wait_for_a_lost_machine(queue: JobServices, gone: dict[str, Any]) -> None:
    first, second = member(queue, "first"), member(queue, "second")
    queue.jobs.submit(request("k", *TWO))
    taken(queue, first)
    with queue.database.write() as connection:
        connection.execute(update(agents).where(agents.c.id == first.id).values(gone))
    assert taken(queue, second).spec.id == "2t"


def test_a_lease_says_all_that_an_agent_needs(queue: JobServices) -> None:
    job, _ = queue.jobs.submit(request("k"))
    lease = taken(queue, member(queue))
    assert (lease.job, lease.task, lease.attempt, lease.run) == (job, f"{job}-0", 1, f"net-{job}/ort")
    assert [(file.role, file.name, file.size_bytes) for file in lease.files] == [("model", "net.onnx", 41)]
    assert lease.files[0].url.startswith("/api/v1/agent/files/blobs/")


def test_a_waiting_agent_gets_a_job_as_soon_as_it_is_submitted(
    queue: JobServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        queue.leases._notifier, "recheck_interval_s", 3600
    )  # nobody looks at the database again unasked
    agent, leases_found = member(queue), list[Lease | None]()
    thread = threading.Thread(target=lambda: leases_found.append(queue.leases.lease(agent, ["cpu"], 60)))
    thread.start()
    until(lambda: waiters(queue))
    queue.jobs.submit(request("k"))
    thread.join(30)
    assert [*filter(None, leases_found)], "it was woken, sooner than its time was over"


def test_a_waiting_agent_gets_a_job_submitted_to_another_server(tmp_path: Path) -> None:
    with opened(tmp_path / "runs") as first, opened(tmp_path / "runs") as second:
        agent, collected = member(first.open()), list[Lease | None]()
        thread = threading.Thread(target=lambda: collected.append(first.open().leases.lease(agent, ["cpu"], 60)))
        thread.start()
        until(lambda: waiters(first.open()))
        second.open().jobs.submit(request("k"))
        thread.join(61)
        assert collected[0] is not None


def test_waiting_agents_are_limited(tmp_path: Path) -> None:
    with opened(tmp_path / "runs", waiters=1) as remote:
        queue = remote.open()
        agent = member(queue)
        thread = threading.Thread(target=lambda: queue.leases.lease(agent, ["cpu"], 60))
        thread.start()
        until(lambda: waiters(queue))
        with pytest.raises(ServerBusy):
            queue.leases.lease(agent, ["cpu"], 1)
        queue.jobs.submit(request("k"))
        thread.join(30)
        queue.jobs.submit(request("l"))
        assert queue.leases.lease(agent, ["cpu"], 1), "without waiting there is always a place"


def test_a_heartbeat_renews_leases_and_reports_state(queue: JobServices) -> None:
    queue.jobs.submit(request("k"))
    agent = member(queue)
    lease = taken(queue, agent)
    later(queue, lease, lease_until_ns=time.time_ns() + 10**9)
    assert beat(queue, agent, lease, "measuring", 0.4) == ([], [])
    task = task_of(queue, lease)
    assert (task.phase, task.progress) == ("measuring", 0.4)
    with queue.database.read() as connection:
        row = connection.execute(tasks.select()).one()
    assert row.lease_until_ns > time.time_ns() + (LEASE_S - 5) * 1e9


def test_a_heartbeat_without_news_does_not_change_the_revision(queue: JobServices) -> None:
    queue.jobs.submit(request("k"))
    agent = member(queue)
    lease = taken(queue, agent)
    beat(queue, agent, lease)
    revision = queue.jobs.revision()
    beat(queue, agent, lease)
    assert queue.jobs.revision() == revision


@pytest.mark.parametrize("wrong", ["token", "agent", "task"])
def test_a_wrong_lease_is_stale(queue: JobServices, wrong: str) -> None:
    queue.jobs.submit(request("k"))
    agent = member(queue)
    lease = taken(queue, agent)
    caller = member(queue, "b") if wrong == "agent" else agent
    task = "nothing" if wrong == "task" else lease.task
    token = "nonsense" if wrong == "token" else lease.lease
    assert queue.leases.heartbeat(caller, [TaskHeartbeat(task, token)]) == ([], [task])
    with pytest.raises(LeaseExpired):
        queue.leases.leased_task(caller, task, token)
    with pytest.raises(LeaseExpired):
        queue.finalizer.finish(caller, task, token, FAILED)
    with pytest.raises(LeaseExpired):
        queue.leases.save_point(caller, task, token, 1, point())
    assert task_of(queue, lease).state == "running"


def test_a_lost_task_is_given_out_again(queue: JobServices, upkeep: MaintenanceThread) -> None:
    queue.jobs.submit(request("k"))
    first, second = member(queue, "first"), member(queue, "second")
    lost = taken(queue, first)
    later(queue, lost, lease_until_ns=1)
    upkeep.run_once()
    assert lost.warnings == task_of(queue, lost).warnings == []
    again = taken(queue, second)
    assert (again.task, again.attempt) == (lost.task, 2)
    assert again.lease != lost.lease
    assert again.warnings == ["measured again from the beginning (attempt 2): agent first was lost"]
    assert task_of(queue, again).warnings == again.warnings
    assert beat(queue, first, lost) == ([], [lost.task])
    assert beat(queue, second, again) == ([], [])


def test_a_late_heartbeat_reclaims_a_waiting_task(queue: JobServices, upkeep: MaintenanceThread) -> None:
    queue.jobs.submit(request("k"))
    agent = member(queue)
    lease = taken(queue, agent)
    later(queue, lease, lease_until_ns=1)
    upkeep.run_once()
    assert task_of(queue, lease).state == "waiting"
    assert beat(queue, agent, lease) == ([], [])
    assert (task_of(queue, lease).state, task_of(queue, lease).attempt) == ("running", 1)
    assert queue.leases.lease(member(queue, "other"), ["cpu"], 0) is None


def test_a_late_finish_counts_while_the_task_still_waits(queue: JobServices, upkeep: MaintenanceThread) -> None:
    queue.jobs.submit(request("k"))
    agent = member(queue)
    lease = taken(queue, agent)
    later(queue, lease, lease_until_ns=1)
    upkeep.run_once()
    queue.finalizer.finish(agent, lease.task, lease.lease, FAILED)
    assert task_of(queue, lease).reason == "crashed"


def test_a_late_heartbeat_does_not_undo_a_cancel_or_a_retry(queue: JobServices, upkeep: MaintenanceThread) -> None:
    job, _ = queue.jobs.submit(request("k"))
    agent = member(queue)
    lease = taken(queue, agent)
    later(queue, lease, lease_until_ns=1)
    upkeep.run_once()
    queue.jobs.cancel(job)
    assert beat(queue, agent, lease) == ([], [lease.task])
    queue.jobs.retry(job)
    assert beat(queue, agent, lease) == ([], [lease.task])


def test_no_agent_is_lost_while_the_database_is_unavailable(
    queue: JobServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.jobs.submit(request())
    lease = taken(queue, member(queue))
    upkeep = MaintenanceThread(
        queue.database, queue.notifier, LEASE_S, on_ended=lambda _: None, extend_running=queue.leases.extend_running
    )
    with monkeypatch.context() as patched:
        patched.setattr(upkeep, "run_once", lambda: 1 / 0)
        upkeep._run_and_log_errors()
    later(queue, lease, lease_until_ns=1)
    upkeep._run_and_log_errors()
    assert task_of(queue, lease).state == "running"
    later(queue, lease, lease_until_ns=1)
    upkeep._run_and_log_errors()
    assert task_of(queue, lease).state == "waiting"


def test_a_task_whose_agents_are_repeatedly_lost_fails(queue: JobServices, upkeep: MaintenanceThread) -> None:
    queue.jobs.submit(request("k", retries=1))
    agent = member(queue)
    for attempt in (1, 2):
        lease = taken(queue, agent)
        assert lease.attempt == attempt
        later(queue, lease, lease_until_ns=1)
        upkeep.run_once()
    task = task_of(queue, lease)
    assert (task.state, task.reason, task.error) == ("failed", "agent_lost", "its agent was lost 2 times")


def test_after_a_retry_all_its_tries_are_there_again(queue: JobServices, upkeep: MaintenanceThread) -> None:
    job, _ = queue.jobs.submit(request("k", retries=0))
    agent = member(queue)
    later(queue, taken(queue, agent), lease_until_ns=1)
    upkeep.run_once()
    assert queue.jobs.get(job).state == "failed"
    queue.jobs.retry(job)
    lease = taken(queue, agent)
    assert lease.attempt == 2
    assert lease.warnings == [], "whoever asked for it knows"
    assert beat(queue, agent, lease) == ([], [])


def test_a_failure_is_not_tried_again(queue: JobServices, upkeep: MaintenanceThread) -> None:
    job, _ = queue.jobs.submit(request("k"))
    agent = member(queue)
    lease = taken(queue, agent)
    queue.finalizer.finish(agent, lease.task, lease.lease, TaskReport("failed", "model_error", "no"))
    upkeep.run_once()
    assert queue.jobs.get(job).state == "failed"


def test_a_lost_task_that_should_be_cancelled_is(queue: JobServices, upkeep: MaintenanceThread) -> None:
    job, _ = queue.jobs.submit(request("k"))
    lease = taken(queue, member(queue))
    queue.jobs.cancel(job)
    later(queue, lease, lease_until_ns=1)
    upkeep.run_once()
    assert queue.jobs.get(job).state == "cancelled"


def test_an_agent_that_does_not_cancel_is_not_waited_for(queue: JobServices, upkeep: MaintenanceThread) -> None:
    job, _ = queue.jobs.submit(request("k"))
    agent = member(queue)
    lease = taken(queue, agent)
    queue.jobs.cancel(job)
    beat(queue, agent, lease)
    with queue.database.read() as connection:
        patience = connection.execute(tasks.select()).one().deadline_ns - time.time_ns()
    assert patience < (2 * LEASE_S + 21) * 1e9
    later(queue, lease, deadline_ns=1)
    upkeep.run_once()
    assert queue.jobs.get(job).state == "cancelled"


def test_a_task_beyond_its_time_fails_though_its_agent_is_alive(queue: JobServices, upkeep: MaintenanceThread) -> None:
    queue.jobs.submit(request("k", timeout_s=60.0))
    agent = member(queue)
    lease = taken(queue, agent)
    with queue.database.read() as connection:
        allowed = connection.execute(tasks.select()).one().deadline_ns - time.time_ns()
    assert 85e9 < allowed < 91e9, "a lease more than the agent allows"
    later(queue, lease, deadline_ns=1)
    beat(queue, agent, lease, "measuring")
    upkeep.run_once()
    task = task_of(queue, lease)
    assert (task.state, task.reason, task.error) == ("failed", "timeout", "it took longer than 60 s")
    assert beat(queue, agent, lease) == ([], [lease.task])


@pytest.mark.parametrize("phase", ["preparing", "uploading"])
def test_fetching_and_uploading_are_not_the_tasks_own_time(
    queue: JobServices, upkeep: MaintenanceThread, phase: str
) -> None:
    queue.jobs.submit(request("k", timeout_s=60.0))
    agent = member(queue)
    lease = taken(queue, agent)
    later(queue, lease, deadline_ns=1)
    beat(queue, agent, lease, phase)
    upkeep.run_once()
    assert task_of(queue, lease).state == "running"


def test_downloading_has_a_time_limit(queue: JobServices, upkeep: MaintenanceThread) -> None:
    queue.jobs.submit(request("k", timeout_s=60.0))
    agent = member(queue)
    lease = taken(queue, agent)
    later(queue, lease, started_ns=time.time_ns() - 3 * 3600 * 10**9)
    beat(queue, agent, lease, "preparing")
    upkeep.run_once()
    assert task_of(queue, lease).reason == "timeout"


def test_an_upload_that_is_never_completed_expires(queue: JobServices, upkeep: MaintenanceThread) -> None:
    from visualprof.remote.protocol import Input

    job, _ = queue.jobs.submit(request("k", inputs=[Input("x", "float32", [1], "file", "0" * 64)]))
    upkeep.run_once()
    assert queue.jobs.get(job).state == "initiated"
    with queue.database.write() as connection:
        connection.execute(update(tasks).values(updated_ns=time.time_ns() - 3601 * 10**9))
    upkeep.run_once()
    task = queue.jobs.get(job).tasks[0]
    assert (task.state, task.reason) == ("failed", "expired")


def test_at_start_every_running_lease_is_extended(tmp_path: Path) -> None:
    with opened(tmp_path / "runs") as remote:
        queue = remote.open()
        queue.jobs.submit(request("k"))
        agent = member(queue)
        lease = taken(queue, agent)
        later(queue, lease, lease_until_ns=1, deadline_ns=1)
    with opened(tmp_path / "runs") as remote:
        queue = remote.open()
        MaintenanceThread(queue.database, queue.notifier, LEASE_S, on_ended=lambda _: None).run_once()
        assert task_of(queue, lease).state == "running"
        assert beat(queue, agent, lease) == ([], [])


def test_two_servers_never_assign_the_same_task(tmp_path: Path) -> None:
    with opened(tmp_path / "runs") as first, opened(tmp_path / "runs") as second:
        queues = [first.open(), second.open()]
        agents = [member(queues[0], str(i)) for i in range(6)]
        for i in range(60):
            queues[i % 2].jobs.submit(request(str(i)))
        got = list[str]()

        def work(number: int) -> None:
            while lease := queues[number % 2].leases.lease(agents[number], ["cpu"], 0):
                got.append(lease.task)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(got) == len(set(got)) == 60


def test_two_servers_take_a_lost_task_back_once(queue: JobServices) -> None:
    queue.jobs.submit(request("k", retries=1))
    lease = taken(queue, member(queue))
    later(queue, lease, lease_until_ns=1)
    upkeeps = [MaintenanceThread(queue.database, queue.notifier, LEASE_S, on_ended=lambda _: None) for _ in range(4)]
    threads = [threading.Thread(target=item.run_once) for item in upkeeps]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert taken(queue, member(queue, "b")).attempt == 2


def test_points_of_a_size_replace_each_other(queue: JobServices) -> None:
    job, _ = queue.jobs.submit(request("k"))
    agent = member(queue)
    lease = taken(queue, agent)
    for batch, p50 in ((2, 5), (1, 6), (2, 7)):
        queue.leases.save_point(agent, lease.task, lease.lease, batch, {**point(batch), "p50_ns": p50})
    stored_points = queue.jobs.points(queue.jobs.get(job))[lease.task]
    assert [(row["batch"], row["p50_ns"]) for row in stored_points] == [(1, 6), (2, 7)]


def test_points_of_an_earlier_attempt_are_not_reused(queue: JobServices, upkeep: MaintenanceThread) -> None:
    job, _ = queue.jobs.submit(request("k"))
    agent = member(queue)
    lease = taken(queue, agent)
    queue.leases.save_point(agent, lease.task, lease.lease, 1, point())
    later(queue, lease, lease_until_ns=1)
    upkeep.run_once()
    taken(queue, agent)
    response = queue.jobs.get(job)
    assert queue.jobs.points(response) == {lease.task: []}
    assert queue.jobs.point_counts([response]) == {}


def test_tasks_of_a_repeated_job_share_its_device(queue: JobServices) -> None:
    agent = member(queue)
    queue.jobs.submit(request("k", *TWO, repeat=2))
    queue.jobs.submit(request("another"))
    first = taken(queue, agent)
    assert queue.leases.lease(agent, [], 0) is None
    more = queue.leases.lease(agent, [], 0, started_jobs={first.job: "cpu"})
    assert more
    assert (more.job, first.spec.id, more.spec.id, more.spec.device) == (first.job, "1t", "2t", "cpu")
    assert queue.leases.lease(agent, [], 0, started_jobs={first.job: "cpu"}) is None, "the other job has to wait"
    assert queue.leases.lease(agent, [], 0, started_jobs={first.job: "cuda:0"}) is None
