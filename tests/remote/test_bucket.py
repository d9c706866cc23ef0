"""A bucket as the store, against a server that checks signatures: stored and rejected files."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from queue_sites import MODEL, announced, member, opened, point, request, result, upload
from test_registry import small

from tests.swift import Swift
from visualprof.cli import main
from visualprof.errors import NotFound, VisualprofError
from visualprof.remote.queue.errors import InvalidResult, StoreUnavailable
from visualprof.remote.queue.model_registration import register_model, store_local_files
from visualprof.remote.queue.service import JobService
from visualprof.remote.queue.settings import QueueSettings
from visualprof.remote.queue.store import blob_cache
from visualprof.remote.queue.store import s3 as s3_module
from visualprof.remote.queue.store.bucket_url import parse_bucket_url
from visualprof.remote.queue.store.model_records import Origin, Requester
from visualprof.remote.queue.store.s3 import Bucket
from visualprof.remote.queue.store.signing import Signer
from visualprof.remote.queue.store.tables import blobs
from visualprof.remote.queue.tasks import maintenance as upkeep_module
from visualprof.remote.queue.tasks.leases import TaskReport
from visualprof.remote.queue.tasks.maintenance import remove_leftovers
from visualprof.remote.queue.tasks.results import AnnouncedFile

pytestmark = pytest.mark.slow

KEY = f"incoming/{'a' * 32}/{'b' * 32}"
OTHER = f"incoming/{'a' * 32}/{'c' * 32}"
MIB = 1 << 20


@pytest.fixture
def url(swift: Swift) -> str:
    return swift.new()


@pytest.fixture
def bucket(url: str, tmp_path: Path) -> Bucket:
    return Bucket(tmp_path / "data", Signer(b"secret"), parse_bucket_url(url), 1 << 30)


def send(url: str, data: bytes = b"", method: str = "PUT") -> int:
    """The status that the store answers; 0 where it closes the connection before it has everything."""
    body = data if method == "PUT" else None
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, method=method)) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def fetched(url: str, **headers: str) -> tuple[int, bytes]:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
        return answer.status, answer.read()


def put(bucket: Bucket, key: str, data: bytes) -> None:
    for part in bucket.begin_upload(key, len(data)).parts:
        assert send(part.url, data[part.offset : part.offset + part.size_bytes]) == 200


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_file_arrives_and_becomes_a_blob(bucket: Bucket, tmp_path: Path) -> None:
    put(bucket, KEY, MODEL)
    assert bucket.received_bytes(KEY, len(MODEL)) == len(MODEL)
    assert bucket.finalize(KEY, len(MODEL), digest(MODEL)) == digest(MODEL)
    assert fetched(bucket.get_url(f"blobs/{digest(MODEL)}", "")) == (200, MODEL)
    assert fetched(bucket.get_url(f"blobs/{digest(MODEL)}", ""), Range="bytes=2-") == (206, MODEL[2:])
    assert [path.read_bytes() for path in (tmp_path / "data" / "blobs").iterdir()] == [MODEL]


def test_an_interrupted_large_upload_resumes(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_module, "PART_BYTES", 5 * MIB)
    data = os.urandom(11 * MIB)
    first = bucket.begin_upload(KEY, len(data))
    assert [(part.offset, part.size_bytes) for part in first.parts] == [
        (0, 5 * MIB),
        (5 * MIB, 5 * MIB),
        (10 * MIB, MIB),
    ]
    assert send(first.parts[2].url, data[10 * MIB :]) == 200
    assert send(first.parts[0].url, data[: 5 * MIB]) == 200
    assert bucket.received_bytes(KEY, len(data)) == 6 * MIB
    with pytest.raises(InvalidResult, match=f"the file has {6 * MIB} of {11 * MIB} bytes"):
        bucket.finalize(KEY, len(data))
    rest = bucket.begin_upload(KEY, len(data), is_new=False)
    assert (rest.have, [part.offset for part in rest.parts]) == (6 * MIB, [5 * MIB])
    assert send(rest.parts[0].url, data[5 * MIB : 10 * MIB]) == 200
    assert bucket.begin_upload(KEY, len(data), is_new=False).parts == []
    assert bucket.finalize(KEY, len(data)) == digest(data)
    assert bucket.path(f"blobs/{digest(data)}").read_bytes() == data


def test_addresses_of_further_parts_come_later(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_module, "PART_BYTES", 5 * MIB)
    monkeypatch.setattr(s3_module, "MAX_PART_URLS", 1)
    data = os.urandom(6 * MIB)
    put(bucket, KEY, data)
    assert [part.offset for part in bucket.begin_upload(KEY, len(data), is_new=False).parts] == [5 * MIB]


WRONG = ["key", "method", "expiry", "signature", "none", "oversize", "undersize"]


@pytest.mark.parametrize("changed", WRONG)
def test_an_address_is_good_for_its_file_purpose_size_and_time(
    bucket: Bucket, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_module, "PUT_VALID_S", 1 if changed == "expiry" else 900)
    url, data = bucket.begin_upload(KEY, 10).parts[0].url, b"x" * 10
    read = bucket.get_url(f"blobs/{digest(MODEL)}", "")
    if changed == "key":
        url = url.replace(KEY, OTHER)
    elif changed == "method":
        assert send(read, data) == 403, "an address to read does not write"
        assert send(url, method="GET") == send(url, method="DELETE") == 403, "nor one to write anything else"
        url = read
    elif changed == "expiry":
        time.sleep(2.1)
    elif changed == "signature":
        url = url[:-4] + ("0000" if url[-4:] != "0000" else "1111")
    elif changed == "none":
        url = url.partition("?")[0]
    data = {"oversize": data + b"x", "undersize": data[1:]}.get(changed, data)
    assert 400 <= send(url, data) < 500
    assert (bucket.received_bytes(KEY, 10), bucket.received_bytes(OTHER, 10)) == (0, 0)


def test_a_part_cannot_be_uploaded_as_another_part(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_module, "PART_BYTES", 5 * MIB)
    parts = bucket.begin_upload(KEY, 6 * MIB).parts
    swapped = parts[1].url.replace("partNumber=2", "partNumber=3")
    assert swapped != parts[1].url
    assert send(swapped, b"x" * MIB) in (403, 0)
    assert send(parts[1].url, b"x" * (MIB + 1)) in (403, 0)
    assert bucket.received_bytes(KEY, 6 * MIB) == 0


def test_signed_urls_expire_within_fifteen_minutes(bucket: Bucket) -> None:
    for url in (bucket.begin_upload(KEY, 1).parts[0].url, bucket.get_url(f"blobs/{'0' * 64}", "")):
        assert "X-Amz-Expires=900&" in url


def test_a_file_with_a_wrong_hash_is_rejected_and_can_be_sent_again(bucket: Bucket) -> None:
    put(bucket, KEY, b"x" * len(MODEL))
    with pytest.raises(InvalidResult, match="does not match its announced size or hash"):
        bucket.finalize(KEY, len(MODEL), digest(MODEL))
    assert bucket.list_names("blobs") == []
    put(bucket, KEY, MODEL)
    assert bucket.finalize(KEY, len(MODEL), digest(MODEL))


def test_a_blob_is_not_changed_by_an_address_that_is_still_good(bucket: Bucket, tmp_path: Path) -> None:
    address = bucket.begin_upload(KEY, len(MODEL)).parts[0].url
    send(address, MODEL)
    blob = bucket.finalize(KEY, len(MODEL))
    assert send(address, b"x" * len(MODEL)) == 200
    bucket.local_path(blob).unlink()
    assert bucket.path(f"blobs/{blob}").read_bytes() == MODEL


def test_a_file_that_changes_while_it_is_verified_is_not_stored(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = bucket.begin_upload(KEY, len(MODEL)).parts[0].url
    send(address, MODEL)
    copy = Bucket._copy
    monkeypatch.setattr(Bucket, "_copy", lambda *args: (send(address, b"x" * len(MODEL)), copy(*args)))
    with pytest.raises(StoreUnavailable):
        bucket.finalize(KEY, len(MODEL))
    assert bucket.list_names("blobs") == []


@pytest.mark.long
def test_copies_are_bounded_the_least_recently_used_goes_first(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_cache, "_IN_USE_NS", 0)
    bucket = Bucket(tmp_path, Signer(b"secret"), parse_bucket_url(url), 2 * MIB)
    blobs: list[str] = []
    for letter in (b"a", b"b", b"c"):
        put(bucket, KEY, letter * MIB)
        blobs.append(bucket.finalize(KEY, MIB))
        bucket.path(f"blobs/{blobs[0]}")
    names = {path.name for path in (tmp_path / "blobs").iterdir()}
    assert names == {blobs[0], blobs[2]}
    assert bucket.path(f"blobs/{blobs[1]}").read_bytes() == b"b" * MIB
    assert len(list((tmp_path / "blobs").iterdir())) == 2


def test_a_file_damaged_in_the_bucket_is_not_delivered(swift: Swift, bucket: Bucket) -> None:
    put(bucket, KEY, MODEL)
    blob = bucket.finalize(KEY, len(MODEL))
    bucket.local_path(blob).unlink()
    swift.client().put_object(Bucket=bucket.location.bucket, Key=f"runs/blobs/{blob}", Body=b"x")
    with pytest.raises(VisualprofError, match="is damaged in s3://"):
        bucket.path(f"blobs/{blob}")
    assert list(bucket.local_path(blob).parent.iterdir()) == []


def test_a_missing_file_is_not_found(bucket: Bucket) -> None:
    for act in (bucket.path, bucket.require):
        with pytest.raises(NotFound):
            act(f"blobs/{'0' * 64}")


@pytest.mark.parametrize("wrong", ["secret", "bucket", "none"])
def test_a_store_that_cannot_be_used_ends_the_start(
    swift: Swift, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    hints = {"secret": "are the bucket and the credentials right", "bucket": "make the bucket", "none": "AWS_PROFILE"}
    if wrong == "secret":
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    elif wrong == "none":
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    place = parse_bucket_url(url.replace("s3://", "s3://no-") if wrong == "bucket" else url)
    with pytest.raises(VisualprofError) as error:
        Bucket(tmp_path, Signer(b"secret"), place, 1)
    assert hints[wrong] in error.value.hint


# A queue whose files are in the bucket.


@pytest.fixture
def remote(url: str, tmp_path: Path) -> Iterator[JobService]:
    with opened(tmp_path / "runs", store=parse_bucket_url(url)) as remote:
        yield remote


def leased(remote: JobService) -> tuple[Any, Any, Any]:
    queue = remote.open()
    queue.jobs.submit(request("k"))
    agent = member(queue)
    lease = queue.leases.lease(agent, ["cpu"], 0)
    assert lease
    return agent, lease, queue.jobs.get(lease.job).task(lease.task)


def test_model_versions_are_stored_in_the_bucket(
    remote: JobService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also files of this machine; the copies here may go. Upkeep leaves them as long as the version is there."""
    monkeypatch.setattr(upkeep_module, "_MIN_LEFTOVER_AGE_S", -1)
    queue, path = remote.open(), small(tmp_path)
    ref = store_local_files(remote, None, {"small.onnx": path, "small.bin": path.with_name("small.bin")})
    model, version, _ = register_model(remote, Requester(), "small", ref, source=Origin())
    remove_leftovers(queue.database, queue.store, queue.results.partial_folder)
    for file in version.files:
        queue.store.local_path(file.sha256).unlink()
    assert [queue.blobs.path(file.sha256).stat().st_size for file in version.files] == [
        (tmp_path / file.path).stat().st_size for file in version.files
    ]
    queue.registry.delete(model.id, None, Requester())
    remove_leftovers(queue.database, queue.store, queue.results.partial_folder)
    for file in version.files:
        with pytest.raises(NotFound):
            queue.blobs.path(file.sha256)


def deliver(remote: JobService, task: Any, files: dict[str, bytes]) -> None:
    for way in remote.open().results.begin_uploads(task, [AnnouncedFile(**each) for each in announced(files)]):
        for part in way.parts:
            assert send(part.url, files[way.name]) == 200


def finish(remote: JobService, agent: Any, lease: Any, files: dict[str, bytes]) -> None:
    report = TaskReport("succeeded", None, None, None, [], list(files))
    remote.open().finalizer.finish(agent, lease.task, lease.lease, report)


def test_a_result_becomes_a_folder_of_the_log_directory(remote: JobService) -> None:
    agent, lease, task = leased(remote)
    assert all(file.url.startswith(bucket_of(remote).location.endpoint) for file in lease.files)
    assert fetched(lease.files[0].url) == (200, MODEL)
    files = result(lease.job, lease.task, **{"deep/trace.json": b"[1]", "log.txt": b""})
    deliver(remote, task, files)
    finish(remote, agent, lease, files)
    run = remote.root.path / lease.run
    values_by_name = {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert values_by_name == {**files, "net.onnx": MODEL}
    assert remote.open().store.list_names("incoming") == [], "what has been published is not kept twice"
    assert not list((remote.root.path / ".visualprof" / "results.partial").iterdir())


def test_a_result_that_differs_is_refused_and_sent_again(remote: JobService) -> None:
    agent, lease, task = leased(remote)
    files = result(lease.job, lease.task)
    deliver(remote, task, files)
    way = remote.open().results.begin_uploads(task, [AnnouncedFile("env.json", 2, digest(b"{}"))])[0]
    assert (way.have, way.parts) == (2, []), "it is there"
    store = bucket_of(remote)
    key = next(row["Key"] for row in objects(store) if row["Size"] == 2)
    store._client.put_object(Bucket=store.location.bucket, Key=key, Body=b"[]")
    with pytest.raises(InvalidResult, match=r"env.json differs from its sha256"):
        finish(remote, agent, lease, files)
    assert remote.open().jobs.get(lease.job).tasks[0].state == "running"
    deliver(remote, task, files)
    finish(remote, agent, lease, files)
    assert remote.open().jobs.get(lease.job).tasks[0].state == "succeeded"


def bucket_of(remote: JobService) -> Bucket:
    store = remote.open().store
    assert isinstance(store, Bucket)
    return store


def objects(store: Bucket) -> list[dict[str, Any]]:
    return store._list("list_objects_v2", "Contents", "runs/")


@pytest.mark.long
def test_a_backup_says_which_uploads_the_bucket_lacks(
    url: str, remote: JobService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["admin", "--data", str(remote.folder), "--store", url, "backup"]
    assert main([*command, str(tmp_path / "first")]) == 0
    assert "1 of 1 files are in s3://" in capsys.readouterr().out
    blob = upload(remote, b"another")
    bucket_of(remote).delete_blob(blob)
    assert main([*command, str(tmp_path / "second")]) == 1
    assert capsys.readouterr().err == f"missing: {blob}\n"


@pytest.mark.long
def test_a_partial_result_becomes_a_run_once_the_bucket_is_available(swift: Swift, remote: JobService) -> None:
    agent, lease, _ = leased(remote)
    queue = remote.open()
    queue.leases.save_point(agent, lease.task, lease.lease, 1, point())
    queue.store.local_path(lease.request.model.blob).unlink()
    swift.stop("proxy")
    queue.finalizer.finish(agent, lease.task, lease.lease, TaskReport("failed", "crashed", "it crashed", "see the log"))
    assert queue.jobs.get(lease.job).task(lease.task).run is None
    swift.start()
    queue.finalizer.recover_all()
    assert (remote.root.path / lease.run / "net.onnx").read_bytes() == MODEL


def test_keys_contain_no_user_names(remote: JobService) -> None:
    _, lease, task = leased(remote)
    deliver(remote, task, result(lease.job, lease.task, **{"secret name.txt": b"1"}))
    keys = " ".join(row["Key"] for row in objects(bucket_of(remote)))
    assert "secret" not in keys
    assert "net" not in keys


@pytest.mark.long
def test_while_the_store_is_down_nothing_is_lost(swift: Swift, url: str, remote: JobService) -> None:
    agent, lease, task = leased(remote)
    files = result(lease.job, lease.task)
    deliver(remote, task, files)
    swift.stop("proxy")
    with pytest.raises(
        StoreUnavailable, match=r"the store s3://bucket\d+/runs at http://127.0.0.1:\d+ does not answer"
    ) as error:
        finish(remote, agent, lease, files)
    assert error.value.status == 503, "an agent asks again"
    assert remote.open().jobs.get(lease.job).tasks[0].state == "running"
    assert not (remote.root.path / lease.run).exists()
    with contextlib.closing(JobService(remote.root, QueueSettings(store=parse_bucket_url(url)))) as other:
        assert other.open().jobs.get(lease.job).id == lease.job, "a server starts without it"
    swift.start()
    finish(remote, agent, lease, files)
    assert (remote.root.path / lease.run / "points.jsonl").read_bytes() == files["points.jsonl"]


def test_a_store_that_keeps_waiting_is_left_alone_for_as_long(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[float] = []
    exceptions: Any = importlib.import_module("botocore.exceptions")

    def silent(**_: Any) -> None:
        calls.append(time.monotonic())
        time.sleep(0.5)
        raise exceptions.ConnectTimeoutError(endpoint_url="x")

    monkeypatch.setattr(bucket._client, "head_object", silent)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            bucket.require(f"blobs/{'0' * 64}")
    assert len(calls) == 1, "pages do not wait for what the first has waited for"
    time.sleep(0.6)
    with pytest.raises(StoreUnavailable):
        bucket.require(f"blobs/{'0' * 64}")
    assert len(calls) == 2


def test_a_connection_that_breaks_is_the_stores_trouble(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    exceptions: Any = importlib.import_module("botocore.exceptions")

    def broken(**_: Any) -> None:
        raise exceptions.ConnectionClosedError(endpoint_url="x")

    monkeypatch.setattr(bucket._client, "head_object", broken)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        bucket.require(f"blobs/{'0' * 64}")


@pytest.mark.both_databases
def test_unused_objects_are_removed(remote: JobService, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = remote.open()
    store = bucket_of(remote)
    _, lease, task = leased(remote)
    deliver(remote, task, {"log.txt": b"of an attempt that runs"})
    unknown = upload(remote, b"another model")
    with queue.database.write() as connection:
        connection.execute(blobs.delete().where(blobs.c.sha256 == unknown))
    monkeypatch.setattr(s3_module, "PART_BYTES", 5 * MIB)
    store.begin_upload(KEY, 6 * MIB)
    put(store, OTHER, b"of nobody")
    awaited, _ = queue.pending_uploads.begin(None, "a.onnx", 4, "", False)
    put(store, awaited.key, b"mine")
    partial = remote.root.path / ".visualprof" / "results.partial"
    remove_leftovers(queue.database, store, partial)
    assert store.list_names("incoming") == sorted([task.attempt_name, awaited.id])
    assert unknown in store.list_names("blobs"), "it may be being uploaded"
    monkeypatch.setattr(upkeep_module, "_MIN_LEFTOVER_AGE_S", -60)
    remove_leftovers(queue.database, store, partial)
    assert store.list_names("blobs") == [lease.request.model.blob]
    assert store._list("list_multipart_uploads", "Uploads", "runs/incoming/") == []
    monkeypatch.setattr(upkeep_module, "UPLOAD_TIMEOUT_NS", 0)
    remove_leftovers(queue.database, store, partial)
    assert store.list_names("incoming") == [task.attempt_name], "what did not come in a day is given up"
