"""The plan: worked out by hand on small traces, equal to what-if and findings, and on real recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, SAMPLES, Write, answer, trace_of, ui_texts
from tests.recordings import recording_path
from tests.views.test_rules import LOADER, TRAINING, Events, call, event, launched, steps, work
from visualprof.views.levers.catalog import LEVERS
from visualprof.views.levers.half_precision import half_precision
from visualprof.views.measure.findings.detection import RuleContext
from visualprof.views.rules import all_rules, detections

V100 = "traces/kineto/tb_plugin/resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz"
REFUSED = "traces/tracelens/mi300_qwen05b.json.gz"
NARROW = {"id": 0, "name": "Tesla V100-PCIE-16GB", "computeMajor": 7, "computeMinor": 0, "totalGlobalMem": 1 << 34}
STEPS = 40


def plan(write: Write, events: Events, name: str = "trace.json") -> dict[str, Any]:
    return answer("plan", write(events, name, deviceProperties=[NARROW]))


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    columns = result["rungs"]["columns"]
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def planned(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in rows(result) if row["step_ns"] is not None]


def loading(load_us: float, kernel_us: float) -> Events:
    """Data loading, and then 400 us of the host, which launches a product in fp32; the steps take load + 400 us."""
    step_events = [
        event(LOADER, 0, load_us, "user_annotation"),
        event("aten::mm", load_us, 20),
        call("cudaLaunchKernel", load_us + 5, 2, 1),
        work("sgemm", load_us + 10, kernel_us, 1),
        event("aten::add", load_us + 20, 380),
    ]
    return steps(load_us + 400, *[step_events] * STEPS)


def test_a_lever_appears_on_the_rung_where_it_begins_to_pay(write: Write) -> None:
    """Without loading, the kernels of 700 us follow each other, 1 us apart. In half the time, the host is slower."""
    result = plan(write, loading(600, 700))
    rungs = planned(result)
    assert [row["lever"] for row in rungs] == ["dataloader_workers", "mixed_precision"]
    assert [row["step_ns"] / 1000 for row in rungs] == pytest.approx([701, 400], rel=0.02)
    assert [row["gain_ns"] / 1000 for row in rungs] == pytest.approx([299, 301], rel=0.05)
    assert result["baseline_ns"] / 1000 == pytest.approx(1000, rel=0.02)
    assert result["planned_ns"] == rungs[-1]["step_ns"]
    assert result["change"] == "dataloader=0; kernel[sgemm]*0.5"
    assert [row["confidence"] for row in rungs] == ["high", "medium"]
    assert "num_workers" in rungs[0]["code"]
    assert "float16" in rungs[1]["code"]
    assert "bfloat16" not in rungs[1]["code"]  # which a V100 does not have
    assert rungs[0]["finding"] == "dataloader_bound"
    assert rungs[0]["start_ns"] is not None


def test_a_lever_that_gains_less_than_two_and_a_half_percent_ends_the_plan(write: Write) -> None:
    result = plan(write, loading(10, 100))
    assert planned(result) == []
    assert result["planned_ns"] == result["baseline_ns"]
    assert result["change"] == ""


def test_the_bound_of_half_precision_is_the_roof_of_the_device(write: Write) -> None:
    """2 x 1024^3 operations take 19.0 us at 80 x 1024 x 1380 MHz, of 600 us; half the time is the prediction."""
    shapes = {"Input Dims": [[1024, 1024], [1024, 1024]], "Input type": ["float", "float"]}
    events = [
        {**row, "args": {**row["args"], **shapes}} if row["name"] == "aten::mm" else row for row in loading(300, 600)
    ]
    trace = trace_of(write(events, deviceProperties=[NARROW]))
    estimate = half_precision(RuleContext(trace), detections(trace))
    assert estimate is not None
    assert estimate.change == "kernel[sgemm]*0.5"
    factor = 2 * 1024**3 / (80 * 1024 * 1380e6) / 600e-6
    assert estimate.bound == f"kernel*0.5; kernel[sgemm]*{2 * factor:.3g}"
    rung = planned(answer("plan", write(events, deviceProperties=[NARROW])))[1]
    assert rung["gain_ns"] / 1000 == pytest.approx(601 - 400, rel=0.02)
    assert rung["most_ns"] == rung["gain_ns"]  # the host does not become faster


def test_without_launches_a_device_has_no_gaps_and_without_a_host_it_has_no_waits(write: Write) -> None:
    rung = next(row for row in rows(plan(write, launched(40, 24, 4))) if row["lever"] == "fewer_launches")
    assert rung["gain_ns"] == pytest.approx(400_000, rel=0.02)  # 40 calls of 10 us
    assert rung["most_ns"] == pytest.approx(1_000_000 - 40 * (4_000 + 1_000), rel=0.05)  # kernels, 1 us apart
    assert rung["finding"] == "many_small_kernels"


def optimizing(name: str = "aten::add_", optimizer: str = "SGD") -> Events:
    """An optimizer of 500 us: ten operators of 40 us that launch a kernel each, 10 us apart; then 500 us of others."""
    step_events = [event(f"Optimizer.step#{optimizer}.step", 0, 500, "user_annotation")]
    for number in range(10):
        at = 50 * number
        step_events += [
            event(name, at, 40),
            call("cudaLaunchKernel", at + 10, 5, number + 1),
            work("k", at + 20, 3, number + 1),
        ]
    return steps(1000, *[[*step_events, event("aten::relu", 500, 500)]] * 5)


def test_a_fused_optimizer_keeps_its_longest_operator_and_its_kernels(write: Write) -> None:
    rung = next(row for row in rows(plan(write, optimizing())) if row["lever"] == "fused_optimizer")
    assert rung["change"] == "host[Optimizer.step#SGD.step]*0.28"  # 10 x 40 - 40 of 500 us
    assert rung["gain_ns"] == pytest.approx(360_000, rel=0.03)
    assert rung["code"] == "torch.optim.SGD(parameters, fused=True)"


def test_the_remedy_for_launches_names_the_optimizer_of_the_recording_or_none(write: Write) -> None:
    """Launches take longer than their kernels; the optimizer is SGD, one without a fused form, or is not annotated."""

    def code(name: str, events: Events) -> str:
        findings = answer("findings", write(events, name, deviceProperties=[NARROW]))["findings"]
        return next(finding["code"] for finding in findings if finding["id"] == "many_small_kernels")

    compiled = 'model = torch.compile(model, mode="reduce-overhead")'
    calls = [event_row for event_row in launched(40, 24, 4) if not event_row["name"].startswith("ProfilerStep")]
    optimizer = event("Optimizer.step#SGD.step", 0, 900, "user_annotation")
    operators = [event("aten::add_", 24 * n, 20) for n in range(40)]
    marks = [event_row for event_row in launched(40, 24, 4) if event_row["name"].startswith("ProfilerStep")]
    sgd = [*marks, optimizer, *operators, *calls]
    assert code("sgd.json", sgd) == f"{compiled}; torch.optim.SGD(parameters, fused=True)"
    lbfgs = [{**row, "name": row["name"].replace("SGD", "LBFGS")} for row in sgd]
    assert code("lbfgs.json", lbfgs) == code("plain.json", launched(40, 24, 4)) == compiled


@pytest.mark.parametrize("events", [optimizing("aten::_fused_sgd_"), optimizing(optimizer="LBFGS")])
def test_an_optimizer_that_is_fused_or_has_no_fused_form_is_not_a_lever(write: Write, events: Events) -> None:
    assert "fused_optimizer" not in [row["lever"] for row in rows(plan(write, events))]


def test_twice_the_batch_is_nearly_free_for_an_idle_device(write: Write) -> None:
    """The device works for 100 of 1000 us per step, so 200 are as fast."""
    step_events = [
        event("aten::mm", 0, 20),
        call("cudaLaunchKernel", 5, 2, 1),
        work("h1688gemm", 10, 100, 1),
        event("autograd::engine::evaluate_function: MmBackward0", 20, 980),
    ]
    row = next(row for row in rows(plan(write, steps(1000, *[step_events] * 5))) if row["lever"] == "larger_batch")
    assert row["throughput_ratio"] == pytest.approx(1.0, abs=0.02)
    assert row["step_ns"] is row["gain_ns"] is row["change"] is None


def test_a_copy_from_pinned_memory_does_not_wait_for_its_stream(write: Write) -> None:
    """The copy of a step waits for the kernel of the step before, and the host for the copy, in steps of 1000 us.

    Without this wait, the device is busy: 694 us of the kernel, 2 of the copy, and 1 us before each.
    """
    step_events = [
        event("aten::copy_", 0, 405),
        call("cudaMemcpyAsync", 1, 10, 1),
        call("cudaStreamSynchronize", 12, 391, 2),
        event("aten::mm", 405, 595),
        call("cudaLaunchKernel", 700, 2, 3),
        work("h1688gemm", 705, 694, 3),
    ]
    copies = [work("Memcpy HtoD (Pageable -> Device)", 400 + 1000 * n, 2, 1000 * n + 1) for n in range(10)]
    result = answer("whatif", write([*steps(1000, *[step_events] * 10), *copies]), change="copies=pinned")
    assert result["step"]["predicted_ns"] / 1000 == pytest.approx(698, rel=0.03)


@pytest.mark.parametrize("name", ["pytorch-cpu", "paddle-cpu", "pytorch-loader", "pytorch-h200", "synthetic-4gpu"])
def test_plan_findings_and_whatif_of_a_sample_agree(name: str) -> None:
    for path in sorted((SAMPLES / name).glob("*trace.json.gz"))[:2]:
        check_agreement(path)


def test_plan_findings_and_whatif_of_the_v100_agree() -> None:
    check_agreement(recording_path(V100))


def check_agreement(path: Path) -> None:
    result, findings = answer("plan", path), answer("findings", path)
    rungs = planned(result)
    for number, rung in enumerate(rungs):
        change = "; ".join(row["change"] for row in rungs[: number + 1])
        assert answer("whatif", path, change=change)["step"]["predicted_ns"] == pytest.approx(rung["step_ns"], abs=2)
        before = rungs[number - 1]["step_ns"] if number else result["baseline_ns"]
        assert before - rung["step_ns"] == pytest.approx(rung["gain_ns"], abs=2)
        with_next = rungs[number + 1]["gain_ns"] if number + 1 < len(rungs) else 0  # or both gain twice as much
        least = 0.025 * result["baseline_ns"] - 2
        assert rung["gain_ns"] >= least or rung["gain_ns"] + with_next >= 2 * least
        assert rung["most_ns"] is None or rung["most_ns"] >= rung["gain_ns"]
    gains = {finding["change"]: finding["gain_ns_per_step"] for finding in findings["findings"] if finding["change"]}
    for rung in rungs[:1]:
        assert gains.get(rung["change"], rung["gain_ns"]) == pytest.approx(rung["gain_ns"], rel=0.02)


def test_the_plan_of_the_v100_starts_with_the_loader_and_ends_at_half_the_step() -> None:
    """With four workers, the same training took 126 ms in the median (docs/whatif.md)."""
    result = answer("plan", recording_path(V100))
    levers = [row["lever"] for row in planned(result)]
    assert levers[0] == "dataloader_workers"
    assert {"mixed_precision", "fewer_launches"} <= set(levers)
    assert planned(result)[0]["step_ns"] / 1e6 == pytest.approx(118.3, abs=2)
    assert result["planned_ns"] / result["baseline_ns"] < 0.55


def test_a_recording_that_cannot_be_replayed_has_upper_bounds_only() -> None:
    result = answer("plan", recording_path(REFUSED))
    assert result["obstacle"] == "error"
    assert result["planned_ns"] is None
    assert planned(result) == []
    assert all(row["most_ns"] <= result["baseline_ns"] for row in rows(result))
    assert "fused_elementwise" in [row["lever"] for row in rows(result)]


def test_every_lever_has_a_text_in_each_language_and_a_row_in_its_document() -> None:
    document = (ROOT / "docs/plan.md").read_text(encoding="utf-8")
    for lever in LEVERS:
        assert f"`{lever.name}`" in document
        assert set(lever.rules) <= set(all_rules())
        texts = [ui_texts(language)["lever"][lever.name] for language in ("en", "zh")]
        assert lever.training_only or not [text for text in texts if TRAINING.search(text)]
