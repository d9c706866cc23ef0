"""A file with a call of an operator, run alone in the place of a model."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.operators import MAX_BYTES, TITLES, Call, decoded
from visualprof.remote.operators.clock import Refused, Runs, measure
from visualprof.remote.protocol import Spec, TaskFailure

SUFFIX = ".operator"
REPEATS = "repeats"  # an option that only such a file has: timed calls, "" as many as take a second
NOTHING = "nothing"
TEXTS = ("overload", "device", "runtime")
NUMBERS = ("median_ns", "min_ns", "max_ns", "clock_ns", "profiled_host_ns", "profiled_device_ns", "repeats", "threads")


def suffix_of(framework: str) -> str:
    """Of the files with calls of a framework: each backend has its own."""
    return SUFFIX if framework == "torch" else f".{framework}_operator"


def is_call(path: Path, framework: str) -> bool:
    """Whether a file, by its name, has a call of that framework."""
    return path.suffix == suffix_of(framework)


def measured(path: Path, spec: Spec) -> tuple[Runs, dict[str, str]]:
    """The operator of a file, and what it takes alone: `clock.measure` as texts.

    Raises: TaskFailure: it does not run here, or the spec asks for what an operator has not.
    """
    operator = opened(path, spec)
    try:
        result = measure(operator, int(spec.options.get(REPEATS) or 0))
    except Refused as refusal:
        raise _failure(path, refusal) from None
    texts = {name: str(result[name]) for name in (*TEXTS, *NUMBERS) if result[name] is not None}
    return operator, texts | {"assumed": ", ".join(result["assumed"]) or NOTHING}


def opened(path: Path, spec: Spec) -> Any:
    """The operator of a file on its device, as `Runs`. Raises: TaskFailure: as `measured`."""
    others = sorted(spec.options.keys() - {REPEATS})
    if spec.precision or others:
        error = msg(
            "remote.spec_operator_alone_runs", f"spec '{spec.id}': an operator alone runs in the types of its inputs"
        )
        raise TaskFailure(
            "input_error",
            error,
            msg("remote.leave_out_option", f"leave out the option {others[0] if others else 'precision'}"),
        )
    call = read_call(path)
    runner = importlib.import_module(f"visualprof.remote.operators.{call.framework}_call")
    try:
        return runner.operator(call.parts(), spec.device, spec.threads)
    except Refused as refusal:
        raise _failure(path, refusal) from None


def _failure(path: Path, refusal: Refused) -> TaskFailure:
    hint = msg(
        "remote.another_device_version_may",
        f"another device or version of {TITLES[read_call(path).framework]} may run it",
    )
    return TaskFailure("model_error", str(refusal), hint)


def result_of(effective: Mapping[str, str]) -> dict[str, Any]:
    """What `clock.measure` gave, from the texts of `measured`; None for numbers that are none."""
    texts: dict[str, Any] = {name: effective.get(name, "") for name in TEXTS}
    numbers = {name: _whole(effective.get(name, "")) for name in NUMBERS}
    assumed = effective.get("assumed", NOTHING)
    return {**texts, **numbers, "assumed": [] if assumed == NOTHING else [assumed]}


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else None


def read_call(path: Path) -> Call:
    """The call of a file. Raises: TaskFailure: it is none."""
    with path.open("rb") as file:
        return decoded(file.read(MAX_BYTES + 1))
