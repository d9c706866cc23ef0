"""Core ML: counts as coremltools gives them (`fixtures/models/make_coreml.py`), structure, hostile files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import FIXTURES
from visualprof.errors import FormatError
from visualprof.reader.logdir.scan import LogFile, examine, roots, walk
from visualprof.reader.models import read_model
from visualprof.views.graph import drawn

MODELS = FIXTURES / "models"


def field(number: int, content: bytes | str | int) -> bytes:
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def feature(name: str) -> bytes:
    array = field(1, varint(4)) + field(2, 65568)
    return field(1, name) + field(3, field(5, array))


def model(number: int, content: bytes) -> bytes:
    """A model with an input `x` and an output `y`."""
    description = field(1, feature("x")) + field(10, feature("y"))
    return field(1, 7) + field(2, description) + field(number, content)


@pytest.mark.parametrize(
    ("name", "operators", "parameters", "item_bytes"), [("program", 16, 882, 2), ("network", 6, 314, 4)]
)
def test_operators_and_parameters_equal_coremltools(
    name: str, operators: int, parameters: int, item_bytes: int
) -> None:
    read = read_model(MODELS / f"coreml_{name}.mlmodel")
    facts = drawn(read).model
    assert sum(node.kind == "operator" for node in read.nodes) == operators
    assert (facts.parameters, facts.parameter_bytes) == (parameters, item_bytes * parameters)
    assert read.warnings == ()


def test_branches_are_inside_their_operation_and_settings_are_text() -> None:
    read = read_model(MODELS / "coreml_program.mlmodel")
    places = {node.name: [scope.name for scope in node.scope] for node in read.nodes}
    assert places["exp_cast_fp16"] == ["choice", "block 0"]
    assert places["abs_cast_fp16"] == ["choice", "block 1"]
    nodes = {node.name: node for node in read.nodes}
    assert nodes["conv0_cast_fp16"].attributes["strides"] == "1, 1"
    assert nodes["large_cast_fp16"].attributes["y"] == "0"
    assert read.values[nodes["pool_cast_fp16"].outputs[0]].shape == (1, 8)
    ends = [node for node in read.nodes if node.kind == "output" and node.scope]
    assert {read.values[node.outputs[0]].name for node in ends} == {"choice"}


def test_a_package_is_one_model_with_the_name_of_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "net.mlpackage" / "Data" / "com.apple.CoreML"
    folder.mkdir(parents=True)
    (folder / "model.mlmodel").write_bytes((MODELS / "coreml_program.mlmodel").read_bytes())
    (tmp_path / "net.mlpackage" / "Manifest.json").write_text('{"fileFormatVersion": "1.0.0"}')
    assert read_model(folder / "model.mlmodel").name == "net.mlpackage"
    files = [item for item in walk(roots([tmp_path])[0]) if isinstance(item, LogFile)]
    assert {examine(file).kind for file in files} == {"other"}


def test_models_of_a_pipeline_are_groups(tmp_path: Path) -> None:
    first, second = model(604, b""), model(900, b"")
    path = tmp_path / "m.mlmodel"
    path.write_bytes(model(202, field(1, first) + field(1, second) + field(2, "scale")))
    read = read_model(path)
    found = [(n.type, [s.name for s in n.scope]) for n in read.nodes]
    assert found[1:3] == [("Scaler", ["scale"]), ("Identity", ["model 1"])]
    assert (read.nodes[0].name, read.nodes[3].name) == ("x", "y")


def test_hostile_files_are_clear_errors(tmp_path: Path) -> None:
    path = tmp_path / "m.mlmodel"

    def refused(content: bytes, problem: str) -> None:
        path.write_bytes(content)
        with pytest.raises(FormatError, match=rf"m\.mlmodel: .*{problem}"):
            read_model(path)

    inner = model(900, b"")
    for _ in range(40):
        inner = model(202, field(1, inner))
    refused(inner, "are nested over 32 deep")
    refused(model(502, b""), "damaged Core ML model .*has no function")
    refused(model(500, field(1, field(1, "a")))[:-1], "damaged Core ML model")
    refused(model(500, field(1, varint(2 << 3 | 2) + varint(1 << 40))), "a field of 1,099,511,627,776 bytes")
