"""Nodes of ONNX Runtime as calls: profiles with models, rejected calls, and runs if it is installed."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.conftest import answer
from tests.remote.child_runs import Job
from visualprof.cli import main
from visualprof.reader.models.onnx_nodes import Constant, OnnxNode, read_nodes
from visualprof.reader.source import Source
from visualprof.remote.operators import Call, decode_call
from visualprof.remote.operators.script import script
from visualprof.remote.protocol import Sweep, TaskFailure
from visualprof.server.recorded.onnxruntime import recorded_call

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
needs_runtime = pytest.mark.skipif(not find_spec("onnxruntime"), reason="needs onnxruntime")
CONV = OnnxNode("", 17, {"pads": [1, 1, 1, 1], "auto_pad": "NOTSET"}, (True, Constant(1, (4, 3, 3, 3), None)), (True,))


def row(name: str, inputs: str, outputs: str = "float[2,4,8,8]", node: str = "node") -> dict[str, str]:
    return {"name": name, "node": node, "input_shapes": inputs, "output_shapes": outputs}


def call(name: str, inputs: str, outputs: str = "float[2,4,8,8]", node: OnnxNode | None = None) -> Call:
    return recorded_call(row(name, inputs, outputs), {"calls": 3, "host_ns": 5000}, node)


def tensor(shape: list[int], dtype: str = "float32", **more: object) -> dict[str, object]:
    return {"shape": shape, "strides": None, "dtype": dtype, **more}


def refusal(*args: Any) -> str:
    with pytest.raises(ValueError, match=r"\w") as refused:
        call(*args)
    return str(refused.value)


def model(path: Path) -> Path:
    """x (2, 3, 8, 8) -> Conv of 4 kernels of 3 x 3, padded -> Reshape to (2, 256)."""
    weight = numpy_helper.from_array(np.zeros((4, 3, 3, 3), "float32"), "w")
    shape = numpy_helper.from_array(np.array([2, -1]), "shape")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "shape"], ["y"], name="flat"),
    ]
    x, y = (helper.make_tensor_value_info(name, FLOAT, dims) for name, dims in (("x", [2, 3, 8, 8]), ("y", [2, 256])))
    graph = helper.make_graph(nodes, "g", [x], [y], [weight, shape])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def profile(path: Path) -> Path:
    """Two runs of that model: Conv 10 and 30 us, Reshape 1."""
    shapes = {
        "conv": ("Conv", [{"float": [2, 3, 8, 8]}, {"float": [4, 3, 3, 3]}], [{"float": [2, 4, 8, 8]}]),
        "flat": ("Reshape", [{"float": [2, 4, 8, 8]}, {"int64": [2]}], [{"float": [2, 256]}]),
    }
    times = [("conv", 0, 10), ("flat", 10, 1), ("conv", 20, 30), ("flat", 50, 1)]
    common = {"cat": "Node", "ph": "X", "pid": 1, "tid": 1}
    session = {"cat": "Session", "name": "model_run", "ph": "X", "pid": 1, "tid": 1, "args": {}}
    events: list[dict[str, Any]] = [session | {"ts": ts, "dur": 11 + ts} for ts in (0, 20)]
    for name, ts, dur in times:
        kind, inputs, outputs = shapes[name]
        args = {"op_name": kind, "input_type_shape": inputs, "output_type_shape": outputs, "provider": "CPU"}
        events.append(common | {"name": f"{name}_kernel_time", "ts": ts, "dur": dur, "args": args})
    path.write_text(json.dumps(events), "utf-8")
    return path


def test_a_model_gives_attributes_constants_and_their_small_values(tmp_path: Path) -> None:
    nodes = read_nodes(Source(model(tmp_path / "m.onnx")))
    assert nodes[("conv", "Conv")] == OnnxNode(
        "", 17, {"pads": [1, 1, 1, 1]}, (True, Constant(FLOAT, (4, 3, 3, 3), None)), (True,)
    )
    assert nodes[("flat", "Reshape")].inputs == (True, Constant(INT64, (2,), (2, -1)))


def test_names_that_different_nodes_share_are_nobodys(tmp_path: Path) -> None:
    document = onnx.load(model(tmp_path / "m.onnx"))
    twin = helper.make_node("Conv", ["x", "w"], ["d"], name="conv", pads=[0, 0, 0, 0])
    document.graph.node.append(twin)
    onnx.save(document, tmp_path / "m.onnx")
    assert list(read_nodes(Source(tmp_path / "m.onnx"))) == [("flat", "Reshape")]


def test_a_call_has_the_attributes_of_the_model() -> None:
    operator_call = call("Conv", "float[2,3,8,8] float[4,3,3,3]", node=CONV)
    assert operator_call.arguments == [tensor([2, 3, 8, 8]), tensor([4, 3, 3, 3], constant=True)]
    assert operator_call.attributes == {"pads": [1, 1, 1, 1], "auto_pad": "NOTSET"}
    assert operator_call.form == {"opset": 17, "outputs": ["float32"], "domain": ""}
    assert decode_call(operator_call.encoded()) == operator_call


def test_weights_that_were_packed_come_from_the_model() -> None:
    gemm = OnnxNode("", 17, {}, (True, Constant(1, (8, 4), None), Constant(1, (4,), None)), (True,))
    operator_call = call("Gemm", "float[2,8] float[4]", "float[2,4]", gemm)
    assert [argument["shape"] for argument in operator_call.arguments] == [[2, 8], [8, 4], [4]]
    left_out = OnnxNode("", 17, {}, (True, None, Constant(1, (), (6.0,))), (True,))
    assert call("Clip", "float[2] float[]", "float[2]", left_out).arguments == [
        tensor([2]),
        None,
        tensor([], constant=True, values=[6.0]),
    ]


def test_shapes_come_from_constants_or_outputs() -> None:
    reshape = OnnxNode("", 17, {}, (True, Constant(7, (2,), (2, -1))), (True,))
    assert call("Reshape", "float[2,4] int64[2]", "float[2,4]", reshape).arguments[1]["values"] == [2, -1]
    open_shape = replace(reshape, inputs=(True, True))
    assert call("Reshape", "float[2,4] int64[2]", "float[4,2]", open_shape).arguments[1]["values"] == [4, 2]
    assert [argument["values"] for argument in call("Range", "int64[] int64[] int64[]", "int64[7]").arguments] == [
        [0],
        [7],
        [1],
    ]
    slices = OnnxNode("", 17, {}, (True, True, True), (True,))
    assert "no values of input 1 of Slice" in refusal("Slice", "float[9] int64[1] int64[1]", "float[3]", slices)


def test_values_missing_in_a_profile_are_rejected_with_a_reason() -> None:
    assert call("Relu", "float[2,3]").arguments == [tensor([2, 3])]
    assert "no attributes of Conv: put the ONNX model" in refusal("Conv", "float[2,3,8,8] float[4,3,3,3]")
    assert "lacks an input of MatMul" in refusal("MatMul", "float[2,3]")
    assert "neither the domain nor the attributes of FusedGemm" in refusal("FusedGemm", "float[2,3]")
    assert "own layout NCHWc" in refusal("ReorderOutput", "float[2,16,8,8]")
    assert "runs a body" in refusal("If", "bool[]")
    assert "no tensor of numbers" in refusal("Relu", "string[2]")
    assert "do not match the node of the model" in refusal(
        "Conv", "float[2,3,8,8]", "float[1]", replace(CONV, inputs=(True, True))
    )
    assert "belongs to the domain 'mine'" in refusal(
        "Relu", "float[2]", "float[2]", OnnxNode("mine", 1, {}, (True,), (True,))
    )


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("Conv", {"auto_pad": "x'); import os; ('"}),
        ("Conv", {"a b": 1}),
        ("Conv", {"note": "my secret sentence!"}),
        ("Conv", {"names": ["\n"]}),
        ('Conv"""', {}),
        ("__import__('os')", {}),
        ("Conv\n", {}),
    ],
)
def test_hostile_names_and_attributes_do_not_become_code(name: str, attributes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"attribute|not a name of an operator"):
        script(call(name, "float[2,3,8,8] float[4,3,3,3]", "float[1]", replace(CONV, attributes=attributes)))


@pytest.mark.parametrize("inputs", ["float[-1]", "float[1e3]", "float[9999999999999999999]", "float", "[2]", "x[[2]]"])
def test_invalid_shapes_are_rejected(inputs: str) -> None:
    assert refusal("Relu", inputs)


def test_a_file_with_other_attributes_is_refused() -> None:
    whole = call("Conv", "float[2,3,8,8] float[4,3,3,3]", node=CONV).encoded()
    for old, new in (
        (b'"NOTSET"', b'"os.system(1)"'),
        (b'"auto_pad"', b'"a b"'),
        (b'"pads": [', b'"pads": [{"x": 1},'),
    ):
        with pytest.raises(TaskFailure, match="not an operator call"):
            decode_call(whole.replace(old, new))


def test_the_script_holds_the_call_as_literals() -> None:
    operator_call = call("Conv", "float[2,3,8,8] float[4,3,3,3]", node=CONV)
    tree = ast.parse(script(operator_call))
    values = [
        item.value for item in tree.body if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "CALL"
    ]
    assert ast.literal_eval(values[0]) == operator_call.parts()
    assert "visualprof." not in script(operator_call)


@needs_runtime
@pytest.mark.slow
def test_the_command_accepts_a_model_with_the_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, out = str(profile(tmp_path / "ort.json")), tmp_path / "conv.py"
    assert main(["replay", trace, "--operator", "Conv"]) == 2
    assert "put the ONNX model" in capsys.readouterr().err
    model(tmp_path / "m.onnx")
    assert main(["replay", trace, "--operator", "conv", "--out", str(out)]) == 0
    done = subprocess.run(
        [sys.executable, "-I", str(out), "--repeats", "20", "--threads", "1"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["recorded"]["host_ns"] == 20_000
    assert result["overload"] == "ai.onnx::Conv of opset 17"
    assert 0 < result["clock_ns"] < result["median_ns"]
    assert result["profiled_host_ns"] > 0


@needs_runtime
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "node"),
    [
        ("Gather", "float[3,4] int64[50]", "float[50,4]", OnnxNode("", 17, {"axis": 0}, (True, True), (True,))),
        ("BiasGelu", "float[2,8] float[8]", "float[2,8]", OnnxNode("com.microsoft", 1, {}, (True, True), (True,))),
        ("Reshape", "float[2,4] int64[2]", "float[4,2]", OnnxNode("", 17, {}, (True, True), (True,))),
        ("Sqrt", "float16[2,4]", "float16[2,4]", None),
        ("Not", "bool[]", "bool[]", None),
        ("Div", "int32[2] int32[2]", "int32[2]", None),
    ],
)
def test_operators_of_each_kind_run(name: str, inputs: str, outputs: str, node: OnnxNode | None) -> None:
    from visualprof.remote.operators.onnxruntime_call import Operator

    operator = Operator(call(name, inputs, outputs, node).parts(), "cpu", 1)
    operator.check_run()
    assert operator.profile(3)[0] is not None or name == "Not"  # which may take less than the profiler's microsecond


@needs_runtime
@pytest.mark.slow
def test_refusals_of_the_runtime_name_their_cause() -> None:
    from visualprof.remote.operators.clock import OperatorRejected
    from visualprof.remote.operators.onnxruntime_call import Operator

    with pytest.raises(OperatorRejected, match=r"does not run ai\.onnx::Mine"):
        Operator(Call("Mine", [tensor([2])], {}, "onnxruntime").parts() | {"form": {"opset": 17}}, "cpu")
    with pytest.raises(OperatorRejected, match="GiB are free"):
        Operator(call("Relu", "float[1099511627776]").parts(), "cpu")
    with pytest.raises(OperatorRejected, match="no provider for cuda"):
        Operator(call("Relu", "float[2]").parts(), "cuda")


@needs_runtime
@pytest.mark.slow
def test_a_file_of_a_call_is_measured_and_profiled_as_a_model(tmp_path: Path) -> None:
    file = tmp_path / "relu.onnxruntime_operator"
    file.write_bytes(call("Relu", "float[64,64]", "float[64,64]").encoded())
    job = Job(tmp_path, file, [], "onnxruntime", sweep=Sweep("", [1]), spec={"threads": 1})
    ran = job.run()
    assert ran.points[0]["n"] > 0, ran.stderr
    effective = ran.told("effective")[0]["effective"]
    assert (effective["overload"], effective["threads"]) == ("ai.onnx::Relu of opset 17", "1")
    assert int(effective["median_ns"]) > 0
    assert job.run("profile:timeline").status == 0
    assert answer("operator", job.work / "out" / "timeline.json")["columns"]["calls"] == [3]
