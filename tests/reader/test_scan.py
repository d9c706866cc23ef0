"""Recognizing profiles among files."""

from __future__ import annotations

import contextlib
import gzip
import os
import socket
import sys
from pathlib import Path

import pytest

from visualprof.errors import SourceError
from visualprof.reader.graph_capture.files import find_captures
from visualprof.reader.logdir.scan import LogFile, Problem, examine, roots, walk
from visualprof.reader.source import Source

EVENT = b'{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}'
KINETO = b'{"schemaVersion": 1, "traceEvents": [' + EVENT + b"]}"


def files(root: Path) -> list[str]:
    return sorted(item.file for item in walk(roots([root])[0]) if isinstance(item, LogFile))


def problems(root: Path) -> list[Problem]:
    return [item for item in walk(roots([root])[0]) if isinstance(item, Problem)]


def verdict(folder: Path, name: str, content: bytes) -> str:
    (folder / name).write_bytes(content)
    return next(
        examine(item).kind for item in walk(roots([folder])[0]) if isinstance(item, LogFile) and item.name == name
    )


@pytest.mark.parametrize("name", ["a.json", "unknown", "a.txt", "a.py", "odd.bin", "a.json.gz"])
def test_the_content_decides_not_the_name(tmp_path: Path, name: str) -> None:
    assert verdict(tmp_path, name, KINETO) == "profile"
    assert verdict(tmp_path, name, gzip.compress(KINETO)) == "profile"


@pytest.mark.parametrize("name", ["notes.json", "x.pt.trace.json.gz", "x.trace"])
def test_a_stranger_that_is_named_like_a_profile_is_mentioned(tmp_path: Path, name: str) -> None:
    assert verdict(tmp_path, name, b'{"hello": 1}') == "skipped"
    assert verdict(tmp_path, name, b"\x7fELF nonsense") == "skipped"


@pytest.mark.parametrize("name", ["train.py", "README.md", "model.pt", "a.log", "graph.svg", "m.onnx", "m.jsonl"])
def test_other_files_are_not_mentioned(tmp_path: Path, name: str) -> None:
    assert verdict(tmp_path, name, b"[1, 2]") == "other"
    assert verdict(tmp_path, name, b"\x80\x02 binary") == "other"
    assert verdict(tmp_path, name, b"") == "other"


@pytest.mark.parametrize("name", ["LICENSE", "events.out.tfevents", "data.gz"])
def test_files_that_do_not_start_like_json_are_not_mentioned(tmp_path: Path, name: str) -> None:
    assert verdict(tmp_path, name, b"plain text") == "other"
    assert verdict(tmp_path, name, gzip.compress(b"plain text")) == "other"


@pytest.mark.parametrize("content", [b"", b"  \n", b"\x00" * 100, b'{"schemaV', gzip.compress(b'{"schemaV', mtime=0)])
def test_a_file_too_short_to_recognize_is_growing(tmp_path: Path, content: bytes) -> None:
    assert verdict(tmp_path, "a.json", content) == "growing"


def test_a_truncated_gzip_file_without_content_is_growing(tmp_path: Path) -> None:
    assert verdict(tmp_path, "a.json.gz", gzip.compress(KINETO)[:12]) == "growing"


def test_hidden_and_unfinished_files_are_ignored(tmp_path: Path) -> None:
    for name in (
        ".hidden.json",
        "a.json.partial",
        "a.json.tmp",
        "a.json~",
        ".git/a.json",
        "up.partial/a.json",
        "ok.json",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(KINETO)
    assert files(tmp_path) == ["ok.json"]


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
def test_links_are_followed_once(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a.json").write_bytes(KINETO)
    (tmp_path / "run" / "loop").symlink_to(tmp_path)
    (tmp_path / "latest").symlink_to(tmp_path / "run")
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "dangling.json").symlink_to(tmp_path / "gone.json")
    assert files(tmp_path) == ["run/a.json"]
    assert problems(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
def test_links_out_of_the_folder_are_problems_unless_they_are_to_be_followed(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    (root / "run").mkdir(parents=True)
    (root / "run" / "a.json").write_bytes(KINETO)
    (tmp_path / "b.json").write_bytes(KINETO)
    for name, target in (("b.json", tmp_path / "b.json"), ("up", tmp_path), ("same", root / "run"), ("loop", "loop")):
        (root / name).symlink_to(target)
    (root / "proc").symlink_to("/proc")
    (root / "run" / "passwd.json").symlink_to("/etc/passwd")
    seen = list(walk(roots([root])[0]))
    assert [item.file for item in seen if isinstance(item, LogFile)] == ["run/a.json"]
    left = {item.file: item.error for item in seen if isinstance(item, Problem)}
    assert set(left) == {"b.json", "up", "proc", "run/passwd.json"}
    assert set(left.values()) == {"this link leads out of the log directory"}
    for name in ("proc", "up"):
        (root / name).unlink()
    followed = [item.file for item in walk(roots([root])[0], follow_outside=True) if isinstance(item, LogFile)]
    assert set(followed) == {"run/a.json", "b.json", "run/passwd.json"}


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
def test_names_that_are_not_utf_8_are_escaped_and_can_be_read(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/run\xff"
    os.mkdir(folder)
    for name in (b"a\xfe.json", "é.json".encode()):
        Path(os.fsdecode(folder + b"/" + name)).write_bytes(KINETO)
    found = [item for item in walk(roots([tmp_path])[0]) if isinstance(item, LogFile)]
    assert sorted(item.file for item in found) == [r"run\xff/a\xfe.json", r"run\xff/é.json"]
    for item in found:
        assert item.file.encode()
        assert examine(item).kind == "profile"


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
def test_a_link_may_lead_to_another_log_directory(tmp_path: Path) -> None:
    first, two = tmp_path / "one", tmp_path / "two"
    first.mkdir()
    (two / "run").mkdir(parents=True)
    (two / "run" / "a.json").write_bytes(KINETO)
    (first / "shared").symlink_to(two / "run")
    both = roots([first, two])
    assert [type(item) for item in walk(both[0])] == [Problem]
    assert [item.file for item in walk(both[0], others=both) if isinstance(item, LogFile)] == ["one/shared/a.json"]


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
def test_captures_behind_a_link_out_of_the_folder_are_not_read(tmp_path: Path) -> None:
    secret, run = tmp_path / "secret", tmp_path / "logs" / "run"
    for folder in (secret, run / "capture_traces"):
        folder.mkdir(parents=True)
        (folder / "bs_1_rank0.json").write_bytes(KINETO)
    (run / "trace.json").write_bytes(KINETO)
    assert [file.name for file in find_captures(run / "trace.json")] == ["bs_1_rank0.json"]
    (run / "capture_traces" / "bs_1_rank0.json").unlink()
    (run / "capture_traces").rmdir()
    (run / "capture_traces").symlink_to(secret)
    (run / "bs_2_rank0.json").symlink_to(secret / "bs_1_rank0.json")
    assert find_captures(run / "trace.json") == []


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes")
def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(tmp_path / "b.json"))
        (tmp_path / "c.json").symlink_to("/dev/zero")
        assert files(tmp_path) == []
        assert problems(tmp_path) != []  # the link
    with pytest.raises(SourceError, match="not a regular file"):
        Source(tmp_path / "a.json").head()
    with pytest.raises(SourceError, match="not a regular file"):
        Source("/dev/zero").head()


@pytest.mark.skipif(sys.platform != "linux", reason="names are text elsewhere")
def test_files_with_unusual_names_are_found(tmp_path: Path) -> None:
    names = ["<img src=x>.json", "数据.json", "tab\there.json", "not-utf8-\udcff.json"]
    for name in names:
        (tmp_path / name).write_bytes(KINETO)
    assert sorted(files(tmp_path)) == sorted([*names[:3], r"not-utf8-\xff.json"])


def test_a_missing_log_directory_is_a_problem_not_a_crash(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path / "gone")
    assert "No such file" in problem.error


@pytest.mark.skipif(
    sys.platform == "win32" or getattr(os, "geteuid", lambda: 1)() == 0, reason="root may read everything"
)
def test_an_unreadable_folder_is_named_and_hides_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked.json").write_bytes(KINETO)
    (tmp_path / "open.json").write_bytes(KINETO)
    (tmp_path / "locked").chmod(0)
    (tmp_path / "locked.json").chmod(0)
    try:
        assert [problem.file for problem in problems(tmp_path)] == ["locked"]
        values_by_name = {item.name: examine(item) for item in walk(roots([tmp_path])[0]) if isinstance(item, LogFile)}
        assert "Permission denied" in values_by_name["locked.json"].error
        assert values_by_name["open.json"].kind == "profile"
    finally:
        (tmp_path / "locked").chmod(0o700)


def test_a_single_file_may_be_the_log_directory(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(KINETO)
    assert files(tmp_path / "a.json") == ["a.json"]


def test_several_log_directories_are_distinguished_by_name(tmp_path: Path) -> None:
    paths = [tmp_path / "x" / "runs", tmp_path / "y" / "runs", tmp_path / "z"]
    assert [root.prefix for root in roots([*paths, paths[0]])] == ["runs", "runs-2", "z"]


def test_a_head_that_crashes_a_format_hides_no_other_file(tmp_path: Path) -> None:
    deep = b'{"traceEvents": ' + b"[" * 30_000
    assert verdict(tmp_path, "deep.json", deep) in ("profile", "skipped", "growing")
    assert verdict(tmp_path, "good.json", KINETO) == "profile"


def test_run_data_does_not_count_as_files_that_are_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(6):
        run = tmp_path / f"run{i}"
        run.mkdir()
        (run / "events.out.tfevents.1.host").write_bytes(b"x")
        (run / "config.yaml").write_bytes(b"x")
    monkeypatch.setattr("visualprof.reader.logdir.entry_count.MAX_ENTRIES", 6)
    assert len(files(tmp_path)) == 12
    assert problems(tmp_path) == []
    (tmp_path / "run0" / "notes.txt").write_bytes(b"x")
    assert [problem.error for problem in problems(tmp_path)] == ["over 6 files: the rest is not scanned"]
    monkeypatch.setattr("visualprof.reader.logdir.entry_count.MAX_ENTRIES", 200)
    monkeypatch.setattr("visualprof.reader.logdir.entry_count.MAX_RUN_DATA_ENTRIES", 10)
    assert [problem.error for problem in problems(tmp_path)] == ["over 10 files: the rest is not scanned"]
