"""The seven steps in a child: their files, their outcomes, and resuming a run."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.remote.case_sites import CONFIGURATIONS, ENGINE, FUNCTIONS, numpy_case, order_of
from visualprof.reader.results.case import CaseResult, read_case
from visualprof.remote.agent.errors import StopRequested
from visualprof.remote.agent.work.case_result import OBSERVED_FIELDS as SEEN
from visualprof.remote.agent.work.case_run import check_local_case, run_local_case
from visualprof.remote.cases import STEPS
from visualprof.remote.child.case.steps import OBSERVED_KEYS
from visualprof.remote.protocol import TaskFailure

pytestmark = pytest.mark.slow


def done(folder: Path, run: Path, **changes: Any) -> CaseResult:
    """The result of a run."""
    run_local_case(order_of(folder, **changes), run)
    result = read_case(run / "case.json")
    assert result is not None
    assert not (run / ".work").exists()
    return result


def states(result: CaseResult) -> list[str]:
    return [step.state for step in result.steps]


def test_a_case_runs_through_all_steps_and_is_recomputed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    folder = numpy_case(tmp_path / "net", configurations=CONFIGURATIONS.replace("size: 4", "size: 8"))
    result = done(folder, run, command={"batch_size": 4})
    assert (result.state, result.error, states(result)) == ("succeeded", "", ["done"] * 7), result
    assert [step.name for step in result.steps] == list(STEPS)
    assert (result.case, result.framework, result.vendor, result.compiler) == ("net", "numpy", "cpu", "plain")
    # 2 of 20 targets are wrong; the engine loses the outputs over 30: 16 to 19.
    validation, inference = result.validation, result.inference
    assert validation is not None
    assert inference is not None
    assert (validation.accuracy, inference.accuracy) == (0.9, 0.7)
    assert result.accuracy_difference == pytest.approx(-0.2)
    assert (result.verdict, result.tolerance) == ("same", 0.25)
    # The kept latencies give the same core throughput: 2 rounds of 20 samples in 5 calls each.
    calls = np.fromfile(run / "latencies.bin", "<u4").astype(np.int64)
    assert (len(calls), inference.n, inference.samples) == (10, 10, 40)
    assert inference.core_per_s == pytest.approx(40e9 / calls.sum())
    assert result.flops_per_s == pytest.approx(6 * 40e9 / calls.sum())
    rounds = [20 / row.whole_per_s for row in inference.repeats]
    assert inference.whole_per_s == pytest.approx(40 / sum(rounds))
    assert (inference.whole_per_s or 0) < (inference.core_per_s or 0)
    assert inference.warmup_n >= 3
    assert result.e2e_ns == sum(step.took_ns or 0 for step in result.steps)
    assert result.mfu is None or result.peak_flops is not None
    assert result.steps[3].files.keys() == {"model.txt"}
    assert {path.name for path in run.iterdir()} >= {"log.txt", "monitor.jsonl", "status.json", "job.json", "steps"}
    assert "Finish Info | {'vendor': 'cpu'" in (run / "log.txt").read_text()
    settings_by_key = {setting.key: (setting.value, setting.origin, setting.before) for setting in result.settings}
    assert settings_by_key["batch_size"] == ("4", "command line", "8")
    assert settings_by_key["tolerance"] == ("0.25", "parameters", None)
    assert settings_by_key["case"] == ('"net"', "host", None)
    # Every field that is written is one of the struct.
    written, known = json.loads((run / "case.json").read_text()), msgspec.to_builtins(result)
    assert set(written) <= set(known)
    assert set(OBSERVED_KEYS) == set(SEEN) <= set(written)
    for key in ("steps", "settings"):
        assert set(written[key][0]) <= set(known[key][0])
    assert set(written["inference"]) <= set(known["inference"])


@pytest.mark.long
def test_a_rerun_resumes_after_the_last_successful_step(tmp_path: Path) -> None:
    folder = numpy_case(tmp_path / "net", engine="raise SystemError('no compiler here')")
    failed = done(folder, tmp_path / "run")
    assert (failed.state, failed.reason, failed.step) == ("failed", "model_error", "compile")
    assert failed.error == "compile: SystemError: no compiler here"
    assert states(failed) == ["done", "done", "done", "done", "failed", "pending", "pending"]
    assert (tmp_path / "run" / "model.txt").read_text() == "2"  # what was made stays
    again = done(folder, tmp_path / "run")
    assert states(again) == ["done", "done", "kept", "kept", "failed", "pending", "pending"]
    assert again.validation == failed.validation
    (folder / "inference_engine/cpu/plain.py").write_text(ENGINE)
    mended = done(folder, tmp_path / "run")  # the code is another, so nothing of before counts
    assert states(mended) == ["done"] * 7
    whole = done(folder, tmp_path / "run")
    assert states(whole) == ["done", "kept", "kept", "kept", "kept", "kept", "done"]
    assert (whole.inference, whole.memory_used_bytes) == (mended.inference, mended.memory_used_bytes)
    (tmp_path / "run" / "model.txt").write_text("3")  # no longer what the record says
    assert states(done(folder, tmp_path / "run"))[2:6] == ["kept", "done", "kept", "kept"]


SLEEPS = "import time\ndef export_model(model, config):\n    time.sleep(60)\n"
SEGFAULTS = "import os, signal\ndef evaluator(o, t):\n    os.kill(os.getpid(), signal.SIGSEGV)\n"
LARGE = """import time
class InferModel:
    def __init__(self, *_):
        self.a = bytes(1 << 20) * 900
        time.sleep(20)
"""


@pytest.mark.parametrize(
    ("broken", "text", "changes", "reason", "step", "words"),
    [
        (
            "model",
            "def create_model(config):\n    raise ValueError('no weights')\n",
            {},
            "model_error",
            "data+model",
            "data+model: ValueError: no weights",
        ),
        (
            "evaluator",
            SEGFAULTS,
            {},
            "crashed",
            "validation",
            "the child ended by SIGSEGV without a result (step validation)",
        ),
        ("export", SLEEPS, {"timeout_s": 3.0}, "timeout", "export", "did not finish within 3 s (step export)"),
        (
            "export",
            SLEEPS,
            {"step_timeouts": {"export": 1.0, "": 60.0}},
            "timeout",
            "export",
            "step export did not finish within 1 s",
        ),
        ("engine", LARGE, {"memory_bytes": 600 << 20}, "out_of_memory", "compile", "(step compile)"),
        (
            "export",
            "def export_model(model, config):\n    return 'nothing.onnx'\n",
            {},
            "model_error",
            "export",
            "export: export_model gave 'nothing.onnx', which is not a file",
        ),
        (
            "dataloader",
            "def build_dataloader(config):\n    import no_such_module\n",
            {},
            "no_runtime",
            "data+model",
            "No module named 'no_such_module'",
        ),
        ("dataloader", "import no_such_module\n", {}, "no_runtime", "init", "missing: package: no-such-module"),
    ],
)
def test_a_step_that_ends_badly_is_named_with_its_cause(
    tmp_path: Path, broken: str, text: str, changes: dict[str, Any], reason: str, step: str, words: str
) -> None:
    result = done(numpy_case(tmp_path / "net", **{broken: text}), tmp_path / "run", **changes)
    assert (result.state, result.reason, result.step) == ("failed", reason, step)
    assert words in result.error
    at = STEPS.index(step)
    assert states(result)[at] == "failed"
    assert states(result)[at + 1 :] == ["pending"] * (6 - at)
    assert (tmp_path / "run" / "log.txt").is_file()


def test_a_cancelled_case_says_where(tmp_path: Path) -> None:
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise StopRequested("cancelled")

    def tell(step: str) -> None:
        if step == "export":
            stop.set()

    folder = numpy_case(tmp_path / "net", export=SLEEPS)
    began = time.monotonic()
    result = done(folder, tmp_path / "run", check=check, say=tell)
    assert (result.state, result.step, states(result)[3]) == ("cancelled", "export", "cancelled")
    assert time.monotonic() - began < 30
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "cancelled"


@pytest.mark.long
def test_the_switches_leave_steps_out(tmp_path: Path) -> None:
    folder = numpy_case(tmp_path / "net")
    (folder / "kept.txt").write_text("2")
    alone = done(folder, tmp_path / "a", command={"compiler": None})
    assert states(alone) == ["done", "done", "done", "skipped", "skipped", "skipped", "done"]
    assert alone.steps[4].why == "compiler is null"
    assert (alone.inference, alone.verdict, alone.state) == (None, "", "succeeded")
    ready = done(folder, tmp_path / "b", command={"no_validation": True, "exist_onnx_path": "kept.txt"})
    assert states(ready) == ["done", "done", "skipped", "skipped", "done", "done", "done"], ready.error
    assert ready.inference is not None
    assert ready.inference.accuracy == 0.7
    compiled = done(folder, tmp_path / "c", command={"exist_compiler_path": "kept.txt"})
    assert states(compiled) == ["done", "done", "done", "done", "skipped", "done", "done"]
    missing = done(folder, tmp_path / "d", command={"exist_onnx_path": "gone.onnx"})
    assert missing.error == "init: exist_onnx_path: gone.onnx does not exist"


def test_missing_requirements_are_reported_before_anything_starts(tmp_path: Path) -> None:
    folder = numpy_case(tmp_path / "net")
    (folder / "requirements.txt").write_text("numpy>=1.20\nno-such-package>=3\n")
    (folder / "case.yaml").write_text("data: [images]\nweights: net.pth\n")
    with pytest.raises(TaskFailure) as raised:
        check_local_case(order_of(folder), tmp_path / "work")
    assert raised.value.reason == "no_runtime"
    for words in ("package: no-such-package >=3", "data: images is not in any folder", "data: net.pth"):
        assert words in raised.value.error
    assert "pip install 'no-such-package >=3'" in raised.value.hint
    (folder / "requirements.txt").unlink()
    (folder / "case.yaml").unlink()
    (folder / "vendor_config").mkdir()
    (folder / "vendor_config/cpu.yaml").write_text("repeat: 2\nnew: 1\nbatch_size: 10\n")
    told = check_local_case(order_of(folder), tmp_path / "work")
    assert told["warnings"] == [
        "repeat: the vendor sets 2, which is already the value",
        "new is a new key: the vendor sets it, and no lower layer has it",
    ]
    assert told["changes"] == ["batch_size: 4 -> 10 (vendor)"]
    with pytest.raises(TaskFailure, match="CPU has no compiler 'tensorrt'"):
        check_local_case(order_of(folder, command={"compiler": "tensorrt"}), tmp_path / "work")


def test_own_forward_functions_and_foo_time(tmp_path: Path) -> None:
    forward = """
def model_forward(model, dataloader, evaluator, config):
    return 10.0, 20.0, 0.75


def engine_forward(engine, dataloader, evaluator, config):
    for x, y in dataloader:
        outputs, foo = engine([x])
    return 30.0, 40.0, 0.5, {"first_token_ms": 12.5}
"""
    init = FUNCTIONS + "\nfrom .forward import model_forward, engine_forward\n"
    engine = ENGINE.replace("return [output], 0", "return [output], 1e-6")
    case = numpy_case(tmp_path / "net", forward=forward, __init__=init, engine=engine)
    result = done(case, tmp_path / "run")
    assert result.validation is not None
    assert result.inference is not None
    assert (result.validation.whole_per_s, result.validation.core_per_s, result.validation.accuracy) == (10, 20, 0.75)
    assert (result.inference.own, result.inference.core_per_s, result.inference.n) == (True, 40.0, 5)
    assert result.inference.foo_ns == 5000
    assert any("are not inference, as the engine reports" in warning for warning in result.warnings)
    assert result.metrics == {"first_token_ms": 12.5}
    assert (result.verdict, result.accuracy_difference) == ("same", -0.25)
