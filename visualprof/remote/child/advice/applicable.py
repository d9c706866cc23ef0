"""Find the converters of this machine that fit a model."""

from __future__ import annotations

import json
from pathlib import Path

from visualprof.messages import msg
from visualprof.remote.backends import all_backends
from visualprof.remote.child.advice.process import ChildProcess, ProcessLimits, write_log_line
from visualprof.remote.child.task import TaskFile
from visualprof.remote.converters import Converter, all_converters
from visualprof.remote.protocol import TaskFailure


def model_format(task: TaskFile) -> str:
    """Return the format of a task's model by its suffix, as its backend names it."""
    backend = next(candidate for candidate in all_backends() if candidate.name == task.lease.spec.backend)
    suffix = task.model.suffix.lower()
    return next((f.name for f in backend.files if suffix in f.suffixes), backend.files[0].name)


def usable_converters(
    task: TaskFile, folder: Path, limits: ProcessLimits, timeout_s: float
) -> tuple[list[Converter], dict[str, str]]:
    """Return available converters that fit the model, and for the others by name why they do not fit.

    Each interpreter with converters is asked in a process of its own.
    """
    takes = model_format(task)
    available = [kind for kind in all_converters() if kind.takes == takes and task.converters.get(kind.name)]
    reasons: dict[str, str] = {}
    for i, python in enumerate(dict.fromkeys(task.converters[kind.name][0] for kind in available)):
        request_folder = folder / f"applies{i}"
        request_folder.mkdir(parents=True)
        conversion = {"converter": takes, "model": str(task.model)}
        (request_folder / "task.json").write_text(json.dumps({"conversion": conversion}), "utf-8")
        process = ChildProcess(python, request_folder, "applies", request_folder, limits)
        try:
            process.wait(timeout_s)
            lines = (request_folder / "events.jsonl").read_text("utf-8").splitlines()
            reasons |= next(e["converted"]["applies"] for e in map(json.loads, lines) if e["event"] == "converted")
        except (TaskFailure, OSError, ValueError, LookupError, StopIteration) as error:
            write_log_line(f"converters of {python} were not asked: {error}")
        finally:
            process.close()
    unsuitable = {kind.name: reasons[kind.name] for kind in available if reasons.get(kind.name)}
    return [kind for kind in available if reasons.get(kind.name) == ""], unsuitable


def absence_reason(name: str) -> str:
    """Return why this machine did not try a candidate that was asked for."""
    if "+" in name:
        return msg("child.combination_not_tried", "only candidates that pass are combined")
    return msg(
        "child.candidate_not_here",
        "this machine does not have its runtime or converter, or it needs rows of yours (--data)",
    )
