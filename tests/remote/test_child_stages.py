"""The child as an agent starts it: stages, events, files, failures; on a tiny model in ONNX Runtime."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.remote.child_runs import TINY_INPUTS, Job, tiny_onnx
from visualprof.remote.child.main import EventLog, to_failure
from visualprof.remote.protocol import Input, Measure, Profile, Sweep

pytestmark = pytest.mark.slow


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path, tiny_onnx(tmp_path / "model.onnx"), TINY_INPUTS, sweep=Sweep("batch", [1, 4]))


def test_measuring_reports_phases_points_and_progress_in_order(job: Job) -> None:
    ran = job.run()
    assert ran.status == 0, ran.stderr
    told = [e["event"] if e["event"] != "phase" else (e["phase"], e.get("batch")) for e in ran.events]
    assert told == [
        ("preparing", None),
        "progress",
        ("converting", None),
        "effective",
        ("measuring", 1),
        "point",
        "progress",
        ("measuring", 4),
        "point",
        "progress",
        "done",
    ]
    assert [(e["done"], e["total"]) for e in ran.told("progress")] == [(0, 2), (1, 2), (2, 2)]
    assert ran.stdout == ran.stderr == ""


def test_points_and_samples_of_the_result_equal_the_reported_ones(job: Job) -> None:
    ran = job.run()
    assert ran.points == [e["point"] for e in ran.told("point")]
    assert [p["batch"] for p in ran.points] == [1, 4]
    for point in ran.points:
        samples = np.sort(ran.samples(point))
        assert len(samples) == point["n"] >= 20
        assert (samples[0], samples[-1]) == (point["min_ns"], point["max_ns"])
        assert point["p50_ns"] == samples[-(-len(samples) // 2) - 1]
        assert samples.sum() <= point["duration_ns"]
        assert point["samples_per_s"] == pytest.approx(point["qps"] * point["batch"])
    size = (ran.out / "latencies.bin").stat().st_size
    assert size == 4 * sum(p["n"] for p in ran.points)


def test_the_version_of_the_runtime_is_reported(job: Job) -> None:
    from importlib.metadata import version

    assert job.run().told("effective")[0]["version"] == version("onnxruntime")


def test_the_load_does_not_contain_the_import_of_the_runtime(job: Job) -> None:
    assert 0 < job.run().points[0]["load_ns"] < 1_000_000_000


def test_a_profile_stage_writes_its_file_and_leaves_the_points_alone(job: Job) -> None:
    points = job.run().points
    ran = job.run("profile:timeline")
    assert ran.status == 0, ran.stderr
    assert ran.points == points
    assert [e["event"] for e in ran.events] == ["phase", "profile", "done"]
    assert ran.events[0] == {"event": "phase", "phase": "profiling", "batch": 1}
    profile_event = ran.told("profile")[0]
    assert (profile_event["pass"], profile_event["file"], profile_event["batch"], profile_event["runs"]) == (
        "timeline",
        "timeline.json",
        1,
        3,
    )


def test_a_profile_is_taken_at_the_size_that_was_asked_for(job: Job) -> None:
    job.profile = Profile(2, 4)
    profile_event = job.run("profile:timeline").told("profile")[0]
    assert (profile_event["batch"], profile_event["runs"]) == (4, 2)


def test_a_profile_at_a_size_that_is_not_swept_is_refused(job: Job) -> None:
    job.profile = Profile(2, 3)
    told = job.run("profile:timeline").failed
    assert (told["reason"], told["error"]) == ("input_error", "profile.at: 3 is not in the sweep")


def test_a_pass_that_the_backend_does_not_have_is_the_agents_fault(job: Job) -> None:
    assert job.run("profile:kernels").failed["reason"] == "agent_error"


def test_uploaded_values_reach_the_model(tmp_path: Path, job: Job) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 4), np.float16))
    job.inputs = [Input("x", "float32", ["batch", 4], "file"), TINY_INPUTS[1]]
    job.arrays = {"x": tmp_path / "x.npy"}
    ran = job.run()
    assert ran.status == 0, ran.stderr
    assert [p["batch"] for p in ran.points] == [1, 4]


def test_a_wrong_array_is_an_input_error_and_nothing_is_measured(tmp_path: Path, job: Job) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 5), np.float32))
    job.inputs = [Input("x", "float32", ["batch", 4], "file"), TINY_INPUTS[1]]
    job.arrays = {"x": tmp_path / "x.npy"}
    ran = job.run()
    assert ran.failed["reason"] == "input_error"
    assert ran.failed["error"] == "input 'x', dimension 1: the file has 5, the model expects 4"
    assert ran.points == []


def test_a_failing_point_keeps_the_earlier_points(tmp_path: Path, job: Job) -> None:
    job.model = tiny_onnx(tmp_path / "fixed.onnx", batch=2)
    job.sweep = Sweep("batch", [2, 4])
    ran = job.run()
    (warning,) = ran.told("warning")
    assert warning["text"].startswith("not measured: at batch=4: ")
    assert "invalid dimensions" in warning["text"]
    assert [p["batch"] for p in ran.points] == [2]
    assert (ran.status, "Traceback" in ran.stderr) == (0, True)


def test_a_point_without_memory_keeps_the_earlier_points(job: Job) -> None:
    job.sweep = Sweep("batch", [1, 10**11])
    ran = job.run(prefix=["prlimit", f"--as={4 << 30}"])
    (warning,) = ran.told("warning")
    assert "at batch=100000000000: input 'x': not enough memory" in warning["text"]
    assert [p["batch"] for p in ran.points] == [1]


def test_without_any_point_the_task_ends_as_out_of_memory(job: Job) -> None:
    job.sweep = Sweep("batch", [10**11])
    assert job.run(prefix=["prlimit", f"--as={4 << 30}"]).failed["reason"] == "out_of_memory"


@pytest.mark.parametrize("content", [b"", b"no model", b"\x08\x07" * 100])
def test_a_file_that_is_not_a_model_is_a_model_error(job: Job, content: bytes) -> None:
    job.model.write_bytes(content)
    told = job.run().failed
    assert told["reason"] == "model_error"
    assert told["error"]
    assert "\n" not in told["error"]


def test_an_unknown_backend_is_a_lost_runtime(job: Job) -> None:
    job.backend = "tensorrt"
    assert job.run().failed["reason"] == "no_runtime"


def test_a_file_that_may_not_grow_further_is_a_full_disk(job: Job) -> None:
    job.measure = Measure(warmup_s=0.01, min_s=0.01, max_s=10.0, min_n=100_000)
    ran = job.run(prefix=["prlimit", f"--fsize={200 * 1024}"])
    assert ran.failed["reason"] == "disk_full"


def test_a_full_disk_is_still_reported(tmp_path: Path) -> None:
    """On a file system of 128 KiB that the points fill."""
    script = f"""
import errno, sys
from pathlib import Path
from visualprof.remote.child.main import EventLog
disk = Path({str(tmp_path)!r}) / "disk"
events = EventLog(disk / "events.jsonl")
try:
    with (disk / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(4096)):
            pass
except OSError as error:
    assert error.errno == errno.ENOSPC
    events.emit("failed", reason="disk_full", error="x" * 5000, hint="")
    sys.exit(0 if (disk / "events.jsonl").stat().st_size > 5000 else 3)
"""
    (tmp_path / "disk").mkdir()
    mount = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=128k none "$1" && exec "$2" -c "$3"', "sh"]
    done = subprocess.run(
        [*mount, str(tmp_path / "disk"), sys.executable, script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"needs to mount a small file system: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


def test_the_room_for_the_last_event_is_given_back(tmp_path: Path) -> None:
    events = EventLog(tmp_path / "events.jsonl")
    events.emit("done")
    events.close()
    assert [f.name for f in tmp_path.iterdir()] == ["events.jsonl"]
    assert json.loads((tmp_path / "events.jsonl").read_text()) == {"event": "done"}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "out_of_memory"),
        (RuntimeError("std::bad_alloc"), "out_of_memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out_of_memory"),
        (OSError(28, "No space left on device"), "disk_full"),
        (ModuleNotFoundError("No module named 'onnxruntime'"), "no_runtime"),
        (ValueError("bad node"), "model_error"),
        (OSError("<urlopen error [Errno -3] Temporary failure in name resolution>"), "input_error"),
    ],
)
def test_an_exception_has_its_reason(error: Exception, reason: str) -> None:
    assert to_failure(error).reason == reason


def test_the_sentence_of_a_long_message_is_the_line_that_names_the_error() -> None:
    text = "The following operation failed.\nTraceback:\n  at x\nRuntimeError: Expected 4D\n"
    assert to_failure(RuntimeError(text)).error == "RuntimeError: Expected 4D"
    text = "Exception from src/core.cpp:84:\nCheck 'false' failed at src/x.cpp:1:\nNo rule for operations: a.B\n\n"
    assert to_failure(RuntimeError(text)).error == "RuntimeError: No rule for operations: a.B"
    assert to_failure(RuntimeError("")).error == "RuntimeError"


def test_the_package_runs_without_an_archive(job: Job) -> None:
    assert job.run().status == 0
    done = subprocess.run(
        [sys.executable, "-m", "visualprof.remote.child", str(job.work), "measure"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
