"""Jobs: submitted once, cancelled, tried again."""

from __future__ import annotations

import hashlib
import io
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from queue_sites import FAILED, member, opened, request

from visualprof.errors import BadParameter, NotFound
from visualprof.remote.protocol import Input, ModelRef, Spec
from visualprof.remote.queue.errors import Conflict
from visualprof.remote.queue.service import JobServices
from visualprof.remote.queue.tasks.job_insertion import result_folder
from visualprof.remote.queue.tasks.leases import TaskHeartbeat, TaskReport

pytestmark = pytest.mark.both_databases

SPECS = Spec("a", "onnxruntime"), Spec("b", "onnxruntime"), Spec("c", "onnxruntime")


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[JobServices]:
    with opened(tmp_path / "runs") as remote:
        yield remote.open()


def states(queue: JobServices, job: str) -> list[str]:
    return [task.state for task in queue.jobs.get(job).tasks]


def test_the_same_request_with_the_same_key_is_the_same_job(queue: JobServices) -> None:
    first, new = queue.jobs.submit(request("k"))
    assert (new, queue.jobs.submit(request("k"))) == (True, (first, False))
    assert len(queue.jobs.changes_since(0).jobs) == 1


def test_another_request_with_the_same_key_is_refused(queue: JobServices) -> None:
    queue.jobs.submit(request("k"))
    with pytest.raises(Conflict, match="belongs to another job"):
        queue.jobs.submit(request("k", timeout_s=5.0))


def test_the_same_key_of_another_owner_is_another_job(queue: JobServices) -> None:
    assert queue.jobs.submit(request("k"), "ann")[0] != queue.jobs.submit(request("k"), "bob")[0]


def test_simultaneous_submissions_with_the_same_key_make_one_job(queue: JobServices) -> None:
    job_ids: list[str] = []
    threads = [threading.Thread(target=lambda: job_ids.append(queue.jobs.submit(request("k"))[0])) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(job_ids) == 8
    assert len(set(job_ids)) == 1


def test_ids_are_short_and_pronounceable(queue: JobServices) -> None:
    ids = {queue.jobs.submit(request(str(i)))[0] for i in range(20)}
    assert len(ids) == 20
    assert all(re.fullmatch("[a-z2-7]{10}", each) for each in ids)


@pytest.mark.parametrize("key", ["", "a b", "k" * 201, "k\n", "käse"])
def test_an_invalid_key_is_rejected(queue: JobServices, key: str) -> None:
    with pytest.raises(BadParameter, match="key"):
        queue.jobs.submit(request(key))


@pytest.mark.parametrize("ids", [["../up"], ["a", "A"], [".hidden"], ["a/b"], [""]])
def test_a_spec_id_that_cannot_name_a_folder_is_refused(queue: JobServices, ids: list[str]) -> None:
    with pytest.raises(BadParameter, match="specs"):
        queue.jobs.submit(request("k", *(Spec(each, "onnxruntime") for each in ids)))
    assert queue.jobs.changes_since(0).jobs == []


@pytest.mark.parametrize(
    ("model", "folder"),
    [
        ("net.onnx", "net-id"),
        ("../../etc/passwd.onnx", "passwd-id"),
        ("..\\..\\x y.onnx", "x-y-id"),
        (".onnx", "onnx-id"),
        ("模型.onnx", "模型-id"),
        ("///", "file-id"),
        ("a" * 300, "a" * 48 + "-id"),
        ("x.partial", "x-id"),
        ("\x00\x1b[31m.onnx", "31m-id"),
    ],
)
def test_the_folder_of_the_results_is_made_of_harmless_letters(model: str, folder: str) -> None:
    assert result_folder(model, "id") == folder


def test_tasks_are_in_the_order_of_the_specs(queue: JobServices) -> None:
    job, _ = queue.jobs.submit(request("k", *SPECS))
    assert [task.spec.id for task in queue.jobs.get(job).tasks] == ["a", "b", "c"]
    assert states(queue, job) == ["waiting"] * 3


def test_a_job_without_its_files_waits_for_them_first(queue: JobServices) -> None:
    data = b"array"
    blob = hashlib.sha256(data).hexdigest()
    job, _ = queue.jobs.submit(request("k", inputs=[Input("x", "float32", [1], "file", blob)]))
    assert states(queue, job) == ["initiated"]
    queue.jobs.file_arrived("0" * 64)
    assert states(queue, job) == ["initiated"]
    queue.blobs.put("x.npy", io.BytesIO(data).read)
    queue.jobs.file_arrived(blob)
    assert states(queue, job) == ["waiting"]


def test_waiting_tasks_are_canceled_immediately(queue: JobServices) -> None:
    job, _ = queue.jobs.submit(request("k", *SPECS))
    queue.jobs.cancel(job)
    assert states(queue, job) == ["cancelled"] * 3
    assert queue.leases.lease(member(queue), ["cpu"], 0) is None


def test_running_tasks_are_canceled_by_their_agent(queue: JobServices) -> None:
    job, _ = queue.jobs.submit(request("k"))
    agent = member(queue)
    lease = queue.leases.lease(agent, ["cpu"], 0)
    assert lease
    queue.jobs.cancel(job)
    assert states(queue, job) == ["running"]
    assert queue.leases.heartbeat(agent, [TaskHeartbeat(lease.task, lease.lease)]) == ([lease.task], [])
    queue.finalizer.finish(agent, lease.task, lease.lease, TaskReport("cancelled"))
    assert states(queue, job) == ["cancelled"]


def test_a_retry_repeats_only_failed_and_canceled_tasks(queue: JobServices) -> None:
    job, _ = queue.jobs.submit(request("k", *SPECS))
    agent = member(queue)
    first = queue.leases.lease(agent, ["cpu"], 0)
    second = queue.leases.lease(agent, ["cpu"], 0)
    assert first
    assert second
    queue.finalizer.finish(agent, first.task, first.lease, FAILED)
    queue.jobs.retry(job)
    assert states(queue, job) == ["waiting", "running", "waiting"]
    again = queue.leases.lease(agent, ["cpu"], 0)
    assert again
    assert (again.task, again.attempt, again.lease == first.lease) == (first.task, 2, False)


def test_a_retry_can_select_a_task(queue: JobServices) -> None:
    job, _ = queue.jobs.submit(request("k", *SPECS))
    queue.jobs.cancel(job)
    queue.jobs.retry(job, f"{job}-1")
    assert states(queue, job) == ["cancelled", "waiting", "cancelled"]


def test_a_retry_clears_the_error(queue: JobServices) -> None:
    job, _ = queue.jobs.submit(request("k"))
    agent = member(queue)
    lease = queue.leases.lease(agent, ["cpu"], 0)
    assert lease
    queue.finalizer.finish(agent, lease.task, lease.lease, FAILED)
    assert queue.jobs.get(job).tasks[0].reason == "crashed"
    queue.jobs.retry(job)
    task = queue.jobs.get(job).tasks[0]
    assert (task.reason, task.error, task.hint, task.progress) == (None, None, None, 0.0)


def test_retrying_a_running_task_is_rejected(queue: JobServices) -> None:
    job, _ = queue.jobs.submit(request("k"))
    with pytest.raises(Conflict, match="nothing to try again"):
        queue.jobs.retry(job)


def test_strangers_are_not_found(queue: JobServices) -> None:
    for act in (queue.jobs.cancel, queue.jobs.retry, queue.jobs.get, queue.jobs.get_by_task):
        with pytest.raises(NotFound):
            act("nobody")


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        (["succeeded", "succeeded", "succeeded"], "succeeded"),
        (["succeeded", "cancelled", "succeeded"], "cancelled"),
        (["cancelled", "failed", "succeeded"], "failed"),
        (["failed", "waiting", "succeeded"], "waiting"),
        (["waiting", "running", "failed"], "running"),
    ],
)
def test_the_state_of_a_job_is_that_of_its_tasks_together(queue: JobServices, ends: list[str], state: str) -> None:
    from dataclasses import replace

    job, _ = queue.jobs.submit(request("k", *SPECS))
    response = queue.jobs.get(job)
    tasks = [replace(task, state=end) for task, end in zip(response.tasks, ends, strict=True)]
    assert replace(response, tasks=tasks).state == state


def test_the_progress_of_a_job_is_the_mean_of_its_tasks(queue: JobServices) -> None:
    job, _ = queue.jobs.submit(request("k", Spec("a", "onnxruntime"), Spec("b", "onnxruntime")))
    agent = member(queue)
    lease = queue.leases.lease(agent, ["cpu"], 0)
    assert lease
    queue.leases.heartbeat(agent, [TaskHeartbeat(lease.task, lease.lease, "measuring", 0.5)])
    assert queue.jobs.get(job).progress == 0.25
    queue.finalizer.finish(agent, lease.task, lease.lease, FAILED)
    assert queue.jobs.get(job).progress == 0.5


def test_only_changed_jobs_are_listed_again(queue: JobServices) -> None:
    first, _ = queue.jobs.submit(request("1"))
    second, _ = queue.jobs.submit(request("2"))
    revision, _, jobs, there = queue.jobs.changes_since(0)
    assert there == len(queue.jobs.ids()) == 2
    assert [job.id for job in jobs] == [second, first]
    queue.jobs.cancel(first)
    newer, _, jobs, _ = queue.jobs.changes_since(revision)
    assert newer > revision
    assert [job.id for job in jobs] == [first]
    assert queue.jobs.changes_since(newer).jobs == []


def test_a_request_is_stored_unchanged(queue: JobServices) -> None:
    response = request("k", Spec("a", "onnxruntime", options={"b": "1", "a": "2"}), name="n", dims={"s": 3})
    job, _ = queue.jobs.submit(response)
    assert queue.jobs.get(job).request == response
    assert response.model == ModelRef(response.model.blob, "net.onnx")
