"""Processes that listen and are asked to record: torch, alone and as ranks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.capture.test_live import beat, put
from tests.conftest import ROOT

torch = pytest.importorskip("torch")

from visualprof import capture  # noqa: E402
from visualprof.capture import CaptureError, CaptureWarning, Options, live, notes, session  # noqa: E402
from visualprof.capture.ask import ask  # noqa: E402
from visualprof.capture.files import Worker  # noqa: E402
from visualprof.capture.live import Ack, Heartbeat, RecordingOptions, Request  # noqa: E402
from visualprof.capture.requests import NEVER, Place, RequestHandler  # noqa: E402
from visualprof.cli import main  # noqa: E402
from visualprof.reader import read_trace  # noqa: E402

model = torch.nn.Linear(8, 8)
OTHER = "rank1_far_6"


def work() -> None:
    model(torch.ones(4, 8)).sum().backward()


def steps(path: Path) -> list[str]:
    trace = read_trace(path)
    return [trace.strings[n] for n in trace.steps.name]


def until(found: Callable[[], Any], what: str = "", each: Callable[[], object] = lambda: time.sleep(0.02)) -> Any:
    """Return the first true result within a minute; call `each` in every round."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if value := found():
            return value
        each()
    raise AssertionError(what or "it did not come to that")


# A rank of two, of which the other is written by hand


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[RequestHandler]:
    place = Place(Worker(0, 2, "near", 7), tmp_path / "run", "torch", [], "")
    (place.folder / live.FOLDER).mkdir(parents=True)
    asked = RequestHandler(Options(tmp_path, run="run", monitor=False), place)
    yield asked
    asked.end(0)
    assert session.state() is session.State.IDLE


def wanted(count: int = 2, by: str = "page") -> Request:
    now = time.time_ns()
    workers = ["rank0_near_7", OTHER]
    return Request(
        id="a1",
        by=by,
        count=count,
        options=RecordingOptions().options,
        workers=workers,
        starts=[10, 20],
        read_by=[8, 15],
        t_ns=now,
        expires_ns=now + 60 * 10**9,
    )


def other(tmp_path: Path, step: int, state: str = "armed") -> None:
    put(tmp_path / "run", Ack("a1", state, step), worker=OTHER)


def drive(rank: RequestHandler, first: int, last: int) -> None:
    for count in range(first, last + 1):
        work()
        if count >= rank.wake(count - 1):
            rank.step(count)


def said(tmp_path: Path) -> Ack:
    state_answer = live.answer(tmp_path / "run", wanted(), "rank0_near_7")
    assert state_answer
    return state_answer


def test_all_ranks_record_if_all_read_the_request_in_time(rank: RequestHandler, tmp_path: Path) -> None:
    rank.consider(wanted(), 8)
    assert (said(tmp_path).state, rank.wake(8)) == ("armed", 10)
    other(tmp_path, 7)
    drive(rank, 9, 12)
    until(lambda: rank.settle() or not rank.written)
    assert (said(tmp_path).state, said(tmp_path).first) == ("done", 10)
    assert steps(tmp_path / "run" / said(tmp_path).file) == ["10", "11"]
    assert list(rank.marks) == [(10, live.ASKED), (12, live.OVER)]
    assert rank.wake(12) == NEVER


def test_a_rank_that_reads_late_makes_all_wait_for_the_next_start(rank: RequestHandler, tmp_path: Path) -> None:
    rank.consider(wanted(), 5)
    other(tmp_path, 9)  # after step 8
    drive(rank, 6, 19)
    assert (said(tmp_path).state, rank.wake(19)) == ("armed", 20)
    drive(rank, 20, 20)
    assert (said(tmp_path).state, said(tmp_path).first) == ("recording", 20)


def test_a_late_process_takes_the_next_start_or_reports_it(rank: RequestHandler, tmp_path: Path) -> None:
    rank.consider(wanted(), 9)
    assert rank.wake(9) == 20
    rank.consider(replace(wanted(), id="a2"), 16)
    ack = live.answer(tmp_path / "run", replace(wanted(), id="a2"), "rank0_near_7")
    assert ack
    assert (ack.state, ack.why) == ("late", "it read the request after the last step to begin with")


def test_without_an_answer_no_rank_records(rank: RequestHandler, tmp_path: Path) -> None:
    rank.consider(wanted(), 5)
    drive(rank, 6, 30)
    assert (said(tmp_path).state, said(tmp_path).why) == ("late", f"{OTHER} did not answer in time")
    assert session.state() is session.State.IDLE


def test_a_rank_that_was_faster_and_is_done_has_recorded_with_it(rank: RequestHandler, tmp_path: Path) -> None:
    rank.consider(wanted(), 8)
    put(tmp_path / "run", Ack("a1", "done", 7, first=10, file="x.gz"), worker=OTHER)
    drive(rank, 9, 12)
    until(lambda: rank.settle() or not rank.written)
    assert (said(tmp_path).state, said(tmp_path).first) == ("done", 10)


def test_no_rank_records_if_one_rejects(rank: RequestHandler, tmp_path: Path) -> None:
    rank.consider(wanted(), 5)
    other(tmp_path, 5, "refused")
    drive(rank, 6, 10)
    assert (said(tmp_path).state, said(tmp_path).why) == ("late", f"{OTHER} cannot record with it")


def test_a_script_that_records_already_refuses(rank: RequestHandler, tmp_path: Path) -> None:
    with capture.profile(tmp_path / "own", warmup=1, monitor=False) as p:
        rank.consider(wanted(), 5)
        assert said(tmp_path).state == "refused"
        assert "a recording of this process is armed already" in said(tmp_path).why
        for _ in range(2):
            work()
            p.step()
    p.files()


def test_recordings_of_the_watch_are_marked(rank: RequestHandler) -> None:
    rank.consider(replace(wanted(by="watch"), starts=[], read_by=[]), 3)
    assert list(rank.marks) == [(3, live.NOTICED)]
    assert rank.state == "recording"


# A process that listens


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Callable[[], list[Heartbeat]]]:
    """Listens; gives what is to be seen of it."""
    listener = capture.listen(tmp_path, run="run", framework="torch", monitor=False)
    capture.step()
    yield lambda: live.beats(tmp_path / "run")
    listener.stop()


def stepping() -> None:
    work()
    capture.step()
    time.sleep(0.002)


def test_a_process_is_asked_and_records(listening: Callable[[], list[Heartbeat]], tmp_path: Path) -> None:
    (found,) = until(listening, each=stepping)
    assert (found.framework, found.pid, found.rank, found.state) == ("torch", os.getpid(), -1, "listening")
    assert found.can == ["memory", "shapes", "stacks"]
    asked = ask(tmp_path / "run", RecordingOptions(3, memory=False), "command")
    until(lambda: live.is_over(tmp_path / "run", asked), each=stepping)
    (turn,) = live.turns(tmp_path / "run", asked)
    assert turn.state == "done", turn
    assert len(steps(tmp_path / "run" / turn.file)) == 3
    assert not listening()[0].watches
    again = ask(tmp_path / "run", RecordingOptions(1), "command")
    until(lambda: live.is_over(tmp_path / "run", again), each=stepping)
    assert live.turns(tmp_path / "run", again)[0].state == "done"


def test_the_end_of_the_process_is_reported(listening: Callable[[], list[Heartbeat]], tmp_path: Path) -> None:
    until(listening, each=stepping)
    asked = ask(tmp_path / "run", RecordingOptions(50), "command")
    until(lambda: session.state() is session.State.RECORDING, each=stepping)
    capture.listen(tmp_path / "other", framework="torch").stop()  # takes the place of the first
    (turn,) = live.turns(tmp_path / "run", asked)
    assert turn.state == "done"
    assert listening()[0].state == "ended"
    with pytest.raises(CaptureError, match="no longer listen for requests"):
        ask(tmp_path / "run", RecordingOptions(), "command")


@pytest.mark.skipif(not hasattr(signal, "SIGUSR2"), reason="no such signal")
def test_a_signal_asks(listening: Callable[[], list[Heartbeat]], tmp_path: Path) -> None:
    assert signal.getsignal(signal.SIGUSR2) not in (signal.SIG_DFL, None)
    until(listening, each=stepping)
    os.kill(os.getpid(), signal.SIGUSR2)
    asked = until(lambda: live.request(tmp_path / "run"), each=stepping)
    assert asked.by == "signal"
    until(lambda: live.is_over(tmp_path / "run", asked), each=stepping)


def test_invalid_and_old_requests_are_reported(
    listening: Callable[[], list[Heartbeat]], tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    (found,) = until(listening, each=stepping)
    path = tmp_path / "run" / live.FOLDER / live.REQUEST
    warnings.simplefilter("always")

    def heard(text: str) -> Callable[[], bool]:
        return lambda: any(text in str(w.message) for w in list(recwarn))

    path.write_text("{}")
    until(heard("is no request that can be understood"), each=stepping)
    old = Request(
        id="a1",
        by="page",
        count=1,
        options=RecordingOptions().options,
        workers=[found.worker],
        starts=[],
        read_by=[],
        t_ns=0,
        expires_ns=1,
    )
    aside = path.with_name("aside")
    notes.write(aside, old)
    os.utime(aside, (time.time() - 60, time.time() - 60))  # by the clock of the disk
    aside.replace(path)
    until(heard("a request of page came too late"), each=stepping)
    notes.write(path, replace(old, id="a2", workers=["somebody_1"], expires_ns=1 << 62))
    notes.write(path, replace(old, id="a3", expires_ns=1 << 62))
    until(lambda: live.answer(tmp_path / "run", replace(old, id="a3"), found.worker), each=stepping)
    assert live.answer(tmp_path / "run", replace(old, id="a2"), found.worker) is None


def test_the_position_is_reported_if_no_step_ends(
    listening: Callable[[], list[Heartbeat]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(listening, each=stepping)
    assert listening()[0].at == ""
    monkeypatch.setattr(live, "SILENT_NS", 5 * 10**8)

    def evaluate() -> Heartbeat:
        return until(lambda: next((beat for beat in listening() if beat.at), None))

    value = evaluate()
    assert ", test_listen.py:" in value.at
    asked = ask(tmp_path / "run", RecordingOptions(), "command")
    (turn,) = live.turns(tmp_path / "run", asked, value.t_ns)
    assert (turn.state, turn.why) == ("hung", f"it is in {value.at}")


def test_a_forked_child_neither_listens_nor_speaks(listening: Callable[[], list[Heartbeat]], tmp_path: Path) -> None:
    until(listening, each=stepping)
    child = multiprocessing.get_context("fork").Process(target=lambda: [stepping() for _ in range(100)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    child.join()
    assert child.exitcode == 0
    (found,) = listening()
    assert (found.pid, found.state) == (os.getpid(), "listening")


def test_the_optimizer_marks_steps_until_the_script_does(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    listener = capture.listen(tmp_path, run="run", framework="torch", monitor=False)
    try:
        for _ in range(7):
            work()
            optimizer.step()
        (found,) = until(lambda: live.beats(tmp_path / "run"))
        assert found.step == 7
    finally:
        listener.stop()
    listener = capture.listen(tmp_path, run="own", framework="torch", monitor=False)
    try:
        for _ in range(5):
            optimizer.step()
            capture.step()
        (found,) = until(lambda: live.beats(tmp_path / "own"))
        assert found.step == 5
    finally:
        listener.stop()


def test_an_unwritable_log_directory_is_reported_first(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CaptureError, match="cannot write into"):
        capture.listen(tmp_path / "file")


def test_a_folder_that_fails_at_first_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from visualprof.capture import monitor_thread

    really, failures = os.lstat, [OSError(116, "Stale file handle")] * 2

    def stale(path: Any) -> os.stat_result:
        if str(path).endswith(live.REQUEST) and failures:
            raise failures.pop()
        return really(path)

    monkeypatch.setattr(monitor_thread.os, "lstat", stale)
    listener = capture.listen(tmp_path, run="run", framework="torch", monitor=False)
    with pytest.warns(CaptureWarning, match="Stale"):
        until(lambda: live.beats(tmp_path / "run"), each=stepping)
    listener.stop()


def test_an_unwritable_run_does_not_stop_training(tmp_path: Path) -> None:
    listener = capture.listen(tmp_path, run="run", framework="torch")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / live.FOLDER).touch()
    with pytest.warns(CaptureWarning):
        capture.step()
    capture.step()
    listener.stop()


SERVING = """
import multiprocessing, time
from visualprof import capture


def serve():
    capture.watch("runs")
    for _ in range(30):
        capture.step()
        time.sleep(0.02)


if __name__ == "__main__":
    PLACE
"""


@pytest.mark.parametrize(
    "place", ["serve()", "p = multiprocessing.get_context('spawn').Process(target=serve); p.start(); p.join()"]
)
def test_a_process_without_a_framework_is_listed_with_the_reason(tmp_path: Path, place: str) -> None:
    (tmp_path / "serve.py").write_text(SERVING.replace("PLACE", place))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "VISUALPROF_RUN": "run"}
    subprocess.run([sys.executable, "serve.py"], cwd=tmp_path, env=env, check=True)
    (found,) = live.beats(tmp_path / "runs" / "run")
    assert (found.framework, found.step, found.state, found.watches) == ("", 30, "ended", True)
    assert "no framework is imported yet" in found.problem
    assert len(list((tmp_path / "runs" / "run").glob("*.steps.bin"))) == 1


# Ranks

TRAINING = """
import sys, time, torch, torch.distributed as dist
from visualprof import capture
dist.init_process_group("gloo")
capture.listen("runs", monitor=False)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
"""


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Callable[[], list[Heartbeat]]]:
    """Two ranks that train until the test is over."""
    (tmp_path / "train.py").write_text(TRAINING)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d"]
    command += ["--rdzv-endpoint=localhost:0", "train.py"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        yield lambda: [b for run in live.folders(tmp_path / "runs") for b in live.beats(run) if b.fastest_ns]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.long
@pytest.mark.slow
def test_ranks_record_the_same_steps(
    ranks: Callable[[], list[Heartbeat]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beats = until(lambda: len(ranks()) == 2 and ranks(), (tmp_path / "log").read_text())
    assert main(["record", str(tmp_path / "runs"), "--steps", "3", "--no-memory", "--wait"]) == 0
    out = capsys.readouterr().out
    first, second = sorted(tmp_path.rglob("*.gz"))
    assert steps(first) == steps(second)
    assert len(steps(first)) == 3
    assert all(str(path) in out for path in (first, second))
    assert f"{beats[0].worker}: armed" in out
    os.kill(beats[1].pid, signal.SIGSTOP)  # it hangs, and with it the other
    stopped = ask(live.folders(tmp_path / "runs")[0], RecordingOptions(), "command")
    monkeypatch.setattr(live, "SILENT_NS", 2 * 10**9)
    turns = until(lambda: _named(tmp_path, stopped, "hung") or _named(tmp_path, stopped, "silent"))
    assert beats[1].worker in turns
    os.kill(beats[1].pid, signal.SIGKILL)
    until(lambda: beats[1].worker in _named(tmp_path, stopped, "ended"))


def _named(tmp_path: Path, asked: Request, state: str) -> list[str]:
    (run,) = live.folders(tmp_path / "runs")
    return [turn.worker for turn in live.turns(run, asked) if turn.state == state]


# The command, with processes that are written by hand


def test_the_command_names_ranks_that_cannot_record_or_have_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = time.time_ns()
    lively: dict[str, Any] = {"t_ns": now, "stepped_ns": now, "world_size": 3}
    assert main(["record", str(tmp_path)]) == 2
    assert "No process listens" in capsys.readouterr().err
    put(tmp_path / "a", beat(0, **lively | {"state": "ended"}))
    assert main(["record", str(tmp_path)]) == 2
    assert "rank0_far_5 the process ended" in capsys.readouterr().err
    put(tmp_path / "a", beat(0, **lively), beat(1, **lively | {"problem": "no framework is imported yet"}))
    assert main(["record", str(tmp_path), "--steps", "0"]) == 2
    assert main(["record", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "5 steps of 1 processes, from step 104 on at the earliest" in out
    assert "rank1_far_6: not asked: no framework is imported yet" in out
    assert "rank 2: does not listen" in out
    assert "rank 1:" not in out
    put(tmp_path / "b", beat(0, **lively))
    assert main(["record", str(tmp_path)]) == 2
    assert "2 runs listen" in capsys.readouterr().err
    assert main(["record", str(tmp_path), "--run", "a"]) == 2
    assert "5 steps are being recorded, asked for by command" in capsys.readouterr().err


def test_the_command_ends_with_the_outcome(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns()
    for rank in (0, 1):
        put(tmp_path, beat(rank, t_ns=now, stepped_ns=now))
    states = iter([("armed", "armed"), ("done", "recording"), ("done", "failed")])

    def later(_: float) -> None:
        asked = live.request(tmp_path)
        assert asked
        for rank, state in enumerate(next(states)):
            file = "a.gz" if state == "done" else ""
            put(
                tmp_path,
                Ack(asked.id, state, 3, file=file, why="" if file else "disk full"),
                worker=f"rank{rank}_far_{rank + 5}",
            )

    clock = SimpleNamespace(sleep=later, time_ns=time.time_ns)  # of the command: other threads sleep on
    monkeypatch.setattr("visualprof.cli.record.time", clock)
    assert main(["record", str(tmp_path), "--wait"]) == 1
    output = capsys.readouterr()
    assert f"rank0_far_5: {tmp_path / 'a.gz'}" in output.out
    assert "rank1_far_6: failed: disk full" in output.out
    assert output.err == "1 of 2 recorded\n"
