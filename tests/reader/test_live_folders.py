"""Runs that are live, or kept the times of their steps, are listed before anything of them is recorded."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest
from watchdog.events import FileCreatedEvent

from tests.live_files import heartbeat, series
from visualprof.errors import NotFound
from visualprof.reader.logdir.listing import RunIndex, new_span, scan_profiles
from visualprof.reader.logdir.run_extras import RunExtras, collect_extras
from visualprof.reader.logdir.scan import LiveFolder, LogFile, Root, Version, roots, walk
from visualprof.reader.logdir.watch import Watcher

ROOT = Root(Path("/logs"), "")


def found(folder: Path) -> dict[str, RunExtras]:
    return collect_extras(walk(roots([folder])[0]))


def test_a_run_is_named_by_its_folder(tmp_path: Path) -> None:
    heartbeat(tmp_path / "a" / "b", 0)
    series(tmp_path / "c", 1, [1])
    series(tmp_path / "a" / "b", 0, [1])
    heartbeat(tmp_path, 0)
    assert {run: (bool(extras.live), len(extras.series)) for run, extras in found(tmp_path).items()} == {
        "a/b": (True, 1),
        "c": (False, 1),
        ".": (True, 0),
    }
    several = [collect_extras(walk(root)) for root in roots([tmp_path, tmp_path / "c"])]
    assert [sorted(listing) for listing in several] == [
        sorted([tmp_path.name, f"{tmp_path.name}/a/b", f"{tmp_path.name}/c"]),
        ["c"],
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right")
def test_a_folder_outside_the_log_directory_is_not_live(tmp_path: Path) -> None:
    elsewhere, logs = tmp_path / "elsewhere", tmp_path / "logs"
    heartbeat(elsewhere / "run", 0)
    (logs / "linked").mkdir(parents=True)
    (logs / "linked" / ".live").symlink_to(elsewhere / "run" / ".live")
    (logs / "through").symlink_to(elsewhere)
    (logs / "file").mkdir()
    (logs / "file" / ".live").write_text("{}")
    assert found(logs) == {}
    # The log directory itself may be a link.
    (tmp_path / "logs2").symlink_to(elsewhere)
    assert list(found(tmp_path / "logs2")) == ["run"]


def test_other_hidden_folders_and_contents_of_live_folders_stay_hidden(tmp_path: Path) -> None:
    heartbeat(tmp_path / "run", 0)
    (tmp_path / "run" / ".other").mkdir()
    (tmp_path / "run" / ".live" / "trace.json").write_text('{"traceEvents": []}')
    assert [type(item) for item in walk(roots([tmp_path])[0])] == [LiveFolder]
    assert scan_profiles([tmp_path]).runs == ()


def test_a_run_is_listed_while_any_of_its_files_exists() -> None:
    runs, live = RunIndex(), RunExtras(ROOT, 7, "/logs/run/.live")
    span = new_span(
        LogFile(
            path="/logs/run/rank0.json",
            file="run/rank0.json",
            root=ROOT,
            folder="run",
            name="rank0.json",
            version=Version(1, 9, 1),
        )
    )
    start = runs.revision
    runs.set_extras({"run": live, ".": RunExtras(ROOT, 5, series=("/logs/w.steps.bin",))})
    assert [(run.id, run.name, run.workers, run.modified_ns) for run in runs.listing().runs] == [
        (".", "logs", (), 5),
        ("run", "run", (), 7),
    ]
    with pytest.raises(NotFound, match="no recording yet"):
        runs.listing().find("run")
    runs.set_span(span)
    assert [(run.id, len(run.workers), run.modified_ns) for run in runs.changes(start).runs if run.id == "run"] == [
        ("run", 1, 9)
    ]
    before = runs.revision
    runs.set_extras({"run": live})
    changes = runs.changes(before)
    assert (changes.runs, changes.removed) == ((), (".",))
    runs.drop(span)
    assert [run.workers for run in runs.listing().runs] == [()]
    before = runs.revision
    runs.set_extras({"run": live})
    assert runs.revision == before
    runs.set_extras({})
    assert (runs.listing().runs, runs.changes(before).removed) == ((), ("run",))


def test_a_new_listener_is_reported_and_its_heartbeats_are_not(tmp_path: Path) -> None:
    messages: list[str] = []
    for name in ("run/.live", "run/.live/rank0.json", "run/rank0.steps.bin", "run/.other", "run/rank0.json"):
        watcher = Watcher([tmp_path], partial(messages.append, name))
        watcher.on_any_event(FileCreatedEvent(str(tmp_path / name)))
    assert messages == ["run/.live", "run/rank0.json"]
