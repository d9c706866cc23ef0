"""Keras 3 archives: counts as Keras gives them (`fixtures/models/make_keras.py`), structure, hostile files."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES
from visualprof.errors import FormatError
from visualprof.reader.graph import ModelGraph
from visualprof.reader.hdf5 import MAGIC, Hdf5Error, datasets
from visualprof.reader.models import keras, read_model
from visualprof.views.graph import drawn

MODELS = FIXTURES / "models"


def archive(path: Path, config: object, weights: bytes | None = b"", **options: Any) -> Path:
    with zipfile.ZipFile(path, "w", **options) as file:
        file.writestr("metadata.json", '{"keras_version": "3.9.0"}')
        file.writestr("config.json", config if isinstance(config, str) else json.dumps(config))
        if weights is not None:
            file.writestr("model.weights.h5", weights)
    return path


def layer(name: str, *calls: str, kind: str = "Dense", **config: Any) -> dict[str, Any]:
    nodes = [
        {"args": [{"class_name": "__keras_tensor__", "config": {"keras_history": [call, 0, 0]}}], "kwargs": {}}
        for call in calls
    ]
    return {"class_name": kind, "name": name, "config": config, "inbound_nodes": nodes}


def functional(*layers: dict[str, Any], outputs: object = None, name: str = "m") -> dict[str, Any]:
    config = {"name": name, "layers": list(layers), "output_layers": outputs or [[layers[-1]["name"], 0, 0]]}
    return {"class_name": "Functional", "config": config}


def operators(model: ModelGraph) -> list[tuple[str, str]]:
    return [("/".join([*(s.name for s in n.scope), n.name]), n.type) for n in model.nodes if n.kind == "operator"]


# `len(model.layers)` counts inputs, a nested model as one and a layer once, however often it is called.
@pytest.mark.parametrize(("name", "parameters", "operator_count"), [("cnn", 1011, 14), ("sequence", 834, 4)])
def test_parameters_equal_keras_own_count(name: str, parameters: int, operator_count: int) -> None:
    model = read_model(MODELS / f"keras_{name}.keras")
    facts = drawn(model).model
    assert (facts.parameters, facts.parameter_bytes) == (parameters, 4 * parameters)
    assert (model.name, model.producer, model.warnings) == (name, "Keras 3.15.1", ())
    assert len(operators(model)) == operator_count


def test_calls_of_one_model_are_groups_that_read_the_same_weights() -> None:
    model = read_model(MODELS / "keras_cnn.keras")
    found = dict(operators(model))
    assert {"block/block_conv", "block#2/block_conv", "shared", "shared#2", "logits", "score"} <= set(found)
    first, second = (n for n in model.nodes if n.name == "block_conv")
    assert first.inputs[1:] == second.inputs[1:]
    assert [model.values[row].shape for row in first.inputs[1:]] == [(3, 3, 8, 8), (8,)]
    pool = next(n for n in model.nodes if n.name == "pool")
    assert (model.values[pool.outputs[0]].dtype, model.values[pool.outputs[0]].shape) == ("float32", ("?", 8))
    stem = next(n for n in model.nodes if n.name == "stem")
    assert (stem.attributes["kernel_size"], stem.attributes["activation"]) == ("3, 3", "relu")


def test_layers_run_in_the_order_of_their_data_whatever_their_order_in_the_file(tmp_path: Path) -> None:
    config = functional(
        layer("c", "b"), layer("b", "a"), layer("a", kind="InputLayer", batch_shape=[None, 4]), outputs=["c", 0, 0]
    )
    model = read_model(archive(tmp_path / "m.keras", config))
    assert [n.name for n in model.nodes] == ["a", "b", "c", "c"]
    assert model.values[model.nodes[0].outputs[0]].shape == ("?", 4)


def test_weights_that_cannot_be_read_are_unknown_not_zero(tmp_path: Path) -> None:
    config = functional(layer("a", kind="InputLayer"), layer("b", "a"))
    for weights, problem in ((b"", "byte 96 is outside"), (None, "is not in the archive")):
        model = read_model(archive(tmp_path / "m.keras", config, weights))
        assert [w for w in model.warnings if problem in w and "parameters and bytes are unknown" in w]


def test_a_subclassed_model_shows_its_weights(tmp_path: Path) -> None:
    with zipfile.ZipFile(MODELS / "keras_cnn.keras") as file:
        weights = file.read("model.weights.h5")
    config = {"class_name": "Mine", "config": {"width": 3}}
    model = read_model(archive(tmp_path / "m.keras", config, weights, compression=zipfile.ZIP_DEFLATED))
    assert drawn(model).model.parameters == 1011
    assert ("layers/layers.conv2d", "Weights") in operators(model)
    assert "only weights are shown" in model.warnings[0]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ('{"class_name": "Functional", "config"', "not a whole config.json"),
        (functional(layer("a", "b"), layer("b", "a")), "the layer 'a' needs its own output"),
        (functional(layer("a", "x")), "the layer 'a' reads 'x', which is missing"),
    ],
)
def test_inconsistent_layers_are_clear_errors(tmp_path: Path, config: object, problem: str) -> None:
    with pytest.raises(FormatError, match=rf"m\.keras: .*{problem}"):
        read_model(archive(tmp_path / "m.keras", config))


def test_models_in_models_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras, "MAX_NODES", 1000)
    inner = functional(layer("a", kind="InputLayer"), layer("b", "a"))
    for _ in range(40):
        inner = functional(layer("a", kind="InputLayer"), layer("b", "a") | {"config": inner["config"]})
    with pytest.raises(FormatError, match=r"m\.keras: its models are nested too deeply"):
        read_model(archive(tmp_path / "m.keras", inner))
    inner = functional(layer("a", kind="InputLayer"))
    for _ in range(5):
        inner = functional(layer("a", kind="InputLayer"), layer("b", *"a" * 20) | {"config": inner["config"]})
    with pytest.raises(FormatError, match=r"m\.keras: its layers are called over 1,000 times"):
        read_model(archive(tmp_path / "m.keras", inner))


def test_a_configuration_that_unpacks_to_far_more_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "m.keras", " " * 20_000_000 + "{}", compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(FormatError, match=r"m\.keras: config\.json unpacks to 20,000,002 bytes"):
        read_model(path)


def hdf5(root: bytes, *, offset: int = 96) -> bytes:
    """A superblock of version 0 whose root group has its object header behind it."""
    start = MAGIC + bytes([0, 0, 0, 0, 0, 8, 8, 0]) + struct.pack("<HHI", 4, 16, 0)
    return start + struct.pack("<QQQQ", 0, 0, 0, 0) + struct.pack("<QQII16x", 0, offset, 1, 0) + root


def header(*messages: tuple[int, bytes]) -> bytes:
    content = b"".join(struct.pack("<HHI", kind, len(data), 0) + data for kind, data in messages)
    return struct.pack("<BxHIIxxxx", 1, len(messages), 1, len(content)) + content


def listed(data: bytes) -> list[tuple[str, str, tuple[int, ...], int]]:
    found = datasets(lambda offset, size: data[offset : offset + size])
    return [(item.path, item.dtype, item.shape, item.item_bytes) for item in found]


def test_a_dataset_of_hand_written_bytes() -> None:
    space, kind = struct.pack("<BBB5xQQ", 1, 2, 0, 3, 5), struct.pack("<BBBBI", 0x10, 8, 0, 0, 2)
    assert listed(hdf5(header((1, space), (3, kind)))) == [("", "int16", (3, 5), 2)]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (hdf5(header((0x11, struct.pack("<QQ", 1 << 40, 1 << 40)))), "is outside of the file"),
        (hdf5(header((0x10, struct.pack("<QQ", 96, 1 << 60)))), "too large for a model"),
        (hdf5(header((0x10, struct.pack("<QQ", 112, 24)))), "too large for a model"),
        (hdf5(header((1, b"\x01\xff" + bytes(6)), (3, bytes(8)))), "is damaged"),
        (MAGIC + b"\x03" + bytes(200), "HDF5 layout version 3 is not supported"),
        (bytes(200), "the signature of HDF5 is missing"),
    ],
)
def test_hostile_hdf5_is_a_clear_error(content: bytes, problem: str) -> None:
    with pytest.raises(Hdf5Error, match=problem):
        listed(content)


def test_groups_that_contain_each_other_are_read_once() -> None:
    root = header((0x11, struct.pack("<QQ", 136, 400)))
    table = b"SNOD" + struct.pack("<BxH", 1, 1) + struct.pack("<QQ24x", 0, 96)
    data = (hdf5(root) + bytes(16))[:136].ljust(136, b"\0") + table
    data = data.ljust(400, b"\0") + b"HEAP" + struct.pack("<4xQQQ", 8, 0, 440)
    assert listed(data.ljust(440, b"\0") + b"again\0\0\0") == []
