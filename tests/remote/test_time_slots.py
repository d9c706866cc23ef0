"""Agents of one host measure in turns."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from visualprof.remote.agent.errors import StopRequested
from visualprof.remote.agent.machine.measuring_lock import hold_device


def test_two_agents_never_have_a_device_at_once(tmp_path: Path) -> None:
    inside, most = [0], [0]

    def measure() -> None:
        with hold_device("cpu", lambda: None, tmp_path):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            threading.Event().wait(0.05)
            inside[0] -= 1

    threads = [threading.Thread(target=measure) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join(10) for thread in threads]
    assert most == [1]


def test_waiting_is_reported_and_other_devices_are_free(tmp_path: Path) -> None:
    with hold_device("cpu", lambda: None, tmp_path) as first, hold_device("cuda:0", lambda: None, tmp_path) as other:
        assert max(first, other) < 0.2
        asked = iter([None, None])

        def give_up() -> None:
            if next(asked, "end") == "end":
                raise StopRequested

        with pytest.raises(StopRequested), hold_device("cpu", give_up, tmp_path):
            pytest.fail("somebody else has it")


def test_every_user_may_take_turns_but_not_write(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with hold_device("cuda:0", lambda: None, tmp_path):
            pass
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "visualprof-cuda_0.lock").stat().st_mode) == 0o444


def test_without_a_folder_no_task_waits(tmp_path: Path) -> None:
    with (
        hold_device("cpu", lambda: None, tmp_path / "none") as one,
        hold_device("cpu", lambda: None, tmp_path / "none") as other,
    ):
        assert max(one, other) < 0.2
