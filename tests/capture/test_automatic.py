"""Scripts that stay as they are: steps by the frameworks' own hooks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

torch = pytest.importorskip("torch")

from visualprof.capture import Topics, automatic, autowrap  # noqa: E402
from visualprof.capture.options import CaptureError  # noqa: E402
from visualprof.reader import read_trace  # noqa: E402
from visualprof.reader.trace import Category  # noqa: E402

TRAINING = """
import sys, torch
print(__name__, sys.argv[1:], sys.path[0])
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
other = torch.optim.Adam(torch.nn.Linear(2, 2).parameters())
for _ in range(10):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    other.step()
if "fail" in sys.argv:
    raise ValueError("of the script")
sys.exit(7)
"""


def capture(folder: Path, *arguments: str, code: str = TRAINING, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script under `python -m visualprof.capture`, with arguments that start with `--` before it."""
    script = folder / "train.py"
    script.write_text(code)
    options = ["-m", "visualprof.capture", "--logdir", str(folder / "runs"), "--no-monitor"]
    before = [a for a in arguments if a.startswith("--")]
    command = [sys.executable, *options, *before, str(script), *[a for a in arguments if a not in before]]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=folder)


def recorded(folder: Path) -> tuple[list[str], int]:
    """The steps of the only recording, and how many linear layers ran."""
    (path,) = folder.rglob("*.trace.json.gz")
    trace = read_trace(path)
    operators = trace.events.name[trace.events.category == Category.OP]
    return [trace.strings[n] for n in trace.steps.name], sum(trace.strings[n] == "aten::linear" for n in operators)


@pytest.mark.slow
def test_an_unchanged_script_is_recorded_with_its_own_arguments_and_status(tmp_path: Path) -> None:
    done = capture(tmp_path, "--steps=3", "--start=4", "a", "-b")
    assert done.returncode == 7
    assert done.stdout == f"__main__ ['a', '-b'] {tmp_path}\n"
    assert recorded(tmp_path) == (["4", "5", "6"], 3)  # the second optimizer is none of its steps
    assert "shows what it holds" in done.stderr


@pytest.mark.slow
def test_its_errors_are_shown_from_its_own_lines_on(tmp_path: Path) -> None:
    done = capture(tmp_path, "--start=8", "fail")
    assert done.returncode == 1
    assert not any(frame in done.stderr for frame in ("runpy", "capture/__main__.py"))
    assert all(part in done.stderr for part in (f'File "{tmp_path}/train.py"', "ValueError: of the script"))
    assert recorded(tmp_path) == (["8", "9"], 2)


@pytest.mark.slow
def test_too_few_steps_are_reported(tmp_path: Path) -> None:
    done = capture(tmp_path, "--start=20")
    assert done.returncode == 7
    assert "nothing was recorded: it begins with step 20, and fewer ended" in done.stderr
    assert not list(tmp_path.rglob("*.gz"))


@pytest.mark.slow
def test_a_script_without_an_optimizer_is_recorded_as_a_whole(tmp_path: Path) -> None:
    code = "import torch\nfor _ in range(3): torch.nn.Linear(8, 8)(torch.ones(4, 8))\n"
    assert capture(tmp_path, "--whole", code=code).returncode == 0
    assert recorded(tmp_path) == (["0"], 3)


@pytest.mark.long
@pytest.mark.slow
def test_all_steps_of_a_training_are_recorded_as_a_whole(tmp_path: Path) -> None:
    capture(tmp_path, "--whole")
    assert recorded(tmp_path) == ([str(n) for n in range(10)], 10)


@pytest.mark.slow
def test_runs_of_a_session_are_steps(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = ROOT / "visualprof/samples/models"
    path = next(model.rglob("*.onnx"), None)
    if path is None:
        pytest.skip("no sample model")
    code = f"""
import numpy, onnxruntime
session = onnxruntime.InferenceSession({str(path)!r})
feeds = {{i.name: numpy.ones([d if isinstance(d, int) else 1 for d in i.shape],
    numpy.float32 if "float" in i.type else numpy.int64) for i in session.get_inputs()}}
for _ in range(6): session.run(None, feeds)
"""
    done = capture(tmp_path, "--steps=2", code=code)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.rglob("*.profile.json.gz")
    assert len(read_trace(path).steps.name) == 2


@pytest.mark.slow
def test_the_variable_records_and_the_setting_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from visualprof.capture import autowrap\nautowrap()\n" + TRAINING
    (tmp_path / "train.py").write_text(code)
    setting = f"{tmp_path}/runs:steps=2@5,monitor=0,topics=OPERATOR|SCOPE"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "VISUALPROF_CAPTURE": setting}
    subprocess.run([sys.executable, tmp_path / "train.py"], env=env, capture_output=True, check=False)
    assert recorded(tmp_path) == (["5", "6"], 2)
    monkeypatch.delenv("VISUALPROF_CAPTURE", raising=False)
    assert autowrap() is None
    for wrong in ("runs:color=1", "runs:steps=many", "runs:memory=2", "runs:topics=WIND"):
        with pytest.raises(CaptureError, match="is no option"):
            autowrap(wrong)
    with pytest.raises(CaptureError, match="the first step tells what to record"):
        autowrap("runs:steps=5@0")


def test_settings_of_paths_with_colons() -> None:
    assert automatic.parsed("C:/runs:steps=5@100,stacks=1") == (
        "C:/runs",
        {"steps": 5, "wait": 100, "warmup": 0, "stacks": True},
    )
    assert automatic.parsed("runs/to:day") == ("runs/to:day", {})
    assert automatic.topics("operator|sync") == Topics.OPERATOR | Topics.SYNC
