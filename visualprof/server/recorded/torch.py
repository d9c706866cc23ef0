"""Create a call of a PyTorch operator from Kineto's JSON texts of shapes, strides, types and values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from visualprof.messages import msg
from visualprof.remote.operators import NOT_FINITE, Argument, Call, check_call, is_list

NAME = re.compile(r"[A-Za-z_]\w{0,99}::[A-Za-z_]\w{0,99}", re.ASCII)
# Element types by their name in Kineto.
KINETO = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
    "c10::Float8_e4m3fnuz": "float8_e4m3fnuz",
    "c10::Float8_e5m2fnuz": "float8_e5m2fnuz",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
    "long int": "int64",
    "long": "int64",
    "__int64": "int64",
    "long long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
}


def recorded_call(row: Mapping[str, str], recorded: Mapping[str, Any], _model: object = None) -> Call:
    """Return a call from the columns of the view `calls`.

    Raises:
        ValueError: The call cannot run alone; the message says why.
    """
    shapes, strides, types, values = (row[f"input_{column}"] for column in ("shapes", "strides", "types", "values"))
    return kineto_call(row["name"], shapes, strides, types, values, recorded)


def kineto_call(
    operator: str, shapes: str, strides: str, types: str, values: str, recorded: Mapping[str, Any] | None = None
) -> Call:
    """Return a call from the texts of `Input Dims`, `Input Strides`, `Input type` and `Concrete Inputs`, "" if absent.

    Raises:
        ValueError: The call cannot run alone; the message says why.
    """
    if not NAME.fullmatch(operator):
        raise ValueError(
            msg(
                "server.range_node_autograd_kernel",
                f"{operator[:100]!r} is a range, a node of autograd or a kernel: run an operator inside it",
            )
        )
    if not shapes:
        raise ValueError(
            msg(
                "server.profile_no_inputs_record",
                f"the profile has no inputs of {operator}: record it with record_shapes=True",
            )
        )
    try:
        dims, *others = (_list_of(text) for text in (shapes, strides, types, values))
        rows = zip(dims, *(_padded(other, len(dims)) for other in others), strict=True)
        arguments = [_argument(*row) for row in rows]
    except (TypeError, AttributeError, RecursionError, ValueError) as error:
        raise ValueError(
            msg("server.profiles_inputs_cannot_read", f"the profile's inputs of {operator} cannot be read: {error}")
        ) from None
    return check_call(Call(operator, arguments, dict(recorded or {})))


def _list_of(text: str) -> list[Any]:
    """Parse a JSON list.

    Raises:
        TypeError, ValueError, RecursionError: The text is not a JSON list.
    """
    values: object = json.loads(text or "[]")
    if not is_list(values):
        raise TypeError("they are no lists")
    return values


def _padded(values: list[Any], count: int) -> list[Any]:
    return [*values[:count], *[None] * (count - len(values))]


def _argument(shape: list[Any], strides: list[Any] | None, kind: str | None, value: Any) -> Argument:
    """Return one input: a tensor, a list of tensors, or the value of its text."""
    if shape and isinstance(shape[0], list):
        steps = _padded(strides or [], len(shape))
        return {"tensors": [_tensor(sides, step, kind) for sides, step in zip(shape, steps, strict=True)]}
    if shape or kind in KINETO:
        return _tensor(shape, strides, kind)
    return _number(value) if isinstance(value, str) else None


def _tensor(shape: list[int], strides: list[int] | None, kind: str | None) -> dict[str, Any]:
    steps = strides if strides is not None and len(strides) == len(shape) else None
    return {"shape": shape, "strides": steps, "dtype": KINETO.get(kind or "")}


def _number(text: str) -> Argument:
    """Return a number, a truth value or a list of them; `None` for any other text, which may be private."""
    if text in ("True", "False"):
        return text == "True"
    if text.startswith("[") and text.endswith("]"):
        parts = [_number(part.strip()) for part in text[1:-1].split(",") if part.strip()]
        return None if any(part is None or isinstance(part, list) for part in parts) else parts
    if re.fullmatch(r"-?\d{1,20}", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"-?(\d+\.?\d*|\.\d+)(e[-+]?\d{1,3})?", text[:60], re.ASCII):
        return float(text) if abs(float(text)) != float("inf") else None
    return text if text in NOT_FINITE else None
