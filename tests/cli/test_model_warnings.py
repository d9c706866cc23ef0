"""What the command line says about models and folders that it cannot read wholly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.models import save
from visualprof.cli import main

onnx = pytest.importorskip("onnx")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with a weight of a type that nobody knows."""
    unknown = onnx.TensorProto(name="u", data_type=99, dims=[2])
    node = onnx.helper.make_node("Neg", ["u"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [], [onnx.helper.make_tensor_value_info("y", 1, [2])], [unknown])
    return save(onnx.helper.make_model(graph), tmp_path / "m.onnx")


@pytest.mark.slow
def test_warnings_about_a_model_are_printed_and_are_errors_with_strict(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", "graph", str(model), "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert "warning: 1 of 1 constants have an unknown size" in err
    found = json.loads(out)
    assert found["warnings"] == found["model"]["warnings"]
    assert found["model"]["parameter_bytes"] is None
    assert main(["view", "graph", str(model), "--strict"]) != 0


@pytest.mark.slow
def test_the_only_model_of_a_folder_is_shown(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model.parent
    (folder / "notes.json").write_text("{}")
    assert main(["view", "graph", str(folder), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["name"] == "g"
    (folder / "second.onnx").write_bytes(model.read_bytes())
    assert main(["view", "graph", str(folder)]) == 2
    assert f"There are 2 models in {folder}\nHint: Name one of them, such as {model}" in capsys.readouterr().err
    (folder / "empty").mkdir()
    assert main(["view", "graph", str(folder / "empty")]) == 2
    assert "There is no model in" in capsys.readouterr().err


def test_every_skipped_file_of_a_folder_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(6):
        (tmp_path / f"trace{i}.json").write_text("<html></html>")
    assert main(["view", "overview", str(tmp_path)]) != 0
    err = capsys.readouterr().err
    assert [err.count(f"trace{i}.json") for i in range(6)] == [1] * 6
    assert err.count("this is a saved web page") == 6
