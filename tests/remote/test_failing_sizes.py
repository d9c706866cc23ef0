"""A size that cannot be measured does not lose the others of the sweep, and errors name it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.models import save
from tests.remote.child_runs import Job
from visualprof.remote.protocol import Input, Sweep

onnx: Any = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def reshaping(folder: Path) -> Path:
    """Write a model that reshapes (batch, 4) into (2, 4): it only runs at batch 2."""
    helper = onnx.helper
    x = helper.make_tensor_value_info("x", 1, ["batch", 4])
    y = helper.make_tensor_value_info("y", 1, [2, 4])
    shape = helper.make_tensor("shape", 7, [2], [2, 4])
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "shape"], ["y"])], "g", [x], [y], [shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return save(model, folder / "reshape.onnx")


def job(folder: Path, sizes: list[int]) -> Job:
    return Job(folder, reshaping(folder), [Input("x", "float32", ["batch", 4])], sweep=Sweep("batch", sizes))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[1, 2, 4], [2, 3]])
def test_a_size_that_fails_does_not_lose_the_others(tmp_path: Path, sizes: list[int]) -> None:
    ran = job(tmp_path, sizes).run()
    assert ran.status == 0, ran.stderr
    assert [point["batch"] for point in ran.points] == [2]
    texts = [event["text"] for event in ran.told("warning")]
    assert [text.split(":")[1].strip() for text in texts] == [f"at batch={size}" for size in sizes if size != 2]
    assert all(text.startswith("not measured: ") for text in texts)
    assert [event["not_measured"] for event in ran.told("warning")] == [size for size in sizes if size != 2]


@pytest.mark.slow
def test_if_every_size_fails_the_error_names_the_first(tmp_path: Path) -> None:
    failed = job(tmp_path, [3, 5]).run().failed
    assert failed["error"].startswith("at batch=3: ")
    assert failed["reason"] == "model_error"
