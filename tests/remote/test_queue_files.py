"""Uploaded files, signed addresses, logs, and where nothing can be kept."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from queue_sites import MODEL, member, opened, request, tiny_disk, together, upload

from visualprof.errors import NotFound
from visualprof.reader.logdir.scan import Root
from visualprof.remote.queue.errors import DiskFull, InvalidSignature, PayloadTooLarge, UploadOffsetMismatch
from visualprof.remote.queue.service import JobService, JobServices
from visualprof.remote.queue.store import signing
from visualprof.remote.queue.store.files import Store
from visualprof.remote.queue.store.records import Task
from visualprof.remote.queue.store.signing import Signer
from visualprof.remote.queue.tasks import logs as logs_module

KEY = "incoming/job-0-1/" + "a" * 32
BLOB = "blobs/" + "0" * 64


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, Signer(b"secret"))


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[JobService]:
    with opened(tmp_path / "runs") as remote:
        yield remote


def read(data: bytes) -> io.BytesIO:
    return io.BytesIO(data)


def test_a_file_is_kept_under_its_content(store: Store) -> None:
    sha256, size = store.put(read(b"abc").read, 10)
    assert (sha256, size) == (hashlib.sha256(b"abc").hexdigest(), 3)
    assert store.path(f"blobs/{sha256}").read_bytes() == b"abc"


def test_the_same_content_is_kept_once(store: Store, tmp_path: Path) -> None:
    first = store.put(read(b"abc").read, 10)
    inode = store.path(f"blobs/{first[0]}").stat().st_ino
    assert store.put(read(b"abc").read, 10) == first
    assert [path.stat().st_ino for path in (tmp_path / "blobs").iterdir()] == [inode]


def test_a_kept_file_cannot_be_overwritten_by_accident(store: Store) -> None:
    sha256, _ = store.put(read(b"abc").read, 10)
    assert stat.S_IMODE(store.path(f"blobs/{sha256}").stat().st_mode) == 0o444


def test_a_too_large_file_leaves_nothing(store: Store, tmp_path: Path) -> None:
    with pytest.raises(PayloadTooLarge):
        store.put(read(b"x" * 11).read, 10)
    assert list((tmp_path / "blobs").iterdir()) == []


def test_a_file_whose_sender_disconnects_leaves_nothing(store: Store, tmp_path: Path) -> None:
    def gone(size: int) -> bytes:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        store.put(gone, 10)
    assert list((tmp_path / "blobs").iterdir()) == []


@pytest.mark.parametrize(
    "key", ["../secret", "blobs/../secret", "/etc/passwd", "blobs/abc", "incoming/../../x", "secret"]
)
def test_a_key_with_a_path_is_invalid(store: Store, key: str) -> None:
    for act in (store.path, store.require, partial(store.begin_upload, size=1), partial(store.received_bytes, size=1)):
        with pytest.raises(NotFound):
            act(key)
    with pytest.raises(NotFound):
        store.delete(key.replace("abc", ".."))


def test_bytes_are_added_at_the_end_alone(store: Store) -> None:
    store.begin_upload(KEY, 10)
    assert store.append(KEY, 0, read(b"abc").read, 10) == 3
    assert store.append(KEY, 3, read(b"de").read, 10) == 5
    for offset in (0, 4, 6):
        with pytest.raises(UploadOffsetMismatch) as refusal:
            store.append(KEY, offset, read(b"x").read, 10)
        assert refusal.value.size == 5
    assert store.path(KEY).read_bytes() == b"abcde"


def test_more_than_was_announced_is_not_kept(store: Store) -> None:
    store.begin_upload(KEY, 10)
    store.append(KEY, 0, read(b"abc").read, 5)
    with pytest.raises(PayloadTooLarge):
        store.append(KEY, 3, read(b"def").read, 5)
    assert store.received_bytes(KEY, 10) == 3


def test_nothing_is_appended_to_an_unexpected_file(store: Store, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        store.append(KEY, 0, read(b"abc").read, 5)
    assert not (tmp_path / "incoming").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from tiny_disk(tmp_path)


def test_a_full_disk_is_named_and_nothing_half_is_left(small_disk: Path) -> None:
    store = Store(small_disk, Signer(b"secret"))
    store.begin_upload(KEY, 10)
    store.append(KEY, 0, read(b"abc").read, 1 << 30)
    with pytest.raises(DiskFull, match="is full"):
        store.append(KEY, 3, read(b"x" * (2 << 20)).read, 1 << 30)
    assert store.received_bytes(KEY, 10) == 3
    with pytest.raises(DiskFull, match="is full"):
        store.put(read(b"x" * (2 << 20)).read, 1 << 30)
    assert list((small_disk / "blobs").iterdir()) == []


def test_a_database_without_space_is_named(small_disk: Path) -> None:
    remote = JobService(Root(small_disk, ""))
    upload(remote)
    queue = remote.open()
    (small_disk / "filler").write_bytes(b"x" * (512 << 10))

    def fill() -> None:
        for i in range(1000):
            queue.jobs.submit(request(str(i), dims={"n" * 190 + str(d): 1 for d in range(10)}))

    with pytest.raises(DiskFull, match="database cannot grow"):
        fill()
    (small_disk / "filler").unlink()
    assert queue.jobs.submit(request("later"))[1], "with space it goes on"
    remote.close()


def facts(url: str) -> tuple[str, dict[str, str]]:
    parts = urlsplit(url)
    return parts.path.removeprefix("/api/v1/agent/files/"), dict(parse_qsl(parts.query))


def test_a_signed_address_is_good_for_its_file_and_purpose(store: Store) -> None:
    signer = Signer(b"secret")
    key, query = facts(store.get_url(BLOB, "näme & co.onnx"))
    assert signer.verify_url("get", key, query)["name"] == "näme & co.onnx"


@pytest.mark.parametrize("changed", ["key", "purpose", "fact", "signature", "expires", "none", "secret"])
def test_a_changed_address_is_refused(store: Store, changed: str) -> None:
    signer, purpose = Signer(b"other" if changed == "secret" else b"secret"), "put"
    key, query = facts(store.begin_upload(KEY, 10).url)
    if changed == "key":
        key = key[:-1] + "b"
    elif changed == "purpose":
        purpose = "get"
    elif changed == "none":
        del query["signature"]
    else:
        name = {"fact": "size", "secret": "size"}.get(changed, changed)
        query[name] = {"fact": "99", "signature": "é" * 64, "expires": "9999999999"}.get(changed, query[name])
    with pytest.raises(InvalidSignature, match="not signed here"):
        signer.verify_url(purpose, key, query)


def test_an_old_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    signer = Signer(b"secret")
    key, query = facts(signer.sign_url("get", BLOB, 60))
    assert signer.verify_url("get", key, query)
    now = signing.time.time()
    monkeypatch.setattr(signing.time, "time", lambda: now + 61)
    with pytest.raises(InvalidSignature, match="too old"):
        signer.verify_url("get", key, query)


def test_inspection_results_are_stored(remote: JobService) -> None:
    blob = upload(remote)
    inspection = remote.inspection(blob)
    assert inspection
    assert inspection["format"] == "onnx"
    assert remote.open().blobs.path(blob).read_bytes() == MODEL
    assert remote.inspection("0" * 64) is None


def test_a_missing_file_has_no_path(remote: JobService) -> None:
    for blob in ("0" * 64, "../jobs.sqlite", ""):
        with pytest.raises(NotFound):
            remote.open().blobs.path(blob)


def test_secrets_are_for_their_owner_alone(remote: JobService) -> None:
    for name in ("secret", "agent-token"):
        assert stat.S_IMODE((remote.folder / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(remote.folder.stat().st_mode) == 0o700


def test_tokens_of_agents_are_not_in_the_database(remote: JobService) -> None:
    queue = remote.open()
    _, token = queue.agents.register("a", public=True, local=False, address="", capabilities=member(queue).capabilities)
    assert queue.agents.authenticate(token).name == "a"
    data = b"".join(path.read_bytes() for path in remote.folder.glob("jobs.sqlite*"))
    assert token.encode() not in data


def test_nothing_is_created_before_it_is_needed(tmp_path: Path) -> None:
    remote = JobService(Root(tmp_path, ""))
    assert remote.problem is None
    assert remote.open_existing() is None
    assert remote.agents() == []
    assert remote.inspection("0" * 64) is None
    remote.start()
    assert list(tmp_path.iterdir()) == []
    remote.close()


def test_the_displayed_token_is_the_stored_token(tmp_path: Path) -> None:
    remote = JobService(Root(tmp_path, ""))
    shown = remote.registration_token
    assert shown.startswith("vp_r_")
    remote.close()
    again = JobService(Root(tmp_path, ""))
    assert again.registration_token == shown, "also where nothing else was ever kept"
    upload(again)
    assert again.registration_token == shown
    again.close()


def test_a_new_registration_token_replaces_the_old_one_for_every_server(tmp_path: Path) -> None:
    remote, other = JobService(Root(tmp_path, "")), JobService(Root(tmp_path, ""))
    old = remote.registration_token
    remote.rotate_registration_token()
    assert remote.registration_token == other.registration_token != old
    file = tmp_path / ".visualprof" / "agent-token"
    assert (file.read_text(), file.stat().st_mode & 0o777) == (remote.registration_token, 0o600)
    remote.close()
    other.close()


def test_servers_that_start_simultaneously_share_a_token(tmp_path: Path) -> None:
    for number in range(20):
        remotes = [JobService(Root(tmp_path / f"{number}", "")) for _ in range(4)]
        tokens = set[str]()
        together(4, lambda i, remotes=remotes, tokens=tokens: tokens.add(remotes[i].registration_token))
        assert len(tokens) == 1
        assert "" not in tokens
        assert len(list((tmp_path / f"{number}" / ".visualprof").iterdir())) == 1, "nothing half-written stays"


def test_a_token_is_stored_on_a_disk_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    remote = JobService(Root(tmp_path, ""))
    assert remote.registration_token == JobService(Root(tmp_path, "")).registration_token != ""


def test_in_a_single_file_nothing_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "trace.json").touch()
    remote = JobService(Root(tmp_path / "trace.json", ""))
    assert remote.problem
    assert "single file" in remote.problem[0]
    remote.start()
    with pytest.raises(Exception, match="single file"):
        remote.open()


def test_a_read_only_server_reports_it(tmp_path: Path) -> None:
    remote = JobService(Root(tmp_path, ""), read_only=True)
    assert remote.problem
    assert "read-only" in remote.problem[0]
    with pytest.raises(Exception, match="read-only"):
        remote.open()


def test_a_folder_that_may_not_be_written_is_a_problem(tmp_path: Path) -> None:
    for folder in locked(tmp_path):
        problem = JobService(Root(folder, "")).problem
        assert problem
        assert "may not be written" in problem[0]


def locked(tmp_path: Path) -> Iterator[Path]:
    """A folder without the right to write; root gets a disk that is mounted read-only."""
    if os.geteuid() == 0:
        for folder in tiny_disk(tmp_path):
            subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
            yield folder
    else:
        tmp_path.chmod(0o500)
        yield tmp_path
        tmp_path.chmod(0o700)


def test_an_unusable_database_is_reported_and_does_not_stop_the_server(tmp_path: Path) -> None:
    (tmp_path / ".visualprof").mkdir()
    (tmp_path / ".visualprof" / "jobs.sqlite").write_bytes(b"nonsense" * 1000)
    remote = JobService(Root(tmp_path, ""))
    assert remote.open_existing() is None
    assert remote.problem
    assert "cannot be used" in remote.problem[0]
    (tmp_path / ".visualprof" / "jobs.sqlite").unlink()
    assert upload(remote), "once it is moved away it works again"
    assert remote.problem is None
    remote.close()


@pytest.fixture
def queue(remote: JobService) -> JobServices:
    return remote.open()


@pytest.fixture
def task(queue: JobServices) -> Task:
    job, _ = queue.jobs.submit(request("k"))
    assert queue.leases.lease(member(queue), ["cpu"], 0)
    return queue.jobs.get(job).tasks[0]


def test_a_log_grows_by_its_pieces(queue: JobServices, task: Task) -> None:
    assert queue.logs.append(task, 0, b"abc") == (3, False)
    assert queue.logs.append(task, 3, b"de") == (5, False)
    assert queue.logs.read(task, 1, 0) == (b"abcde", 0, 5)
    assert queue.jobs.get(task.job).tasks[0].log_bytes == 5


def test_a_piece_that_came_already_is_not_added_again(queue: JobServices, task: Task) -> None:
    queue.logs.append(task, 0, b"abc")
    assert queue.logs.append(task, 0, b"abc") == (3, False)
    assert queue.logs.append(task, 1, b"bcde") == (5, False)
    assert queue.logs.read(task, 1, 0)[0] == b"abcde"


def test_a_gap_in_a_log_is_refused(queue: JobServices, task: Task) -> None:
    queue.logs.append(task, 0, b"abc")
    with pytest.raises(UploadOffsetMismatch) as refusal:
        queue.logs.append(task, 4, b"e")
    assert refusal.value.size == 3


def test_a_log_has_an_end(queue: JobServices, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs_module, "MAX_LOG_BYTES", 10)
    assert queue.logs.append(task, 0, b"x" * 8) == (8, False)
    assert queue.logs.append(task, 8, b"y" * 8) == (10, True)
    assert queue.logs.append(task, 16, b"z" * 8) == (10, True)
    assert queue.logs.read(task, 1, 0)[0] == b"xxxxxxxxyy"
    stored_task = queue.jobs.get(task.job).tasks[0]
    assert (stored_task.log_bytes, stored_task.log_cut) == (10, 14)


def test_the_end_of_a_log_can_be_asked_for(queue: JobServices, task: Task) -> None:
    queue.logs.append(task, 0, b"0123456789")
    assert queue.logs.read(task, 1, -3) == (b"789", 7, 10)
    assert queue.logs.read(task, 1, -30) == (b"0123456789", 0, 10)
    assert queue.logs.read(task, 1, 4, 2) == (b"45", 4, 10)
    assert queue.logs.read(task, 1, 99) == (b"", 10, 10)


def test_a_log_of_an_attempt_that_never_was_is_not_found(queue: JobServices, task: Task) -> None:
    assert queue.logs.read(task, 0, 0) == (b"", 0, 0)
    with pytest.raises(NotFound):
        queue.logs.read(task, 2, 0)


@pytest.mark.skipif(os.name != "posix", reason="modes")
def test_stored_files_become_private_even_if_they_existed_before(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    data = tmp_path / "data"
    with opened(tmp_path / "runs", data=data) as remote:
        remote.registration_token  # noqa: B018  is written when it is shown
    for path in (data, *data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with opened(tmp_path / "runs", data=data):
        modes = {
            path.relative_to(data).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in (data, *data.iterdir())
        }
    assert modes["."] == modes["blobs"] == 0o700
    files = {name: mode for name, mode in modes.items() if name not in (".", "blobs")}
    assert {"jobs.sqlite", "jobs.sqlite-wal", "jobs.sqlite-shm", "secret", "agent-token"} <= files.keys()
    assert set(files.values()) == {0o600}


@pytest.mark.skipif(os.name != "posix", reason="modes")
def test_a_folder_of_everybodys_stays_open(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    everybodys = tmp_path / "tmp"
    everybodys.mkdir()
    everybodys.chmod(0o1777)
    with opened(tmp_path / "runs", data=everybodys):
        assert stat.S_IMODE(everybodys.stat().st_mode) == 0o1777
        assert stat.S_IMODE((everybodys / "jobs.sqlite").stat().st_mode) == 0o600
        assert stat.S_IMODE((everybodys / "blobs").stat().st_mode) == 0o700
