"""Background loops: a thread that fails is noticed, logged and started again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.conftest import until
from visualprof.reader.logdir.scan_scheduler import ScanScheduler
from visualprof.reader.logdir.watch import Watcher
from visualprof.supervised_thread import SupervisedThread


def test_a_loop_that_fails_is_logged_and_called_again(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def loop() -> None:
        calls.append(1)
        if len(calls) < 3:
            raise OverflowError("timeout value is too large")

    thread = SupervisedThread(loop, "sweeper", lambda: False, first_delay_s=0.01)
    thread.start()
    thread.join(10)
    assert len(calls) == 3
    assert [record.getMessage() for record in caplog.records] == [
        f"the thread sweeper failed and is restarted in {delay} s" for delay in (0.01, 0.02)
    ]


def test_a_loop_is_not_called_again_after_its_owner_was_closed() -> None:
    closed, calls = threading.Event(), list[int]()

    def loop() -> None:
        calls.append(1)
        raise ValueError

    thread = SupervisedThread(loop, "sweeper", closed.is_set, first_delay_s=60)
    thread.start()
    closed.set()
    thread.join(10)
    assert (len(calls), thread.is_alive()) == (1, False)


def test_scans_go_on_after_an_error_outside_of_a_scan() -> None:
    scans: list[int] = []

    def next_change_s() -> float:
        if len(scans) == 2:
            raise RuntimeError("dictionary changed size during iteration")
        return 0.01

    scheduler = ScanScheduler(lambda: scans.append(1) or 0.0, next_change_s, [], (0.01, 0.01))
    scheduler.start()
    until(lambda: len(scans) > 5)
    scheduler.close()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="file events of Linux")
def test_a_watch_that_ended_is_noticed(tmp_path: Path) -> None:
    watcher = Watcher([tmp_path], lambda: None)
    assert not watcher.is_alive()
    if not watcher.start():
        pytest.skip("no file events here")
    assert watcher.is_alive()
    assert watcher._observer
    for emitter in watcher._observer.emitters:
        emitter.stop()
        emitter.join(5)
    assert not watcher.is_alive()
    watcher.stop()
