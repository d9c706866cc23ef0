"""A shipped benchmark case on the device, compared with the same network without the case."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator

TITLE = "a shipped case"
BUDGET_S, PRIORITY = 20, 190
NEEDS = ("torch",)
TOLERANCES = {"accuracy": 0.01}
CASE, RESULT = "digits", "case.json"
VENDORS = {"cuda": "nvidia", "cpu": "cpu"}


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Run the case on the device; the oracle is its accuracy in a loop over the same rows without the case."""
    if (vendor := VENDORS.get(accelerator.kind)) is None:
        raise Skip(f"no vendor of cases for {accelerator.kind}")
    out = folder / "run"
    command = [
        sys.executable,
        "-m",
        "visualprof",
        "case",
        "run",
        CASE,
        "--vendor",
        vendor,
        "--device",
        accelerator.job_device,
    ]
    subprocess.run([*command, "--compiler", "none", "--out", str(out)], check=True, capture_output=True)
    shutil.move(out / RESULT, folder / RESULT)
    return Oracle(values={"accuracy of the validation": _bare_accuracy(accelerator)}, files=[RESULT])


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the accuracy that the case reports."""
    result = json.loads((folder / RESULT).read_text("utf-8"))
    accuracy = float(result["validation"]["accuracy"])
    return dict.fromkeys(oracle.values, accuracy)


def _bare_accuracy(accelerator: Accelerator) -> float:
    """Return the share of the case's pictures that the network classifies right, computed layer by layer."""
    import numpy as np

    from visualprof.remote import cases

    torch, data = accelerator.torch, Path(cases.__path__[0], "library", CASE, "data")
    functional = torch.nn.functional
    rows, weights = np.load(data / "digits.npz"), np.load(data / "weights.npz")
    values = {name: torch.from_numpy(weights[name]).to(accelerator.kind) for name in weights}
    images = torch.from_numpy(rows["images"]).float().reshape(-1, 1, 8, 8).to(accelerator.kind) / 16
    hidden = functional.conv2d(images, values["0.weight"], values["0.bias"], padding=1).relu()
    hidden = functional.conv2d(hidden, values["2.weight"], values["2.bias"], padding=1).relu()
    logits = functional.max_pool2d(hidden, 2).flatten(1) @ values["6.weight"].T + values["6.bias"]
    return float((logits.argmax(1).cpu().numpy() == rows["digits"]).mean())
