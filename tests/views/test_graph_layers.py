"""Times of Paddle's operators on a model's graph, joined by the order of layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import FIXTURES
from tests.recordings import recording_path
from visualprof.capture import add_graph
from visualprof.reader import read_trace
from visualprof.reader.graph import ModelBuilder, ModelGraph, Node, Scope, Value
from visualprof.reader.models import read_model
from visualprof.views.measure.graphs.join import NodeTimes, join_times

Event = dict[str, Any]
US = 1000


def event(kind: str, name: str, start: int, dur: int, thread: str = "1(Python)") -> Event:
    """Return an event of Paddle's profiler; times in us."""
    times = {"start_time": f"{start}.000 us", "end_time": f"{start + dur}.000 us"}
    return {
        "name": f"{name}[{dur}.000 us]",
        "ph": "X",
        "cat": kind,
        "pid": 7,
        "tid": thread,
        "ts": start,
        "dur": dur,
        "args": times,
    }


def layer(name: str, start: int, dur: int) -> Event:
    return event("Forward", name, start, dur)


def operator(name: str, start: int, dur: int, thread: str = "1(C++)") -> Event:
    return event("Operator", f"{name} dygraph", start, dur, thread)


def forward(at: int, classes: str = "Conv2D ReLU Conv2D") -> list[Event]:
    """Return a pass: a convolution of 10 us and its bias of 5, 3 us of relu, 4 of an addition, 20 of a convolution.

    The addition is a Python call, which runs a second operator of 2 us. Outside of the pass are a loss of 6 us and a
    backward pass of 50.
    """
    first, second, third = classes.split()
    return [
        event("ProfileStep", f"ProfileStep#{at}", at, 390),
        layer("Net", at + 5, 200),
        layer(first, at + 10, 30),
        operator("conv2d", at + 12, 10),
        operator("add", at + 25, 5),
        layer(second, at + 50, 10),
        operator("relu", at + 52, 3),
        event("UserDefined", "__add__ or __radd_ pybind_patch_func", at + 70, 20, "1(C++)"),
        operator("add", at + 72, 4),
        operator("cast", at + 80, 2),
        layer(third, at + 100, 40),
        operator("conv2d", at + 110, 20),
        operator("cross_entropy", at + 220, 6),
        event("Backward", "Gradient Backward", at + 240, 60),
        event("Operator", "Conv2dGradNodeFinal", at + 245, 50, "1(C++)"),
    ]


def recording(folder: Path, events: list[Event]) -> Path:
    path = folder / "host_rank0_time_1.paddle_trace.json"
    path.write_text(json.dumps({"schemaVersion": "1.0.2", "span_index": 0, "traceEvents": events}))
    return path


def module_graph(name: str = "Net") -> ModelGraph:
    """Return the model of the pass, as `add_graph` records it."""
    builder = ModelBuilder(name, "module")
    builder.properties = {"framework": "paddle"}
    for node, kind, is_layer in (
        ("conv1", "Conv2D", True),
        ("relu", "ReLU", True),
        ("add", "add", False),
        ("conv2", "Conv2D", True),
    ):
        builder.node(Node(node, kind, attributes={"class": f"paddle.nn.{kind}"} if is_layer else {}))
    return builder.build()


def joined(model: ModelGraph, folder: Path, events: list[Event]) -> NodeTimes:
    return join_times(model, read_trace(recording(folder, events)))


def times_by_name(model: ModelGraph, times: NodeTimes) -> dict[str, float]:
    measured = zip(model.nodes, times.time_ns.tolist(), strict=True)
    return {node.name: time / US for node, time in measured if time == time}


@pytest.mark.parametrize("name", ["Net", "any name"])
def test_layers_of_paddle_are_joined_by_their_order(tmp_path: Path, name: str) -> None:
    model = module_graph(name)
    times = joined(model, tmp_path, forward(0) + forward(400))
    assert times_by_name(model, times) == {"conv1": 30, "relu": 6, "add": 12, "conv2": 40}
    assert times.calls.tolist() == [2, 2, 2, 2], "calls of layers and functions, not of the operators inside"
    assert (times.rule, times.reason) == ("layer", "")
    assert (times.matched_ns, times.total_ns) == (88 * US, 100 * US), "the loss has no node; backward is not counted"


def test_a_model_whose_forward_is_called_directly_has_its_layers_in_the_steps(tmp_path: Path) -> None:
    model = module_graph()
    events = [e for e in forward(0) + forward(400) if not e["name"].startswith("Net")]
    assert times_by_name(model, joined(model, tmp_path, events)) == {"conv1": 30, "relu": 6, "add": 12, "conv2": 40}


def test_operators_between_layers_that_may_belong_to_several_nodes_belong_to_none(tmp_path: Path) -> None:
    model = module_graph()
    times = joined(model, tmp_path, [*forward(0), operator("add", 145, 7), *forward(400)])
    assert times_by_name(model, times)["add"] == 12, "the other addition is after the second convolution"
    times = joined(model, tmp_path, [*forward(0), operator("add", 92, 7), *forward(400)])
    assert times_by_name(model, times) == {"conv1": 30, "relu": 6, "conv2": 40}
    assert {(entry.name, entry.reason) for entry in times.unmatched} >= {("add dygraph", "ambiguous")}


def test_layers_of_visualdl_have_times_on_their_operators(tmp_path: Path) -> None:
    builder = ModelBuilder("vdlgraph.log", "visualdl")
    for name, kind, scope in (
        ("conv2d_0", "conv2d", "Conv2D[conv1]"),
        ("bias_0", "elementwise_add", "Conv2D[conv1]"),
        ("relu_0", "relu", "ReLU[relu]"),
        ("add_0", "elementwise_add", ""),
        ("conv2d_1", "conv2d", "Conv2D[conv2]"),
    ):
        scopes = (Scope("Net[model]"), *((Scope(scope),) if scope else ()))
        builder.node(Node(name, kind, scopes))
    model = builder.build()
    times = joined(model, tmp_path, forward(0) + forward(400))
    assert times_by_name(model, times) == {"conv2d_0": 20, "bias_0": 10, "relu_0": 6, "add_0": 8, "conv2d_1": 40}


def program(*types: str) -> ModelGraph:
    """Return a saved Paddle program without layers; all operators have an input."""
    builder = ModelBuilder("net.json", "paddle_pir")
    value = builder.value(Value("x"))
    for number, kind in enumerate(types):
        builder.node(Node(f"{kind}_{number}", kind, inputs=(value,)))
    return builder.build()


def test_a_program_without_layers_is_joined_by_the_order_of_equal_types(tmp_path: Path) -> None:
    model = program("conv2d", "add", "relu", "add", "conv2d")
    times = joined(model, tmp_path, forward(0) + forward(400))
    assert times_by_name(model, times) == {"conv2d_0": 20, "add_1": 10, "relu_2": 6, "add_3": 8, "conv2d_4": 40}


@pytest.mark.parametrize(
    ("model", "classes", "reason"),
    [
        (
            module_graph(),
            "Conv2D Conv2D Conv2D",
            "The run calls other layers than this model: layer 2 is Conv2D in the run and ReLU in the model.",
        ),
        (
            module_graph(),
            "Conv2D ReLU Linear",
            "This model calls 3 layers in order, but the run calls 2 of them per pass.",
        ),
        (
            module_graph(),
            "A B C",
            (
                "No operator ran inside a call of this model's layers: "
                "with to_static, Paddle runs all layers as one program."
            ),
        ),
        (
            program("conv2d", "conv2d", "conv2d"),
            "Conv2D ReLU Conv2D",
            "The run executes other operators than this model, or another number of them.",
        ),
    ],
)
def test_one_sentence_says_why_no_time_is_on_the_model(
    tmp_path: Path, model: ModelGraph, classes: str, reason: str
) -> None:
    times = joined(model, tmp_path, forward(0, classes) + forward(400, classes))
    assert times.reason == reason
    assert np.isnan(times.time_ns).all()
    assert times.matched_ns == 0


def test_a_model_of_another_framework_is_not_joined_by_layers(tmp_path: Path) -> None:
    builder = ModelBuilder("net.onnx", "onnx")
    builder.node(Node("/conv1/Conv", "Conv"))
    times = joined(builder.build(), tmp_path, forward(0))
    assert times.rule == "name"
    assert times.reason.startswith("No operator of the run has the name of a node of this model")


def test_the_layers_of_a_real_recording_of_another_model_differ() -> None:
    (path,) = recording_path("traces/paddle/small_paddle331").glob("*.paddle_trace.json")
    times = join_times(read_model(FIXTURES / "graphs" / "paddle_cnn.graph.json"), read_trace(path))
    assert times.matched_ns == 0
    assert times.reason == (
        "The run calls other layers than this model: layer 2 is BatchNorm2D in the run and Conv2D in the model."
    )


def test_times_of_a_real_recording_are_on_its_layers(tmp_path: Path) -> None:
    """Record a Transformer with the Paddle that is installed."""
    paddle = pytest.importorskip("paddle")
    nn = paddle.nn
    model = nn.Sequential(
        nn.Embedding(50, 16), nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1), 2)
    )
    tokens = paddle.ones([2, 7], dtype="int64")
    graph = read_model(add_graph(model, tokens, tmp_path))
    model(tokens)
    with paddle.profiler.Profiler(on_trace_ready=paddle.profiler.export_chrome_tracing(str(tmp_path))) as profiler:
        for _ in range(3):
            model(tokens).mean().backward()
            profiler.step()
    (path,) = tmp_path.glob("*.paddle_trace.json")
    times = join_times(graph, read_trace(path))
    assert times.matched_ns > 0.9 * times.total_ns
    has_time = [node.name for node, time in zip(graph.nodes, times.time_ns, strict=True) if time == time]
    assert has_time == [node.name for node in graph.nodes if node.kind == "operator"]
