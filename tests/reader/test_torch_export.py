"""torch.export and TorchScript archives without torch: counts against torch's own; hostile files that run nothing."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES
from visualprof.errors import FormatError, UnknownFormat
from visualprof.reader.graph import ModelGraph, Scope
from visualprof.reader.models import read_model
from visualprof.reader.models.torch_archive import entry_names, rejection_reason
from visualprof.views.graph import drawn
from visualprof.views.measure.graphs.hierarchy import cached_hierarchy

EXPORTED = FIXTURES / "graphs" / "torch_cnn.pt2"
SCRIPT = FIXTURES / "graphs" / "torch_cnn_script.pt"


def operators(model: ModelGraph) -> list[str]:
    return [n.type for n in model.nodes if n.kind == "operator"]


def rewrite(source: Path, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            if (data := change(name, old.read(name))) is not None:
                new.writestr(name, data)
    return target


def test_export_has_the_parameters_and_nodes_of_the_model() -> None:
    model = read_model(EXPORTED)
    summary = drawn(model).model
    assert (summary.parameters, summary.parameter_bytes) == (1_522, 6_088)
    assert model.producer == "torch 2.13.0+cpu"
    block = ["conv2d", "batch_norm", "add", "relu_"]
    assert operators(model) == ["conv2d", *block * 3, "mean", "mul", "linear"]
    assert len([n for n in model.nodes if n.kind == "constant"]) == 13


def test_export_has_shapes_scopes_and_attributes() -> None:
    model = read_model(EXPORTED)
    nodes = {n.name: n for n in model.nodes}
    conv = nodes["layers.1.conv"]
    assert [s.name for s in conv.scope] == ["layers", "1"]
    assert model.values[conv.outputs[0]].shape == (2, 8, 14, 14)
    assert (conv.attributes["padding"], conv.attributes["target"]) == ("[1, 1]", "torch.ops.aten.conv2d.default")
    assert conv.attributes["source"].startswith("torch_models.py:")
    assert [model.values[v].name for v in conv.inputs][1:] == ["layers.1.conv.weight", "layers.1.conv.bias"]


@pytest.mark.parametrize("path", [EXPORTED, SCRIPT])
def test_every_operator_is_reached_from_the_inputs(path: Path) -> None:
    model = read_model(path)
    reached = {v for n in model.nodes if n.kind == "input" for v in n.outputs}
    for node in model.nodes:
        if node.kind in ("operator", "output"):
            assert reached & set(node.inputs), node.name
            reached |= set(node.outputs)


@pytest.mark.parametrize(("path", "format"), [(EXPORTED, "torch_export"), (SCRIPT, "torchscript")])
def test_archives_are_known_by_content(tmp_path: Path, path: Path, format: str) -> None:
    copy = tmp_path / "unknown"
    copy.write_bytes(path.read_bytes())
    assert read_model(copy).format == format


def test_older_exports_are_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(EXPORTED) as file:
        program = json.loads(file.read("torch_cnn/models/model.json"))
    for node in program["graph_module"]["graph"]["nodes"]:
        del node["name"]
    del program["torch_version"]
    with zipfile.ZipFile(tmp_path / "old.pt2", "w") as file:
        file.writestr("serialized_exported_program.json", json.dumps(program))
        file.writestr("version", "3.1")
    assert operators(read_model(tmp_path / "old.pt2")) == operators(read_model(EXPORTED))


def test_torchscript_shows_layers_and_calls() -> None:
    model = read_model(SCRIPT)
    block = ["Conv2d", "BatchNorm2d", "add", "ReLU"]
    assert operators(model) == ["Conv2d", *block * 3, "mean", "mul", "Linear"]
    nodes = {n.name: n for n in model.nodes}
    assert [s.name for s in nodes["layers.0.conv"].scope] == ["layers", "0"]
    assert [model.values[v].name for v in nodes["layers.0.add"].inputs] == ["layers.0.norm", "stem"]


@pytest.mark.slow
def test_torchscript_that_grows_without_bound_is_refused(tmp_path: Path) -> None:
    levels = "\n".join(
        f"class M{i}(Module):\n  a : __torch__.M{i + 1}\n"
        "  def forward(self, x: Any) -> Any:\n    return (self.a).forward((self.a).forward(x))"
        for i in range(40)
    )
    code = f"{levels}\nclass M40(Module):\n  def forward(self, x: Any) -> Any:\n    return x\n"
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as file:
        file.writestr("m/code/__torch__.py", code)
        file.writestr("m/data.pkl", b"\x80\x02c__torch__\nM0\n)\x81}b.")
    with pytest.raises(FormatError, match="more than can be shown"):
        read_model(tmp_path / "m.pt")


def test_torchscript_code_is_never_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    attack = f"open({str(mark)!r}, 'w')\n".encode()
    path = rewrite(SCRIPT, tmp_path / "m.pt", lambda name, data: attack + data if name.endswith(".py") else data)
    read_model(path)
    assert not mark.exists()


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("name", ["x.pt", "x.pth", "x.tm", "x.pt2"])
def test_a_pickle_bomb_is_an_error_and_not_opened(tmp_path: Path, name: str, protocol: int) -> None:
    mark, path = tmp_path / "ran", tmp_path / name
    path.write_bytes(pickle.dumps(Bomb(mark), protocol))
    with pytest.raises(FormatError):
        read_model(path)
    assert not mark.exists()


def test_a_pickle_bomb_inside_an_archive_does_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    bomb = pickle.dumps(Bomb(mark), 2)
    inside = (".pkl", ".pt", "weight_0", "data/0")
    path = rewrite(EXPORTED, tmp_path / "x.pt2", lambda name, data: bomb if name.endswith(inside) else data)
    assert operators(read_model(path)) == operators(read_model(EXPORTED))
    path = rewrite(SCRIPT, tmp_path / "x.pt", lambda name, data: bomb if name.endswith(inside) else data)
    with pytest.raises(FormatError, match=r"asks for (posix|nt)\.system, which no model does"):
        read_model(path)
    assert not mark.exists()


def test_weights_are_distinguished_from_models(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("w/data.pkl", b"\x80\x02}q\x00.")
        file.writestr("w/data/0", b"\0" * 64)
    with pytest.raises(FormatError, match="weights in a Python pickle") as error:
        read_model(path)
    assert "torch.export.save" in error.value.hint
    assert rejection_reason("x", b"\x80\x02}q\x00.") is not None
    assert rejection_reason("x", EXPORTED.read_bytes()) is None


def test_other_zips_are_not_claimed(tmp_path: Path) -> None:
    path = tmp_path / "x.pt2"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("word/document.xml", "<x/>")
        file.writestr("data/0", "x")
    with pytest.raises(UnknownFormat):
        read_model(path)


def test_a_compiled_package_is_rejected_with_a_hint(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.pt2", "w") as file:
        file.writestr("x/archive_format", "pt2")
        file.writestr("x/data/aotinductor/model/wrapper.cpp", "")
    with pytest.raises(FormatError, match=r"without the graph \(.*torch\.export\.save"):
        read_model(tmp_path / "x.pt2")


def test_a_zip_bomb_is_refused_by_its_directory(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.pt2", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x/models/model.json", b" " * (8 << 20))
    with pytest.raises(FormatError, match="decompression bomb"):
        read_model(tmp_path / "x.pt2")


def test_a_zip_directory_with_wrong_sizes_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x/models/model.json", b" " * (8 << 20))
    data = bytearray(path.read_bytes())
    entry = data.find(b"PK\x01\x02")
    struct.pack_into("<I", data, entry + 24, 1000)
    path.write_bytes(data)
    with pytest.raises(FormatError):
        read_model(path)


@pytest.mark.parametrize("source", [EXPORTED, SCRIPT])
@pytest.mark.parametrize("part", [0.2, 0.5, 0.9, 0.999])
def test_cut_archives_are_errors(tmp_path: Path, source: Path, part: float) -> None:
    data = source.read_bytes()
    path = tmp_path / "cut.pt2"
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(FormatError, match="damaged zip archive"):
        read_model(path)


BROKEN = [
    b"",
    b"[]",
    b"{}",
    b'{"graph_module": 3}',
    b"[" * 100_000,
    b"\xff\xfe",
    b'{"graph_module":{"graph":{},"signature":{}}}',
]


@pytest.mark.parametrize("text", BROKEN)
def test_broken_programs_are_errors(tmp_path: Path, text: bytes) -> None:
    path = rewrite(EXPORTED, tmp_path / "x.pt2", lambda name, data: text if name.endswith("model.json") else data)
    with pytest.raises(FormatError, match="not an exported program"):
        read_model(path)


def test_every_damaged_field_is_an_error_or_a_model(tmp_path: Path) -> None:
    with zipfile.ZipFile(EXPORTED) as file:
        program = json.loads(file.read("torch_cnn/models/model.json"))
    graph = program["graph_module"]["graph"]
    for key in list(graph["nodes"][0]):
        for wrong in (None, 3, "x", [], {}):
            node = {**graph["nodes"][0], key: wrong}
            changed = {**program, "graph_module": {**program["graph_module"], "graph": {**graph, "nodes": [node]}}}
            path = tmp_path / "x.pt2"
            with zipfile.ZipFile(path, "w") as file:
                file.writestr("x/models/model.json", json.dumps(changed))
            try:
                read_model(path)
            except FormatError as error:
                assert "not an exported program" in error.error  # noqa: PT017


def test_names_in_the_head_of_an_archive() -> None:
    assert entry_names(EXPORTED.read_bytes())[0].endswith("data/weights/weight_0")
    assert entry_names(b"PK\x03\x04") == []
    assert entry_names(b"not a zip PK\x03\x04") == []


@pytest.mark.slow
def test_a_file_of_the_installed_torch_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 8)

        def forward(self, x: Any) -> Any:
            return {"parts": torch.split(self.layer(x).relu(), [3, 5], -1), "sum": x.sum()}

    model = Model().eval()
    sizes = {"x": {0: torch.export.Dim.DYNAMIC}}
    program = torch.export.export(model, (torch.ones(2, 5, 4),), dynamic_shapes=sizes)
    torch.export.save(program, str(tmp_path / "m.pt2"))
    read = read_model(tmp_path / "m.pt2")
    assert drawn(read).model.parameters == sum(p.numel() for p in model.parameters())
    own = [n for n in program.graph.nodes if n.op == "call_function" and "getitem" not in n.name]
    assert len(operators(read)) == len(own)
    assert len([n for n in read.nodes if n.kind == "output"]) == 3
    layer = next(n for n in read.nodes if n.name == "layer")
    shape = read.values[layer.outputs[0]].shape
    assert shape is not None
    assert isinstance(shape[0], str)
    assert shape[1:] == (5, 8)


@pytest.mark.slow
def test_control_flow_is_followed_through_its_bodies(tmp_path: Path) -> None:
    """x → both branches → what the loop changes → the result; n counts, y stays the same in each turn."""
    torch = pytest.importorskip("torch")
    from torch._higher_order_ops.while_loop import while_loop  # the name under which 2.13 has it

    class Model(torch.nn.Module):
        def forward(self, x: Any, p: Any, n: Any) -> Any:
            y = torch.cond(p, lambda v: v.relu(), lambda v: v - x, (x,))
            return while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, v.sin() + y), (n, y))[1]

    program = torch.export.export(Model(), (torch.ones(2, 4), torch.tensor(True), torch.tensor(0)))
    torch.export.save(program, str(tmp_path / "m.pt2"))
    model = read_model(tmp_path / "m.pt2")
    tree = cached_hierarchy(model)
    nodes = [model.nodes[row] for row in tree.drawn_nodes]
    edges = {(nodes[a].type, nodes[b].type) for a, b in zip(tree.src, tree.dst, strict=True)}
    values_by_name = {("relu", "Output"), ("sub", "Output"), ("sin", "add"), ("lt", "Output"), ("Output", "while_loop")}
    assert values_by_name <= edges
    inputs = [n for n in nodes if n.kind == "input"]
    outside = [[model.values[v].name for v in n.inputs] for n in inputs if n.scope]
    assert len(outside) == 2 * 2, "two changed values in each body"
    assert all(len(names) == 1 for names in outside)
    result = next(i for i, n in enumerate(nodes) if n.kind == "output" and not n.scope)
    assert [nodes[a].scope[-1].name for a, b in zip(tree.src, tree.dst, strict=True) if b == result] == [
        "while_loop_body_graph_0"
    ]


def test_branches_are_subgraphs_of_their_node(tmp_path: Path) -> None:
    with zipfile.ZipFile(EXPORTED) as file:
        program = json.loads(file.read("torch_cnn/models/model.json"))
    graph = program["graph_module"]["graph"]
    inner = {**graph, "inputs": [{"as_tensor": {"name": "x"}}], "nodes": [graph["nodes"][0]]}
    sides = [
        {"name": "", "arg": {"as_graph": {"name": f"{side}_graph_0", "graph": inner}}, "kind": 1}
        for side in ("true", "false")
    ]
    operand = {"name": "", "arg": {"as_tensors": [{"name": "x"}]}, "kind": 1}
    inputs = [*sides, operand]
    cond = {"target": "torch.ops.higher_order.cond", "inputs": inputs, "outputs": [], "metadata": {}, "name": "cond"}
    graph["nodes"].append(cond)
    with zipfile.ZipFile(tmp_path / "x.pt2", "w") as file:
        file.writestr("x/models/model.json", json.dumps(program))
    model = read_model(tmp_path / "x.pt2")
    body = [n for n in model.nodes if any(s.kind == "subgraph" for s in n.scope)]
    operators_found = [(n.type, [s.name for s in n.scope]) for n in body if n.kind == "operator"]
    assert operators_found == [("conv2d", ["cond", "true_graph_0"]), ("conv2d", ["cond", "false_graph_0"])]
    assert next(n for n in model.nodes if n.type == "cond").body == Scope("cond", "control")
    assert [model.values[v].name for v in body[0].inputs] == ["x", "stem.weight", "stem.bias"]
