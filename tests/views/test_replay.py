"""The wait graph, the critical path and forecasts: computed by hand, on recordings, and on pairs
before and after a change.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.conftest import SAMPLES, Write, answer, trace_of
from tests.recordings import recording_path
from tests.views.test_steps import Event, host, kernel, launch, step
from visualprof.errors import BadParameter
from visualprof.reader import native
from visualprof.reader.trace import Category
from visualprof.views import view
from visualprof.views.findings import FindingsAnswer
from visualprof.views.measure.findings.finding import Together
from visualprof.views.measure.launches.answer_names import add_short_names
from visualprof.views.measure.launches.launch import child_counts
from visualprof.views.measure.replay import build
from visualprof.views.measure.replay.build import wait_graph
from visualprof.views.measure.replay.change import parse_changes
from visualprof.views.measure.replay.graph import DEPENDENCY_KINDS, solve
from visualprof.views.measure.replay.path import critical_path, full_scope

V100 = "traces/kineto/tb_plugin/resnet50_num_workers_{}__worker0.{}.pt.trace.json.gz"


def forecast(write: Write, events: list[Event], change: str) -> Any:
    return answer("whatif", write(events), change=change)


def parts(table: Any) -> dict[str, float]:
    return {part: ns / 1000 for part, ns in zip(table["columns"]["part"], table["columns"]["path_ns"], strict=True)}


# One step [0, 100) us: the host works until 10, launches a (1 us), which runs [20, 80), then works until 100.
HOST_BOUND = [
    step(0, 0, 100),
    host("cpu_op", "aten::mm", 0, 12),
    launch(10, 1),
    kernel(20, 60, 1, "a"),
    host("cpu_op", "aten::cat", 12, 88),
]
# The same with a kernel of 200 us: [20, 220), so that the device work ends after the host.
DEVICE_BOUND = [*HOST_BOUND[:3], kernel(20, 200, 1, "a"), HOST_BOUND[4]]


def test_the_path_of_a_host_bound_step(write: Write) -> None:
    result = forecast(write, HOST_BOUND, "")
    assert result["step"]["measured_ns"] == result["step"]["simulated_ns"] == result["step"]["predicted_ns"] == 100_000
    assert parts(result["path_before"]) == {"host": 99, "call": 1}


def test_the_path_of_a_device_bound_step(write: Write) -> None:
    result = forecast(write, DEVICE_BOUND, "")
    # 10 until the launch, 10 until the kernel starts, and 200 for the kernel.
    assert parts(result["path_before"]) == {"host": 10, "computation": 200, "launch": 10}
    assert result["step"]["measured_ns"] == 220_000


@pytest.mark.parametrize(
    ("events", "change", "predicted"),
    [
        (HOST_BOUND, "kernel*0.5", 100),  # the kernel is not on the path
        (HOST_BOUND, "kernel*2", 140),  # 10 + 10 + 120 > 100
        (HOST_BOUND, "operator[aten::cat]*0.5", 80),  # the host ends at 12 + 44, the kernel at 80
        (HOST_BOUND, "operator[name~CAT]=0", 80),
        (DEVICE_BOUND, "kernel[name~a]*0.5", 120),
        (DEVICE_BOUND, "gpu*0.25", 100),  # 20 + 50 < 100
        (DEVICE_BOUND, "operator[aten::mm]=0", 88),  # includes its call and kernel: only cat remains
        (DEVICE_BOUND, "operator[aten::cat]=0", 220),
        (DEVICE_BOUND, "launch=0", 210),
        (DEVICE_BOUND, "kernel*0.5; operator[aten::cat]=0", 120),
    ],
)
def test_forecasts_equal_those_computed_by_hand(
    write: Write, events: list[Event], change: str, predicted: float
) -> None:
    result = forecast(write, events, change)
    assert result["step"]["predicted_ns"] / 1000 == predicted
    assert result["step"]["gain_ns"] == result["step"]["measured_ns"] - result["step"]["predicted_ns"]


# The host launches a at 10 and b at 30; a begins at 200, when work from before the recording has ended.
HELD_BACK = [
    step(0, 0, 40),
    launch(10, 1),
    kernel(200, 60, 1, "a"),
    launch(30, 2),
    kernel(260, 40, 2, "b"),
]


@pytest.mark.parametrize(("change", "predicted"), [("", 300), ("launch=0", 300), ("gpu*0.5", 250)])
def test_work_from_before_the_recording_holds_the_first_back(write: Write, change: str, predicted: float) -> None:
    """The launch did not take 190 us, so a launch without delay does not let the kernel begin sooner."""
    result = forecast(write, HELD_BACK, change)
    assert (result["obstacle"], result["unexplained_ratio"]) == (None, 0)
    assert (result["step"]["measured_ns"], result["step"]["simulated_ns"]) == (300_000, 300_000)
    assert result["step"]["predicted_ns"] == predicted * 1000


def test_the_first_work_of_each_stream_may_be_held_back(write: Write) -> None:
    """A server may launch a step while the previous one runs on another stream."""
    parallel = [launch(2, 3), kernel(12, 5, 3, "beside", stream=8)]
    result = forecast(write, [*HELD_BACK, *parallel], "")
    assert (result["error_ratio"], result["unexplained_ratio"]) == (0, 0)
    assert (
        wait_graph(trace_of(write([*HELD_BACK, *parallel], "again.json"))).launch_ns == 10_000
    )  # the delay of the parallel work


def test_after_a_synchronization_earlier_work_does_not_delay_work(write: Write) -> None:
    synchronization = host("cuda_runtime", "cudaDeviceSynchronize", 1, 5)
    parallel = [launch(7, 3), kernel(17, 5, 3, "beside", stream=8)]
    result = forecast(write, [*HELD_BACK, synchronization, *parallel], "")
    assert result["unexplained_ratio"] == pytest.approx(180 / 300)  # from 20 (launch at 10 plus 10 us) until 200
    assert result["obstacle"] == "error"


def test_a_call_that_waits_for_its_copy_follows_the_device(write: Write) -> None:
    """a runs [20, 120), its copy [120, 130); .item() at 15 returns at 135, and the host works until 160."""
    copy = {**kernel(120, 10, 2, "Memcpy DtoH (Device -> Pageable)"), "cat": "gpu_memcpy"}
    events = [
        step(0, 0, 160),
        host("cpu_op", "aten::mm", 0, 12),
        launch(10, 1),
        kernel(20, 100, 1, "a"),
        copy,
        host("cpu_op", "aten::item", 14, 122),
        host("cuda_runtime", "cudaMemcpyAsync", 15, 120, correlation=2),
        host("cpu_op", "aten::add", 136, 24),
    ]
    result = forecast(write, events, "kernel*0.5")
    assert result["step"]["simulated_ns"] == 160_000
    assert parts(result["path_before"]) == {"host": 35, "computation": 100, "memory": 10, "launch": 10, "return": 5}
    assert result["step"]["predicted_ns"] == 110_000
    # Without waiting: 15 until the call, 3 for the call, 25 after it; the device ends at 130.
    assert forecast(write, events, "copies=async")["step"]["predicted_ns"] == 130_000


def test_a_stream_waits_for_an_event_of_another_stream(write: Write) -> None:
    """a [20, 100) on stream 7; stream 8 is told to wait at 30, b is launched at 40 and runs [101, 151)."""
    events = [
        step(0, 0, 60),
        launch(10, 1),
        kernel(20, 80, 1, "a"),
        host("cuda_runtime", "cudaStreamWaitEvent", 30, 1),
        launch(40, 2),
        kernel(101, 50, 2, "b", stream=8),
        launch(50, 3),
        kernel(153, 10, 3, "c", stream=8),
        launch(55, 4),
        kernel(165, 10, 4, "d", stream=8),
        *(e for n in (5, 6, 7) for e in (launch(n - 4, n), kernel(n + 6, 1, n, "early", stream=n + 4))),
    ]
    result = forecast(write, events, "kernel[a]*0.5")
    # Queued work starts after 2 us (median of c and d). As recorded, b begins at 102, so that d ends at 176 (measured:
    # 175). With a shorter a, b begins at 62, c at 114, d at 126, which ends at 136.
    assert result["step"]["simulated_ns"] == 176_000
    assert result["step"]["predicted_ns"] == round(175_000 * 136 / 176)


def test_a_thread_hands_over_to_another_thread(write: Write) -> None:
    """Main works until 50 and from 105 on; in between, a second thread works [52, 100): they form one thread group."""
    events = [
        step(0, 0, 120),
        host("cpu_op", "aten::mm", 0, 50),
        host("cpu_op", "aten::add", 105, 15),
        host("cpu_op", "MmBackward0", 52, 48, tid=2),
        {**launch(90, 1), "tid": 2},
        kernel(100, 5, 1, "a"),
    ]
    assert forecast(write, events, "operator[MmBackward0]*0.5")["step"]["predicted_ns"] == 96_000
    # With work of main in [60, 80) they are two groups, and main resumes when the other thread has ended.
    parallel = [*events, host("cpu_op", "aten::copy_", 60, 20)]
    assert forecast(write, parallel, "operator[MmBackward0]*0.5")["step"]["predicted_ns"] == 96_000


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
def test_an_invalid_change_is_an_error_with_examples(text: str) -> None:
    with pytest.raises(BadParameter) as error:
        parse_changes(text)
    assert "dataloader=0" in error.value.hint


def test_names_of_changes_may_contain_brackets_semicolons_and_line_breaks() -> None:
    texts = ["kernel[void f<int[2]>(g; h)]*0.5", "kernel[a\nb]*0.5", "gpu*0.6"]
    changes = parse_changes(" ; ".join(texts) + ";")
    assert [change.text for change in changes] == texts
    assert [change.name for change in changes] == ["void f<int[2]>(g; h)", "a\nb", ""]


def test_a_change_that_does_not_apply_is_an_error(write: Write) -> None:
    with pytest.raises(BadParameter, match="nothing of that"):
        forecast(write, HOST_BOUND, "collective*0.5")


def test_kernels_are_named_by_their_short_names_too(write: Write) -> None:
    full = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128, true>(cudnnTensorStruct)"
    path = write([{**event, "name": full} if event.get("cat") == "kernel" else event for event in DEVICE_BOUND])
    whatif, text = view("whatif"), f"kernel[{full}]*0.5"
    short = whatif.answer(trace_of(path), whatif.parse({})).short_names[text]
    assert short == "kernel[cudnn::bn_fw_tr_1C11_kernel_NCHW f32]*0.5"
    by_short, by_full = answer("whatif", path, change=short)["step"], answer("whatif", path, change=text)["step"]
    assert by_short == by_full
    assert by_full["gain_ns"] == 100_000  # half of 200 us


def test_a_short_name_with_brackets_names_a_kernel_too(write: Write) -> None:
    """Both kernels would be `f f32`; the one of 200 us takes half of that."""
    renamed = [{**event, "name": "void f<float, 2>(int)"} if event["name"] == "a" else event for event in DEVICE_BOUND]
    path = write([*renamed, kernel(400, 10, 0, "void f<float, 1>(int)")])
    assert answer("whatif", path, change="kernel[f f32 [2]]*0.5")["step"]["gain_ns"] == 100_000


def test_a_proposed_change_has_the_short_names_of_its_kernels() -> None:
    full = "void f<float, 1>(int)"
    together = Together(f"dataloader=0; kernel[{full}]*0.5", findings=2, predicted_ns=1, gain_ns=1, gain_ratio=0.5)
    proposed = FindingsAnswer(
        measured_ns=2, simulated_ns=2, obstacle=None, findings=[], together=together, remarks=[], served=False
    )
    assert add_short_names(proposed, None).short_names == {full: "f f32"}


def test_kernels_without_names_are_not_suggested(write: Write) -> None:
    """Some reports lack names; the view's own suggestion used to be rejected."""
    path = write([{**event, "name": ""} if event.get("cat") == "kernel" else event for event in HOST_BOUND])
    suggestions = answer("whatif", path)["changes"]["columns"]["change"]
    assert "gpu*0.5" in suggestions
    assert not any(change.startswith("kernel") for change in suggestions)


def test_the_native_replay_equals_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = wait_graph(trace_of(SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"))
    dur = (graph.nodes.dur * 0.7).astype(np.float64)
    from_native = solve(graph, dur, graph.edges.delay_ns)
    only_times = solve(graph, dur, graph.edges.delay_ns, only_times=True)
    monkeypatch.setattr("visualprof.views.measure.replay.graph.function", lambda *_: None)
    fallback = solve(graph, dur, graph.edges.delay_ns)
    if native.library() is None:
        pytest.skip("needs the compiled reader")
    np.testing.assert_array_equal(from_native.time, fallback.time)
    np.testing.assert_array_equal(from_native.critical_edge, fallback.critical_edge)
    np.testing.assert_array_equal(only_times.time, fallback.time)


def test_edges_sorted_natively_equal_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal nodes keep the order of their edges, and edges that lead backwards are left out."""
    path = SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"
    from_native = wait_graph(trace_of(path)).edges
    monkeypatch.setattr("visualprof.views.measure.replay.build.function", lambda *_: None)
    fallback = wait_graph(replace(trace_of(path))).edges  # of a copy, which has no cached graph
    assert len(fallback.dst) > 1000
    assert (np.diff(from_native.dst) >= 0).all()
    for name in ("src", "dst", "delay_ns", "kind"):
        np.testing.assert_array_equal(getattr(from_native, name), getattr(fallback, name))


@pytest.mark.parametrize("library", ["c", "numpy"])
def test_edges_are_sorted_by_the_waiting_node(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if library == "numpy":
        monkeypatch.setattr("visualprof.views.measure.replay.build.function", lambda *_: None)
    launched = (np.array([0, 3, 1]), np.array([2, 1, 4]), np.array([5.0, 6.0, 7.0]), "launch")  # 3 -> 1 leads backwards
    queued = (np.array([1, 0]), np.array([2, 1]), np.array([8.0, 9.0]), "queue")
    edges = build.sorted_edges([launched, queued])
    assert edges.src.tolist() == [0, 0, 1, 1]
    assert edges.dst.tolist() == [1, 2, 2, 4]
    assert edges.delay_ns.tolist() == [9.0, 5.0, 8.0, 7.0]
    assert [DEPENDENCY_KINDS[kind] for kind in edges.kind] == ["queue", "launch", "queue", "launch"]


@pytest.mark.parametrize("library", ["c", "numpy"])
def test_only_children_are_counted_natively_and_without(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if library == "numpy":
        monkeypatch.setattr("visualprof.views.measure.launches.launch.function", lambda *_: None)
    trace = trace_of(SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz")
    events, expected = trace.events, Counter[int]()
    for parent, dur in zip(events.parent.tolist(), events.dur.tolist(), strict=True):
        expected.update([parent] if parent >= 0 and dur >= 0 else [])
    counts = child_counts(trace).tolist()
    assert counts == [expected[row] for row in range(len(events))]
    assert max(counts) > 1


def test_the_native_path_equals_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = wait_graph(trace_of(SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"))
    dur = graph.nodes.dur.astype(np.float64)
    replay = solve(graph, dur, graph.edges.delay_ns)
    scope = full_scope(graph, replay, dur)
    scopes = [scope, replace(scope, last_node=len(dur) // 2), replace(scope, last_node=0), replace(scope, last_node=-1)]
    from_native = [critical_path(graph, replay, dur, graph.edges.delay_ns, each) for each in scopes]
    monkeypatch.setattr("visualprof.views.measure.replay.path.function", lambda *_: None)
    for path, each in zip(from_native, scopes, strict=True):
        fallback = critical_path(graph, replay, dur, graph.edges.delay_ns, each)
        np.testing.assert_array_equal(path.edge, fallback.edge)
        np.testing.assert_array_equal(path.wait_ns, fallback.wait_ns)
    assert len(from_native[0].edge) > 100


def test_a_faster_data_loader_is_forecast_better_than_by_subtraction() -> None:
    """ResNet50 on a V100 with no data loader worker and with four: 177.6 ms, then 126.3 ms (median step)."""
    before = answer("whatif", recording_path(V100.format(0, 1623143089861)), change="dataloader=0")
    trace = trace_of(recording_path(V100.format(0, 1623143089861)))
    loading = int(trace.events.dur[trace.events.category == Category.DATALOADER].sum()) / before["steps"]
    after = answer("overview", recording_path(V100.format(4, 1623213129365)))["steps"]["total_ns"]
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
def test_recordings_that_are_not_replayed_accurately_have_no_forecast(name: str, obstacle: str | None) -> None:
    result = answer("whatif", recording_path(f"traces/kineto/{name}.json.gz"), change="gpu*0.5")
    assert result["obstacle"] == obstacle
    assert (result["step"]["predicted_ns"] is None) == (obstacle is not None)


@pytest.mark.parametrize("name", ["sglang_prefill", "vllm_decode/graph_execution"])
def test_servers_are_replayed_although_the_previous_step_is_not_recorded(name: str) -> None:
    """The first 493 of SGLang's 987 ms, and the first 8 of vLLM's 19 ms, belong to the previous step."""
    result = answer("whatif", recording_path(f"traces/tracelens/{name}.json.gz"), change="gpu*0.5")
    assert result["obstacle"] is None
    assert result["error_ratio"] < 0.005
    assert result["step"]["predicted_ns"] is not None


def test_the_parts_of_the_path_add_up() -> None:
    for path in ("pytorch-h200/cnn", "pytorch-h200/transformer", "synthetic-4gpu/rank0"):
        result = answer("critical", SAMPLES / f"{path}.pt.trace.json.gz")
        part_ns = result["parts"]["columns"]["path_ns"]
        assert abs(sum(part_ns) - result["path_ns"]) <= len(part_ns)
        assert sum(result["columns"]["path_ns"]) <= result["path_ns"] * 1.02
        assert result["path_ns"] == pytest.approx(result["measured_ns"], rel=0.01)


def test_a_recording_of_events_without_duration_has_no_path(write: Write) -> None:
    for events in ([host("cpu_op", "aten::mm", 5, 0)], [host("cpu_op", "aten::mm", 5, 0), kernel(7, 0, 0)]):
        result = answer("whatif", write(events))
        assert (result["step"]["measured_ns"], result["path_before"]["columns"]["part"]) == (0, [])


def test_a_stream_told_to_wait_after_the_last_launch_waits_for_nothing(write: Write) -> None:
    late = host("cuda_runtime", "cudaStreamWaitEvent", 90, 1, correlation=9)
    assert len(wait_graph(trace_of(write([*HOST_BOUND, late]))).nodes.time)


def test_a_faster_device_shortens_the_steps_of_a_megengine_recording() -> None:
    path = SAMPLES / "megengine-train" / "1890.chrome_timeline.json.gz"
    result = answer("whatif", path, change="gpu*0.5")
    kernel_ns = answer("overview", path)["steps"]["kernel_ns"]
    assert result["obstacle"] is None
    assert result["step"]["measured_ns"] - result["step"]["predicted_ns"] > sum(kernel_ns) / len(kernel_ns) / 4
    assert result["step"]["simulated_ns"] == pytest.approx(result["step"]["measured_ns"], rel=0.1)
