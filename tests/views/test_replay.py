"""The graph of waits, the critical path and forecasts: hand-worked, on recordings, and on pairs before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.conftest import SAMPLES, Write, answer, shared, trace_of
from tests.views.test_steps import Event, host, kernel, launch, step
from visualprof.errors import BadParameter
from visualprof.reader import native
from visualprof.reader.trace import Category
from visualprof.views.measure.replay.build import wait_graph
from visualprof.views.measure.replay.change import parse_changes
from visualprof.views.measure.replay.graph import solve

V100 = "traces/kineto/tb_plugin/resnet50_num_workers_{}__worker0.{}.pt.trace.json.gz"


def forecast(write: Write, events: list[Event], change: str) -> Any:
    return answer("whatif", write(events), change=change)


def parts(table: Any) -> dict[str, float]:
    return {part: ns / 1000 for part, ns in zip(table["columns"]["part"], table["columns"]["path_ns"], strict=True)}


# One step [0, 100) us: the host works to 10, launches a (1 us), which runs [20, 90), then works to 100 (aten::cat).
BOUND_BY_HOST = [
    step(0, 0, 100), host("cpu_op", "aten::mm", 0, 12), launch(10, 1), kernel(20, 60, 1, "a"),
    host("cpu_op", "aten::cat", 12, 88),
]  # fmt: skip
# The same with 200 us of the kernel: [20, 220), and the step's device work ends behind the host.
BOUND_BY_DEVICE = [*BOUND_BY_HOST[:3], kernel(20, 200, 1, "a"), BOUND_BY_HOST[4]]


def test_the_path_of_a_step_that_the_host_bounds(write: Write) -> None:
    found = forecast(write, BOUND_BY_HOST, "")
    assert found["step"]["measured_ns"] == found["step"]["simulated_ns"] == found["step"]["predicted_ns"] == 100_000
    assert parts(found["path_before"]) == {"host": 99, "call": 1}


def test_the_path_of_a_step_that_the_device_bounds(write: Write) -> None:
    found = forecast(write, BOUND_BY_DEVICE, "")
    # To the launch at 10, 10 to the kernel's start, 200 of it.
    assert parts(found["path_before"]) == {"host": 10, "computation": 200, "launch": 10}
    assert found["step"]["measured_ns"] == 220_000


@pytest.mark.parametrize(
    ("events", "change", "predicted"),
    [
        (BOUND_BY_HOST, "kernel*0.5", 100),  # the kernel is not on the path
        (BOUND_BY_HOST, "kernel*2", 140),  # 10 + 10 + 120 > 100
        (BOUND_BY_HOST, "operator[aten::cat]*0.5", 80),  # the host ends at 12 + 44, the kernel at 80
        (BOUND_BY_HOST, "operator[name~CAT]=0", 80),
        (BOUND_BY_DEVICE, "kernel[name~a]*0.5", 120),
        (BOUND_BY_DEVICE, "gpu*0.25", 100),  # 20 + 50 < 100
        (BOUND_BY_DEVICE, "operator[aten::mm]=0", 88),  # its call and kernel, too: cat is left
        (BOUND_BY_DEVICE, "operator[aten::cat]=0", 220),
        (BOUND_BY_DEVICE, "launch=0", 210),
        (BOUND_BY_DEVICE, "kernel*0.5; operator[aten::cat]=0", 120),
    ],
)  # fmt: skip
def test_forecasts_are_those_worked_out_by_hand(
    write: Write, events: list[Event], change: str, predicted: float
) -> None:
    found = forecast(write, events, change)
    assert found["step"]["predicted_ns"] / 1000 == predicted
    assert found["step"]["gain_ns"] == found["step"]["simulated_ns"] - found["step"]["predicted_ns"]


# The host asks for a at 10 and for b at 30; a begins at 200, when what was asked for before the recording has ended.
HELD = [
    step(0, 0, 40), launch(10, 1), kernel(200, 60, 1, "a"), launch(30, 2), kernel(260, 40, 2, "b"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "predicted"), [("", 300), ("launch=0", 300), ("gpu*0.5", 250)])
def test_work_from_before_the_recording_holds_the_first_back(write: Write, change: str, predicted: float) -> None:
    """That a launch took 190 us is not so, and no launch without delay lets it begin sooner."""
    found = forecast(write, HELD, change)
    assert (found["obstacle"], found["unexplained_ratio"]) == (None, 0)
    assert (found["step"]["measured_ns"], found["step"]["simulated_ns"]) == (300_000, 300_000)
    assert found["step"]["predicted_ns"] == predicted * 1000


def test_the_first_work_of_each_stream_may_be_held_back(write: Write) -> None:
    """As a server's that launches a step while the one before it runs on another stream."""
    beside = [launch(2, 3), kernel(12, 5, 3, "beside", stream=8)]
    found = forecast(write, [*HELD, *beside], "")
    assert (found["error_ratio"], found["unexplained_ratio"]) == (0, 0)
    assert wait_graph(trace_of(write([*HELD, *beside], "again.json"))).launch_ns == 10_000  # that of the work beside


def test_after_the_host_has_waited_nothing_from_before_holds_work_back(write: Write) -> None:
    waited = host("cuda_runtime", "cudaDeviceSynchronize", 1, 5)
    beside = [launch(7, 3), kernel(17, 5, 3, "beside", stream=8)]
    found = forecast(write, [*HELD, waited, *beside], "")
    assert found["unexplained_ratio"] == pytest.approx(180 / 300)  # from 10 + 10 us of a launch to 200
    assert found["obstacle"] == "error"


def test_a_call_that_awaits_its_copy_moves_with_the_device(write: Write) -> None:
    """a runs [20, 120), the copy behind it [120, 130); .item() at 15 returns at 135, and the host works to 160."""
    copy = {**kernel(120, 10, 2, "Memcpy DtoH (Device -> Pageable)"), "cat": "gpu_memcpy"}
    events = [
        step(0, 0, 160), host("cpu_op", "aten::mm", 0, 12), launch(10, 1), kernel(20, 100, 1, "a"), copy,
        host("cpu_op", "aten::item", 14, 122), host("cuda_runtime", "cudaMemcpyAsync", 15, 120, correlation=2),
        host("cpu_op", "aten::add", 136, 24),
    ]  # fmt: skip
    found = forecast(write, events, "kernel*0.5")
    assert found["step"]["simulated_ns"] == 160_000
    assert parts(found["path_before"]) == {"host": 35, "computation": 100, "memory": 10, "launch": 10, "return": 5}
    assert found["step"]["predicted_ns"] == 110_000
    # Nothing waits: 15 to the call, 3 for it, 25 behind it; the device ends at 130.
    assert forecast(write, events, "copies=async")["step"]["predicted_ns"] == 130_000


def test_a_stream_that_was_told_to_wait_waits(write: Write) -> None:
    """a [20, 100) on stream 7; stream 8 is told to wait at 30, b is launched at 40 and runs [101, 151)."""
    events = [
        step(0, 0, 60), launch(10, 1), kernel(20, 80, 1, "a"), host("cuda_runtime", "cudaStreamWaitEvent", 30, 1),
        launch(40, 2), kernel(101, 50, 2, "b", stream=8), launch(50, 3), kernel(153, 10, 3, "c", stream=8),
        launch(55, 4), kernel(165, 10, 4, "d", stream=8),
        *(e for n in (5, 6, 7) for e in (launch(n - 4, n), kernel(n + 6, 1, n, "early", stream=n + 4))),
    ]  # fmt: skip
    found = forecast(write, events, "kernel[a]*0.5")
    # Queues go on after 2 us (median of c's and d's); b begins at 62, c at 114, d at 126, which ends at 136.
    assert found["step"]["predicted_ns"] == 136_000


def test_one_thread_hands_over_to_another(write: Write) -> None:
    """Main works to 50 and from 105 on; between them a second thread works [52, 100): it is one line of control."""
    events = [
        step(0, 0, 120), host("cpu_op", "aten::mm", 0, 50), host("cpu_op", "aten::add", 105, 15),
        host("cpu_op", "MmBackward0", 52, 48, tid=2), {**launch(90, 1), "tid": 2}, kernel(100, 5, 1, "a"),
    ]  # fmt: skip
    assert forecast(write, events, "operator[MmBackward0]*0.5")["step"]["predicted_ns"] == 96_000
    # Beside what main does in [60, 80) they are two, and main goes on when the other one has ended.
    beside = [*events, host("cpu_op", "aten::copy_", 60, 20)]
    assert forecast(write, beside, "operator[MmBackward0]*0.5")["step"]["predicted_ns"] == 96_000


@pytest.mark.parametrize(
    "text",
    [
        "kernel",
        "kernel*-1",
        "kernel*x",
        "sync*2",
        "sync=0",
        "gpu[a]*2",
        "rank[x]=median",
        "kernel*9999",
        "launch=remove",
    ],
)
def test_what_is_no_change_is_refused_with_examples(text: str) -> None:
    with pytest.raises(BadParameter) as error:
        parse_changes(text)
    assert "dataloader=0" in error.value.hint


def test_a_change_of_what_is_not_there_is_an_error(write: Write) -> None:
    with pytest.raises(BadParameter, match="nothing of that"):
        forecast(write, BOUND_BY_HOST, "collective*0.5")


def test_a_kernel_without_a_name_is_no_suggestion(write: Write) -> None:
    """Some reports lack names; the view's own suggestion was refused."""
    path = write([{**event, "name": ""} if event.get("cat") == "kernel" else event for event in BOUND_BY_HOST])
    offered = answer("whatif", path)["changes"]["columns"]["change"]
    assert "gpu*0.5" in offered
    assert not any(change.startswith("kernel") for change in offered)


def test_the_compiled_replay_equals_its_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = wait_graph(trace_of(SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"))
    dur = (graph.nodes.dur * 0.7).astype(np.float64)
    compiled = solve(graph, dur, graph.edges.delay_ns)
    monkeypatch.setattr("visualprof.views.measure.replay.graph.function", lambda *_: None)
    twin = solve(graph, dur, graph.edges.delay_ns)
    if native.library() is None:
        pytest.skip("needs the compiled reader")
    np.testing.assert_array_equal(compiled.time, twin.time)
    np.testing.assert_array_equal(compiled.critical_edge, twin.critical_edge)


def test_the_loaders_share_is_forecast_better_than_by_subtraction() -> None:
    """ResNet50 on a V100 with no worker and with four: 177.6 ms, then 126.3 (the median step of the second)."""
    before = answer("whatif", shared(V100.format(0, 1623143089861)), change="dataloader=0")
    trace = trace_of(shared(V100.format(0, 1623143089861)))
    loading = int(trace.events.dur[trace.events.category == Category.DATALOADER].sum()) / before["steps"]
    after = answer("overview", shared(V100.format(4, 1623213129365)))["steps"]["total_ns"]
    measured = float(np.median(after))
    forecast_error = before["step"]["predicted_ns"] / measured - 1
    subtraction_error = (before["step"]["measured_ns"] - loading) / measured - 1
    assert abs(forecast_error) < 0.1 < abs(subtraction_error)


def test_the_sample_pair_is_forecast(write: Write) -> None:
    before = answer("whatif", SAMPLES / "pytorch-loader" / "no-workers.pt.trace.json.gz", change="dataloader=0")
    after = answer("whatif", SAMPLES / "pytorch-loader" / "two-workers.pt.trace.json.gz")
    assert abs(before["step"]["predicted_ns"] / after["step"]["measured_ns"] - 1) < 0.1


@pytest.mark.parametrize(
    ("name", "obstacle"),
    [
        ("hta/df_index_resolver__v100_rank1of2_nccl_memory", None),
        ("hta/nccl_data__a100_rank0of2", None),
        ("hta/trace_diff_control__a100_rank3of8", None),
        ("hta/sampled_rank-0of128", "unexplained"),
        ("hta/amd_mi250_minitoy_train_ROCm6_2", "unexplained"),
        ("hta/trace_compare_base", "error"),
    ],
)
def test_a_recording_that_the_replay_does_not_meet_has_no_forecast(name: str, obstacle: str | None) -> None:
    found = answer("whatif", shared(f"traces/kineto/{name}.json.gz"), change="gpu*0.5")
    assert found["obstacle"] == obstacle
    assert (found["step"]["predicted_ns"] is None) == (obstacle is not None)


@pytest.mark.parametrize("name", ["sglang_prefill", "vllm_decode/graph_execution"])
def test_servers_are_replayed_though_the_step_before_is_not_recorded(name: str) -> None:
    """Of SGLang's 987 ms the first 493, and of vLLM's 19 ms the first 8, are of the step before."""
    found = answer("whatif", shared(f"traces/tracelens/{name}.json.gz"), change="gpu*0.5")
    assert found["obstacle"] is None
    assert found["error_ratio"] < 0.005
    assert found["step"]["predicted_ns"] is not None


def test_the_parts_of_the_path_add_up_and_its_names_are_in_it() -> None:
    for path in ("pytorch-h200/cnn", "pytorch-h200/transformer", "synthetic-4gpu/rank0"):
        found = answer("critical", SAMPLES / f"{path}.pt.trace.json.gz")
        spent = found["parts"]["columns"]["path_ns"]
        assert abs(sum(spent) - found["path_ns"]) <= len(spent)
        assert sum(found["columns"]["path_ns"]) <= found["path_ns"] * 1.02
        assert found["path_ns"] == pytest.approx(found["measured_ns"], rel=0.01)


def test_a_recording_without_lasting_events_has_no_path(write: Write) -> None:
    for events in ([host("cpu_op", "aten::mm", 5, 0)], [host("cpu_op", "aten::mm", 5, 0), kernel(7, 0, 0)]):
        found = answer("whatif", write(events))
        assert (found["step"]["measured_ns"], found["path_before"]["columns"]["part"]) == (0, [])
