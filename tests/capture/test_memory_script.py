"""Memory snapshots of unchanged scripts: a fake of torch with a GPU that runs out of memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

from tests.conftest import FIXTURES, ROOT
from visualprof.reader import read_trace

TORCH = """
import pickle, types
observers, pending, is_built = [], [], True
class Range:
    def __init__(self, name): self.name = name
    def __enter__(self): print("start", self.name)
    def __exit__(self, *error): print("end", self.name)
memory = types.SimpleNamespace(
    _record_memory_history=lambda **options: print("history", options["enabled"]),
    _snapshot=lambda: pickle.load(open(SNAPSHOT, "rb")),
)
cuda = types.SimpleNamespace(is_available=lambda: is_built, memory=memory, _lazy_call=pending.append)
backends = types.SimpleNamespace(cuda=types.SimpleNamespace(is_built=lambda: is_built))
autograd = types.SimpleNamespace(profiler=types.SimpleNamespace(record_function=Range))
_C = types.SimpleNamespace(_cuda_attach_out_of_memory_observer=observers.append)
def use_gpu():
    for call in pending: call()
"""
OPTIMIZER = """
hooks = []
register_optimizer_step_post_hook = hooks.append
class Adam:
    def step(self):
        for hook in hooks: hook(self, (), {})
"""
SCRIPT = """
import sys, torch
from torch.optim.optimizer import Adam
print("script", sys.argv[1:])
torch.use_gpu()
adam = Adam()
for _ in range(2): adam.step()
if "fail" in sys.argv:
    for observer in torch.observers: observer(0, 1, 2, 3)
    raise RuntimeError("CUDA out of memory")
sys.exit(7)
"""


class RunScript(Protocol):
    """Runs the script under `visualprof record --memory`."""

    def __call__(self, *arguments: str, gpu: bool = True) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def run(tmp_path: Path) -> RunScript:
    (tmp_path / "torch" / "optim").mkdir(parents=True)
    snapshot = FIXTURES / "memory_snapshots" / "train_oom.pickle"

    def call(*arguments: str, gpu: bool = True) -> subprocess.CompletedProcess[str]:
        fake = TORCH.replace("SNAPSHOT", repr(str(snapshot))).replace(
            "is_built = [], [], True", f"is_built = [], [], {gpu}"
        )
        (tmp_path / "torch" / "__init__.py").write_text(fake)
        (tmp_path / "torch" / "optim" / "__init__.py").write_text("")
        (tmp_path / "torch" / "optim" / "optimizer.py").write_text(OPTIMIZER)
        script = tmp_path / "train.py"
        script.write_text(SCRIPT)
        command = [sys.executable, "-m", "visualprof", "record", str(tmp_path / "runs"), "--run", "today", "--memory"]
        env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
        return subprocess.run([*command, str(script), *arguments], env=env, capture_output=True, text=True, check=False)

    return call


def test_a_script_runs_with_its_arguments_and_leaves_a_snapshot_with_its_steps(run: RunScript, tmp_path: Path) -> None:
    done = run("--epochs", "1")
    assert done.returncode == 7
    steps = [f"{word} ProfilerStep#{n}" for n in range(3) for word in ("start", "end")]
    assert done.stdout.splitlines() == [steps[0], "script ['--epochs', '1']", "history all", *steps[1:], "history None"]
    (path,) = (tmp_path / "runs" / "today").glob("*.pickle")
    assert read_trace(path).heap is not None
    assert str(path) in done.stderr


def test_a_failed_allocation_leaves_a_snapshot_of_its_moment(run: RunScript, tmp_path: Path) -> None:
    done = run("fail")
    assert done.returncode == 1
    assert "CUDA out of memory" in done.stderr
    names = sorted(path.name.partition(".")[2] for path in (tmp_path / "runs" / "today").iterdir())
    assert names == ["memory_snapshot.pickle", "oom.memory_snapshot.pickle"]


def test_without_a_gpu_the_script_runs_and_a_message_says_why_there_is_no_file(run: RunScript, tmp_path: Path) -> None:
    done = run(gpu=False)
    assert done.returncode == 7
    assert "memory snapshots need a GPU" in done.stderr
    assert "no memory snapshot was written" in done.stderr
    assert list((tmp_path / "runs" / "today").iterdir()) == []
