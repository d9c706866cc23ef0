"""Recordings by `visualprof.capture`, compared with the tables of the profiler that made the recordings."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Generator, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from visualprof.gpu_kit import Oracle
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.answers import answer
from visualprof.gpu_kit.models import Step
from visualprof.reader import read_trace
from visualprof.reader.trace import Trace

STEPS, TIMED_STEPS, ROWS = 5, 10, 10
RECORDING = "recording.pt.trace.json.gz"
TOLERANCES = {"calls": 0.0, "steps": 0.0}


class AverageRow(msgspec.Struct):
    """A row of `key_averages()`.

    Attributes:
        calls: Number of calls.
        host_us: Self time on the host in microseconds.
        device_us: Self time on the device in microseconds.
        is_device: Whether the row is work of a device: a kernel or a copy.
    """

    name: str
    calls: int
    host_us: float
    device_us: float
    is_device: bool


_ROWS = msgspec.json.Decoder(list[AverageRow])


def record_steps(accelerator: Accelerator, folder: Path, step: Step, **options: Any) -> Oracle:
    """Record some steps; return the values of the profiler's own tables and of the allocator."""
    plain_ms = accelerator.median_ms(step, TIMED_STEPS)
    accelerator.reset_peak_memory()
    with _averages_in(folder / "averages.json"):
        recorded_ms = _record(accelerator, folder, step, options)
    rows = _ROWS.decode((folder / "averages.json").read_bytes())
    values = _average_values(rows) | {"steps": float(STEPS)}
    if (peak := accelerator.peak_memory_bytes()) is not None and options.get("memory", True):
        values["peak memory, bytes"] = float(peak)
    figures = {"step without the profiler, ms": plain_ms, "step while recording, ms": recorded_ms}
    return Oracle(values=values, figures=figures, files=[RECORDING])


def read_recording(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the values that the views compute from the recording."""
    return recording_values(read_trace(folder / RECORDING), oracle)


def recording_values(trace: Trace, oracle: Oracle) -> dict[str, float]:
    """Return the values of an open recording."""
    operators, steps = answer(trace, "operator").columns, answer(trace, "overview").steps
    values: dict[str, float] = {"steps": float(len(steps.name))}
    for i, name in enumerate(operators.name):
        values[f"calls of {name}"] = float(operators.calls[i])
        values[f"host self time of {name}, us"] = operators.host_self_ns[i] / 1e3
    if any("kernel" in name for name in oracle.values):
        kernels = answer(trace, "kernel").columns
        values["kernel time, us"] = float(sum(kernels.total_ns)) / 1e3
        values["calls of kernels"] = float(sum(kernels.calls))
    if "peak memory, bytes" in oracle.values:
        devices = [device for device in answer(trace, "memory").devices if device.id != "cpu"]
        values["peak memory, bytes"] = float(max((device.peak_allocated_bytes for device in devices), default=0))
    return values


def _record(accelerator: Accelerator, folder: Path, step: Step, options: dict[str, Any]) -> float:
    """Record into the folder; return the median duration of the recorded steps in milliseconds."""
    from visualprof.capture import profile

    durations_ms: list[float] = []
    logdir = Path(tempfile.mkdtemp(prefix="runs-", dir=folder))
    with profile(logdir, steps=STEPS, warmup=1, run="run", framework="torch", **options) as recording:
        start = time.perf_counter()
        for number in range(STEPS + 1):
            step()
            accelerator.synchronize()
            if number == STEPS:  # the end of the recording is not part of the last step
                durations_ms.append((time.perf_counter() - start) * 1e3)
            recording.step()
            if number < STEPS:
                durations_ms.append((time.perf_counter() - start) * 1e3)
            start = time.perf_counter()
    (path,) = recording.files()
    shutil.move(path, folder / RECORDING)
    shutil.rmtree(logdir)
    return median(durations_ms[1:])  # the same steps as in the recording


@contextlib.contextmanager
def _averages_in(path: Path) -> Generator[None]:
    """Let the recorder of PyTorch also write the profiler's `key_averages()`."""
    from visualprof.capture.recorders import torch as recorders

    dump = recorders.Recorder.dump

    def dump_both(recorder: Any, file: Path) -> None:
        dump(recorder, file)
        rows = [_average_row(event) for event in recorder.profiler.key_averages()]
        path.write_bytes(msgspec.json.encode(rows))

    setattr(recorders.Recorder, "dump", dump_both)  # noqa: B010 - a recorder takes no observer of its dump
    try:
        yield
    finally:
        recorders.Recorder.dump = dump


def _average_row(event: Any) -> AverageRow:
    is_device = "CPU" not in str(event.device_type)
    device_us = getattr(event, "self_device_time_total", None)
    device_us = event.self_cuda_time_total if device_us is None else device_us  # before PyTorch 2.4
    return AverageRow(event.key, event.count, event.self_cpu_time_total, device_us, is_device)


def _average_values(rows: Iterable[AverageRow]) -> dict[str, float]:
    """Return the values of the costliest operators and of all kernels."""
    operators = [row for row in rows if row.name.startswith("aten::") and not row.is_device]
    values: dict[str, float] = {}
    for row in sorted(operators, key=lambda row: -row.host_us)[:ROWS]:
        values[f"calls of {row.name}"] = float(row.calls)
        values[f"host self time of {row.name}, us"] = row.host_us
    kernels = [row for row in rows if row.is_device and not row.name.startswith(("Memcpy", "Memset", "ProfilerStep"))]
    if kernels:
        values["kernel time, us"] = sum(row.device_us for row in kernels)
        values["calls of kernels"] = float(sum(row.calls for row in kernels))
    return values
