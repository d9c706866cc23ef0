"""Hostile cases, settings and archives: a clear error, in time, within memory, and without paths of the server."""

from __future__ import annotations

import io
import random
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import hostile
import numpy as np
import pytest
from flask.testing import FlaskClient
from test_case_jobs_api import Site, folder_of

from tests.remote.case_sites import numpy_case
from visualprof.errors import BadParameter
from visualprof.reader.child import Failure, Limits, ReadFailed, read_or_fail
from visualprof.remote.cases.folder import parse_value, read_case
from visualprof.remote.cases.plain_yaml import parse_yaml
from visualprof.remote.protocol import TaskFailure
from visualprof.remote.queue.check import cases
from visualprof.remote.queue.errors import TooManyAttempts
from visualprof.server.user_slots import UserSlots

QUICK_S = 10.0  # on a busy machine; what these files are made for takes minutes


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    new_site = Site(tmp_path)
    yield new_site
    new_site.close()


def run_here(task: Callable[..., Any], path: str | Path, name: str = "", *_: object) -> Any:
    """Run a task as the separate process does, in this one: starting a process takes half a second."""
    outcome = read_or_fail(str(path), name or Path(path).name, task, lambda _: None)
    if isinstance(outcome, Failure):
        raise ReadFailed(outcome)
    return outcome


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visualprof.remote.queue.check.cases.run_in_child", run_here)
    monkeypatch.setattr("visualprof.reader.child.run_in_child", run_here)


def check_answer(answer: Any, tmp_path: Path) -> None:
    """A success, or an error with a text that names nothing of the server."""
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        body = answer.get_json()
        assert body["error"], body
        for secret in (str(tmp_path), "visualprof-case-", "Traceback", "/tmp/"):
            assert secret not in answer.text, answer.text
        assert len(answer.data) < 4000


def post_bytes(client: FlaskClient, name: str, data: bytes, part: bool = False) -> Any:
    return client.post(f"/api/v1/uploads?part={str(part).lower()}&name={name}", data=data)


def attack(site: Site, files: dict[str, bytes], seed: int, tmp_path: Path) -> None:
    """Send one mutation, of the kind that the seed chooses."""
    chance = random.Random(seed)
    kind = chance.randrange(4)
    began = time.monotonic()
    if kind <= 1:
        upload = post_bytes(site.client, "net.zip", hostile.case_zip(files, chance), part=True)
        check_answer(upload, tmp_path)
        if upload.status_code == 201:
            name = chance.choice(("net.zip", "x" * 5000, "../..", "", "é.zip", "\x00", "a/b\\c.zip"))
            sent = {"blob": upload.get_json()["blob"], "name": name}
            check_answer(site.client.post("/api/v1/cases/sent", json=sent), tmp_path)
            check_answer(site.client.post("/api/v1/cases/jobs", json={"sent": sent, "agents": [site.agent]}), tmp_path)
    elif kind == 2:
        settings = {
            chance.choice(("repeat", "compiler", "x", "é", "")): chance.choice(hostile.VALUES) for _ in range(3)
        }
        body = {"case": "digits", "agents": [site.agent], "settings": settings, "framework": "pytorch"}
        check_answer(site.client.post("/api/v1/cases/jobs", json=body), tmp_path)
    else:
        check_answer(
            post_bytes(site.client, chance.choice(("a.npz", "a.onnx", "a.pt")), hostile.array_zip(chance)), tmp_path
        )
    assert time.monotonic() - began < 10 * QUICK_S, seed


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_a_thousand_mutated_uploads_and_settings_are_accepted_or_refused(site: Site, tmp_path: Path) -> None:
    files = folder_of(numpy_case(tmp_path / "net"), "net/")
    for seed in range(1000):
        attack(site, files, seed, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_thirty_mutated_uploads_and_settings_are_accepted_or_refused(site: Site, tmp_path: Path) -> None:
    files = folder_of(numpy_case(tmp_path / "net"), "net/")
    for seed in range(5000, 5030):
        attack(site, files, seed, tmp_path)


@pytest.mark.parametrize("value", hostile.VALUES)
def test_an_odd_value_is_read_quickly_or_refused_in_a_setting_and_in_a_file(tmp_path: Path, value: str) -> None:
    began = time.monotonic()
    for read in (
        lambda: parse_value(value),
        lambda: read_case(numpy_case(tmp_path / "net", parameters=f"a: {value}\n")),
    ):
        with suppress(TaskFailure):
            read()
    assert time.monotonic() - began < QUICK_S


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:1:1", "1:1:1"),
        ("-1:59.5", "-1:59.5"),
        ("0x1F", 31),
        ("017", 15),
        ("1_000", 1000),
        ("0x_", "0x_"),
        ("2020-99-99", "2020-99-99"),
        ("2020-01-01", "2020-01-01"),
        ("4.12e9", "4.12e9"),
        ("1.5", 1.5),
        ("yes", True),
        ("~", None),
        ("[1, a]", [1, "a"]),
        ("a: [", "a: ["),
    ],
)
def test_settings_are_not_parsed_as_base_60_numbers_or_dates(text: str, value: object) -> None:
    read = parse_value(text)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    "text",
    ["1" * 5000, "0x" + "f" * 4000, "[" * 900, "[[[[[1]]]]]", "!!timestamp x", "!!int x", "x" * 5000, '"\\ud800"'],
)
def test_a_setting_beyond_the_limits_is_refused(site: Site, text: str) -> None:
    body = site.post("cases/jobs", 400, case="digits", framework="pytorch", agents=[site.agent], settings={"a": text})
    assert "cannot be used" in body["error"]
    assert body["hint"]


def test_long_settings_together_are_refused(site: Site) -> None:
    settings = {f"k{i}": "x" * 4000 for i in range(5)}
    assert "16,384" in site.post("cases/jobs", 400, case="digits", agents=[site.agent], settings=settings)["error"]


def test_values_in_base_60_take_time_linear_in_their_length() -> None:
    began = time.monotonic()
    assert parse_yaml("a: " + "1:" * 60_000 + "1") == {"a": "1:" * 60_000 + "1"}
    assert time.monotonic() - began < QUICK_S


def test_merge_keys_and_aliases_do_not_multiply(tmp_path: Path) -> None:
    lines = ["a0: &a0 {k: v}", *(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 12))]
    began = time.monotonic()
    with pytest.raises(TaskFailure, match="not a mapping of keys"):
        read_case(numpy_case(tmp_path / "merge", parameters="\n".join(lines)))
    text = "x" * 100_000
    with pytest.raises(TaskFailure, match="repeat too much text"):
        read_case(numpy_case(tmp_path / "text", parameters=f"a: &a {text}\nb: [{', '.join(['*a'] * 200)}]"))
    assert time.monotonic() - began < QUICK_S


def _zip(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def refused(site: Site, data: bytes, name: str = "net.zip") -> str:
    blob = post_bytes(site.client, "net.zip", data, part=True).get_json()["blob"]
    body = site.post("cases/sent", 400, blob=blob, name=name)
    assert "/tmp" not in body["error"]
    return body["error"]


@pytest.mark.usefixtures("in_process")
def test_names_that_no_disk_can_store_are_rejected(site: Site) -> None:
    assert "both a file and a folder" in refused(site, _zip({"net/a": b"", "net/a/b": b""}))
    assert "over 200 bytes" in refused(site, _zip({f"net/{'é' * 140}": b""}))
    not_utf8 = _zip({"net/aé": b""}).replace("é".encode(), b"\xff\xfe")
    assert "cannot be read" in refused(site, not_utf8)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.usefixtures("in_process")
def test_damaged_members_are_refused(site: Site, method: int) -> None:
    packed = bytearray(_zip({"net/a": random.Random(1).randbytes(2000)}, method))
    packed[60:200] = bytes(140)
    assert "cannot be read" in refused(site, bytes(packed))
    arrays = bytearray(_zip({"a.npy": random.Random(1).randbytes(2000)}, method))
    arrays[50:200] = bytes(150)
    answer = post_bytes(site.client, "a.npz", bytes(arrays))
    assert (answer.status_code, "damaged zip archive" in answer.text) == (422, True)


@pytest.mark.usefixtures("in_process")
def test_errors_in_a_case_name_its_files_without_folders_of_the_server(site: Site, tmp_path: Path) -> None:
    files = folder_of(numpy_case(tmp_path / "net"), "net/")
    error = refused(site, _zip(files | {"net/parameters.yaml": b"a: [1"}), "mine.zip")
    assert error.startswith("mine/net/parameters.yaml: while parsing")
    assert refused(site, _zip({"net/readme.txt": b""}), "mine.zip").startswith("mine/net is not a case")


@pytest.mark.slow
def test_a_large_requirements_file_is_refused_outside_of_the_server(site: Site, tmp_path: Path) -> None:
    files = folder_of(numpy_case(tmp_path / "net"), "net/") | {"net/requirements.txt": b"a\n" * (30 << 20)}
    assert "requirements.txt has over 256 KiB" in refused(site, _zip(files))


@pytest.mark.slow
def test_a_case_that_takes_too_long_is_refused(
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cases, "TIMEOUT_S", 0.0)
    monkeypatch.setattr(cases, "BYTES_PER_S", 1 << 30)
    assert "takes over 0" in refused(site, _zip(folder_of(numpy_case(tmp_path / "net"), "net/")))


@pytest.mark.slow
def test_a_case_that_needs_too_much_memory_is_refused(
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cases, "MEMORY_BYTES", 1 << 16)
    assert "memory" in refused(site, _zip(folder_of(numpy_case(tmp_path / "net"), "net/")))


def test_concurrent_file_reads_per_user_are_limited() -> None:
    slots = UserSlots(2)
    with slots.hold("ada"), slots.hold("ada"), slots.hold("eve"):
        with pytest.raises(TooManyAttempts, match="2 of your files") as refused, slots.hold("ada"):
            pass
        assert (refused.value.status, bool(refused.value.hint)) == (429, True)
    with slots.hold("ada"), slots.hold("ada"):
        pass


def test_the_third_case_of_a_user_at_once_is_refused(
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release, entered = threading.Event(), threading.Semaphore(0)

    def wait(*_: object) -> None:
        entered.release()
        release.wait(30)
        raise BadParameter("late")

    monkeypatch.setattr("visualprof.server.api.case_jobs.read_case_upload", wait)
    sent = site.send("net.zip", {"net/a": b""})
    threads = [threading.Thread(target=site.post, args=("cases/sent", 400), kwargs=sent) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert entered.acquire(timeout=30)
    assert "2 of your files" in site.post("cases/sent", 429, **sent)["error"]
    release.set()
    for thread in threads:
        thread.join()


def test_a_path_part_of_256_bytes_is_not_found(site: Site) -> None:
    for path in ("x" * 256, "a/" + "x" * 300 + "/b", "%00", "assets/" + "é" * 200 + ".js"):
        assert site.client.get(f"/{path}").status_code == 404


def test_limits_have_a_hint_of_their_own() -> None:
    assert Limits(1.0, 0, 0).hint
    assert Limits(1.0, 0, 0, "smaller").hint == "smaller"


@pytest.mark.slow
def test_the_server_process_opens_no_array_and_no_zip_that_a_user_sends(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only other processes may, so the functions that read these files fail in this one."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("the server reads an upload")

    array, archive = io.BytesIO(), io.BytesIO()
    np.save(array, np.zeros((2, 3), np.float32))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("x.npy", "y.npy"):
            file.writestr(name, array.getvalue())
    for name in ("zipfile.ZipFile", "zipfile.is_zipfile", "numpy.lib.format.read_array_header_1_0", "yaml.load"):
        monkeypatch.setattr(name, fail)
    assert post_bytes(site.client, "x.npy", array.getvalue()).status_code == 201
    answer = post_bytes(site.client, "x.npz", archive.getvalue())
    assert answer.status_code == 201, answer.text
    assert answer.get_json()["name"] == "x.npy"
    assert [part["name"] for part in answer.get_json()["others"]] == ["y.npy"]


ODD_ZIPS = list(hostile.odd_zips({"a": b"", "b": b""}))


@pytest.mark.parametrize("odd", ODD_ZIPS)
@pytest.mark.usefixtures("in_process")
def test_an_odd_zip_is_read_or_refused(site: Site, tmp_path: Path, odd: str) -> None:
    began = time.monotonic()
    array = io.BytesIO()
    np.save(array, np.zeros((2, 3), np.float32))
    arrays = {f"{name}.npy": array.getvalue() for name in "xy"}
    answer = post_bytes(site.client, "a.npz", hostile.odd_zips(arrays)[odd])
    check_answer(answer, tmp_path)
    case = folder_of(numpy_case(tmp_path / "net"), "net/")
    upload = post_bytes(site.client, "net.zip", hostile.odd_zips(case)[odd], part=True)
    check_answer(upload, tmp_path)
    sent = {"blob": upload.get_json()["blob"], "name": "net.zip"}
    answer = site.client.post("/api/v1/cases/sent", json=sent)
    check_answer(answer, tmp_path)
    assert (answer.status_code == 200) == (odd in ("zip64", "text in front", "more entries than there are")), (
        answer.text
    )
    assert time.monotonic() - began < 3 * QUICK_S
