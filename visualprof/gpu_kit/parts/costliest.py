"""The ten costliest operators of a training step, replayed alone and compared with their time in the step."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.answers import answer
from visualprof.gpu_kit.local_job import limit_threads
from visualprof.gpu_kit.models import transformer
from visualprof.gpu_kit.raw_trace import ARGUMENTS, call_times_ms
from visualprof.gpu_kit.recording import RECORDING, record_steps
from visualprof.reader import read_trace

TITLE = "the costliest operators, alone and in their step"
BUDGET_S, PRIORITY = 40, 140
NEEDS = ("torch",)
COUNT, REPLAYS, REPLAYS_S = 10, "replays.json", 30.0
IN_STEP, ALONE = "time in the step of", "time alone of"
# Alone, caches are warm and no other work shares the device.
TOLERANCES = {IN_STEP: 0.01, ALONE: 0.4}


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Record a training step; replay the costliest call of each of the costliest operators.

    The oracles are from the events of the file: the median of the same calls, and the time of the least
    disturbed one, because other programs only add time.

    Raises:
        Skip: None of them can be replayed.
    """
    limit_threads(accelerator)
    recorded = record_steps(accelerator, folder, transformer(accelerator)[1], memory=False, shapes=True)
    replays: dict[str, dict[str, Any]] = {}
    values: dict[str, float] = {}
    deadline = time.monotonic() + REPLAYS_S
    for call in costliest_calls(folder / RECORDING, on_device=accelerator.is_device):
        name = call["name"]
        if time.monotonic() > deadline:
            break
        if (replay := _replay(accelerator, folder, name, call["number"])) is None:
            continue
        replays[name] = replay
        typical_ms, least_ms = (
            call_times_ms(folder / RECORDING, call, statistic)[int(accelerator.is_device)]
            for statistic in (median, min)
        )
        values |= {f"{IN_STEP} {name}, ms": typical_ms, f"{ALONE} {name}, ms": least_ms}
    if not replays:
        raise Skip("none of the costliest operators can be replayed alone")
    (folder / REPLAYS).write_text(json.dumps(replays))
    figures = recorded.figures | {"replayed operators": float(len(replays))}
    return Oracle(values=values, figures=figures, files=[RECORDING, REPLAYS])


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the time of each operator's calls in the recording, and alone: on the device if it has work there."""
    values: dict[str, float] = {}
    for name, replay in json.loads((folder / REPLAYS).read_text("utf-8")).items():
        in_step = replay["recorded"]
        on_device = in_step["device_ns"] is not None
        alone_ns = replay["profiled_device_ns"] if on_device else None
        values[f"{IN_STEP} {name}, ms"] = in_step["device_ns" if on_device else "host_ns"] / 1e6
        values[f"{ALONE} {name}, ms"] = (replay["median_ns"] if alone_ns is None else alone_ns) / 1e6
    return {name: values[name] for name in oracle.values if name in values}


def costliest_calls(path: Path, *, on_device: bool) -> list[dict[str, Any]]:
    """Return the costliest call of each of the costliest operators, as rows of the view `calls`."""
    columns = answer(read_trace(path), "calls").columns
    times = columns.device_ns if on_device else columns.host_ns
    cost_ns = {
        row: times[row] * columns.calls[row]
        for row, name in enumerate(columns.name)
        if times[row] is not None and name.startswith("aten::")
    }
    rows: dict[str, int] = {}
    for row in sorted(cost_ns, key=lambda row: -cost_ns[row]):
        rows.setdefault(columns.name[row], row)
    fields = ("name", "number", *ARGUMENTS.values())
    return [{field: getattr(columns, field)[row] for field in fields} for row in list(rows.values())[:COUNT]]


def _replay(accelerator: Accelerator, folder: Path, name: str, number: int) -> dict[str, Any] | None:
    """Replay a call with the command line; None if it cannot run alone."""
    command = [sys.executable, "-m", "visualprof", "replay", str(folder / RECORDING), "--operator", name, "--run"]
    options = ["--shape", str(number), "--device", accelerator.kind, "--threads", "1", "--format", "json"]
    done = subprocess.run([*command, *options], check=False, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None
