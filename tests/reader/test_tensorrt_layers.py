"""Layers of TensorRT engines as `trtexec --exportLayerInfo` writes them; every number is worked out here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from visualprof.errors import FormatError
from visualprof.reader import read_trace
from visualprof.reader.graph import ModelGraph
from visualprof.reader.models import read_model
from visualprof.views.graph import drawn
from visualprof.views.measure.graphs.join import join_times


def tensor(name: str, shape: list[int], kind: str = "Row major linear FP16 format") -> dict[str, Any]:
    return {"Name": name, "Location": "Device", "Dimensions": shape, "Format/Datatype": kind}


CONV: dict[str, Any] = {
    "Name": "/stem/conv/Conv + /stem/act/Relu",
    "LayerType": "CaskConvolution",
    "Inputs": [tensor("x", [1, 3, 8, 8], "Row major linear FP32")],
    "Outputs": [tensor("a", [1, 8, 8, 8])],
    "ParameterType": "Convolution",
    "Groups": 1,
    "Weights": {"Type": "Half", "Count": 216},
    "Bias": {"Type": "Float", "Count": 0},
    "TacticName": "sm80_xmma_fprop",
    "StreamId": 0,
    "Metadata": "[ONNX Layer: /stem/conv/Conv]\x1e[ONNX Layer: /stem/act/Relu]",
}
# Two layers write parts of one tensor: the engine has no layer for the concatenation.
LEFT, RIGHT = (
    {"Name": f"copy {i}", "LayerType": "Reformat", "Inputs": [tensor("a", [1, 8, 8, 8])], "Outputs": [tensor("c", s)]}
    for i, s in (("left", [1, 8, 8, 8]), ("right", [-1, 8, 8, 8]))
)
END = {"Name": "end", "LayerType": "Pooling", "Inputs": [tensor("c", [1, 16, 8, 8])], "Outputs": [tensor("y", [1, 16])]}


def engine(folder: Path, layers: list[Any], bindings: tuple[str, ...] = ("x", "y")) -> ModelGraph:
    path = folder / "layers.json"
    path.write_text(json.dumps({"Layers": layers, "Bindings": bindings}))
    return read_model(path)


def test_layers_have_types_tensors_weights_and_fused_nodes(tmp_path: Path) -> None:
    model = engine(tmp_path, [CONV, LEFT, RIGHT, END])
    types = [(node.type, node.kind) for node in model.nodes if node.kind != "constant"]
    names = ["Input", "CaskConvolution", "Reformat", "Reformat", "Pooling", "Output"]
    assert [name for name, _ in types] == names
    conv = next(node for node in model.nodes if node.type == "CaskConvolution")
    assert [scope.name for scope in conv.scope] == ["stem", "conv"]
    assert conv.attributes["onnx nodes"] == "/stem/conv/Conv, /stem/act/Relu"
    assert (conv.attributes["TacticName"], conv.attributes["Groups"]) == ("sm80_xmma_fprop", "1")
    facts = drawn(model).model
    assert (facts.parameters, facts.parameter_bytes) == (216, 432)
    assert [(i.name, i.dtype, i.shape, i.bytes) for i in facts.inputs] == [("x", "float32", "1x3x8x8", 4 * 192)]
    assert [(o.name, o.dtype, o.shape) for o in facts.outputs] == [("y", "float16", "1x16")]


def test_a_tensor_that_two_layers_write_has_edges_from_both(tmp_path: Path) -> None:
    model = engine(tmp_path, [CONV, LEFT, RIGHT, END])
    row_of = {row: node.name for node in model.nodes for row in node.outputs}
    end = next(node for node in model.nodes if node.name == "end")
    assert [row_of[row] for row in end.inputs] == ["copy left", "copy right"]
    assert model.values[end.inputs[1]].shape == ("?", 8, 8, 8)


def test_names_alone_are_layers_without_edges_and_a_warning(tmp_path: Path) -> None:
    model = engine(tmp_path, ["conv1", "relu1"])
    assert [(node.name, node.type) for node in model.nodes[:2]] == [("conv1", "Layer"), ("relu1", "Layer")]
    assert "--profilingVerbosity=detailed" in model.warnings[0]


def test_times_of_a_profile_join_by_name(tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    times = [{"name": CONV["Name"], "averageMs": 0.25}, {"name": "end", "averageMs": 0.5}]
    profile.write_text(json.dumps([{"count": 10}, *({"timeMs": 1, "percentage": 1} | row for row in times)]))
    model = engine(tmp_path, [CONV, LEFT, RIGHT, END])
    joined = join_times(model, read_trace(profile))
    measured = {node.name: ns for node, ns in zip(model.nodes, joined.time_ns.tolist(), strict=True) if ns == ns}
    assert measured == {CONV["Name"]: 250_000, "end": 500_000}
    assert joined.unmatched == []


def test_the_file_is_a_model_not_a_profile(tmp_path: Path) -> None:
    engine(tmp_path, [CONV])
    with pytest.raises(FormatError, match=r"layers\.json is a model \(TensorRT layers \.json\), not a profile"):
        read_trace(tmp_path / "layers.json")
