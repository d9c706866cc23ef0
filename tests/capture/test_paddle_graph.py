"""Graphs of Paddle layers, recorded by the Paddle that is installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import FIXTURES

paddle = pytest.importorskip("paddle")

from tests.capture.paddle_models import Cnn  # noqa: E402
from visualprof.capture import add_graph  # noqa: E402
from visualprof.reader.models import read_model  # noqa: E402
from visualprof.views.graph import drawn  # noqa: E402


def test_the_fixture_is_what_is_recorded_today(tmp_path: Path) -> None:
    made = json.loads(add_graph(Cnn(), paddle.ones([2, 3, 8, 8]), tmp_path, "paddle_cnn").read_text())
    kept = json.loads((FIXTURES / "graphs" / "paddle_cnn.graph.json").read_text())
    assert {**made, "producer": ""} == {**kept, "producer": ""}


def test_parameters_equal_paddles_own_count(tmp_path: Path) -> None:
    model = Cnn()
    summary = drawn(read_model(add_graph(model, paddle.ones([2, 3, 8, 8]), tmp_path))).model
    assert summary.parameters == sum(int(p.size) for p in model.parameters())


def test_paddle_is_left_as_it_was(tmp_path: Path) -> None:
    model, add, call = Cnn(), paddle.Tensor.__add__, paddle.nn.Layer.__call__
    add_graph(model, paddle.ones([2, 3, 8, 8]), tmp_path)
    assert (paddle.Tensor.__add__, paddle.nn.Layer.__call__) == (add, call)
    assert all(m.training for m in model.sublayers(include_self=True))
