"""Files that an attempt of a task stores on a machine for the next attempt."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from visualprof.remote.agent.state import StateFolder
from visualprof.remote.agent.work import resume_cache
from visualprof.remote.protocol import CaseRef, Lease, ModelRef, Request, Search, Spec

SEARCH, CASE, PLAIN = {"search": Search("latency")}, {"case": CaseRef("net", "cpu", "numpy")}, {}


def lease(attempt: int, asked: Mapping[str, object], task: str = "t/1") -> Lease:
    spec = Spec("s", "onnxruntime")
    request = Request("k", ModelRef("0" * 64, "m.onnx"), [spec], **asked)  # type: ignore[arg-type]
    return Lease(task=task, job="j", run="r", attempt=attempt, lease="l", spec=spec, request=request, files=[])


def left(state: StateFolder, attempt: int, **files: str) -> Path:
    """The result of an attempt, as its child left it."""
    out = state.work / f"1-{attempt}" / "box" / "out"
    for name, text in files.items():
        file = out / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return out


def found(state: StateFolder, attempt: int, asked: Mapping[str, object], tmp_path: Path) -> dict[str, str]:
    """Return the trials with which an attempt would start."""
    resume_cache.save(state, lease(attempt, asked))
    out = tmp_path / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    resume_cache.restore(state, lease(attempt, asked), out)
    return {item.relative_to(out).as_posix(): item.read_text() for item in out.rglob("*") if item.is_file()}


def test_a_retry_finds_the_trials_of_the_last_attempt(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "state")
    assert found(state, 2, SEARCH, tmp_path) == {}
    for attempt in (1, 2):
        left(state, attempt, **{"search.json": str(attempt), "other.bin": "x"})
    assert found(state, 1, SEARCH, tmp_path) == {"search.json": "1"}
    assert found(state, 3, SEARCH, tmp_path) == {"search.json": "2"}
    assert found(state, 2, PLAIN, tmp_path) == {}, "a job without a search has none"
    for name in ("1-1", "1-2"):
        shutil.rmtree(state.work / name)
    assert found(state, 2, SEARCH, tmp_path) == {"search.json": "2"}, "it was kept beside the folder that went"
    resume_cache.discard(state, lease(3, SEARCH))
    left(state, 2).mkdir(parents=True)
    (left(state, 2) / "search.json").symlink_to("/etc/passwd")
    assert found(state, 2, SEARCH, tmp_path) == {}, "a link that a child planted is not followed"


def test_a_further_attempt_of_a_case_finds_its_steps_and_their_files(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "state")
    out = left(state, 1, **{"steps__4.json": "{}", "onnxs__net.onnx": "model", "case.json": "{}"})
    (out / "evil").symlink_to("/etc")
    left(state, 2, log="nothing was done")
    assert found(state, 3, CASE, tmp_path) == {"steps/4.json": "{}", "onnxs/net.onnx": "model", "case.json": "{}"}


def test_only_the_latest_tasks_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume_cache, "MAX_TASKS", 2)
    state = StateFolder(tmp_path)
    for number in range(4):
        left(state, 1, steps__1=str(number))
        (state.work / "1-1").rename(state.work / f"{number}-1")
        resume_cache.save(state, lease(1, CASE, f"t/{number}"))
    assert sorted(folder.name for folder in state.work.glob("*-kept")) == ["2-kept", "3-kept"]
