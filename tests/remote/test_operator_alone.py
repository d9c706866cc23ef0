"""Operators that PyTorch really runs alone: overloads, layouts, bounds of indices, refusals; the script and the job."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.recordings import recording_path
from tests.remote.child_runs import Job
from visualprof.cli import main
from visualprof.remote.operators.script import script
from visualprof.remote.protocol import Sweep
from visualprof.server.recorded.torch import kineto_call

pytestmark = pytest.mark.slow

if not find_spec("torch"):
    pytest.skip("needs PyTorch: pip install torch", allow_module_level=True)

FLOAT = "float"


def operator(name: str, shapes: Any, types: Any, values: Any = (), strides: Any = None) -> Any:
    from visualprof.remote.operators.torch_call import Operator

    steps = json.dumps(strides) if strides else ""
    call = kineto_call(name, json.dumps(shapes), steps, json.dumps(types), json.dumps(list(values)))
    return Operator(call.operator, call.arguments, "cpu")


def refusal(*args: Any) -> str:
    from visualprof.remote.operators.torch_call import OperatorRejected

    with pytest.raises(OperatorRejected) as refused:
        operator(*args).check_run()
    return str(refused.value)


@pytest.mark.parametrize(
    ("types", "values", "overload"),
    [
        ([FLOAT, FLOAT, "Scalar"], ["", "", "1"], "aten::add.Tensor"),
        ([FLOAT, "Scalar", "Scalar"], ["", "2", "1"], "aten::add.Scalar"),
        ([FLOAT, FLOAT, "Scalar", FLOAT], ["", "", "1", ""], "aten::add.out"),
    ],
)
def test_pytorchs_own_schemas_say_the_overload(types: list[str], values: list[str], overload: str) -> None:
    shapes = [[3] if type == FLOAT else [] for type in types]
    built_operator = operator("aten::add", shapes, types, values)
    built_operator.check_run()
    assert built_operator.overload == overload


def test_results_have_the_shape_and_the_layout_of_the_run() -> None:
    built_operator = operator("aten::t", [[3, 5]], [FLOAT], strides=[[1, 3]])
    result = built_operator.prepare_call()()
    assert (list(result.shape), list(result.stride())) == ([5, 3], [3, 1])
    expanded = operator("aten::neg", [[4, 6]], ["c10::Half"], strides=[[0, 1]]).prepare_call()()
    assert (list(expanded.shape), str(expanded.dtype)) == ([4, 6], "torch.float16")
    assert operator("aten::relu", [[0, 3]], [FLOAT]).prepare_call()().numel() == 0
    assert operator("aten::relu", [[]], [FLOAT], [""]).prepare_call()().dim() == 0


@pytest.mark.parametrize(
    ("name", "shapes", "types", "values"),
    [
        ("aten::embedding", [[3, 4], [50]], [FLOAT, "long int"], ["", "", "-1", "False", "False"]),
        ("aten::index_select", [[2, 5], [], [40]], [FLOAT, "Scalar", "long int"], ["", "1", ""]),
        ("aten::gather", [[2, 5], [], [2, 40]], [FLOAT, "Scalar", "long int"], ["", "-1", "", "False"]),
        ("aten::nll_loss_forward", [[30, 4], [30], []], [FLOAT, "long int", ""], ["", "", "", "1", "-100"]),
        ("aten::embedding_dense_backward", [[30, 4], [30]], [FLOAT, "long int"], ["", "", "3", "-1", "False"]),
        ("aten::bernoulli", [[100], []], [FLOAT, ""], ["", ""]),
    ],
)
def test_indices_and_probabilities_are_within_bounds(name: str, shapes: Any, types: Any, values: list[str]) -> None:
    count = max(len(shapes), len(values))
    shapes, types = [*shapes, *[[]] * (count - len(shapes))], [*types, *["Scalar"] * (count - len(types))]
    operator(name, shapes, types, values).check_run()


def test_written_tensors_are_created_for_each_run() -> None:
    built_operator = operator("aten::add_", [[3], [3], []], [FLOAT, FLOAT, "Scalar"], ["", "", "1"])
    assert built_operator.prepare_call()().tolist() == built_operator.prepare_call()().tolist()


def test_an_assumed_default_is_reported() -> None:
    assert operator("aten::gelu", [[3], []], [FLOAT, ""], ["", ""], [[1], []]).assumed == ["approximate='none'"]


def test_refusals_name_their_cause() -> None:
    assert "does not run on cpu" in refusal(
        "aten::_flash_attention_forward",
        [[1, 2, 1, 8]] * 3 + [[]] * 10,
        ["c10::Half"] * 3 + [""] * 2 + ["Scalar"] * 2 + ["Scalar"] * 4 + [""] * 2,
        ["", "", "", "", "", "2", "2", "0.", "False", "False", "0.1", "", ""],
    )
    assert "no value of 'indices'" in refusal("aten::index", [[3, 4], []], [FLOAT, ""], ["", ""])
    assert "no operator mine::own" in refusal("mine::own", [[3]], [FLOAT])
    assert "GiB are free" in refusal("aten::relu", [[1 << 40]], [FLOAT])
    assert "refuses these inputs" in refusal("aten::mm", [[2, 3], [2, 3]], [FLOAT, FLOAT])
    assert "run alone" in refusal("aten::from_file", [[3]], [FLOAT])


def test_the_script_needs_nothing_of_visualprof(tmp_path: Path) -> None:
    call = kineto_call("aten::mm", "[[8, 4], [4, 2]]", "[[4, 1], [1, 4]]", '["float", "float"]', "", {"calls": 1})
    file = tmp_path / "mm.py"
    file.write_text(script(call), "utf-8")
    command = [sys.executable, "-I", str(file), "--repeats", "20", "--threads", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["overload"], result["repeats"], result["threads"]) == ("aten::mm.default", 20, 1)
    assert 0 < result["clock_ns"] < result["median_ns"] <= result["max_ns"]
    assert result["profiled_host_ns"] > 0


def test_a_file_of_a_call_is_measured_as_a_model(tmp_path: Path) -> None:
    call = kineto_call("aten::mm", "[[64, 64], [64, 64]]", "", '["float", "float"]', "")
    file = tmp_path / "mm.operator"
    file.write_bytes(call.encoded())
    job = Job(tmp_path, file, [], "torch", sweep=Sweep("", [1]), spec={"threads": 1})
    ran = job.run()
    assert ran.points[0]["n"] > 0
    effective = ran.told("effective")[0]["effective"]
    assert effective["overload"] == "aten::mm.default"
    assert int(effective["median_ns"]) > int(effective["clock_ns"])


def test_the_command_makes_the_script_or_says_why_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(recording_path("traces/torch_cpu/transformer_small.pt.trace.json.gz"))
    out = tmp_path / "addmm.py"
    assert main(["replay", trace, "--operator", "aten::addmm", "--shape", "1", "--out", str(out)]) == 0
    assert "'shape': [128, 256]" in out.read_text("utf-8")
    assert main(["replay", trace, "--operator", "aten::addmm", "--shape", "9"]) == 2
    assert "no call 9 of 'aten::addmm'" in capsys.readouterr().err
    assert main(["replay", trace, "--operator", "AddmmBackward0"]) == 2
    assert "run an operator inside it" in capsys.readouterr().err
    onnx = str(recording_path("traces/onnxruntime/ort_resnet10_b2_opt_all.json"))
    assert main(["replay", onnx, "--operator", "Conv"]) == 2
    assert "own layout NCHWc" in capsys.readouterr().err
    paddle = next(recording_path("traces/paddle/small").glob("*.json"))
    assert main(["replay", str(paddle), "--operator", "conv2d dygraph"]) == 2
    output = capsys.readouterr().err
    assert "does not hold what operators take" in output
    assert "Paddle" in output
