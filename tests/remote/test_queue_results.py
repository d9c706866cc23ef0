"""Results: verified, put together, published by the lease that holds."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from queue_sites import MODEL, announced, member, opened, point, request, result, tiny_disk, together, upload
from sqlalchemy import update

from visualprof.errors import VisualprofError
from visualprof.reader.logdir.scan import LogFile, Root, walk
from visualprof.remote.protocol import Input, Lease, Spec, Sweep
from visualprof.remote.queue.check.names import MAX_FILE, MAX_FILES
from visualprof.remote.queue.errors import DiskFull, InvalidResult, LeaseExpired, PayloadTooLarge
from visualprof.remote.queue.service import JobService, JobServices
from visualprof.remote.queue.settings import QueueSettings
from visualprof.remote.queue.store.records import Agent, Task
from visualprof.remote.queue.store.tables import artifacts, tasks
from visualprof.remote.queue.tasks import results as results_module
from visualprof.remote.queue.tasks.leases import TaskReport
from visualprof.remote.queue.tasks.maintenance import MaintenanceThread
from visualprof.remote.queue.tasks.results import AnnouncedFile

pytestmark = pytest.mark.both_databases


@dataclass
class Bench:
    """A leased task."""

    remote: JobService
    queue: JobServices
    agent: Agent
    lease: Lease

    @property
    def root(self) -> Path:
        return self.remote.root.path

    @property
    def run(self) -> Path:
        return self.root / self.lease.run

    @property
    def task(self) -> Task:
        return next(t for t in self.queue.jobs.get(self.lease.job).tasks if t.id == self.lease.task)

    def result(self, **more: bytes) -> dict[str, bytes]:
        return result(self.lease.job, self.lease.task, **more)

    def send(self, files: dict[str, bytes]) -> None:
        uploads = self.queue.results.begin_uploads(self.task, [AnnouncedFile(**each) for each in announced(files)])
        for each in uploads:
            self.write(each.url, each.have, files[each.name][each.have :])

    def write(self, url: str, start: int, data: bytes) -> int:
        key = url.partition("?")[0].removeprefix("/api/v1/agent/files/")
        pieces = iter([data, b""])
        return self.queue.store.append(key, start, lambda _: next(pieces), 1 << 30)

    def finish(self, files: dict[str, bytes], state: str = "succeeded", reason: str | None = None) -> None:
        report = TaskReport(state, reason, "e" if reason else None, None, [], list(files))  # type: ignore[arg-type]
        self.queue.finalizer.finish(self.agent, self.lease.task, self.lease.lease, report)

    def left(self) -> list[Path]:
        """What is not published and yet there."""
        below = self.root / ".visualprof"
        return [*(below / "results.partial").glob("*"), *(below / "incoming").glob("*")]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path / "runs") as remote:
        yield leased(remote)


def leased(remote: JobService, key: str = "k", **changes: Any) -> Bench:
    queue = remote.open()
    queue.jobs.submit(request(key, **changes))
    agent = member(queue)
    lease = queue.leases.lease(agent, ["cpu"], 0)
    assert lease
    return Bench(remote, queue, agent, lease)


def test_a_result_becomes_a_folder_of_the_log_directory(bench: Bench) -> None:
    files = bench.result(**{"deep/trace.json": b"[1]"})
    bench.send(files)
    bench.finish(files)
    assert {str(path.relative_to(bench.run)): path.read_bytes() for path in bench.run.rglob("*") if path.is_file()} == {
        **files,
        "net.onnx": MODEL,
    }
    assert (bench.task.state, bench.task.run) == ("succeeded", bench.lease.run)
    assert bench.left() == []


def test_the_run_can_be_read_by_others(bench: Bench) -> None:
    files = bench.result()
    bench.send(files)
    bench.finish(files)
    umask = os.umask(0)
    os.umask(umask)
    assert bench.run.stat().st_mode & 0o777 == 0o777 & ~umask


def test_the_model_is_not_stored_again(bench: Bench) -> None:
    files = bench.result()
    bench.send(files)
    bench.finish(files)
    blob = bench.queue.blobs.path(bench.lease.request.model.blob)
    assert (bench.run / "net.onnx").samefile(blob)


def test_the_model_is_stored_under_the_name_in_the_result(bench: Bench) -> None:
    files = bench.result()
    head = json.loads(files["job.json"]) | {"model": {"file": "other name.onnx"}}
    files["job.json"] = json.dumps(head).encode()
    bench.send(files)
    bench.finish(files)
    assert (bench.run / "other name.onnx").read_bytes() == MODEL


@pytest.mark.parametrize("name", ["../up", "/etc/x", ".hidden", "a/b/c"])
def test_the_models_name_cannot_lead_elsewhere(bench: Bench, name: str) -> None:
    files = bench.result()
    files["job.json"] = json.dumps(json.loads(files["job.json"]) | {"model": {"file": name}}).encode()
    bench.send(files)
    with pytest.raises(InvalidResult, match="cannot be the name"):
        bench.finish(files)
    assert not bench.run.exists()


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "..",
        ".",
        "",
        "a/../b",
        "a//b",
        "a/b/c",
        "a/",
        "/a",
        ".hidden",
        "a/.hidden",
        "a\\b",
        "..\\x",
        "C:x",
        "a\x00b",
        "a\nb",
        "a\x1b[31m",
        "a\u202eb",
        "x" * 201,
        "x.partial",
        " a",
        "a ",
        "a.",
        "\ud800",
    ],
)
def test_a_name_that_could_lead_elsewhere_is_refused(bench: Bench, name: str) -> None:
    with pytest.raises(InvalidResult, match="cannot be the name"):
        bench.queue.results.begin_uploads(bench.task, [AnnouncedFile(name, 1, "0" * 64)])
    assert bench.left() == []


@pytest.mark.parametrize("names", [("a", "a"), ("a", "A"), ("a", "a/b")])
def test_names_that_meet_on_some_disk_are_refused(bench: Bench, names: tuple[str, ...]) -> None:
    with pytest.raises(InvalidResult, match="same name"):
        bench.queue.results.begin_uploads(bench.task, [AnnouncedFile(name, 1, "0" * 64) for name in names])


def test_too_many_files_are_refused(bench: Bench) -> None:
    with pytest.raises(PayloadTooLarge, match="at most 200"):
        bench.queue.results.begin_uploads(
            bench.task, [AnnouncedFile(str(i), 1, "0" * 64) for i in range(MAX_FILES + 1)]
        )


@pytest.mark.parametrize(("size", "kind"), [(MAX_FILE + 1, PayloadTooLarge), (-1, InvalidResult)])
def test_a_file_of_an_impossible_size_is_refused(bench: Bench, size: int, kind: type[VisualprofError]) -> None:
    with pytest.raises(kind):
        bench.queue.results.begin_uploads(bench.task, [AnnouncedFile("a", size, "0" * 64)])


def test_a_file_that_differs_is_refused_and_can_be_sent_again(bench: Bench) -> None:
    files = bench.result()
    [upload] = bench.queue.results.begin_uploads(bench.task, [AnnouncedFile(**announced({"env.json": b"{}"})[0])])
    bench.write(upload.url, 0, b"[]")
    bench.send({name: data for name, data in files.items() if name != "env.json"})
    with pytest.raises(InvalidResult, match=r"env.json differs from its sha256"):
        bench.finish(files)
    assert bench.task.state == "running"
    bench.send(files)
    bench.finish(files)
    assert bench.task.state == "succeeded"


def test_a_file_that_is_not_whole_is_refused_and_can_be_completed(bench: Bench) -> None:
    files = bench.result(**{"big.bin": b"0123456789"})
    uploads = bench.queue.results.begin_uploads(bench.task, [AnnouncedFile(**each) for each in announced(files)])
    for each in uploads:
        bench.write(each.url, 0, files[each.name] if each.name != "big.bin" else b"01234")
    with pytest.raises(InvalidResult, match=r"big\.bin has 5 of 10 bytes"):
        bench.finish(files)
    bench.send(files)
    bench.finish(files)
    assert (bench.run / "big.bin").read_bytes() == b"0123456789"


def test_an_upload_resumes_where_it_stopped(bench: Bench) -> None:
    wanted = [AnnouncedFile(**announced({"a": b"0123456789"})[0])]
    [upload] = bench.queue.results.begin_uploads(bench.task, wanted)
    bench.write(upload.url, 0, b"0123")
    [again] = bench.queue.results.begin_uploads(bench.task, wanted)
    assert again.have == 4
    assert again.url.partition("?")[0] == upload.url.partition("?")[0]


def test_another_file_of_the_same_name_begins_anew(bench: Bench) -> None:
    [upload] = bench.queue.results.begin_uploads(bench.task, [AnnouncedFile("a", 4, "0" * 64)])
    bench.write(upload.url, 0, b"0123")
    [again] = bench.queue.results.begin_uploads(bench.task, [AnnouncedFile("a", 4, "1" * 64)])
    assert again.have == 0


@pytest.mark.parametrize("missing", ["job.json", "env.json", "status.json"])
def test_a_result_without_its_heads_is_refused(bench: Bench, missing: str) -> None:
    files = bench.result()
    del files[missing]
    bench.send(files)
    with pytest.raises(InvalidResult, match=f"lacks {missing}"):
        bench.finish(files)
    assert not bench.run.exists()


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": ' * 100_000, b"null"])
def test_a_head_that_is_not_a_json_object_is_rejected(bench: Bench, text: bytes) -> None:
    files = bench.result() | {"env.json": text}
    bench.send(files)
    with pytest.raises(InvalidResult, match=r"env\.json is no JSON object"):
        bench.finish(files)


def test_a_head_that_is_too_large_is_refused(bench: Bench) -> None:
    files = bench.result() | {"env.json": b'{"a": "' + b"x" * (4 << 20) + b'"}'}
    bench.send(files)
    with pytest.raises(InvalidResult, match="too large"):
        bench.finish(files)


def test_the_result_of_another_task_is_refused(bench: Bench) -> None:
    files = result(bench.lease.job, "another")
    bench.send(files)
    with pytest.raises(InvalidResult, match="of another task"):
        bench.finish(files)


def test_a_file_that_was_never_announced_is_refused(bench: Bench) -> None:
    files = bench.result()
    bench.send(files)
    with pytest.raises(InvalidResult, match="x was not announced"):
        bench.finish(files | {"x": b""})


def test_the_same_finish_again_changes_nothing(bench: Bench) -> None:
    files = bench.result()
    bench.send(files)
    bench.finish(files)
    known = bench.queue.jobs.revision()
    bench.finish(files)
    assert bench.queue.jobs.revision() == known


def test_two_finishes_at_once_publish_once(bench: Bench) -> None:
    files = bench.result()
    bench.send(files)
    together(4, lambda _: bench.finish(files))
    assert bench.left() == []


def test_another_finish_is_stale(bench: Bench) -> None:
    files = bench.result()
    bench.send(files)
    bench.finish(files)
    with pytest.raises(LeaseExpired):
        bench.finish({}, "failed", "crashed")


def test_only_the_lease_that_holds_may_publish(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    files = bench.result()
    bench.send(files)
    prepare = bench.queue.results.prepare

    def slow(*args: object) -> Path:
        folder = prepare(*args)  # type: ignore[arg-type]
        with bench.queue.database.write() as connection:  # meanwhile the task went to another agent
            connection.execute(update(tasks).values(lease="another", attempt=2))
        return folder

    monkeypatch.setattr(bench.queue.results, "prepare", slow)
    with pytest.raises(LeaseExpired):
        bench.finish(files)
    assert not bench.run.exists()
    assert list((bench.root / ".visualprof" / "results.partial").glob("*")) == []


def test_a_new_attempt_replaces_the_result_of_an_earlier_one(bench: Bench) -> None:
    first = bench.result(old=b"1")
    bench.send(first)
    bench.finish(first, "failed", "crashed")
    assert (bench.run / "old").exists()
    bench.queue.jobs.retry(bench.lease.job)
    lease = bench.queue.leases.lease(bench.agent, ["cpu"], 0)
    assert lease
    bench.lease = lease
    second = bench.result(new=b"2")
    bench.send(second)
    bench.finish(second)
    assert not (bench.run / "old").exists()
    assert (bench.run / "new").read_bytes() == b"2"
    assert bench.left() == []


def test_a_failure_with_a_result_is_published(bench: Bench) -> None:
    files = bench.result()
    bench.send(files)
    bench.finish(files, "failed", "out_of_memory")
    assert (bench.task.state, bench.task.reason) == ("failed", "out_of_memory")
    assert (bench.run / "points.jsonl").exists()


def lines(*batches: int, qps: float = 99.0) -> bytes:
    """A result's points."""
    return b"".join(json.dumps({**point(batch), "qps": qps}).encode() + b"\n" for batch in batches)


def kept(bench: Bench) -> dict[int, float]:
    """Runs a second of the points that the API has, by size."""
    job = bench.queue.jobs.get(bench.lease.job)
    return {one["batch"]: one["qps"] for one in bench.queue.jobs.points(job)[bench.lease.task]}


def test_points_missed_during_the_run_come_with_the_result(tmp_path: Path) -> None:
    """Of three points the first came, as it was before its agent began again; the network was cut for the others."""
    with opened(tmp_path / "runs") as remote:
        swept: dict[str, Any] = {"sweep": Sweep("n", [1, 2, 4]), "inputs": [Input("x", "float32", ["n", 3])]}
        bench = leased(remote, **swept)
        bench.queue.leases.save_point(bench.agent, bench.lease.task, bench.lease.lease, 1, point(1))
        assert kept(bench) == {1: 10.0}
        partial = bench.result(**{"points.jsonl": lines(1, 2) + lines(4)[:-20]})
        bench.send(partial)
        with pytest.raises(InvalidResult, match=r"points.jsonl has 2 of 3 points"):
            bench.finish(partial)
        assert (bench.task.state, kept(bench)) == ("running", {1: 10.0})
        whole = bench.result(**{"points.jsonl": lines(1) + b"no point\n" + lines(2, 4) + b'{"batch": '})
        bench.send(whole)
        bench.finish(whole)
        assert bench.task.state == "succeeded"
        assert kept(bench) == {1: 99.0, 2: 99.0, 4: 99.0}
        assert bench.queue.jobs.point_counts([bench.queue.jobs.get(bench.lease.job)]) == {bench.lease.task: 3}


def test_a_result_without_the_sizes_that_failed_is_published(tmp_path: Path) -> None:
    with opened(tmp_path / "runs") as remote:
        swept: dict[str, Any] = {"sweep": Sweep("n", [1, 2, 4]), "inputs": [Input("x", "float32", ["n", 3])]}
        bench = leased(remote, **swept)
        for measured, failed in (((1,), (4,)), ((1, 2), (8,)), ((), (1, 2, 4))):
            files = bench.result(**{"points.jsonl": lines(*measured), "status.json": failed_sizes(*failed)})
            bench.send(files)
            with pytest.raises(InvalidResult, match=f"has {len(measured)} of 3 points"):
                bench.finish(files)
        files = bench.result(**{"points.jsonl": lines(1), "status.json": failed_sizes(2, 4)})
        bench.send(files)
        bench.finish(files)
        assert (bench.task.state, kept(bench)) == ("succeeded", {1: 99.0})


def failed_sizes(*batches: int) -> bytes:
    return json.dumps({"not_measured": batches}).encode()


def test_a_failure_has_the_points_of_its_result(bench: Bench) -> None:
    files = bench.result(**{"points.jsonl": lines(1, 2)})
    bench.send(files)
    bench.finish(files, "failed", "crashed")
    assert kept(bench) == {1: 99.0, 2: 99.0}


def test_a_result_of_more_points_than_any_job_is_cut(bench: Bench) -> None:
    files = bench.result(**{"points.jsonl": lines(*range(100))})
    bench.send(files)
    bench.finish(files)
    assert sorted(kept(bench)) == list(range(64))


def test_a_failure_without_files_is_not_a_run(bench: Bench) -> None:
    bench.finish({}, "failed", "no_runtime")
    assert bench.task.run is None
    assert not bench.run.exists()


def test_reports_of_a_failed_task_become_a_run(bench: Bench) -> None:
    bench.queue.leases.save_point(bench.agent, bench.lease.task, bench.lease.lease, 4, point(4))
    bench.queue.logs.append(bench.task, 0, b"first words\n")
    bench.finish({}, "failed", "upload_failed")
    assert bench.task.run == bench.lease.run
    status = json.loads((bench.run / "status.json").read_text())
    assert (status["state"], status["reason"], status["started_ns"] > 0) == ("failed", "upload_failed", True)
    assert json.loads((bench.run / "points.jsonl").read_text()) == {**point(4), "latencies": [0, 0]}
    assert (bench.run / "log.txt").read_text() == "first words\n"
    assert (bench.run / "net.onnx").read_bytes() == MODEL
    head = json.loads((bench.run / "job.json").read_text())
    assert (head["job"], head["spec"]["id"], head["model"]["file"]) == (bench.lease.job, "ort", "net.onnx")
    assert json.loads((bench.run / "env.json").read_text())["agent_id"] == bench.agent.id


def test_reports_of_a_lost_task_become_a_run(bench: Bench) -> None:
    bench.queue.leases.save_point(bench.agent, bench.lease.task, bench.lease.lease, 4, point(4))
    with bench.queue.database.write() as connection:
        connection.execute(update(tasks).values(lease_until_ns=1, tries=9))
    q = bench.queue
    MaintenanceThread(q.database, q.notifier, 30, on_ended=q.finalizer.recover).run_once()
    assert bench.task.reason == "agent_lost"
    assert json.loads((bench.run / "status.json").read_text())["reason"] == "agent_lost"


def test_a_cut_rename_does_not_lose_the_earlier_result(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.run.mkdir(parents=True)
    (bench.run / "precious").touch()
    files = bench.result()
    bench.send(files)
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.name.startswith(bench.lease.task):
            raise OSError(errno.EIO, "broken disk")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="broken disk"):
        bench.finish(files)
    assert (bench.run / "precious").exists()
    assert bench.task.state == "running"


@pytest.mark.parametrize(("code", "text"), [(errno.ENOSPC, "is full"), (errno.EROFS, "is read-only")])
def test_a_full_or_read_only_disk_is_a_named_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, code: int, text: str
) -> None:
    files = bench.result()
    bench.send(files)

    def full(source: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code), str(target))

    monkeypatch.setattr(results_module, "link_or_copy", full)
    with pytest.raises(DiskFull, match=text):
        bench.finish(files)
    task = bench.task
    assert (task.state, task.reason) == ("failed", "disk_full")
    assert text in str(task.error)
    assert bench.left() == []


def test_the_report_of_the_agent_after_a_full_disk_is_accepted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    files = bench.result()
    bench.send(files)

    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(results_module, "link_or_copy", full)
    with pytest.raises(DiskFull):
        bench.finish(files)
    bench.finish({}, "failed", "disk_full")
    with pytest.raises(LeaseExpired):
        bench.finish(files)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from tiny_disk(tmp_path)


def test_a_real_full_disk_is_a_named_end(tmp_path: Path, small_disk: Path) -> None:
    remote = JobService(Root(small_disk, ""), QueueSettings(data=tmp_path / "data"))
    try:
        upload(remote)
        bench = leased(remote)
        files = bench.result(**{"big.bin": b"x" * (2 << 20)})
        bench.send(files)
        with pytest.raises(DiskFull, match="small is full"):
            bench.finish(files)
        assert (bench.task.state, bench.task.reason) == ("failed", "disk_full")
        assert [each for each in small_disk.rglob("*") if each.is_file()] == []
    finally:
        remote.close()


def test_with_data_elsewhere_results_are_copied(tmp_path: Path) -> None:
    other = Path("/dev/shm") / f"visualprof-test-{os.getpid()}"
    if not other.parent.is_dir() or other.parent.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs two file systems")
    try:
        with opened(tmp_path / "runs", data=other) as remote:
            bench = leased(remote)
            files = bench.result()
            bench.send(files)
            bench.finish(files)
            assert (bench.run / "net.onnx").read_bytes() == MODEL
            assert (bench.run / "net.onnx").stat().st_nlink == 1
    finally:
        shutil.rmtree(other, ignore_errors=True)


def test_nothing_of_the_queue_is_shown_as_a_file_of_the_log_directory(bench: Bench) -> None:
    files = bench.result()
    bench.send(files)
    (bench.root / ".visualprof" / "results.partial" / "x").mkdir(parents=True)
    (bench.root / ".visualprof" / "results.partial" / "x" / "timeline.json").write_text("[]")
    assert list(walk(Root(bench.root, ""))) == []
    bench.finish(files)
    shown = {found.file for found in walk(Root(bench.root, "")) if isinstance(found, LogFile)}
    assert shown == {f"{bench.lease.run}/{name}" for name in (*files, "net.onnx")}


def test_half_results_of_a_killed_server_are_removed_at_the_next_start(tmp_path: Path) -> None:
    with opened(tmp_path / "runs") as remote:
        bench = leased(remote)
        bench.send(bench.result())
        other = leased(remote, "other")
        other.send(other.result())
        bench.finish({}, "failed", "crashed")
        place = tmp_path / "runs" / ".visualprof"
        with bench.queue.database.write() as connection:  # as if it had been killed before it removed them
            row = {"task": bench.lease.task, "attempt": 1, "name": "a", "key": "incoming/x/y"}
            connection.execute(artifacts.insert().values(size_bytes=1, sha256="0" * 64, **row))
        (place / "incoming" / f"{bench.lease.task}-1").mkdir()
        for name in ("blobs/.half", "results.partial/old"):
            (place / name).mkdir(parents=True)
            os.utime(place / name, (1, 1))
        (place / "results.partial" / "young").mkdir()
    with opened(tmp_path / "runs") as remote:
        assert [path.name for path in (place / "incoming").iterdir()] == [f"{other.lease.task}-1"]
        assert [path.name for path in (place / "results.partial").iterdir()] == ["young"]
        assert not (place / "blobs" / ".half").exists()
        with remote.open().database.read() as connection:
            kept = {row.task for row in connection.execute(artifacts.select())}
        assert kept == {other.lease.task}


def test_each_spec_has_its_own_folder(tmp_path: Path) -> None:
    with opened(tmp_path / "runs") as remote:
        queue = remote.open()
        job, _ = queue.jobs.submit(request("k", Spec("a", "onnxruntime"), Spec("b", "onnxruntime")))
        agent = member(queue)
        for _ in range(2):
            lease = queue.leases.lease(agent, ["cpu"], 0)
            assert lease
            bench = Bench(remote, queue, agent, lease)
            bench.send(bench.result())
            bench.finish(bench.result())
        assert {path.name for path in (tmp_path / "runs" / f"net-{job}").iterdir()} == {"a", "b"}


def test_a_report_is_truncated_to_the_display_limit(bench: Bench) -> None:
    long = TaskReport("failed", "crashed", "e" * 10_000, "h" * 10_000, ["w" * 5000] * 100)
    bench.queue.finalizer.finish(bench.agent, bench.lease.task, bench.lease.lease, long)
    task = bench.task
    assert (len(str(task.error)), len(str(task.hint)), len(task.warnings), len(task.warnings[0])) == (
        4000,
        2000,
        50,
        1000,
    )
