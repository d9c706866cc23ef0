"""Steps against hand-worked traces: what belongs to each, when it begins and ends, and which are left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Write, answer, rows, shared

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
    """Steps of 1,000 us with so many kernels of 1 us each, launched 5 us apart and run 2 us later."""
    events = [step(n, 1000 * n, 990) for n in range(len(counts))]
    for n, count in enumerate(counts):
        for k in range(count):
            at, corr = 1000 * n + 5 * k + 10, 1000 * n + k + 1
            events += [launch(at, corr), kernel(at + 2, 1, corr)]
    return events


def overview(write: Write, events: list[Event], **params: str) -> Any:
    return answer("overview", write(events), **params)


def us(values: list[int]) -> list[float]:
    return [v / 1000 for v in values]


def test_only_the_last_step_with_too_little_work_is_dropped_and_said(write: Write) -> None:
    found = overview(write, launched([100, 90, 70, 50, 30]))
    assert found["steps"]["name"] == ["0", "1", "2", "3"]  # 70 and 50 are what the steps did
    assert found["dropped_steps"] == [{"name": "4", "reason": "incomplete", "work": 30, "before": 50}]


def test_empty_steps_at_the_end_go_however_many_they_are(write: Write) -> None:
    found = overview(write, launched([100, 100, 100, 0, 0, 0]))
    assert found["steps"]["name"] == ["0", "1", "2"]
    assert [(d["name"], d["reason"], d["work"], d["before"]) for d in found["dropped_steps"]] == [
        ("3", "empty", 0, 100), ("4", "empty", 0, 0), ("5", "empty", 0, 0),
    ]  # fmt: skip
    (device,) = found["devices"]
    assert device["utilization"] == 300 / 2990  # three steps, the last one ends at 2,990


def test_an_empty_step_between_others_stays(write: Write) -> None:
    found = overview(write, launched([10, 0, 10]))
    assert (found["steps"]["name"], found["dropped_steps"]) == (["0", "1", "2"], [])


def test_a_last_step_with_nothing_but_the_end_of_data_loading_is_empty(write: Write) -> None:
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [step(n, 100 * n, 99) for n in range(2)] + [step(2, 200, 900)]
    events += [host("cpu_op", "aten::mm", 100 * n + 20, 70) for n in range(2)]
    events += [host("user_annotation", loader, 201, 830), host("cpu_op", "aten::stack", 205, 20)]
    found = overview(write, events)
    assert found["steps"]["name"] == ["0", "1"]
    assert found["dropped_steps"] == [{"name": "2", "reason": "empty", "work": 0, "before": 1}]
    assert "dataloader_bound" not in {f["id"] for f in answer("findings", write(events))["findings"]}


def queued(behind: int) -> list[Event]:
    """Five steps of 100 us on the host; each launches 96 us of kernels, which run `behind` us later.

    Before them the device does what was launched before the recording: its calls are not in the file.
    """
    events = [step(n, 100 * n, 99) for n in range(5)]
    events += [kernel(at, 9, 0, "before") for at in range(0, behind, 10)]
    for n in range(5):
        events += [launch(100 * n + 2, n + 1), kernel(100 * n + 2 + behind, 96, n + 1)]
    return events


def test_work_from_before_the_recording_is_no_part_of_the_first_step(write: Write) -> None:
    """The device ends the old work at 149; kernels end at 248, 348, ...: steps of 99 and 4 x 100 us, not 248."""
    found = overview(write, queued(150))
    assert us(found["steps"]["total_ns"]) == [99, 100, 100, 100, 100]
    assert us(found["steps"]["kernel_ns"]) == [96] * 5
    assert us(found["steps"]["host_ns"]) == [99] * 5
    assert (
        answer("findings", write(queued(150)))["findings"] == []
    )  # the first step is not the longest of 1.5 x the median
    assert rows(answer("kernel", write(queued(150)), step="0"), "calls") == {"k": [1]}


def test_work_that_outlasts_all_steps_hides_none(write: Write) -> None:
    """A kernel of another stream that was launched before the recording and runs on for ever is no queue."""
    found = overview(write, [*queued(150), kernel(0, 10_000, 0, "persistent", stream=9)])
    assert us(found["steps"]["total_ns"]) == [99, 100, 100, 100, 100]


def test_a_kernel_belongs_to_the_step_that_launched_it(write: Write) -> None:
    """The second kernel of step 0 starts in step 1, the only one of which would then have two of three."""
    events = [step(0, 0, 100), step(1, 100, 100), launch(10, 1), launch(20, 2), launch(110, 3), launch(120, 4)]
    events += [kernel(30, 60, 1), kernel(105, 30, 2), kernel(135, 20, 3), kernel(155, 30, 4)]
    found = overview(write, events)
    assert us(found["steps"]["total_ns"]) == [135, 65]
    assert us(found["steps"]["kernel_ns"]) == [90, 50]
    assert (found["steps"]["name"], found["dropped_steps"]) == (["0", "1"], [])
    assert rows(answer("kernel", write(events), step="1"), "calls", "total_ns") == {"k": [2, 50_000]}


def test_device_work_without_a_call_goes_with_what_its_stream_ran_before(write: Write) -> None:
    events = [step(0, 0, 100), step(1, 100, 100), launch(10, 1), launch(110, 2)]
    events += [kernel(0, 15, 0, "old"), kernel(20, 70, 1), kernel(95, 30, 0, "lost")]
    events += [launch(120, 3), kernel(130, 20, 2), kernel(150, 40, 3)]
    path = write(events)
    assert rows(answer("kernel", path, step="0"), "calls") == {"k": [1], "lost": [1]}
    assert us(answer("overview", path)["steps"]["total_ns"]) == [110, 75]  # 15 to 125, 125 to 200


def test_a_step_whose_work_was_overtaken_is_said(write: Write) -> None:
    events = [step(0, 0, 100), step(1, 100, 50), step(2, 150, 250), launch(10, 1), launch(110, 2), launch(160, 3)]
    events += [kernel(20, 280, 1, stream=9), kernel(120, 30, 2), kernel(170, 200, 3)]
    found = overview(write, events)
    assert us(found["steps"]["total_ns"]) == [300, 100]
    assert found["dropped_steps"] == [{"name": "1", "reason": "overtaken", "work": 1, "before": 1}]


def test_the_whole_recording_spans_host_and_devices(write: Write) -> None:
    """Without steps. Device work begins 40 us before the host, and the launched kernel ends 50 us after it."""
    events = [host("cpu_op", "aten::mm", 100, 50), launch(110, 1), kernel(60, 20, 0), kernel(120, 80, 1)]
    found = overview(write, events)
    assert (us(found["steps"]["total_ns"]), us(found["steps"]["kernel_ns"])) == ([140], [100])


def test_all_kernels_of_an_accelerator_lie_in_its_recording() -> None:
    """HTA counts 419,614 us of computation and 400,892 of copies; the recording used to begin 101 ms late.

    It lasts from the first work of a device, as waiting for an event is none, to the end of the last call.
    """
    found = answer("overview", shared("traces/kineto/hta/mtia_inference_rank_0.json.gz"))
    (total,) = found["steps"]["total_ns"]
    assert total == 459_037_274
    assert sum(found["average_step"][f"{p}_ns"] for p in ("kernel", "memcpy")) > 419_614_000


@pytest.mark.parametrize(("file", "busy_us"), [("h100_qwen05b", 31_905), ("mi300_qwen05b", 29_744)])
def test_a_step_behind_old_work_is_as_busy_as_the_reference_report_says(file: str, busy_us: int) -> None:
    """509 and 463 kernels of the warm-up run 14 ms into the step; it lasted 49.4 and 46.9 ms with them."""
    found = answer("overview", shared(f"traces/tracelens/{file}.json.gz"))["average_step"]
    assert sum(found[f"{p}_ns"] for p in ("kernel", "memcpy", "memset")) / 1000 == pytest.approx(busy_us, abs=1)


# Two steps of 100 us; the first one's kernel, asked for at 10 to 15, begins at 2,015 and runs 50 us.
QUEUED = [step(0, 0, 100), step(1, 100, 100), launch(10, 1), kernel(2015, 50, 1), launch(110, 2), kernel(2065, 40, 2)]


@pytest.mark.parametrize(
    ("more", "total"),
    [
        ([], [50, 40]),  # the device did something before that is not recorded
        ([host("cuda_runtime", "cudaDeviceSynchronize", 1, 5)], [2065, 40]),  # and then it did not
        ([host("cpu_op", "aten::mm", -2500, 5)], [2065, 40]),  # longer than the recording had lasted: 2.5 ms
    ],
)
def test_a_step_begins_behind_what_the_recording_does_not_hold(
    write: Write, more: list[Event], total: list[float]
) -> None:
    assert us(overview(write, [*QUEUED, *more])["steps"]["total_ns"]) == total


def test_a_step_of_a_server_lasts_as_long_as_the_reference_report_says() -> None:
    """Cut out of others: its first copy began 7.8 ms after it had been asked for, and the step took 19.1 ms."""
    steps = answer("overview", shared("traces/tracelens/vllm_decode/graph_execution.json.gz"))["steps"]
    assert us(steps["total_ns"]) == [10_743.181]
    rates = answer("serving", shared("traces/tracelens/vllm_decode/graph_execution.json.gz"))["rates"]
    assert rates["decode_tokens_per_s"] == pytest.approx(32 / 0.010743181)


def test_steps_side_by_side_on_two_threads_keep_their_own_work(tmp_path: Path) -> None:
    """Two threads run one ONNX Runtime session; each run is 10 us, the second begins 2 us after the first."""

    def run(tid: int, at: int) -> list[Event]:
        node = {"cat": "Node", "name": f"conv{tid}_kernel_time", "ts": at + 5, "dur": 4, "args": {"op_name": "Conv"}}
        whole = {"cat": "Session", "name": "model_run", "ts": at, "dur": 10, "args": {}}
        return [{"ph": "X", "pid": 1, "tid": tid, **each} for each in (node, whole)]

    path = tmp_path / "ort.json"
    path.write_text(json.dumps([*run(1, 0), *run(2, 2)]))
    for step_name, own in (("0", "conv1"), ("1", "conv2")):
        assert rows(answer("operator", path, step=step_name), "calls") == {own: [1]}
