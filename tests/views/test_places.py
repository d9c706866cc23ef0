"""Where nodes stand: adoption, calls of one module, blocks of flat models, at a cost that grows with the nodes."""

from __future__ import annotations

import time
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, SHARED, shared
from visualprof.reader.graph import ModelBuilder, ModelGraph, Node, Scope, Value
from visualprof.reader.models import read_model
from visualprof.views.graph import drawn
from visualprof.views.measure.hierarchy import Hierarchy, cached_hierarchy

TWICE = FIXTURES / "graphs" / "megengine_twice.mge"
MODELS = [
    *(SHARED / "models").glob("*/*.onnx"),
    *(SHARED / "models").glob("*/*.mge"),
    *(SHARED / "traces" / "megengine").glob("*profile.json"),
    TWICE,
    *(FIXTURES / "models").glob("*.xml"),
    *(FIXTURES / "models").glob("paddle*"),
    *(FIXTURES / "models").glob("*saved*"),
]


def made(nodes: list[tuple[str, str, str]]) -> ModelGraph:
    """A model of (name, place or "?", names of the nodes that it reads): `made([("a", "", ""), ("b", "x.y", "a")])`."""
    builder = ModelBuilder("m", "made")
    rows: dict[str, int] = {}
    for name, place, reads in nodes:
        rows[name] = builder.value(Value(name))
        scope = tuple(Scope(s) for s in place.split(".") if s not in ("", "?"))
        inputs = tuple(rows[r] for r in reads.split())
        builder.node(
            Node(name, name.rstrip("0123456789"), scope, "operator", inputs, (rows[name],), placed=place != "?")
        )
    return builder.build()


def paths(model: ModelGraph) -> dict[str, str]:
    """Groups around each node, as they are drawn."""
    tree = cached_hierarchy(model)
    return {model.nodes[row].name: ".".join(names(tree, tree.group[i])) for i, row in enumerate(tree.drawn_nodes)}


def names(tree: Hierarchy, group: int) -> list[str]:
    return [*names(tree, tree.groups[group].parent), tree.groups[group].name] if group > 0 else []


def assert_no_edge_leads_back(tree: Hierarchy) -> None:
    """At every level: nodes and groups can be put in an order in which all edges lead onwards.

    Edges between what a node holds and the node are none between its neighbours.
    """

    def chain(node: int) -> list[tuple[str, int]]:
        group = tree.group[node]
        around = [] if tree.groups[group].node == node else [("node", node)]
        while group >= 0:
            around.append(("group", group))
            group = tree.groups[group].parent
        return around[::-1]

    order: TopologicalSorter[tuple[str, int]] = TopologicalSorter()
    for a, b in zip(tree.src, tree.dst, strict=True):
        for first, second in [(x, y) for x, y in zip(chain(a), chain(b), strict=False) if x != y][:1]:
            order.add(second, first)
    order.prepare()  # raises CycleError


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.name)
def test_no_edge_of_a_real_model_leads_back(path: Path) -> None:
    assert_no_edge_leads_back(cached_hierarchy(read_model(path)))


def test_a_node_that_names_no_scope_stands_where_its_data_goes_in_and_out() -> None:
    found = paths(
        made([
            ("in", "", ""), ("conv1", "net.a", "in"), ("relu1", "net.a", "conv1"), ("shape", "?", "relu1"),
            ("cast", "?", "shape"), ("conv2", "net.a", "relu1 cast"), ("relu2", "?", "conv2"),
            ("transpose", "?", "relu2"), ("conv3", "net.b", "transpose"), ("relu3", "net.b", "conv3"),
            ("flip", "?", "relu3"),
        ])
    )  # fmt: skip
    assert found == {
        "in": "", "conv1": "net.a", "relu1": "net.a", "shape": "net.a", "cast": "net.a", "conv2": "net.a",
        "relu2": "net", "transpose": "net.b", "conv3": "net.b", "relu3": "net.b", "flip": "net.b",
    }  # fmt: skip


def test_a_node_between_scopes_of_two_sides_stands_between_them() -> None:
    ends = [
        ("a1", "a", ""),
        ("a2", "a", "a1"),
        ("relu", "?", "a2"),
        ("cast", "?", "relu"),
        ("b1", "b", "cast"),
        ("b2", "b", "b1"),
    ]
    found = paths(made(ends))
    assert (found["relu"], found["cast"]) == ("", "b"), "what only moves data goes with what reads it"


def test_what_only_feeds_an_adopted_node_stands_beside_it() -> None:
    found = paths(
        made([
            ("conv1", "a", ""), ("norm1", "a", "conv1"), ("weight", "?", ""), ("fused", "?", "norm1 weight"),
            ("conv2", "b", "fused"), ("norm2", "b", "conv2"),
        ])
    )  # fmt: skip
    assert (found["weight"], found["fused"]) == ("", "")


def test_no_scope_becomes_most_of_a_model_by_adoption() -> None:
    head = [("sum", "cond", ""), ("greater", "cond", "sum")]
    tail = [("a", "?", "greater"), ("b", "?", "a"), ("c", "?", "b")]
    found = paths(made([*head, *tail]))
    assert [found[name] for name in ("sum", "greater", "a", "b", "c")] == ["cond", "cond", "", "", ""]
    found = paths(made([*head, ("less", "cond", "greater"), ("a", "?", "less"), ("b", "?", "a")]))
    assert set(found.values()) == {"cond"}, "a scope of most nodes keeps what is left over"


def test_a_module_called_again_after_other_nodes_is_a_second_call() -> None:
    model = made([
        ("conv1", "a.conv", ""), ("relu1", "a", "conv1"), ("mid", "", "relu1"), ("bias", "a.conv", ""),
        ("conv2", "a.conv", "mid bias"), ("relu2", "a", "conv2"), ("mid2", "", "relu2"),
        ("conv3", "a.conv", "mid2"), ("relu3", "a", "conv3"),
    ])  # fmt: skip
    found = paths(model)
    assert [found[f"relu{i}"] for i in (1, 2, 3)] == ["a", "a#2", "a#3"]
    assert found["bias"] == found["conv2"] == "a#2.conv"
    groups = drawn(model).groups
    assert groups.twin[list(groups.name).index("a#3")] == list(groups.name).index("a")


def test_branches_that_take_turns_are_one_call_each() -> None:
    found = paths(made([("a1", "a", ""), ("b1", "b", ""), ("a2", "a", "a1"), ("b2", "b", "b1"), ("sum", "", "a2 b2")]))
    assert set(found.values()) == {"a", "b", ""}


def test_a_megengine_module_called_twice_is_two_calls() -> None:
    found = paths(read_model(TWICE))
    assert (found["block.RELU[0]"], found["block.RELU[1]"]) == ("block", "block#2")
    assert (found["block.conv.ADD[0]"], found["block.conv.ADD[1]"]) == ("block.conv", "block#2.conv")
    assert (found["sub.fc.ADD[0]"], found["sub.fc.ADD[1]"]) == ("sub.fc", "sub.fc#2"), "nothing between the calls"


def test_operators_that_megengine_made_stand_with_those_they_serve() -> None:
    model = read_model(shared("models/megengine/transformer_tiny.mge"))
    found = paths(model)
    assert not any("(" in group.name for group in cached_hierarchy(model).groups)
    assert {p.partition(".")[0] for p in found.values()} == {"", "emb", "layers", "head"}
    assert sorted(name for name, path in found.items() if not path) == ["mask", "out", "tokens"]
    assert found["shape_of(layers.0.attn.qkv.MatrixMul)[128]"] == "layers.0.attn.qkv"
    assert found["concat(subtensor[112],subtensor[130])[132]"] == "layers.0.attn.qkv"
    shown = drawn(model).nodes
    assert shown.name[list(shown.full_name).index("reshape(layers.0.attn.Reshape)[236]")] == "reshape[236]"


def test_a_node_alone_in_its_scope_has_the_scopes_name() -> None:
    nodes = drawn(read_model(shared("models/megengine/resnet18_w16.mge"))).nodes
    label = dict(zip(nodes.full_name, nodes.name, strict=True))
    assert (label["layer1.0.conv2.Convolution"], label["layer1.0.bn2.BatchNorm"]) == ("conv2", "bn2")
    assert label["layer1.0.relu.RELU[0]"] == "relu.RELU[0]"


def test_callbacks_of_a_traced_megengine_graph_are_not_chained() -> None:
    found = paths(read_model(shared("traces/megengine/lenet.trace_get_profile.json")))
    assert set(found.values()) == {"", "conv1", "pool", "conv2", "pool#2", "fc1", "fc2", "fc3"}


def test_the_scope_of_a_node_made_of_several_is_what_their_names_share() -> None:
    groups = cached_hierarchy(read_model(shared("models/onnx_real/basic_pitch_nmp.onnx"))).groups
    assert not any(";" in group.name for group in groups)
    assert [groups[g].name for g in groups[0].groups] == ["model_1"]


def test_what_a_node_holds_goes_with_it() -> None:
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
    found = paths(model)
    assert (found["If"], found["inner"], found["inner2"]) == ("net.a.If",) * 3
    tree = cached_hierarchy(model)
    assert tree.groups[tree.group[1]].node == 1


def flat(types: list[str]) -> list[tuple[str, list[str]]]:
    """Names and types of the blocks of a chain of operators."""
    model = made([(f"{t}{i}", "", f"{types[i - 1]}{i - 1}" if i else "") for i, t in enumerate(types)])
    tree = cached_hierarchy(model)
    return [
        (g.name, [model.nodes[tree.drawn_nodes[n]].type for n in g.nodes]) for g in tree.groups if g.kind == "block"
    ]


def test_blocks_are_named_by_place_and_content_and_start_at_a_convolution() -> None:
    block = ["Conv", "BatchNorm", "Sigmoid", "Mul"]
    found = flat(["Sigmoid", "Mul", *block * 3, "Conv", "Pad", *["MatMul", "Add", "Relu", "Reshape"] * 2])
    assert found == [
        *((f"{i} Conv·BatchNorm·Sigmoid", block) for i in (1, 2, 3)),
        *((f"{i} MatMul·Add·Relu", ["MatMul", "Add", "Relu", "Reshape"]) for i in (4, 5)),
    ]


def test_a_block_starts_where_the_fewest_tensors_enter() -> None:
    one = [("norm", 1), ("conv", 1), ("act", 1), ("mul", 1), ("add", 2)]  # add reads mul and what entered the block
    nodes, last = [("x", "", "")], "x"
    for i in range(4):
        entered = last
        for name, count in one:
            nodes.append((f"{name}{i}", "", f"{last} {entered}" if count == 2 else last))
            last = f"{name}{i}"
    tree = cached_hierarchy(made(nodes))
    blocks = [g for g in tree.groups if g.kind == "block"]
    assert [g.name for g in blocks] == [f"{i} norm·conv·act" for i in (1, 2, 3, 4)]
    assert [g.nodes for g in blocks] == [list(range(1 + 5 * i, 6 + 5 * i)) for i in range(4)]


def test_a_scoped_node_of_a_flat_model_ends_a_stretch() -> None:
    types = ["Conv", "Norm", "Relu", "Add"] * 8
    nodes = [(f"{t}{i}", "", f"{types[i - 1]}{i - 1}" if i else "") for i, t in enumerate(types)]
    nodes[17] = (nodes[17][0], "deep.in", nodes[17][2])
    tree = cached_hierarchy(made(nodes))
    assert_no_edge_leads_back(tree)
    blocks = [g.nodes for g in tree.groups if g.kind == "block"]
    assert blocks == [list(range(at, at + 4)) for at in (0, 4, 8, 12, 20, 24, 28)]


def test_a_suffix_of_a_merged_node_is_no_scope(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    names = ["a/conv/Conv", "a/conv/Mul", "a/MatMul/MatMulScaleFusion/", "Gemm_2/MatMulAddFusion"]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("v0", "v4")]
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=name) for i, name in enumerate(names)]
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:])).SerializeToString())
    model = read_model(path)
    assert [n.placed for n in model.nodes if n.kind == "operator"] == [True, True, True, False]
    found = paths(model)
    assert [found[name] for name in names] == ["a.conv", "a.conv", "a", "a"]


def test_the_cost_grows_with_the_nodes() -> None:
    """20,000 scopes of one node: half a second; the square of them takes five."""
    count = 20_000
    model = made([(f"n{i}", f"s{i}", f"n{i - 1}" if i else "") for i in range(count)])
    start = time.process_time()
    assert len(cached_hierarchy(model).groups) == 1 + -(-count // 300)
    assert time.process_time() - start < 3
