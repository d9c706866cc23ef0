"""Times of MegEngine's modules on a model's graph, joined by scopes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reader.test_megengine_timeline import INTERPRETER, Event, span, timeline
from tests.reader.test_megengine_timeline import operator as dispatched
from tests.recordings import recording_path
from visualprof.reader import read_trace
from visualprof.reader.graph import ModelBuilder, Node, Scope
from visualprof.reader.models import read_model
from visualprof.views.measure.graphs.join import NodeTimes, join_times


def operator(number: int, kind: str, start: float, dur: float) -> list[Event]:
    """Return an operator that is dispatched at `start`, executed 1 us later, and on the device 1 us after that."""
    return dispatched(number, start, start + 1, start + 2, start + 2 + dur, kind)


def step(number: int, start: float, extra: bool = False) -> list[Event]:
    """Return a step: a convolution of 3 us with its bias of 2 us, then two RELUs of 4 and 5 us, and a backward RELU."""
    n, at = 10 * number, start
    events = [
        *span(INTERPRETER, f"ProfilerStep#{number}", at, at + 90),
        *span(INTERPRETER, "forward", at + 1, at + 60),
        *span(INTERPRETER, "block", at + 2, at + 50),
        *span(INTERPRETER, "conv", at + 3, at + 20),
        *span(INTERPRETER, "conv2d", at + 4, at + 19),
        *operator(n, "Convolution", at + 5, 3),
        *operator(n + 1, "ADD", at + 10, 2),
        *span(INTERPRETER, "relu", at + 21, at + 45),
        *operator(n + 2, "RELU", at + 22, 4),
        *operator(n + 3, "RELU", at + 30, 5),
        *span(INTERPRETER, "backward", at + 65, at + 85),
        *operator(n + 4, "RELU", at + 70, 6),
    ]
    return [*events, *(operator(n + 5, "RELU", at + 38, 7) if extra else [])]


def joined(folder: Path, *steps: list[Event]) -> tuple[NodeTimes, list[str]]:
    """Join a recording to a model with one convolution and two activations in a block."""
    builder = ModelBuilder("net", "graph")
    for name, kind in (("block.conv", "Conv2d"), ("block.RELU", "RELU"), ("block.RELU#2", "RELU")):
        builder.node(Node(name, kind, (Scope("block"),)))
    model = builder.build()
    return join_times(model, read_trace(timeline(folder, *steps))), [node.name for node in model.nodes]


def test_operators_of_megengine_belong_to_the_module_that_called_them(tmp_path: Path) -> None:
    times, names = joined(tmp_path, step(1, 0), step(2, 100))
    assert times.rule == "scope"
    assert dict(zip(names, times.time_ns.tolist(), strict=True)) == {
        "block.conv": 10_000,
        "block.RELU": 8_000,
        "block.RELU#2": 10_000,
    }
    assert (times.total_ns, times.matched_ns) == (28_000, 28_000), "the backward pass has no nodes"


def test_operators_that_may_belong_to_several_nodes_belong_to_none(tmp_path: Path) -> None:
    times, names = joined(tmp_path, step(1, 0), step(2, 100, extra=True))
    values_by_name = dict(zip(names, times.time_ns.tolist(), strict=True))
    assert values_by_name["block.conv"] == 10_000
    assert np.isnan([values_by_name["block.RELU"], values_by_name["block.RELU#2"]]).all()
    assert {(entry.name, entry.reason) for entry in times.unmatched} == {("RELU", "ambiguous")}


@pytest.mark.parametrize(
    ("model", "recording", "named"),
    [
        ("lenet", "lenet_scopes_backtrace", {"conv1.Convolution": 208_184, "fc3.ADD": 3_005}),
        ("resnet18_w16", "resnet18_w16", {"layer2.0.down.0.Convolution": 373_459}),
    ],
)
def test_training_runs_of_megengine_have_times_on_the_dumped_model(
    model: str, recording: str, named: dict[str, Any]
) -> None:
    trace = read_trace(recording_path(f"traces/megengine/train/{recording}.chrome_timeline.json.gz"))
    graph = read_model(recording_path(f"models/megengine/{model}.mge"))
    times = join_times(graph, trace)
    by_name = {node.name: time for node, time in zip(graph.nodes, times.time_ns.tolist(), strict=True)}
    assert {name: by_name[name] for name in named} == pytest.approx(named, abs=1)
    assert times.matched_ns > 0.9 * times.total_ns, "the rest is the loss, which the model does not contain"
