"""The index of files that an earlier server read."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from test_logdir import FakeParser, profile, summary

from visualprof.reader.cache import Cache
from visualprof.reader.logdir import directory
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.scan import LogFile, Verdict
from visualprof.reader.logdir.summary import Failure


class Server:
    """A log directory as one server sees it, with the states of its files."""

    def __init__(self, folder: Path) -> None:
        self.parser = FakeParser()
        self.logdir = LogDirectory([folder / "runs"], self.parser, Cache(folder / "cache"), events=False, settle_s=0)
        self.logdir.rescan()

    def states(self) -> dict[str, str]:
        runs = self.logdir.listing().runs
        return {s.log_file.file: s.state for run in runs for worker in run.workers for s in worker.spans}


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    then = time.time() - 100
    os.utime(path, (then, then))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three profiles, of which the second one is broken, and two other files, as a server left them."""
    for name in ("a", "b", "c"):
        write(tmp_path / "runs" / f"{name}.json", profile())
    write(tmp_path / "runs" / "notes.json", '{"hello": 1}')
    write(tmp_path / "runs" / "train.py", "print()")
    first = Server(tmp_path)
    first.parser.end("a.json", summary("fa"))
    first.parser.end("b.json", Failure("b.json: broken", "copy it again"))
    first.parser.end("c.json", summary("fc"))
    return tmp_path


def set_age(path: Path, age_s: float) -> None:
    then = time.time() - age_s
    os.utime(path, (then, then))


def test_files_read_by_an_earlier_server_are_ready_immediately(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(directory, "examine", lambda file: looked.append(file.name) or Verdict("other"))
    second = Server(folder)
    assert second.states() == {"a.json": "ready", "b.json": "failed", "c.json": "ready"}
    span = second.logdir.listing().find("a")
    assert (span.summary, span.format) == (summary("fa"), "kineto")
    assert [problem.file for problem in second.logdir.listing().skipped] == ["notes.json"]
    assert not looked
    assert not second.parser.waiting


def test_only_files_changed_meanwhile_are_read(folder: Path) -> None:
    write(folder / "runs" / "a.json", profile(2))
    write(folder / "runs" / "new.json", profile())
    (folder / "runs" / "c.json").unlink()
    second = Server(folder)
    assert sorted(second.parser.waiting.values()) == ["a.json", "new.json"]
    second.parser.end("a.json", summary("fa2"))
    third = Server(folder)
    assert third.states() == {"a.json": "ready", "b.json": "failed", "new.json": "waiting"}
    found = third.logdir.listing().find("a").summary
    assert found
    assert found.fingerprint == "fa2"


def test_a_trace_that_is_gone_from_the_cache_is_read_again(folder: Path) -> None:
    second = Server(folder)
    assert second.logdir.open(second.logdir.listing().find("a")) is None
    assert second.parser.hurried == ["a.json"]


def test_a_failure_not_caused_by_the_file_is_forgotten(folder: Path) -> None:
    write(folder / "runs" / "a.json", profile(2))
    Server(folder).parser.end("a.json", Failure("a.json: not enough memory", "", 500, "MemoryError"))
    assert list(Server(folder).parser.waiting.values()) == ["a.json"]


def test_a_line_cut_by_a_crash_costs_its_file_only(folder: Path) -> None:
    (path,) = (folder / "cache").glob("*.vpknown")
    lines = path.read_bytes().splitlines(keepends=True)
    whole = [line for line in lines if b"a.json" not in line]
    cut = next(line for line in lines if b"a.json" in line)[:-20]
    path.write_bytes(b"".join(whole) + cut)
    second = Server(folder)
    assert second.states() == {"a.json": "waiting", "b.json": "failed", "c.json": "ready"}


def test_lines_of_files_that_are_gone_do_not_pile_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visualprof.reader.logdir.file_index._MAX_STALE_LINES", 0)
    (path,) = (folder / "cache").glob("*.vpknown")
    for i in range(10):
        write(folder / "runs" / "a.json", profile(i + 2))
        Server(folder).parser.end("a.json", summary(f"f{i}"))
    assert len(path.read_bytes().splitlines()) <= 2 * 5 + 1
    assert Server(folder).states() == {"a.json": "ready", "b.json": "failed", "c.json": "ready"}


def test_entries_of_unused_folders_are_deleted(folder: Path) -> None:
    (index_file,) = (folder / "cache").glob("*.vpknown")
    for name, age_days in (("old", 61), ("recent", 59)):
        path = index_file.with_stem(name)
        path.write_bytes(index_file.read_bytes())
        set_age(path, age_days * 86400)
    set_age(index_file, 100 * 86400)
    Server(folder)
    assert {path.stem for path in index_file.parent.glob("*.vpknown")} == {index_file.stem, "recent"}


def test_a_cache_that_cannot_be_written_is_only_slower(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "a.json", profile())
    (tmp_path / "cache").write_text("a file in its place")
    for _ in range(2):
        server = Server(tmp_path)
        assert server.states() == {"a.json": "waiting"}
        server.parser.end("a.json", summary())
        assert server.states() == {"a.json": "ready"}


def test_a_name_that_is_not_utf8_is_looked_at_again(tmp_path: Path) -> None:
    name = os.fsdecode(b"odd\xff.json")
    try:
        write(tmp_path / "runs" / name, profile())
    except (OSError, UnicodeError):
        pytest.skip("a file system that has no such names")
    Server(tmp_path).parser.end(name)
    assert Server(tmp_path).states() == {r"odd\xff.json": "waiting"}


def test_files_are_looked_into_from_the_newest_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def look(file: LogFile) -> Verdict:
        looked.append(file.name)
        return Verdict("profile", "kineto")

    monkeypatch.setattr(directory, "examine", look)
    for age, name in ((300, "a.json"), (100, "b.json"), (200, "c.json")):
        write(tmp_path / "runs" / name, profile())
        set_age(tmp_path / "runs" / name, age)
    Server(tmp_path)
    assert looked == ["b.json", "c.json", "a.json"]
