"""Recordings of torch by `profile`, made here and read back."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, json_of

torch = pytest.importorskip("torch")

from visualprof.capture import (  # noqa: E402
    OPERATOR,
    SHAPE_INFER,
    CaptureBusy,
    CaptureError,
    CaptureWarning,
    Options,
    begin,
    files,
    profile,
    session,
)
from visualprof.reader import Trace, read_trace  # noqa: E402
from visualprof.reader.logdir.layout import parse_run_path  # noqa: E402
from visualprof.reader.trace import Category  # noqa: E402
from visualprof.views import run_view, view  # noqa: E402

model = torch.nn.Linear(8, 8)


def work() -> None:
    model(torch.ones(4, 8)).sum().backward()


def train(folder: Path, count: int = 9, **options: Any) -> list[Path]:
    settings: dict[str, Any] = {"monitor": False, **options}
    with profile(folder, **settings) as p:
        for _ in range(count):
            work()
            p.step()
    return p.files()


def steps(path: Path) -> list[str]:
    trace = read_trace(path)
    return [trace.strings[n] for n in trace.steps.name]


def linears(trace: Trace) -> int:
    return sum(trace.strings[n] == "aten::linear" for n in trace.events.name[trace.events.category == Category.OP])


def script(folder: Path, *lines: str) -> subprocess.Popen[str]:
    """A training in a process of its own; `lines` stand in its loop of 50 steps, of which 3 to 40 are recorded."""
    body = "\n        ".join(lines)
    program = f"""
import os, sys, time, torch
from visualprof.capture import profile
model = torch.nn.Linear(8, 8)
with profile({str(folder)!r}, warmup=3, steps=38, monitor=False) as p:
    for i in range(50):
        model(torch.ones(4, 8)).sum().backward()
        {body}
        p.step()
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def test_the_steps_after_wait_and_warmup_are_recorded_with_their_numbers(tmp_path: Path) -> None:
    (path,) = train(tmp_path, wait=1, warmup=2, steps=4)
    assert steps(path) == ["3", "4", "5", "6"]
    assert linears(read_trace(path)) == 4


def test_repeats_are_files_of_their_own(tmp_path: Path) -> None:
    assert [steps(p) for p in train(tmp_path, 12, steps=2, repeat=2)] == [["2", "3"], ["6", "7"]]


def test_only_the_newest_files_stay(tmp_path: Path) -> None:
    recordings = train(tmp_path, 12, warmup=1, steps=1, repeat=0, max_files=2)
    assert [steps(p) for p in recordings] == [["9"], ["11"]]
    assert sorted(tmp_path.rglob("*.gz")) == sorted(recordings)


def test_an_incomplete_step_does_not_count(tmp_path: Path) -> None:
    (path,) = train(tmp_path, 4, warmup=1, steps=10)
    assert steps(path) == ["1", "2", "3"]
    assert linears(read_trace(path)) == 3
    assert json.loads(gzip.decompress(path.read_bytes()))["visualprof"]["steps"] == [1, 3]


def test_a_block_without_steps_is_one_step(tmp_path: Path) -> None:
    with profile(tmp_path, warmup=0, monitor=False) as p:
        work()
        work()
    (path,) = p.files()
    assert steps(path) == ["0"]
    assert linears(read_trace(path)) == 2


def test_each_call_of_a_decorated_function_is_a_step(tmp_path: Path) -> None:
    p = profile(tmp_path, warmup=1, steps=2, monitor=False)
    step = p(work)
    for _ in range(5):
        step()
    (path,) = p.files()
    assert steps(path) == ["1", "2"]


def test_a_decorated_function_that_marks_steps_is_the_whole(tmp_path: Path) -> None:
    p = profile(tmp_path, warmup=1, steps=10, monitor=False)

    @p
    def loop(count: int) -> int:
        for _ in range(count):
            work()
            p.step()
        return count

    assert loop(4) == 4
    assert [steps(f) for f in p.files()] == [["1", "2", "3"]]


def test_a_recording_started_by_the_last_step_is_canceled(tmp_path: Path) -> None:
    assert [steps(p) for p in train(tmp_path, 6, warmup=1, steps=2, repeat=0)] == [["1", "2"], ["4", "5"]]
    assert [steps(p) for p in train(tmp_path / "b", 5, warmup=1, steps=2, repeat=0)] == [["1", "2"], ["4"]]
    assert [steps(p) for p in train(tmp_path / "c", 4, warmup=1, steps=2, repeat=0)] == [["1", "2"]]


def test_a_recording_that_ended_in_the_warmup_is_a_warning(tmp_path: Path) -> None:
    with pytest.warns(CaptureWarning, match="2 of 5 steps before"):
        assert train(tmp_path, 2, warmup=5) == []


def test_an_exception_keeps_the_recording_and_propagates(tmp_path: Path) -> None:
    p = profile(tmp_path, warmup=0, steps=9, monitor=False)

    def fail() -> None:
        with p:
            work()
            p.step()
            work()
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        fail()
    (path,) = p.files()
    assert steps(path) == ["0"]
    assert linears(read_trace(path)) == 2
    assert session.state() is session.State.IDLE


def test_a_second_recording_is_rejected_and_the_first_continues(tmp_path: Path) -> None:
    with profile(tmp_path, warmup=0, steps=3, monitor=False) as p:
        with pytest.raises(CaptureBusy, match="is recording already"):
            profile(tmp_path / "b").__enter__()
        with pytest.raises(CaptureBusy):
            p.__enter__()
        for _ in range(3):
            work()
            p.step()
    assert [steps(f) for f in p.files()] == [["0", "1", "2"]]


def test_a_profile_can_be_entered_again(tmp_path: Path) -> None:
    p = profile(tmp_path, warmup=0, steps=1, monitor=False)
    names: list[str] = []
    for _ in range(2):
        with p:
            work()
        names += [f.name.partition(".")[2] for f in p.files()]
    assert names == ["step0.pt.trace.json.gz", "step0.1.pt.trace.json.gz"]


def test_threads_that_lived_before_are_recorded(tmp_path: Path) -> None:
    go, done = threading.Event(), threading.Event()

    def run() -> None:
        go.wait(30)
        torch.mm(torch.ones(4, 4), torch.ones(4, 4))
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    with profile(tmp_path, warmup=0, memory=False, monitor=False) as p:
        work()
        go.set()
        done.wait(30)
    thread.join()
    (path,) = p.files()
    trace = read_trace(path)
    assert "aten::mm" in {trace.strings[n] for n in trace.events.name}


def test_stop_from_another_thread_ends_with_the_next_step(tmp_path: Path) -> None:
    recording = begin(Options(tmp_path, steps=0, monitor=False), 7)
    work()
    thread = threading.Thread(target=recording.stop)
    thread.start()
    thread.join()
    assert recording.state is session.State.RECORDING
    assert not recording.step()
    path = recording.wait()
    assert path
    assert steps(path) == ["7"]


def test_a_step_of_another_thread_is_refused(tmp_path: Path) -> None:
    recording = begin(Options(tmp_path, monitor=False))
    errors: list[Exception] = []

    def step() -> None:
        try:
            recording.step()
        except CaptureError as error:
            errors.append(error)

    thread = threading.Thread(target=step)
    thread.start()
    thread.join()
    recording.stop()
    assert len(errors) == 1


def test_rank_and_host_are_in_name_and_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "VISUALPROF_RUN": "job 7"}.items():
        monkeypatch.setenv(name, value)
    (path,) = train(tmp_path)
    host = files.worker_of({}).host
    run_path = parse_run_path(path.parent.name, path.name)
    assert (run_path.run, run_path.rank, run_path.stamp) == ("job_7", 3, "step2")
    assert run_path.worker == f"rank3_{host}_{os.getpid()}"
    meta = read_trace(path).meta
    assert (meta.rank, meta.world_size, meta.host) == (3, 4, host)


def test_topics_unsupported_by_torch_give_a_warning(tmp_path: Path) -> None:
    with pytest.warns(CaptureWarning, match="torch cannot record SHAPE_INFER"):
        train(tmp_path, topics=OPERATOR | SHAPE_INFER)


@pytest.mark.parametrize(("options", "has"), [({}, True), ({"topics": OPERATOR}, False), ({"memory": False}, False)])
def test_memory_is_recorded_when_asked_for(tmp_path: Path, options: dict[str, Any], has: bool) -> None:
    (path,) = train(tmp_path, **options)
    assert view("memory").needs(read_trace(path)) is has


def test_relative_times_have_no_date(tmp_path: Path) -> None:
    (path,) = train(tmp_path, align_time=False)
    assert read_trace(path).meta.clock_origin_ns == -1


def test_totals_equal_torchs_own_summary(tmp_path: Path) -> None:
    recording = begin(Options(tmp_path, steps=3, monitor=False))
    profiler: Any = vars(recording._recorder)["profiler"]
    for _ in range(3):
        work()
        recording.step()
    path = recording.wait()
    assert path
    table = json_of(view("operator").compute(read_trace(path), view("operator").parse({})))["columns"]
    ours = dict(zip(table["name"], table["calls"], strict=True))
    counts = {e.key: e.count for e in profiler.key_averages() if e.key.startswith("aten::")}
    assert {n: c for n, c in ours.items() if n.startswith("aten::")} == counts
    times = dict(zip(table["name"], table["host_total_ns"], strict=True))
    for e in profiler.key_averages():
        if e.key.startswith("aten::"):
            assert times[e.key] == pytest.approx(e.cpu_time_total * 1000, abs=1000 * e.count)


def test_graph_and_monitor_are_next_to_the_recording(tmp_path: Path) -> None:
    (path,) = train(tmp_path, monitor=True, model=model, inputs=torch.ones(4, 8))
    assert {p.name for p in path.parent.iterdir()} == {path.name, "Linear.graph.json", "monitor.jsonl"}
    monitor = read_trace(path.parent / "monitor.jsonl")
    assert monitor.meta.format == "monitor"
    assert {"RSS bytes", "child CPU %"} <= {t.name for t in monitor.tracks}
    assert not monitor.meta.warnings


@pytest.mark.parametrize("folder", ["file", "/proc/visualprof"])
def test_a_folder_that_cannot_be_written_is_an_error_on_entry(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CaptureError, match="cannot write into"):
        profile(tmp_path / folder).__enter__()
    assert session.state() is session.State.IDLE


def test_a_full_disk_gives_a_warning_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(path: Path) -> None:
        path.write_bytes(b'{"traceEvents": [{"name": "a"')

    recording = begin(Options(tmp_path, steps=1, monitor=False))
    monkeypatch.setattr(recording._recorder, "dump", cut)
    recording.step()
    with pytest.warns(CaptureWarning, match="cut after 29 bytes; is the disk full"):
        assert recording.wait() is None
    assert list(recording.folder.iterdir()) == []


def test_a_forked_child_records_nothing(tmp_path: Path) -> None:
    with profile(tmp_path, warmup=0, steps=2, repeat=2, monitor=False) as p:
        work()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            code = 1
            try:
                for _ in range(6):
                    p.step()
                p.__exit__(None, None, None)
                code = 0 if session.state() is session.State.IDLE else 2
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        p.step()
        work()
        p.step()
    (path,) = p.files()
    assert steps(path) == ["0", "1"]
    assert len(list(path.parent.iterdir())) == 1


def test_a_replacement_is_found_across_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, path = tmp_path / "raw", tmp_path / "t.json.gz"
    for size in range(1, 12):
        monkeypatch.setattr(files, "CHUNK", size)
        raw.write_text('{"a":"step#1","b":"step#12","c":"step#1"}\n')
        files.pack(raw, path, {"rank": 0}, (b'"step#1"', b'"stop 1"'))
        assert (
            gzip.decompress(path.read_bytes()) == b'{"a":"stop 1","b":"step#12","c":"stop 1","visualprof":{"rank":0}}'
        )


def test_a_list_of_events_becomes_an_object(tmp_path: Path) -> None:
    raw, path = tmp_path / "raw", tmp_path / "t.json.gz"
    raw.write_text('[{"ph":"X"}\n]\n')
    files.pack(raw, path, {"rank": 0}, None)
    assert json.loads(gzip.decompress(path.read_bytes())) == {"traceEvents": [{"ph": "X"}], "visualprof": {"rank": 0}}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code", "last"),
    [
        ("if i == 9: sys.exit(3)", 3, 8),
        ("if i == 9: [].pop()", 1, 8),
        ("if i == 9: torch.empty(1 << 60)", 1, 8),
        ("if i == 9: os.kill(os.getpid(), 15)", -signal.SIGTERM, 8),
        ("if i == 9: os._exit(5)", 5, None),
        ("if i == 9: os.abort()", -signal.SIGABRT, None),
        ("if i == 45: os._exit(5)", 5, 40),
    ],
)
def test_every_end_of_the_process_leaves_a_valid_file_or_no_file(
    tmp_path: Path, line: str, code: int, last: int | None
) -> None:
    with script(tmp_path, line) as child:
        assert child.wait(60) == code
    until = time.monotonic() + 20  # after os._exit the file is still being written
    while last == 40 and not list(tmp_path.rglob("*.json.gz")):
        assert time.monotonic() < until
        time.sleep(0.05)
    paths = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert [steps(p) for p in paths] == ([] if last is None else [[str(i) for i in range(3, last + 1)]])


@pytest.mark.long
@pytest.mark.slow
def test_a_write_that_fails_in_torch_itself_leaves_no_file(tmp_path: Path) -> None:
    """Torch says nothing of it: a limit of 4 KiB a file stands for a full disk."""
    limit = "if i == 1: import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
    with script(tmp_path, limit, "if i == 45: print(p.files(), flush=True)") as child:
        assert child.stdout
        assert child.stdout.read().strip() == "[]"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.slow
def test_sigterm_from_outside_leaves_a_valid_file(tmp_path: Path) -> None:
    with script(tmp_path, "time.sleep(0.05)", "if i == 6: print('on', flush=True)") as child:
        assert child.stdout
        child.stdout.readline()
        child.terminate()
        assert child.wait(60) == -signal.SIGTERM
    (path,) = tmp_path.rglob("*.gz")
    assert steps(path)[:2] == ["3", "4"]


def _decorated(folder: str) -> None:
    step = profile(folder, warmup=1, steps=9, monitor=False)(work)
    for _ in range(4):
        step()


def test_a_process_of_multiprocessing_ends_its_recording(tmp_path: Path) -> None:
    """It ends with `os._exit`; the last call was a whole step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(target=_decorated, args=(str(tmp_path),))
        child.start()
    child.join(60)
    (path,) = tmp_path.rglob("*.gz")
    assert steps(path) == ["1", "2", "3"]


@pytest.mark.long
@pytest.mark.slow
def test_workers_of_a_data_loader_leave_the_recording_alone(tmp_path: Path) -> None:
    program = f"""
import torch
from torch.utils.data import DataLoader
from visualprof.capture import profile
loader = DataLoader(list(range(40)), batch_size=4, num_workers=2)
with profile({str(tmp_path)!r}, warmup=0, steps=6, monitor=False) as p:
    for batch in loader:
        batch.float().sum()
        p.step()
"""
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    (path,) = tmp_path.rglob("*.gz")
    assert steps(path) == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.long
@pytest.mark.slow
def test_ranks_of_a_job_are_the_same_run_with_the_same_span(tmp_path: Path) -> None:
    program = f"""
import torch, torch.distributed as dist
from visualprof.capture import profile
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
with profile({str(tmp_path)!r}, warmup=1, steps=2) as p:
    for _ in range(4):
        model(torch.ones(4, 8)).sum().backward()
        p.step()
print(p.files()[0].name)
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(program)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", str(tmp_path / "train.py")]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=120)
    first, second = sorted(tmp_path.rglob("*.gz"))
    assert first.parent == second.parent
    assert {p.name for p in first.parent.iterdir()} == {first.name, second.name, "monitor.jsonl"}
    places = [parse_run_path("run", p.name) for p in (first, second)]
    assert [(p.rank, p.stamp) for p in places] == [(0, "step1"), (1, "step1")]
    assert [(read_trace(p).meta.rank, read_trace(p).meta.world_size) for p in (first, second)] == [(0, 2), (1, 2)]
    chosen = run_view("distributed")
    ranks = [(p.worker, read_trace(f)) for p, f in zip(places, (first, second), strict=True)]
    answer = json_of(chosen.compute_from_traces(ranks, chosen.parse({})))
    assert answer["missing_ranks"] == []
