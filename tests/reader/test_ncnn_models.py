"""ncnn: layers and weights, whose total size ncnn itself confirms (`fixtures/models/make_ncnn.py`), hostile files."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from tests.conftest import FIXTURES
from visualprof.errors import FormatError
from visualprof.reader.graph import ModelGraph
from visualprof.reader.models import read_model
from visualprof.views.graph import drawn

MODEL = FIXTURES / "models" / "ncnn_cnn.param"
HALF = 0x01306B47


def weights(model: ModelGraph) -> list[tuple[str, str, tuple[int | str, ...] | None, int]]:
    values = [model.values[row] for row in model.stored_constants()]
    return [(value.name, value.dtype, value.shape, value.bytes) for value in values]


def with_weights(folder: Path, size: int = 2180) -> Path:
    """The model next to its `.bin`: convolutions in half precision, the rest in float32, as ncnn loads it."""
    data = struct.pack("<I", HALF) + bytes(432 + 4 * (8 + 32 + 8))
    data += struct.pack("<I", HALF) + bytes(1152 + 32) + struct.pack("<I", 0) + bytes(320 + 40)
    (folder / "net.bin").write_bytes(data[:size].ljust(size, b"\0"))
    return Path(shutil.copy(MODEL, folder / "net.param"))


def test_layers_and_parameters_equal_ncnn() -> None:
    model = read_model(MODEL)
    assert sum(node.kind in ("operator", "input") for node in model.nodes) == 10
    assert drawn(model).model.parameters == 216 + 8 + 4 * 8 + 8 + 576 + 8 + 80 + 10
    assert weights(model)[:2] == [("conv0/weight", "", (216,), -1), ("conv0/bias", "float32", (8,), 32)]
    assert [warning[:7] for warning in model.warnings] == ["3 of 11"]
    nodes = {node.name: node for node in model.nodes}
    assert nodes["conv0"].attributes["kernel_w"] == "3"
    assert [model.values[row].shape for row in nodes["conv1"].outputs] == [(8, 16, 16)]
    assert [model.values[row].shape for row in nodes["data"].outputs] == [(3, 16, 16)]
    assert nodes["probabilities"].kind == "output"


def test_the_weight_file_states_the_precision_of_weights(tmp_path: Path) -> None:
    model = read_model(with_weights(tmp_path))
    assert model.warnings == ()
    assert weights(model)[0] == ("conv0/weight", "float16", (216,), 432)
    assert weights(model)[-2] == ("dense/weight", "float32", (80,), 320)
    assert drawn(model).model.parameter_bytes == 2180 - 3 * 4


def test_a_weight_file_of_another_size_is_a_warning(tmp_path: Path) -> None:
    model = read_model(with_weights(tmp_path, 2176))
    assert model.warnings == ("net.bin has 2,176 bytes, but the layers need 2,180",)


def test_a_last_line_without_an_end_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "m.param"
    path.write_text("7767517\n1 1\nInput x 0 1 x 0=1")
    assert read_model(path).warnings == ("the last line has no line break: the file may be incomplete",)


def test_weights_that_do_not_follow_from_the_settings_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "m.param"
    path.write_text("7767517\n2 2\nInput x 0 1 x\nLSTM a 1 1 x y 0=4 1=128\n")
    model = read_model(path)
    assert weights(model) == [("a/weights", "", None, -1)]
    assert "1 of 1 constants have an unknown size" in model.warnings[0]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("", r"\? layers expected, 0 found"),
        ("99999999 9\nInput x 0 1 x", "99,999,999 layers expected, 1 found"),
        ("1 1\nInput x", "line 3 is not a layer"),
        ("1 1\nInput x 0 1000000000 x", "line 3 is not a layer"),
        ("1 1\nInput x -1 2 x", "line 3 is not a layer"),
        ("1 1\nInput x ² 1 x", "line 3 is not a layer"),
    ],
)
def test_damaged_files_are_clear_errors(tmp_path: Path, lines: str, problem: str) -> None:
    path = tmp_path / "m.param"
    path.write_text(f"7767517\n{lines}\n")
    with pytest.raises(FormatError, match=rf"m\.param: damaged ncnn model \({problem}\)"):
        read_model(path)
