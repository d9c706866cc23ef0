"""Critical path: graphs computed by hand, slack, scopes, and several ranks. Times are in us."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.conftest import SAMPLES, Write, answer, json_of, trace_of
from tests.recordings import recording_path
from tests.views.test_steps import Event, host, kernel, launch, step
from visualprof.errors import BadParameter
from visualprof.reader import native, read_trace
from visualprof.views import run_view
from visualprof.views.measure.replay.graph import latest_times
from visualprof.views.measure.replay.path import end_nodes
from visualprof.views.measure.replay.path_pieces import baseline_replay, path_pieces, slack_ns


def us(table: Any, key_column: str, value_column: str) -> dict[Any, float]:
    """Return a column of durations in us by the values of another column."""
    columns = table["columns"]
    return {name: ns / 1000 for name, ns in zip(columns[key_column], columns[value_column], strict=True)}


def early(*numbers: int) -> list[Event]:
    """Return launches of 1 us at n - 4 with a kernel 10 us later on its own stream, so that the median
    launch delay is 10 us.
    """
    return [
        event
        for number in numbers
        for event in (launch(number - 4, number), kernel(number + 6, 1, number, "early", stream=number + 20))
    ]


SYNC = "cudaDeviceSynchronize"
COPY = "Memcpy DtoH (Device -> Pageable)"
GRAPHS: dict[str, tuple[list[Event], dict[str, float]]] = {
    # Kernels of 5 us, 10 us after their launches at 10, 30 and 50; the host works until 100.
    "launch bound": (
        [step(0, 0, 100), *(e for i in (0, 1, 2) for e in (launch(10 + 20 * i, i + 1), kernel(20 + 20 * i, 5, i + 1)))],
        {"host": 97, "call": 3},
    ),
    # Queued kernels, 2 us apart: 10 to the launch, 10 to the first kernel, three kernels of 100.
    "device bound, in the order of the stream": (
        [step(0, 0, 60), *(e for i in range(3) for e in (launch(10 + 2 * i, i + 1), kernel(20 + 102 * i, 100, i + 1)))],
        {"computation": 300, "launch": 10, "host": 10, "queue": 4},
    ),
    "two streams": (
        [step(0, 0, 30), launch(10, 1), kernel(20, 100, 1, "a"), launch(12, 2), kernel(22, 30, 2, "b", stream=8)],
        {"computation": 100, "launch": 10, "host": 10},
    ),
    # b is launched on stream 8 at 40, after it was told to wait for a [20, 100); b begins 1 us (default) later.
    "event wait": (
        [
            step(0, 0, 60),
            *early(5, 6, 7),
            launch(10, 1),
            kernel(20, 80, 1, "a"),
            host("cuda_runtime", "cudaStreamWaitEvent", 30, 1),
            launch(40, 2),
            kernel(101, 50, 2, "b", stream=8),
        ],
        {"computation": 130, "launch": 10, "host": 7, "call": 3, "wait": 1},
    ),
    "captured graph": (
        [
            step(0, 0, 30),
            host("cuda_runtime", "cudaGraphLaunch", 10, 5, correlation=1),
            *(kernel(at, dur, 1, f"k{at}") for at, dur in ((20, 10), (31, 10), (42, 20))),
        ],
        {"computation": 40, "launch": 10, "host": 10, "queue": 2},
    ),
    # a [20, 120), its copy [120, 130); the copying call returns at 135 and the host works until 160.
    "blocking copy": (
        [
            step(0, 0, 160),
            launch(10, 1),
            kernel(20, 100, 1, "a"),
            {**kernel(120, 10, 2, COPY), "cat": "gpu_memcpy"},
            host("cuda_runtime", "cudaMemcpyAsync", 15, 120, correlation=2),
            host("cpu_op", "aten::add", 136, 24),
        ],
        {"computation": 100, "host": 35, "memory": 10, "launch": 10, "return": 5},
    ),
    # The host waits for a [20, 90) until 95; then it works until 110.
    "synchronization": (
        [step(0, 0, 110), launch(10, 1), kernel(20, 70, 1, "a"), host("cuda_runtime", SYNC, 12, 83)],
        {"computation": 70, "host": 25, "launch": 10, "return": 5},
    ),
    # The main thread hands over at 50, works [60, 80) in parallel, and resumes when the other thread ended at 100.
    "hand-over between threads": (
        [
            step(0, 0, 120),
            host("cpu_op", "aten::mm", 0, 50),
            host("cpu_op", "aten::copy_", 60, 20),
            host("cpu_op", "MmBackward0", 52, 48, tid=2),
            {**launch(90, 1), "tid": 2},
            kernel(100, 5, 1),
            host("cpu_op", "aten::add", 105, 15),
        ],
        {"host": 112, "handed": 7, "call": 1},
    ),
    # k1 [20, 150) continues after the second step's start at 100; k2, launched at 110, is queued: [151, 251).
    "two steps": (
        [
            step(1, 0, 100),
            step(2, 100, 100),
            launch(10, 1),
            kernel(20, 130, 1, "k1"),
            launch(110, 2),
            kernel(151, 100, 2, "k2"),
        ],
        {"computation": 230, "launch": 10, "host": 10, "queue": 1},
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_the_path_equals_the_one_computed_by_hand(write: Write, name: str) -> None:
    events, expected = GRAPHS[name]
    result = answer("critical", write(events))
    assert us(result["parts"], "part", "path_ns") == expected
    assert result["path_ns"] / 1000 == result["measured_ns"] / 1000 == sum(expected.values())
    assert result["notes"] == []


UNIX_OFFSET_US = 1_700_000_000_000_003


def with_unix_times(events: list[Event]) -> list[Event]:
    """Return the same recording with Unix times, of which a float represents every 256th ns."""
    return [{**event, "ts": event["ts"] + UNIX_OFFSET_US} for event in events]


@pytest.mark.parametrize("name", GRAPHS)
def test_unix_times_give_the_same_answers(write: Write, name: str) -> None:
    events, expected = GRAPHS[name]
    relative, unix = write(events), write(with_unix_times(events), "later.json")
    assert trace_of(unix).span_ns[0] - trace_of(relative).span_ns[0] == 1000 * UNIX_OFFSET_US
    result = answer("critical", unix)
    assert us(result["parts"], "part", "path_ns") == expected
    assert result == answer("critical", relative)
    assert answer("whatif", unix, change="gpu*0.5") == answer("whatif", relative, change="gpu*0.5")


@pytest.mark.parametrize("params", [{"step": "2"}, {"range": "forward"}])
def test_unix_times_give_the_same_paths_of_steps_and_ranges(write: Write, params: dict[str, str]) -> None:
    events = [*GRAPHS["two steps"][0], host("user_annotation", "forward", 105, 60)]
    unix_result = answer("critical", write(with_unix_times(events), "later.json"), **params)
    assert unix_result == answer("critical", write(events), **params)
    assert unix_result["path_ns"] > 0


def test_slack_is_the_delay_that_does_not_move_the_end(write: Write) -> None:
    """Host bound until 100: kernels of 5 us end at 25, 45 and 65, each 1 us (default) before the next one.

    The last one may end at 100, the one before at 94, the first one at 88.
    """
    path = write(GRAPHS["launch bound"][0])
    trace = trace_of(path)
    kernels = [row for row in range(len(trace.events)) if trace.strings[trace.events.name[row]] == "k"]
    assert [slack_ns(trace, row) for row in kernels] == [63_000, 49_000, 35_000]
    result = answer("critical", path)["slack"]["columns"]
    assert (result["name"], result["calls"], result["slack_ns"], result["mean_slack_ns"]) == (
        ["k"],
        [3],
        [35_000],
        [49_000],
    )
    # A delay of the slack changes nothing, and 1 us more makes the step 1 us longer: kernels of 5 + 35 us.
    for factor, predicted in ((8, 100_000), (8.2, 101_000)):
        step_ns = answer("whatif", path, change=f"kernel*{factor}")["step"]["predicted_ns"]
        assert step_ns >= predicted


def test_slack_of_device_work_and_operators_off_the_path(write: Write) -> None:
    """a ends at 120, the parallel b at 52; the host is done at 30, so its work may take 90 us longer."""
    events = [*GRAPHS["two streams"][0], host("cpu_op", "aten::mm", 14, 10)]
    trace = trace_of(write(events))
    slack = {trace.strings[trace.events.name[row]]: slack_ns(trace, row) for row in range(len(trace.events))}
    assert (slack["a"], slack["b"], slack["aten::mm"]) == (0, 68_000, 90_000)


def test_native_slack_equals_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    unchanged = baseline_replay(trace_of(SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"))
    graph, ends = unchanged.graph, end_nodes(unchanged.graph)
    arguments = (
        graph,
        unchanged.replay,
        unchanged.dur,
        graph.edges.delay_ns,
        ends,
        float((unchanged.replay.time + unchanged.dur)[ends].max()),
    )
    from_native = latest_times(*arguments)
    monkeypatch.setattr("visualprof.views.measure.replay.graph.function", lambda *_: None)
    if native.library() is None:
        pytest.skip("needs the compiled reader")
    np.testing.assert_array_equal(from_native, latest_times(*arguments))
    assert np.isfinite(from_native).any()


def test_the_path_of_a_step_begins_and_ends_with_the_step(write: Write) -> None:
    path = write(GRAPHS["two steps"][0])
    first, second = (answer("critical", path, step=name) for name in "12")
    # The work of the first step ends at 150; k1 still runs for 50 us of the second step.
    assert us(first["parts"], "part", "path_ns") == {"computation": 130, "host": 10, "launch": 10}
    assert us(second["parts"], "part", "path_ns") == {"computation": 150, "queue": 1}
    assert (first["measured_ns"], second["measured_ns"]) == (150_000, 151_000)


@pytest.mark.parametrize(
    ("kernel_us", "expected"), [(60, {"computation": 60, "host": 10, "launch": 10}), (5, {"host": 49, "call": 1})]
)
def test_the_path_of_a_user_range(write: Write, kernel_us: int, expected: dict[str, float]) -> None:
    """`forward` [10, 60) launches at 20 a kernel that begins at 30."""
    events = [step(0, 0, 70), host("user_annotation", "forward", 10, 50), launch(20, 1), kernel(30, kernel_us, 1)]
    result = answer("critical", write(events), range="forward")
    assert us(result["parts"], "part", "path_ns") == expected
    assert (result["stretches"], result["path_ns"]) == (1, result["measured_ns"])
    assert "forward" in result["ranges"]
    with pytest.raises(BadParameter, match="no range"):
        answer("critical", write(events), range="backward")


def test_the_path_of_a_range_includes_each_call(write: Write) -> None:
    ranges_of_user = [host("user_annotation", "forward", start, 20) for start in (10, 40)]
    work = [event for i, start in enumerate((15, 45)) for event in (launch(start, i + 1), kernel(start + 10, 1, i + 1))]
    result = answer("critical", write([step(0, 0, 70), *ranges_of_user, *work]), range="forward")
    assert (result["stretches"], result["path_ns"]) == (2, 40_000)


def test_missing_steps_and_launches_are_noted(write: Write) -> None:
    unlaunched = [kernel(20, 5, 0), kernel(30, 5, 0)]
    assert answer("critical", write(unlaunched))["notes"] == ["no_steps", "no_launches"]
    assert answer("critical", write([launch(1, 1), kernel(20, 5, 1)], "launched.json"))["notes"] == ["no_steps"]


def test_a_path_that_explains_little_of_the_time_is_noted(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write([step(0, 0, 100), host("cpu_op", "aten::mm", 0, 12), launch(10, 1), kernel(20, 60, 1, "a")])
    assert answer("critical", path)["notes"] == []
    monkeypatch.setattr("visualprof.views.critical.MIN_PATH_RATIO", 1.01)  # this path explains all of the time
    assert answer("critical", path)["notes"] == ["short_path"]


def test_path_pieces_are_on_the_threads_that_worked(write: Write) -> None:
    trace = trace_of(write(GRAPHS["hand-over between threads"][0]))
    result, origin = path_pieces(trace), trace.span_ns[0]
    names = [trace.tracks[int(i)].tid for i in result.track]
    spans = zip(names, (result.start - origin).tolist(), (result.end - origin).tolist(), strict=True)
    assert sorted((tid, start // 1000, end // 1000) for tid, start, end in spans) == [
        ("1", 0, 50),
        ("1", 105, 120),
        ("2", 52, 100),
    ]


# Rank 1 launches the collective at 50, 40 us after rank 0. Data moves [60, 80); both wait until 85 and work until 100.
def rank(launched_at: int) -> list[Event]:
    nccl = kernel(launched_at + 10, 70 - launched_at, 1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    return [
        step(0, 0, 100),
        launch(launched_at, 1),
        nccl,
        host("cuda_runtime", SYNC, launched_at + 2, 83 - launched_at),
    ]


def ranks(write: Write, recordings: list[list[Event]], **params: str) -> dict[str, Any]:
    traces = [(f"r{i}", read_trace(write(events, f"r{i}.json"))) for i, events in enumerate(recordings)]
    chosen = run_view("ranks")
    return json_of(chosen.compute_from_traces(traces, chosen.parse(params)))


def test_a_collective_begins_when_the_last_rank_has_arrived(write: Write) -> None:
    result = ranks(write, [rank(10), rank(50)])
    assert us(result["parts"], "part", "path_ns") == {"host": 65, "communication": 20, "launch": 10, "return": 5}
    # The transfer, the return and the rest of the step are on rank 0, which waited for rank 1.
    assert us(result, "rank", "path_ns") == {0: 40, 1: 60}
    assert us(result, "rank", "own_ns") == {0: 40, 1: 80}
    assert (result["collectives"], result["error_ratio"], result["step"]["measured_ns"]) == (1, 0, 100_000)


@pytest.mark.parametrize(
    ("change", "predicted"),
    [
        (
            "rank[1]=median",
            70,
        ),  # half of its self time: it arrives at 30; the transfer ends at 50, rank 0 at 50 + 5 + 15
        ("rank[0]=median", 100),  # rank 0 is already the faster one
        ("rank[*]=median", 70),
        ("collective*0.5", 90),
        ("rank[1]=median; collective*0.5", 60),
    ],
)
def test_changes_of_ranks_are_forecast(write: Write, change: str, predicted: float) -> None:
    result = ranks(write, [rank(10), rank(50)], change=change)
    assert result["step"]["predicted_ns"] / 1000 == predicted


def test_a_host_collective_also_waits_for_the_last_rank(write: Write) -> None:
    """gloo: rank 0 arrives at 22, rank 1 at 52; the data arrives at 82, and both work [85, 100)."""

    def gloo(arrives: int) -> list[Event]:
        return [
            step(0, 0, 100),
            host("cpu_op", "aten::mm", 0, arrives - 2),
            host("cpu_op", "aten::add", 85, 15),
            host("cpu_op", "gloo:all_reduce", arrives, 82 - arrives, tid=2),
        ]

    result = ranks(write, [gloo(22), gloo(52)])
    assert us(result["parts"], "part", "path_ns") == {"host": 70, "communication": 30}
    assert us(result, "rank", "path_ns") == {0: 48, 1: 52}
    assert us(result, "rank", "own_ns") == {0: 40, 1: 70}
    # Rank 1 as fast as rank 0, 4 / 7 of its time: it arrives at 29.7; rank 0 is done 30 + 18 us later.
    assert ranks(write, [gloo(22), gloo(52)], change="rank[1]=median")["step"]["predicted_ns"] == 77_714


def test_ranks_without_shared_collectives_have_no_forecast(write: Write) -> None:
    assert ranks(write, [rank(10), GRAPHS["two streams"][0]])["obstacle"] == "unmatched"
    with pytest.raises(BadParameter, match="no such rank"):
        ranks(write, [rank(10), rank(50)], change="rank[7]=median")
    with pytest.raises(BadParameter, match="several ranks"):
        answer("whatif", write(rank(10)), change="rank[0]=median")


@pytest.mark.parametrize("world", [2, 4])
def test_recordings_of_several_ranks_replay_within_2_percent(world: int) -> None:
    paths = [recording_path(f"traces/torch_cpu/ddp{world}/rank{i}.pt.trace.json.gz") for i in range(world)]
    chosen = run_view("ranks")
    result = json_of(chosen.compute_from_traces([(p.name, trace_of(p)) for p in paths], chosen.parse({})))
    assert (result["obstacle"], result["collectives"]) == (None, 15)
    assert sum(result["columns"]["share"]) == pytest.approx(1)


# Second step: (cpu_bound, total) in us without edges that have no bound, from HolisticTraceAnalysis 0.5.0,
# critical_path_analysis(0, "ProfilerStep", 1) with launch edges of weight 0.
HTA = {
    "traces/kineto/hta/nccl_data__a100_rank0of2.json.gz": (101_398, 101_398),
    "traces/kineto/hta/df_index_resolver__v100_rank1of2_nccl_memory.json.gz": (252_853, 252_853),
    "pytorch-h200/cnn.pt.trace.json.gz": (7_317, 7_335),
}


@pytest.mark.parametrize("name", HTA)
def test_the_host_share_equals_htas_for_host_bound_recordings(name: str) -> None:
    """HTA leaves out time outside of events, so the sums differ. For device-bound recordings, its edges are gaps."""
    bound, total = HTA[name]
    path = SAMPLES / name if name.startswith("pytorch") else recording_path(name)
    trace = trace_of(path)
    result = us(answer("critical", path, step=trace.strings[int(trace.steps.name[1])])["parts"], "part", "path_ns")
    host_us = sum(result.get(part, 0) for part in ("host", "call", "handed"))
    assert host_us / sum(result.values()) == pytest.approx(bound / total, abs=0.003)
