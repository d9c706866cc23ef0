"""Numbers of the step, operator and kernel views against values that other projects' tests assert.

Source of the values: traces/kineto/README.md (tests of torch-tb-profiler and HTA).
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import FIXTURES, Write, answer, rows, trace_of
from tests.reader.test_kineto import call, kernel, op
from tests.recordings import recording_path
from visualprof.views.measure.findings.detection import RuleContext
from visualprof.views.measure.launches.launch import is_kernel, launches
from visualprof.views.rules import all_rules

PARTS = ("kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu", "other", "total")
V100 = "traces/kineto/tb_plugin/resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz"


def micro(name: str) -> Path:
    return recording_path(f"traces/kineto/micro/{name}.json")


def steps_us(path: Path) -> dict[str, list[float]]:
    steps = answer("overview", path)["steps"]
    return {p: [v / 1000 for v in steps[f"{p}_ns"]] for p in PARTS}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "test_all_categories",
            {
                "kernel": [15],
                "memcpy": [10],
                "memset": [5],
                "runtime": [30],
                "dataloader": [180],
                "cpu": [35],
                "other": [125],
            },
        ),
        ("test_no_profilerstep", {"kernel": [100], "runtime": [10], "cpu": [70], "other": [140], "total": [320]}),
        (
            "test_multiple_profilersteps_no_overlap",
            {
                "memcpy": [40, 0],
                "kernel": [0, 200],
                "runtime": [5, 5],
                "cpu": [55, 45],
                "other": [120, 10],
                "total": [220, 260],
            },
        ),
        ("test_pure_cpu", {"cpu": [10, 40], "other": [190, 60], "total": [200, 100]}),
        (
            "test_distributed_nccl.a",
            {"kernel": [105], "communication": [75], "cpu": [20], "other": [35], "total": [235]},
        ),
        ("test_distributed_nccl.b", {"communication": [74], "total": [235]}),
        ("test_datapipe", {"dataloader": [23], "cpu": [0]}),
    ],
)
def test_step_breakdown_of_hand_made_traces(name: str, expected: dict[str, list[int]]) -> None:
    result = steps_us(micro(name))
    assert {k: result[k] for k in expected} == expected


OPERATOR = ("host_total_ns", "host_self_ns", "device_total_ns", "device_self_ns")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("test_all_categories", {"aten::to": [60, 60, 0, 0], "aten::nll_loss_backward": [70, 35, 30, 30]}),
        ("test_no_profilerstep", {"aten::to": [60, 60, 0, 0], "aten::nll_loss_backward": [70, 50, 100, 100]}),
        ("test_multiple_profilersteps_no_overlap", {"aten::to": [60, 55, 40, 40], "aten::mm": [50, 45, 200, 200]}),
        ("test_external_id", {"aten::mat_mul": [100, 30, 26, 14], "aten::mm": [70, 70, 12, 12]}),
        ("test_runtime_launch_multipe_kernels", {"Broadcast": [300, 280, 253118, 253118]}),
    ],
)
def test_operator_times_of_hand_made_traces(name: str, expected: dict[str, list[int]]) -> None:
    table_rows = rows(answer("operator", micro(name)), *OPERATOR)
    assert {k: [v / 1000 for v in values] for k, values in table_rows.items()} == expected


def test_a_data_pipe_is_not_an_operator() -> None:
    assert answer("operator", micro("test_datapipe"))["total_rows"] == 0


def test_one_call_may_launch_two_kernels() -> None:
    table = answer("kernel", micro("test_runtime_launch_multipe_kernels"))["columns"]
    assert (table["name"], table["calls"]) == (["ncclBroadcastRingLLKernel_copy_i8(ncclColl)"], [2])


def test_device_utilization_of_overlapping_kernels() -> None:
    (device,) = answer("overview", micro("test_gpu_utilization"))["devices"]
    assert device["id"] == 1
    assert device["utilization"] == 60 / 120
    assert device["sm_efficiency"] == pytest.approx((0.5 * 5 + 1.0 * 5 + 0.6 * 5 + 0.9 * 5 + 0.3 * 20 + 1.0 * 20) / 120)
    assert device["occupancy"] * 100 == pytest.approx((0.6 * 10 + 0.1 * 15 + 1.0 * 25 + 0.3 * 20) / 70)


def test_kernels_grouped_by_operator_and_launch_attributes() -> None:
    table = answer("kernel", micro("test_group_by_kernel_columns"), group="launch")["columns"]
    keys = ("operator", "grid", "block", "calls", "total_ns", "mean_ns", "min_ns", "max_ns")
    sorted_rows = sorted(zip(*(table[k] for k in keys), strict=True))
    assert sorted_rows == [
        ("op1", "[16, 1, 1]", "[16, 16, 16]", 2, 25000, 12500, 10000, 15000),
        ("op1", "[16, 1, 1]", "[16, 16, 64]", 1, 13000, 13000, 13000, 13000),
        ("op2", "[16, 1, 1]", "[16, 16, 64]", 1, 17000, 17000, 17000, 17000),
    ]


def test_v100_average_step() -> None:
    average = answer("overview", recording_path(V100))["average_step"]
    expected = {
        "total": 177592,
        "kernel": 98589,
        "memcpy": 1915,
        "memset": 89,
        "communication": 0,
        "runtime": 2908,
        "dataloader": 59262,
        "cpu": 13674,
        "other": 1156,
    }
    assert {p: round(average[f"{p}_ns"] / 1000 + 1e-6) for p in expected} == expected


def test_v100_first_steps() -> None:
    steps = answer("overview", recording_path(V100))["steps"]
    assert steps["name"] == ["5", "6", "7", "8", "9", "10"]
    expected = [
        (187948, 98598, 1941, 90, 2796, 69317, 14091, 1115),
        (175153, 98570, 1947, 89, 2762, 57669, 12968, 1148),
        (179733, 98596, 1931, 91, 2877, 61257, 13768, 1213),
    ]
    parts = ("total", "kernel", "memcpy", "memset", "runtime", "dataloader", "cpu", "other")
    assert [tuple(steps[f"{p}_ns"][i] // 1000 for p in parts) for i in range(3)] == expected


def test_v100_device() -> None:
    (device,) = answer("overview", recording_path(V100))["devices"]
    keys = ("utilization", "sm_efficiency", "occupancy", "tensor_core_ratio")
    assert [round(device[k] * 100, 2) for k in keys] == [55.51, 54.68, 49.13, 0.0]
    assert (device["name"], device["memory_bytes"], device["compute_capability"]) == (
        "Tesla V100-DGXS-32GB",
        34084028416,
        "7.0",
    )


def test_v100_operators() -> None:
    table_rows = rows(
        answer("operator", recording_path(V100)),
        "calls",
        "device_self_ns",
        "device_total_ns",
        "host_self_ns",
        "host_total_ns",
    )
    assert len(table_rows) == 76
    us = {k: [v[0], *(x / 1000 for x in v[1:])] for k, v in table_rows.items()}
    assert us["aten::cudnn_convolution_backward_weight"] == [318, 142461, 142461, 22804, 40246]
    assert us["aten::cudnn_convolution_backward_input"] == [312, 130967, 130967, 29324, 41445]
    assert us["aten::cudnn_convolution"] == [318, 126619, 126619, 33121, 56998]
    assert us["aten::cudnn_batch_norm_backward"] == [318, 61939, 61939, 12238, 30460]


def test_v100_kernels() -> None:
    table = answer("kernel", recording_path(V100))["columns"]
    assert len(table["name"]) == 67
    keys = ("calls", "total_ns", "mean_ns", "max_ns", "min_ns", "blocks_per_sm", "occupancy")
    sorted_rows = [[round(v, 4) for v in values] for values in zip(*(table[k][:3] for k in keys), strict=True)]
    us = [
        [c, t / 1e3, round(m / 1e3), x / 1e3, n / 1e3, round(b, 2), round(o * 100, 2)]
        for c, t, m, x, n, b, o in sorted_rows
    ]
    assert us == [
        [162, 80756, 498, 1017, 323, 42.25, 29.97],
        [156, 66472, 426, 745, 345, 9.78, 38.0],
        [264, 59642, 226, 915, 45, 4.34, 67.98],
    ]


def test_v100_findings() -> None:
    overview = answer("overview", recording_path(V100))
    findings, average = answer("findings", recording_path(V100))["findings"], overview["average_step"]
    loading = next(f for f in findings if f["id"] == "dataloader_bound")
    assert round(average["dataloader_ns"] / average["total_ns"] * 100, 1) == 33.4  # torch-tb-profiler's share
    assert round(loading["evidence"]["dataloader_ratio"] * 100, 1) == 33.5  # that of the median step
    gain = answer("whatif", recording_path(V100), change="dataloader=0")["step"]["gain_ns"]
    assert loading["gain_ns_per_step"] == gain
    assert round(gain / 1e6, 1) == 59.1
    # Half the time of products would bring 2.7 of 177 ms: the host sets the pace.
    (products,) = all_rules()["tensor_cores_unused"].detect(RuleContext(trace_of(recording_path(V100))))
    assert round(float(products.evidence["eligible_ratio"]) * 100) == 68
    assert "tensor_cores_unused" not in {f["id"] for f in findings}


HTA = {
    "nccl_data__a100_rank0of2": (2700, 162532.3, 21, 46876.5),
    "trace_diff_control__a100_rank3of8": (8568, 446813, 60, 163535),
    "df_index_resolver__v100_rank1of2_nccl_memory": (19370, 977859, 2020, 357343),
    "sampled_rank-0of128": (1154, 606519, 10, 396199),
}


@pytest.mark.parametrize("name", HTA)
def test_kernels_and_collectives_are_all_counted(name: str) -> None:
    table = answer("kernel", recording_path(f"traces/kineto/hta/{name}.json.gz"))["columns"]
    comm = ["nccl" in n for n in table["name"]]
    calls, total = np.array(table["calls"]), np.array(table["total_ns"])
    found = (calls.sum(), round(total.sum() / 1000, 1), calls[comm].sum(), round(total[comm].sum() / 1000, 1))
    assert found == pytest.approx(HTA[name], abs=0.11)


@pytest.mark.parametrize(
    ("name", "linked", "kernels"),
    [
        ("nccl_data__a100_rank0of2", 2700, 2700),
        ("trace_diff_control__a100_rank3of8", 8520, 8568),
        ("df_index_resolver__v100_rank1of2_nccl_memory", 19370, 19370),
        ("sampled_rank-0of128", 1138, 1154),
    ],
)
def test_kernels_find_their_operator(name: str, linked: int, kernels: int) -> None:
    lost = answer("operator", recording_path(f"traces/kineto/hta/{name}.json.gz"))["unlinked"]
    assert kernels - lost["kernels"] == linked


def test_utilization_agrees_with_torch_tb_profiler_where_it_is_right() -> None:
    expected = json.loads(recording_path("traces/kineto/expected_tb_head.json").read_text())
    for file, values in expected.items():
        (device,) = answer("overview", recording_path(f"traces/{file}"))["devices"]
        gpu = values["gpu"]
        assert device["utilization"] * 100 == pytest.approx(float(gpu["GPU Utilization"].rstrip(" %")), abs=0.006), file
        assert device["sm_efficiency"] * 100 == pytest.approx(
            float(gpu["Est. SM Efficiency"].rstrip(" %")), abs=0.006
        ), file
        assert _occupancy_with_unknown_as_0(recording_path(f"traces/{file}")) * 100 == pytest.approx(
            float(gpu["Est. Achieved Occupancy"].rstrip(" %")), abs=0.006
        ), file


def _occupancy_with_unknown_as_0(path: Path) -> float:
    """The plugin counts the 0 that stands for what torch could not compute; we leave those kernels out."""
    trace = trace_of(path)
    kernels = np.flatnonzero(is_kernel(trace) & (trace.events.dur > 0))
    occupancy = trace.arg("occupancy", kernels, np.nan)
    return float(np.average(np.nan_to_num(occupancy), weights=trace.events.dur[kernels]))


def occupancies(write: Write, *kernels: tuple[int, float, int, int]) -> list[float | None]:
    """Occupancy of kernels by their (percent, blocks per SM, threads of a block, shared memory)."""
    events = [
        kernel(
            100 * i,
            0,
            50,
            f"k{i}",
            7,
            **{"est. achieved occupancy %": p, "blocks per SM": b, "block": [n, 1, 1], "shared memory": m},
        )
        for i, (p, b, n, m) in enumerate(kernels)
    ]
    path = write(events, deviceProperties=[{"id": 0, "maxThreadsPerMultiprocessor": 2048}])
    table_rows = rows(answer("kernel", path), "occupancy")
    return [table_rows[f"k{i}"][0] for i in range(len(kernels))]


def test_an_occupancy_of_0_that_torch_could_not_compute_is_unknown(write: Write) -> None:
    # One block of 384 threads fills 384 / 2048 = 18.75 % of the multiprocessor that runs it: 0 % cannot be. A fiftieth
    # of a block of 128 on each of them is 0.125 %, which rounds to 0 %; so does 0.07 of a block of 128: 0.44 %.
    result = occupancies(
        write, (0, 0.97, 384, 196_608), (0, 0.02, 128, 0), (0, 0.07, 128, 0), (0, 0.09, 128, 0), (19, 0.97, 384, 0)
    )
    assert result == [None, 0, 0, None, 0.19]


def test_occupancy_of_a_device_counts_kernels_with_known_occupancy() -> None:
    path = FIXTURES / "torch_cuda" / "gemm_precisions.pt.trace.json.gz"
    kernels = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    args = [(e["dur"], e["args"]) for e in kernels if e.get("cat") == "kernel"]
    asked = [a["shared memory"] for _, a in args if a["est. achieved occupancy %"] == 0]
    assert min(asked) > 48 * 1024  # what a kernel may use without asking for more; the calculator knows no more
    known = [(d, a["est. achieved occupancy %"]) for d, a in args if a["est. achieved occupancy %"]]
    (device,) = answer("overview", path)["devices"]
    assert device["occupancy"] * 100 == pytest.approx(sum(d * p for d, p in known) / sum(d for d, _ in known), rel=1e-4)


def span(name: str, ts: float, dur: float) -> dict[str, Any]:
    return op(name, ts, dur) | {"cat": "user_annotation"}


def test_a_launch_outside_operators_belongs_to_the_range_around_it(write: Write) -> None:
    path = write(
        [
            span("Optimizer.step#Adam.step", 100, 100),
            call(110, 1),
            kernel(300, 1, 20),
            op("aten::add_", 120, 20),
            call(125, 2),
            kernel(320, 2, 30),
            span("ema", 150, 40),
            call(160, 3),
            kernel(350, 3, 5),
            call(250, 4),
            kernel(360, 4, 7),
        ]
    )
    launched = answer("kernel", path, group="launch")["columns"]
    values_by_name = dict(
        zip(launched["total_ns"], zip(launched["operator"], launched["user_range"], strict=True), strict=True)
    )
    assert values_by_name == {
        20_000: ("Optimizer.step#Adam.step", True),
        30_000: ("aten::add_", False),
        5_000: ("ema", True),
        7_000: ("", None),
    }
    operators = answer("operator", path)
    assert rows(operators, "device_total_ns") == {"aten::add_": [30_000]}
    assert operators["unlinked"] == {"kernels": 3, "total_ns": 32_000}
    assert rows(operators["ranges"], "kernels", "total_ns") == {
        "Optimizer.step#Adam.step": [1, 20_000],
        "ema": [1, 5_000],
    }


def test_kernels_have_the_standard_deviation_of_their_durations(write: Write) -> None:
    # 10, 20 and 60 us: mean 30, squares 400 + 100 + 900, over n - 1: 700; one call alone deviates from nothing known
    events = [kernel(100 * i, 0, dur) for i, dur in enumerate((10, 20, 60))] + [kernel(900, 0, 5, "other")]
    copies = [kernel(1000 + 100 * i, 0, dur, "copy") | {"cat": "gpu_memcpy"} for i, dur in enumerate((1, 3))]
    answered = answer("kernel", write(events + copies))
    table_rows = rows(answered, "stddev_ns")
    assert (table_rows["gemm"][0], table_rows["other"]) == (pytest.approx(1000 * 700**0.5), [None])
    assert rows(answered["memory_operations"], "stddev_ns") == {"copy": [pytest.approx(1000 * 2**0.5)]}


def test_events_belong_to_the_stage_that_asked_for_them(write: Write) -> None:
    # Forward 0..100 holds two operators, one in the other, and launches a kernel that runs in backward 100..200, which
    # holds an operator and launches nothing; what is before the step is left out.
    path = write(
        [
            span("ProfilerStep#1", 0, 250),
            op("aten::before", -50, 20),
            op("aten::add", 210, 5),
            span("forward", 0, 100),
            op("aten::linear", 10, 50),
            op("aten::addmm", 20, 30),
            call(25, 1),
            span("backward", 100, 100),
            op("aten::mul", 110, 20),
            kernel(120, 1, 60),
        ]
    )
    table = answer("overview", path)["stage_events"]["columns"]
    values_by_name = {(c, k, s): rest for c, k, s, *rest in zip(*table.values(), strict=True)}
    assert values_by_name == {
        ("kernel", "device", "forward"): [1, 60_000, 60_000, 1],
        ("op", "host", "forward"): [2, 50_000, 80_000, pytest.approx(80 / 105)],
        ("op", "host", "backward"): [1, 20_000, 20_000, pytest.approx(20 / 105)],
        ("op", "host", "other"): [1, 5_000, 5_000, pytest.approx(5 / 105)],
        ("runtime", "host", "forward"): [1, 5_000, 5_000, 1],
        ("annotation", "host", "forward"): [1, 100_000, 100_000, 0.5],
        ("annotation", "host", "backward"): [1, 100_000, 100_000, 0.5],
    }


def test_a_fused_optimizers_kernels_are_its_ranges() -> None:
    path = recording_path("traces/kineto/hta/trace_diff_control__a100_rank3of8.json.gz")
    operators = answer("operator", path)  # by hand: 8 multi-tensor kernels in each of six steps
    assert rows(operators["ranges"], "kernels") == {"Optimizer.step#FusedAdam.step": [48]}


def test_mtia_kernels_have_the_call_of_their_correlation_id() -> None:
    # The device's pid is that of some calls, too ("synchronize" on the submission queues).
    path = recording_path("traces/kineto/hta/mtia_inference_rank_0.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    ids = {e["args"].get("correlation") for e in events if e.get("cat") == "mtia_runtime"}
    asked = [e for e in events if e.get("cat") == "mtia_ccp_events" and e["name"] in ("remote", "merge", "pe_exe")]
    joined = launches(trace_of(path))
    with_call = (joined.call >= 0) & is_kernel(trace_of(path))[joined.work]
    assert (
        with_call.sum() == sum(e["args"].get("correlation") in ids for e in asked if "correlation" in e["args"]) == 73
    )


def test_amd_launches_are_joined() -> None:
    path = recording_path("traces/kineto/hta/amd_mi250_minitoy_train_ROCm6_2.json.gz")
    assert answer("operator", path)["unlinked"]["kernels"] == 0
    assert "hipLaunchKernel" in rows(answer("runtime", path), "calls")


@pytest.mark.parametrize("name", ["amd_mi250_minitoy_train_ROCm6_2", "mtia_inference_rank_0"])
def test_tensor_cores_of_other_makers_are_unknown(name: str) -> None:
    path = recording_path(f"traces/kineto/hta/{name}.json.gz")
    kernels = answer("kernel", path)
    assert kernels["tensor_core"] is None
    assert set(kernels["columns"]["tensor_core"]) == {None}
    operators = answer("operator", path)["columns"]
    for column in ("tensor_core_eligible", "tensor_core_self_ratio", "tensor_core_total_ratio"):
        assert set(operators[column]) == {None}


def test_triton_launch_through_the_driver_is_a_runtime_call() -> None:
    assert "cuLaunchKernel" in rows(
        answer("runtime", recording_path("traces/kineto/hta/triton_example.json.gz")), "calls"
    )


def test_cpu_only_rank_has_no_device() -> None:
    assert answer("overview", recording_path("traces/kineto/hta/rank_non_gpu.json.gz"))["devices"] == []


def test_a_range_counts_once_despite_an_operator_of_its_name(write: Write) -> None:
    def event(cat: str, name: str, ts: int, dur: int) -> dict[str, object]:
        return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}

    ranges = [("block", 10, 50), ("block", 20, 10), ("inner", 20, 5)]
    path = write([event("cpu_op", "block", 0, 100), *(event("user_annotation", *each) for each in ranges)])
    columns = answer("overview", path)["annotations"]["columns"]
    assert dict(zip(columns["name"], columns["host_total_ns"], strict=True)) == {"block": 50_000, "inner": 5_000}
