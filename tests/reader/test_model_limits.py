"""Models that are small as files and large, or endless, once they are read."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests import models
from visualprof.errors import FormatError
from visualprof.reader import graph, graph_file
from visualprof.reader.cache import Cache
from visualprof.reader.graph import ModelGraph, ModelTooLarge
from visualprof.reader.models import model_formats, read_model
from visualprof.views.answers.encoding import encode
from visualprof.views.graph import drawn, node_details
from visualprof.views.measure.graphs import blocks

onnx = pytest.importorskip("onnx")
model_formats()  # before a test changes what they import


def test_calls_are_counted_before_anything_is_written_out(tmp_path: Path) -> None:
    # f0 has 10 nodes and 10 times f1, ...: 10 + 100 + ... + 10^10 nodes, and the call of f0.
    path = models.save(models.calling(10, 10), tmp_path / "laughs.onnx")
    assert path.stat().st_size < 2500
    began = time.process_time()
    with pytest.raises(FormatError, match=r"laughs\.onnx: with its functions written out .* 11,111,111,111 nodes"):
        read_model(path)
    assert time.process_time() - began < 2


def test_the_count_is_that_of_the_nodes_that_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 3 levels of 4 calls: 1 + 4 + 16 + 64 operators.
    path = models.save(models.calling(3, 4), tmp_path / "small.onnx")
    assert sum(n.kind == "operator" for n in read_model(path).nodes) == 85
    monkeypatch.setattr("visualprof.reader.models.onnx.MAX_NODES", 84)
    with pytest.raises(FormatError, match="has 85 nodes; 84 can be shown"):
        read_model(path)


@pytest.mark.parametrize("levels", [1, 3])
def test_a_function_that_calls_itself_is_refused(tmp_path: Path, levels: int) -> None:
    path = models.save(models.calling(levels, 1, recursive=True), tmp_path / "endless.onnx")
    with pytest.raises(FormatError, match=r"endless\.onnx: its function 'f0' calls itself"):
        read_model(path)


def test_too_deeply_nested_functions_are_rejected(tmp_path: Path) -> None:
    path = models.save(models.calling(2000, 1), tmp_path / "deep.onnx")
    with pytest.raises(FormatError, match=r"deep\.onnx: its functions call each other over 64 deep"):
        read_model(path)


def test_a_model_with_too_many_nodes_is_rejected_in_every_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "MAX_NODES", 3)
    path = models.save(models.chain(["a", "b", "c", "d"]), tmp_path / "long.onnx")
    with pytest.raises(FormatError, match=r"long\.onnx: the model has over 3 nodes"):
        read_model(path)
    (tmp_path / "a.graph.json").write_text(document([{"name": f"n{i}", "type": "Relu"} for i in range(4)]))
    with pytest.raises(FormatError, match=r"a\.graph\.json: the model has over 3 nodes"):
        read_model(tmp_path / "a.graph.json")


def document(nodes: list[dict[str, Any]], values: list[dict[str, Any]] | None = None) -> str:
    whole = {"visualprof_graph": 1, "name": "m", "framework": "torch", "values": values or [], "nodes": nodes}
    return json.dumps(whole)


def test_external_weights_are_counted_whatever_their_number_and_size(tmp_path: Path) -> None:
    model = models.chain(["a"])
    for i in range(5000):
        tensor = model.graph.initializer.add(name=f"w{i}", data_type=1, dims=[2**40, 2**40], data_location=1)
        tensor.external_data.add(key="location", value="/dev/zero")
    read = read_model(models.save(model, tmp_path / "far.onnx"))
    assert read.properties["external_data"] == "5000 tensors"
    drawn_model = drawn(read).model
    assert (drawn_model.parameters, drawn_model.parameter_bytes) == (
        None,
        None,
    )  # 2^80 elements are damage, not a number
    encode(drawn(read))


@pytest.mark.parametrize("size", [2**62, 10**18 - 1, 10**30, -(10**30)])
def test_impossible_tensor_sizes_are_unknown(tmp_path: Path, size: int) -> None:
    path = tmp_path / "wide.graph.json"
    values = [{"name": "x", "dtype": "float32", "shape": [2, size]}]
    nodes = [
        {"name": "x", "type": "Input", "kind": "input", "outputs": [0]},
        {"name": "a", "type": "Relu", "inputs": [0]},
    ]
    path.write_text(document(nodes, values))
    model = read_model(path)
    encode([drawn(model), node_details(model, 1)])
    assert node_details(model, 1).inputs[0].bytes is None
    assert graph_file.decode(graph_file.encode(model)).values == model.values


def test_a_kept_graph_is_the_same_again(tmp_path: Path) -> None:
    model = read_model(models.save(models.calling(2, 2), tmp_path / "m.onnx"))
    again = graph_file.decode(graph_file.encode(model))
    assert fields(again) == fields(model)


def fields(model: ModelGraph) -> dict[str, Any]:
    return dict(vars(model))


def test_a_damaged_kept_graph_counts_as_absent(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.store_graph(read_model(models.save(models.calling(2, 2), tmp_path / "m.onnx")), "key")
    path = cache.graph_path("key")
    data = bytearray(path.read_bytes())
    assert cache.load_graph("key")
    for place in (0, len(data) // 2, len(data) - 1):
        path.write_bytes(bytes([*data[:place], data[place] ^ 1, *data[place + 1 :]]))
        assert cache.load_graph("key") is None


def test_a_graph_with_too_many_bytes_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_file, "MAX_GRAPH_BYTES", 1 << 20)
    builder = graph.ModelBuilder("m", "onnx")
    builder.node(graph.Node("n" * (1 << 20), "Relu"))
    with pytest.raises(ModelTooLarge, match="over 1 MiB"):
        graph_file.encode(builder.build())


def test_names_that_are_not_utf8_are_shown_as_far_as_they_go(tmp_path: Path) -> None:
    whole = models.chain(["first", "other"])
    whole.graph.node[0].metadata_props.add(key="namespace", value="outer: x/inner: y")
    path = models.save(whole, tmp_path / "odd.onnx")
    for name in (b"first", b"v1", b"outer"):  # a node, the value between both, a scope
        path.write_bytes(path.read_bytes().replace(name, b"\xff" + name[1:]))
    model = read_model(path)
    assert [n.name for n in model.nodes if n.kind == "operator"] == ["\ufffdirst", "other"]
    assert model.nodes[1].scope[0].name == "\ufffduter"
    assert model.nodes[1].outputs == model.nodes[2].inputs  # the edge is still one
    assert model.warnings == ("4 names are not UTF-8: is the file damaged?",)
    encode(drawn(graph_file.decode(graph_file.encode(model))))


def test_absurdly_deep_nodes_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MAX_NODES", 3)
    builder = graph.ModelBuilder("m", "onnx")
    builder.node(graph.Node("a", "Relu", tuple(graph.Scope(str(i)) for i in range(30))))
    with pytest.raises(ModelTooLarge, match="over 30 together"):
        builder.node(graph.Node("b", "Relu", (graph.Scope("x"),)))


def test_a_flat_model_made_to_be_searched_for_hours_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every nine nodes repeat a block of four that no other has: each of the 400 takes a search over all nodes.
    monkeypatch.setattr(blocks, "MAX_COMPARED_TYPES", 720_000)
    builder = graph.ModelBuilder("m", "onnx")
    last = builder.value(graph.Value("x"))
    for i in range(3600):
        unit, place = divmod(i, 9)
        output = builder.value(graph.Value(f"v{i}"))
        kind = f"T{unit}_{place % 4}" if place < 8 else f"S{unit}"
        builder.node(graph.Node(f"n{i}", kind, inputs=(last,), outputs=(output,)))
        last = output
    shown = drawn(builder.build())
    assert len(shown.nodes.name) == 3600
    assert 0 < sum(kind == "block" for kind in shown.groups.kind) < 2 * 400
