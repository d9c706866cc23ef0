"""Opening the queue of a starting server: in parallel with the first page; requests wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from queue_sites import member, opened, request, together

from tests.conftest import until
from visualprof.reader.logdir.scan import Root
from visualprof.remote.queue.job_services import JobServices
from visualprof.remote.queue.service import JobService
from visualprof.remote.queue.settings import QueueSettings
from visualprof.remote.queue.store.files import DATABASE_FILE


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[JobService]:
    """Of a server that starts where another one ended, while a task was running."""
    with opened(tmp_path / "runs", lease_s=0.4) as before:
        queue = before.open()
        queue.jobs.submit(request())
        assert queue.leases.lease(member(queue), ["cpu"], 0)
    remote = JobService(Root(tmp_path / "runs", ""), QueueSettings(lease_s=0.4))
    yield remote
    remote.close()


def slowly(remote: JobService, monkeypatch: pytest.MonkeyPatch) -> list[JobServices]:
    """Opening takes a while; the queues that were made."""
    created: list[JobServices] = []
    make = remote._create

    def slow() -> JobServices:
        time.sleep(0.2)
        created.append(make())
        return created[-1]

    monkeypatch.setattr(remote, "_create", slow)
    return created


@pytest.mark.both_databases
def test_a_running_task_is_requeued_without_a_request(remote: JobService) -> None:
    remote.start()
    queue = until(lambda: remote._services)
    [job] = queue.jobs.changes_since(0).jobs
    assert until(lambda: queue.jobs.get(job.id).tasks[0].state == "waiting")


@pytest.mark.both_databases
def test_requests_during_opening_wait_for_the_same_queue(remote: JobService, monkeypatch: pytest.MonkeyPatch) -> None:
    created, collected = slowly(remote, monkeypatch), list[JobServices | None]()
    remote.start()
    together(8, lambda i: collected.append(remote.open_existing() if i % 2 else remote.open()))
    assert len(created) == 1
    assert collected == created * 8


@pytest.mark.both_databases
def test_a_server_that_stops_while_opening_leaves_nothing(remote: JobService, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_services = slowly(remote, monkeypatch)
    remote.start()
    assert until(remote._opening_lock.locked)
    remote.close()
    [queue] = opened_services
    assert (remote._services, remote.open_existing()) == (None, None)
    assert queue.maintenance
    assert not queue.maintenance._thread.is_alive()
    assert not [thread for thread in threading.enumerate() if thread.name == "queue"]


def test_the_first_request_reports_an_unusable_database(remote: JobService) -> None:
    for file in remote.folder.glob(f"{DATABASE_FILE}*"):
        file.write_bytes(b"no database")
    remote.start()
    assert remote.open_existing() is None
    assert remote.problem
    assert "cannot be used: file is not a database" in remote.problem[0]


def test_nothing_is_opened_where_nothing_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = JobService(Root(tmp_path, ""))
    opened_services = slowly(remote, monkeypatch)
    remote.start()
    time.sleep(0.3)
    assert (remote.open_existing(), opened_services, [*tmp_path.iterdir()]) == (None, [], [])
    remote.close()
