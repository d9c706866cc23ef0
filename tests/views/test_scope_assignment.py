"""Scopes of nodes: adoption, calls of a module, blocks of flat models, and a cost linear in the number of nodes."""

from __future__ import annotations

import time
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.conftest import FIXTURES
from tests.recordings import RECORDINGS, recording_path
from visualprof.reader.graph import ModelBuilder, ModelGraph, Node, Scope, Value
from visualprof.reader.models import read_model
from visualprof.views.graph import drawn
from visualprof.views.measure.graphs.hierarchy import Hierarchy, cached_hierarchy

TWICE = FIXTURES / "graphs" / "megengine_twice.mge"
MODELS = [
    *(RECORDINGS / "models").glob("*/*.onnx"),
    *(RECORDINGS / "models").glob("*/*.mge"),
    *(RECORDINGS / "traces" / "megengine").glob("*profile.json"),
    TWICE,
    *(FIXTURES / "models").glob("*.xml"),
    *(FIXTURES / "models").glob("paddle*"),
    *(FIXTURES / "models").glob("*saved*"),
]


def build_model(nodes: list[tuple[str, str, str]]) -> ModelGraph:
    """Return a model of (name, scopes or "?", names of the nodes that it reads), as
    `build_model([("a", "", ""), ("b", "x.y", "a")])`.
    """
    builder = ModelBuilder("m", "made")
    row_of: dict[str, int] = {}
    for name, scope_text, reads in nodes:
        row_of[name] = builder.value(Value(name))
        scope = tuple(Scope(part) for part in scope_text.split(".") if part not in ("", "?"))
        inputs = tuple(row_of[read_name] for read_name in reads.split())
        builder.node(
            Node(name, name.rstrip("0123456789"), scope, "operator", inputs, (row_of[name],), placed=scope_text != "?")
        )
    return builder.build()


def group_paths(model: ModelGraph) -> dict[str, str]:
    """Return the groups around each node, as they are drawn."""
    tree = cached_hierarchy(model)
    return {model.nodes[row].name: ".".join(group_names(tree, tree.group[i])) for i, row in enumerate(tree.drawn_nodes)}


def group_names(tree: Hierarchy, group: int) -> list[str]:
    return [*group_names(tree, tree.groups[group].parent), tree.groups[group].name] if group > 0 else []


def assert_no_edge_leads_back(tree: Hierarchy) -> None:
    """Assert that nodes and groups can be ordered on every level so that all edges lead forward.

    Edges between a node and the nodes in its body do not count.
    """

    def chain(node: int) -> list[tuple[str, int]]:
        group = tree.group[node]
        ancestors = [] if tree.groups[group].node == node else [("node", node)]
        while group >= 0:
            ancestors.append(("group", group))
            group = tree.groups[group].parent
        return ancestors[::-1]

    order: TopologicalSorter[tuple[str, int]] = TopologicalSorter()
    for source, target in zip(tree.src, tree.dst, strict=True):
        for first, second in [
            (ancestor, other_ancestor)
            for ancestor, other_ancestor in zip(chain(source), chain(target), strict=False)
            if ancestor != other_ancestor
        ][:1]:
            order.add(second, first)
    order.prepare()  # raises CycleError


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.name)
def test_edges_of_a_real_model_lead_forward(path: Path) -> None:
    assert_no_edge_leads_back(cached_hierarchy(read_model(path)))


def test_a_node_without_scopes_goes_to_the_group_around_its_data() -> None:
    groups_of = group_paths(
        build_model(
            [
                ("in", "", ""),
                ("conv1", "net.a", "in"),
                ("relu1", "net.a", "conv1"),
                ("shape", "?", "relu1"),
                ("cast", "?", "shape"),
                ("conv2", "net.a", "relu1 cast"),
                ("relu2", "?", "conv2"),
                ("transpose", "?", "relu2"),
                ("conv3", "net.b", "transpose"),
                ("relu3", "net.b", "conv3"),
                ("flip", "?", "relu3"),
            ]
        )
    )
    assert groups_of == {
        "in": "",
        "conv1": "net.a",
        "relu1": "net.a",
        "shape": "net.a",
        "cast": "net.a",
        "conv2": "net.a",
        "relu2": "net",
        "transpose": "net.b",
        "conv3": "net.b",
        "relu3": "net.b",
        "flip": "net.b",
    }


def test_a_node_between_two_scopes_is_outside_of_both() -> None:
    ends = [
        ("a1", "a", ""),
        ("a2", "a", "a1"),
        ("relu", "?", "a2"),
        ("cast", "?", "relu"),
        ("b1", "b", "cast"),
        ("b2", "b", "b1"),
    ]
    groups_of = group_paths(build_model(ends))
    assert (groups_of["relu"], groups_of["cast"]) == ("", "b"), "data movement goes with its reader"


def test_an_input_of_an_adopted_node_goes_to_the_same_group() -> None:
    groups_of = group_paths(
        build_model(
            [
                ("conv1", "a", ""),
                ("norm1", "a", "conv1"),
                ("weight", "?", ""),
                ("fused", "?", "norm1 weight"),
                ("conv2", "b", "fused"),
                ("norm2", "b", "conv2"),
            ]
        )
    )
    assert (groups_of["weight"], groups_of["fused"]) == ("", "")


def test_adoption_does_not_make_a_scope_most_of_a_model() -> None:
    head = [("sum", "cond", ""), ("greater", "cond", "sum")]
    tail = [("a", "?", "greater"), ("b", "?", "a"), ("c", "?", "b")]
    groups_of = group_paths(build_model([*head, *tail]))
    assert [groups_of[name] for name in ("sum", "greater", "a", "b", "c")] == ["cond", "cond", "", "", ""]
    groups_of = group_paths(build_model([*head, ("less", "cond", "greater"), ("a", "?", "less"), ("b", "?", "a")]))
    assert set(groups_of.values()) == {"cond"}, "a scope that already has most nodes also gets the rest"


def test_a_module_called_again_after_other_nodes_is_a_second_call() -> None:
    model = build_model(
        [
            ("conv1", "a.conv", ""),
            ("relu1", "a", "conv1"),
            ("mid", "", "relu1"),
            ("bias", "a.conv", ""),
            ("conv2", "a.conv", "mid bias"),
            ("relu2", "a", "conv2"),
            ("mid2", "", "relu2"),
            ("conv3", "a.conv", "mid2"),
            ("relu3", "a", "conv3"),
        ]
    )
    groups_of = group_paths(model)
    assert [groups_of[f"relu{i}"] for i in (1, 2, 3)] == ["a", "a#2", "a#3"]
    assert groups_of["bias"] == groups_of["conv2"] == "a#2.conv"
    groups = drawn(model).groups
    assert groups.twin[list(groups.name).index("a#3")] == list(groups.name).index("a")


def test_interleaved_branches_are_one_call_each() -> None:
    groups_of = group_paths(
        build_model([("a1", "a", ""), ("b1", "b", ""), ("a2", "a", "a1"), ("b2", "b", "b1"), ("sum", "", "a2 b2")])
    )
    assert set(groups_of.values()) == {"a", "b", ""}


def test_a_megengine_module_called_twice_is_two_calls() -> None:
    groups_of = group_paths(read_model(TWICE))
    assert (groups_of["block.RELU[0]"], groups_of["block.RELU[1]"]) == ("block", "block#2")
    assert (groups_of["block.conv.ADD[0]"], groups_of["block.conv.ADD[1]"]) == ("block.conv", "block#2.conv")
    assert (groups_of["sub.fc.ADD[0]"], groups_of["sub.fc.ADD[1]"]) == ("sub.fc", "sub.fc#2"), (
        "although there is no node between the calls"
    )


def test_operators_that_megengine_adds_go_to_their_consumers() -> None:
    model = read_model(recording_path("models/megengine/transformer_tiny.mge"))
    groups_of = group_paths(model)
    assert not any("(" in group.name for group in cached_hierarchy(model).groups)
    assert {p.partition(".")[0] for p in groups_of.values()} == {"", "emb", "layers", "head"}
    assert sorted(name for name, path in groups_of.items() if not path) == ["mask", "out", "tokens"]
    assert groups_of["shape_of(layers.0.attn.qkv.MatrixMul)[128]"] == "layers.0.attn.qkv"
    assert groups_of["concat(subtensor[112],subtensor[130])[132]"] == "layers.0.attn.qkv"
    shown = drawn(model).nodes
    assert shown.name[list(shown.full_name).index("reshape(layers.0.attn.Reshape)[236]")] == "reshape[236]"


def test_a_node_alone_in_its_scope_gets_the_scopes_name() -> None:
    nodes = drawn(read_model(recording_path("models/megengine/resnet18_w16.mge"))).nodes
    label = dict(zip(nodes.full_name, nodes.name, strict=True))
    assert (label["layer1.0.conv2.Convolution"], label["layer1.0.bn2.BatchNorm"]) == ("conv2", "bn2")
    assert label["layer1.0.relu.RELU[0]"] == "relu.RELU[0]"


def test_callbacks_of_a_traced_megengine_graph_are_not_chained() -> None:
    groups_of = group_paths(read_model(recording_path("traces/megengine/lenet.trace_get_profile.json")))
    assert set(groups_of.values()) == {"", "conv1", "pool", "conv2", "pool#2", "fc1", "fc2", "fc3"}


def test_a_merged_node_has_the_scopes_that_its_names_share() -> None:
    groups = cached_hierarchy(read_model(recording_path("models/onnx_real/basic_pitch_nmp.onnx"))).groups
    assert not any(";" in group.name for group in groups)
    assert [groups[g].name for g in groups[0].groups] == ["model_1"]


def test_nodes_in_a_body_go_with_their_node() -> None:
    builder = ModelBuilder("m", "made")
    values = [builder.value(Value(f"v{i}")) for i in range(8)]

    def node(name: str, scope: tuple[Scope, ...], reads: int, makes: int, body: Scope | None = None) -> None:
        placed = bool(scope)
        builder.node(Node(name, "Op", scope, "operator", (values[reads],), (values[makes],), placed=placed, body=body))

    net, body = (Scope("net"), Scope("a")), Scope("If", "control")
    node("first", net, 0, 1)
    node("If", (), 1, 3, body)
    node("inner", (body,), 1, 2)
    node("inner2", (body,), 2, 3)
    node("second", net, 3, 4)
    model = builder.build()
    groups_of = group_paths(model)
    assert (groups_of["If"], groups_of["inner"], groups_of["inner2"]) == ("net.a.If",) * 3
    tree = cached_hierarchy(model)
    assert tree.groups[tree.group[1]].node == 1


def block_types(types: list[str]) -> list[tuple[str, list[str]]]:
    """Return names and operator types of the blocks of a chain of operators."""
    model = build_model(
        [(f"{kind}{index}", "", f"{types[index - 1]}{index - 1}" if index else "") for index, kind in enumerate(types)]
    )
    tree = cached_hierarchy(model)
    return [
        (group.name, [model.nodes[tree.drawn_nodes[node]].type for node in group.nodes])
        for group in tree.groups
        if group.kind == "block"
    ]


def test_blocks_are_named_by_number_and_content_and_start_at_a_convolution() -> None:
    block = ["Conv", "BatchNorm", "Sigmoid", "Mul"]
    groups_of = block_types(["Sigmoid", "Mul", *block * 3, "Conv", "Pad", *["MatMul", "Add", "Relu", "Reshape"] * 2])
    assert groups_of == [
        *((f"{i} Conv·BatchNorm·Sigmoid", block) for i in (1, 2, 3)),
        *((f"{i} MatMul·Add·Relu", ["MatMul", "Add", "Relu", "Reshape"]) for i in (4, 5)),
    ]


def test_a_block_starts_where_the_fewest_tensors_enter() -> None:
    pattern = [("norm", 1), ("conv", 1), ("act", 1), ("mul", 1), ("add", 2)]  # add reads mul and the input of the block
    nodes, last = [("x", "", "")], "x"
    for i in range(4):
        block_input = last
        for name, count in pattern:
            nodes.append((f"{name}{i}", "", f"{last} {block_input}" if count == 2 else last))
            last = f"{name}{i}"
    tree = cached_hierarchy(build_model(nodes))
    blocks = [group for group in tree.groups if group.kind == "block"]
    assert [group.name for group in blocks] == [f"{i} norm·conv·act" for i in (1, 2, 3, 4)]
    assert [group.nodes for group in blocks] == [list(range(1 + 5 * i, 6 + 5 * i)) for i in range(4)]


def test_a_node_with_scopes_in_a_flat_model_ends_a_range_of_blocks() -> None:
    types = ["Conv", "Norm", "Relu", "Add"] * 8
    nodes = [(f"{t}{i}", "", f"{types[i - 1]}{i - 1}" if i else "") for i, t in enumerate(types)]
    nodes[17] = (nodes[17][0], "deep.in", nodes[17][2])
    tree = cached_hierarchy(build_model(nodes))
    assert_no_edge_leads_back(tree)
    blocks = [g.nodes for g in tree.groups if g.kind == "block"]
    assert blocks == [list(range(at, at + 4)) for at in (0, 4, 8, 12, 20, 24, 28)]


def test_a_suffix_of_a_merged_node_is_not_a_scope(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    group_names = ["a/conv/Conv", "a/conv/Mul", "a/MatMul/MatMulScaleFusion/", "Gemm_2/MatMulAddFusion"]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("v0", "v4")]
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=name) for i, name in enumerate(group_names)]
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:])).SerializeToString())
    model = read_model(path)
    assert [n.placed for n in model.nodes if n.kind == "operator"] == [True, True, True, False]
    groups_of = group_paths(model)
    assert [groups_of[name] for name in group_names] == ["a.conv", "a.conv", "a", "a"]


@pytest.mark.slow
def test_the_cost_is_linear_in_the_number_of_nodes() -> None:
    """20,000 scopes of one node take half a second; a quadratic algorithm takes five."""
    count = 20_000
    model = build_model([(f"n{i}", f"s{i}", f"n{i - 1}" if i else "") for i in range(count)])
    start = time.process_time()
    assert len(cached_hierarchy(model).groups) == 1 + -(-count // 300)
    assert time.process_time() - start < 3
