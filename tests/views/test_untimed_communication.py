"""Launches of asynchronous work whose kernels the file does not have: their host time is no time of the transfer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Write, json_of
from tests.recordings import recording_path
from visualprof.reader import read_trace
from visualprof.views import Params, run_view

MIB = 1 << 20


def recording(call: str, *, kernel: bool, linked: bool = True) -> list[dict[str, Any]]:
    """Return a step with a call of 40 us that sends 1 MiB, and a kernel of 300 us, linked to the call or not."""
    sizes = {
        "Collective name": "allreduce",
        "In msg nelems": MIB // 4,
        "Out msg nelems": MIB // 4,
        "dtype": "Float",
        "Group size": 2,
    }
    host = {"ph": "X", "pid": 1, "tid": 1}
    events = [
        {**host, "cat": "user_annotation", "name": "ProfilerStep#0", "ts": 0, "dur": 1000},
        {**host, "cat": "cpu_op", "name": "record_param_comms", "ts": 100, "dur": 44, "args": sizes},
        {**host, "cat": "user_annotation", "name": call, "ts": 102, "dur": 40},
        {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 110, "dur": 5, "args": {"correlation": 1}},
    ]
    device = {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel"}
    place = {"device": 0, "stream": 7}
    if kernel:
        number = {"correlation": 1} if linked else {}
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)"
        events.append({**device, "name": name, "ts": 200, "dur": 300, "args": {**place, **number}})
    else:
        events.append({**device, "name": "gemm", "ts": 200, "dur": 300, "args": place})
    return events


def collectives(write: Write, events: list[dict[str, Any]]) -> dict[str, list[Any]]:
    path = write(events, distributedInfo={"rank": 0, "world_size": 2})
    result = json_of(run_view("distributed").compute_from_traces([("0", read_trace(path))], Params()))
    return result["collectives"]["columns"]


def test_a_linked_kernel_is_the_transfer(write: Write) -> None:
    table = collectives(write, recording("nccl:all_reduce", kernel=True))
    assert table["calls"] == [1]
    assert table["bus_bandwidth_bytes_per_s"] == [pytest.approx(MIB / 300e-6)]


@pytest.mark.parametrize("call", ["nccl:all_reduce", "hccl:all_reduce", "all_reduce"])
def test_a_launch_without_a_kernel_has_no_time(write: Write, call: str) -> None:
    table = collectives(write, recording(call, kernel=False))
    assert (table["calls"], table["bytes"]) == ([1], [MIB])
    names = ("total_ns", "mean_ns", "transfer_ns", "wait_ns", "bus_bandwidth_bytes_per_s")
    assert [table[name] for name in names] == [[None]] * len(names)


def test_an_unlinked_kernel_does_not_make_the_launch_a_transfer(write: Write) -> None:
    table = collectives(write, recording("nccl:all_reduce", kernel=True, linked=False))
    times = dict(
        zip(table["bytes"], zip(table["total_ns"], table["bus_bandwidth_bytes_per_s"], strict=True), strict=True)
    )
    assert times == {MIB: (None, None), None: (300_000, None)}


def test_a_call_on_the_host_is_the_transfer(write: Write) -> None:
    events = [event for event in recording("gloo:all_reduce", kernel=False) if event["name"] != "record_param_comms"]
    table = collectives(write, events)
    assert table["total_ns"] == [40_000]


def test_missing_kernels_are_reported(write: Write) -> None:
    trace = read_trace(write(recording("nccl:all_reduce", kernel=False)))
    assert trace.meta.warnings[0].startswith("1 calls of communication have no kernels in the file")
    assert not read_trace(write(recording("nccl:all_reduce", kernel=True))).meta.warnings
    assert not read_trace(write(recording("gloo:all_reduce", kernel=False))).meta.warnings


def node(provider: str, name: str, ts: int, dur: int) -> dict[str, Any]:
    args = {"op_name": name, "provider": provider}
    place = {"cat": "Node", "ph": "X", "pid": 3, "tid": 3}
    return {**place, "ts": ts, "dur": dur, "name": f"{name}_kernel_time", "args": args}


@pytest.mark.parametrize(
    ("provider", "cat", "count"),
    [
        ("CUDAExecutionProvider", "Node", 1),
        ("ROCMExecutionProvider", "Node", 1),
        ("CPUExecutionProvider", "Node", 0),
        ("CUDAExecutionProvider", "Kernel", 0),
    ],
)
def test_nodes_on_a_gpu_without_kernels_are_reported(provider: str, cat: str, count: int, tmp_path: Path) -> None:
    run = {"cat": "Session", "pid": 3, "tid": 3, "ts": 0, "dur": 100, "ph": "X", "name": "model_run", "args": {}}
    events = [run, node(provider, "Conv", 10, 5), node(provider, "MemcpyToHost", 20, 70)]
    events.append({**events[1], "cat": cat, "tid": 4, "name": "conv_kernel"} if cat == "Kernel" else events[1])
    path = tmp_path / "ort.json"
    path.write_text(json.dumps(events))
    warnings = read_trace(path).meta.warnings
    assert len(warnings) == count
    assert all(f"has no kernels of {provider}" in warning for warning in warnings)


def test_reported_nodes_without_kernels() -> None:
    trace = read_trace(recording_path("cases/reports/44-ort-cuda-no-kernels/ort.json"))
    assert "has no kernels of CUDAExecutionProvider" in trace.meta.warnings[0]
