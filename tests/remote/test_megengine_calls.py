"""Operators of MegEngine as calls: static profiles, rejected calls, and runs if MegEngine is installed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import answer
from tests.recordings import recording_path
from tests.remote.child_runs import Job, megengine_python
from visualprof.cli import main
from visualprof.remote.operators import Call, decode_call
from visualprof.remote.operators.script import script
from visualprof.remote.protocol import Sweep
from visualprof.server.recorded.megengine import recorded_call

CONV = {"mode": "CROSS_CORRELATION", "stride_h": 1, "stride_w": 1, "pad_h": 1, "pad_w": 1, "format": "NCHW"}
INDEX = [{"idx": 1, "end": 0, "begin": 0, "step": 0, "axis": 0}]


def call(name: str, inputs: object, outputs: object, parameters: object = None, types: object = None) -> Call:
    texts = {"input_shapes": inputs, "input_types": types, "input_values": parameters, "output_shapes": outputs}
    encoded = {key: "" if value is None else json.dumps(value) for key, value in texts.items()}
    return recorded_call({"name": name, "node": "n", **encoded}, {"calls": 1, "device_ns": 4000})


def static(path: Path, parameters: dict[str, Any]) -> Path:
    """A static profile of one operator `sum`: 4 us on the device, its second input of a type that was not planned."""
    operator = {"type": "Elemwise", "name": "sum", "input": ["1", "2"], "output": ["3"]}
    variables = {"1": {"mem_plan": {"layout": {"dtype": "Float16"}}}, "2": {"mem_plan": None}, "3": {}}
    shapes = {"in_shapes": [[64, 64], [64]], "out_shapes": [[64, 64]]}
    footprint = {"param": parameters, **shapes, "memory": 16512, "computation": 4096}
    span = {"start": 0.000001, "kern": 0.000002, "end": 0.000005}
    profiler = {"device": {"5": {"cpu0:0": span}}, "host": {"5": {"0": span}}, "opr_footprint": {"5": footprint}}
    graph = {"operator": {"5": operator}, "var": variables, "mem_chunk": {}, "comp_seq": ["5"]}
    path.write_text(json.dumps({"graph_exec": graph, "profiler": profiler}), "utf-8")
    return path


def test_a_static_profile_contains_types_and_parameters(tmp_path: Path) -> None:
    columns = answer("calls", static(tmp_path / "p.json", {"mode": "ADD"}))["columns"]
    values_by_name = {
        name: columns[name][0] for name in ("name", "node", "input_shapes", "input_types", "input_values")
    }
    assert values_by_name == {
        "name": "Elemwise",
        "node": "sum",
        "input_shapes": "[[64,64],[64]]",
        "input_types": '["Float16",null]',
        "input_values": '{"mode":"ADD"}',
    }
    assert columns["device_ns"] == [4000]


def timeline(path: Path, name: str, inputs: list[str], output: str, **parameters: str) -> Path:
    """A dynamic timeline of one operator of 5 us on the host and 4 on the device."""
    mark = {"pid": 1, "tid": 0}
    events: list[dict[str, Any]] = [mark | {"name": name, "ph": "B", "ts": 10.0}]
    tensors = [("Input", i, shape) for i, shape in enumerate(inputs)] + [("Output", 9, output)]
    for what, number, shape in tensors:
        values_by_name = {"id": number, "dtype": "Float32", "shape": shape, "nr_elements": 6, "device": "cpu0"}
        both = mark | {"name": f"{what} {number}", "args": values_by_name}
        events += [both | {"ph": "B", "ts": 11.0}, both | {"ph": "E", "ts": 11.5}]
    ran = {"args": {"__id__": 1, "__name__": name, **parameters}, "name": name, "ph": "E"}
    events += [mark | ran | {"ts": 15.0}]
    events += [{"pid": 1, "tid": 2, "name": name, "ph": "B", "ts": 16.0, "cat": "Kernel"}]
    events += [{"pid": 1, "tid": 2, "cat": "Kernel", **ran, "ts": 20.0}]
    lanes = {0: "channel", 2: "cpu0:0"}
    events += [{"ph": "M", "name": "thread_name", "pid": 1, "tid": i, "args": {"name": n}} for i, n in lanes.items()]
    path.write_text(json.dumps({"traceEvents": events, "metadata": {"localTime": "1700000000000000000"}}), "utf-8")
    return path


def test_a_timeline_gives_tensors_from_its_annotations_and_parameters(tmp_path: Path) -> None:
    file = timeline(tmp_path / "t.json", "ADD", ["{2,3}", "{3}"], "{2,3}", mode="ADD", axis="7", shape="{std::vector}")
    columns = answer("calls", file)["columns"]
    texts = ("name", "input_shapes", "input_types", "input_values", "output_shapes")
    row = {name: columns[name][0] for name in texts}
    assert row == {
        "name": "ADD",
        "input_shapes": "[[2,3],[3]]",
        "input_types": '["Float32","Float32"]',
        "input_values": '{"mode":"ADD","axis":7}',
        "output_shapes": "[[2,3]]",
    }
    operator_call = recorded_call({**row, "node": ""}, {})
    assert (operator_call.operator, [argument["shape"] for argument in operator_call.arguments]) == (
        "Elemwise",
        [[2, 3], [3]],
    )


def test_a_timeline_with_odd_shapes_is_read(tmp_path: Path) -> None:
    file = timeline(
        tmp_path / "t.json", "ADD", ["{-1}", "x", "{" + "9" * 40 + "}", *["{1}"] * 40], "{}", mode="x" * 200
    )
    assert answer("operator", file)["columns"]["name"] == ["ADD"]


def test_a_call_has_the_parameters_as_attributes() -> None:
    operator_call = call("ConvolutionForward", [[1, 3, 8, 8], [4, 3, 3, 3]], [[1, 4, 8, 8]], CONV, ["Float32", None])
    assert [argument["dtype"] for argument in operator_call.arguments] == ["float32", None]
    assert operator_call.attributes == CONV
    assert call("IndexingMultiAxisVec", [[9, 4], [5]], [[5, 4]], INDEX).form == {
        "outputs": [[5, 4]],
        "items": [[0, 0, 0, 0, 1]],
    }
    assert decode_call(operator_call.encoded()) == operator_call


@pytest.mark.parametrize(
    ("name", "parameters", "types", "reason"),
    [
        ("OutputCallback", {}, None, "hands tensors over"),
        ("Elemwise", {"mode": "ADD'); import os"}, None, "neither a number nor the name of a mode"),
        ("Elemwise", {"a b": 1}, None, "neither a number nor a word"),
        ("Elemwise", [{"x": 1}], None, "cannot be read"),
        ("Elemwise", {}, ["QuantizedS8"], "cannot be made"),
        ("x; import os", {}, None, "not a name of an operator"),
    ],
)
def test_invalid_values_are_rejected(name: str, parameters: Any, types: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        script(call(name, [[2]], [[2]], parameters, types))


RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import json
from visualprof.remote.operators.clock import OperatorRejected
from visualprof.remote.operators.megengine_call import Operator
for call in json.loads(sys.argv[2]):
    try:
        operator = Operator(call, "cpu")
        operator.check_run()
        print(json.dumps([operator.overload, operator.profile(2)[1], operator.assumed]))
    except OperatorRejected as refusal:
        print(json.dumps(["refused", str(refusal), []]))
"""
BATCH_NORM = {"fwd_mode": "INFERENCE", "param_dim": "DIM_1C11", "epsilon": 1e-5, "avg_factor": 1, "scale": 1, "bias": 0}


@pytest.mark.slow
def test_operators_of_each_kind_run_or_are_refused() -> None:
    channel = [1, 8, 1, 1]
    calls = [
        call("ConvolutionForward", [[1, 3, 8, 8], [4, 3, 3, 3]], [[1, 4, 8, 8]], CONV),
        call("BatchNormForward", [[2, 8, 4, 4], *[channel] * 4], [channel, channel, [0], [2, 8, 4, 4]], BATCH_NORM),
        call("LayerNormForward", [[2, 6, 8], [8], [8]], [[2, 6, 8], [2, 6], [2, 6]], {}),
        call("Reshape", [[2, 12], [2]], [[6, 4]], {}),
        call("IndexingMultiAxisVec", [[9, 4], [5]], [[5, 4]], INDEX),
        call("Dimshuffle", [[2, 3, 4]], [[4, 2, 3]], {"pattern": [2, 0, 1], "ndim": 3}),
        call("SoftmaxForward", [[2, 5]], [[2, 5]], {}),
        call("Elemwise", [[2, 5], [5]], [[2, 5]], {"mode": "FUSE_ADD_RELU"}),
        call("Reduce", [[2, 5]], [[2, 1]], {"mode": "SUM", "axis": 0, "keepdim": 1}),
        call("RemoveAxis", [[1, 8, 1, 4]], [[8, 4]], {}),
        call("AddAxis", [[8, 4]], [[1, 8, 1, 4]], {}),
        call("TensorRTRuntime", [[2]], [[2]], {}),
        call("Mine", [[2]], [[2]], {}),
        call("Elemwise", [[1 << 40]], [[2]], {"mode": "RELU"}),
    ]
    root = Path(__file__).parents[2]
    words = [megengine_python(), "-c", RUN, str(root), json.dumps([item.parts() for item in calls])]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    document = [json.loads(line) for line in done.stdout.splitlines()]
    names = [
        "Convolution",
        "BatchNorm",
        "LayerNorm",
        "Reshape",
        "IndexingMultiAxisVec",
        "Dimshuffle",
        "Softmax",
        "Elemwise",
    ]
    assert [one[0].rpartition(".")[2] for one in document[:8]] == names
    assert all(one[1] is None or one[1] > 0 for one in document[:8])
    assert "axis=-1" in document[6][2]
    assert [one[0].rpartition(".")[2] for one in document[9:11]] == ["RemoveAxis", "AddAxis"]
    assert [one[0] for one in (document[8], *document[11:])] == ["refused"] * 4
    reasons = ["lacks a parameter", "that is run alone", "that is run alone", "GiB are free"]
    assert [reason in one[1] for one, reason in zip([document[8], *document[11:]], reasons, strict=True)] == [
        True
    ] * 4, document[8:]


@pytest.mark.slow
def test_the_script_of_a_profile_and_a_job_of_its_file(tmp_path: Path) -> None:
    python, trace = megengine_python(), str(static(tmp_path / "p.json", {"mode": "ADD"}))
    out, file = tmp_path / "sum.py", tmp_path / "sum.megengine_operator"
    for path in (out, file):
        assert main(["replay", trace, "--operator", "Elemwise", "--out", str(path)]) == 0
    words = [python, "-I", str(out), "--repeats", "20"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=120)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["recorded"]["device_ns"] == 4000
    assert (result["overload"], result["assumed"]) == ("megengine.core.ops.builtin.Elemwise", ["input 1: float16"])
    job = Job(tmp_path, file, [], "megengine", python, sweep=Sweep("", [1]))
    ran = job.run()
    assert ran.points[0]["n"] > 0, ran.stderr
    assert ran.told("effective")[0]["effective"]["overload"] == "megengine.core.ops.builtin.Elemwise"
    for stage, name in (("profile:static", "profile.json"), ("profile:timeline", "timeline.json")):
        assert job.run(stage).status == 0
        assert answer("operator", tmp_path / "out" / name)["columns"]["name"]


@pytest.mark.slow
def test_calls_of_a_recording_all_have_scripts() -> None:
    path = recording_path("traces/megengine/resnet18_w16.lite.profile.json")
    columns = answer("calls", path)["columns"]
    texts = ("name", "node", "input_shapes", "input_types", "input_values", "output_shapes")
    rows: list[dict[str, str]] = [
        dict(zip(texts, map(str, values), strict=True))
        for values in zip(*(columns[name] for name in texts), strict=True)
    ]
    computes = [row for row in rows if "Callback" not in row["name"]]
    assert len(computes) > 20
    assert all(script(recorded_call(row, {})) for row in computes)
