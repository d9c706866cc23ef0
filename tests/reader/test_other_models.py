"""Models of Paddle, OpenVINO, TensorFlow and VisualDL: counts as the frameworks' own loaders give them, structure.

The figures come from tests/fixtures/models/make_*.py, which ask the frameworks.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from visualprof.reader.graph import ModelGraph, Node
from visualprof.reader.models import read_model
from visualprof.views.graph import drawn

MODELS = Path(__file__).parent.parent / "fixtures" / "models"


def read(name: str) -> ModelGraph:
    return read_model(MODELS / name)


def types(model: ModelGraph) -> Counter[str]:
    return Counter(n.type for n in model.nodes if n.kind in ("operator", "constant"))


def ends(model: ModelGraph) -> list[list[tuple[str, str, str]]]:
    told = drawn(model).model
    return [[(t.name, t.dtype, t.shape) for t in tensors] for tensors in (told.inputs, told.outputs)]


def weights(model: ModelGraph) -> dict[str, int]:
    return {
        model.values[n.outputs[0]].name: model.values[n.outputs[0]].elements
        for n in model.nodes
        if n.kind == "constant"
    }


def data_flows(model: ModelGraph, start: str, end: str) -> bool:
    """Does data flow from a node to another, through the formal ends of bodies?"""
    reached = {v for n in model.nodes if n.name == start for v in n.outputs}
    for _ in model.nodes:
        more = {v for n in model.nodes if reached & set(n.inputs) for v in n.outputs if not n.body}
        if more <= reached:
            break
        reached |= more
    return any(reached & set(n.inputs) for n in model.nodes if n.name == end)


def node(model: ModelGraph, name: str) -> Node:
    (found,) = [n for n in model.nodes if n.name == name]
    return found


# Paddle counts operators with parameters, data and fetch; the body's end is an operator (`yield`) as well.
@pytest.mark.parametrize(
    ("name", "operators", "parameters"),
    [("paddle_cnn.json", 40, 1546), ("paddle_cnn.pdmodel", 19, 1546), ("vdlgraph.paddle_cnn.log", 19, 1546)],
)
def test_operators_and_parameters_equal_paddles_loader(name: str, operators: int, parameters: int) -> None:
    model = read(name)
    pir = name.endswith(".json")
    held = sum(n.kind == "constant" for n in model.nodes)
    assert sum(n.kind == "operator" for n in model.nodes) == (operators - held - 2 if pir else operators)
    assert (drawn(model).model.parameters, drawn(model).model.parameter_bytes) == (parameters, 4 * parameters)
    (given,), (made,) = ends(model)
    assert given == ("image", "float32", "?x3x16x16")
    assert made[1:] == ("float32", "?x10")
    assert types(model)["conv2d"] == 3


def test_paddle_3_folds_by_the_layers_that_it_names() -> None:
    model = read("paddle_cnn.json")
    groups = {"/".join(s.name for s in n.scope) for n in model.nodes}
    assert {"Conv2D", "Sequential/Block/Conv2D", "Sequential/Block_1/BatchNorm2D", "Linear"} <= groups
    conv = node(model, "Sequential/Block/Conv2D/conv2d_1")
    assert conv.attributes["strides"] == "[1, 1]"
    assert [model.values[v].shape for v in (*conv.inputs, *conv.outputs)] == [
        ("?", 8, 7, 7),
        (8, 8, 3, 3),
        ("?", 8, 7, 7),
    ]


def test_visualdl_folds_by_layer_and_attribute() -> None:
    model = read("vdlgraph.paddle_cnn.log")
    groups = {"/".join(s.name for s in n.scope) for n in model.nodes if n.type == "conv2d"}
    assert groups == {
        "Cnn[model]/Conv2D[stem]", "Cnn[model]/Sequential[blocks]/Block[0]/Conv2D[conv]",
        "Cnn[model]/Sequential[blocks]/Block[1]/Conv2D[conv]",
    }  # fmt: skip
    assert data_flows(model, "image", "save_infer_model/scale_0.tmp_0")


def test_control_flow_of_paddle_3() -> None:
    model = read("paddle_control.json")
    loop, choice = node(model, "while_0"), node(model, "if_0")
    inside = [n for n in model.nodes if n.scope[:1] == loop.place]
    # The loop takes a condition and two values; its body yields a condition and two values, as Paddle prints it.
    assert [(n.kind, n.inputs) for n in inside if n.kind == "input"] == [("input", (v,)) for v in loop.inputs[1:]]
    assert [n.outputs for n in inside if n.kind == "output"] == [(), *((v,) for v in loop.outputs)]
    assert Counter(n.type for n in inside if n.kind == "operator") == Counter(
        matmul=1, add=1, full=2, scale=1, less_than=1
    )
    branches = [n for n in model.nodes if n.scope[:1] == choice.place and n.kind == "output"]
    assert [(n.scope[1].name, n.outputs) for n in branches] == [
        ("then_branch", choice.outputs),
        ("else_branch", choice.outputs),
    ]
    assert data_flows(model, "image", "fetch_name_0")


def test_control_flow_of_paddle_2() -> None:
    model = read("paddle_control.pdmodel")
    # 13, 8, 2 and 2 operators in the blocks, by Paddle's loader.
    assert Counter(n.scope[0].name if n.scope else "" for n in model.nodes if n.kind == "operator") == {
        "": 13, "while_0": 8, "conditional_block_0": 2, "conditional_block_1": 2,
    }  # fmt: skip
    loop = node(model, "while_0")
    made = {v for n in model.nodes if n.kind == "output" and n.scope == loop.place for v in n.outputs}
    assert {model.values[v].name for v in made} == {"image", "tmp_3", "fill_constant_1.tmp_0"}
    assert made <= set(loop.outputs)
    assert data_flows(model, "image", "save_infer_model/scale_0.tmp_0")
    assert node(model, "select_input_0").attributes["source"].startswith("make_paddle.py:")


def test_layers_and_weights_equal_openvinos_loader() -> None:
    model = read("openvino_cnn.xml")
    assert types(model) == Counter(Convolution=2, ReLU=2, ReduceMean=1, MatMul=1, Constant=4)
    assert sum(weights(model).values()) == 874
    assert drawn(model).model.parameter_bytes == 872 * 4 + 2 * 8
    assert ends(model) == [[("Parameter_1", "float32", "?x3x16x16")], [("logits", "float32", "?x10")]]
    assert node(model, "/stage1/conv/Conv").attributes["pads_begin"] == "1, 1"
    assert [s.name for s in node(model, "/stage1/conv/Conv").scope] == ["stage1", "conv"]


def test_control_flow_of_openvino() -> None:
    model = read("openvino_control.xml")
    assert types(model) == Counter(Loop=1, If=1, Add=1, ReLU=1, Negative=1, Greater=1, ReduceSum=1, Constant=5)
    loop, choice = node(model, "/loop"), node(model, "/choice")
    assert node(model, "Parameter_14").inputs == loop.inputs[2:]
    assert (node(model, "loop_y").outputs, node(model, "loop_again").outputs) == (loop.outputs, ())
    assert [node(model, n).outputs for n in ("then_y", "else_y")] == [choice.outputs] * 2
    assert [s.name for s in node(model, "negative").scope] == ["choice", "else_branch"]
    assert data_flows(model, "Parameter_13", "y")


def test_weights_of_four_bits_have_the_size_that_the_file_says(tmp_path: Path) -> None:
    port = '<output><port id="0" precision="U4"><dim>5</dim><dim>2</dim></port></output>'
    data = '<data element_type="u4" offset="0" size="5"/>'
    layer = f'<layer id="0" name="w" type="Const" version="opset1">{data}{port}</layer>'
    (tmp_path / "m.xml").write_text(f'<net name="n" version="11"><layers>{layer}</layers><edges/></net>')
    model = read_model(tmp_path / "m.xml")
    assert (model.values[0].elements, model.values[0].bytes) == (10, 5)


def test_operators_and_variables_equal_tensorflows_loader() -> None:
    model = read("tensorflow_saved_model.pb")
    found = types(model)
    variables = found.pop("VarHandleOp")
    # What TensorFlow says of the function, and the Identity of the signature that calls it.
    assert found == Counter(
        AddV2=6, BiasAdd=3, Const=5, Conv2D=2, Identity=1 + 1, MatMul=1, Mean=1, Mul=6, ReadVariableOp=14, Relu=2,
        Reshape=2, Rsqrt=2, Squeeze=2, Sub=2,
    )  # fmt: skip
    handles = {model.values[n.outputs[0]].elements for n in model.nodes if n.type == "VarHandleOp"}
    assert variables == 14
    assert sum(model.values[n.outputs[0]].elements for n in model.nodes if n.type == "VarHandleOp") == 232
    assert {81, 3, 30, 10} == handles
    assert ends(model) == [[("serving_default_image", "float32", "?x16x16x3")], [("Identity", "float32", "?x10")]]
    assert {"cnn_1/block0_conv_1", "cnn_1/head_1"} <= {"/".join(s.name for s in n.scope) for n in model.nodes}
    assert data_flows(model, "serving_default_image", "output_0")
    assert model.producer == "TensorFlow 2.21.0"


@pytest.mark.parametrize(
    ("name", "nodes", "constants", "elements"), [("frozen", 65, 19, 244), ("frozen_control", 108, 10, 26)]
)
def test_frozen_graphs_equal_tensorflows_importer(name: str, nodes: int, constants: int, elements: int) -> None:
    model = read(f"tensorflow_{name}.pb")
    silent = {"frozen": 1, "frozen_control": 9}[name]  # NoOp, which is nothing but an order
    added = sum(n.kind == "output" for n in model.nodes)
    assert len(model.nodes) - added == nodes - silent
    assert (sum(n.type == "Const" for n in model.nodes), sum(weights(model).values())) == (constants, elements)


def test_loops_of_frozen_graphs_are_followed() -> None:
    model = read("tensorflow_frozen_control.pb")
    assert {"Enter", "Switch", "Merge", "NextIteration", "Exit", "LoopCond"} <= set(types(model))
    assert data_flows(model, "x", "Identity")


def test_control_flow_of_tensorflow() -> None:
    model = read("tensorflow_control.pb")
    loop, choice = node(model, "while"), node(model, "cond")
    outside = Counter(
        n.type for n in model.nodes if n.kind != "input" and not any(s.kind == "control" for s in n.scope)
    )
    # By TensorFlow's loader; its Identity leaves cond, one more stands in the wrapper of the signature.
    told = {"Const": 9, "While": 1, "StatelessIf": 1, "Sum": 1, "Maximum": 1, "Identity": 3, "NotEqual": 1}
    assert {kind: outside[kind] for kind in told} == told
    taken = [
        n
        for n in model.nodes
        if n.kind == "input" and n.scope[:2] == (*loop.place, loop.place[0]._replace(name="body", kind="subgraph"))
    ]
    assert [n.inputs[0] for n in taken] == list(loop.inputs)
    results = [n for n in model.nodes if n.kind == "output" and n.scope[:1] == loop.place and n.outputs]
    assert [n.outputs for n in results] == [loop.outputs]
    branches = [n for n in model.nodes if n.kind == "output" and n.scope[:1] == choice.place]
    assert [(n.scope[1].name, n.outputs) for n in branches] == [
        ("then_branch", choice.outputs),
        ("else_branch", choice.outputs),
    ]
    assert data_flows(model, "serving_default_x", "y")
