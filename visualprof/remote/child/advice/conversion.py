"""One conversion in a separate process."""

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
    *,
    data: Path | None,
    folder: Path,
    bounds: ProcessLimits,
    limit_s: float,
) -> Json:
    """Run a conversion in an interpreter that has its framework. Return the description of the result.

    Args:
        python: The interpreter.
        step: The conversion.
        model: The model.
        data: An .npz with rows of the user's data.
        folder: Receives the model, below `out/made`.
        bounds: Limits of the process.
        limit_s: Maximum duration.

    Raises:
        TaskFailure: The conversion failed, or its process ended.
    """
    folder.mkdir(parents=True)
    order = {"converter": step.converter, "model": str(model), "options": step.options, "data": str(data or "")}
    (folder / "task.json").write_text(json.dumps({"conversion": order}), "utf-8")
    process = ChildProcess(python, folder, "convert", folder, bounds)
    try:
        status = process.wait(min(limit_s, 60 * converter(step.converter).timeout_minutes))
    finally:
        process.close()
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text("utf-8").splitlines()]
    failed = next((event for event in events if event["event"] == "failed"), None)
    result = next((event["converted"] for event in events if event["event"] == "converted"), None)
    if failed or result is None:
        raise reported_failure(
            failed
            or {
                "reason": "crashed",
                "error": msg("child.process_ended_status", f"its process ended with status {status}"),
            }
        )
    return result
