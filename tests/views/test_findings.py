"""Findings on hand-made traces: when a rule speaks, what the replay without its cause gains, and where it is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES, Write, answer, trace_of
from tests.recordings import recording_path
from visualprof.views.measure.findings.detection import Extent, RuleContext
from visualprof.views.rules import all_rules

Events = list[dict[str, Any]]
GPU = {"deviceProperties": [{"id": 0, "name": "V100", "computeMajor": 7, "computeMinor": 0}]}


def event(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def step(number: int, ts: float, dur: float) -> dict[str, Any]:
    return event(f"ProfilerStep#{number}", ts, dur, cat="user_annotation")


def call(at: float, dur: float, number: int, name: str = "cudaLaunchKernel") -> dict[str, Any]:
    return event(name, at, dur, cat="cuda_runtime", correlation=number)


def kernel(at: float, dur: float, number: int, name: str = "k", stream: int = 7) -> dict[str, Any]:
    cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
    return {**event(name, at, dur, cat, stream, device=0, stream=stream, correlation=number), "pid": 0}


def found(path: Path) -> dict[str, dict[str, Any]]:
    return {finding["id"]: finding for finding in answer("findings", path)["findings"]}


def seen_us(finding: dict[str, Any]) -> tuple[float, float]:
    return finding["start_ns"] / 1000, finding["end_ns"] / 1000


def test_a_graph_launch_counts_once_however_many_kernels_share_it(write: Write) -> None:
    """Every step: one graph launch of 50 us starts 40 kernels of 5 us; they fill 200 of 300 us."""
    events: Events = []
    for i in range(110):
        ts = 300 * i
        events += [step(i, ts, 300), call(ts, 50, i + 1, "cudaGraphLaunch")]
        events += [kernel(ts + 60 + 5 * k, 5, i + 1) for k in range(40)]
    # Each kernel is shorter than the call, but a launch of 50 us starts 200 us of work.
    assert "many_small_kernels" not in found(write(events, **GPU))


def test_the_gain_of_small_kernels_is_that_of_a_replay_without_launches(write: Write) -> None:
    """Every step of 1000 us: 40 launches of 10 us, 20 us apart (12 in the last one), a kernel of 4 us in each."""
    events: Events = []
    for i in range(3):
        events.append(step(i, 1000 * i, 1000))
        for k in range(40):
            at = 1000 * i + (20 * k if i < 2 else 12 * k)
            events += [call(at, 10, 100 * i + k + 1), kernel(at + 5, 4, 100 * i + k + 1)]
    path = write(events, **GPU)
    finding = found(path)["many_small_kernels"]
    assert (finding["gain_ns_per_step"], finding["severity"]) == (40 * 10 * 1000, "high")
    launch_ns = 40 * (10 - 4) * 1000  # while no kernel runs
    assert finding["evidence"] == {
        "calls": 120,
        "short_kernel_ratio": 1.0,
        "kernel_mean_ns": 4000,
        "launch_ns": launch_ns,
    }
    # The densest 50 launches: the last 10 of the second step and the 40 of the last one, which are 12 us apart.
    start, end = seen_us(finding)
    assert (start, end) == (1000 + 30 * 20, 2000 + 39 * 12 + 10)
    assert trace_of(path).tracks[finding["track"]].tid == "1"


def test_copies_are_not_kernels_and_overlapping_streams_count_once(write: Write) -> None:
    """aten::mm launches kernels on two streams that overlap for 60 of 90 us, and a copy of 500 us."""
    events: Events = []
    for i in range(3):
        ts, n = 1000 * i, 10 * i
        events += [
            step(i, ts, 1000),
            event("aten::mm", ts, 50) | {"args": {"External id": n + 1}},
            *(call(ts + k, 1, n + k) for k in (1, 2, 3)),
            kernel(ts + 100, 75, n + 1, "ampere_sgemm_128x64_tn"),
            kernel(ts + 115, 75, n + 2, "ampere_sgemm_128x64_tn", stream=8),
            kernel(ts + 300, 500, n + 3, "Memcpy DtoD", stream=9),
        ]
    path = write(events, **GPU)
    (signal,) = all_rules()["tensor_cores_unused"].detect(RuleContext(trace_of(path)))
    # The union is 90 us of a step of 1000, and at best half of it goes: 4.5 % of the step, too little to be named.
    assert signal.max_gain_ns == 45_000
    assert signal.evidence == {"eligible_ratio": 1.0, "eligible_ns": 450_000}
    assert signal.extent == Extent(100_000, 190_000, signal.extent.track if signal.extent else -1)
    assert "tensor_cores_unused" not in found(path)


def test_products_whose_name_does_not_say_are_not_reported_as_unused_tensor_cores(write: Write) -> None:
    events: Events = []
    for i in range(3):
        events += [
            step(i, 1000 * i, 1000),
            event("aten::mm", 1000 * i, 50) | {"args": {"External id": i + 1}},
            call(1000 * i + 1, 1, i + 1),
            kernel(1000 * i + 100, 800, i + 1, "triton_tem_fused_mm_0"),
        ]
    assert "tensor_cores_unused" not in found(write(events, **GPU))


def operators(number: int, ts: float, dur: float, work: float) -> Events:
    """A step on the CPU with ten operators."""
    return [step(number, ts, dur), *(event("aten::add", ts + work / 10 * k, work / 10) for k in range(10))]


def test_a_cold_first_step_is_not_jitter(write: Write) -> None:
    cold = [*operators(0, 0, 900, 890), *(e for i in range(1, 6) for e in operators(i, 800 + 100 * i, 100, 95))]
    assert "step_jitter" not in found(write(cold))
    later = [*cold, *operators(6, 1400, 250, 245)]
    finding = found(write(later, name="later.json"))["step_jitter"]
    # Typical: five of 100 us and one of 250: mean 125, median 100.
    assert (finding["gain_ns_per_step"], finding["most_ns_per_step"], finding["severity"]) == (None, 25_000, "medium")
    assert finding["evidence"] == {"step": "6", "median_step_ns": 100_000, "longest_step_ns": 250_000}
    assert seen_us(finding) == (1400, 1650)


def test_the_cold_first_run_of_onnxruntime_is_not_a_finding() -> None:
    """Runs of 4.9, 1.3, 1.3, 1.3 and 1.3 ms."""
    overview = answer("overview", SAMPLES / "onnxruntime-cpu/tinybert_2026-11-20_03-40-11.json.gz")
    assert max(overview["steps"]["total_ns"]) == overview["steps"]["total_ns"][0]
    assert found(SAMPLES / "onnxruntime-cpu/tinybert_2026-11-20_03-40-11.json.gz") == {}


def test_jitter_cannot_gain_more_than_the_median_step(write: Write) -> None:
    steps = [operators(i, 100 * i, 100, 95) for i in range(5)]
    finding = found(write([e for s in [*steps, operators(5, 500, 5000, 4900)] for e in s]))["step_jitter"]
    assert finding["most_ns_per_step"] == 100_000  # mean less median would be 817 us


def test_a_last_step_with_only_a_dataloader_end_is_ignored(write: Write) -> None:
    """Four steps of 100 us without data loading, then 900 us of it, with operators of its own inside."""
    events = [e for i in range(4) for e in operators(i, 100 * i, 100, 95)]
    loading = event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 400, 890, cat="user_annotation")
    inside = [event("aten::stack", 410 + 10 * i, 5) for i in range(20)]
    assert found(write([*events, step(4, 400, 900), loading, *inside])) == {}


def test_time_outside_of_operators_is_reported_with_its_function(write: Write) -> None:
    """Of 100 us 10 are in an operator and 90 in Python: 20 in `parse`, 70 in `augment`."""
    events: Events = []
    for i in range(3):
        ts = 100 * i
        events += [
            step(i, ts, 100),
            event("parse.py(3): parse", ts, 20, cat="python_function"),
            event("aten::add", ts + 20, 10),
            event("train.py(7): augment", ts + 30, 70, cat="python_function"),
        ]
    finding = found(write(events))["outside_operators"]
    assert finding["gain_ns_per_step"] == 70_000  # without `augment`
    expected = {"outside_ratio": pytest.approx(0.9), "outside_ns": 90_000, "function": "train.py(7): augment"}
    assert finding["evidence"] == expected
    # From the operator of one step to that of the next nothing else is recorded.
    assert seen_us(finding) == (30, 120)


def test_an_idle_device_is_seen_in_its_largest_gap(write: Write) -> None:
    """Kernels of 20 us after 10 and 60 us of each step of 200 us, the second one late in the last step."""
    events: Events = []
    for i in range(3):
        ts, late = 200 * i, 60 if i < 2 else 130
        events += [step(i, ts, 200), event("aten::add", ts, 5), call(ts + 1, 1, 2 * i + 1), call(ts + 3, 1, 2 * i + 2)]
        events += [kernel(ts + 10, 20, 2 * i + 1), kernel(ts + late, 20, 2 * i + 2)]
    path = write(events, **GPU)
    finding = found(path)["host_bound"]
    # From 80 and 280 to the next step's first launch, 1 us after its begin: 120, 121 and 1 us of the three steps.
    assert (finding["gain_ns_per_step"], finding["most_ns_per_step"]) == (None, 120_000)
    assert finding["evidence"] == {"device": 0, "idle_ns": 120_000, "idle_ratio": pytest.approx(0.6)}
    assert seen_us(finding) == (80, 201)
    assert trace_of(path).tracks[finding["track"]].tid == "1"


def test_data_loading_counts_and_gains_by_the_typical_step(write: Write) -> None:
    """Data loading takes 10, 10, 10 and 500 us of steps of 100, 100, 100 and 590 us: usually a tenth."""
    events: Events = []
    ts = 0
    for i, loading in enumerate((10, 10, 10, 500)):
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        events += [*operators(i, ts, loading + 90, 0.1), event(name, ts + 1, loading, cat="user_annotation")]
        ts += loading + 90
    finding = found(write(events))["dataloader_bound"]
    assert finding["gain_ns_per_step"] == 10_000
    assert finding["evidence"]["dataloader_ratio"] == pytest.approx(0.1)
    assert seen_us(finding) == (301, 801)
    assert finding["variant"] == "uneven_workers"
    assert "prefetch_factor" in finding["code"]


@pytest.mark.parametrize(
    ("iterator", "variant", "advice"),
    [
        ("_SingleProcessDataLoaderIter", "", "num_workers=4"),
        ("_MultiProcessingDataLoaderIter", "slow_workers", "num_workers=2 * num_workers"),
    ],
)
def test_workers_that_are_in_use_are_not_advised(write: Write, iterator: str, variant: str, advice: str) -> None:
    name = f"enumerate(DataLoader)#{iterator}.__next__"
    events: Events = []
    for i in range(4):
        events += [*operators(i, 100 * i, 100, 0.1), event(name, 100 * i + 1, 30, cat="user_annotation")]
    finding = found(write(events))["dataloader_bound"]
    assert finding["variant"] == variant
    assert advice in finding["code"]
    assert "pin_memory" not in finding["code"]


def test_sharded_data_parallel_is_not_data_parallel(write: Write) -> None:
    def devices(module: str) -> Events:
        second = {**kernel(20, 5, 2), "args": {"device": 1, "stream": 7, "correlation": 2}}
        return [
            event(f"nn.Module: {module}_0", 0, 50, cat="python_function"),
            kernel(10, 5, 1),
            {**second, "pid": 1000},
        ]

    assert "data_parallel" in found(write(devices("DataParallel")))
    for other in ("FullyShardedDataParallel", "DistributedDataParallel"):
        assert "data_parallel" not in found(write(devices(other), name=f"{other}.json"))


def test_a_host_bound_recording_with_few_launches_has_its_top_issue_in_the_plan() -> None:
    """The compiled sample launches fewer than 100 kernels and cannot be replayed."""
    path = SAMPLES / "pytorch-h200" / "compiled.pt.trace.json.gz"
    findings = answer("findings", path)["findings"]
    columns = answer("plan", path)["rungs"]["columns"]
    assert findings[0]["id"] == "host_bound"
    assert columns["finding"][0] == "host_bound"
    assert columns["most_ns"][0] == pytest.approx(findings[0]["most_ns_per_step"])


RECORDINGS = [
    *("pytorch-h200/cnn.pt.trace.json.gz", "pytorch-h200/transformer.pt.trace.json.gz"),
    *("pytorch-h200/compiled.pt.trace.json.gz", "synthetic-4gpu/rank0.pt.trace.json.gz"),
    *("onnxruntime-cpu/tinybert_2026-11-20_03-40-11.json.gz", "traces/tracelens/vllm_decode/graph_execution.json.gz"),
    "traces/kineto/hta/df_index_resolver__v100_rank1of2_nccl_memory.json.gz",
]


@pytest.mark.parametrize("name", RECORDINGS)
def test_nothing_exceeds_the_step(name: str) -> None:
    path = recording_path(name) if name.startswith("traces") else SAMPLES / name
    result, trace = answer("findings", path), trace_of(path)
    longest = max(answer("overview", path)["steps"]["total_ns"])
    assert result["together"] is None or result["together"]["gain_ns"] <= result["simulated_ns"]
    for finding in result["findings"]:
        assert 0 <= (finding["gain_ns_per_step"] or 0) <= result["simulated_ns"]
        assert (finding["most_ns_per_step"] or 0) <= longest
        assert all(0 <= value <= 1 for key, value in finding["evidence"].items() if key.endswith("_ratio"))
        assert finding["start_ns"] is None or 0 <= finding["start_ns"] < finding["end_ns"]
        assert (finding["end_ns"] or 0) <= trace.span_ns[1] - trace.span_ns[0]


def test_a_host_that_others_kept_busy_is_named(write: Write) -> None:
    """The monitor samples 20 and 40 % of CPU pressure: 0.3 on average, over the bound of 0.1; then 2 and 4 %."""

    def samples(*percent: float) -> Events:
        return [
            {"ph": "C", "name": "CPU pressure %", "pid": 1, "ts": 10 * i, "args": {"value": p}}
            for i, p in enumerate(percent)
        ]

    work = [step(0, 0, 100), event("aten::mm", 0, 100), step(1, 100, 140), event("aten::mm", 100, 140)]
    path = write([*work, *samples(20, 40)])
    busy = answer("overview", path)
    assert found(path)["host_busy"]["evidence"] == {"cpu_pressure_ratio": pytest.approx(0.3)}
    assert busy["headline"] == {
        "step_median_ns": 120_000,
        "step_least_ns": 100_000,
        "step_most_ns": 140_000,
        "typical_steps": 2,
        "steps_per_s": pytest.approx(1e9 / 120_000),
        "cpu_pressure_ratio": pytest.approx(0.3),
    }
    assert "host_busy" not in found(write([*work, *samples(2, 4)], "quiet.json"))
    assert answer("overview", write(work, "unsampled.json"))["headline"]["cpu_pressure_ratio"] is None
