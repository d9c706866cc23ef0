"""Word of changes."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from visualprof.reader.logdir.watch import Watcher


def exhausted() -> BaseObserver:
    """An observer on a machine that has no file watches left."""

    class Exhausted(Observer):  # type: ignore[misc,valid-type]
        def start(self) -> None:
            raise OSError(errno.ENOSPC, "inotify watch limit reached")

    return Exhausted()


def test_a_change_in_a_new_folder_is_reported(tmp_path: Path) -> None:
    event = threading.Event()
    watcher = Watcher([tmp_path], event.set)
    if not watcher.start():
        pytest.skip("no file events here")
    try:
        (tmp_path / "new").mkdir()
        assert event.wait(10)
        event.clear()
        (tmp_path / "new" / "a.json").write_text("{}")
        assert event.wait(10)
    finally:
        watcher.stop()


def test_exhausted_watches_are_reported_without_raising(tmp_path: Path) -> None:
    watcher = Watcher([tmp_path], lambda: None, exhausted)
    assert not watcher.start()
    watcher.stop()


def test_a_missing_folder_is_reported_without_raising(tmp_path: Path) -> None:
    watcher = Watcher([tmp_path / "gone"], lambda: None)
    assert not watcher.start()
    watcher.stop()


def test_changes_in_hidden_folders_are_not_reported(tmp_path: Path) -> None:
    hidden = tmp_path / ".visualprof" / "incoming"
    hidden.mkdir(parents=True)
    event = threading.Event()
    watcher = Watcher([tmp_path], event.set)
    if not watcher.start():
        pytest.skip("no file events here")
    try:
        (hidden / "part").mkdir()
        (hidden / "part" / "a.json").write_text("{}")
        assert not event.wait(0.7)
        (hidden / "part").rename(tmp_path / "run")
        assert event.wait(10)
    finally:
        watcher.stop()
