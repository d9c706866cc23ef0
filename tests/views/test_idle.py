"""Idle time, launches and queues: hand-worked, and against what HTA says of recordings."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.conftest import Write, answer, trace_of
from tests.recordings import recording_path
from tests.views.test_steps import Event, host, kernel, launch, step
from visualprof.reader.trace import Trace
from visualprof.views.measure.devices.gaps import CAUSES, WorkSequence, find_gaps, work_sequences
from visualprof.views.measure.devices.queues import launch_queue
from visualprof.views.measure.timeline.counter_tracks import counter_tracks

HTA_WAIT_NS = 30_000
HTA_FILES = [
    "hta/nccl_data__a100_rank0of2",
    "hta/trace_diff_control__a100_rank3of8",
    "hta/sampled_rank-0of128",
    "hta/sampled_rank-1of128",
    "hta/df_index_resolver__v100_rank1of2_nccl_memory",
    "tb_plugin/resnet50_num_workers_0__worker0.1623143089861.pt.trace",
    "hta/alexnet_a100_cuda_sync",
]


def rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    names = list(table["columns"])
    return [dict(zip(names, row, strict=True)) for row in zip(*table["columns"].values(), strict=True)]


def us(values: list[Any]) -> list[float | None]:
    return [None if value is None else value / 1000 for value in values]


# Two streams of one device, us:
#   7:  [100, 150) a   [160, 200) b   [300, 320) c   [400, 410) e
#   20:                      [250, 392) d
# b was queued at 120, 10 before it began: the device's own pace. c was launched at 290, 90 after b had ended.
# e was queued at 305; it began 8 after d had ended on the other stream. Meanwhile the host: see `HOST`.
WORK = [kernel(100, 50, 1, "a"), kernel(160, 40, 2, "b"), kernel(300, 20, 3, "c"), kernel(400, 10, 5, "e")]
BESIDE = kernel(250, 142, 4, "d", stream=20)
HOST = [
    launch(90, 1),
    launch(120, 2),
    launch(240, 4),
    launch(290, 3, dur=2),
    launch(305, 5),
    host("cpu_op", "aten::cat", 205, 30),
    host("python_function", "load", 203, 34),
]


@pytest.fixture
def two_streams(write: Write) -> Any:
    return answer("idle", write([*HOST, *WORK, BESIDE]))


@pytest.mark.parametrize(("begin", "cause"), [(130, "host_wait"), (400, "other")])
def test_work_queued_behind_unrecorded_work_does_not_wait_for_the_host(write: Write, begin: int, cause: str) -> None:
    """A server's step cut out of a longer recording: asked for at 90 to 95, begun when the step before it ended."""
    result = answer("idle", write([step(0, 0, 100), launch(90, 1), kernel(begin, 50, 1)]))
    (waits,) = rows(result["steps"])
    assert {key: waits[f"{key}_ns"] for key in ("host_wait", "other", "unknown")} == {
        "host_wait": 0,
        "other": 0,
        "unknown": 0,
        cause: begin * 1000,
    }


def test_launches_determine_the_cause_of_each_gap(two_streams: Any) -> None:
    whole, seven, twenty = rows(two_streams)
    assert (whole["stream"], seven["stream"], twenty["stream"]) == (None, "stream 7", "stream 20")
    # [100, 410): busy but for [150, 160), [200, 250) and [392, 400).
    assert us([whole["span_ns"], whole["computation_ns"], whole["idle_ns"]]) == [310, 242, 68]
    # d was launched at 240, after b had ended at 200; e was queued before d ended.
    assert us([whole["host_wait_ns"], whole["kernel_wait_ns"], whole["other_ns"]]) == [50, 18, 0]
    # On stream 7: [150, 160) pace, [200, 300) c launched at 290, [320, 400) e waits for d.
    assert us([seven["kernel_wait_ns"], seven["host_wait_ns"], seven["dependency_ns"]]) == [10, 100, 80]
    assert (seven["gaps"], seven["longest_gap_ns"], seven["median_gap_ns"]) == (3, 100_000, 80_000)
    assert (twenty["idle_ns"], twenty["gaps"], twenty["longest_gap_ns"]) == (0, 0, None)


def test_a_smaller_threshold_classifies_kernel_waits_as_other(write: Write) -> None:
    whole = rows(answer("idle", write([*HOST, *WORK, BESIDE]), kernel_wait_ns="9000"))[0]
    assert us([whole["kernel_wait_ns"], whole["other_ns"]]) == [8, 10]


def test_host_activity_in_gaps_is_self_time(two_streams: Any) -> None:
    """From b's end at 200 to d's launch at 240: 3 outside, load 4 of its own, cat 30, 3 outside."""
    did = rows(two_streams["host"])
    assert [(row["name"], row["self_ns"] / 1000) for row in did] == [("aten::cat", 30), ("", 6), ("load", 4)]
    assert did[0]["share"] == 0.75
    longest = rows(two_streams["longest"])[0]
    assert (longest["cause"], longest["host"], longest["within"]) == ("host_wait", "aten::cat", "load")
    assert (longest["after"], longest["before"], longest["duration_ns"]) == ("b", "d", 50_000)


def test_causes_add_up_per_step_and_include_its_first_wait(write: Write) -> None:
    """Step 0 [0, 300): kernels [100, 150), launched at 90, and [250, 300). Step 1 [300, 500): [480, 500)."""
    events = [
        step(0, 0, 300),
        step(1, 300, 200),
        launch(90, 1),
        kernel(100, 50, 1),
        launch(110, 2),
        kernel(250, 50, 2),
        launch(470, 3),
        kernel(480, 10, 3),
        launch(475, 4),
        kernel(490, 10, 4),
    ]
    result = answer("idle", write(events))
    first, second = rows(result["steps"])
    assert us([first["span_ns"], first["idle_ns"], first["host_wait_ns"], first["other_ns"]]) == [300, 200, 100, 100]
    assert us([second["span_ns"], second["idle_ns"], second["host_wait_ns"]]) == [200, 180, 180]
    only = rows(answer("idle", write(events), step="1"))[0]
    assert us([only["span_ns"], only["idle_ns"], only["host_wait_ns"], only["other_ns"]]) == [200, 180, 180, 0]


def test_without_launches_the_cause_is_unknown(write: Write) -> None:
    (table_rows,) = rows(answer("idle", write([kernel(0, 10, 0), kernel(100, 10, 0)])))
    assert us([table_rows["idle_ns"], table_rows["unknown_ns"], table_rows["host_wait_ns"]]) == [90, 90, 0]


def test_a_launch_of_several_kernels_counts_once(write: Write) -> None:
    """A graph's launch at 0 (4 us) with kernels [10, 12), [13, 14); a short one launched at 5, begun at 15."""
    events: list[Event] = [
        host("cuda_runtime", "cudaGraphLaunch", 0, 4, correlation=1),
        kernel(10, 2, 1, "x"),
        kernel(13, 1, 1, "y"),
        launch(5, 2, dur=3),
        kernel(15, 1, 2, "z"),
    ]
    result = answer("launch", write(events), late_ns="5000")
    graph, short = rows(result)
    assert (graph["name"], graph["launches"], graph["work"], graph["work_ns"]) == ("cudaGraphLaunch", 1, 2, 3000)
    assert (graph["launch_delay_ns"], graph["short"], graph["late"]) == (6000, 1, 1)
    assert (short["name"], short["queued"], short["launch_delay_ns"], short["late"]) == ("z", 2, 7000, 1)
    (stream,) = rows(result["streams"])
    # 1 waits in [0, 5), 2 in [5, 10), 1 in [10, 15).
    assert (stream["launches"], stream["max_queued"], stream["queued"], stream["full_ns"]) == (2, 2, 20 / 15, 0)
    assert sum(result["spread"]["columns"]["delays"]) == 2


def test_queues_and_copies_are_counters_of_the_timeline(write: Write) -> None:
    """Copies of 4,000 bytes in [10, 14) us and of 1,000 in [12, 13): 1 GB/s, for a time 2."""

    def copy(ts: int, dur: int, size: int, correlation: int) -> Event:
        args = {"correlation": correlation, "device": 0, "stream": 7 + correlation, "bytes": size}
        name = "Memcpy HtoD (Pinned -> Device)"
        return {
            "ph": "X",
            "cat": "gpu_memcpy",
            "name": name,
            "pid": 0,
            "tid": 7 + correlation,
            "ts": ts,
            "dur": dur,
            "args": args,
        }

    events = [launch(0, 1), launch(2, 2), copy(10, 4, 4000, 1), copy(12, 1, 1000, 2)]
    counters = {counter_track.name: counter_track for counter_track in counter_tracks(trace_of(write(events))).values()}
    assert counters["Memcpy HtoD GB/s"].value.tolist() == [1, 2, 1, 0]
    assert counters["stream 8 launches waiting"].value.tolist() == [1, 0]


def seen_by_hta(trace: Trace, known: dict[str, Any]) -> list[WorkSequence]:
    """The streams with what HTA keeps: of some steps, where there are any."""
    numbers = [trace.strings[int(name)].removeprefix("ProfilerStep#") for name in trace.steps.name]
    steps = [i for i, number in enumerate(numbers) if int(number) in known["profiler_steps"]]
    kept = list[WorkSequence]()
    for lane in work_sequences(trace):
        is_wanted = np.isin(trace.events.step[lane.work], steps) | (not steps)
        if lane.track >= 0 and is_wanted.any():
            kept.append(WorkSequence(lane.device, lane.track, lane.work[is_wanted], lane.call[is_wanted]))
    return kept


@pytest.mark.parametrize("name", HTA_FILES)
def test_idle_time_launches_and_queues_match_hta(name: str) -> None:
    """HTA 0.5.0 drops parts of a microsecond, so recordings that have them differ by less than 1 us an event."""
    path = recording_path(f"traces/kineto/{name}.json.gz")
    known = json.loads(recording_path("traces/kineto/expected_hta.json").read_text())[f"kineto/{name}.json.gz"]
    trace = trace_of(path)
    events, streams = trace.events, seen_by_hta(trace, known)
    whole = not (events.ts % 1000).any()
    slack = 0.0 if whole else 1.0
    idle = {(stream, cause): us for stream, cause, us in known["idle"]}
    calls_ns = work_ns = delays_ns = count = 0
    for lane in streams:
        stream = trace.tracks[lane.track].stream
        gaps = find_gaps(trace, lane, np.sort(events.end[lane.work]), HTA_WAIT_NS)
        spent = {cause: int((gaps.end - gaps.start)[gaps.cause == i].sum()) / 1000 for i, cause in enumerate(CAUSES)}
        assert spent["unknown"] == 0
        for cause, ours in [(one, spent[one]) for one in ("host_wait", "kernel_wait")] + [
            ("other", spent["other"] + spent["dependency"])
        ]:
            assert ours == pytest.approx(idle.get((stream, cause), 0), abs=slack * len(lane.work))
        waiting = launch_queue(trace, lane)
        theirs = known["queue"][f"(0, {stream})"]
        assert (len(waiting.ts), waiting.length.max()) == (theirs["count"], theirs["max"])
        assert waiting.length.mean() == pytest.approx(theirs["mean"], rel=0.006)  # of one moment, they begin by rows
        count += len(waiting.call)
        calls_ns += int(events.dur[waiting.call].sum())
        work_ns += int(waiting.work_ns.sum())
        delays_ns += int(np.maximum(waiting.start_ns - events.end[waiting.call], 0).sum())
    theirs = known["launch"]
    assert count == theirs["n"]
    for ours, key in ((calls_ns, "cpu_sum"), (work_ns, "gpu_sum"), (delays_ns, "delay_sum")):
        assert ours / 1000 == pytest.approx(theirs[key], abs=slack * count)
