"""Every shipped benchmark case on the device: it succeeds, with the accuracy that it has on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.parts.case import RESULT, VENDORS

TITLE = "all shipped cases"
BUDGET_S, PRIORITY = 30, 220
NEEDS = ("torch",)
SUCCEEDED, ACCURACY = "success of", "accuracy of"
TOLERANCES = {SUCCEEDED: 0.0, ACCURACY: 0.01}
RESULTS = "cases.json"


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Run each case on the device; run those with an accuracy also on the CPU, which is the oracle."""
    if not accelerator.is_device:
        raise Skip("the oracle is the CPU; the part `case` runs a case on it")
    if (vendor := VENDORS.get(accelerator.kind)) is None:
        raise Skip(f"no vendor of cases for {accelerator.kind}")
    values: dict[str, float] = {}
    figures: dict[str, float] = {}
    results: dict[str, dict[str, Any]] = {}
    for name in shipped_cases():
        result = _run(name, vendor, accelerator.job_device, folder / name)
        results[name] = {"state": result.get("state"), "accuracy": _validated(result, "accuracy")}
        values[f"{SUCCEEDED} {name}"] = 1.0
        figures[f"samples of {name} per second"] = _validated(result, "core_per_s") or 0.0
        if results[name]["accuracy"] is not None:
            on_host = _run(name, VENDORS["cpu"], "cpu", folder / f"{name}-cpu")
            values[f"{ACCURACY} {name}"] = _validated(on_host, "accuracy") or 0.0
    (folder / RESULTS).write_text(json.dumps(results))
    return Oracle(values=values, figures=figures, files=[RESULTS])


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the outcomes on the device."""
    values: dict[str, float] = {}
    for name, result in json.loads((folder / RESULTS).read_text("utf-8")).items():
        values[f"{SUCCEEDED} {name}"] = float(result["state"] == "succeeded")
        if result["accuracy"] is not None:
            values[f"{ACCURACY} {name}"] = float(result["accuracy"])
    return {name: values[name] for name in oracle.values if name in values}


def shipped_cases() -> list[str]:
    """Return the names of the cases that ship."""
    from visualprof.remote import cases

    library = Path(cases.__path__[0], "library")
    return sorted(path.parent.name for path in library.glob("*/case.yaml"))


def _validated(result: dict[str, Any], key: str) -> float | None:
    """Return a number of the validation; None without a validation, or if the case has no such number."""
    validation: dict[str, Any] = result.get("validation") or {}
    return None if validation.get(key) is None else float(validation[key])


def _run(name: str, vendor: str, device: str, out: Path) -> dict[str, Any]:
    """Run a case without a compiler and with one repeat; return its result, an empty one if it wrote none."""
    options = ["--vendor", vendor, "--device", device, "--compiler", "none", "--set", "repeat=1", "--out", str(out)]
    subprocess.run(
        [sys.executable, "-m", "visualprof", "case", "run", name, *options], check=False, capture_output=True
    )
    path = out / RESULT
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}
