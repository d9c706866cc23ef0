"""Log directories at addresses: on a file system of fsspec, and in a bucket."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from benchmarks.kineto_file import write
from tests.conftest import until
from tests.models import chain, save
from tests.swift import Swift
from visualprof.cli import main
from visualprof.errors import BadParameter, NotReady, SourceError
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.addresses import open_store
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.pool import Pool
from visualprof.reader.logdir.remote_folder import RemoteFolder, file_size, local_copy
from visualprof.reader.logdir.scan import LogFile, Problem, Version
from visualprof.reader.source import is_address
from visualprof.server.parse import parse_into_cache

pytest.importorskip("fsspec", reason="needs pip install 'visualprof[cloud]'")


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """A folder that an address names, with two ranks of a run."""
    folder = tmp_path / "far"
    (folder / "train").mkdir(parents=True)
    for rank in range(2):
        write(folder / "train" / f"rank{rank}.json", 200, rank, 2, 40)
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """Whose folder temporary files go to, too."""
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return Cache(tmp_path / "cache")


def address_of(folder: Path) -> str:
    return f"file://{folder}"


def listed(folder: RemoteFolder) -> dict[str, LogFile]:
    return {item.file: item for item in folder.files() or () if isinstance(item, LogFile)}


@contextmanager
def directory(address: str, cache: Cache) -> Iterator[LogDirectory]:
    logdir = LogDirectory([address], Pool(partial(parse_into_cache, cache=cache), 1), cache, events=False, settle_s=0)
    try:
        yield logdir
    finally:
        logdir.close()


@pytest.mark.parametrize("text", ["runs", "/data/runs", "C:\\runs", "C:/runs", "s3:/bucket", "://x", "", "s3://"])
def test_a_path_is_not_an_address(text: str) -> None:
    assert not is_address(text)


@pytest.mark.parametrize("wrong", ["s3://bucket?key=1", "nosuch://x/y"])
def test_a_wrong_address_is_refused(wrong: str) -> None:
    with pytest.raises(BadParameter):
        open_store(wrong)


def test_remote_files_are_identified_by_their_first_bytes(far: Path, cache: Cache) -> None:
    (far / "empty.trace.json").touch()
    (far / "notes.txt").write_text("nothing")
    (far / ".hidden.json").write_text('{"traceEvents": []}')
    save(chain(["Relu"]), far / "net.onnx")
    (far / "big.pt.trace.json.gz").write_bytes(_long_profile())
    files = listed(RemoteFolder(address_of(far), cache.folder))
    kinds = {name: (file.verdict.kind, file.verdict.format) for name, file in files.items() if file.verdict}
    assert kinds == {
        "train/rank0.json": ("profile", "kineto"),
        "train/rank1.json": ("profile", "kineto"),
        "big.pt.trace.json.gz": ("profile", "kineto"),
        "empty.trace.json": ("growing", ""),
        "notes.txt": ("other", ""),
        "net.onnx": ("other", "onnx"),
    }
    assert not list((cache.folder / "addresses").rglob("*.onnx")), "heads are not kept"


def _long_profile() -> bytes:
    """Packed, over 1 MiB, of which the beginning is cut in the midst of a block."""
    noise = os.urandom(1 << 20).hex()
    text = json.dumps({"schemaVersion": 1, "traceEvents": [], "deviceProperties": [], "noise": noise})
    return gzip.compress(text.encode())


def test_a_file_is_parsed_on_request_and_its_copy_is_deleted(far: Path, cache: Cache, tmp_path: Path) -> None:
    with directory(address_of(far), cache) as logdir:
        logdir.rescan()
        assert [span.state for span in logdir.listing().runs[0].workers[0].spans] == ["waiting"]
        logdir.set_active_run("train")
        until(lambda: all(w.spans[0].state == "ready" for w in logdir.listing().runs[0].workers), 30)
        span = logdir.listing().runs[0].workers[0].spans[0]
        trace = logdir.open(span)
        assert trace is not None
        assert len(trace.events) > 100
    copies = [path for path in tmp_path.rglob("rank*.json") if far not in path.parents]
    assert copies == []


def test_a_model_is_copied_with_its_weights_when_it_is_opened(far: Path, cache: Cache) -> None:
    save(chain(["Relu"]), far / "net.onnx")
    (far / "net.onnx.data").write_bytes(b"weights")
    folder = RemoteFolder(address_of(far), cache.folder)
    folder.files()
    folder.ensure_local(str(folder.path / "net.onnx"))
    assert (folder.path / "net.onnx").read_bytes() == (far / "net.onnx").read_bytes()
    assert sorted(path.name for path in folder.path.iterdir()) == ["net.onnx", "net.onnx.data"]
    folder.ensure_local(str(folder.path / "elsewhere.onnx"))  # of another log directory


def test_results_of_jobs_are_identified_without_opening_them(far: Path, cache: Cache) -> None:
    (far / "job").mkdir()
    (far / "job" / "job.json").write_text("{}")
    folder = RemoteFolder(address_of(far), cache.folder)
    folder.files()
    assert (folder.path / "job" / "job.json").read_text() == "{}"


def test_changed_and_deleted_files_are_noticed(far: Path, cache: Cache) -> None:
    folder = RemoteFolder(address_of(far), cache.folder)
    before = listed(folder)
    write(far / "train" / "rank0.json", 300, 0, 2, 40)
    (far / "train" / "rank1.json").unlink()
    after = listed(folder)
    assert set(after) == {"train/rank0.json"}
    assert after["train/rank0.json"].version != before["train/rank0.json"].version
    assert listed(RemoteFolder(address_of(far), cache.folder)).keys() == after.keys()


def test_a_file_deleted_before_its_copy_is_reported(far: Path, cache: Cache) -> None:
    class Slow(RemoteFolder):
        def _copy(self, name: str, version: Version) -> None:
            (far / name).unlink()
            self.scan()
            super()._copy(name, version)

    folder = Slow(address_of(far), cache.folder)
    (path,) = (file.path for name, file in listed(folder).items() if name == "train/rank0.json")
    with pytest.raises(SourceError, match=r"rank0\.json cannot be read"):
        folder.ensure_local(path)


def test_captures_next_to_a_recording_are_copied_with_it(far: Path, cache: Cache) -> None:
    captures = far / "capture_traces"
    captures.mkdir()
    shutil.copy(far / "train" / "rank0.json", captures / "graph_capture_rank_0.json")
    folder = RemoteFolder(address_of(far), cache.folder)
    files = listed(folder)
    capture = files["capture_traces/graph_capture_rank_0.json"]
    assert capture.verdict is not None
    assert capture.verdict.kind == "other"
    stamps = {files[f"train/rank{rank}.json"].version.captures for rank in (0, 1)}
    assert 0 not in stamps
    with local_copy(str(folder.path / "train" / "rank0.json"), lambda _: None) as (path, _):
        assert [p.name for p in (Path(path).parents[1] / "capture_traces").iterdir()] == ["graph_capture_rank_0.json"]
        assert os.stat(path).st_mtime_ns == files["train/rank0.json"].version.mtime_ns
    assert not os.path.exists(path)


def test_a_file_that_grew_since_it_was_listed_is_not_treated_as_complete(far: Path, cache: Cache) -> None:
    folder = RemoteFolder(address_of(far), cache.folder)
    folder.files()
    path = str(folder.path / "train" / "rank0.json")
    assert file_size(path) == (far / "train" / "rank0.json").stat().st_size
    with (far / "train" / "rank0.json").open("a") as file:
        file.write(" ")
    with pytest.raises(SourceError, match="by now"), local_copy(path, lambda _: None):
        pass


def test_a_failing_address_keeps_its_files_and_reports_the_error(far: Path, cache: Cache) -> None:
    folder = RemoteFolder(address_of(far), cache.folder)
    folder.start()
    until(lambda: folder.files() is not None, 10)
    far.rename(far.with_name("away"))
    until(lambda: any(isinstance(item, Problem) for item in folder.files() or ()), 20)
    problems = [item for item in folder.files() or () if isinstance(item, Problem)]
    folder.close()
    assert len(listed(folder)) == 2
    assert "cannot be listed" in problems[0].error


def test_keys_that_lead_out_of_the_folder_are_left_out(far: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_store(address_of(far))
    names = ["a/../../x.json", "/etc/x.json", "a//b.json", "a\\..\\b.json", "nul\0.json", "fine.json"]
    monkeypatch.setattr(type(folder), "_entries", lambda _: [(name, 1, 0, "") for name in names])
    assert folder.list() == {"fine.json": Version(1, 0, folder.list()["fine.json"].inode)}


def test_a_large_download_is_asked_for_again(far: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visualprof.reader.logdir.remote_folder._COPY_WAIT_S", 0.0)
    folder = RemoteFolder(address_of(far), cache.folder)
    folder.files()
    path = folder.path / "train" / "rank0.json"
    try:
        folder.ensure_local(str(path))
    except NotReady:
        until(path.is_file, 10)
    folder.ensure_local(str(path))
    assert path.read_bytes() == (far / "train" / "rank0.json").read_bytes()


def test_index_reads_files_at_an_address(far: Path, cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", address_of(far), "--workers", "1", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["read"] == 2
    assert main(["index", address_of(far), "--workers", "1", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["known"] == 2


@pytest.mark.slow
def test_commands_take_a_run_at_an_address(far: Path, cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    answers: list[str] = []
    for path in (str(far / "train"), address_of(far / "train")):
        assert main(["view", "distributed", path, "--format", "json"]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]
    assert main(["view", "overview", address_of(far / "nothing")]) == 2


def test_index_says_that_an_address_cannot_be_listed(
    tmp_path: Path, cache: Cache, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", address_of(tmp_path / "nowhere")]) == 2
    assert "cannot be listed" in capsys.readouterr().err


@pytest.mark.slow
def test_a_bucket_is_a_log_directory(swift: Swift, far: Path, cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("obstore", reason="needs pip install 'visualprof[cloud]'")
    url = swift.new()
    for path in (far / "train").iterdir():
        swift.client().upload_file(str(path), url.split("/")[2], f"runs/train/{path.name}")
    assert main(["index", url, "--workers", "1", "--format", "json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["files"], first["read"], first["failed"], first["not_kept"]) == (2, 2, {}, 0)
    with directory(url, cache) as logdir:
        logdir.rescan()
        assert {w.spans[0].state for w in logdir.listing().runs[0].workers} == {"ready"}, "known from the cache"
    assert main(["index", url.replace("/runs?", "-other?")]) == 2
    assert "cannot be listed" in capsys.readouterr().err
