"""CPUs for a child, and the wait for a quiet host."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.agent_runs import StartAgent, server, start
from tests.remote.child_runs import TINY_INPUTS, Job, tiny_onnx
from tests.remote.fake_server import FakeServer
from visualprof.remote.agent.errors import StopRequested
from visualprof.remote.agent.machine.cpus import pinned_cpus
from visualprof.remote.agent.machine.quiet_host import HostLoad, sample_host_load, wait_for_quiet
from visualprof.remote.protocol import TaskFailure, cpu_numbers

__all__ = ["server", "start"]


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Two nodes; 0 to 3 are two cores of two threads, 4 to 7 four cores of one."""
    for cpu in range(8):
        siblings = (f"{cpu % 2},{cpu % 2 + 2}" if cpu < 4 else str(cpu)) + "\n"
        folder = tmp_path / f"cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings)
        (tmp_path / f"cpu/cpu{cpu}/node{cpu // 4}").mkdir()
    return tmp_path


def test_lists_and_ranges_of_cpus_are_read() -> None:
    assert cpu_numbers("0-3,8, 2") == [0, 1, 2, 3, 8]
    for wrong in ("", "a", "3-1", "1-", "9999", "0-3;8"):
        with pytest.raises(ValueError, match="CPU"):
            cpu_numbers(wrong)


def test_auto_is_a_thread_of_each_core_of_the_largest_node(host: Path) -> None:
    assert pinned_cpus("auto", 0, host, range(8)) == [4, 5, 6, 7]
    assert pinned_cpus("auto", 2, host, range(8)) == [6, 7]
    assert pinned_cpus("auto", 0, host, range(4)) == [0, 1], "one of each core"
    assert pinned_cpus("auto", 0, host, [1, 2, 3]) == [1, 2], "of the threads that the agent may use"
    assert pinned_cpus("auto", 64, host, range(8)) == [4, 5, 6, 7]


def test_without_topology_every_cpu_is_a_core(tmp_path: Path) -> None:
    assert pinned_cpus("auto", 0, tmp_path, [0, 1, 5]) == [0, 1, 5]


def test_named_cpus_are_used_or_the_task_fails(host: Path) -> None:
    assert pinned_cpus("", 4, host, range(8)) == []
    assert pinned_cpus("0,2-3", 1, host, range(8)) == [0, 2, 3]
    with pytest.raises(TaskFailure, match="may not use CPU 3, 9"):
        pinned_cpus("2-3,9", 0, host, range(3))


@pytest.mark.slow
def test_a_pinned_child_has_its_cpus_and_as_many_threads(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    cpu = max(os.sched_getaffinity(0))
    job = Job(tmp_path, tiny_onnx(tmp_path / "net.onnx"), TINY_INPUTS)
    job.cpus = [cpu]
    (effective_event,) = job.run().told("effective")
    assert (effective_event["effective"]["cpus"], effective_event["effective"]["threads"]) == (str(cpu), "1")


def uses(*busy: float) -> Iterator[HostLoad]:
    return iter([HostLoad(share, None) for share in busy])


def test_a_wait_ends_with_the_first_quiet_second() -> None:
    assert wait_for_quiet(60, uses(0.9, 0.5, 0.05), lambda: None) == (3, None)
    assert wait_for_quiet(60, iter([HostLoad(0.01, 0.5), HostLoad(0.1, 0.1)]), lambda: None) == (2, None)


def test_a_host_that_is_never_quiet_is_reported_with_its_load() -> None:
    took_s, use = wait_for_quiet(2, uses(0.9, 0.8, 0.0), lambda: None)
    assert (took_s, str(use)) == (2, "CPUs 80% busy")
    assert str(HostLoad(0.8, 0.25)) == "CPUs 80% busy, tasks waited for one 25% of the time"


def test_a_wait_can_be_stopped() -> None:
    def stop() -> None:
        raise StopRequested

    with pytest.raises(StopRequested):
        wait_for_quiet(60, uses(0.9, 0.9), stop)


def test_the_use_of_this_host_is_shares() -> None:
    use = next(sample_host_load())
    assert 0 <= use.cpu_share <= 1
    assert use.pressure is None or 0 <= use.pressure <= 1


@pytest.mark.slow
def test_a_task_waits_for_a_quiet_host_and_reports_it(server: FakeServer, start: StartAgent) -> None:
    task = server.submit(b"measure", quiet_s=1.0)
    start("--once")
    assert server.finished(task)["state"] == "succeeded"
    assert "settling" in task.phases
    log, warnings = task.result["log.txt"].decode(), json.loads(task.result["status.json"])["warnings"]
    assert log.startswith("[agent] waited 1 s for a quiet host")
    assert warnings == ([log.removeprefix("[agent] ").strip()] if "never was" in log else [])
