"""Rules for Ascend NPUs, on recordings of torch_npu small enough to compute by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import answer

BASE_US, PID = 1_700_000_000_000_000, 1000
CANN, HARDWARE = ((PID << 10) | (kind << 5) for kind in (7, 13))
STEPS = 4


def event(name: str, pid: int, tid: int, ts: float, dur: float, cat: str = "", **args: Any) -> dict[str, Any]:
    fields = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": f"{BASE_US + ts:.3f}", "dur": dur, "args": args}
    return fields | ({"cat": cat} if cat else {})


def recording(folder: Path, core: str, kernel_us: int, kernels: int, synchronizations: int, cores: int = 0) -> Path:
    """Steps in which an operator launches kernels that follow each other, waits after some, and then for the last.

    Each kernel has one block. With `cores`, the metrics of the kernels show that many cores at 1,800 MHz.
    """
    names = ((PID, "Python"), (CANN, "CANN"), (HARDWARE, "Ascend Hardware"))
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}} for pid, name in names
    ]
    events.append({"ph": "M", "name": "thread_name", "pid": HARDWARE, "tid": 2, "args": {"name": "Stream 2"}})
    lines = ["Name,Type,Accelerator Core,Start Time(us),Duration(us),Block Dim"]
    metrics = f",{kernel_us},{1_800 * kernel_us},{100 / cores}" if cores else ""
    lines[0] += ",aicore_time(us),aic_total_cycles,cube_utilization(%)" if cores else ""
    launched_us = 14 * kernels
    step_us = launched_us + kernels * kernel_us + 10
    for step in range(STEPS):
        start, number = step * step_us, step * kernels
        events.append(event(f"ProfilerStep#{step}", PID, PID, start, step_us, "cpu_op"))
        events.append(event("aten::sort", PID, PID, start + 1, step_us - 2, "cpu_op", **{"Fwd thread id": 0}))
        for i in range(kernels):
            at, begin = start + 2 + 14 * i, start + launched_us + i * kernel_us
            events.append(event("Node@launch", CANN, PID, at, 1, connection_id=number + i + 1))
            if i < synchronizations:
                events.append(event("AscendCL@aclrtSynchronizeStream", CANN, PID, at + 1, 10))
            task: dict[str, Any] = {"Task Type": core, "connection_id": number + i + 1}
            events.append(event("Sort_1", HARDWARE, 2, begin, kernel_us, **task))
            lines.append(f"Sort_1,Sort,{core},{BASE_US + begin:.3f},{kernel_us},1{metrics}")
        waiting = event("AscendCL@aclrtSynchronizeDevice", CANN, PID, start + launched_us, kernels * kernel_us + 1)
        events.append(waiting)
    (folder / "kernel_details.csv").write_text("\n".join(lines) + "\n")
    path = folder / "trace_view.json"
    path.write_text(json.dumps(events))
    return path


def findings(path: Path) -> dict[str, Any]:
    return {finding["id"]: finding for finding in answer("findings", path)["findings"]}


def test_kernels_on_the_ai_cpu_are_reported_with_their_gain(tmp_path: Path) -> None:
    finding = findings(recording(tmp_path, "AI_CPU", 300, 2, 0))["npu_ai_cpu"]
    evidence = finding["evidence"]
    assert (evidence["kernel"], evidence["ai_cpu_ns"]) == ("Sort_1", 600_000)
    assert evidence["ai_cpu_ratio"] == pytest.approx(600 / 638)
    # The second launch ends at 17 us, its kernel starts 25 us later as the first one did, and 10 us follow: 52 of 638.
    assert finding["gain_ns_per_step"] == pytest.approx((638 - 52) * 1000, abs=10)


@pytest.mark.parametrize(("core", "kernel_us"), [("AI_VECTOR_CORE", 300), ("AI_CPU", 15)])
def test_other_cores_and_short_kernels_are_not_reported(tmp_path: Path, core: str, kernel_us: int) -> None:
    assert "npu_ai_cpu" not in findings(recording(tmp_path, core, kernel_us, 2, 0))


def test_a_synchronization_per_launch_is_reported(tmp_path: Path) -> None:
    evidence = findings(recording(tmp_path, "AI_VECTOR_CORE", 20, 24, 24))["npu_launch_blocking"]["evidence"]
    assert evidence == {"calls_per_step": 24, "launches_per_step": 24, "sync_ns": 240_000}


@pytest.mark.parametrize(("kernels", "synchronizations"), [(24, 11), (10, 10)])
def test_rare_synchronization_and_few_launches_are_not(tmp_path: Path, kernels: int, synchronizations: int) -> None:
    assert "npu_launch_blocking" not in findings(recording(tmp_path, "AI_VECTOR_CORE", 20, kernels, synchronizations))


def test_kernels_with_fewer_blocks_than_cores_are_reported_with_an_upper_bound(tmp_path: Path) -> None:
    finding = findings(recording(tmp_path, "AI_CORE", 300, 2, 0, cores=4))["npu_few_cores"]
    # Both kernels use one of four cores, so three quarters of their 600 us of 638 us are the bound.
    evidence = {"calls": 8, "kernel": "Sort_1", "few_cores_ns": 600_000, "cores_ratio": 0.25}
    assert finding["evidence"] == evidence | {"few_cores_ratio": pytest.approx(600 / 638)}
    assert finding["gain_ns_per_step"] is None
    assert finding["most_ns_per_step"] == 450_000


@pytest.mark.parametrize(("kernel_us", "cores"), [(300, 0), (300, 1), (15, 4)])
def test_unknown_cores_full_devices_and_short_kernels_are_not_reported(
    tmp_path: Path, kernel_us: int, cores: int
) -> None:
    assert "npu_few_cores" not in findings(recording(tmp_path, "AI_CORE", kernel_us, 2, 0, cores=cores))
