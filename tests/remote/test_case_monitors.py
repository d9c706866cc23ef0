"""Device monitors of cases: shares of own processes, readings of AMD, energy, stored peaks."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from visualprof.remote.agent.machine.nvml import Nvml
from visualprof.remote.agent.machine.peak_cache import FILE_NAME, update_best_peak
from visualprof.remote.agent.machine.rocm import Rocm
from visualprof.remote.agent.work.case_result import measure_device_use
from visualprof.remote.agent.work.monitor_samples import read_header

GIB = 1 << 30


class Module:
    """Answers of functions by their names; what is not there raises, as an old driver does."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        if name not in self._answers:
            raise AttributeError(name)
        answer = self._answers[name]
        return answer if callable(answer) or not name.startswith(("nvml", "amdsmi")) else lambda *_: answer


def test_the_share_of_own_processes_is_separated() -> None:
    running = [SimpleNamespace(pid=7, usedGpuMemory=2 * GIB), SimpleNamespace(pid=8, usedGpuMemory=GIB)]
    running.append(SimpleNamespace(pid=99, usedGpuMemory=30 * GIB))
    rows = [(7, 10, 5), (7, 60, 6), (8, 20, 6), (99, 20, 6)]  # pid, SM %, time: the first is the older one of 7
    used = [SimpleNamespace(pid=p, smUtil=u, timeStamp=t) for p, u, t in rows]
    nvml = Nvml(
        Module(
            nvmlInit=None,
            nvmlDeviceGetCount=1,
            nvmlDeviceGetHandleByIndex="gpu",
            nvmlDeviceGetMemoryInfo=SimpleNamespace(used=33 * GIB, total=80 * GIB),
            nvmlDeviceGetComputeRunningProcesses=running,
            nvmlDeviceGetProcessUtilization=used,
        )
    )
    sample = nvml.sample("cuda:0", {7, 8, 9})
    own_memory = {name: sample[name] for name in ("memory_bytes", "own_memory_bytes", "own_util", "others")}
    assert own_memory == {"memory_bytes": 33 * GIB, "own_memory_bytes": 3 * GIB, "own_util": 0.8, "others": 1}
    unknown = nvml.sample("cuda:0", {1})  # in a container the driver's numbers are others
    assert unknown == nvml.sample("cuda:0")
    assert not {"own_memory_bytes", "own_util", "others"} & set(unknown)


def test_of_a_divided_gpu_the_first_instance_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"gpu": 80, "part 1": 10, "named": 20}
    parts = {1: "part 1"}  # there is no instance 0

    nvml = Nvml(
        Module(
            nvmlInit=None,
            nvmlDeviceGetCount=1,
            nvmlDeviceGetHandleByIndex="gpu",
            nvmlDeviceGetMigMode=[1, 1],
            nvmlDeviceGetMaxMigDeviceCount=7,
            nvmlDeviceGetMigDeviceHandleByIndex=lambda _, i: parts[i],
            nvmlDeviceGetHandleByUUID=lambda name: {"MIG-3": "named"}[name],
            nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=sizes[handle], total=2 * sizes[handle]),
        )
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert nvml.sample("cuda:0")["memory_bytes"] == 10
    assert nvml.sample("cuda:0")["util"] is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-3")
    assert nvml.sample("cuda:0")["memory_bytes"] == 20
    assert [gpu.memory_bytes for gpu in nvml.gpus()] == [40]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-4")
    assert nvml.gpus() == []


def amd_smi(**changes: Any) -> Module:
    """Two GPUs, in the form that AMD SMI's manual gives: MB, W, MHz, degrees, and "N/A" for what a sensor lacks."""
    kinds = {
        name: SimpleNamespace(GFX="GFX", MEM="MEM", HOTSPOT="HOTSPOT", CURRENT="CURRENT")
        for name in ("AmdSmiClkType", "AmdSmiTemperatureType", "AmdSmiTemperatureMetric")
    }
    clocks = {"GFX": {"clk": 2100, "min_clk": 500, "max_clk": 2100}, "MEM": {"clk": 900}}
    answers = {
        "amdsmi_init": None,
        "amdsmi_get_processor_handles": ["first", "second"],
        "amdsmi_get_gpu_asic_info": {"market_name": "AMD Instinct MI300X"},
        "amdsmi_get_gpu_driver_info": {"driver_version": "6.8.5"},
        "amdsmi_get_gpu_device_uuid": lambda handle: f"uuid of the {handle}",
        "amdsmi_get_gpu_activity": {"gfx_activity": 75, "umc_activity": 20, "mm_activity": "N/A"},
        "amdsmi_get_power_info": {"current_socket_power": 550, "average_socket_power": "N/A"},
        "amdsmi_get_clock_info": lambda _, kind: clocks[kind],
        "amdsmi_get_temp_metric": 61,
        "amdsmi_get_gpu_vram_usage": {"vram_total": 196592, "vram_used": 2048},
        "amdsmi_get_gpu_process_list": [
            {"name": "python", "pid": 7, "mem": GIB, "memory_usage": {"gtt_mem": 0, "cpu_mem": 0, "vram_mem": GIB}},
            {"name": "N/A", "pid": 99, "mem": 5, "memory_usage": {"gtt_mem": 0, "cpu_mem": 0, "vram_mem": 5}},
        ],
    }
    return Module(**kinds, **answers | changes)


def test_amds_gpus_have_the_readings_of_nvidias(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    rocm = Rocm(amd_smi())
    first = rocm.gpus()[0]
    assert (first.id, first.name, first.memory_bytes >> 20) == ("cuda:0", "AMD Instinct MI300X", 196592)
    sample = rocm.sample("cuda:1", {7})
    expected = {
        "util": 0.75,
        "mem_util": 0.2,
        "sm_mhz": 2100,
        "mem_mhz": 900,
        "memory_bytes": 2 * GIB,
        "power_w": 550,
        "temperature_c": 61,
        "throttle": None,
        "own_memory_bytes": GIB,
        "others": 1,
    }
    assert sample == expected
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1,0")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    assert [rocm.uuid(gpu.id) for gpu in rocm.gpus()] == ["uuid of the second"]


def test_older_names_and_lacking_sensors_of_amd() -> None:
    old = amd_smi(
        amdsmi_get_clock_info=lambda _, kind: {"cur_clk": 1700},
        amdsmi_get_power_info={"average_socket_power": 38},
        amdsmi_get_gpu_activity={"gfx_activity": "N/A", "umc_activity": "N/A"},
        amdsmi_get_temp_metric=lambda *_: 1 / 0,
    )
    sample = Rocm(old).sample("cuda:0")
    told = [sample[name] for name in ("sm_mhz", "power_w", "util", "temperature_c")]
    assert told == [1700, 38, None, None]
    none = Rocm(Module())
    assert (none.gpus(), none.problem.split(":")[0]) == ([], "AttributeError")
    assert set(none.sample("cuda:0").values()) == {None}


def recorded(path: Path, **keys: list[Any]) -> Path:
    """A monitor's file of NVML: a sample each 100 ms from 1 s on."""
    rows: list[dict[str, Any]] = [{"gpus": [{"id": "cuda:0", "memory_bytes": 80 * GIB}]}]
    for i, values in enumerate(zip(*keys.values(), strict=True)):
        rows.append({"t_ns": 1_000_000_000 + i * 100_000_000, "gpus": [dict(zip(keys, values, strict=True))]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_recorded_session_gives_memory_power_and_energy(tmp_path: Path) -> None:
    file = recorded(
        tmp_path / "monitor.jsonl",
        memory_bytes=[33, 35, 36, 40, 33],
        own_memory_bytes=[None, 3, 5, 4, None],
        power_w=[100, 200, 300, 200, 100],
        util=[0.1, 0.9, 0.9, 0.9, 0.1],
        own_util=[None, 0.8, 0.6, None, None],
        sm_mhz=[300, 1500, 1800, 1500, 300],
    )
    # Inference from 1.1 s to 1.3 s, 20 samples: of 200, 300 and 200 W, 0.1 s at 250 W twice, 50 J.
    device_use = measure_device_use(file, (1_100_000_000, 1_300_000_000, 20))
    assert device_use["energy_j_per_sample"] == pytest.approx(50 / 20)
    assert device_use["power_w"] == pytest.approx(700 / 3)
    assert device_use["clock_mhz"] == 1600
    assert device_use["utilization"] == pytest.approx(0.7)
    assert device_use["memory_used_bytes"] == 5, "what our processes had at most; others had the rest"
    assert read_header(file)["gpus"][0]["memory_bytes"] == 80 * GIB
    assert read_header(tmp_path / "none") == {}


def test_the_best_measured_peak_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "runtimes"
    samples = [(200.0, 1), (150.0, 1), (90.0, 2), (250.0, 1)]
    assert [update_best_peak(folder, "CPU", "fp32", threads, flops) for flops, threads in samples] == [
        200,
        200,
        90,
        250,
    ]
    (folder / FILE_NAME).write_text("[1]")
    assert update_best_peak(folder, "CPU", "fp32", 1, 10.0) == 10
