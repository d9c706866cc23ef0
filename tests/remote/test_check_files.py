"""Inspection of uploaded files: models and arrays of every kind, including damaged and hostile ones."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.conftest import FIXTURES
from tests.recordings import recording_path
from visualprof.errors import FormatError, VisualprofError
from visualprof.remote.queue.check.external import External
from visualprof.remote.queue.check.inspect import (
    InspectedArray,
    InspectedModel,
    InspectedPart,
    inspect_array,
    inspect_file,
    inspect_model,
    inspection_from_json,
    inspection_to_json,
    model_name,
    safe_name,
    with_weights_named,
)

pytestmark = pytest.mark.slow

MakeModel = Callable[..., Path]


class Touch:
    """A pickle that makes a file when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.system, (f"touch '{self.path}'",)


@pytest.fixture
def model(tmp_path: Path) -> MakeModel:
    """An ONNX model of one Identity for each input (name, type, dims)."""

    def make(inputs: Sequence[tuple[str, int, Sequence[int | str | None]]], **changes: Any) -> Path:
        tensor = [helper.make_tensor_value_info(n, t, d) for n, t, d in inputs]
        made = [helper.make_tensor_value_info(f"{n}_out", t, d) for n, t, d in inputs]
        nodes = [helper.make_node("Identity", [n], [f"{n}_out"]) for n, _, _ in inputs]
        graph = helper.make_graph(nodes, "g", tensor, made, **changes)
        path = tmp_path / "model.onnx"
        path.write_bytes(helper.make_model(graph).SerializeToString())
        return path

    return make


def saved(path: Path, values: np.ndarray[Any, Any]) -> None:
    with path.open("wb") as file:
        np.save(file, values, allow_pickle=True)


def refused(path: Path, name: str = "given.bin") -> VisualprofError:
    with pytest.raises(VisualprofError) as caught:
        inspect_file(path, name)
    assert name in caught.value.error
    assert path.name not in caught.value.error.replace(name, "")
    return caught.value


def dims(found: InspectedModel) -> dict[str, Any]:
    return {t.name: t.dims for t in found.inputs}


# models


@pytest.mark.parametrize(
    ("file", "inputs", "sizes"),
    [
        ("onnx/resnet10_dynbatch.onnx", {"input": ["batch", 3, 96, 96]}, {"batch": 1}),
        ("onnx/resnet10_static.onnx", {"input": [1, 3, 96, 96]}, {}),
        (
            "onnx/tinybert_scoped_dyn.onnx",
            {"input_ids": ["batch", "seq"], "attention_mask": ["batch", "seq"]},
            {"batch": 1, "seq": 64},
        ),
        ("onnx/subgraphs_if_loop.onnx", {"x": ["N", 16]}, {"N": 1}),
        (
            "onnx_real/silero_vad_16k_op15.onnx",
            {"input": ["batch", "sequence"], "state": [2, "batch", 128], "sr": []},
            {"batch": 1, "sequence": 64},
        ),
        ("megengine/lenet.mge", {"data": ["batch", 1, 32, 32]}, {"batch": 2}),
        ("megengine/resnet18_w16.mge", {"data": ["batch", 3, 224, 224]}, {"batch": 1}),
        (
            "megengine/transformer_tiny.mge",
            {"tokens": ["batch", 64], "mask": ["batch", 4, 64, 64]},
            {"batch": 2},
        ),
    ],
)
def test_inputs_and_sizes_of_the_shared_models(file: str, inputs: dict[str, Any], sizes: dict[str, Any]) -> None:
    path = recording_path(f"models/{file}")
    inspection = inspect_model(path, path.name)
    assert dims(inspection) == inputs
    assert inspection.dims == sizes
    assert inspection.outputs


def test_backends_listed_for_a_format_can_load_it() -> None:
    path = recording_path("models/onnx/resnet10_dynbatch.onnx")
    inspection = inspect_model(path, path.name)
    assert {"onnxruntime", "openvino"} <= set(inspection.backends)
    assert "megengine" not in inspection.backends
    assert inspect_model(recording_path("models/megengine/lenet.mge"), "lenet.mge").backends == ["megengine"]


def test_a_torchscript_model_without_shapes_gives_a_warning() -> None:
    inspection = inspect_model(FIXTURES / "graphs" / "torch_cnn_script.pt", "cnn.pt")
    assert [(t.name, t.dtype, t.dims) for t in inspection.inputs] == [("x", "", None)]
    assert "fill them in" in inspection.warnings[0]
    assert inspection.backends == ["torch"]


def test_exported_program_has_types_and_shapes() -> None:
    inspection = inspect_model(FIXTURES / "graphs" / "torch_cnn.pt2", "cnn.pt2")
    assert [(t.name, t.dtype, t.dims) for t in inspection.inputs] == [("x", "float32", [2, 3, 16, 16])]


def test_a_static_onnx_model_warns_that_its_batch_cannot_be_swept(model: MakeModel) -> None:
    inspection = inspect_model(model([("x", TensorProto.FLOAT, [4, 2])]), "m.onnx")
    assert dims(inspection) == {"x": [4, 2]}
    assert "cannot be swept" in inspection.warnings[0]
    assert "dynamic_shapes" in inspection.warnings[0]


def test_unnamed_dimensions_get_names(model: MakeModel) -> None:
    inspection = inspect_model(model([("x", TensorProto.FLOAT, [None, 2, None])]), "m.onnx")
    assert dims(inspection) == {"x": ["x_dim0", 2, "x_dim2"]}
    assert inspection.dims == {"x_dim0": 1, "x_dim2": 64}
    assert inspection.warnings == ["the file has no size for x_dim2: 64 is a guess"]


def test_initializers_listed_as_inputs_are_not_inputs(model: MakeModel) -> None:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    path = model([("x", TensorProto.FLOAT, ["N", 2]), ("w", TensorProto.FLOAT, [2])], initializer=[weight])
    assert list(dims(inspect_model(path, "m.onnx"))) == ["x"]


@pytest.mark.parametrize(("kind", "told"), [(TensorProto.STRING, "string"), (TensorProto.BFLOAT16, "bfloat16")])
def test_inputs_of_types_that_cannot_be_fed_are_refused(model: MakeModel, kind: int, told: str) -> None:
    error = refused(model([("text", kind, ["N"])]))
    assert f"'text' is of type {told}" in error.error
    assert "float32" in error.hint


def test_a_model_without_inputs_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("Constant", [], ["y"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0]))
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    assert "no inputs" in refused(path).error


def with_weights(where: str = "initializer", **place: str) -> bytes:
    """A model of which two floats lie at a place outside."""
    outside = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    outside.ClearField("float_data")
    outside.data_location = TensorProto.EXTERNAL
    for key, value in place.items():
        outside.external_data.add(key=key, value=value)
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    if where == "attribute":
        nodes.append(helper.make_node("Constant", [], ["c"], value=outside))
    tensor, made = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N"]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [tensor], [made], [outside] if where == "initializer" else [])
    return helper.make_model(graph).SerializeToString()


@pytest.mark.parametrize("where", ["initializer", "attribute"])
@pytest.mark.parametrize(
    "location", ["../../../etc/passwd", "/etc/passwd", "a/b/c", "..", "C:\\x", ".hidden", "", "a\0b", "x" * 300]
)
def test_weights_outside_the_folder_of_the_model_are_rejected(tmp_path: Path, where: str, location: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(with_weights(where, location=location))
    assert "which is not in the same folder" in refused(path).error


@pytest.mark.parametrize(
    ("place", "size"),
    [({}, 0), ({"offset": "4096", "length": "8"}, 4104), ({"offset": "16"}, 16), ({"length": "8"}, 8)],
)
@pytest.mark.parametrize("location", ["m.onnx.data", "./m.onnx.data", "weights/m.data"])
def test_weights_next_to_the_model_are_named(tmp_path: Path, location: str, place: dict[str, str], size: int) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(with_weights(location=location, **place))
    assert inspect_model(path, "m.onnx").external == [External(location.removeprefix("./"), size)]


@pytest.mark.parametrize("length", ["-1", "many"])
def test_a_place_that_cannot_be_is_refused(tmp_path: Path, length: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(with_weights(location="w", length=length))
    assert "lies at no place" in refused(path).error


def test_inspection_results_survive_storage() -> None:
    for found in (
        inspect_model(FIXTURES / "graphs" / "torch_cnn.pt2", "cnn.pt2"),
        InspectedArray("float32", [2, 3]),
        InspectedPart(7),
        replace(inspect_model(FIXTURES / "graphs" / "torch_cnn.pt2", "m"), external=[External("w", 5)]),
    ):
        assert inspection_from_json(inspection_to_json(found)) == found


# what is no model


def test_a_hostile_pickle_is_refused_and_never_runs(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for name in ("model.pt", "model.tm", "x.npy", "model.onnx"):
        path = tmp_path / "blob"
        path.write_bytes(pickle.dumps(Touch(mark)))
        assert "pickle" in refused(path, name).error
    assert not mark.exists()


def test_an_array_of_objects_is_refused_and_never_unpickled(tmp_path: Path) -> None:
    mark, path = tmp_path / "ran", tmp_path / "blob"
    saved(path, np.array([Touch(mark)], dtype=object))
    assert "Python objects (a pickle)" in refused(path, "x.npy").error
    assert not mark.exists()


def test_weights_of_torch_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    mark = tmp_path / "ran"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights/data.pkl", pickle.dumps(Touch(mark)))
        archive.writestr("weights/data/0", bytes(64))
    assert "weights in a Python pickle" in refused(path, "weights.pt").error
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "empty"),
        (b"hello, this is no model\n" * 40, "neither a model nor an array"),
        (b"<html><script>alert(1)</script></html>", "neither a model nor an array"),
        (gzip.compress(b"\x08\x09" * 4000), "gzip"),
        (b"PK\x03\x04" + bytes(200), "damaged zip"),
    ],
    ids=["nothing", "text", "html", "gzip", "zip"],
)
def test_other_files_are_refused_by_name(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "blob"
    path.write_bytes(content)
    error = refused(path, "<b>thing</b>.bin")
    assert told in error.error
    assert error.hint


@pytest.mark.parametrize(
    "name",
    [
        "../graphs/torch_cnn.graph.json",
        "paddle_cnn.json",
        "paddle_cnn.pdmodel",
    ],
)
def test_models_without_a_backend_are_rejected(name: str) -> None:
    error = refused(FIXTURES / "models" / name)
    assert "can be looked at here, but not run" in error.error
    assert "visualprof runs" in error.hint


def test_the_weights_of_an_openvino_model_are_next_to_it() -> None:
    model = inspect_model(FIXTURES / "models" / "openvino_cnn.xml", "cnn.xml")
    assert (model.format, model.backends) == ("openvino", ["openvino"])
    assert [file.path for file in model.external] == ["cnn.bin"]
    assert [file.path for file in with_weights_named("other.xml", model).external] == ["other.bin"]


def test_cut_models_are_refused(tmp_path: Path) -> None:
    for file in ("megengine/lenet.mge", "onnx/resnet10_dynbatch.onnx"):
        data = recording_path(f"models/{file}").read_bytes()
        path = tmp_path / "blob"
        path.write_bytes(data[: len(data) // 2])
        assert "cut" in refused(path).hint


def test_a_saved_model_has_signature_names_and_variables_next_to_it() -> None:
    inspection = inspect_model(FIXTURES / "models" / "tensorflow_saved_model.pb", "saved_model.pb")
    assert (dims(inspection), inspection.dims) == ({"image": ["batch", 16, 16, 3]}, {"batch": 1})
    assert [t.name for t in inspection.outputs] == ["output_0"]
    assert [file.path for file in inspection.external] == [
        "variables/variables.index",
        "variables/variables.data-00000-of-00001",
    ]
    assert inspection.backends == ["tensorflow"]


def test_a_frozen_graph_has_no_companion_files_and_no_unused_inputs() -> None:
    inspection = inspect_model(FIXTURES / "models" / "tensorflow_frozen_control.pb", "frozen.pb")
    assert (dims(inspection), inspection.external) == ({"x": [2, 4]}, [])


def test_a_saved_model_with_assets_elsewhere_is_rejected(tmp_path: Path) -> None:
    data = (FIXTURES / "models" / "tensorflow_control.pb").read_bytes()
    name = b"../../etc/passwd"
    asset = bytes([6 << 3 | 2, len(name) + 2, 2 << 3 | 2, len(name)]) + name
    meta = data[6:] + asset  # after the version, and the length of the graph in three bytes
    size = bytes([len(meta) & 127 | 128, len(meta) >> 7 & 127 | 128, len(meta) >> 14])
    (tmp_path / "saved_model.pb").write_bytes(data[:3] + size + meta)
    assert "which is not in the same folder" in refused(tmp_path / "saved_model.pb").error


def test_a_model_for_litert_has_its_signatures_names() -> None:
    inspection = inspect_model(FIXTURES / "models" / "tflite_cnn.tflite", "cnn.tflite")
    assert (dims(inspection), inspection.dims) == ({"image": ["batch", 16, 16, 3]}, {"batch": 1})
    assert inspection.backends == ["litert"]


# archives


def archive(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as zip_file:
        for name, data in files.items():
            zip_file.writestr(name, data)
    return path


def test_a_zip_bomb_is_refused_without_unpacking_it(tmp_path: Path) -> None:
    bomb = archive(tmp_path / "blob", {"m/code/__torch__/m.py": bytes(300 << 20)}, zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 1 << 20
    began = time.process_time()
    with pytest.raises(FormatError, match="decompression bomb"):
        inspect_model(bomb, "m.pt")
    assert time.process_time() - began < 1


@pytest.mark.parametrize("name", ["../../evil.py", "m/../../x", "/etc/cron.d/x", "..\\..\\x", "C:\\x"])
def test_names_that_lead_out_of_an_archive_are_refused(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "blob", {"m/code/__torch__/m.py": b"class A(Module):\n  pass\n", name: b""})
    assert "leads out of it" in refused(path, "m.pt").error


def test_archives_of_absurdly_many_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    with zipfile.ZipFile(path, "w") as zip_file:
        for i in range(100_001):
            zip_file.writestr(zipfile.ZipInfo(f"m/data/{i}"), b"")
    with pytest.raises(FormatError, match="100,001 files"):
        inspect_model(path, "m.pt")


def test_files_with_equal_names_in_an_archive_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    with zipfile.ZipFile(path, "w") as zip_file:
        zip_file.writestr("m/code/__torch__/m.py", b"a")
        with pytest.warns(UserWarning, match="Duplicate"):
            zip_file.writestr("m/code/__torch__/m.py", b"b")
    assert "one name" in refused(path, "m.pt").error


# arrays


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((2, 3), np.float32),
        np.asfortranarray(np.ones((4, 5, 6), np.float16)),
        np.array(7, np.int64),
        np.array([True, False]),
        np.arange(3, dtype=np.uint8),
    ],
)
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_arrays_of_numbers_of_every_version(tmp_path: Path, values: np.ndarray, version: tuple[int, int]) -> None:
    path = tmp_path / "blob"
    with path.open("wb") as file:
        np.lib.format.write_array(file, values, version)
    assert inspect_array(path, "x.npy") == InspectedArray(values.dtype.name, list(values.shape))


def test_an_array_is_known_by_its_content_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    saved(path, np.zeros(3, np.int32))
    assert inspect_file(path, "model.onnx") == InspectedArray("int32", [3])


def test_a_cut_array_says_how_many_bytes_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    saved(path, np.zeros((100, 10), np.float32))
    path.write_bytes(path.read_bytes()[:-1234])
    assert "1,234 of 4,000 bytes of the values are missing" in refused(path, "x.npy").error


def test_an_array_with_more_bytes_than_its_head_says_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    saved(path, np.zeros(3))
    path.write_bytes(path.read_bytes() + b"more")
    assert "4 bytes more" in refused(path, "x.npy").error


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (np.zeros(3, ">f4"), "big-endian"),
        (np.array(["a"]), "values of type"),
        (np.zeros(2, [("a", "f4")]), "records"),
        (np.zeros(2, np.complex64), "values of type"),
        (np.zeros((0, 3)), "without values"),
    ],
)
def test_arrays_that_cannot_be_fed_are_refused(tmp_path: Path, values: np.ndarray, told: str) -> None:
    path = tmp_path / "blob"
    saved(path, values)
    assert told in refused(path, "x.npy").error


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9), }", "invalid array shape"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627775, 9), }", "are missing"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "invalid array shape"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (True,), }", "invalid array shape"),
        ("{'descr': '<f4', 'shape': (1,), }", "damaged"),
        ("__import__('os').system('true')", "damaged"),
        ("(" * 9000, "damaged"),
        ("[1, 2]", "damaged"),
    ],
)
def test_hostile_heads_of_arrays_are_refused(tmp_path: Path, head: str, told: str) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + bytes(4))
    assert told in refused(path, "x.npy").error


def test_a_head_that_claims_gigabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 0xFFFFFFFF) + bytes(100))
    assert "4,294,967,295 bytes long" in refused(path, "x.npy").error


# names


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.onnx", "boot.onnx"),
        ("C:\\models\\a.onnx", "a.onnx"),
        ("..", "model"),
        ("", "model"),
        (".hidden.onnx", "hidden.onnx"),
        ("a\nb\x00c\x1b[31m.onnx", "a_b_c_[31m.onnx"),
        ("模型 é.onnx", "模型 é.onnx"),
        ("<img src=x onerror=alert(1)>.onnx", "<img src=x onerror=alert(1)>.onnx"),
        ("\udcff.onnx", "_.onnx"),
    ],
)
def test_names_lose_folders_and_control_characters(given: str, safe: str) -> None:
    assert safe_name(given) == safe


def test_long_names_keep_their_suffix_and_fit_a_file_system() -> None:
    safe = safe_name("模" * 500 + ".onnx")
    assert len(safe.encode()) <= 150
    assert safe.endswith("模.onnx")


def test_models_get_a_suffix_that_backends_know() -> None:
    assert model_name("job.json", "onnx") == "job.json.onnx"
    assert model_name("a.onnx", "onnx") == "a.onnx"
    assert model_name("lenet", "megengine") == "lenet.mge"
