"""A file with an operator call, which runs alone instead of a model."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.operators import MAX_BYTES, TITLES, Call, decode_call
from visualprof.remote.operators.clock import OperatorRejected, RunnableOperator, measure_operator
from visualprof.remote.protocol import Spec, TaskFailure

SUFFIX = ".operator"
REPEATS = "repeats"  # an option of such files: number of timed calls, "" for about a second of calls
NOT_ASSUMED = "nothing"
TEXT_KEYS = ("overload", "device", "runtime")
NUMBER_KEYS = (
    "median_ns",
    "min_ns",
    "max_ns",
    "clock_ns",
    "profiled_host_ns",
    "profiled_device_ns",
    "repeats",
    "threads",
)


def call_suffix(framework: str) -> str:
    """Return the suffix of files with calls of a framework; each backend has its own."""
    return SUFFIX if framework == "torch" else f".{framework}_operator"


def is_call(path: Path, framework: str) -> bool:
    """Whether a file, by its name, holds a call of a framework."""
    return path.suffix == call_suffix(framework)


def measure_file(path: Path, spec: Spec) -> tuple[RunnableOperator, dict[str, str]]:
    """Return the operator of a file, and the results of `clock.measure_operator` as texts.

    Raises:
        TaskFailure: The operator cannot run here, or the run configuration has settings that operators do not support.
    """
    operator = open_operator(path, spec)
    try:
        result = measure_operator(operator, int(spec.options.get(REPEATS) or 0))
    except OperatorRejected as refusal:
        raise _failure(path, refusal) from None
    texts = {name: str(result[name]) for name in (*TEXT_KEYS, *NUMBER_KEYS) if result[name] is not None}
    return operator, texts | {"assumed": ", ".join(result["assumed"]) or NOT_ASSUMED}


def open_operator(path: Path, spec: Spec) -> Any:
    """Return the operator of a file on its device.

    Raises:
        TaskFailure: As for `measure_file`.
    """
    unsupported = sorted(spec.options.keys() - {REPEATS})
    if spec.precision or unsupported:
        error = msg(
            "remote.spec_operator_alone_runs", f"spec '{spec.id}': a single operator runs in the types of its inputs"
        )
        raise TaskFailure(
            "input_error",
            error,
            msg("remote.leave_out_option", f"leave out the option {unsupported[0] if unsupported else 'precision'}"),
        )
    call = read_call(path)
    runner = importlib.import_module(f"visualprof.remote.operators.{call.framework}_call")
    try:
        return runner.operator(call.parts(), spec.device, spec.threads)
    except OperatorRejected as refusal:
        raise _failure(path, refusal) from None


def _failure(path: Path, refusal: OperatorRejected) -> TaskFailure:
    hint = msg(
        "remote.another_device_version_may",
        f"another device or version of {TITLES[read_call(path).framework]} may run it",
    )
    return TaskFailure("model_error", str(refusal), hint)


def parse_result(effective: Mapping[str, str]) -> dict[str, Any]:
    """Return the result of `clock.measure_operator` from the texts of `measure_file`; `None` for invalid numbers."""
    texts: dict[str, Any] = {name: effective.get(name, "") for name in TEXT_KEYS}
    numbers = {name: _whole(effective.get(name, "")) for name in NUMBER_KEYS}
    assumed = effective.get("assumed", NOT_ASSUMED)
    return {**texts, **numbers, "assumed": [] if assumed == NOT_ASSUMED else [assumed]}


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else None


def read_call(path: Path) -> Call:
    """Return the call of a file.

    Raises:
        TaskFailure: The file is not a call.
    """
    with path.open("rb") as file:
        return decode_call(file.read(MAX_BYTES + 1))
