"""Models of Paddle, OpenVINO, TensorFlow and VisualDL: counts as the frameworks' own loaders give them, structure.

The figures come from tests/fixtures/models/make_*.py, which ask the frameworks.
"""

from __future__ import annotations

import re
import struct
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conftest import FIXTURES
from tests.recordings import recording_path
from visualprof.errors import FormatError
from visualprof.reader import protobuf, read_trace
from visualprof.reader.graph import ModelGraph, Node, Scope
from visualprof.reader.models import read_model
from visualprof.views.graph import drawn
from visualprof.views.measure.graphs.join import join_times

MODELS = FIXTURES / "models"
FILES = sorted(p for p in MODELS.iterdir() if p.is_file() and p.suffix not in (".py", ".md"))


def read(name: str) -> ModelGraph:
    return read_model(MODELS / name)


def types(model: ModelGraph) -> Counter[str]:
    return Counter(n.type for n in model.nodes if n.kind in ("operator", "constant"))


def ends(model: ModelGraph) -> list[list[tuple[str, str, str]]]:
    drawn_model = drawn(model).model
    return [[(t.name, t.dtype, t.shape) for t in tensors] for tensors in (drawn_model.inputs, drawn_model.outputs)]


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


def test_paddle_3_is_grouped_by_its_named_layers() -> None:
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
        "Cnn[model]/Conv2D[stem]",
        "Cnn[model]/Sequential[blocks]/Block[0]/Conv2D[conv]",
        "Cnn[model]/Sequential[blocks]/Block[1]/Conv2D[conv]",
    }
    assert data_flows(model, "image", "save_infer_model/scale_0.tmp_0")


def test_control_flow_of_paddle_3() -> None:
    model = read("paddle_control.json")
    loop, choice = node(model, "while_0"), node(model, "if_0")
    inside = [n for n in model.nodes if n.scope[:1] == loop.full_scope]
    # The loop takes a condition and two values; its body yields a condition and two values, as Paddle prints it.
    assert [(n.kind, n.inputs) for n in inside if n.kind == "input"] == [("input", (v,)) for v in loop.inputs[1:]]
    assert [n.outputs for n in inside if n.kind == "output"] == [(), *((v,) for v in loop.outputs)]
    assert Counter(n.type for n in inside if n.kind == "operator") == Counter(
        matmul=1, add=1, full=2, scale=1, less_than=1
    )
    branches = [n for n in model.nodes if n.scope[:1] == choice.full_scope and n.kind == "output"]
    assert [(n.scope[1].name, n.outputs) for n in branches] == [
        ("then_branch", choice.outputs),
        ("else_branch", choice.outputs),
    ]
    assert data_flows(model, "image", "fetch_name_0")


def test_control_flow_of_paddle_2() -> None:
    model = read("paddle_control.pdmodel")
    # 13, 8, 2 and 2 operators in the blocks, by Paddle's loader.
    assert Counter(n.scope[0].name if n.scope else "" for n in model.nodes if n.kind == "operator") == {
        "": 13,
        "while_0": 8,
        "conditional_block_0": 2,
        "conditional_block_1": 2,
    }
    loop = node(model, "while_0")
    made = {v for n in model.nodes if n.kind == "output" and n.scope == loop.full_scope for v in n.outputs}
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


def test_weights_kept_in_half_precision_are_drawn_as_weights() -> None:
    model = read("openvino_half.xml")
    assert types(model) == types(read("openvino_cnn.xml"))
    assert (sum(weights(model).values()), drawn(model).model.parameter_bytes) == (874, 872 * 2 + 2 * 8)
    assert model.properties["widened_weights"].startswith("3 Convert")


@pytest.mark.parametrize("name", ["openvino_cnn.xml", "openvino_half.xml"])
def test_a_profile_of_openvino_matches_the_layers_of_its_model(name: str) -> None:
    """The recording's counters by hand: 65, 22, 18 and 35 us; 9 and 2 us are Reorders, which no layer is."""
    model = read(name)
    joined = join_times(model, read_trace(FIXTURES / "openvino" / "cnn_profile.json"))
    values_by_name = {n.name: joined.time_ns[i] for i, n in enumerate(model.nodes) if joined.event[i] >= 0}
    assert values_by_name == {
        "/stage0/conv/Conv": 65e3,
        "/stage1/conv/Conv": 22e3,
        "/head/mean": 18e3,
        "/head/MatMul": 35e3,
    }
    assert (joined.total_ns, joined.matched_ns) == (151_000, 140_000)


@pytest.mark.parametrize("name", ["paddle_cnn.json", "paddle_cnn.pdmodel"])
def test_a_profile_of_another_paddle_model_matches_no_node(name: str) -> None:
    (path,) = recording_path("traces/paddle/small_paddle331").glob("*.paddle_trace.json")
    joined = join_times(read(name), read_trace(path))
    assert joined.total_ns > 0
    assert joined.matched_ns == 0
    assert joined.reason == "The run executes other operators than this model, or another number of them."


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
    node_types = types(model)
    variables = node_types.pop("VarHandleOp")
    # What TensorFlow says of the function, and the Identity of the signature that calls it.
    assert node_types == Counter(
        AddV2=6,
        BiasAdd=3,
        Const=5,
        Conv2D=2,
        Identity=1 + 1,
        MatMul=1,
        Mean=1,
        Mul=6,
        ReadVariableOp=14,
        Relu=2,
        Reshape=2,
        Rsqrt=2,
        Squeeze=2,
        Sub=2,
    )
    handles = {model.values[n.outputs[0]].elements for n in model.nodes if n.type == "VarHandleOp"}
    assert variables == 14
    assert sum(model.values[n.outputs[0]].elements for n in model.nodes if n.type == "VarHandleOp") == 232
    assert {81, 3, 30, 10} == handles
    assert ends(model) == [[("image", "float32", "?x16x16x3")], [("Identity", "float32", "?x10")]]
    assert {"cnn_1/block0_conv_1", "cnn_1/head_1"} <= {"/".join(s.name for s in n.scope) for n in model.nodes}
    assert data_flows(model, "image", "output_0")
    assert model.producer == "TensorFlow 2.21.0"


@pytest.mark.parametrize(
    ("name", "nodes", "constants", "elements"), [("frozen", 65, 19, 244), ("frozen_control", 108, 10, 26)]
)
def test_frozen_graphs_equal_tensorflows_importer(name: str, nodes: int, constants: int, elements: int) -> None:
    model = read(f"tensorflow_{name}.pb")
    # NoOp, which is nothing but an order, and placeholders that nothing reads.
    silent = {"frozen": 1, "frozen_control": 9 + 12}[name]
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
    values_by_name = {"Const": 9, "While": 1, "StatelessIf": 1, "Sum": 1, "Maximum": 1, "Identity": 3, "NotEqual": 1}
    assert {kind: outside[kind] for kind in values_by_name} == values_by_name
    taken = [
        n
        for n in model.nodes
        if n.kind == "input"
        and n.scope[:2] == (*loop.full_scope, loop.full_scope[0]._replace(name="body", kind="subgraph"))
    ]
    assert [n.inputs[0] for n in taken] == list(loop.inputs)
    results = [n for n in model.nodes if n.kind == "output" and n.scope[:1] == loop.full_scope and n.outputs]
    assert [n.outputs for n in results] == [loop.outputs]
    branches = [n for n in model.nodes if n.kind == "output" and n.scope[:1] == choice.full_scope]
    assert [(n.scope[1].name, n.outputs) for n in branches] == [
        ("then_branch", choice.outputs),
        ("else_branch", choice.outputs),
    ]
    assert data_flows(model, "x", "y")


# By LiteRT's interpreter without its delegate; a control flow operator's bodies are not in its list.
@pytest.mark.parametrize(
    ("name", "operators", "elements"),
    [
        ("cnn", {"CONV_2D": 2, "ADD": 2, "MEAN": 1, "FULLY_CONNECTED": 1}, 197),
        (
            "int8",
            {"QUANTIZE": 1, "CONV_2D": 2, "ADD": 2, "MEAN": 1, "FULLY_CONNECTED": 1, "DEQUANTIZE": 1},
            200,
        ),
    ],
)
def test_operators_equal_litert(name: str, operators: dict[str, int], elements: int) -> None:
    model = read(f"tflite_{name}.tflite")
    assert Counter(n.type for n in model.nodes if n.kind == "operator") == operators
    # 2 x 81 + 30 of kernels, 3 of a bias, 2 of axes; int8: one more bias
    assert sum(weights(model).values()) == elements
    assert ends(model) == [[("image", "float32", "?x16x16x3")], [("StatefulPartitionedCall_1:0", "float32", "?x10")]]
    assert data_flows(model, "image", "output_0")
    relu = node(model, "cnn_1/block0_relu_1/Relu")
    assert relu.attributes == {"padding": "SAME", "stride_w": "1", "stride_h": "1", "fused_activation": "RELU"}
    assert [s.name for s in relu.scope] == ["cnn_1", "block0_relu_1"]


def test_bytes_of_quantized_weights_equal_those_of_the_file() -> None:
    model = read("tflite_int8.tflite")
    kernel = next(n for n in model.nodes if n.name == "cnn_1/block0_conv_1/convolution")
    value = model.values[kernel.outputs[0]]
    assert (value.dtype, value.shape, value.bytes) == ("int8", (3, 3, 3, 3), 81)


def test_control_flow_of_litert() -> None:
    model = read("tflite_control.tflite")
    loop = node(model, "while")
    choice = next(n for n in model.nodes if n.type == "IF")
    outside = Counter(n.type for n in model.nodes if n.kind == "operator" and n.scope == ())
    assert outside == {"WHILE": 1, "SUM": 1, "GREATER": 1, "IF": 1}
    body = (*loop.full_scope, Scope("body", "subgraph"))
    inside = [n for n in model.nodes if n.scope[: len(body)] == body]
    assert [n.inputs[0] for n in inside if n.kind == "input"] == list(loop.inputs)
    assert [n.outputs[0] for n in inside if n.kind == "output"] == list(loop.outputs)
    taken = [n for n in model.nodes if n.kind == "input" and n.scope[:1] == choice.full_scope]
    assert [n.inputs for n in taken] == [choice.inputs[1:], choice.inputs[1:]]  # the first is the condition
    branches = [n for n in model.nodes if n.kind == "output" and n.scope[:1] == choice.full_scope]
    assert [(n.scope[1].name, n.outputs) for n in branches] == [
        ("then_branch", choice.outputs),
        ("else_branch", choice.outputs),
    ]
    assert data_flows(model, "x", "y")


Flat = dict[int, Any] | list[Any] | tuple[int, ...]


def flat(model: Flat) -> bytes:
    """A FlatBuffer of tables (fields by number), lists of tables and tuples of int32; what is one object is one."""
    out, places = bytearray(b"\0\0\0\0TFL3"), dict[int, int]()

    def refer(at: int, item: Flat) -> None:
        if id(item) not in places:
            put(item)
        struct.pack_into("<I", out, at, places[id(item)] - at)

    def put(item: Flat) -> None:
        if isinstance(item, dict):
            count = max(item, default=-1) + 1
            listed = struct.pack(
                f"<{2 + count}H", 4 + 2 * count, 4, *(4 + 4 * i if i in item else 0 for i in range(count))
            )
            out.extend(listed + struct.pack("<i", len(listed)) + bytes(4 * count))
            places[id(item)] = start = len(out) - 4 - 4 * count
            for number, value in item.items():
                if isinstance(value, int):
                    struct.pack_into("<I", out, start + 4 + 4 * number, value)
                else:
                    refer(start + 4 + 4 * number, value)
        elif isinstance(item, tuple):
            places[id(item)] = len(out)
            out.extend(struct.pack(f"<I{len(item)}i", len(item), *item))
        else:
            places[id(item)] = start = len(out)
            out.extend(struct.pack("<I", len(item)) + bytes(4 * len(item)))
            for number, value in enumerate(item):
                refer(start + 4 + 4 * number, value)

    refer(0, model)
    return bytes(out)


def test_hostile_flatbuffers_are_refused(tmp_path: Path) -> None:
    whole = (MODELS / "tflite_control.tflite").read_bytes()
    refused(tmp_path / "far.tflite", struct.pack("<I", 1 << 31) + whole[4:], "is outside of the file")
    tensor: Flat = {0: (4,)}
    many: Flat = [{0: 0, 1: (0,) * 10_000, 2: (0,)}] * 100_000
    add: Flat = [{3: 0}]
    refused(tmp_path / "many.tflite", flat({1: add, 2: [{0: [tensor], 3: many}]}), "its parts overlap")
    choice: Flat = {0: 0, 2: (0,), 4: {0: 0, 1: 0}}
    refused(tmp_path / "self.tflite", flat({1: [{3: 118}], 2: [{0: [tensor], 3: [choice]}]}), "hold each other")
    refused(tmp_path / "none.tflite", flat({1: add, 2: [{0: [tensor], 3: [{0: 0, 2: (7,)}]}]}), "there is no tensor 7")
    refused(tmp_path / "code.tflite", flat({1: add, 2: [{0: [tensor], 3: [{0: 9}]}]}), "there is no operator 9")
    refused(tmp_path / "bare.tflite", flat({0: 3}), "there is no subgraph 0")


def refused(path: Path, content: bytes | str, what: str) -> None:
    """A clear error that names the file, soon."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    start = time.process_time()
    with pytest.raises(FormatError, match=rf"{re.escape(path.name)}: .*{what}"):
        read_model(path)
    assert time.process_time() - start < 10


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_models_are_known_by_content_and_cuts_are_clear_errors(tmp_path: Path, path: Path) -> None:
    copy, data = tmp_path / "unknown", path.read_bytes()
    copy.write_bytes(data)
    assert read_model(copy).format == read_model(path).format
    for part in (0.3, 0.6, 0.95):
        refused(tmp_path / f"cut{path.suffix}", data[: int(len(data) * part)], "(not a whole|damaged|is empty)")


def field(number: int, content: bytes | int) -> bytes:
    """A field of protobuf."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def tf_node(name: str, kind: str, *inputs: str, **functions: str) -> bytes:
    attributes = (
        field(5, field(1, k.encode()) + field(2, field(10, field(1, f.encode())))) for k, f in functions.items()
    )
    parts = (field(1, name.encode()), field(2, kind.encode()), *(field(3, i.encode()) for i in inputs), *attributes)
    return b"".join(parts)


def tf_function(name: str, *nodes: bytes) -> bytes:
    return field(1, field(1, field(1, name.encode())) + b"".join(field(3, n) for n in nodes))


def test_multiplying_or_recursive_tensorflow_functions_are_rejected(tmp_path: Path) -> None:
    start = field(1, tf_node("x", "Placeholder")) + field(1, tf_node("y", "PartitionedCall", "x", f="f0"))
    levels = [
        tf_function(f"f{i}", *(tf_node(f"n{k}", "PartitionedCall", f=f"f{i + 1}") for k in range(10)))
        for i in range(10)
    ]
    refused(
        tmp_path / "laughs.pb",
        start + field(2, b"".join(levels) + tf_function("f10")),
        "11,111,111,112 nodes; 100,000 can be shown",
    )
    recursive = tf_function("f0", tf_node("n", "PartitionedCall", f="f0"))
    refused(tmp_path / "own.pb", start + field(2, recursive), "its function 'f0' calls itself")
    deep = [tf_function(f"f{i}", tf_node("n", "PartitionedCall", f=f"f{i + 1}")) for i in range(5000)]
    refused(tmp_path / "deep.pb", start + field(2, b"".join(deep)), "over 100 deep")


def test_a_protobuf_of_empty_parts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf, "MAX_REPEATED", 1000)
    start = field(1, tf_node("x", "Placeholder"))
    refused(tmp_path / "many.pb", start + b"\x0a\x00" * 1001, "over 1,000 parts")
    refused(tmp_path / "many.pdmodel", _pdmodel(b"\x22\x00" * 1001), "over 1,000 parts")


def _pdmodel(content: bytes) -> bytes:
    return field(1, field(1, 0) + field(2, (1 << 64) - 1) + content)


def test_a_block_of_paddle_inside_itself_is_drawn_once(tmp_path: Path) -> None:
    attribute = field(4, field(1, b"sub_block") + field(2, 8) + field(12, 0))
    (tmp_path / "m.pdmodel").write_bytes(_pdmodel(field(4, field(3, b"while") + attribute)))
    model = read_model(tmp_path / "m.pdmodel")
    assert [n.name for n in model.nodes] == ["while_0"]
    assert model.warnings == ("block 0 is not there, or the body of several operators",)


def test_hostile_xml_is_refused(tmp_path: Path) -> None:
    end = '<net name="n" version="11"><layers><layer id="0" name="&l9;" type="A"/></layers></net>'
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
    document = f'<?xml version="1.0"?><!DOCTYPE net [<!ENTITY l0 "ha">{laughs}]>{end}'
    refused(tmp_path / "laughs.xml", document, "a document type of its own")
    outside = f'<!DOCTYPE net [<!ENTITY l9 SYSTEM "file:///etc/passwd">]>{end}'
    refused(tmp_path / "file.xml", outside, "a document type of its own")
    hidden = b'<?xml version="1.0" encoding="cp037"?>' + end.encode()
    refused(tmp_path / "encoding.xml", hidden, "undefined entity")
    body = '<layer id="0" name="l" type="Loop"><body><layers>'
    refused(tmp_path / "deep.xml", '<net name="n" version="11"><layers>' + body * 50_000, "nest over 64 deep")
    refused(tmp_path / "old.xml", '<net name="n" version="7"><layers></layers></net>', "of version 7")
    refused(tmp_path / "bare.xml", '<net name="n" version="11"><layers><layer/></layers></net>', "missing 'type'")


def test_deep_programs_of_paddle_3_are_refused(tmp_path: Path) -> None:
    start = '{"base_code":{"magic":"pir","version":1},"program":{"regions":['
    deep = '{"blocks":[{"ops":[{"#":"1.if","regions":[' * 50_000
    refused(tmp_path / "deep.json", start + deep, "not a whole Paddle model")
    odd = start + '{"blocks":[{"args":[],"ops":[{"#":5}]}]}]}}'
    refused(tmp_path / "odd.json", odd, r"Expected `str`, got `int` - at `\$\.program\.regions")


def test_odd_names_and_sizes_are_shown_as_they_are(tmp_path: Path) -> None:
    name = "<b>名前</b>&\ufffd"
    node = tf_node("x", "Placeholder") + field(5, field(1, b"shape") + field(2, field(7, field(2, field(1, 1 << 62)))))
    data = field(1, node) + field(1, field(1, "<b>名前</b>&".encode() + b"\xff") + field(2, b"Relu") + field(3, b"x"))
    (tmp_path / "m.pb").write_bytes(data)
    model = read_model(tmp_path / "m.pb")
    assert [n.name for n in model.nodes] == ["x", name, name]
    assert model.values[0].elements == -1
    assert msgspec.json.encode(drawn(model))


def test_the_state_of_a_paddle_operator_is_not_a_weight(tmp_path: Path) -> None:
    typed = {"TT": {"#": "0.t_dtensor", "D": [{"#": "0.t_ui8"}, [4], "NCHW", [], 0]}}
    held = [
        {"#": "p", "A": [0, 1, 1, name], "O": {"%": i, **typed}} for i, name in ((1, "w"), (2, "s__non_persistable"))
    ]
    read_by = {"#": "1.rnn", "A": [], "I": [{"%": 1}, {"%": 0}, {"%": 2}], "O": []}
    program = {"regions": [{"blocks": [{"args": [], "ops": [*held, read_by]}]}]}
    document = {"base_code": {"magic": "pir", "version": 1}, "program": program}
    (tmp_path / "m.json").write_bytes(msgspec.json.encode(document))
    model = read_model(tmp_path / "m.json")
    assert weights(model) == {"w": 4}
    assert [model.values[v].name for v in node(model, "rnn_0").inputs] == ["w", "s__non_persistable"]


def test_a_function_of_tensorflow_that_is_called_twice_is_two_groups(tmp_path: Path) -> None:
    signature = field(1, b"f") + field(2, field(1, b"a")) + field(3, field(1, b"out"))
    output_field = field(4, field(1, b"out") + field(2, b"r:activations:0"))
    function = field(1, field(1, signature) + field(3, tf_node("r", "Relu", "a")) + output_field)
    calls = [tf_node("one", "PartitionedCall", "x", f="f"), tf_node("two", "PartitionedCall", "one", f="f")]
    nodes = b"".join(field(1, n) for n in (tf_node("x", "Placeholder"), *calls))
    (tmp_path / "m.pb").write_bytes(nodes + field(2, function))
    model = read_model(tmp_path / "m.pb")
    first, two = node(model, "one"), next(n for n in model.nodes if n.name == "two" and n.kind == "operator")
    inside = [n for n in model.nodes if n.type == "Relu"]
    assert [(n.scope, n.inputs) for n in inside] == [(first.full_scope, first.inputs), (two.full_scope, two.inputs)]
    assert [s.kind for s in (*first.full_scope, *two.full_scope)] == ["function", "function"]
    assert two.inputs == first.outputs
    assert data_flows(model, "x", "two")
