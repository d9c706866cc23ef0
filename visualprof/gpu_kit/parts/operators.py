"""Matrix products of a recording, replayed alone and compared with a loop of the framework."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from visualprof.gpu_kit import Oracle
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.local_job import limit_threads
from visualprof.gpu_kit.recording import RECORDING, record_steps

TITLE = "operators replayed alone"
BUDGET_S, PRIORITY = 25, 150
NEEDS = ("torch",)
TOLERANCES = {"time of": 0.05}
SIDES = (256, 512, 1024)
REPLAYS = "replays.json"


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Record products of several sizes, replay each shape alone, and time each shape in a plain loop."""
    torch = accelerator.torch
    limit_threads(accelerator)
    pairs = {side: [torch.rand(side, side, device=accelerator.kind) for _ in range(2)] for side in SIDES}

    def step() -> None:
        for left, right in pairs.values():
            torch.mm(left, right)

    recorded = record_steps(accelerator, folder, step, memory=False)
    replays: dict[str, Any] = {}
    values: dict[str, float] = {}
    for i, side in enumerate(reversed(SIDES)):  # the longest call first
        replays[_name(side)] = _replay(accelerator, folder, i)
        left, right = pairs[side]
        values[_name(side)] = accelerator.median_ms(lambda a=left, b=right: torch.mm(a, b), 50)
    (folder / REPLAYS).write_text(json.dumps(replays))
    return Oracle(values=values, figures=recorded.figures, files=[RECORDING, REPLAYS])


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the replayed times."""
    replays: dict[str, dict[str, float]] = json.loads((folder / REPLAYS).read_text("utf-8"))
    return {name: replay["median_ns"] / 1e6 for name, replay in replays.items() if name in oracle.values}


def _name(side: int) -> str:
    return f"time of aten::mm {side}x{side}, ms"


def _replay(accelerator: Accelerator, folder: Path, shape: int) -> dict[str, Any]:
    """Replay a shape of the recorded product with the command line, as a user would."""
    command = [sys.executable, "-m", "visualprof", "replay", str(folder / RECORDING), "--operator", "aten::mm"]
    options = ["--shape", str(shape), "--run", "--device", accelerator.kind, "--threads", "1", "--format", "json"]
    done = subprocess.run([*command, *options], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)
