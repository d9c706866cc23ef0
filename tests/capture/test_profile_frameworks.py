"""Recordings of MegEngine and Paddle, made in their own interpreters and read back here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT, answer
from tests.remote.child_runs import megengine_python
from visualprof.capture import live
from visualprof.capture.ask import ask
from visualprof.reader import Trace, read_trace
from visualprof.reader.logdir.layout import parse_run_path
from visualprof.reader.trace import Category
from visualprof.views import view

pytestmark = pytest.mark.slow

MEGENGINE = """
import json, os, sys
import numpy as np
import megengine as mge, megengine.functional as F, megengine.module as M
from megengine.autodiff import GradManager
from megengine.optimizer import SGD
from visualprof.capture import *

class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.conv = M.Conv2d(1, 8, 3)
        self.fc = M.Linear(8 * 6 * 6, 10)

    def forward(self, x):
        return self.fc(F.flatten(F.relu(self.conv(x)), 1))

net = Net()
manager, optimizer = GradManager().attach(net.parameters()), SGD(net.parameters(), 0.1)
x = mge.Tensor(np.ones((4, 1, 8, 8), "float32"))

def work():
    with manager:
        manager.backward(net(x).sum())
    optimizer.step().clear_grad()
"""

PADDLE = """
import json, os, sys
import paddle
from visualprof.capture import *

net = paddle.nn.Sequential(paddle.nn.Linear(16, 16), paddle.nn.ReLU(), paddle.nn.Linear(16, 4))
optimizer = paddle.optimizer.SGD(0.1, parameters=net.parameters())
x = paddle.ones([4, 16])

def work():
    net(x).sum().backward()
    optimizer.step()
    optimizer.clear_grad()
"""

LOOP = """
with profile(sys.argv[1], warmup=2, steps=6, monitor=False) as p:
    for i in range(9):
        work()
        if i == 5: {middle}
        p.step()
"""


def paddle_python() -> str:
    """Return an interpreter with Paddle; skip the test without one."""
    python = os.environ.get("VISUALPROF_PADDLE_PYTHON") or sys.executable
    if subprocess.run([python, "-c", "import paddle"], capture_output=True, check=False).returncode:
        pytest.skip("needs Paddle; name a Python that has it in VISUALPROF_PADDLE_PYTHON")
    return python


def ran(python: str, program: str, *arguments: object, code: int = 0, cwd: Path | None = None) -> str:
    """Return the last line that a program prints."""
    command = [python, "-W", "ignore", "-c", program, *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, cwd=cwd, check=False)
    assert done.returncode == code, done.stderr[-3000:]
    return done.stdout.strip().rpartition("\n")[2]


def steps(path: Path) -> list[str]:
    trace = read_trace(path)
    return [trace.strings[n] for n in trace.steps.name]


def calls(trace: Trace, name: str, category: Category) -> int:
    named = np.array([s == name for s in trace.strings])[trace.events.name]
    return int((named & (trace.events.category == category)).sum())


@pytest.mark.long
@pytest.mark.parametrize(
    ("middle", "code", "last"),
    [
        ("pass", 0, 7),
        ("[].pop()", 1, 4),
        ("sys.exit(3)", 3, 4),
        ("os.kill(os.getpid(), 15)", -signal.SIGTERM, 4),
        ("os._exit(5)", 5, None),
    ],
)
@pytest.mark.parametrize("framework", ["megengine", "paddle"])
def test_every_end_of_the_process_leaves_a_valid_file_or_no_file(
    tmp_path: Path, framework: str, middle: str, code: int, last: int | None
) -> None:
    python, program = (megengine_python(), MEGENGINE) if framework == "megengine" else (paddle_python(), PADDLE)
    ran(python, program + LOOP.format(middle=middle), tmp_path / "log", code=code, cwd=tmp_path)
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [steps(path) for path in paths] == ([] if last is None else [[str(i) for i in range(2, last + 1)]])
    assert [path.name for path in tmp_path.iterdir()] == ["log"]  # nothing in the current folder


def test_megengine_is_recorded_repeatedly_with_the_options(tmp_path: Path) -> None:
    program = """
for options in ({}, {"topics": OPERATOR}, {"stacks": True}):
    with profile(sys.argv[1], warmup=1, steps=3, monitor=False, model=net, inputs=x, **options) as p:
        for _ in range(5):
            work()
            p.step()
    print(json.dumps([str(f) for f in p.files()]))
"""
    ran(megengine_python(), MEGENGINE + program, tmp_path)
    full, plain, stacks = (read_trace(p) for p in sorted(tmp_path.rglob("*.gz"), key=lambda p: p.stat().st_mtime_ns))
    for trace in (full, plain, stacks):
        assert [trace.strings[n] for n in trace.steps.name] == ["1", "2", "3"]
        assert trace.meta.clock_origin_ns > 10**18
        assert calls(trace, "Convolution", Category.KERNEL) == 3
        assert calls(trace, "ConvolutionBackwardFilterV2", Category.KERNEL) == 3
    assert "conv2d" in set(full.strings) - set(plain.strings)  # the scopes of functions
    assert "call_stack" in stacks.args
    assert not (plain.args.keys() & {"call_stack"})
    assert (next(tmp_path.iterdir()) / "Net.graph.json").exists()


def test_steps_of_a_megengine_recording_can_be_replayed(tmp_path: Path) -> None:
    program = """
net = M.Sequential(M.Conv2d(3, 16, 3), M.ReLU(), M.Conv2d(16, 32, 3), M.ReLU())
manager, optimizer = GradManager().attach(net.parameters()), SGD(net.parameters(), 0.1)
x = mge.Tensor(np.ones((8, 3, 32, 32), "float32"))
with profile(sys.argv[1], warmup=2, steps=4, monitor=False) as p:
    for _ in range(8):
        work()
        p.step()
"""
    ran(megengine_python(), MEGENGINE + program, tmp_path)
    (path,) = tmp_path.rglob("*.gz")
    step = answer("whatif", path, change="gpu*0.5")["step"]
    assert step["simulated_ns"] > 0, (
        "whether the replay is accurate depends on the machine: see tests/views/test_replay.py"
    )
    trace = read_trace(path)
    started = [name == "StartProfile" for name in trace.strings]
    (start_row,) = np.flatnonzero(np.array(started)[trace.events.name])
    assert trace.events.end[start_row] <= trace.steps.ts[0], "no step waits for the start of the profiler"


def test_megengine_keeps_twenty_steps_at_most(tmp_path: Path) -> None:
    program = """
import warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    with profile(sys.argv[1], warmup=0, steps=100, monitor=False) as p:
        for _ in range(22):
            work()
            p.step()
    p.files()
print(json.dumps([str(w.message) for w in told]))
"""
    (result,) = json.loads(ran(megengine_python(), MEGENGINE + program, tmp_path))
    assert result == "megengine holds all it records in memory: 20 steps are recorded"
    (path,) = tmp_path.rglob("*.gz")
    assert len(steps(path)) == 20


def test_a_static_profile_of_megengine_equals_its_own_analysis(tmp_path: Path) -> None:
    program = """
from megengine.jit import trace
from megengine.utils.profile_analyzer import ProfileAnalyzer, TimeFuncHelper

@trace(symbolic=True, profiling=True)
def forward(x):
    return net(x)

@trace(symbolic=True)
def unprofiled(x):
    return net(x)

path = profile_static(forward, x, sys.argv[1])
try:
    profile_static(unprofiled, x, sys.argv[1])
except CaptureError as error:
    refused = str(error)
import gzip
own = ProfileAnalyzer(json.loads(gzip.open(path).read()))
rows = own.select(TimeFuncHelper.eval_time_func("device", "end", np.max))
print(json.dumps([str(path), refused, {r.info["name"]: float(r.time) for r in rows}]))
"""
    path, refused, own_path = json.loads(ran(megengine_python(), MEGENGINE + program, tmp_path))
    assert "unprofiled has no profile" in refused
    assert parse_run_path("run", Path(path).name).worker == "forward"
    table = answer("profile", Path(path), top="0")["columns"]
    ours = dict(zip(table["name"], table["device_self_ns"], strict=True))
    assert {n: pytest.approx(t * 1e9, abs=1000) for n, t in own_path.items()} == ours


def test_a_graph_in_a_file_is_profiled(tmp_path: Path) -> None:
    program = """
from megengine.jit import trace

@trace(symbolic=True, capture_as_const=True)
def forward(x):
    return net(x)

forward(x)
forward.dump(sys.argv[1] + "/net.mge", arg_names=["data"], optimize_for_inference=False)
print(profile_static(sys.argv[1] + "/net.mge", {"data": np.ones((4, 1, 8, 8), "float32")}, sys.argv[1]))
"""
    path = Path(ran(megengine_python(), MEGENGINE + program, tmp_path))
    table = answer("profile", path, top="0")["columns"]
    assert table["type"].count("ConvolutionForward") == 1
    assert read_trace(path).meta.host


def test_paddles_own_summary_is_equal(tmp_path: Path) -> None:
    program = """
from paddle.profiler.profiler_statistic import StatisticData
recording = begin(Options(sys.argv[1], steps=3, monitor=False))
profiler = recording._recorder._profiler
for _ in range(3):
    work()
    recording.step()
path = recording.wait()
result = profiler.profiler_result
items = StatisticData(result.get_data(), result.get_extra_info()).event_summary.items
print(json.dumps([str(path), {name: [item.call, item.cpu_time] for name, item in items.items()}]))
"""
    path, own_path = json.loads(ran(paddle_python(), PADDLE + program, tmp_path, cwd=tmp_path))
    assert len(own_path) >= 5
    table = answer("operator", Path(path))["columns"]
    ours = {n: [c, t] for n, c, t in zip(table["name"], table["calls"], table["host_total_ns"], strict=True)}
    assert {name: ours[name][0] for name in own_path} == {name: count for name, (count, _) in own_path.items()}
    trace = read_trace(Path(path))
    span = int(trace.events.end.max() - trace.events.ts.min())
    for name, (count, total) in own_path.items():  # the file holds a start and an end, each a float of 24 bits
        assert ours[name][1] == pytest.approx(total, abs=2 * count * (1 + span / 2**24))
    assert view("memory").needs(trace)


def test_ranks_of_paddle_are_the_same_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"""
import sys, paddle
from visualprof.capture import profile
paddle.distributed.init_parallel_env()
net, x = paddle.DataParallel(paddle.nn.Linear(16, 4)), paddle.ones([4, 16])
with profile({str(tmp_path / "log")!r}, warmup=1, steps=2) as p:
    for _ in range(4):
        net(x).sum().backward()
        p.step()
p.files()
""")
    command = [paddle_python(), "-W", "ignore", "-m", "paddle.distributed.launch", "--nproc_per_node", "2"]
    command += ["--backend", "gloo", "--log_dir", str(tmp_path / "out"), str(tmp_path / "train.py")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=env, capture_output=True, timeout=120, check=True, cwd=tmp_path)
    first, second = sorted((tmp_path / "log").rglob("*.gz"))
    assert {p.name for p in first.parent.iterdir()} == {first.name, second.name, "monitor.jsonl"}
    metas: list[Any] = [read_trace(p).meta for p in (first, second)]
    assert [(m.rank, m.world_size) for m in metas] == [(0, 2), (1, 2)]


def test_a_model_of_paddle_is_recorded_by_its_callback(tmp_path: Path) -> None:
    program = """
from visualprof.capture.callbacks.paddle import StepProfiler
class Ones(paddle.io.Dataset):
    def __len__(self): return 32
    def __getitem__(self, i): return paddle.ones([16]).numpy(), paddle.ones([4]).numpy()
model = paddle.Model(net)
model.prepare(optimizer, paddle.nn.MSELoss())
recorded = StepProfiler(sys.argv[1], steps=3, monitor=False)
model.fit(Ones(), epochs=1, batch_size=4, shuffle=False, verbose=0, callbacks=[recorded])
print(json.dumps([str(path) for path in recorded._profile.files()]))
"""
    (path,) = json.loads(ran(paddle_python(), PADDLE + program, tmp_path / "log", cwd=tmp_path))
    assert steps(Path(path)) == ["2", "3", "4"]
    trace = read_trace(Path(path))
    assert calls(trace, "matmul dygraph", Category.OP) + calls(trace, "linear dygraph", Category.OP) >= 6
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_ranks_of_paddle_record_the_same_steps_when_asked(tmp_path: Path) -> None:
    python, folder = paddle_python(), tmp_path / "log"
    (tmp_path / "train.py").write_text(f"""
import time, paddle
from visualprof import capture
paddle.distributed.init_parallel_env()
net, x = paddle.DataParallel(paddle.nn.Linear(16, 4)), paddle.ones([4, 16])
optimizer = paddle.optimizer.SGD(0.1, parameters=net.parameters())
capture.listen({str(folder)!r}, run="job", monitor=False)
while True:
    net(x).sum().backward()
    optimizer.step()
    optimizer.clear_grad()
    time.sleep(0.01)
""")
    command = [python, "-W", "ignore", "-m", "paddle.distributed.launch", "--nproc_per_node", "2"]
    command += ["--backend", "gloo", "--log_dir", str(tmp_path / "out"), str(tmp_path / "train.py")]
    launcher = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path)
    try:
        run = folder / "job"
        until(lambda: len([beat for beat in live.beats(run) if beat.step > 5]) == 2)
        asked = ask(run, live.RecordingOptions(3), "command")
        until(lambda: live.is_over(run, asked))
        turns = live.turns(run, asked)
        assert [turn.state for turn in turns] == ["done", "done"], turns
        first, second = ({*steps(run / turn.file)} for turn in turns)
        assert first == second
        assert len(first) == 3
    finally:
        for beat in live.beats(folder / "job"):
            os.kill(beat.pid, signal.SIGKILL)
        launcher.kill()
        launcher.wait()


def until(found: Callable[[], object]) -> None:
    end = time.monotonic() + 90
    while not found():
        assert time.monotonic() < end
        time.sleep(0.2)


LOOPS = {
    "lightning": """
import lightning.pytorch as pl
from visualprof.capture.callbacks.lightning import StepProfiler
class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net
    def training_step(self, batch, _):
        return self.net(batch[0]).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
recorded = StepProfiler(sys.argv[1], steps=3, monitor=False)
trainer = pl.Trainer(max_epochs=1, callbacks=[recorded], logger=False, enable_checkpointing=False,
                     enable_progress_bar=False, enable_model_summary=False, accelerator="cpu")
trainer.fit(Module(), data)
""",
    "transformers": """
from transformers import Trainer, TrainingArguments
from visualprof.capture.callbacks.transformers import StepProfiler
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
    def forward(self, x, labels=None):
        return {"loss": self.net(x).sum()}
rows = [{"x": torch.ones(8), "labels": 0} for _ in range(32)]
recorded = StepProfiler(sys.argv[1], steps=3, monitor=False)
arguments = TrainingArguments(sys.argv[1] + "-out", per_device_train_batch_size=4, num_train_epochs=1, report_to=[],
                              save_strategy="no", use_cpu=True, remove_unused_columns=False, disable_tqdm=True)
Trainer(Model(), arguments, train_dataset=rows, callbacks=[recorded]).train()
""",
    "keras": """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
from visualprof.capture.callbacks.keras import StepProfiler
model = keras.Sequential([keras.layers.Dense(4)])
model.compile("sgd", "mse")
recorded = StepProfiler(sys.argv[1], steps=3, monitor=False)
model.fit(torch.ones(32, 8).numpy(), torch.ones(32, 4).numpy(), batch_size=4, verbose=0, callbacks=[recorded])
""",
}


@pytest.mark.long
@pytest.mark.parametrize("loop", LOOPS)
def test_the_loops_of_others_are_recorded_by_their_callbacks(tmp_path: Path, loop: str) -> None:
    python = os.environ.get("VISUALPROF_LOOPS_PYTHON") or sys.executable
    env = {**os.environ, "KERAS_BACKEND": "torch"}
    if subprocess.run([python, "-c", f"import torch, {loop}"], env=env, capture_output=True, check=False).returncode:
        pytest.skip(f"needs {loop}; name a Python that has it in VISUALPROF_LOOPS_PYTHON")
    program = """
import sys, torch
net = torch.nn.Linear(8, 4)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(32, 8)), batch_size=4)
"""
    program += LOOPS[loop] + "print(*recorded._profile.files())"
    path = Path(ran(python, program, tmp_path / "log", cwd=tmp_path))
    assert steps(path) == ["2", "3", "4"]
    trace = read_trace(path)
    assert sum(calls(trace, f"aten::{name}", Category.OP) for name in ("addmm", "linear", "matmul")) >= 3
