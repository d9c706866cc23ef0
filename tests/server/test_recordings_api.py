"""Uploads of recordings become runs of the log directory."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sites import MakeSite, Site, kineto

from visualprof.reader.child import Failure, ReadFailed, read_or_fail
from visualprof.server.api import recordings


def run_here(task: Callable[..., Any], path: str | Path, name: str = "", *_: object) -> Any:
    """Run a task as the separate process does, in this one: starting a process takes half a second."""
    outcome = read_or_fail(str(path), name, task, lambda _: None)
    if isinstance(outcome, Failure):
        raise ReadFailed(outcome)
    return outcome


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visualprof.reader.logdir.uploads.run_in_child", run_here)


def upload(site: Site, name: str, content: str | bytes = "", run: str = "") -> Any:
    query = {"name": name, **({"run": run} if run else {})}
    return site.client.post("/api/v1/runs", query_string=query, data=content or kineto())


def files(site: Site) -> list[str]:
    """Every file below the log directory, hidden ones included, except those of the queue."""
    paths = (path.relative_to(site.folder) for path in site.folder.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in paths if path.parts[0] != ".visualprof")


def run_ids(site: Site) -> list[str]:
    return sorted(run["id"] for run in site.client.get("/api/v1/runs").get_json()["runs"])


def test_an_upload_is_checked_in_a_separate_process_and_becomes_a_run(make_site: MakeSite) -> None:
    site = make_site()
    answer = upload(site, "resnet50.v2.pt.trace.json.gz", gzip.compress(kineto().encode()))
    assert answer.status_code == 201, answer.get_json()
    file = "resnet50.v2/resnet50.v2.pt.trace.json.gz"
    assert answer.get_json() == {"run": "resnet50.v2", "file": file, "format": "kineto"}
    assert files(site) == [file]
    assert run_ids(site) == ["resnet50.v2"]
    assert site.client.get("/api/v1/view/overview?run=resnet50.v2").status_code == 200


@pytest.mark.usefixtures("in_process")
def test_further_ranks_are_added_to_the_run_of_an_upload(site: Site) -> None:
    run = upload(site, "rank0.json").get_json()["run"]
    assert upload(site, "rank1.json", run=run).get_json()["run"] == run
    assert len(run_ids(site)) == 2
    assert upload(site, "rank1.json", run=run).status_code == 409
    assert upload(site, "rank2.json", run="run").status_code == 404  # not created by an upload


@pytest.mark.usefixtures("in_process")
def test_a_name_is_taken_once(site: Site) -> None:
    assert upload(site, "a.json").status_code == 201
    again = upload(site, "a.json")
    assert (again.status_code, again.get_json()["error"]) == (409, "a exists already in the log directory")
    assert upload(site, "run.json").status_code == 409
    assert files(site) == ["a/a.json", "run/trace.json"]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("name", "content"),
    [("notes.txt", b"hello"), ("a.json", b"{"), ("a.json", b'{"a": 1}'), ("a.json.gz", b"\x1f\x8bno gzip")],
)
def test_a_file_that_is_no_recording_is_rejected_and_not_kept(site: Site, name: str, content: bytes) -> None:
    answer = upload(site, name, content)
    assert answer.status_code == 422
    body = answer.get_json()
    assert body["error"]
    assert body["hint"]
    assert str(site.folder) not in answer.text
    assert files(site) == ["run/trace.json"]


@pytest.mark.parametrize("name", ["", ".hidden.json", "a.partial", "..", "a\nb.json", "x" * 300])
def test_names_that_a_log_directory_would_not_show_are_rejected(site: Site, name: str) -> None:
    assert upload(site, name).status_code == 400
    assert files(site) == ["run/trace.json"]


@pytest.mark.usefixtures("in_process")
def test_folders_of_the_name_are_ignored(site: Site) -> None:
    assert upload(site, "../../etc/evil.json").get_json()["file"] == "evil/evil.json"
    assert upload(site, "C:\\runs\\other.json").get_json()["file"] == "other/other.json"


def test_a_file_over_the_limit_is_413(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "MAX_RECORDING_BYTES", 100)
    assert upload(site, "a.json").status_code == 413
    assert files(site) == ["run/trace.json"]


def test_a_read_only_server_takes_no_file(make_site: MakeSite) -> None:
    assert upload(make_site(read_only=True), "a.json").status_code == 403


def test_a_log_directory_that_cannot_be_written_is_an_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(recordings.tempfile, "TemporaryDirectory", refuse)
    answer = upload(site, "a.json")
    assert answer.status_code == 403
    assert answer.get_json()["error"] == "the server may not write into its log directory"


def test_a_server_of_a_single_file_takes_no_other(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    root = site.logdir.roots[0]
    monkeypatch.setattr(site.logdir, "roots", [type(root)(site.folder / "run" / "trace.json", "")])
    assert upload(site, "a.json").status_code == 409
