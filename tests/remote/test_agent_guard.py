"""One child: its limits, its end, its log."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import until
from tests.remote.agent_runs import ROOT, marked
from visualprof.remote.agent.machine.processes import MARK_VARIABLE, kill_marked, kill_orphan, read_start_ticks
from visualprof.remote.agent.work import child_process
from visualprof.remote.agent.work.child_process import CappedLog, Child


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CappedLog]:
    capped_log = CappedLog(tmp_path / "log.txt", 1000)
    yield capped_log
    capped_log.close()


def child(code: str, folder: Path, log: CappedLog, limits: str = "") -> Child:
    """A Python that sets the limits as a child does, and then runs the code."""
    main = ROOT / "visualprof/remote/agent/work/child_main.py"
    begin = f"import runpy; runpy.run_path({str(main)!r})['apply_limits']()\n"
    env = {MARK_VARIABLE: str(folder), "VISUALPROF_LIMITS": limits}
    return Child([sys.executable, "-I", "-c", begin + code], env, folder, log, str(folder))


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path, log: CappedLog) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); open('ready', 'w'); time.sleep(60)"
    deaf = child(code, tmp_path, log)
    until((tmp_path / "ready").exists)
    began = time.monotonic()
    deaf.terminate(0.5)
    assert 0.5 <= time.monotonic() - began < 8
    assert deaf.close() == (-signal.SIGKILL, "SIGKILL")


def test_a_child_may_tidy_up_on_sigterm(tmp_path: Path, log: CappedLog) -> None:
    code = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); open('ready', 'w'); time.sleep(60)"
    polite = child(code, tmp_path, log)
    until((tmp_path / "ready").exists)
    began = time.monotonic()
    polite.terminate(10)
    assert time.monotonic() - began < 9
    assert polite.close() == (7, "")


def test_a_descendant_that_holds_the_output_does_not_keep_the_agent(tmp_path: Path, log: CappedLog) -> None:
    code = (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],"
        " start_new_session=True)"
    )
    short = child(code, tmp_path, log)
    until(short.has_ended)
    began = time.monotonic()
    assert short.close() == (0, "")
    assert time.monotonic() - began < 20
    assert marked(tmp_path) == []


def test_the_limits_hold(tmp_path: Path, log: CappedLog) -> None:
    code = (
        "import resource as r; print([r.getrlimit(x)[0] for x in (r.RLIMIT_FSIZE, r.RLIMIT_CORE)], flush=True)\n"
        "with open('f', 'wb') as out: out.write(bytes(5000)); out.flush()"
    )
    limited = child(code, tmp_path, log, "FSIZE=4096 CORE=0")
    until(limited.has_ended)
    status, _ = limited.close()
    assert status == 1
    text = log.path.read_text()
    assert "[4096, 0]" in text
    assert "File too large" in text
    assert (tmp_path / "f").stat().st_size == 4096


def test_the_kernel_takes_a_child_before_its_agent(tmp_path: Path, log: CappedLog) -> None:
    running = child("open('ready', 'w'); import time; time.sleep(60)", tmp_path, log)
    until((tmp_path / "ready").exists)
    assert int(Path(f"/proc/{running.pid}/oom_score_adj").read_text()) == 500
    running.close()


def test_beyond_its_cap_a_log_takes_everything_and_keeps_nothing(tmp_path: Path) -> None:
    log = CappedLog(tmp_path / "log.txt", 10)
    for _ in range(3):
        log.write(b"12345678")
    log.close()
    assert log.path.read_bytes() == b"1234567812" + child_process.CUT_MARKER


def test_the_tail_is_the_last_lines(tmp_path: Path) -> None:
    log = CappedLog(tmp_path / "log.txt")
    log.write("".join(f"line {i}\n\n" for i in range(1000)).encode() + b"\xffhalf")
    assert log.tail(3) == "line 998\nline 999\n\ufffdhalf"
    log.close()


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"], env={MARK_VARIABLE: str(tmp_path)}, start_new_session=True)
    while MARK_VARIABLE not in psutil.Process(process.pid).environ():  # the kernel shows it a moment after the start
        time.sleep(0.001)
    yield process
    process.kill()
    process.wait()


def test_an_orphan_is_known_by_its_pid_and_start(tmp_path: Path, orphan: subprocess.Popen[bytes]) -> None:
    started = read_start_ticks(orphan.pid)
    assert started > 0
    kill_orphan(orphan.pid, started + 1, "another mark")
    time.sleep(0.1)
    assert orphan.poll() is None, "another process with that pid is left alone"
    kill_orphan(orphan.pid, started, "another mark")
    assert orphan.wait(5) == -signal.SIGKILL


def test_an_orphan_is_found_by_its_mark(tmp_path: Path, orphan: subprocess.Popen[bytes]) -> None:
    assert kill_marked(str(tmp_path)) >= 1
    assert orphan.wait(5) == -signal.SIGKILL


def test_no_other_process_has_the_marker() -> None:
    assert kill_marked("/nowhere/at-all") == 0
    assert psutil.Process().is_running()
