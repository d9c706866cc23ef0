"""Lanes of devices are recognized by names, arguments and arrows; lanes that repeat other lanes are not counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Write, answer, rows
from tests.recordings import recording_path
from visualprof.reader import Trace, read_trace
from visualprof.reader.lanes import Lane, device_category, device_lane, vendor_category, vendor_of_category
from visualprof.reader.trace import Category, TrackKind

STREAM, DERIVED = TrackKind.STREAM, TrackKind.GPU_ANNOTATION
ASCEND = "traces/ascend/text/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json.gz"


@pytest.mark.parametrize(
    ("process", "thread", "lane"),
    [
        ("GPU 1", "stream 7", Lane(STREAM, 1, 7, "cuda")),
        ("python GPU 0", "stream 20 ", Lane(STREAM, 0, 20, "cuda")),
        ("/device:GPU:2", "Stream #13(Compute)", Lane(STREAM, 2, 13, "cuda")),
        ("/device:GPU:0", "XLA Ops", Lane(DERIVED, 0, -1, "cuda")),
        ("/device:GPU:0", "Framework Name Scope", Lane(DERIVED, 0, -1, "cuda")),
        ("/device:TPU:0", "XLA Ops", Lane(STREAM, 0, -1, "tpu")),
        ("/device:TPU:0", "XLA Modules", Lane(DERIVED, 0, -1, "tpu")),
        ("Ascend Hardware NPU", "Stream 2", Lane(STREAM, -1, 2, "npu")),
        ("HCCL NPU 3", "Group 0 Communication", Lane(STREAM, 3, -1, "npu")),
        ("HCCL NPU 3", "Plane 1", Lane(DERIVED, 3, -1, "npu")),
        ("Overlap Analysis NPU", "Computing", Lane(DERIVED, -1, -1, "npu")),
        ("python", "stream 7", Lane(STREAM, -1, 7, "")),
        ("MLU 0", "Queue 3", Lane(STREAM, 0, 3, "mlu")),
        ("GPU Process", "CrGpuMain", None),
        ("/host:CPU", "python", None),
        ("/device:CPU:0", "stream", None),
        ("python CPU", "downstream 3 worker", None),
        ("GPU 0", "memory", None),
    ],
)
def test_names_of_process_and_thread_indicate_a_lane(process: str, thread: str, lane: Lane | None) -> None:
    assert device_lane(process, thread) == lane


def test_names_of_device_events_give_their_category() -> None:
    names = [
        "Memcpy HtoD",
        "MEMCPY_ASYNC",
        "Memset (Device)",
        "memset_kernel",
        "EVENT_WAIT",
        "Write Value",
        "gemm",
        "ncclX",
    ]
    kernel, other = Category.KERNEL, Category.OTHER
    expected = [Category.MEMCPY, Category.MEMCPY, Category.MEMSET, kernel, Category.SYNC, other, kernel, Category.COMM]
    assert [device_category(name) for name in names] == expected


def test_categories_of_every_vendor_mean_what_those_of_gpus_mean() -> None:
    for vendor in ("gpu", "mlu", "GCU", "musa", "xpu", "newchip2"):
        assert vendor_category(f"{vendor}_memcpy") == Category.MEMCPY
        assert vendor_category(f"{vendor}_memset") == Category.MEMSET
        assert vendor_category(f"{vendor}_sync") == Category.SYNC
        assert vendor_category(f"{vendor}_user_annotation") == Category.ANNOTATION
    assert vendor_of_category("hpu_op") == "hpu"
    assert vendor_of_category("gpu_op") == ""
    for cat in ("user_annotation", "cpu_op", "python_function", "memory", "cpu_memcpy", ""):
        assert vendor_category(cat) is None
    assert vendor_of_category("mlu_runtime") == "mlu"
    assert vendor_of_category("cuda_runtime") == ""


def names_of(trace: Trace, category: Category, kind: TrackKind = TrackKind.STREAM) -> list[str]:
    selected = trace.track_mask(kind) & (trace.events.category == category)
    return [trace.strings[i] for i in trace.events.name[selected].tolist()]


def named(pid: int, process: str, tid: int, thread: str) -> list[dict[str, Any]]:
    return [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": process}},
        {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": thread}},
    ]


def event(pid: int, tid: int, name: str, ts: float, dur: float, cat: str = "", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def test_copies_waits_and_annotations_of_a_vendor_are_not_host_events(write: Write) -> None:
    place = {"device": 0, "stream": 3}
    trace = read_trace(
        write(
            [
                event(1, 1, "aten::copy_", 0, 50, "cpu_op"),
                event(1, 1, "cnrtMemcpyAsync", 5, 10, "mlu_runtime", correlation=4),
                event(0, 3, "Memcpy HtoD", 20, 8, "mlu_memcpy", correlation=4, bytes=64, **place),
                event(0, 3, "Memset", 30, 2, "MLU_MEMSET", **place),
                event(0, 3, "Stream Sync", 40, 9, "mlu_sync", **place),
                event(0, 3, "forward", 15, 60, "mlu_user_annotation", **place),
            ]
        )
    )
    assert names_of(trace, Category.MEMCPY) == ["Memcpy HtoD"]
    assert names_of(trace, Category.MEMSET) == ["Memset"]
    assert names_of(trace, Category.SYNC) == ["Stream Sync"]
    assert names_of(trace, Category.ANNOTATION, TrackKind.GPU_ANNOTATION) == ["forward"]
    assert (trace.meta.device_type, trace.meta.warnings, len(trace.links.src)) == ("mlu", (), 1)


def test_an_unknown_category_of_device_events_is_a_warning(write: Write) -> None:
    trace = read_trace(
        write(
            [
                event(1, 1, "aten::mm", 0, 50, "cpu_op"),
                event(0, 5, "mme_gemm", 60, 30, "zpu_op", device=0, stream=5),
                event(0, 5, "mme_gemm", 90, 30, "zpu_op", device=0, stream=5),
            ]
        )
    )
    assert names_of(trace, Category.KERNEL) == ["mme_gemm"] * 2
    assert trace.meta.warnings == (
        "2 device events have the unknown category 'zpu_op': they were classified by their names",
    )


def test_the_engine_of_a_habana_device_decides(write: Write) -> None:
    trace = read_trace(
        write(
            [
                event(1, 1, "aten::mm", 0, 50, "cpu_op"),
                event(0, 6, "gemm", 60, 30, "hpu_op", **{"HW event name": "MMEH_WB"}),
                event(0, 7, "add", 60, 20, "hpu_op", **{"HW event name": "TPC_SPU_START_TO_SPU_HALT"}),
                event(0, 4, "load", 60, 10, "hpu_op", **{"HW event name": "DBG_DMA_TRC_WR_DATA_LAST"}),
                event(0, 9, "send", 60, 40, "hpu_op", **{"HW event name": "NIC0_TX"}),
                event(0, 8, "Memcpy HtoD", 60, 5, "hpu_op"),
                event(0, 5, "range", 60, 5, "mlu_profiler_range"),
            ]
        )
    )
    assert names_of(trace, Category.KERNEL) == ["gemm", "add"]
    assert sorted(names_of(trace, Category.MEMCPY)) == ["Memcpy HtoD", "load"]
    assert names_of(trace, Category.COMM) == ["send"]
    assert (trace.meta.device_type, trace.meta.warnings) == ("hpu", ())


def test_a_device_of_cambricon_has_its_memory_and_cores(tmp_path: Path) -> None:
    path = tmp_path / "mlu.pt.trace.json"
    properties = {"id": 0, "name": "MLU370-X4", "totalMem(MiB)": 23_308, "clusterCount": 8, "McorePerCluster": 4}
    kernel = event(0, 3, "MLUUnion1Kernel", 20, 8, "kernel", device=0, stream=3, correlation=1)
    call = event(1, 1, "cnInvokeKernel", 5, 10, "mlu_runtime", correlation=1)
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [properties], "traceEvents": [call, kernel]}))
    (device,) = read_trace(path).meta.devices
    assert (device.name, device.memory_bytes, device.multiprocessors) == ("MLU370-X4", 23_308 << 20, 32)


def test_an_arrow_from_an_operator_makes_an_unnamed_lane_one_of_a_device(tmp_path: Path) -> None:
    arrow = {"cat": "async_npu", "name": "async_npu", "id": "1"}
    path = tmp_path / "trace_view.json"
    path.write_text(
        json.dumps(
            [
                event(7, 7, "aten::mm", 10, 20, "cpu_op"),
                event(7, 8, "idle thread", 10, 5),
                event(999, 4, "MatMulV2", 40, 50),
                {**arrow, "ph": "s", "pid": 7, "tid": 7, "ts": 10},
                {**arrow, "ph": "f", "bp": "e", "pid": 999, "tid": 4, "ts": 40},
            ]
        )
    )
    assert names_of(read_trace(path), Category.KERNEL) == ["MatMulV2"]
    assert rows(answer("operator", path), "device_self_ns") == {"aten::mm": [50_000]}


def test_a_derived_lane_of_a_chrome_file_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "host.trace.json"
    events = [
        *named(1, "/device:GPU:0", 13, "Stream #13"),
        *named(1, "/device:GPU:0", 14, "XLA Ops"),
        event(701, 1, "cuLaunchKernel", 10, 20, correlation_id="1"),
        event(1, 13, "fusion", 60, 500, correlation_id="1"),
        event(1, 14, "fusion", 60, 500),
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    trace = read_trace(path)
    assert names_of(trace, Category.KERNEL) == ["fusion"]
    assert names_of(trace, Category.ANNOTATION, TrackKind.GPU_ANNOTATION) == ["fusion"]
    assert (trace.meta.device_type, len(trace.links.src)) == ("cuda", 1)


def test_device_lanes_of_the_reported_files() -> None:
    reports = "cases/reports"
    ascend = recording_path(f"{reports}/03-ascend-trace-view/trace_view.json")
    assert rows(answer("kernel", ascend), "calls", "total_ns") == {"MatMulV2": [3, 150_750]}
    assert rows(answer("operator", ascend), "device_self_ns") == {"aten::mm": [150_750]}
    jax = recording_path(f"{reports}/49-jax-trace-json/host.trace.json.gz")
    assert rows(answer("kernel", jax), "calls", "total_ns") == {"gemm_fusion_dot_1": [3, 1_500_000]}
    for name in ("sorted", "trace"):
        perfetto = recording_path(f"{reports}/41-torch-pftrace/{name}.pftrace")
        kernels = rows(answer("kernel", perfetto), "calls", "total_ns")
        assert kernels["gemm_k"] == [3, 240_000]
        assert sum(total for _, total in kernels.values()) == 440_000


def test_an_ascend_recording_has_its_kernels_collectives_and_copies_once() -> None:
    trace = read_trace(recording_path(ASCEND))
    stream = trace.track_mask(TrackKind.STREAM)

    def work(category: Category) -> tuple[int, int]:
        selected = stream & (trace.events.category == category)
        return int(selected.sum()), int(trace.events.dur[selected].sum())

    assert work(Category.KERNEL)[0] == 187
    assert work(Category.KERNEL)[1] == pytest.approx(8_873_737, abs=100)
    assert work(Category.COMM)[0] == 4
    assert work(Category.COMM)[1] == pytest.approx(105_991_876, abs=100)
    assert work(Category.MEMCPY)[0] == 24
    assert trace.meta.device_type == "npu"
    total = sum(total for (total,) in rows(answer("operator", recording_path(ASCEND)), "device_self_ns").values())
    assert total == pytest.approx(115_730_772, abs=100)
