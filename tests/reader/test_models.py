"""Model files as graphs: counts against the frameworks' own, structure, and broken or hostile files."""

from __future__ import annotations

import json
import pickle
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES
from tests.models import save
from tests.recordings import recording_path
from tests.remote.child_runs import megengine_python
from visualprof.errors import FormatError, UnknownFormat
from visualprof.reader.graph import ModelGraph
from visualprof.reader.models import model_formats, model_suffixes, read_model
from visualprof.views.graph import drawn

onnx = pytest.importorskip("onnx")


def kinds(model: ModelGraph) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in model.nodes:
        counts[node.kind] = counts.get(node.kind, 0) + 1
    return counts


def constant_bytes(model: ModelGraph) -> int:
    return sum(model.values[n.outputs[0]].bytes for n in model.nodes if n.kind == "constant")


@pytest.mark.parametrize(
    ("name", "operators", "nbytes"),
    [("lenet", 33, 246_832), ("resnet18_w16", 165, 3_332_840), ("transformer_tiny", 243, 2_614_236)],
)
def test_mge_operators_and_constants_equal_megengines_loader(name: str, operators: int, nbytes: int) -> None:
    model = read_model(recording_path(f"models/megengine/{name}.mge"))
    kind_counts = kinds(model)
    assert kind_counts["constant"] + kind_counts["input"] + kind_counts["operator"] == operators
    assert constant_bytes(model) == nbytes
    assert model.producer == "MegEngine 1.13.0"


@pytest.mark.parametrize(
    ("name", "node", "parameters"),
    [  # asserted by megengine 1.13.0: `Network.load(path).all_oprs[...].params`
        (
            "resnet18_w16",
            "conv1.Convolution",
            {"mode": "CROSS_CORRELATION", "stride_h": "2", "pad_w": "3", "format": "NCHW"},
        ),
        ("resnet18_w16", "bn1.BatchNorm", {"epsilon": "1e-05", "fwd_mode": "INFERENCE", "param_dim": "DIM_1C11"}),
        ("resnet18_w16", "maxpool.Pooling", {"mode": "MAX", "window_h": "3", "stride_h": "2", "pad_h": "1"}),
        ("lenet", "conv1.ADD", {"mode": "ADD"}),
        ("lenet", "fc1.MatrixMul", {"transposeA": "False", "transposeB": "True", "compute_mode": "DEFAULT"}),
        ("transformer_tiny", "layers.0.attn.Dimshuffle[0]", {"pattern": "2, 0, 3, 1, 4"}),
        ("transformer_tiny", "layers.0.ln1.LayerNorm", {"affine": "True", "eps": "1e-05", "normalized_size": "128"}),
    ],
)
def test_mge_operators_have_the_parameters_of_megengines_loader(
    name: str, node: str, parameters: dict[str, str]
) -> None:
    model = read_model(recording_path(f"models/megengine/{name}.mge"))
    (attributes,) = (entry.attributes for entry in model.nodes if entry.name == node)
    assert parameters.items() <= attributes.items()


@pytest.mark.slow
def test_every_parameter_of_mge_operators_equals_that_of_megengine() -> None:
    program = """
import json, sys
from megengine.utils.network import Network
print(json.dumps({o.name: o.params for o in Network.load(sys.argv[1]).all_oprs}, default=str))
"""
    compared = 0
    for name in ("lenet", "resnet18_w16", "transformer_tiny"):
        path = recording_path(f"models/megengine/{name}.mge")
        command = [megengine_python(), "-c", program, str(path)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
        expected = json.loads(printed.strip().rpartition("\n")[2])
        for node in read_model(path).nodes:
            for key, value in expected[node.name].items() if node.kind == "operator" else ():
                if key in ("dimA", "dimB", "comp_node", "items"):  # derived from inputs, or not a parameter in the file
                    continue
                text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
                assert node.attributes[key] == text or float(node.attributes[key]) == pytest.approx(value), (
                    name,
                    node.name,
                )
                compared += 1
    assert compared == 577


def test_an_mge_dump_without_names_says_how_to_keep_them(tmp_path: Path) -> None:
    data = bytearray((SAMPLES / "megengine-train" / "lenet.mge").read_bytes())
    for name in (
        b"conv",
        b"relu",
        b"pool",
        b"fc",
        b"Reshape",
        b"GetVarShape",
        b"Subtensor",
        b"Concat",
        b"const",
        b"data",
    ):
        at = data.find(name)
        while at >= 0:
            start = data.rfind(b"\0", 0, at) - 3  # the length precedes the text
            if struct.unpack_from("<I", data, start)[0] < 200:
                struct.pack_into("<I", data, start, 0)
            at = data.find(name, at + 1)
    path = tmp_path / "unnamed.mge"
    path.write_bytes(data)
    model = read_model(path)
    assert any("keep_opr_name=True" in warning for warning in model.warnings)
    assert not read_model(SAMPLES / "megengine-train" / "lenet.mge").warnings


def test_mge_inputs_and_outputs_have_shapes() -> None:
    model = read_model(SAMPLES / "megengine-train" / "lenet.mge")
    (source,) = [n for n in model.nodes if n.kind == "input"]
    (sink,) = [n for n in model.nodes if n.kind == "output"]
    assert (source.name, model.values[source.outputs[0]].shape) == ("data", (2, 1, 32, 32))
    assert (sink.name, model.values[sink.inputs[0]].shape) == ("out", (2, 10))
    assert model.values[source.outputs[0]].bytes == 2 * 32 * 32 * 4


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (
                [attribute.g] if attribute.type == 5 else list(attribute.graphs) if attribute.type == 10 else []
            ):
                yield from _graphs(inner)


def onnx_files() -> list[str]:
    return [
        f"models/onnx/{n}.onnx"
        for n in ("resnet10_static", "resnet10_dynbatch", "tinybert_scoped_dyn", "tinybert_dynamo", "subgraphs_if_loop")
    ] + [f"models/onnx_real/{n}.onnx" for n in ("basic_pitch_nmp", "layout_cdla", "silero_vad_16k_op15")]


@pytest.mark.parametrize("file", onnx_files())
def test_onnx_node_and_subgraph_counts_equal_onnx(file: str) -> None:
    path = recording_path(file)
    document = onnx.load(path, load_external_data=False)
    graphs = list(_graphs(document.graph))
    calls = sum(
        n.op_type == f.name and n.domain == f.domain for f in document.functions for g in graphs for n in g.node
    )
    inside = sum(len(f.node) for f in document.functions) * calls
    model = read_model(path)
    nodes = [n for n in model.nodes if n.kind == "operator" or n.type == "Constant"]
    initializers = sum(len(g.initializer) for g in graphs)
    assert len(nodes) == sum(len(g.node) for g in graphs) + inside + initializers
    bodies = {n.scope for n in model.nodes if n.kind == "output" and n.scope}
    assert len(bodies) == len(graphs) - 1


@pytest.mark.parametrize(("name", "nodes"), [("densenet121", 1746), ("inception_v2", 916), ("resnet50", 415)])
def test_models_inside_the_onnx_package(name: str, nodes: int) -> None:
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    if not path.exists():
        pytest.skip("this onnx package has no test models")
    assert kinds(read_model(path))["operator"] == nodes


def test_subgraphs_see_the_values_around_them() -> None:
    model = read_model(SAMPLES / "onnxruntime-cpu" / "subgraphs_if_loop.onnx")
    producer = {v: n for n in model.nodes for v in n.outputs}
    inner = [n for n in model.nodes if any(s.kind == "subgraph" for s in n.scope) and n.kind == "operator"]
    outside = [v for n in inner for v in n.inputs if v in producer and producer[v].scope != n.scope]
    assert outside


def test_an_undefined_tensor_is_a_value_without_a_producer(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Relu", ["nowhere"], ["y"], name="<b>relu</b>")
    graph = onnx.helper.make_graph([node, node], "g", [], [onnx.helper.make_tensor_value_info("y", 1, [1])])
    path = tmp_path / "odd"
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())
    model = read_model(path)
    assert [n.name for n in model.nodes if n.kind == "operator"] == ["<b>relu</b>"] * 2


def test_missing_external_data_is_not_an_error(tmp_path: Path) -> None:
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[1000, 1000], data_location=1)
    tensor.external_data.add(key="location", value="../../gone.bin")
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [onnx.helper.make_tensor_value_info("x", 1, [1, 1000])], [], [tensor])
    path = tmp_path / "external.onnx"
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())
    model = read_model(path)
    assert constant_bytes(model) == 4_000_000
    assert model.properties["external_data"] == "1 tensors"


@pytest.mark.parametrize("kept", [0.3, 0.9])
def test_a_cut_model_is_a_clear_error(tmp_path: Path, kept: float) -> None:
    for source in (SAMPLES / "onnxruntime-cpu" / "subgraphs_if_loop.onnx", SAMPLES / "megengine-train" / "lenet.mge"):
        data = source.read_bytes()
        path = tmp_path / f"cut{source.suffix}"
        path.write_bytes(data[: int(len(data) * kept)])
        with pytest.raises(FormatError, match=rf"cut\{source.suffix}: (not a whole ONNX|damaged MegEngine) model"):
            read_model(path)


def test_a_flatbuffer_with_wild_offsets_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "wild.mge"
    path.write_bytes(struct.pack("<II4s", 64, 0xFFFFFFF0, b"mgv2") + b"\xff" * 256)
    with pytest.raises(FormatError, match=r"wild\.mge: damaged MegEngine model"):
        read_model(path)


@pytest.mark.parametrize("content", [b"", b"hello"])
def test_other_files_are_rejected_with_the_supported_formats(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(content)
    with pytest.raises(UnknownFormat, match=r"x\.onnx: no model format") as refused:
        read_model(path)
    assert all(model.label in refused.value.hint for model in model_formats())


def test_models_say_how_their_files_are_called() -> None:
    assert {".gguf", ".keras", ".mge", ".mlmodel", ".onnx", ".pdmodel", ".pt2", ".safetensors", ".tflite"} == set(
        model_suffixes(shared=False)
    )
    assert {".json", ".pt", ".pth"} <= set(model_suffixes())


def test_a_pickle_is_refused_unopened(tmp_path: Path) -> None:
    path, mark = tmp_path / "model.pt", tmp_path / "mark"
    command = f"touch {mark}".encode()
    path.write_bytes(b"\x80\x02cos\nsystem\nX" + struct.pack("<I", len(command)) + command + b"\x85R.")
    with pytest.raises(FormatError, match=r"model\.pt: a Python pickle; opening one may run any code"):
        read_model(path)
    assert not mark.exists()
    pickle.loads(path.read_bytes())  # it is a bomb indeed
    assert mark.exists()


def test_model_formats_have_distinct_names_and_priorities() -> None:
    formats = model_formats()
    assert len({f.name for f in formats}) == len({f.priority for f in formats}) == len(formats)


def _constants(model: ModelGraph) -> dict[str, tuple[int, int]]:
    """Elements and bytes of the constants by name."""
    values = [model.values[n.outputs[0]] for n in model.nodes if n.kind == "constant"]
    return {v.name: (v.parameters, v.bytes) for v in values}


def test_onnx_weights_have_the_size_of_their_packed_elements(tmp_path: Path) -> None:
    types = {
        "FLOAT": 32,
        "DOUBLE": 64,
        "FLOAT16": 16,
        "BFLOAT16": 16,
        "FLOAT8E4M3FN": 8,
        "FLOAT8E4M3FNUZ": 8,
        "FLOAT8E5M2": 8,
        "FLOAT8E5M2FNUZ": 8,
        "FLOAT8E8M0": 8,
        "FLOAT4E2M1": 4,
        "INT4": 4,
        "UINT4": 4,
        "INT2": 2,
        "UINT2": 2,
        "BOOL": 8,
        "COMPLEX64": 64,
        "UINT64": 64,
    }
    codes = dict(onnx.TensorProto.DataType.items())
    weights = [onnx.TensorProto(name=n, data_type=codes[n], dims=[5, 3]) for n in types if n in codes]
    graph = onnx.helper.make_graph([], "g", [], [], weights)
    model = read_model(save(onnx.helper.make_model(graph, ir_version=11), tmp_path / "m.onnx"))
    assert _constants(model) == {w.name: (15, -(-15 * types[w.name] // 8)) for w in weights}  # 7.5 bytes are 8
    assert not model.warnings


def test_sparse_weights_and_strings_have_their_stored_size(tmp_path: Path) -> None:
    """2,000 values of 4 bytes with indices of 8 bytes; "ab", "cde"; scalars and lists of Constant nodes."""
    values = onnx.TensorProto(name="sparse", data_type=1, dims=[2000], raw_data=bytes(8000))
    indices = onnx.TensorProto(name="i", data_type=7, dims=[2000], raw_data=bytes(16000))
    texts = onnx.TensorProto(name="texts", data_type=8, dims=[2], string_data=[b"ab", b"cde"])
    small = onnx.helper.make_sparse_tensor(
        onnx.helper.make_tensor("", 1, [1], [2.0]), onnx.helper.make_tensor("", 7, [1], [3]), [9]
    )
    constants = {
        "small": {"sparse_value": small},
        "float": {"value_float": 1.5},
        "ints": {"value_ints": [1, 2, 3]},
        "strings": {"value_strings": ["x", "yz"]},
    }
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Constant", [], [name], **given) for name, given in constants.items()],
        "g",
        [],
        [],
        [texts],
        sparse_initializer=[onnx.helper.make_sparse_tensor(values, indices, [100, 100])],
    )
    model = read_model(save(onnx.helper.make_model(graph), tmp_path / "m.onnx"))
    assert _constants(model) == {
        "sparse": (2000, 24_000),
        "texts": (2, 5),
        "small": (1, 12),
        "float": (1, 4),
        "ints": (3, 24),
        "strings": (2, 3),
    }


def test_a_constant_of_a_function_counts_once(tmp_path: Path) -> None:
    """`inner` holds 4 floats and is called twice by `outer`, which is called twice: 16 bytes, and 4 nodes use them."""
    helper, opsets = onnx.helper, [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("d", 1)]
    held = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", 1, [4], [1.0] * 4))
    inner = helper.make_function("d", "inner", ["x"], ["y"], [held, helper.make_node("Add", ["x", "c"], ["y"])], opsets)
    calls = [helper.make_node("inner", [a], [b], domain="d") for a, b in ("xt", "ty")]
    outer = helper.make_function("d", "outer", ["x"], ["y"], calls, opsets)
    x, y = (helper.make_tensor_value_info(name, 1, [4]) for name in "xy")
    nodes = [helper.make_node("outer", [a], [b], domain="d", name=b) for a, b in ("xt", "ty")]
    whole = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), functions=[inner, outer], opset_imports=opsets, ir_version=8
    )
    graph = drawn(read_model(save(whole, tmp_path / "m.onnx")))
    assert (graph.model.parameters, graph.model.parameter_bytes) == (4, 16)
    parameter_bytes = list(zip(graph.groups.name, graph.groups.parameter_bytes, strict=True))
    assert parameter_bytes[0] == ("g", 16)
    assert [size for _, size in parameter_bytes[1:]] == [16] * 6  # each call shows what it uses


def test_a_constant_that_a_function_returns_counts_once(tmp_path: Path) -> None:
    """`weight` returns 4 floats and is called three times: 16 bytes. A node that reads two of the results reads 16."""
    helper, opsets = onnx.helper, [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("d", 1)]
    held = helper.make_node("Constant", [], ["w"], value=helper.make_tensor("w", 1, [4], [1.0] * 4))
    weight = helper.make_function("d", "weight", [], ["w"], [held], opsets)
    x, y = (helper.make_tensor_value_info(name, 1, [4]) for name in "xy")
    nodes = [helper.make_node("weight", [], [name], domain="d", name=name) for name in ("w1", "w2", "w3")]
    nodes += [
        helper.make_node("Sum", ["x", "w1", "w2"], ["t"], name="two"),
        helper.make_node("Add", ["t", "w3"], ["y"], name="one"),
    ]
    whole = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), functions=[weight], opset_imports=opsets, ir_version=8
    )
    model = read_model(save(whole, tmp_path / "m.onnx"))
    graph = drawn(model)
    assert (graph.model.parameters, graph.model.parameter_bytes) == (4, 16)
    sizes = dict(zip(graph.nodes.full_name, graph.nodes.parameter_bytes, strict=True))
    assert (sizes["two"], sizes["one"]) == (16, 16)
    assert graph.groups.parameter_bytes[0] == 16
    assert len(model.stored_constants()) == 1


def test_sums_with_unknown_sizes_say_at_least(tmp_path: Path) -> None:
    """16 bytes and 2 elements of a type that nobody knows; a node with only those has no sum."""
    helper = onnx.helper
    tensor, unknown = helper.make_tensor("k", 1, [4], [0.0] * 4), onnx.TensorProto(name="u", data_type=99, dims=[2])
    nodes = [
        helper.make_node("Add", ["k", "u"], ["a"], name="both"),
        helper.make_node("Neg", ["u"], ["b"], name="only"),
    ]
    graph = helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info("a", 1, [4])], [tensor, unknown])
    found = drawn(read_model(save(helper.make_model(graph), tmp_path / "m.onnx")))
    assert (found.model.parameter_bytes, found.model.unknown_constants) == (16, 1)
    assert "1 of 2 constants have an unknown size" in found.model.warnings[-1]
    rows = zip(found.nodes.name, found.nodes.parameter_bytes, found.nodes.unknown_constants, strict=True)
    assert {name: row for name, *row in rows if name in ("both", "only")} == {"both": [16, 1], "only": [None, 1]}


@pytest.mark.parametrize(
    ("name", "parameters", "nbytes"),
    [
        ("reports/37-onnx-graphs/int4_fp8", 196_865, 230_404),
        ("numbers/graph/fn", 1111, 4360),
        ("numbers/graph/ext", 1111, 4360),
        ("numbers/graph/int4", 65, 36),
        ("numbers/graph/uint4", 65, 36),
        ("numbers/graph/fp4", 65, 36),
        ("numbers/graph/int2", 65, 20),
        ("numbers/graph/fp8", 65, 68),
        ("numbers/graph/sparse", 3, 36),
    ],
)
def test_weights_of_public_cases_have_their_size(name: str, parameters: int, nbytes: int) -> None:
    model = drawn(read_model(recording_path(f"cases/{name}.onnx"))).model
    assert (model.parameters, model.parameter_bytes, model.unknown_constants) == (parameters, nbytes, 0)
