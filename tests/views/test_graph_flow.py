"""Control flow and calls: drawn as one node, followed from end to end, and their own time on each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.conftest import FIXTURES, json_of, trace_of
from tests.recordings import recording_path
from visualprof.reader.graph import ModelGraph, Node
from visualprof.reader.models import read_model
from visualprof.reader.trace import Trace
from visualprof.views import graph
from visualprof.views.measure.graphs.compare import compare_graphs
from visualprof.views.measure.graphs.hierarchy import Hierarchy, cached_hierarchy
from visualprof.views.measure.graphs.join import join_times
from visualprof.views.measure.graphs.names import is_related_type
from visualprof.views.measure.graphs.node_times import measured

FLOW = FIXTURES / "onnxruntime"
MODELS = [
    FLOW / "flow.onnx",
    FIXTURES / "graphs" / "torch_cnn.pt2",
    *sorted((FIXTURES / "models").glob("*_control.*")),
    "models/onnx/subgraphs_if_loop.onnx",
    "models/onnx_real/silero_vad_16k_op15.onnx",
    "models/onnx_real/basic_pitch_nmp.onnx",
]


def flow() -> ModelGraph:
    return read_model(FLOW / "flow.onnx")


def reached(tree: Hierarchy, start: int) -> set[int]:
    """Shown nodes that data of one leads to; a node with bodies leads to all in them."""
    of_group = {g.node: number for number, g in enumerate(tree.groups) if g.node >= 0}
    after: dict[int, list[int]] = {}
    for a, b in zip(tree.src, tree.dst, strict=True):
        after.setdefault(a, []).append(b)
    found, ahead = {start}, [start]
    while ahead:
        at = ahead.pop()
        inside = [of_group[at]] if at in of_group else []
        for group in inside:
            inside += tree.groups[group].groups
        new = {*after.get(at, ()), *(n for g in inside for n in tree.groups[g].nodes)} - found
        found |= new
        ahead += new
    return found


@pytest.mark.parametrize("file", MODELS, ids=str)
def test_from_every_input_the_data_can_be_followed_to_an_output(file: Path | str) -> None:
    model = read_model(file if isinstance(file, Path) else recording_path(file))
    tree = cached_hierarchy(model)
    nodes = [model.nodes[row] for row in tree.drawn_nodes]
    ends = {kind: {i for i, n in enumerate(nodes) if n.kind == kind and not n.scope} for kind in ("input", "output")}
    assert ends["input"]
    lead = {i: reached(tree, i) for i in ends["input"]}
    read = {value for node in model.nodes for value in node.inputs}  # exporters leave inputs that nothing reads
    used = {i for i in ends["input"] if read.intersection(nodes[i].outputs)}
    assert used
    assert all(lead[i] & ends["output"] for i in used), "an input leads nowhere"
    assert ends["output"] <= set().union(*lead.values()), "an output comes from nowhere"


def test_a_node_with_bodies_is_the_group_of_them() -> None:
    answer = json_of(graph.drawn(flow()))
    groups, nodes = answer["groups"], answer["nodes"]
    of = {nodes["full_name"][n]: g for g, n in enumerate(groups["node"]) if n is not None}
    assert sorted(of) == ["If.0", "call_0", "call_1", "while_loop", "while_loop_1"]
    assert [groups["kind"][of[name]] for name in ("If.0", "call_0", "while_loop")] == ["control", "function", "control"]
    assert groups["twin"][of["while_loop"]] == groups["twin"][of["while_loop_1"]]
    branches = [groups["name"][g] for g, parent in enumerate(groups["parent"]) if parent == of["If.0"]]
    assert sorted(branches) == ["else_branch", "then_branch"]
    # 12 nodes of the graph, 3 in each of two bodies, 2 in each of two branches and of two calls
    assert groups["operators"][0] == answer["model"]["operators"] == 12 + 2 * 3 + 2 * 2 + 2 * 2


def placed(node: Node) -> str:
    """A name with that of the node around: `while_loop:state`."""
    return ":".join([*[s.name for s in node.scope if s.kind in ("control", "function")][-1:], node.name])


def test_a_body_does_not_repeat_the_place_of_its_node() -> None:
    """`/model/decoder/rnn/x` stands in `rnn` of the branch of an If of `/model/decoder`, not in that of one inside."""
    model = read_model(recording_path("models/onnx_real/silero_vad_16k_op15.onnx"))
    places = ["/".join(s.name for s in node.scope) for node in model.nodes if node.name == "/model/decoder/rnn/LSTM"]
    assert places == ["model/decoder/If_1/then_branch/rnn"]
    deep = max((node.scope for node in model.nodes), key=len)
    assert [s.name for s in deep if s.kind == "scope"] in (["model", "decoder", "rnn"], ["model", "decoder", "rnn_1"])


def edges_of(model: ModelGraph) -> set[tuple[str, str]]:
    """Edges by names, with the node around."""
    tree = cached_hierarchy(model)

    name = [placed(model.nodes[row]) for row in tree.drawn_nodes]
    return {(name[a], name[b]) for a, b in zip(tree.src, tree.dst, strict=True)}


def test_data_passes_through_formal_inputs_and_outputs() -> None:
    edges = edges_of(flow())
    # Add → first loop's state → its product → its output → second loop's state, once each
    for edge in [
        ("head/Add", "while_loop:state"),
        ("while_loop:state", "while_loop:while/MatMul"),
        ("while_loop:while/Tanh", "while_loop:after"),
        ("while_loop:after", "while_loop_1:state"),
        ("while_loop_1:after", "call_0:function/Sigmoid"),
        ("call_0:function/Mul", "call_1:function/Mul"),
        ("call_1:function/Mul", "If.0:then/Exp"),
        ("If.0:then_out", "y"),
        ("If.0:else_out", "y"),
    ]:
        assert edge in edges
    # What the node itself takes and makes: the condition of the If, the number of the iteration, the wish to go on.
    assert {("which", "If.0"), ("while_loop", "while_loop:step"), ("while_loop:still", "while_loop")} <= edges
    assert not [edge for edge in edges if edge in {("head/Add", "while_loop"), ("while_loop", "while_loop_1:state")}]


def times(model: ModelGraph, trace: Trace) -> dict[str, tuple[int, int]]:
    """Time and calls by name and the node around."""
    joined = join_times(model, trace)
    return {
        placed(node): (int(joined.time_ns[row]), int(joined.calls[row]))
        for row, node in enumerate(model.nodes)
        if joined.calls[row] > 0
    }


def duration(trace: Trace, name: str) -> int:
    rows = [i for i, n in enumerate(trace.events.name.tolist()) if trace.strings[n] == name]
    return int(trace.events.dur[rows].sum())


@pytest.mark.parametrize("level", ["off", "all"])
def test_each_loop_has_its_own_time(level: str) -> None:
    trace = trace_of(FLOW / f"flow_{level}.json.gz")
    found = times(flow(), trace)
    for name in ("while/MatMul", "while/Tanh", "while/Identity"):
        short, long = found[f"while_loop:{name}"], found[f"while_loop_1:{name}"]
        assert (short[1], long[1]) == (3 * 8, 3 * 128), "three runs of 8 and of 128 steps"
        assert short[0] + long[0] == duration(trace, name)
    inside = sum(ns for name, (ns, _) in found.items() if name.startswith("while_loop_1:"))
    assert inside + found["while_loop_1"][0] == duration(trace, "while_loop_1"), "nothing of the other loop"
    assert "If.0:branch/Add" in found
    assert not [name for name in found if name.startswith("else")]


def test_calls_of_a_function_have_their_own_time() -> None:
    trace = trace_of(FLOW / "flow_off.json.gz")
    found = times(flow(), trace)
    assert found["call_0:function/Mul"][0] == duration(trace, "_inlfunc_Step_function/Mul")
    assert found["call_1:function/Mul"][0] == duration(trace, "_inlfunc_Step_token_0_function/Mul")


def test_merged_operators_map_to_the_node_of_their_type_and_the_rest_is_reported() -> None:
    trace = trace_of(FLOW / "flow_all.json.gz")
    found = times(flow(), trace)
    assert found["Conv.0"][0] == duration(trace, "relued_nchwc")
    assert found["head/MatMul"][0] == duration(trace, "head/MatMul/MatMulAddFusion")
    assert found["call_1:function/Mul"][0] == duration(trace, "_inlfunc_Step_token_0_function/Mul/QuickGeluFusion/")
    assert not {"BatchNormalization.0", "Relu.0", "head/Add"} & set(found)
    profile = json_of(measured(flow(), trace))
    lost = profile["total_ns"] - profile["matched_ns"]
    assert profile["unmatched"] == {
        "name": ["ReorderOutput"],
        "reason": ["layout"],
        "time_ns": [lost],
        "calls": [3],
        "event": [max((int(trace.events.dur[i]), i) for i in named(trace, "ReorderOutput"))[1]],
    }
    assert lost == duration(trace, "ReorderOutput")


@pytest.mark.parametrize("model", ["tinybert_scoped_dyn", "tinybert_dynamo"])
def test_operators_merged_by_openvino_map_to_the_matrix_product(model: str) -> None:
    """OpenVINO calls MatMul and the Add of its bias after the Add."""
    trace = trace_of(recording_path(f"traces/openvino/openvino_{model}_b2.json"))
    nodes = read_model(recording_path(f"models/onnx/{model}.onnx"))
    joined = join_times(nodes, trace)
    kinds = trace.arg("type", np.maximum(joined.event, 0), 0).tolist()
    on = {
        node.type
        for node, event, kind in zip(nodes.nodes, joined.event.tolist(), kinds, strict=True)
        if event >= 0 and trace.strings[int(kind)] == "FullyConnected"
    }
    assert on == {"MatMul", "Gemm"}


def named(trace: Trace, name: str) -> list[int]:
    return [i for i, n in enumerate(trace.events.name.tolist()) if trace.strings[n] == name]


@pytest.mark.parametrize("level", ["off", "all"])
def test_the_operator_table_has_every_measured_node(level: str) -> None:
    trace = trace_of(FLOW / f"flow_{level}.json.gz")
    columns = json_of(measured(flow(), trace))["columns"]
    table = {trace.strings[n] for n in trace.events.name.tolist()}
    links = [name for name, ns in zip(columns["operator"], columns["time_ns"], strict=True) if ns is not None]
    assert links
    assert set(links) <= table
    assert "relued_nchwc" in links or level == "off"


def test_a_name_in_two_bodies_is_ambiguous(tmp_path: Path) -> None:
    """Both loops are called alike, and ran once each: 5 us in all; the inner product is neither's."""
    names = ["while_loop", "while_loop_1"]
    model = onnx.load(FLOW / "flow.onnx")
    for node in model.graph.node:
        if node.name in names:
            node.name = "loop"
    path = tmp_path / "same.onnx"
    onnx.save(model, path)
    event = {"cat": "Node", "pid": 1, "tid": 1, "ph": "X"}
    events = [
        event | {"name": "loop_kernel_time", "ts": 0, "dur": 5, "args": {"op_name": "Loop"}},
        event | {"name": "while/MatMul_kernel_time", "ts": 1, "dur": 2, "args": {"op_name": "MatMul"}},
    ]
    joined = join_times(read_model(path), trace_of(ort_file(tmp_path, events)))
    assert (joined.total_ns, joined.matched_ns) == (5000, 0)
    assert [(item.name, item.reason, item.time_ns) for item in joined.unmatched] == [
        ("loop", "ambiguous", 3000),
        ("while/MatMul", "ambiguous", 2000),
    ]


def test_operators_added_by_a_runtime_are_identified_by_type(tmp_path: Path) -> None:
    """3 us of a merged operator, 4 us of two conversions, 1 us of a name that the model lacks."""
    event = {"cat": "Node", "pid": 1, "tid": 1, "ph": "X"}
    made = [
        ("BiasGelu_token_7", "BiasGelu", 2),
        ("BiasGelu", "BiasGelu", 1),
        ("ReorderInput_token_1", "ReorderInput", 4),
        ("elsewhere", "Conv", 1),
        ("Conv.0", "Conv", 5),
    ]
    events = [
        event | {"name": f"{name}_kernel_time", "ts": 10 * i, "dur": us, "args": {"op_name": kind}}
        for i, (name, kind, us) in enumerate(made)
    ]
    joined = join_times(flow(), trace_of(ort_file(tmp_path, events)))
    assert (joined.total_ns, joined.matched_ns) == (13_000, 5000)
    assert [(item.name, item.reason, item.time_ns, item.calls) for item in joined.unmatched] == [
        ("ReorderInput", "layout", 4000, 1),
        ("BiasGelu", "unnamed", 3000, 2),
        ("elsewhere", "no_node", 1000, 1),
    ]


def test_inputs_have_their_own_time_and_constants_are_separate() -> None:
    """MegEngine runs inputs and weights as operators: two inputs, and weights that are folded into what reads them."""
    path = recording_path("traces/megengine/profile_analyze/transformer_tiny.profile.json")
    model = read_model(path)
    joined = join_times(model, trace_of(path))
    of = {node.name: joined.time_ns[row] for row, node in enumerate(model.nodes)}
    assert of["mask"] > 0
    assert of["tokens"] > 0
    assert [(item.name, item.reason) for item in joined.unmatched] == [("ImmutableTensor", "constant")]
    assert joined.matched_ns + joined.unmatched[0].time_ns == joined.total_ns


def ort_file(folder: Path, events: list[dict[str, Any]]) -> Path:
    head = {"cat": "Session", "pid": 1, "tid": 1, "ph": "X", "name": "model_run", "ts": 0, "dur": 9, "args": {}}
    path = folder / "ort.json"
    path.write_text(json.dumps([head, *events]))
    return path


def test_a_body_may_return_outer_values(tmp_path: Path) -> None:
    """A branch gives a value from around it, a loop body its own input."""
    scalar = helper.make_tensor_value_info
    captured = helper.make_graph([], "then", [], [scalar("x", TensorProto.FLOAT, [2])])
    body_graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["n"], name="neg")], "else", [], [scalar("n", TensorProto.FLOAT, [2])]
    )
    branch = helper.make_node("If", ["c"], ["y"], name="if", then_branch=captured, else_branch=body_graph)
    inputs = [scalar("c", TensorProto.BOOL, []), scalar("x", TensorProto.FLOAT, [2])]
    whole = helper.make_graph([branch], "g", inputs, [scalar("y", TensorProto.FLOAT, [2])])
    path = tmp_path / "captured.onnx"
    onnx.save(helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    assert edges_of(read_model(path)) == {
        ("c", "if"),
        ("x", "if:x"),
        ("if:x", "y"),
        ("x", "if:neg"),
        ("if:neg", "if:n"),
        ("if:n", "y"),
    }


def test_bodies_that_repeat_names_are_compared_each_with_its_own(tmp_path: Path) -> None:
    """Of two loops the second lost its Tanh."""
    model = onnx.load(FLOW / "flow.onnx")
    second = next(node for node in model.graph.node if node.name == "while_loop_1")
    body = next(a.g for a in second.attribute if a.name == "body")
    tanh = next(i for i, node in enumerate(body.node) if node.op_type == "Tanh")
    del body.node[tanh]
    body.node[0].output[0] = "after"
    onnx.save(model, tmp_path / "less.onnx")
    tree = cached_hierarchy(flow())
    comparison = compare_graphs(flow(), read_model(tmp_path / "less.onnx"))
    gone = [i for i, status in enumerate(comparison.status) if status == "removed"]
    assert [placed(flow().nodes[tree.drawn_nodes[i]]) for i in gone] == ["while_loop_1:while/Tanh"]


@pytest.mark.parametrize(
    ("kind", "through"),
    [
        ("Scan", {("x", "n:a"), ("s", "n:b"), ("n:c", "y"), ("n:d", "z")}),
        ("SequenceMap", {("x", "n:a"), ("s", "n:b"), ("n:c", "y"), ("n:d", "z")}),
        ("Loop", {("x", "n"), ("s", "n"), ("n", "n:a"), ("n", "n:b"), ("n:c", "n"), ("n:d", "y"), ("n", "z")}),
        ("BeamSearch", {("x", "n"), ("s", "n"), ("n", "n:a"), ("n", "n:b"), ("n:c", "n"), ("n:d", "n"), ("n", "y")}),
    ],
)
def test_bodies_of_other_nodes_and_of_wrong_ones(tmp_path: Path, kind: str, through: set[tuple[str, str]]) -> None:
    """A Loop of two inputs has only the turns and the condition; what is known of no node is the node's own."""

    def scalar(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])

    inside = [helper.make_node("Add", ["a", "b"], ["c"], name="add"), helper.make_node("Neg", ["c"], ["d"], name="neg")]
    body = helper.make_graph(inside, "body", [scalar("a"), scalar("b")], [scalar("c"), scalar("d")])
    node = helper.make_node(kind, ["x", "s"], ["y", "z"], name="n", body=body)
    whole = helper.make_graph([node], "g", [scalar("x"), scalar("s")], [scalar("y"), scalar("z")])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    inner = {("n:a", "n:add"), ("n:b", "n:add"), ("n:add", "n:neg"), ("n:add", "n:c"), ("n:neg", "n:d")}
    assert inner | through <= edges_of(read_model(path))
    test_from_every_input_the_data_can_be_followed_to_an_output(path)


@pytest.mark.parametrize(
    ("node", "ran", "does"),
    [
        ("Conv", "FusedConv", True),
        ("Conv", "QLinearConv", True),
        ("MatMulInteger", "DynamicQuantizeMatMul", True),
        ("MatMul", "Gemm", True),
        ("MatMul", "FullyConnected", True),
        ("Conv", "GroupConvolution", True),
        ("MaxPool", "NhwcMaxPool", True),
        ("LayerNormalization", "SkipLayerNormalization", True),
        ("Mul", "FusedMatMul", False),
        ("BatchNormalization", "Conv", False),
        ("Relu", "Conv", False),
        ("Add", "Gemm", False),
        ("aten::relu", "Conv", False),
    ],
)
def test_types_that_do_the_same(node: str, ran: str, does: bool) -> None:
    assert is_related_type(node, ran) is does
