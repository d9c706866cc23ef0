"""Graphs of MegEngine modules, recorded by the MegEngine that is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES

megengine = pytest.importorskip("megengine")

import numpy as np  # noqa: E402

from tests.capture.megengine_models import LeNet, Twice  # noqa: E402
from visualprof.capture import add_graph  # noqa: E402
from visualprof.reader.models import read_model  # noqa: E402
from visualprof.views.graph import drawn  # noqa: E402


def image() -> Any:
    return megengine.Tensor(np.ones((2, 1, 32, 32), "float32"))


def test_the_fixture_equals_a_new_recording(tmp_path: Path) -> None:
    document = json.loads(add_graph(LeNet(), image(), tmp_path, "megengine_lenet").read_text())
    assert document == json.loads((FIXTURES / "graphs" / "megengine_lenet.graph.json").read_text())


def test_parameters_equal_megengines_own_count(tmp_path: Path) -> None:
    model = LeNet()
    summary = drawn(read_model(add_graph(model, image(), tmp_path))).model
    assert summary.parameters == sum(int(np.prod(p.shape)) for p in model.parameters())


def test_functions_join_the_layers(tmp_path: Path) -> None:
    document = json.loads(add_graph(LeNet(), {"x": image()}, tmp_path).read_text())
    nodes = {n["name"]: n for n in document["nodes"]}
    add = nodes["blocks.0.ADD"]
    assert [document["values"][i]["name"] for i in add["inputs"]] == ["blocks.0.norm", "pool"]
    assert nodes["output.probability"]["inputs"] == nodes["Softmax"]["outputs"]


def test_the_model_stays_in_training(tmp_path: Path) -> None:
    model = LeNet()
    add_graph(model, image(), tmp_path)
    assert all(m.training for m in model.modules())


def test_tracing_works_before_and_after(tmp_path: Path) -> None:
    from megengine.traced_module import TracedModule, trace_module

    assert isinstance(trace_module(LeNet(), image()), TracedModule)
    graphs = [json.loads(add_graph(LeNet(), image(), tmp_path).read_text()) for _ in range(2)]
    assert graphs[0] == graphs[1]
    assert any(n["type"] == "RELU" for n in graphs[1]["nodes"])
    traced = trace_module(LeNet(), image())
    assert isinstance(traced, TracedModule)
    assert json.loads(add_graph(LeNet(), image(), tmp_path).read_text()) == graphs[0]


@pytest.mark.parametrize(("model", "shape"), [(LeNet, (2, 1, 32, 32)), (Twice, (2, 3, 16, 16))])
def test_a_traced_module_gives_the_graph_of_the_module(tmp_path: Path, model: type, shape: tuple[int, ...]) -> None:
    from megengine.traced_module import trace_module

    plain, tensor = model(), megengine.Tensor(np.ones(shape, "float32"))
    plain.eval()
    traced = trace_module(plain, tensor)
    first, second = (json.loads(add_graph(m, tensor, tmp_path, "m").read_text())["nodes"] for m in (plain, traced))
    fields = ("name", "type", "scope", "inputs", "outputs")
    assert [[n[k] for k in fields] for n in first[1:]] == [[n[k] for k in fields] for n in second[1:]]
    assert trace_module(plain, tensor) is not None, "MegEngine traces as before"
