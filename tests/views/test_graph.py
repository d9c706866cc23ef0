"""Groups, twins, edges, measured time and comparison of models."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import FIXTURES, SAMPLES, json_of, trace_of
from tests.recordings import recording_path
from visualprof.reader.graph import ModelBuilder, ModelGraph, Node, Scope, Value
from visualprof.reader.models import read_model
from visualprof.reader.trace import Trace
from visualprof.views import graph
from visualprof.views.measure.graphs import compare as graph_compare
from visualprof.views.measure.graphs.hierarchy import MAX_CHILDREN, cached_hierarchy
from visualprof.views.measure.graphs.node_times import measured as node_times


def columns(model: ModelGraph) -> dict[str, Any]:
    return json_of(graph.drawn(model))


def measured(model: ModelGraph, trace: Trace) -> dict[str, Any]:
    return json_of(node_times(model, trace))


def node_details(model: ModelGraph, place: int) -> dict[str, Any]:
    return json_of(graph.node_details(model, place))


def compare(model: ModelGraph, other: ModelGraph) -> dict[str, Any]:
    return json_of(graph_compare.compare_graphs(model, other))


def summary(found: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The kinds of differences: change, attribute, dimension, before, after, nodes."""
    return list(zip(*found["differences"]["summary"]["columns"].values(), strict=True))


def chain(types: list[str], scopes: list[tuple[str, ...]] | None = None) -> ModelGraph:
    """A model of operators one after the other."""
    builder = ModelBuilder("m", "made")
    before = builder.value(Value("x", "float32", (1, 4)))
    builder.node(Node("x", "Input", kind="input", outputs=(before,)))
    for i, kind in enumerate(types):
        after = builder.value(Value(f"v{i}", "float32", (1, 4)))
        weight = builder.value(Value(f"w{i}", "float32", (4, 4), 64))
        builder.node(Node(f"w{i}", "Constant", kind="constant", outputs=(weight,)))
        scope = tuple(Scope(s) for s in scopes[i]) if scopes else ()
        builder.node(Node(f"n{i}", kind, scope, "operator", (before, weight), (after,)))
        before = after
    builder.node(Node("y", "Output", kind="output", inputs=(before,)))
    return builder.build()


def test_constants_are_folded_into_their_consumer() -> None:
    shown = columns(chain(["Conv", "Relu"]))
    assert shown["nodes"]["type"] == ["Input", "Conv", "Relu", "Output"]
    assert shown["nodes"]["constants"] == [0, 1, 1, 0]
    assert shown["nodes"]["parameters"] == [0, 16, 16, 0]
    assert list(zip(shown["edges"]["src"], shown["edges"]["dst"], strict=True)) == [(0, 1), (1, 2), (2, 3)]


def test_scopes_become_groups_and_parents_precede_children() -> None:
    shown = columns(chain(["Conv", "Relu", "Conv", "Relu"], [("a", "b"), ("a", "b"), ("a", "c"), ("a", "c")]))
    groups = shown["groups"]
    assert groups["name"] == ["m", "a", "b", "c"]
    assert groups["parent"] == [-1, 0, 1, 1]
    assert groups["operators"] == [4, 4, 2, 2]
    assert groups["twin"] == [0, 1, 2, 2]


def test_a_scope_of_one_node_dissolves() -> None:
    shown = columns(chain(["Conv", "Relu"], [("a",), ("b",)]))
    assert shown["groups"]["name"] == ["m"]


def test_repeated_stretches_of_a_flat_model_become_blocks() -> None:
    block = ["Conv", "BatchNorm", "Relu", "Add"]
    shown = columns(chain(["Pad", *block * 5, "Gemm"]))
    assert shown["groups"]["kind"][1:] == ["block"] * 5
    assert set(shown["groups"]["twin"][1:]) == {1}


def test_a_group_of_many_children_is_cut_into_sections() -> None:
    shown = columns(chain([f"Op{i}" for i in range(MAX_CHILDREN * 2)]))
    assert shown["groups"]["kind"][1:] == ["section"] * 3
    assert max(shown["groups"]["operators"][1:]) <= MAX_CHILDREN


def test_a_shared_weight_counts_once_in_each_group() -> None:
    builder = ModelBuilder("m", "made")
    weight, lonely, x, y, z = (builder.value(Value(n, "float32", (2, 3), 24)) for n in ("w", "lonely", "x", "y", "z"))
    builder.node(Node("w", "Constant", kind="constant", outputs=(weight,)))
    builder.node(Node("lonely", "Constant", kind="constant", outputs=(lonely,)))
    builder.node(Node("x", "Input", kind="input", outputs=(x,)))
    builder.node(Node("a/b/one", "MatMul", (Scope("a"), Scope("b")), "operator", (x, weight), (y,)))
    builder.node(Node("a/c/two", "MatMul", (Scope("a"), Scope("c")), "operator", (y, weight, weight), (z,)))
    shown = columns(builder.build())
    of = dict(zip(shown["groups"]["name"], shown["groups"]["parameters"], strict=True))
    assert of == {"m": 12, "a": 6}  # groups of one node are dissolved
    assert shown["groups"]["parameter_bytes"][0] == shown["model"]["parameter_bytes"] == 48
    assert shown["nodes"]["parameters"] == [0, 6, 6]


@pytest.mark.parametrize(
    "file",
    [
        "models/onnx_real/layout_cdla.onnx",
        "models/onnx_real/silero_vad_16k_op15.onnx",
        "models/onnx/tinybert_dynamo.onnx",
    ],
)
def test_every_shown_node_is_in_one_group_and_edges_name_shown_nodes(file: str) -> None:
    tree = cached_hierarchy(read_model(recording_path(file)))
    members = sorted(n for g in tree.groups for n in (*g.nodes, g.node) if n >= 0)
    assert members == list(range(len(tree.drawn_nodes)))
    assert all(tree.groups[g].parent < g for g in range(1, len(tree.groups)))
    assert all(
        0 <= a < len(tree.drawn_nodes) and 0 <= b < len(tree.drawn_nodes)
        for a, b in zip(tree.src, tree.dst, strict=True)
    )
    assert all(t <= i for i, t in enumerate(tree.twin))


def test_twins_of_a_real_model_are_its_repeated_layers() -> None:
    shown = columns(read_model(recording_path("models/onnx/tinybert_scoped_dyn.onnx")))
    layers = [i for i, n in enumerate(shown["groups"]["name"]) if n.startswith("layer.")]
    assert len(layers) == 3
    assert {shown["groups"]["twin"][i] for i in layers} == {layers[0]}


PAIRS = [
    ("models/megengine/resnet18_w16.mge", "traces/megengine/profile_analyze/resnet18_w16.profile.json", 0.99),
    (
        "models/megengine/resnet18_w16.mge",
        "traces/megengine/runner/resnet18_w16/graph_profiler2.chrome_timeline.json.gz",
        0.99,
    ),
    ("models/onnx/resnet10_dynbatch.onnx", "traces/onnxruntime/ort_resnet10_b2_opt_off.json", 1.0),
    ("models/onnx/resnet10_dynbatch.onnx", "traces/onnxruntime/ort_resnet10_b2_opt_all.json", 0.95),
    ("models/onnx/tinybert_scoped_dyn.onnx", "traces/onnxruntime/ort_tinybert_b2s64_opt_all.json", 0.95),
    ("models/onnx/subgraphs_if_loop.onnx", "traces/onnxruntime/ort_subgraphs_if_loop.json", 0.95),
]


@pytest.mark.parametrize(("model", "trace", "least"), PAIRS)
def test_measured_time_finds_its_nodes(model: str, trace: str, least: float) -> None:
    measured_times = measured(read_model(recording_path(model)), trace_of(recording_path(trace)))
    assert measured_times["matched_ratio"] >= least
    assert sum(v or 0 for v in measured_times["columns"]["time_ns"]) == measured_times["matched_ns"]


@pytest.mark.parametrize(("model", "least"), [("torch_cnn", 0.99), ("torch_transformer", 0.9)])
def test_module_calls_find_their_layers_and_nested_ones_count_once(model: str, least: float) -> None:
    graphs = FIXTURES / "graphs"
    trace = trace_of(graphs / f"{model}_profile.json.gz")
    measured_times = measured(read_model(graphs / f"{model}.graph.json"), trace)
    assert measured_times["rule"] == "module"
    assert least <= measured_times["matched_ratio"] <= 1
    wall = int((trace.events.ts + trace.events.dur).max() - trace.events.ts.min())
    assert measured_times["total_ns"] <= wall, "one thread called them"


def test_the_static_profile_joins_with_its_own_graph() -> None:
    path = SAMPLES / "megengine-inference" / "resnet18_w16.profile.json.gz"
    measured_times = measured(read_model(path), trace_of(path))
    model = columns(read_model(path))
    at = model["nodes"]["full_name"].index("conv1.Convolution")
    assert (measured_times["columns"]["time_ns"][at], measured_times["columns"]["flops"][at]) == (1_674_000, 59_006_976)


def test_a_profile_of_another_model_is_reported() -> None:
    measured_times = measured(chain(["Conv"]), trace_of(SAMPLES / "megengine-train" / "1890.chrome_timeline.json.gz"))
    assert (measured_times["matched_nodes"], measured_times["matched_ns"], measured_times["columns"]["time_ns"]) == (
        0,
        0,
        [None] * 3,
    )
    assert measured_times["total_ns"] > 0


def test_operators_that_are_named_by_type_are_found_by_their_scopes() -> None:
    folder = SAMPLES / "megengine-train"
    model = read_model(folder / "lenet.mge")
    assert any(node.name == "Reshape" for node in model.nodes)
    measured_times = measured(model, trace_of(folder / "1890.chrome_timeline.json.gz"))
    # Forward operators only; the file has 3 steps. Values as in the test of `graph_scopes`.
    assert (measured_times["matched_nodes"], measured_times["matched_ns"]) == (17, 1_707_783)
    assert measured_times["matched_ratio"] > 0.9
    assert measured_times["total_ns"] > 0


def test_a_node_that_is_called_like_its_type_is_found_where_nodes_are_named() -> None:
    path = recording_path("traces/megengine/runner/lenet/graph_profiler2.chrome_timeline.json.gz")
    model = read_model(SAMPLES / "megengine-train" / "lenet.mge")
    measured_times = measured(model, trace_of(path))
    assert measured_times["columns"]["time_ns"][columns(model)["nodes"]["full_name"].index("Reshape")] == 1145
    assert measured_times["matched_ratio"] > 0.95


@pytest.mark.parametrize(
    ("model", "least"), [("resnet10_dynbatch", 0.92), ("tinybert_scoped_dyn", 0.9), ("tinybert_dynamo", 0.96)]
)
def test_a_fused_openvino_operator_is_the_first_of_its_nodes(model: str, least: float) -> None:
    measured_times = measured(
        read_model(recording_path(f"models/onnx/{model}.onnx")),
        trace_of(recording_path(f"traces/openvino/openvino_{model}_b2.json")),
    )
    assert measured_times["matched_ratio"] >= least


def written(nodes: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]) -> ModelGraph:
    """A model of (name, type, inputs, outputs) by the names of its tensors."""
    builder = ModelBuilder("m", "made")
    rows: dict[str, int] = {}
    for name, kind, inputs, outputs in nodes:
        read, written = (
            tuple(
                rows.setdefault(v, builder.value(Value(v, "float32", (1, 4)))) if v not in rows else rows[v]
                for v in side
            )
            for side in (inputs, outputs)
        )
        builder.node(Node(name, kind, (), "input" if kind == "Input" else "operator", read, written))
    return builder.build()


def test_nodes_merged_by_an_optimizer_correspond_to_the_result() -> None:
    source = written(
        [
            ("x", "Input", (), ("x",)),
            ("conv", "Conv", ("x",), ("a",)),
            ("norm", "BatchNormalization", ("a",), ("b",)),
            ("relu", "Relu", ("b",), ("c",)),
            ("pool", "MaxPool", ("c",), ("d",)),
            ("add", "Add", ("d", "c"), ("e",)),
        ]
    )
    executed = written(
        [
            ("x", "Input", (), ("x",)),
            ("fused conv", "FusedConv", ("x",), ("c",)),
            ("pool", "MaxPool", ("c",), ("d",)),
            ("add", "Add", ("d", "c"), ("e",)),
        ]
    )
    comparison = compare(source, executed)
    assert comparison["pairs"] == [[0, 0], [1, 1], [2, 1], [3, 1], [4, 2], [5, 3]]
    assert comparison["status"] == ["same", "changed", "changed", "changed", "same", "same"]
    assert comparison["other_status"] == ["same", "changed", "same", "same"]
    merger = "Conv + BatchNormalization + Relu"
    assert summary(comparison) == [("merged", None, None, merger, "FusedConv", 3)]
    changes = comparison["differences"]["changes"]["columns"]
    assert (changes["node"], changes["other"]) == ([1, 2, 3], [1, 1, 1])
    assert changes["what"] == [f"{merger} → FusedConv"] * 3


def test_details_of_a_node() -> None:
    model = read_model(SAMPLES / "onnxruntime-cpu" / "subgraphs_if_loop.onnx")
    place = columns(model)["nodes"]["type"].index("If")
    details = node_details(model, place)
    assert details["documentation"] == "https://onnx.ai/onnx/operators/onnx__If.html"
    assert details["inputs"][0]["name"]


def test_comparison_pairs_by_name_and_lists_changes() -> None:
    a, b = (read_model(recording_path(f"models/onnx/resnet10_{k}.onnx")) for k in ("static", "dynbatch"))
    comparison = compare(a, b)
    assert len(comparison["pairs"]) == 31
    assert set(comparison["status"][:-1]) == {"changed"}  # the output node has no output of its own
    assert summary(comparison) == [("dimension", None, 0, "1", "batch", 30)]
    assert comparison["differences"]["changes"]["columns"]["what"][0] == "float32[1x3x96x96] → float32[batchx3x96x96]"


def test_node_specific_differences_are_one_kind() -> None:
    """Numbers of nodes in their files are no difference."""
    before = shaped(*(("Conv", "float32", (8, 14 + i), {"id": f"{i}", "axis": f"{i}", "pads": "0"}) for i in range(3)))
    after = shaped(*(("Conv", "float32", (8, 28 + i), {"id": f"{i + 7}", "axis": f"{i + 1}"}) for i in range(3)))
    comparison = compare(before, after)
    assert summary(comparison) == [
        ("attribute", "axis", None, None, None, 3),
        ("attribute", "pads", None, "0", None, 3),
        ("dimension", None, 1, None, None, 3),
    ]
    listed = comparison["differences"]["changes"]["columns"]
    whats = zip(listed["kind"], listed["what"], strict=True)
    assert [what for kind, what in whats if kind == 0] == ["axis: 0 → 1", "axis: 1 → 2", "axis: 2 → 3"]


def test_comparison_marks_added_and_removed_nodes() -> None:
    comparison = compare(chain(["Conv", "BatchNorm", "Relu"]), chain(["Conv", "Relu", "Softmax"]))
    assert comparison["status"].count("removed") == 1
    assert comparison["other_status"].count("added") == 1
    assert summary(comparison) == [
        ("removed", None, None, "BatchNorm", None, 1),
        ("added", None, None, None, "Softmax", 1),
    ]


def test_operators_of_another_format_correspond_by_function() -> None:
    """A convolution with a bias is two nodes in OpenVINO's IR; attributes of two formats are not compared."""

    def made(form: str, nodes: list[tuple[str, str]], size: str | int, **attributes: str) -> ModelGraph:
        builder = ModelBuilder("m", form)
        for name, kind in nodes:
            after = builder.value(Value(name, "float32", (size, 4)))
            builder.node(Node(name, kind, (), "operator", (), (after,), attributes))
        return builder.build()

    onnx = made("onnx", [("a/Conv", "Conv"), ("a/Relu", "Relu"), ("s", "Sub")], "batch", kernel_shape="[3, 3]")
    nodes = [("a/Conv/WithoutBiases", "Convolution"), ("a/Conv", "Add"), ("a/Relu", "ReLU"), ("s", "Subtract")]
    comparison = compare(onnx, made("openvino", nodes, "?", kernel="3, 3"))
    assert comparison["pairs"] == [[0, 0], [1, 2], [2, 3]]
    assert (comparison["status"], comparison["other_status"]) == (["same"] * 3, ["same", "added", "same", "same"])


def test_a_model_compared_with_itself_is_the_same() -> None:
    model = chain(["Conv", "Relu"])
    comparison = compare(model, model)
    assert set(comparison["status"]) == set(comparison["other_status"]) == {"same"}
    assert summary(comparison) == []


def shaped(*nodes: tuple[str, str, tuple[int | str, ...] | None, dict[str, str]]) -> ModelGraph:
    """A chain of operators with dtype and shape of their outputs, and attributes."""
    builder = ModelBuilder("m", "made")
    for i, (kind, dtype, shape, attributes) in enumerate(nodes):
        row = builder.value(Value(f"v{i}", dtype, shape))
        builder.node(Node(f"n{i}", kind, outputs=(row,), attributes=attributes))
    return builder.build()


@pytest.mark.parametrize("unknown", ["unk__3", "?", -1])
def test_an_unknown_size_that_is_known_in_the_other_model_is_no_change(unknown: str | int) -> None:
    before, after = shaped(("Conv", "float32", (unknown, 8), {})), shaped(("Conv", "float32", (4, 8), {}))
    comparison = compare(before, after)
    assert comparison["status"] == ["same"]
    assert summary(comparison) == []


def test_differences_are_summarized_by_kind() -> None:
    """One size under two places is one kind; a node counts once; what only one of the models knows is none."""
    before = shaped(
        ("Conv", "float32", ("batch", 8, 14), {"group": "1"}),
        ("Relu", "float32", ("batch", "batch"), {}),
        ("Conv", "float32", (8, "batch"), {"group": "1"}),
        ("Cast", "float32", ("unk__3", 5), {"to": "1"}),
        ("Flatten", "float32", ("batch", 8, 14), {}),
        ("Gemm", "float32", None, {}),
        ("Gemm", "", (1, 2), {}),
    )
    after = shaped(
        ("Conv", "float32", (4, 8, 28), {"group": "2"}),
        ("Relu", "float32", (4, 4), {}),
        ("Conv", "float32", (8, 4), {"group": "2", "pads": "0"}),
        ("Cast", "float16", ("unk__7", 5), {"to": "10"}),
        ("Flatten", "float32", (4, 112), {}),
        ("Gemm", "float32", (4, 2), {}),
        ("Gemm", "float32", (1, 2), {}),
    )
    comparison = compare(before, after)
    assert summary(comparison) == [
        ("dimension", None, None, "batch", "4", 3),
        ("attribute", "group", None, "1", "2", 2),
        ("dimension", None, 2, "14", "28", 1),
        ("attribute", "pads", None, None, "0", 1),
        ("attribute", "to", None, "1", "10", 1),
        ("dtype", None, None, "float32", "float16", 1),
        ("shape", None, None, "batchx8x14", "4x112", 1),
    ]
    differences = comparison["differences"]
    assert [differences[kind] for kind in ("same", "changed", "removed", "added")] == [2, 5, 0, 0]
    listed = differences["changes"]["columns"]
    nodes = [[n for n, of in zip(listed["node"], listed["kind"], strict=True) if of == kind] for kind in range(7)]
    assert nodes == [[0, 1, 2], [0, 2], [0], [2], [3], [3], [4]]
    assert [w for w, n in zip(listed["what"], listed["node"], strict=True) if n == 2] == [
        "group: 1 → 2",
        "pads: – → 0",
        "float32[8xbatch] → float32[8x4]",
    ]
