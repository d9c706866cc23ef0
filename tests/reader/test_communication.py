"""Recognizing communication in every format: by the name of the kernel, otherwise by what surrounds its launch."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Write, answer
from tests.recordings import recording_path
from visualprof.reader import Trace, read_trace
from visualprof.reader.communication import (
    computes_and_communicates,
    is_communication_call,
    is_communication_kernel,
    is_computation_kernel,
    is_surrounding_communication,
)
from visualprof.reader.trace import Category, TrackKind
from visualprof.views.measure.ranks.rank_summary import rank_summary


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
        "rcclGenericKernel",
        "mcclKernel_AllReduce",
        "void cncl_all_gather()",
        "bkcl_send",
        "eccl_kernel",
        "ixcclDevKernel",
        "lcclAllReduce",
        "xccl_kernel",
        "flagcxKernel",
        "hcom_allReduce__586_0_1",
        "all-gather-start.3",
        "%reduce-scatter.1",
        "ragged-all-to-all",
        "collective-permute-done",
        "send.4",
        "recv-done",
        "void vllm::cross_device_reduce_2stage<half, 8>(int)",
        "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<8>()",
        "oneShotAllReduceKernel",
        "void multimem_all_gather_kernel<16>(int)",
        "one_shot_all_reduce_kernel",
        "nvshmemx_quiet_kernel",
        "void deep_ep::internode_ll::combine<true>(int)",
        "void dpsk::ep::internode::cached_notify<false>(int)",
        "void mscclpp::allreduce7<half>()",
        "mscclKernel_Sum_half_Simple_false",
        "quickreduce::allreduce_prototype_twoshot",
        "userbuffers_fp16_sum_inplace",
        "void mori::moe::EpCombineInterNodeKernel<int>()",
        "iris::all_gather_kernel",
        "MoeDistributeDispatch",
    ],
)
def test_kernels_that_communicate(name: str) -> None:
    assert is_communication_kernel(name)


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::reduce_kernel<512, 1, ReduceOp<float>>()",
        "__amd_rocclr_copyBuffer",
        "occlusion_kernel",
        "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>()",
        "void softmax<BlockAllReduce<float>>()",
        "void dpsk::ep::cuda::get_dispatch_layout<256>()",
        "void deep_ep::intranode::get_dispatch_layout<256>()",
        "reduce_segments",
        "splitKreduce_kernel",
        "sender_kernel",
    ],
)
def test_kernels_that_do_not_communicate(name: str) -> None:
    assert not is_communication_kernel(name)
    assert not computes_and_communicates(name)


@pytest.mark.parametrize("name", ["gemm_all_reduce_fused_kernel", "MatmulAllReduce", "AllGatherMatmul", "ag_gemm"])
def test_kernels_that_compute_and_communicate(name: str) -> None:
    assert computes_and_communicates(name)
    assert not is_communication_kernel(name)


def test_names_of_libraries_calls_and_of_what_surrounds_a_launch() -> None:
    for name in ("nccl:all_reduce", "c10d::allreduce_", "record_param_comms", "ncclAllReduce", "HcclAllGather"):
        assert is_communication_call(name)
        assert is_surrounding_communication(name)
    for name in ("vllm::all_reduce", "symm_mem::one_shot_all_reduce", "all_gather", "_c10d_functional::all_reduce"):
        assert not is_communication_call(name)
        assert is_surrounding_communication(name)
    for name in ("fsdp::all_gather_copy_in", "vllm::gemm_rs", "_c10d_functional::wait_tensor", "aten::mm", "forward"):
        assert not is_surrounding_communication(name)
    assert is_computation_kernel("void at::native::vectorized_elementwise_kernel<4>()")
    assert not is_computation_kernel("my_kernel")


def launch(name: str, ts: int, correlation: int, around: str = "", category: str = "cpu_op") -> list[dict[str, Any]]:
    """A kernel of 80 us, its call, and perhaps an operator or range around the call."""
    host = {"ph": "X", "pid": 1, "tid": 1, "args": {}}
    events = [{**host, "cat": category, "name": around, "ts": ts, "dur": 20}] if around else []
    call = {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": ts + 2, "dur": 5}
    work = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts + 10, "dur": 80}
    return [
        *events,
        {**call, "args": {"correlation": correlation}},
        {**work, "args": {"device": 0, "stream": 7, "correlation": correlation}},
    ]


def communication(trace: Trace) -> list[str]:
    """Names of the kernels that communicate."""
    is_on_device = trace.track_mask(TrackKind.STREAM) & (trace.events.category == Category.COMM)
    return [trace.strings[i] for i in trace.events.name[is_on_device].tolist()]


def test_the_innermost_operator_around_a_launch_decides_for_a_kernel_without_a_telling_name(write: Write) -> None:
    outer = {"ph": "X", "cat": "cpu_op", "name": "vllm::all_reduce", "pid": 1, "tid": 1, "ts": 1000, "dur": 60}
    events = [
        *launch("kernel_a", 100, 1, "symm_mem::one_shot_all_reduce"),
        *launch("kernel_b", 200, 2, "aten::mm"),
        *launch("void at::native::elementwise_kernel<1>()", 300, 3, "vllm::all_reduce"),  # it copies
        *launch("kernel_c", 400, 4, "all_gather", "user_annotation"),
        *launch("kernel_d", 500, 5),
        outer,
        *launch("kernel_e", 1010, 6, "aten::clone"),  # the operator inside the collective
    ]
    assert communication(read_trace(write(events))) == ["kernel_a", "kernel_c"]


def test_a_kernel_with_the_arguments_of_a_collective_communicates(write: Write) -> None:
    events = launch("vendor_kernel", 100, 1)
    events[-1]["args"] |= {"Collective name": "allreduce", "Group size": 2}
    assert communication(read_trace(write(events))) == ["vendor_kernel"]


def test_a_range_around_a_launch_decides_in_a_database_of_nsight_systems_also(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as database:
        database.executescript("""
            CREATE TABLE StringIds(id INTEGER, value TEXT);
            INSERT INTO StringIds VALUES (1, 'kernel_a'), (2, 'sgemm'), (3, 'cudaLaunchKernel');
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start, end, deviceId, streamId, correlationId, globalPid,
             demangledName);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 180, 0, 7, 1, 16777216, 1),
             (200, 280, 0, 7, 2, 16777216, 2), (300, 380, 0, 7, 3, 16777216, 1);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId, nameId);
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 12, 16777217, 1, 3), (14, 16, 16777217, 2, 3),
             (40, 42, 16777217, 3, 3);
            CREATE TABLE NVTX_EVENTS(start, end, eventType, text, globalTid);
            INSERT INTO NVTX_EVENTS VALUES (5, 20, 59, 'all_reduce', 16777217);
        """)
    assert communication(read_trace(path)) == ["kernel_a"]


def test_a_product_with_a_collective_in_one_kernel_counts_as_both_and_overlaps(write: Write) -> None:
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#0", "pid": 1, "tid": 1, "ts": 0, "dur": 500}
    events = [step, *launch("ncclDevKernel_AllReduce", 100, 1), *launch("gemm_all_reduce_fused", 300, 2)]
    summary = rank_summary(read_trace(write(events)))
    assert summary.computation_ns.tolist() == [80_000]
    assert summary.communication_ns.tolist() == [160_000]
    assert summary.overlap_ns.tolist() == [80_000]


def test_collectives_of_the_reported_file_that_are_not_of_nccl() -> None:
    folder = "cases/reports/28-collective-kernel-names"
    assert len(communication(read_trace(recording_path(f"{folder}/trace.json")))) == 16
    assert len(communication(read_trace(recording_path(f"{folder}/nsys.sqlite")))) == 4
    average = answer("overview", recording_path(f"{folder}/trace.json"))["average_step"]
    assert (average["communication_ns"], average["kernel_ns"]) == (16 * 80_000, 2 * 80_000)
