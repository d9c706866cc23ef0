"""One conversion in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.child.advice.candidates import ConversionStep
from visualprof.remote.child.advice.process import ChildProcess, ProcessLimits, reported_failure
from visualprof.remote.converters import converter

Json = dict[str, Any]


def run_conversion(
    python: str,
    step: ConversionStep,
    model: Path,
    data: Path | None,
    folder: Path,
    bounds: ProcessLimits,
    limit_s: float,
) -> Json:
    """Run a conversion in an interpreter that has its framework; what it says of what it made.

    Args: data: an .npz with rows of the user's. folder: gets the model, below `out/made`.
    Raises: TaskFailure: what it failed with, or how it ended.
    """
    folder.mkdir(parents=True)
    order = {"converter": step.converter, "model": str(model), "options": step.options, "data": str(data or "")}
    (folder / "task.json").write_text(json.dumps({"conversion": order}), "utf-8")
    process = ChildProcess(python, folder, "convert", folder, bounds)
    try:
        status = process.wait(min(limit_s, 60 * converter(step.converter).timeout_minutes))
    finally:
        process.close()
    told = [json.loads(line) for line in (folder / "events.jsonl").read_text("utf-8").splitlines()]
    failed = next((one for one in told if one["event"] == "failed"), None)
    made = next((one["converted"] for one in told if one["event"] == "converted"), None)
    if failed or made is None:
        raise reported_failure(
            failed
            or {
                "reason": "crashed",
                "error": msg("child.process_ended_status", f"its process ended by status {status}"),
            }
        )
    return made
