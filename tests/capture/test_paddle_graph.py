"""Graphs of Paddle layers, recorded by the Paddle that is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES

paddle = pytest.importorskip("paddle")

from tests.capture.paddle_models import Cnn  # noqa: E402
from visualprof.capture import add_graph  # noqa: E402
from visualprof.reader.models import read_model  # noqa: E402
from visualprof.views.graph import drawn  # noqa: E402


def test_the_fixture_equals_a_new_recording(tmp_path: Path) -> None:
    document = json.loads(add_graph(Cnn(), paddle.ones([2, 3, 8, 8]), tmp_path, "paddle_cnn").read_text())
    fixture = json.loads((FIXTURES / "graphs" / "paddle_cnn.graph.json").read_text())
    assert {**document, "producer": ""} == {**fixture, "producer": ""}


def test_parameters_equal_paddles_own_count(tmp_path: Path) -> None:
    model = Cnn()
    summary = drawn(read_model(add_graph(model, paddle.ones([2, 3, 8, 8]), tmp_path))).model
    assert summary.parameters == sum(int(p.size) for p in model.parameters())


def test_paddle_is_left_unchanged(tmp_path: Path) -> None:
    model, add, call = Cnn(), paddle.Tensor.__add__, paddle.nn.Layer.__call__
    add_graph(model, paddle.ones([2, 3, 8, 8]), tmp_path)
    assert (paddle.Tensor.__add__, paddle.nn.Layer.__call__) == (add, call)
    assert all(m.training for m in model.sublayers(include_self=True))


def nodes(model: Any, folder: Path) -> list[list[object]]:
    document = json.loads(add_graph(model, paddle.ones([2, 3, 8, 8]), folder, "m").read_text())
    return [[n[k] for k in ("name", "type", "scope", "inputs", "outputs")] for n in document["nodes"]]


@pytest.mark.parametrize("full_graph", [False, True])
def test_a_static_layer_gives_the_graph_of_the_layer(tmp_path: Path, full_graph: bool) -> None:
    static = paddle.jit.to_static(Cnn(), full_graph=full_graph)
    assert nodes(static, tmp_path) == nodes(Cnn(), tmp_path)
    static.eval()
    before = static(paddle.ones([2, 3, 8, 8]))
    assert nodes(static, tmp_path) == nodes(Cnn(), tmp_path), "also after it ran"
    assert before.shape == [2, 3]
    assert paddle.jit.dy2static.program_translator.ProgramTranslator().enable_to_static


def test_parameters_of_a_static_layer_inside_another(tmp_path: Path) -> None:
    class Model(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.stem = paddle.nn.Conv2D(3, 3, 1)
            self.inner = paddle.jit.to_static(Cnn())

        def forward(self, x: Any) -> Any:
            return self.inner(self.stem(x)) * 2

    model = Model()
    summary = drawn(read_model(add_graph(model, paddle.ones([2, 3, 8, 8]), tmp_path))).model
    assert summary.parameters == sum(int(p.size) for p in model.parameters()) == 477
