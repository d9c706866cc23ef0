"""Chrome JSON of the vendors' own profilers: hipprof of Hygon and unitrace of Intel.

Expected times are the durations in the files below, added by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conftest import answer, rows
from tests.reader.test_formats import check_invariants
from visualprof.reader import read_trace
from visualprof.reader.trace import Category, TrackKind

BASE_NS = 81_000_000_123_456


def written(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def hip(cat: str, name: str, pid: str, tid: str, begin: int, dur: int, **args: Any) -> dict[str, Any]:
    """An event of hipprof: `ts` in us after the start, rounded; exact times in the arguments."""
    exact = {"BeginNs": str(BASE_NS + begin), "EndNs": str(BASE_NS + begin + dur)}
    times = {"ts": round(begin / 1000, 1), "dur": round(dur / 1000, 1)}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **times, "args": {**exact, **args}}


def dataflow(number: int, begin: int, stream: str, end: int) -> list[dict[str, Any]]:
    ends = (("s", "HOST", "Thread9", begin), ("t", "DCU", stream, end))
    return [
        {"ph": ph, "cat": "DataFlow", "name": "dep", "id": number, "pid": pid, "tid": tid, "ts": ns / 1000}
        for ph, pid, tid, ns in ends
    ]


def test_hipprof_has_exact_times_and_launches(tmp_path: Path) -> None:
    path = written(
        tmp_path / "result_9.json",
        [
            hip("HIP", "hipLaunchKernel", "HOST", "Thread9", 1_000, 4_004),
            hip("HIP", "hipMemcpyAsync", "HOST", "Thread9", 6_000, 2_000),
            hip("HIPOPS", "gemm", "DCU", "Stream1", 10_010, 50_007, devId=0, queueId=1),
            hip("HIPOPS", "ncclKernel_AllReduce", "DCU", "Stream2", 70_000, 9_000, devId=0, queueId=2),
            hip("HIPCOPY", "copy", "DCU", "H2D", 80_000, 3_000, devId=0, Bytes=4096),
            hip("HIPCOPY", "fill", "DCU", "SET", 90_000, 1_000, devId=0, Bytes=64),
            *dataflow(1, 1_000, "Stream1", 10_010),
            *dataflow(2, 6_000, "H2D", 80_000),
        ],
    )
    trace = read_trace(path)
    check_invariants(trace)
    assert (trace.meta.format, trace.meta.device_type) == ("hipprof", "hip")
    on_stream = trace.track_mask(TrackKind.STREAM)
    kernels = on_stream & (trace.events.category == Category.KERNEL)
    assert trace.events.ts[kernels].tolist() == [BASE_NS + 10_010]
    assert trace.events.dur[kernels].tolist() == [50_007]
    totals = {c: int(trace.events.dur[on_stream & (trace.events.category == c)].sum()) for c in Category}
    assert (totals[Category.COMM], totals[Category.MEMCPY], totals[Category.MEMSET]) == (9_000, 3_000, 1_000)
    launched = {trace.strings[trace.events.name[i]] for i in trace.links.dst.tolist()}
    assert launched == {"gemm", "copy"}
    assert trace.args["bytes"].values.tolist() == [4096, 64]


def call(name: str, ts: float, dur: float, **fields: Any) -> dict[str, Any]:
    return {"ph": "X", "tid": 7, "pid": 7, "name": name, "cat": "cpu_op", "ts": ts, "dur": dur, "id": 0, **fields}


def work(name: str, pid: int, ts: float, dur: float, number: int) -> list[dict[str, Any]]:
    lane = {"pid": pid, "tid": pid - 5}
    return [
        {"ph": "X", **lane, "name": name, "cat": "gpu_op", "ts": ts, "dur": dur, "args": {"id": str(number)}},
        {"ph": "t", **lane, "name": "dep", "cat": f"Flow_H2D_{number}_0", "ts": ts, "id": number},
    ]


def test_unitrace_has_devices_kernels_and_launches(tmp_path: Path) -> None:
    first, second = 4_294_967_295, 4_294_967_294
    names = [
        {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "HOST<node1>"}},
        {"ph": "M", "name": "process_name", "pid": first, "args": {"name": "DEVICE<node1>[Max 1550] 0:3a:0:0 #0.0"}},
        {"ph": "M", "name": "process_name", "pid": second, "args": {"name": "DEVICE<node1>[Max 1550] 0:9a:0:0 #1.1"}},
    ]
    arrow = {"ph": "s", "tid": 7, "pid": 7, "name": "dep", "id": 1, "cat": "Flow_H2D_1_0", "ts": 1_700_000_000_000_010}
    path = written(
        tmp_path / "python.7.json",
        [
            *names,
            call("zeCommandListAppendLaunchKernel", 1_700_000_000_000_010, 5),
            arrow,
            call("oneCCL::allreduce", 1_700_000_000_000_100, 50),
            *work("gemm_kernel", first, 1_700_000_000_000_020, 30.5, 1),
            *work("zeCommandListAppendMemoryCopy(M2D)[4096 bytes]", first, 1_700_000_000_000_060, 4, 2),
            *work("zeCommandListAppendBarrier", first, 1_700_000_000_000_070, 3, 3),
            *work("relu_kernel", second, 1_700_000_000_000_030, 10, 4),
        ],
    )
    trace = read_trace(path)
    check_invariants(trace)
    assert (trace.meta.format, trace.meta.device_type) == ("unitrace", "xpu")
    assert [(device.id, device.name) for device in trace.meta.devices] == [(0, "Max 1550"), (1001, "Max 1550")]
    assert rows(answer("kernel", path), "calls", "total_ns") == {"gemm_kernel": [1, 30_500], "relu_kernel": [1, 10_000]}
    (link,) = zip(trace.links.src.tolist(), trace.links.dst.tolist(), strict=True)
    assert [trace.strings[trace.events.name[i]] for i in link] == ["zeCommandListAppendLaunchKernel", "gemm_kernel"]
    runtime = rows(answer("runtime", path), "calls")
    assert runtime == {"zeCommandListAppendLaunchKernel": [1]}
