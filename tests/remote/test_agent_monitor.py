"""Samples of the machine and its GPU, with NVML played by a library and by Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.conftest import ROOT
from tests.recordings import recording_path
from tests.remote.agent_runs import StartAgent, server, start
from tests.remote.fake_server import FakeServer
from visualprof.remote.agent.machine.monitor import Monitor
from visualprof.remote.agent.machine.nvml import Nvml
from visualprof.remote.agent.machine.processes import ProcessTree
from visualprof.remote.protocol import Spec

__all__ = ["server", "start"]


class NotSupported(Exception):
    pass


class FakeNvml:
    """Two GPUs; whatever is in `lacks` raises, as an old driver or a board without the sensor does."""

    def __init__(self, *lacks: str, reasons: int = 0) -> None:
        self.lacks = lacks
        self.reasons = reasons

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlInit": None,
            "nvmlDeviceGetCount": 2,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=50, memory=25),
            "nvmlDeviceGetClockInfo": 1500,
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=1 << 30, total=80 << 30),
            "nvmlDeviceGetPowerUsage": 250_000,
            "nvmlDeviceGetTemperature": 60,
            "nvmlDeviceGetCurrentClocksEventReasons": self.reasons,
            "nvmlDeviceGetCurrentClocksThrottleReasons": self.reasons,
            "nvmlDeviceGetName": b"GPU of tests",
            "nvmlSystemGetDriverVersion": "550.1",
        }
        if name == "nvmlDeviceGetHandleByIndex":
            return lambda i: f"handle {i}"
        if name == "nvmlDeviceGetUUID":
            return lambda handle: f"GPU-{handle[-1]}"

        def ask(*_: object) -> Any:
            if name in self.lacks:
                raise NotSupported(name)
            return answers[name]

        return ask


def run_monitor(path: Path, nvml: Nvml, gpus: list[str], seconds: float = 0.3) -> list[dict[str, Any]]:
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    monitor = Monitor(path, 0.05, nvml, gpus)
    try:
        monitor.watch(ProcessTree(child.pid))
        monitor.phase, monitor.batch = "measuring", 8
        monitor.start()
        time.sleep(seconds)
    finally:
        monitor.close()
        child.kill()
        child.wait()
    assert monitor.error is None
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_samples_are_dated_tagged_and_of_the_child(tmp_path: Path) -> None:
    before = time.time_ns()
    head, *samples = run_monitor(tmp_path / "monitor.jsonl", Nvml(FakeNvml()), [], 0.6)
    assert (head["schema"], head["interval_ms"], head["gpus"]) == ("visualprof.monitor/1", 50, [])
    assert isinstance(head["pid"], int)
    assert all(before < sample["t_ns"] <= time.time_ns() for sample in samples)
    assert {(row["phase"], row["batch"]) for row in samples} == {("measuring", 8)}
    assert all(row["rss_bytes"] > 1 << 20 for row in samples)
    shares = [each[key] for each in samples[1:] for key in ("cpu", "child_cpu", "pressure") if each[key] is not None]
    assert all(0 <= share <= 1 for share in shares)
    busiest = max(row["child_cpu"] for row in samples[1:])
    assert busiest > 0.1 / (os.cpu_count() or 1), "it spins on one core"


def test_a_gpu_is_sampled(tmp_path: Path) -> None:
    head, *samples = run_monitor(tmp_path / "monitor.jsonl", Nvml(FakeNvml(reasons=0x04 | 0x01)), ["cuda:1"])
    assert head["gpus"] == [{"id": "cuda:1", "name": "GPU of tests", "uuid": "GPU-1", "memory_bytes": 80 << 30}]
    assert samples[0]["gpus"] == [
        {
            "util": 0.5,
            "mem_util": 0.25,
            "sm_mhz": 1500,
            "mem_mhz": 1500,
            "memory_bytes": 1 << 30,
            "power_w": 250.0,
            "temperature_c": 60,
            "throttle": ["power cap"],
        }
    ]


@pytest.mark.parametrize(
    ("function", "key"),
    [
        ("nvmlDeviceGetUtilizationRates", "util"),
        ("nvmlDeviceGetClockInfo", "sm_mhz"),
        ("nvmlDeviceGetMemoryInfo", "memory_bytes"),
        ("nvmlDeviceGetPowerUsage", "power_w"),
        ("nvmlDeviceGetTemperature", "temperature_c"),
    ],
)
def test_a_reading_that_is_not_supported_is_null(function: str, key: str) -> None:
    sample = Nvml(FakeNvml(function)).sample("cuda:0")
    assert sample[key] is None
    assert sum(value is not None for value in sample.values()) >= 6


def test_an_old_driver_has_throttle_reasons_by_their_old_name() -> None:
    old = FakeNvml("nvmlDeviceGetCurrentClocksEventReasons", reasons=0x40)
    assert Nvml(old).sample("cuda:0")["throttle"] == ["hw thermal"]
    older = FakeNvml("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    assert Nvml(older).sample("cuda:0")["throttle"] is None


def test_gpus_are_numbered_as_cuda_numbers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert Nvml(FakeNvml()).uuid("cuda:0") == "GPU-1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    assert [gpu.id for gpu in Nvml(FakeNvml()).gpus()] == ["cuda:0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert Nvml(FakeNvml()).gpus() == []


def test_without_a_driver_there_is_no_gpu() -> None:
    none = Nvml(FakeNvml("nvmlInit"))
    assert none.gpus() == []
    assert "NotSupported" in none.problem
    assert set(none.sample("cuda:0").values()) == {None}


def test_a_tree_has_the_memory_of_all_its_processes() -> None:
    code = "import subprocess, sys, time; x = bytearray(50 << 20); time.sleep(60)"
    parent = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {code!r}]); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", parent])
    try:
        tree = ProcessTree(process.pid)
        end = time.monotonic() + 5
        while tree.rss_bytes() < 50 << 20 and time.monotonic() < end:
            time.sleep(0.05)
        assert tree.rss_bytes() >= 50 << 20
        assert len(tree.processes()) == 2
    finally:
        for child in [*psutil.Process(process.pid).children(), process]:
            child.kill()
        process.wait()


SCRIPT = """
import json
from visualprof.remote.agent.machine.nvml import Nvml
nvml = Nvml()
print(json.dumps([[vars(g) for g in nvml.gpus()], nvml.uuid("cuda:0"), [nvml.sample("cuda:0") for _ in range(3)]]))
"""


@pytest.fixture
def replayed(tmp_path: Path) -> dict[str, str]:
    """An environment in which the real pynvml finds a library that plays samples."""
    source = recording_path("nvml_fake/fake_nvml.c")
    if not shutil.which("gcc"):
        pytest.skip("needs gcc to build the library that stands in for NVML")
    command = ["gcc", "-shared", "-fPIC", "-w", "-o", str(tmp_path / "libnvidia-ml.so.1"), str(source)]
    subprocess.run(command, check=True)
    rows = "50,20,1000,500,100000,40\n60,30,1500,600,200000,50\n0,0,210,400,60000,30\n"
    (tmp_path / "samples.csv").write_text(rows)
    variables = {
        "LD_LIBRARY_PATH": str(tmp_path),
        "FAKE_NVML_CSV": str(tmp_path / "samples.csv"),
        "PYTHONPATH": str(ROOT),
    }
    return {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"} | variables


def test_the_unmodified_pynvml_gives_the_librarys_samples(replayed: dict[str, str]) -> None:
    pytest.importorskip("pynvml")
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=replayed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    gpus, uuid, samples = json.loads(done.stdout)
    assert gpus == [{"id": "cuda:0", "name": "FAKE GPU", "memory_bytes": 80 << 30, "driver": ""}]
    assert uuid == "GPU-00000000-fake"
    played = [(s["util"], s["sm_mhz"], s["memory_bytes"] >> 20, s["power_w"], s["temperature_c"]) for s in samples]
    assert played == [(0.5, 1000, 500, 100.0, 40), (0.6, 1500, 600, 200.0, 50), (0.0, 210, 400, 60.0, 30)]
    assert samples[0]["throttle"] is None, "the library lacks that function"


@pytest.mark.slow
def test_a_task_on_a_gpu_has_its_energy_and_its_clocks(
    server: FakeServer, start: StartAgent, replayed: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("pynvml")
    (tmp_path / "samples.csv").write_text("50,20,1000,500,100000,40\n")
    task = server.submit(b"measure=0.5", spec=Spec("s1", "onnxruntime", device="cuda:0"))
    variables = {name: replayed[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML_CSV")}
    start(FAKE_DEVICES="cuda:0", **variables)
    assert server.finished(task)["state"] == "succeeded"
    head, *samples = task.lines("monitor.jsonl")
    assert head["gpus"] == [{"id": "cuda:0", "name": "FAKE GPU", "uuid": "GPU-00000000-fake", "memory_bytes": 80 << 30}]
    assert {(sample["gpus"][0]["sm_mhz"], sample["gpus"][0]["power_w"]) for sample in samples} == {(1000, 100.0)}
    [point] = task.lines("points.jsonl")
    seconds = (point["end_ns"] - point["start_ns"]) / 1e9
    assert point["energy_j_per_sample"] == pytest.approx(100 * seconds / (point["n"] * 4), rel=0.01)
    assert "throttled" not in point, "the library does not know"
