"""safetensors and GGUF: tensors per module. Files are written by hand; sums are worked out in the tests."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from visualprof.errors import FormatError
from visualprof.reader.graph import ModelGraph
from visualprof.reader.models import gguf, read_model
from visualprof.views.graph import drawn


def safetensors(path: Path, tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> Path:
    header = json.dumps(({"__metadata__": metadata} if metadata else {}) | tensors).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    return path


def tensor(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def string(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf_file(path: Path, entries: list[bytes], tensors: list[tuple[str, list[int], int]], version: int = 3) -> Path:
    """Write a file with metadata entries and tensors (name, dimensions with the innermost first, type)."""
    table = b"".join(
        string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, 0) for name, dims, kind in tensors
    )
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries) + table)
    return path


def text_entry(key: str, value: str) -> bytes:
    return string(key) + struct.pack("<I", 8) + string(value)


def weights(model: ModelGraph) -> list[tuple[str, str, tuple[int | str, ...] | None, int]]:
    values = [model.values[row] for row in model.stored_constants()]
    return [(value.name, value.dtype, value.shape, value.bytes) for value in values]


def test_tensors_belong_to_modules_in_natural_order(tmp_path: Path) -> None:
    content = {
        "model.layers.10.q.weight": tensor("BF16", [4, 8], 0, 64),
        "model.layers.9.q.bias": tensor("F32", [4], 64, 80),
        "model.layers.9.q.weight": tensor("F8_E4M3", [4, 8], 80, 112),
        "scale": tensor("F32", [], 112, 116),
    }
    model = read_model(safetensors(tmp_path / "m.safetensors", content, {"format": "pt"}))
    modules = [(node.name, [scope.name for scope in node.scope]) for node in model.nodes if node.kind == "operator"]
    layers = ["model", "layers"]
    assert modules == [("model.layers.9.q", [*layers, "9"]), ("model.layers.10.q", [*layers, "10"]), ("scale", [])]
    assert weights(model)[0] == ("model.layers.9.q.bias", "float32", (4,), 16)
    assert [value[3] for value in weights(model)] == [16, 32, 64, 4]
    facts = drawn(model).model
    assert (facts.parameters, facts.parameter_bytes) == (4 + 32 + 32 + 1, 16 + 32 + 64 + 4)
    assert model.properties == {"format": "pt"}


def test_an_index_is_the_model_of_all_its_files(tmp_path: Path) -> None:
    names = {"a.weight": "model-00001-of-00002.safetensors", "b.weight": "model-00002-of-00002.safetensors"}
    for name, file in names.items():
        safetensors(tmp_path / file, {name: tensor("F16", [2, 3], 0, 12)})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 24}, "weight_map": names}))
    assert weights(read_model(index)) == [(name, "float16", (2, 3), 12) for name in names]
    (tmp_path / names["b.weight"]).unlink()
    with pytest.raises(FormatError, match=r"index\.json: the file 'model-00002-of-00002\.safetensors' is not next to"):
        read_model(index)


@pytest.mark.parametrize("file", ["../m.safetensors", "/m.safetensors"])
def test_an_index_names_no_file_elsewhere(tmp_path: Path, file: str) -> None:
    safetensors(tmp_path / "m.safetensors", {"a": tensor("F16", [1], 0, 2)})
    index = tmp_path / "models" / "x.index.json"
    index.parent.mkdir()
    index.write_text(json.dumps({"weight_map": {"a": file}}))
    with pytest.raises(FormatError, match="is not next to this index"):
        read_model(index)


def test_a_cut_header_and_odd_values_of_safetensors(tmp_path: Path) -> None:
    whole = safetensors(tmp_path / "m.safetensors", {"a": tensor("F16", [1], 0, 2)})
    whole.write_bytes(whole.read_bytes()[:30])
    with pytest.raises(FormatError, match=r"m\.safetensors: not a whole header of safetensors"):
        read_model(whole)
    model = read_model(safetensors(whole, {"a": {"dtype": "X9", "shape": ["x"]}, "b": 3}))
    assert weights(model) == [("a", "x9", None, -1), ("b", "", None, -1)]


def test_gguf_has_blocks_of_quantized_types_and_metadata(tmp_path: Path) -> None:
    tokens = string("tokens") + struct.pack("<IIQ", 9, 8, 2) + string("a") + string("b")
    scores = string("scores") + struct.pack("<IIQ", 9, 6, 2) + struct.pack("<2f", 1, 2)
    count = string("llama.block_count") + struct.pack("<II", 4, 32)
    entries = [text_entry("general.name", "Tiny"), tokens, scores, count]
    tensors = [("token_embd.weight", [64, 100], 1), ("blk.0.ffn.weight", [256, 3], 12), ("odd.weight", [8], 77)]
    model = read_model(gguf_file(tmp_path / "m.gguf", entries, tensors))
    assert (model.name, model.properties) == ("Tiny", {"general.name": "Tiny", "llama.block_count": "32"})
    assert weights(model) == [
        ("token_embd.weight", "float16", (100, 64), 12_800),
        ("blk.0.ffn.weight", "q4_k", (3, 256), 3 * 144),
        ("odd.weight", "type 77", (8,), -1),
    ]
    assert [warning[:6] for warning in model.warnings] == ["1 of 3"]


def test_a_table_longer_than_the_first_part_is_read_from_a_larger_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf, "HEAD_SIZES", (64, 1 << 20))
    model = read_model(gguf_file(tmp_path / "m.gguf", [text_entry("a", "b" * 100)], [("x", [2], 0)]))
    assert weights(model) == [("x", "float32", (2,), 8)]


@pytest.mark.parametrize(
    ("entries", "tensors", "version", "problem"),
    [
        ([], [("x", [2], 0)], 1, "GGUF of version 1, which is not read"),
        ([string("a") + struct.pack("<I", 99)], [], 3, "a metadata value has the unknown type 99"),
        ([string("a") + struct.pack("<IIQ", 9, 0, 1 << 60)], [], 3, "the table of tensors is incomplete"),
        ([], [("x", [1] * 9, 0)], 3, "the tensor 'x' has 9 dimensions"),
    ],
)
def test_damaged_gguf_says_what_is_wrong(
    tmp_path: Path, entries: list[bytes], tensors: list[tuple[str, list[int], int]], version: int, problem: str
) -> None:
    with pytest.raises(FormatError, match=rf"m\.gguf: {problem}"):
        read_model(gguf_file(tmp_path / "m.gguf", entries, tensors, version))


def test_a_number_of_tensors_that_no_model_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1 << 40, 0))
    with pytest.raises(FormatError, match="it states 1,099,511,627,776 tensors"):
        read_model(path)
