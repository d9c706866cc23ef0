"""Operators of Paddle as calls, run by a fake Paddle, since few machines have the real one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recordings import recording_path
from visualprof.cli import main
from visualprof.errors import MissingData
from visualprof.remote.operators import Call, decode_call
from visualprof.remote.operators.script import script
from visualprof.server.operator_call import check_backend
from visualprof.server.recorded.paddle import recorded_call

TYPES = {"X": ["float32"], "Y": ["float32"]}
# Of Paddle: what the script uses, by numpy; an operator with an attribute, one that is unsafe, one that is no operator.
STAND_IN = """
import json, types, numpy
__version__ = "0.stand-in"
class device:
    is_compiled_with_cuda = staticmethod(lambda: False)
def set_device(name): pass
def to_tensor(values): return values
def matmul(x, y, transpose_x=False, transpose_y=False, name=None): return x @ y
def reshape(x, shape, name=None): return x.reshape(shape)
def load_combine(x): raise SystemExit("was called")
def summary(x): raise SystemExit("was called")
_C_ops = types.SimpleNamespace(matmul=1, reshape=1, load_combine=1)
nn = types.SimpleNamespace(functional=types.SimpleNamespace())
"""
PROFILER = """
import json
class ProfilerTarget: CPU = 1
class Profiler:
    def __init__(self, targets, on_trace_ready): self.ready = on_trace_ready
    def start(self): pass
    def stop(self): pass
    def export(self, path, format):
        events = [{"cat": "Operator", "dur": 3, "args": {"start_time": "1.000 us", "end_time": "4.250 us"}}, {}]
        open(path, "w").write(json.dumps({"traceEvents": events}))
"""


def call(name: str, shapes: object, types: object = None) -> Call:
    row = {"name": name, "node": "", "input_shapes": json.dumps(shapes), "input_types": json.dumps(types or {})}
    return recorded_call(row, {"calls": 2, "host_ns": 6500})


def run(folder: Path, made: Call) -> subprocess.CompletedProcess[str]:
    """The script of a call beside the stand-in."""
    package = folder / "paddle"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text(STAND_IN, "utf-8")
    (package / "profiler.py").write_text(PROFILER, "utf-8")
    (folder / "call.py").write_text(script(made), "utf-8")
    words = [sys.executable, str(folder / "call.py"), "--repeats", "5"]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)


def test_shapes_and_types_by_the_names_of_inputs() -> None:
    answer = call("matmul dygraph", {"X": [[8, 4]], "Y": [[4, 2], [4, 3]], "Z": []}, {"X": ["float16"]})
    first = {"shape": [8, 4], "strides": None, "dtype": "float16"}
    others = [{"shape": [4, side], "strides": None, "dtype": None} for side in (2, 3)]
    assert (answer.operator, answer.arguments) == ("matmul", [first, {"tensors": others}])
    assert decode_call(answer.encoded()) == answer


@pytest.mark.parametrize(
    "name", ["MatmulGradNode", "c_allreduce_sum", "all_reduce", "x; import os", 'a"""', "paddle.save"]
)
def test_invalid_operators_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="run an operator that computes"):
        call(name, {"X": [[2]]})


@pytest.mark.parametrize("shapes", [[], {"X": 3}, {"X": [[-1]]}, {"X": [["a"]]}, {"X": [[1e3]]}])
def test_invalid_shapes_are_rejected(shapes: object) -> None:
    with pytest.raises(ValueError, match=r"cannot be read|neither a tensor"):
        call("relu dygraph", shapes)


@pytest.mark.slow
def test_the_script_runs_the_function_with_its_defaults(tmp_path: Path) -> None:
    done = run(tmp_path, call("matmul dygraph", {"X": [[8, 4]], "Y": [[4, 2]]}, TYPES))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["overload"], result["profiled_host_ns"]) == ("paddle.matmul", 3250)
    assert result["assumed"] == ["transpose_x=False", "transpose_y=False"]
    assert "2.00 times as long" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason"),
    [("reshape", "no value of 'shape'"), ("load_combine", "has no operator"), ("summary", "has no operator")],
)
def test_operators_with_missing_values_and_other_functions_are_not_run(tmp_path: Path, name: str, reason: str) -> None:
    done = run(tmp_path, call(name, {"X": [[8, 4]]}))
    assert done.returncode == 1
    assert reason in json.loads(done.stdout.splitlines()[-1])["error"]


def test_a_call_without_a_machine_is_reported() -> None:
    with pytest.raises(MissingData, match="no backend measures operators of Paddle"):
        check_backend("paddle")


def test_a_recording_without_shapes_is_refused_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    trace = next(recording_path("traces/paddle/small").glob("*.json"))
    assert main(["replay", str(trace), "--operator", "conv2d dygraph"]) == 2
    assert "write no shapes of operators" in capsys.readouterr().err
