"""The next task for a machine: by priority, then fairly between users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from queue_sites import FAILED, capabilities, member, opened, request, runtime

from visualprof.remote.protocol import Lease, Priority, Spec
from visualprof.remote.queue.service import JobServices
from visualprof.remote.queue.store.records import Agent

pytestmark = pytest.mark.both_databases


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[JobServices]:
    with opened(tmp_path / "runs") as remote:
        yield remote.open()


def submit(
    queue: JobServices, owner: str, *keys: str, priority: Priority = "normal", spec: str = "onnxruntime"
) -> None:
    for key in keys:
        queue.jobs.submit(request(key, Spec("s", spec), priority=priority), owner)


def turn(queue: JobServices, agent: Agent) -> Lease:
    lease = queue.leases.lease(agent, ["cpu"], 0)
    assert lease
    return lease


def worked(queue: JobServices, agent: Agent, number: int) -> list[str]:
    """The keys of the next jobs, each of which ends before the next begins."""
    keys = list[str]()
    for _ in range(number):
        lease = turn(queue, agent)
        keys.append(lease.request.key)
        queue.finalizer.finish(agent, lease.task, lease.lease, FAILED)
    return keys


def test_users_take_turns_however_much_a_user_submits(queue: JobServices) -> None:
    submit(queue, "ann", "a1", "a2", "a3", "a4")
    submit(queue, "bob", "b1", "b2")
    submit(queue, "eve", "e1")
    # Nobody has had a turn: who came first. Then those who had none, then whose turn is the longest ago.
    assert worked(queue, member(queue), 7) == ["a1", "b1", "e1", "a2", "b2", "a3", "a4"]


def test_the_user_with_the_fewest_running_tasks_goes_first(queue: JobServices) -> None:
    machines = [member(queue, f"m{i}") for i in range(5)]
    submit(queue, "ann", "a1", "a2", "a3", "a4")
    held = [turn(queue, machines[i]) for i in range(2)]  # a1 and a2 run: nobody else waits
    submit(queue, "bob", "b1", "b2", "b3")
    # running (ann, bob): (2, 0) b1, (2, 1) b2, (2, 2) a3, as ann's last turn is the longest ago
    assert [turn(queue, machine).request.key for machine in machines[2:]] == ["b1", "b2", "a3"]
    # (3, 2) b3; a1 and a2 end: (1, 3) is ann's
    assert turn(queue, member(queue, "m5")).request.key == "b3"
    for machine, lease in zip(machines, held, strict=False):
        queue.finalizer.finish(machine, lease.task, lease.lease, FAILED)
    assert turn(queue, machines[0]).request.key == "a4"


def test_a_user_without_tasks_for_a_machine_blocks_no_other_user(queue: JobServices) -> None:
    submit(queue, "ann", "a1", "a2", spec="openvino")
    submit(queue, "bob", "b1")
    submit(queue, "eve", "e1")
    assert worked(queue, member(queue), 2) == ["b1", "e1"]
    assert worked(queue, member(queue, known=capabilities(runtimes=[runtime("openvino")])), 2) == ["a1", "a2"]


def test_the_urgent_go_first_and_the_idle_last(queue: JobServices) -> None:
    submit(queue, "ann", "low1", priority="low")
    submit(queue, "ann", "n1", "n2")
    submit(queue, "bob", "low2", priority="low")
    submit(queue, "root", "h1", "h2", priority="high")
    # After h2 ann has had no turn; low1 and low2: bob has had none, ann has.
    assert worked(queue, member(queue), 6) == ["h1", "h2", "n1", "n2", "low2", "low1"]


def test_without_accounts_the_first_job_goes_first(queue: JobServices) -> None:
    for i in range(4):
        queue.jobs.submit(request(f"k{i}"))
    assert worked(queue, member(queue), 4) == ["k0", "k1", "k2", "k3"]
