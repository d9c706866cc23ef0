"""Steps compared with hand-computed traces: their work, start and end, and which ones are dropped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conftest import Write, answer, rows, trace_of
from tests.recordings import recording_path
from visualprof.views.diff.side import SIDE, StepTimes
from visualprof.views.measure.steps.parts import STEP_PARTS
from visualprof.views.overview import AverageStep, DeviceStepColumns, StepColumns
from visualprof.views.serving import PhaseColumns

Event = dict[str, Any]


def host(cat: str, name: str, ts: int, dur: int, tid: int = 1, **args: int) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def step(number: int, ts: int, dur: int) -> Event:
    return host("user_annotation", f"ProfilerStep#{number}", ts, dur)


def kernel(ts: int, dur: int, correlation: int, name: str = "k", stream: int = 7) -> Event:
    args = {"correlation": correlation, "device": 0, "stream": stream}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": args}


def launch(ts: int, correlation: int, dur: int = 1) -> Event:
    return host("cuda_runtime", "cudaLaunchKernel", ts, dur, correlation=correlation)


def launched(counts: list[int]) -> list[Event]:
    """Return steps of 1,000 us with a number of kernels of 1 us each, launched 5 us apart and run 2 us later."""
    events = [step(step_number, 1000 * step_number, 990) for step_number in range(len(counts))]
    for step_number, count in enumerate(counts):
        for index in range(count):
            start, correlation = 1000 * step_number + 5 * index + 10, 1000 * step_number + index + 1
            events += [launch(start, correlation), kernel(start + 2, 1, correlation)]
    return events


def overview(write: Write, events: list[Event], **params: str) -> Any:
    return answer("overview", write(events), **params)


def us(values: list[int]) -> list[float]:
    return [v / 1000 for v in values]


def test_the_last_step_with_too_little_work_is_dropped_and_reported(write: Write) -> None:
    result = overview(write, launched([100, 90, 70, 50, 30]))
    assert result["steps"]["name"] == ["0", "1", "2", "3"]  # 70 and 50 are complete steps
    assert result["dropped_steps"] == [{"name": "4", "reason": "incomplete", "work": 30, "before": 50}]


def test_all_trailing_empty_steps_are_dropped(write: Write) -> None:
    result = overview(write, launched([100, 100, 100, 0, 0, 0]))
    assert result["steps"]["name"] == ["0", "1", "2"]
    assert [(d["name"], d["reason"], d["work"], d["before"]) for d in result["dropped_steps"]] == [
        ("3", "empty", 0, 100),
        ("4", "empty", 0, 0),
        ("5", "empty", 0, 0),
    ]
    (device,) = result["devices"]
    assert device["utilization"] == 300 / 2990  # three steps, the last one ends at 2,990


def test_an_empty_step_between_others_is_kept(write: Write) -> None:
    result = overview(write, launched([10, 0, 10]))
    assert (result["steps"]["name"], result["dropped_steps"]) == (["0", "1", "2"], [])


def test_a_last_step_with_only_data_loading_is_empty(write: Write) -> None:
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [step(n, 100 * n, 99) for n in range(2)] + [step(2, 200, 900)]
    events += [host("cpu_op", "aten::mm", 100 * n + 20, 70) for n in range(2)]
    events += [host("user_annotation", loader, 201, 830), host("cpu_op", "aten::stack", 205, 20)]
    result = overview(write, events)
    assert result["steps"]["name"] == ["0", "1"]
    assert result["dropped_steps"] == [{"name": "2", "reason": "empty", "work": 0, "before": 1}]
    assert "dataloader_bound" not in {f["id"] for f in answer("findings", write(events))["findings"]}


def queued(delay: int) -> list[Event]:
    """Return five steps of 100 us on the host; each launches 96 us of kernels, which run `delay` us later.

    Before them, the device runs work that was launched before the recording, so its calls are not
    in the file.
    """
    events = [step(number, 100 * number, 99) for number in range(5)]
    events += [kernel(start, 9, 0, "before") for start in range(0, delay, 10)]
    for number in range(5):
        events += [launch(100 * number + 2, number + 1), kernel(100 * number + 2 + delay, 96, number + 1)]
    return events


def test_work_from_before_the_recording_is_not_part_of_the_first_step(write: Write) -> None:
    """The device ends the earlier work at 149; kernels end at 248, 348, ...: steps of 99 and 4 x 100 us, not 248."""
    result = overview(write, queued(150))
    assert us(result["steps"]["total_ns"]) == [99, 100, 100, 100, 100]
    assert us(result["steps"]["kernel_ns"]) == [96] * 5
    assert us(result["steps"]["host_ns"]) == [99] * 5
    assert (
        answer("findings", write(queued(150)))["findings"] == []
    )  # the first step does not take more than 1.5 x the median
    assert rows(answer("kernel", write(queued(150)), step="0"), "calls") == {"k": [1]}


def test_work_that_outlasts_all_steps_does_not_hide_steps(write: Write) -> None:
    """A kernel of another stream that was launched before the recording and never ends is not queued work."""
    result = overview(write, [*queued(150), kernel(0, 10_000, 0, "persistent", stream=9)])
    assert us(result["steps"]["total_ns"]) == [99, 100, 100, 100, 100]


def test_a_kernel_belongs_to_the_step_that_launched_it(write: Write) -> None:
    """The second kernel of step 0 starts in step 1; by its start time, step 1 would have three kernels."""
    events = [step(0, 0, 100), step(1, 100, 100), launch(10, 1), launch(20, 2), launch(110, 3), launch(120, 4)]
    events += [kernel(30, 60, 1), kernel(105, 30, 2), kernel(135, 20, 3), kernel(155, 30, 4)]
    result = overview(write, events)
    assert us(result["steps"]["total_ns"]) == [135, 65]
    assert us(result["steps"]["kernel_ns"]) == [90, 50]
    assert (result["steps"]["name"], result["dropped_steps"]) == (["0", "1"], [])
    assert rows(answer("kernel", write(events), step="1"), "calls", "total_ns") == {"k": [2, 50_000]}


def test_device_work_without_a_call_belongs_to_the_previous_work_of_its_stream(write: Write) -> None:
    events = [step(0, 0, 100), step(1, 100, 100), launch(10, 1), launch(110, 2)]
    events += [kernel(0, 15, 0, "old"), kernel(20, 70, 1), kernel(95, 30, 0, "lost")]
    events += [launch(120, 3), kernel(130, 20, 2), kernel(150, 40, 3)]
    path = write(events)
    assert rows(answer("kernel", path, step="0"), "calls") == {"k": [1], "lost": [1]}
    assert us(answer("overview", path)["steps"]["total_ns"]) == [110, 75]  # 15 to 125, 125 to 200


def test_a_step_whose_work_was_overtaken_is_reported(write: Write) -> None:
    events = [step(0, 0, 100), step(1, 100, 50), step(2, 150, 250), launch(10, 1), launch(110, 2), launch(160, 3)]
    events += [kernel(20, 280, 1, stream=9), kernel(120, 30, 2), kernel(170, 200, 3)]
    result = overview(write, events)
    assert us(result["steps"]["total_ns"]) == [300, 100]
    assert result["dropped_steps"] == [{"name": "1", "reason": "overtaken", "work": 1, "before": 1}]


def test_a_recording_without_steps_spans_host_and_devices(write: Write) -> None:
    """Device work begins 40 us before the host, and the launched kernel ends 50 us after it."""
    events = [host("cpu_op", "aten::mm", 100, 50), launch(110, 1), kernel(60, 20, 0), kernel(120, 80, 1)]
    result = overview(write, events)
    assert (us(result["steps"]["total_ns"]), us(result["steps"]["kernel_ns"])) == ([140], [100])


def test_a_recording_contains_all_kernels_of_an_accelerator() -> None:
    """HTA counts 419,614 us of computation and 400,892 of copies; the recording used to begin 101 ms late.

    It lasts from the first device work, which excludes waiting for an event, to the end of the last
    call.
    """
    result = answer("overview", recording_path("traces/kineto/hta/mtia_inference_rank_0.json.gz"))
    (total,) = result["steps"]["total_ns"]
    assert total == 459_037_274
    assert sum(result["average_step"][f"{p}_ns"] for p in ("kernel", "memcpy")) > 419_614_000


@pytest.mark.parametrize(("file", "busy_us"), [("h100_qwen05b", 31_905), ("mi300_qwen05b", 29_744)])
def test_a_step_after_earlier_work_is_as_busy_as_in_the_reference_report(file: str, busy_us: int) -> None:
    """509 and 463 kernels of the warm-up run until 14 ms into the step, which lasts 49.4 and 46.9 ms with them."""
    result = answer("overview", recording_path(f"traces/tracelens/{file}.json.gz"))["average_step"]
    assert sum(result[f"{p}_ns"] for p in ("kernel", "memcpy", "memset")) / 1000 == pytest.approx(busy_us, abs=1)


# Two steps of 100 us; the first one's kernel, launched at 10, begins at 2,015 and runs for 50 us.
QUEUED = [step(0, 0, 100), step(1, 100, 100), launch(10, 1), kernel(2015, 50, 1), launch(110, 2), kernel(2065, 40, 2)]


@pytest.mark.parametrize(
    ("extra_events", "total"),
    [
        ([], [50, 40]),  # the device ran unrecorded work before
        ([host("cuda_runtime", "cudaDeviceSynchronize", 1, 5)], [2065, 40]),  # the device was idle before
        ([host("cpu_op", "aten::mm", -2500, 5)], [2065, 40]),  # the recording had lasted 2.5 ms, longer than the delay
    ],
)
def test_a_step_begins_after_work_that_was_not_recorded(
    write: Write, extra_events: list[Event], total: list[float]
) -> None:
    assert us(overview(write, [*QUEUED, *extra_events])["steps"]["total_ns"]) == total


def test_a_server_step_lasts_as_long_as_in_the_reference_report() -> None:
    """A step cut out of many: its first copy began 7.8 ms after its launch, and the step seemed to take 19.1 ms."""
    steps = answer("overview", recording_path("traces/tracelens/vllm_decode/graph_execution.json.gz"))["steps"]
    assert us(steps["total_ns"]) == [10_743.181]
    rates = answer("serving", recording_path("traces/tracelens/vllm_decode/graph_execution.json.gz"))["rates"]
    assert rates["decode_tokens_per_s"] == pytest.approx(32 / 0.010743181)


def test_parallel_steps_of_two_threads_have_their_own_work(tmp_path: Path) -> None:
    """Two threads run one ONNX Runtime session; each run takes 10 us, the second begins 2 us after the first."""

    def run(tid: int, start: int) -> list[Event]:
        node = {"cat": "Node", "name": f"conv{tid}_kernel_time", "ts": start + 5, "dur": 4, "args": {"op_name": "Conv"}}
        session = {"cat": "Session", "name": "model_run", "ts": start, "dur": 10, "args": {}}
        return [{"ph": "X", "pid": 1, "tid": tid, **event} for event in (node, session)]

    path = tmp_path / "ort.json"
    path.write_text(json.dumps([*run(1, 0), *run(2, 2)]))
    for step_name, operator_name in (("0", "conv1"), ("1", "conv2")):
        assert rows(answer("operator", path, step=step_name), "calls") == {operator_name: [1]}


def run_of(thread: int, ts: float, dur: float, part: float) -> list[dict[str, Any]]:
    """A run on a thread, in which an operator computes for a part of the time."""
    return [
        {"ph": "X", "cat": "Session", "name": "model_run", "pid": 1, "tid": thread, "ts": ts, "dur": dur, "args": {}},
        {
            "ph": "X",
            "cat": "Node",
            "name": "gemm_kernel_time",
            "pid": 1,
            "tid": thread,
            "ts": ts,
            "dur": part,
            "args": {"op_name": "Gemm"},
        },
    ]


def test_runs_of_several_threads_belong_to_their_thread(tmp_path: Path) -> None:
    """Thread 1 runs for 100 us; meanwhile thread 2 runs three times. 4 runs in 200 us are 20,000 per second."""
    runs = [run_of(1, 0, 100, 60), run_of(2, 10, 20, 5), run_of(2, 40, 30, 10), run_of(2, 160, 40, 20)]
    path = tmp_path / "ort.json"
    path.write_text(json.dumps([one for run in runs for one in run]))
    overview = answer("overview", path)
    assert overview["dropped_steps"] == []
    assert [overview["steps"][name] for name in ("total_ns", "cpu_ns", "other_ns")] == [
        [100_000, 20_000, 30_000, 40_000],
        [60_000, 5_000, 10_000, 20_000],
        [40_000, 15_000, 20_000, 20_000],
    ]
    assert overview["stage_steps"]["other_ns"] == overview["steps"]["total_ns"]
    assert overview["headline"]["steps_per_s"] == pytest.approx(20_000)


def test_runs_of_one_thread_after_another_keep_the_median_rate(tmp_path: Path) -> None:
    path = tmp_path / "ort.json"
    path.write_text(json.dumps([*run_of(1, 0, 100, 60), *run_of(2, 150, 100, 60)]))
    assert answer("overview", path)["headline"]["steps_per_s"] == pytest.approx(10_000)


def test_a_comparison_explains_the_steps_of_several_threads(tmp_path: Path) -> None:
    """The runs of both threads take twice as long in one operator each."""
    paths: list[Path] = []
    for factor in (1, 2):
        runs = [run_of(thread, start, 100 * factor, 100 * factor) for thread, start in ((1, 0), (2, 50), (1, 500))]
        paths.append(tmp_path / f"{factor}.json")
        paths[-1].write_text(json.dumps([one for run in runs for one in run]))
    sides: list[Any] = [SIDE.compute(trace_of(path), SIDE.parse({})) for path in paths]
    assert [list(side.steps.columns.total_ns) for side in sides] == [[100_000] * 3, [200_000] * 3]
    assert [list(side.steps.columns.cpu_ns) for side in sides] == [[100_000] * 3, [200_000] * 3]


@pytest.mark.parametrize(
    ("file", "runs", "longest_ns", "rate"),
    [
        ("reports/07-ort-two-threads/ort132.json", 8, 10_692_000, 8 / 14.252e-3),
        ("numbers/multi.json", 15, 24_429_000, 15 / 27.803e-3),
    ],
)
def test_public_recordings_of_several_threads_keep_all_runs(file: str, runs: int, longest_ns: int, rate: float) -> None:
    overview = answer("overview", recording_path(f"cases/{file}"))
    assert len(overview["steps"]["name"]) == runs
    assert overview["dropped_steps"] == []
    assert overview["headline"]["step_most_ns"] == longest_ns
    assert overview["headline"]["steps_per_s"] == pytest.approx(rate)


@pytest.mark.parametrize("table", [StepColumns, AverageStep, DeviceStepColumns, PhaseColumns, StepTimes])
def test_every_table_of_steps_has_all_parts_in_order(table: type[msgspec.Struct]) -> None:
    fields = [name.removesuffix("_ns") for name in table.__struct_fields__]
    assert [name for name in fields if name in STEP_PARTS] == list(STEP_PARTS)
