"""Reading Kineto files, on examples small enough to read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.conftest import Write, answer, computed, rows
from tests.recordings import recording_path
from visualprof.reader import Trace, read_trace
from visualprof.reader.trace import Category, LinkKind, TrackKind
from visualprof.views import Params
from visualprof.views.overview import make_charts


def op(name: str = "aten::mm", ts: float = 100, dur: float = 50, tid: int | str = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}


def call(
    ts: float, correlation: int, dur: float = 5, name: str = "cudaLaunchKernel", cat: str = "cuda_runtime"
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 7,
        "tid": 1,
        "ts": ts,
        "dur": dur,
        "args": {"correlation": correlation},
    }


def kernel(
    ts: float, correlation: int, dur: float = 20, name: str = "gemm", stream: int = 7, **args: Any
) -> dict[str, Any]:
    arguments = {"device": 0, "stream": stream, "correlation": correlation, **args}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": arguments}


def test_fractional_microseconds_become_whole_nanoseconds(write: Write) -> None:
    trace = read_trace(write([op(ts=4458676522690.655, dur=156.777)], baseTimeNanoseconds=1711964646000000000))
    assert (trace.events.ts.tolist(), trace.events.dur.tolist()) == ([4458676522690655], [156777])
    assert trace.meta.clock_origin_ns == 1711964646000000000


def test_absolute_times_with_a_fraction_are_exact(write: Write) -> None:
    path = write([op()])
    path.write_text(path.read_text().replace('"ts": 100', '"ts": 1713219380123456.789'))
    trace = read_trace(path)
    assert trace.events.ts.tolist() == [1713219380123456789]
    assert trace.meta.clock_origin_ns == 0


def test_base_time_after_the_events_is_found(write: Write) -> None:
    path = write([op()])
    path.write_text(path.read_text()[:-1] + ', "baseTimeNanoseconds": 5}')
    assert read_trace(path).meta.clock_origin_ns == 5


def test_kernels_are_linked_to_the_call_with_their_correlation_id(write: Write) -> None:
    trace = read_trace(
        write(
            [op(), call(110, 9), call(120, 8, cat="cuda_driver", name="cuLaunchKernel"), kernel(130, 8), kernel(150, 9)]
        )
    )
    names = [trace.strings[n] for n in trace.events.name]
    launch = trace.links.kind == LinkKind.LAUNCH
    pairs = {
        (names[s], int(trace.events.ts[d]))
        for s, d in zip(trace.links.src[launch], trace.links.dst[launch], strict=True)
    }
    assert pairs == {("cudaLaunchKernel", 150_000), ("cuLaunchKernel", 130_000)}


def of_process(pid: int, event: dict[str, Any]) -> dict[str, Any]:
    return event | {"pid": pid}


def test_correlation_ids_mean_a_call_of_the_same_process(write: Write) -> None:
    # Kernels that stand under the pid of their process; one of process 2 has the id of a call of process 1 alone.
    events = [of_process(1, call(10, 1)), of_process(2, call(20, 1)), of_process(1, call(30, 2))]
    kernels = [of_process(2, kernel(100, 1)), of_process(1, kernel(200, 1)), of_process(2, kernel(300, 2))]
    assert launched(read_trace(write(events + kernels))) == {100: 20, 200: 10}


def test_a_kernel_under_its_devices_number_is_of_the_process_that_alone_has_its_id(write: Write) -> None:
    events = [of_process(7, call(10, 1)), of_process(8, call(20, 1)), of_process(8, call(30, 2))]
    assert launched(read_trace(write([*events, kernel(100, 1), kernel(200, 2)]))) == {200: 30}


def launched(trace: Trace) -> dict[int, int]:
    """Start of each kernel that has a call -> start of that call, us."""
    launch = trace.links.kind == LinkKind.LAUNCH
    at = trace.events.ts // 1000
    return dict(zip(at[trace.links.dst[launch]].tolist(), at[trace.links.src[launch]].tolist(), strict=True))


def on_device(number: int, event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "pid": number, "args": {**event["args"], "device": number}}


def test_shared_ids_of_processes_listed_one_after_the_other_are_told_apart_by_the_file(write: Write) -> None:
    """Both processes use the ids 1 and 2, and their kernels are on streams of one device number."""
    first = [of_process(7, call(10, 1)), of_process(7, call(20, 2)), kernel(100, 1), kernel(110, 2)]
    second = [of_process(8, call(15, 1)), of_process(8, call(25, 2)), kernel(120, 1), kernel(130, 2)]
    assert launched(read_trace(write(first + second))) == {100: 10, 110: 20, 120: 15, 130: 25}


def test_shared_ids_of_interleaved_processes_are_told_apart_by_device_and_time(write: Write) -> None:
    """No kernel starts before its launch: those of device 3 start before the calls of process 8."""
    calls = [of_process(pid, call(ts, id_)) for pid, ts, id_ in ((7, 10, 1), (8, 50, 1), (7, 20, 2), (8, 60, 2))]
    kernels = [on_device(3, kernel(12, 1)), on_device(4, kernel(52, 1)), on_device(3, kernel(22, 2))]
    kernels += [on_device(4, kernel(62, 2))]
    assert launched(read_trace(write(calls + kernels))) == {12: 10, 52: 50, 22: 20, 62: 60}


def test_pids_with_the_label_of_a_rank_belong_together(write: Write) -> None:
    """A tool that merges files put the rank before the pids of the host and of the device."""
    events = [
        {**event, "pid": f"[TP0{rank}] {pid}"}
        for rank in (0, 1)
        for pid, event in ((4000, call(10 + rank, 1)), (rank, kernel(100 + rank, 1)))
    ]
    assert launched(read_trace(write(events))) == {100: 10, 101: 11}


def test_forward_and_backward_are_linked_within_a_process(write: Write) -> None:
    def process(pid: int) -> list[dict[str, Any]]:
        ends = [("s", 100 + pid), ("f", 200 + pid)]
        arrow = [
            {"ph": ph, "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": pid, "tid": 1, "ts": t} for ph, t in ends
        ]
        return [of_process(pid, op(f"aten::{pid}", t)) for _, t in ends] + arrow

    links = read_trace(write(process(1) + process(2))).links
    assert links.kind.tolist() == [LinkKind.FWDBWD] * 2


def test_the_span_of_the_recording_is_a_session_and_not_in_the_overview(write: Write) -> None:
    span = {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "x", "ts": 0, "dur": 900}
    path = write([span, op(ts=100, dur=50)])
    trace = read_trace(path)
    assert sorted(trace.events.category.tolist()) == [Category.OP, Category.SESSION]
    overview = answer("overview", path)
    assert overview["events"]["columns"]["category"] == ["op"]
    drawn = make_charts(computed("overview", path), Params(), 10)["events"]
    assert drawn["xAxis"]["data"] == ["@t:category.op"]
    assert overview["average_step"]["total_ns"] == 50_000  # the operator's; the window around it is no work


def test_mtia_requests_are_copies_and_waits_are_not_kernels(write: Write) -> None:
    names = {"dma_request": 30, "event_wait": 20, "event_record": 1, "pe_exe": 40}
    events = [
        kernel(100 * i, 0, dur, name, 5, size=6000) | {"cat": "mtia_ccp_events"}
        for i, (name, dur) in enumerate(names.items())
    ]
    kernels = answer("kernel", write(events))
    assert rows(kernels, "calls", "total_ns") == {"pe_exe": [1, 40_000]}
    copies = rows(kernels["memory_operations"], "calls", "total_ns", "bytes", "bandwidth_bytes_per_s")
    assert copies == {"dma_request": [1, 30_000, 6000, 2e8]}


def test_mtia_inference_copies_as_long_as_its_requests_do() -> None:
    # Straight from the file: 877 dma_request events; HTA counts them as memory, too.
    path = recording_path("traces/kineto/hta/mtia_inference_rank_0.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    asked = [e for e in events if e.get("cat") == "mtia_ccp_events" and e["name"] == "dma_request"]
    copies = rows(answer("kernel", path)["memory_operations"], "calls", "total_ns", "bytes")
    assert copies == {
        "dma_request": [877, sum(round(e["dur"] * 1000) for e in asked), sum(e["args"]["size"] for e in asked)]
    }


def test_the_same_thread_as_number_and_text_is_one_track(write: Write) -> None:
    trace = read_trace(write([op(tid=5), op(ts=200, tid="5")]))
    assert len(trace.tracks) == 1


def test_streams_and_projected_annotations_are_tracks_of_their_own(write: Write) -> None:
    projected = {**kernel(100, 0), "cat": "gpu_user_annotation", "name": "forward"}
    trace = read_trace(write([kernel(100, 1), projected, op()]))
    assert sorted(t.kind for t in trace.tracks) == [TrackKind.THREAD, TrackKind.STREAM, TrackKind.GPU_ANNOTATION]


def test_categories_follow_from_category_and_name(write: Write) -> None:
    names = {
        "aten::mm": Category.OP,
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": Category.DATALOADER,
        "nccl:all_reduce": Category.COMM,
        "record_param_comms": Category.COMM,
        "ProfilerStep#3": Category.STEP,
        "Optimizer.step#Adam.step": Category.OPTIMIZER,
    }
    trace = read_trace(write([op(name=n, ts=100 * i) for i, n in enumerate(names)]))
    assert [Category(c) for c in trace.events.category] == list(names.values())


def test_collective_kernels_are_communication(write: Write) -> None:
    trace = read_trace(
        write([kernel(1, 1, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")])
    )
    assert trace.events.category.tolist() == [Category.COMM]


def test_steps_take_the_number_of_profiler_step(write: Write) -> None:
    trace = read_trace(
        write([op("ProfilerStep#41", 0, 100), op(ts=10), op("ProfilerStep#42", 100, 100), op(ts=150, dur=5)])
    )
    assert [trace.strings[n] for n in trace.steps.name] == ["41", "42"]
    inside = [
        (trace.strings[n], s)
        for n, s in zip(trace.events.name, trace.events.step, strict=True)
        if trace.strings[n] == "aten::mm"
    ]
    assert inside == [("aten::mm", 0), ("aten::mm", 1)]


def test_a_kernel_belongs_to_the_step_that_launched_it(write: Write) -> None:
    events = [op("ProfilerStep#1", 0, 100), op("ProfilerStep#2", 100, 100), call(90, 5), kernel(120, 5)]
    trace = read_trace(write(events))
    assert trace.events.step[trace.events.category == Category.KERNEL].tolist() == [0]


def test_forward_and_backward_are_linked(write: Write) -> None:
    flow = {"cat": "fwdbwd", "name": "fwdbwd", "id": 3, "pid": 7}
    events = [
        op("aten::mul", 100, 20),
        op("MulBackward0", 300, 20, tid=2),
        {**flow, "ph": "s", "tid": 1, "ts": 100},
        {**flow, "ph": "f", "bp": "e", "tid": 2, "ts": 300},
    ]
    trace = read_trace(write(events))
    at = trace.links.kind == LinkKind.FWDBWD
    assert [trace.strings[trace.events.name[i]] for i in (trace.links.src[at][0], trace.links.dst[at][0])] == [
        "aten::mul",
        "MulBackward0",
    ]


def test_memory_events_give_allocations_inside_their_operator(write: Write) -> None:
    args = {"Device Type": 1, "Device Id": 0, "Addr": 140445766594560, "Bytes": -512}
    args |= {"Total Allocated": 1024, "Total Reserved": 2048}
    memory = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "s": "t", "pid": 7, "tid": 1, "ts": 110}
    trace = read_trace(write([op(), {**memory, "args": args}]))
    allocs = trace.allocs
    assert (allocs.bytes.tolist(), allocs.device.tolist(), allocs.allocated.tolist(), allocs.reserved.tolist()) == (
        [-512],
        [0],
        [1024],
        [2048],
    )
    assert trace.strings[trace.events.name[allocs.event[0]]] == "aten::mm"


def test_launch_attributes_are_columns(write: Write) -> None:
    launch: dict[str, Any] = {
        "grid": [8, 1, 1],
        "registers per thread": 40,
        "est. achieved occupancy %": 75,
        "blocks per SM": 4.5,
    }
    trace = read_trace(write([kernel(1, 1, **launch)]))
    row = np.array([0])
    assert (
        trace.strings[int(trace.arg("grid", row)[0])] == "[8,1,1]"
        or trace.strings[int(trace.arg("grid", row)[0])] == "[8, 1, 1]"
    )
    assert (trace.arg("registers", row)[0], trace.arg("occupancy", row)[0], trace.arg("blocks_per_sm", row)[0]) == (
        40,
        0.75,
        4.5,
    )


def test_a_bare_list_of_events_is_read(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text('[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":2}]')
    assert (read_trace(path).meta.format, len(read_trace(path).events)) == ("kineto", 1)


def test_devices_and_rank_are_read(write: Write) -> None:
    device = {"id": 0, "name": "A100", "totalGlobalMem": 42, "computeMajor": 8, "computeMinor": 0, "numSms": 108}
    distributed = {"rank": 3, "world_size": 8, "backend": "nccl"}
    trace = read_trace(write([kernel(1, 1)], distributedInfo=distributed, deviceProperties=[device]))
    assert (trace.meta.rank, trace.meta.world_size, trace.meta.device_type) == (3, 8, "cuda")
    assert (trace.meta.devices[0].name, trace.meta.devices[0].compute_capability) == ("A100", "8.0")
