"""The stage `advise` as an agent starts it, on a tiny model, with converters that do what converters should not."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.recordings import recording_path
from tests.remote.child_runs import TINY_INPUTS, Job, Ran, code, tiny_onnx
from visualprof.remote.child.advice.process import ChildProcess, ProcessLimits
from visualprof.remote.child.inputs import SweepPoint, point_feeds
from visualprof.remote.protocol import Advise, Input, Sweep, TaskFailure

pytestmark = [pytest.mark.slow, pytest.mark.long]

BAD = """
import os, time
from visualprof.remote.converters import Converter

def convert(model, target, options, rows):
    {body}

CONVERTER = Converter("{name}", "{name}", "onnx", "onnx", {{"onnx": "onnx"}}, convert)
"""
WEIGHTS = """import onnx
    from onnx import numpy_helper
    graph = onnx.load(model)
    for one in graph.graph.initializer:
        one.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(one) * {factor}, one.name))
    onnx.save(graph, target)"""
BODIES = {
    "bad_corrupts": WEIGHTS.format(factor="numpy_helper.to_array(one).dtype.type(1.5)"),
    "bad_nan": WEIGHTS.format(factor='numpy_helper.to_array(one).dtype.type("nan")'),
    "bad_nothing": "target.write_bytes(model.read_bytes())",
    "bad_hangs": "time.sleep(1000)",
    "bad_dies": "os.kill(os.getpid(), 9)",
    "bad_raises": 'raise ValueError("no such operator")',
    "good_tiny": WEIGHTS.format(factor="numpy_helper.to_array(one).dtype.type(1 + 1e-6)"),
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The child's archive with these converters beside ours."""
    path = tmp_path_factory.mktemp("code") / "code.pyz"
    shutil.copy(code(), path)
    with zipfile.ZipFile(path, "a") as file:
        for name, body in BODIES.items():
            file.writestr(f"visualprof/remote/converters/{name}.py", BAD.format(name=name, body=body))
    return path


def job_of(folder: Path, archive: Path, only: list[str], **advise: Any) -> Job:
    runtimes = [
        {"backend": "onnxruntime", "version": "", "python": sys.executable, "python_version": "", "devices": ["cpu"]}
    ]
    return Job(
        folder,
        tiny_onnx(folder / "model.onnx"),
        TINY_INPUTS,
        sweep=Sweep("batch", [1, 4]),
        spec={"threads": 1},
        advise=replace(Advise("latency", only=only, candidate_s=30.0), **advise),
        more={
            "runtimes": runtimes,
            "converters": {name: [sys.executable] for name in (*BODIES, "onnx_fp16")},
            "memory_bytes": 8 << 30,
        },
        archive=archive,
    )


def rows_of(ran: Ran) -> dict[str, dict[str, Any]]:
    assert ran.status == 0, ran.stderr
    advice = json.loads((ran.out / "advice.json").read_text())
    assert advice["complete"]
    return {row["name"]: row for row in advice["rows"]}


def test_a_failing_converter_gets_a_row(tmp_path: Path, archive: Path) -> None:
    """One that hangs or dies ends in a named state, and those after it are measured all the same."""
    only = [name.replace("_", "-") for name in BODIES]
    ran = job_of(tmp_path, archive, only, candidate_s=10.0).run("advise")
    rows = rows_of(ran)
    assert {name: row["verdict"] for name, row in rows.items() if name.startswith("bad")} == {
        "bad-corrupts": "wrong",
        "bad-nan": "wrong",
        "bad-nothing": "no effect",
        "bad-hangs": "failed",
        "bad-dies": "failed",
        "bad-raises": "failed",
    }
    assert rows["bad-corrupts"]["why"].startswith("an error of")
    assert "NaN or Inf" in rows["bad-nan"]["why"]
    assert rows["bad-hangs"]["why"] == "timeout: not done after 10 s (convert)"
    assert rows["bad-dies"]["why"] == "crashed: its process ended with SIGKILL"
    assert "no such operator" in rows["bad-raises"]["why"]
    assert rows["good-tiny"]["verdict"] in ("equal", "faster", "slower", "undecided")
    assert rows["good-tiny"]["random"]["relative"] < 1e-4
    assert not (tmp_path / "advice").exists()


def test_the_original_is_compared_with_itself_and_each_size_has_metrics(tmp_path: Path, archive: Path) -> None:
    rows = rows_of(job_of(tmp_path, archive, ["good-tiny", "tensorrt", "good-tiny+x"]).run("advise"))
    assert list(rows) == ["original", "good-tiny", "tensorrt", "good-tiny-x"]
    assert {rows[name]["verdict"] for name in ("tensorrt", "good-tiny-x")} == {"does not apply"}
    assert "does not have its runtime" in rows["tensorrt"]["why"]
    assert "only candidates that pass" in rows["good-tiny-x"]["why"]
    original, made = rows["original"], rows["good-tiny"]
    assert original["random"]["max_abs"] == 0.0
    assert [point["batch"] for point in made["points"]] == [1, 4]
    for same, point in zip(original["points"], made["points"], strict=True):
        assert point["margin"] == same["margin"] >= 0.05
        assert point["latency_ns"]["low"] <= point["latency_ns"]["value"] <= point["latency_ns"]["high"]
        assert point["samples_per_s"] == pytest.approx(point["samples"] * 1e9 / point["latency_ns"]["value"])
        assert 10 <= point["rounds"] <= 240
    assert made["rss_bytes"] > 1 << 20
    assert sum(made["places"]["CPUExecutionProvider"].values()) >= 2
    assert made["convert_ns"] > 0


def test_rows_of_the_users_data_and_a_metric_judge(tmp_path: Path, archive: Path) -> None:
    """The error on the data is that of every second row, recomputed here; the metric gets the same rows."""
    data = np.random.default_rng(5).standard_normal((9, 4)).astype("float32")
    np.save(tmp_path / "rows.npy", data)
    np.save(tmp_path / "scale.npy", np.float32(0.5))
    metric = "import numpy as np\ndef metric(original, candidate):\n    return len(original[0])\n"
    job = job_of(tmp_path, archive, ["bad-corrupts"], max_error=1e3, metric=metric)
    job.more["data"] = {"x": str(tmp_path / "rows.npy"), "scale": str(tmp_path / "scale.npy")}
    row = rows_of(job.run("advise"))["bad-corrupts"]
    original, made = (outputs(path, data[::2]) for path in (tmp_path / "model.onnx", corrupted(tmp_path)))
    assert row["data"]["max_abs"] == pytest.approx(float(np.abs(original - made).max()), rel=1e-5)
    assert row["data"]["relative"] == pytest.approx(
        float(np.abs(original - made).max() / np.abs(original).max()), rel=1e-5
    )
    assert row["metric"] == 5.0


def corrupted(folder: Path) -> Path:
    import onnx
    from onnx import numpy_helper

    graph: Any = onnx.load(folder / "model.onnx")
    for one in graph.graph.initializer:
        values: Any = numpy_helper.to_array(one)
        one.CopyFrom(numpy_helper.from_array(values * values.dtype.type(1.5), one.name))
    onnx.save(graph, folder / "corrupted.onnx")
    return folder / "corrupted.onnx"


def outputs(model: Path, rows: Any) -> Any:
    ort: Any = importlib.import_module("onnxruntime")

    session: Any = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": rows, "scale": np.array(0.5, "float32")})[0], np.float64)


def test_the_error_of_a_passing_candidate_equals_that_of_its_files(tmp_path: Path) -> None:
    """Computed anew from the kept models, by ONNX Runtime alone."""
    ort: Any = importlib.import_module("onnxruntime")

    model, python = recording_path("models/onnx/resnet10_dynbatch.onnx"), sys.executable
    inputs = [Input("input", "float32", ["batch", 3, 96, 96])]
    candidates = ["onnx-fp16", "ort-int8-dynamic-operators-all"]
    job = Job(tmp_path, model, inputs, sweep=Sweep("batch", [2]), spec={"threads": 1})
    job.advise = Advise("size", max_error=0.1, only=candidates)
    runtimes = [{"backend": "onnxruntime", "version": "", "python": python, "python_version": "", "devices": ["cpu"]}]
    job.more = {"runtimes": runtimes, "converters": {n: [python] for n in ("onnx_fp16", "ort_int8_dynamic")}}
    rows = rows_of(ran := job.run("advise"))
    feeds = point_feeds(inputs, SweepPoint(2, 2, {"input": (2, 3, 96, 96)}), {}, "batch")

    def outputs(path: Path) -> Any:
        session: Any = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, feeds)[0], np.float64)

    original = outputs(model)
    for name in candidates:
        row = rows[name]
        assert row["passes"], row["why"]
        error = np.abs(original - outputs(ran.out / row["files"][0])).max()
        assert row["random"]["max_abs"] == pytest.approx(float(error), rel=1e-3)
        assert row["random"]["relative"] == pytest.approx(float(error / np.abs(original).max()), rel=1e-3)
        assert row["size_bytes"] == (ran.out / row["files"][0]).stat().st_size


def test_a_file_of_the_same_size_does_not_pass_for_size(tmp_path: Path, archive: Path) -> None:
    job = job_of(tmp_path, archive, ["good-tiny"])
    job.advise = Advise("size", only=["good-tiny"])
    rows = rows_of(job.run("advise"))
    assert not rows["good-tiny"]["passes"]  # as large as before


def test_no_candidate_starts_after_the_time_limit(tmp_path: Path, archive: Path) -> None:
    rows = rows_of(job_of(tmp_path, archive, ["good-tiny"], budget_s=0.0).run("advise"))
    assert rows["good-tiny"]["verdict"] == "not tried"
    assert rows["good-tiny"]["why"] == "the time budget of 0 s was used up"


def script(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "code.py").write_text(text)
    monkeypatch.setattr(sys, "argv", [str(folder / "code.py")])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("open('filler', 'wb').write(bytes(8 << 20)); import time; time.sleep(60)", "disk_full"),
        ("x = bytearray(200 << 20); x[::4096] = bytes(len(x[::4096])); import time; time.sleep(60)", "out_of_memory"),
        ("import time; time.sleep(60)", "timeout"),
        ("import os; os.abort()", "crashed"),
    ],
)
def test_a_process_beyond_its_limits_is_killed(
    tmp_path: Path, text: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, text, monkeypatch)
    limits = ProcessLimits(memory_bytes=100 << 20, disk_bytes=4 << 20)
    process = ChildProcess(sys.executable, tmp_path, "x", tmp_path / "own", limits)
    with pytest.raises(TaskFailure) as error:
        process.wait(2.0 if reason == "timeout" else 30.0)
    process.close()
    assert error.value.reason == reason


@pytest.mark.parametrize("answer", ["", "print('no json', flush=True)", "print('x' * (2 << 20), flush=True)"])
def test_an_invalid_answer_counts_as_a_crash(tmp_path: Path, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, f"input(); {answer}", monkeypatch)
    process = ChildProcess(sys.executable, tmp_path, "x", tmp_path / "own", ProcessLimits(), asked=True)
    with pytest.raises(TaskFailure) as error:
        process.call("load", 20.0)
    process.close()
    assert error.value.reason == "crashed"
