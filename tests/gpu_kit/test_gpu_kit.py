"""The kit without a GPU: recorded answers, oracles that are off, and parts that cannot run."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from tests.conftest import answer
from tests.gpu_kit.gpu_trace import BUSY_MS, KERNEL_US, KERNELS, STEPS, write_gpu_trace
from tests.views.test_plan_view import NARROW, loading, optimizing
from tests.views.test_rules import Events, launched
from visualprof.cli import main
from visualprof.errors import BadParameter
from visualprof.gpu_kit import Oracle, doctor, part, part_names, runner
from visualprof.gpu_kit.doctor import accelerator_findings
from visualprof.gpu_kit.host_load import HostLoad, others_ratio
from visualprof.gpu_kit.local_job import LATENCY
from visualprof.gpu_kit.parts import cases, costliest, ladder, levers, limits, readings
from visualprof.gpu_kit.proven import NOT_YET, read_reports, table
from visualprof.gpu_kit.raw_trace import call_times_ms
from visualprof.gpu_kit.recording import RECORDING
from visualprof.gpu_kit.report import JSON_NAME, MARKDOWN_NAME, Check, PartReport, checks_of, new_report, write
from visualprof.gpu_kit.runner import ORACLE, judged_under_load, replay_part, run_kit, time_limit_s

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDED = FIXTURES / "gpu_kit"
SNAPSHOT = FIXTURES / "memory_snapshots" / "train_oom.pickle"
OFF = 1.05


def kernel_oracle(folder: Path) -> dict[str, float]:
    write_gpu_trace(folder / RECORDING)
    return {"steps": STEPS, "calls of kernels": KERNELS, "kernel time, us": KERNELS * KERNEL_US}


def streams_oracle(folder: Path) -> dict[str, float]:
    return kernel_oracle(folder) | {"device busy per step, ms": BUSY_MS}


def snapshot_oracle(folder: Path) -> dict[str, float]:
    shutil.copyfile(SNAPSHOT, folder / "snapshot.pickle")
    return {
        "allocated, bytes": 55_715_328,
        "reserved, bytes": 111_149_056,
        "requested by the failed call, bytes": 25_165_824,
    }


def peaks_oracle(folder: Path) -> dict[str, float]:
    rates, datasheet = {"bf16": 240e12, "bandwidth": 1.8e12}, {"bf16": 312e12, "bandwidth": 2.039e12}
    (folder / "peaks.json").write_text(json.dumps({"rates": rates, "datasheet": datasheet}))
    return {"share of bf16 is plausible": 1.0, "share of bandwidth is plausible": 1.0}


def advice_oracle(folder: Path) -> dict[str, float]:
    columns = {
        "candidate": ["original", "torchscript-freeze"],
        "original_ns": [4e6, 4e6],
        "latency_ns": [4e6, 4e6 / 1.5],
    }
    (folder / "advice.json").write_text(json.dumps({"advice": columns}))
    return {"speed-up by freezing": 1.6}  # 1.5 is within 10 %


def conversions_oracle(folder: Path) -> dict[str, float]:
    columns = {"candidate": ["original", "onnx-fp16"], "original_ns": [1.2e6, 1.2e6], "latency_ns": [1.2e6, 0.5e6]}
    (folder / "advice.json").write_text(json.dumps({"advice": columns}))
    return {"speed-up by f16": 2.6}  # 2.4 is within 10 %


def write_before(folder: Path, name: str, events: Events) -> None:
    """Write the recording of a step before its change, made on a V100."""
    body = {"schemaVersion": 1, "deviceProperties": [NARROW], "traceEvents": events}
    (folder / f"{name}before.{RECORDING}").write_bytes(gzip.compress(json.dumps(body).encode()))


def levers_oracle(folder: Path) -> dict[str, float]:
    """Return steps that tests of the plan work out: 600 us of loading, 40 launches of 10 us, 360 us of operators."""
    events = {"workers": loading(600, 700), "CUDA graph": launched(40, 24, 4), "fused optimizer": optimizing()}
    after_ms = {"workers": 0.701, "CUDA graph": 0.6, "fused optimizer": 0.64}
    for name, step_events in events.items():
        write_before(folder, f"{name}-", step_events)
    (folder / levers.LEVERS).write_text(json.dumps({name: levers.PAIRS[name].change for name in events}))
    values = {f"unchanged step of {name}, ms": 1.0 for name in events}
    return values | {f"step after {name}, ms": value for name, value in after_ms.items()}


def ladder_oracle(folder: Path) -> dict[str, float]:
    write_before(folder, "", loading(600, 700))
    (folder / ladder.RUNGS).write_text(json.dumps(["dataloader_workers", "mixed_precision"]))
    return {
        ladder.UNCHANGED: 1.0,
        "step after 1. dataloader_workers, ms": 0.701,
        "step after 2. mixed_precision, ms": 0.4,
    }


def cases_oracle(folder: Path) -> dict[str, float]:
    results = {"digits": {"state": "succeeded", "accuracy": 0.98}, "vit": {"state": "succeeded", "accuracy": None}}
    (folder / cases.RESULTS).write_text(json.dumps(results))
    return {"success of digits": 1.0, "accuracy of digits": 0.98, "success of vit": 1.0}


def costliest_oracle(folder: Path) -> dict[str, float]:
    device = {"host_ns": 50_000, "device_ns": 400_000, "calls": 10}
    host = {"host_ns": 90_000, "device_ns": None, "calls": 10}
    replays = {
        "aten::addmm": {"recorded": device, "median_ns": 410_000, "profiled_device_ns": 380_000},
        "aten::view": {"recorded": host, "median_ns": 80_000, "profiled_device_ns": None},
    }
    (folder / costliest.REPLAYS).write_text(json.dumps(replays))
    expected_ms = {"aten::addmm": 0.4, "aten::view": 0.09}
    names = (costliest.IN_STEP, costliest.ALONE)
    return {f"{prefix} {name}, ms": value for name, value in expected_ms.items() for prefix in names}


def readings_oracle(folder: Path) -> dict[str, float]:
    """Return readings of 300 W for six seconds."""
    reading = {"power_w": 300.0, "sm_mhz": 1410, "temperature_c": 60, "util": 0.99, "throttle": ["power cap"]}
    samples = [{"t_ns": i * 10**8, **reading} for i in range(61)]
    (folder / readings.SAMPLES).write_text(json.dumps({"samples": samples, "allocated": 4 << 30}))
    return {
        readings.POWER: 300.0,
        readings.CLOCK: 1410.0,
        readings.TEMPERATURE: 60.0,
        readings.BUSY: 0.99,
        readings.ENERGY: 1800.0,
        readings.ALLOCATION: 4 << 30,
        readings.THROTTLED: 1.0,
    }


def tensorrt_oracle(folder: Path) -> dict[str, float]:
    point = {"batch": 8, "p50_ns": 1_250_000}
    (folder / "points.jsonl").write_text(json.dumps(point) + "\n")
    return {LATENCY: 1.25}


# Answers worked out by hand, of parts that need a GPU or an idle machine. The others were recorded on a CPU.
BY_HAND = {
    "advice": advice_oracle,
    "cases": cases_oracle,
    "compiled": kernel_oracle,
    "conversions": conversions_oracle,
    "costliest": costliest_oracle,
    "cuda_graphs": kernel_oracle,
    "ladder": ladder_oracle,
    "levers": levers_oracle,
    "memory_snapshot": snapshot_oracle,
    "peaks": peaks_oracle,
    "readings": readings_oracle,
    "streams": streams_oracle,
    "tensorrt": tensorrt_oracle,
    "tf32": kernel_oracle,
}


@pytest.fixture
def answered(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """Name of a part and a folder with its answer."""
    name: str = request.param
    folder = tmp_path / name
    if name in BY_HAND:
        folder.mkdir()
        oracle = Oracle(values=BY_HAND[name](folder))
        (folder / ORACLE).write_bytes(msgspec.json.encode(oracle))
    else:
        shutil.copytree(RECORDED / name, folder)
    return name, folder


@pytest.mark.parametrize("answered", part_names(), indirect=True)
def test_a_recorded_answer_passes(answered: tuple[str, Path]) -> None:
    report = replay_part(*answered)
    assert [check for check in report.checks if not check.passed] == []
    assert report.status == "passed"


@pytest.mark.parametrize("answered", part_names(), indirect=True)
def test_a_part_fails_when_its_oracle_is_off_by_five_percent(answered: tuple[str, Path]) -> None:
    name, folder = answered
    oracle = msgspec.json.decode((folder / ORACLE).read_bytes(), type=Oracle)
    oracle.values = {key: value * OFF for key, value in oracle.values.items()}
    (folder / ORACLE).write_bytes(msgspec.json.encode(oracle))
    assert replay_part(name, folder).status == "failed"


def test_a_value_that_the_product_does_not_give_fails() -> None:
    oracle = Oracle(values={"steps": 5.0, "kernel time, us": 0.0})
    checks = checks_of(part("cnn"), oracle, {"steps": 5.0})
    assert [check.passed for check in checks] == [True, False]


@pytest.mark.slow
def test_a_part_that_hangs_or_cannot_run_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(limits, "BUDGET_S", 1.0 / runner.MAX_STRETCH)
    lines: list[str] = []
    report = run_kit(new_report("cpu", "cpu", "", {}), tmp_path, ["limits", "peaks", "case"], lines.append)
    reasons = {result.name: (result.status, result.reason.split(" (")[0]) for result in report.parts}
    assert reasons["limits"] == ("failed", "took more than 1 s")  # on a busy machine also how busy it was
    assert reasons["peaks"] == ("skipped", "a CPU has no datasheet here")
    assert reasons["case"] == ("passed", "")
    assert len(lines) == 3
    (case,) = (part for part in json.loads((tmp_path / JSON_NAME).read_bytes())["parts"] if part["name"] == "case")
    assert case["checks"][0]["name"].startswith("accuracy")
    text = (tmp_path / MARKDOWN_NAME).read_text("utf-8")
    assert text.startswith("# cpu: 1 passed, 1 failed, 1 skipped\n")
    assert sorted(path.name for path in (tmp_path / "case").iterdir()) == ["case.json", "oracle.json", "result.json"]

    started = (tmp_path / "case" / "result.json").stat().st_mtime_ns
    again = run_kit(new_report("cpu", "cpu", "", {}), tmp_path, ["case"], resume=True)
    assert {result.name: result.status for result in again.parts} == {name: reasons[name][0] for name in reasons}
    assert (tmp_path / "case" / "result.json").stat().st_mtime_ns == started, "a part that passed runs once"


def test_all_budgets_together_fit_ten_minutes() -> None:
    assert sum(part(name).BUDGET_S for name in part_names()) < runner.TOTAL_S <= 600
    assert part_names()[0] == "cnn", "the most valuable part is first"
    priorities = [part(name).PRIORITY for name in part_names()]
    assert priorities == sorted(set(priorities))


@pytest.mark.parametrize(
    ("left_s", "budget_s", "later_s", "limit_s"),
    [
        (600, 25, 555, 45),  # what no other part needs
        (600, 25, 100, 100),  # at most four times the budget
        (100, 40, 60, 40),
        (90, 40, 60, 40),  # earlier parts took longer: this part has its budget, later ones have less
        (30, 40, 60, 30),
        (19, 40, 0, 0),  # less than half of the budget is not worth a start
    ],
)
def test_time_is_reserved_for_later_parts(left_s: float, budget_s: float, later_s: float, limit_s: float) -> None:
    assert time_limit_s(left_s, budget_s, later_s) == limit_s


def test_a_part_without_time_says_so(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    report = run_kit(new_report("cpu", "cpu", "", {}), tmp_path, ["cnn", "stacks"], total_s=1.0)
    assert {result.name: (result.status, result.reason) for result in report.parts} == dict.fromkeys(
        ("cnn", "stacks"), ("skipped", "no time left; --resume runs it")
    )


def test_results_of_another_device_are_not_resumed(tmp_path: Path) -> None:
    write(new_report("cuda", "NVIDIA A100", "", {}), tmp_path)
    with pytest.raises(BadParameter, match="has results of NVIDIA A100"):
        run_kit(new_report("cuda", "NVIDIA H100", "", {}), tmp_path, resume=True)


def result_of(*checks: Check) -> PartReport:
    return PartReport(name="cnn", title="", status="failed", checks=list(checks))


def test_times_on_a_busy_machine_prove_nothing() -> None:
    slow = Check(name="step after the change, ms", value=2.0, oracle=1.0, tolerance=0.1)
    missing = Check(name="step after the change, ms", value=None, oracle=1.0, tolerance=0.1)
    wrong = Check(name="calls of aten::mm", value=2.0, oracle=1.0, tolerance=0.0)
    busy = judged_under_load(result_of(slow), 0.5)
    assert (busy.status, busy.figures) == ("skipped", {runner.OTHERS: 0.5})
    assert "1 times differ, but other programs used 50% of the processors" in busy.reason
    assert judged_under_load(result_of(slow), 0.1).status == "failed"
    assert judged_under_load(result_of(slow, wrong), 0.5).status == "failed"
    assert judged_under_load(result_of(missing), 0.5).status == "failed", "a missing forecast is not a time"


def test_the_load_by_others_is_what_our_processes_did_not_use() -> None:
    assert others_ratio(busy_s=6.0, own_s=2.0, wall_s=4.0, processors=2) == 0.5
    assert others_ratio(busy_s=2.0, own_s=2.1, wall_s=4.0, processors=2) == 0.0
    assert 0 <= HostLoad().others_ratio() <= 1


def test_a_part_that_is_killed_leaves_no_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for Python writes into the folders that a part may use, and is then killed."""
    scratch, python = tmp_path / "scratch", tmp_path / "python"
    scratch.mkdir()
    python.write_text('#!/bin/sh\ntouch "$TMPDIR/left" "$TRITON_CACHE_DIR/cache" && ls "$TMPDIR" >&2\nkill -9 $$\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    assert runner._run_child([], 60) == "left"
    assert list(scratch.iterdir()) == []


@pytest.mark.slow
def test_doctor_says_which_accelerator_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (accelerator,) = accelerator_findings("npu")
    assert (accelerator.name, accelerator.ok) == ("accelerator", False)
    assert "npu" in accelerator.value or "PyTorch is not installed" in accelerator.value
    monkeypatch.setattr(doctor, "check_accelerator", lambda _: [accelerator])
    assert main(["doctor", "--gpu", "--device", "npu"]) == 1
    assert accelerator.value in capsys.readouterr().out


def test_doctor_without_gpu_passes_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert "visualprof" in capsys.readouterr().out.splitlines()[0]


def test_doctor_does_not_overwrite_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(new_report("cpu", "cpu", "", {}), tmp_path)
    assert main(["doctor", "--gpu", "--device", "cpu", "--prove", str(tmp_path)]) == 2
    assert "add --resume" in capsys.readouterr().err.lower()


@pytest.mark.parametrize(
    ("words", "error"),
    [(["--prove", "x"], "--prove needs --gpu"), (["--gpu", "--prove", "x", "--only", "no"], "here is no part no")],
)
def test_doctor_refuses_wrong_options(words: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *words]) == 2
    assert error in capsys.readouterr().err


def test_the_table_of_the_documentation_is_that_of_the_reports() -> None:
    page = Path(__file__).parents[2] / "docs" / "gpu-kit.md"
    generated = table(read_reports(RECORDED.glob("*.json")))
    assert generated in page.read_text("utf-8")
    assert NOT_YET in generated


def test_a_reading_of_nvidia_smi_names_throttling_and_an_incomplete_one_is_left_out() -> None:
    assert readings._smi_row("299.71, 1410, 61, 100, 0x0000000000000004") == [299.71, 1410, 61, 100, 1]
    assert readings._smi_row("60.10, 345, 33, 0, 0x0000000000000001") == [60.1, 345, 33, 0, 0]  # idle
    assert readings._smi_row("60.10, 345, 3") == []
    assert readings._smi_row("[N/A], 345, 33, 0, 0x0") == []


def test_a_case_that_fails_on_the_device_fails_the_part(tmp_path: Path) -> None:
    oracle = Oracle(values=cases_oracle(tmp_path))
    results = json.loads((tmp_path / cases.RESULTS).read_text())
    results["vit"]["state"] = "failed"
    (tmp_path / cases.RESULTS).write_text(json.dumps(results))
    (tmp_path / ORACLE).write_bytes(msgspec.json.encode(oracle))
    failed = [check.name for check in replay_part("cases", tmp_path).checks if not check.passed]
    assert failed == ["success of vit"]
    assert cases.shipped_cases() == ["bert", "detector", "digits", "llm", "resnet50", "vit"]


def test_a_lever_that_the_plan_does_not_offer_has_no_forecast(tmp_path: Path) -> None:
    write_before(tmp_path, "channels last-", loading(600, 700))
    (tmp_path / levers.LEVERS).write_text(json.dumps({"channels last": "channels_last"}))
    oracle = Oracle(values={"step after channels last, ms": 0.9})
    assert levers.read(tmp_path, oracle) == {}


def test_times_of_calls_from_the_events_of_a_file_equal_those_of_the_view() -> None:
    path = RECORDED / "transformer" / RECORDING
    columns = answer("calls", path)["columns"]
    calls = costliest.costliest_calls(path, on_device=False)
    assert len(calls) == costliest.COUNT
    keys = list(zip(columns["name"], columns["number"], strict=True))
    for call in calls:
        expected_ms = columns["host_ns"][keys.index((call["name"], call["number"]))] / 1e6
        # The view leaves out operators that only repeat their parent.
        assert call_times_ms(path, call) == (pytest.approx(expected_ms, rel=0.01), 0.0)


def test_the_device_time_of_a_call_is_that_of_the_work_launched_inside_it(tmp_path: Path) -> None:
    """Each `aten::mm` of 60 us launches two kernels of 300 us."""
    write_gpu_trace(tmp_path / RECORDING)
    assert call_times_ms(tmp_path / RECORDING, {"name": "aten::mm"}) == (0.06, 2 * KERNEL_US / 1e3)
