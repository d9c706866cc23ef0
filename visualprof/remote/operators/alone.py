"""A file with a call of an operator, run alone in the place of a model."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from visualprof.remote.operators import MAX_BYTES, Call, decoded
from visualprof.remote.protocol import Spec, TaskFailure

SUFFIX = ".operator"
REPEATS = "repeats"  # an option that only such a file has: timed calls, "" as many as take a second
NOTHING = "nothing"
TEXTS = ("overload", "device", "pytorch")
NUMBERS = ("median_ns", "min_ns", "max_ns", "clock_ns", "profiled_host_ns", "profiled_device_ns", "repeats", "threads")


def measured(path: Path, spec: Spec) -> tuple[Callable[[], Any], dict[str, str]]:
    """The call of a file as a function, and what it takes alone: `torch_call.measure` as texts.

    Raises: TaskFailure: it does not run here, or the spec asks for what an operator has not.
    """
    torch_call = importlib.import_module("visualprof.remote.operators.torch_call")
    others = sorted(spec.options.keys() - {REPEATS})
    if spec.precision or others:
        error = f"spec '{spec.id}': an operator alone runs in the types of its inputs"
        raise TaskFailure("input_error", error, f"leave out the option {others[0] if others else 'precision'}")
    call = read_call(path)
    try:
        operator = torch_call.Operator(call.operator, call.arguments, spec.device)
        result = torch_call.measure(operator, int(spec.options.get(REPEATS) or 0))
    except torch_call.Refused as refusal:
        raise TaskFailure("model_error", str(refusal), "another device or version of PyTorch may run it") from None
    texts = {name: str(result[name]) for name in (*TEXTS, *NUMBERS) if result[name] is not None}
    return operator.prepared(), texts | {"assumed": ", ".join(result["assumed"]) or NOTHING}


def result_of(effective: Mapping[str, str]) -> dict[str, Any]:
    """What `torch_call.measure` gave, of its texts; None for numbers that are none."""
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
