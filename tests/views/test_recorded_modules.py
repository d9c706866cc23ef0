"""The modules of a recording as a model graph."""

from __future__ import annotations

from tests.conftest import SAMPLES, Write, trace_of
from tests.views.rank_events import event, step
from visualprof.views.measure.graphs.join import join_times
from visualprof.views.measure.graphs.recorded_modules import recorded_modules, records_modules


def call(name: str, ts: float, dur: float) -> dict[str, object]:
    return {"ph": "X", "cat": "python_function", "name": f"nn.Module: {name}", "ts": ts, "dur": dur, "pid": 1, "tid": 1}


def test_modules_are_chained_in_the_order_of_their_calls(write: Write) -> None:
    """A net calls a linear layer of 20 us and a block, which calls another of 30 us."""
    trace = trace_of(
        write(
            [
                step(0, 0, 100),
                call("Net_0", 0, 90),
                call("Linear_0", 1, 20),
                call("Block_0", 30, 40),
                call("Linear_1", 31, 30),
                event("aten::mm", 32, 5),
            ]
        )
    )
    assert records_modules(trace)
    model = recorded_modules(trace)
    assert [(node.name, node.type) for node in model.nodes] == [
        ("Net_0/Linear_0", "Linear"),
        ("Net_0/Block_0/Linear_1", "Linear"),
    ]
    assert model.nodes[1].inputs == model.nodes[0].outputs
    times = join_times(model, trace)
    assert (times.rule, times.time_ns.tolist()) == ("module", [20_000, 30_000])


def test_the_modules_of_the_sample_have_most_of_its_time() -> None:
    trace = trace_of(SAMPLES / "pytorch-cpu" / "gpt.pt.trace.json.gz")
    model = recorded_modules(trace)
    assert len(model.nodes) == 32
    times = join_times(model, trace)
    assert times.matched_ns > 0.8 * times.total_ns


def test_a_recording_without_modules_has_none(write: Write) -> None:
    assert not records_modules(trace_of(write([step(0, 0, 100), event("aten::mm", 1, 5)])))
