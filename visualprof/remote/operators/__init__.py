"""One call of an operator, which can be run alone: the operator, its tensors' shapes, strides and types, its numbers.

`torch_call` runs it, `script` makes a file of that, the backend `torch` measures it on an agent. A call holds no text
beside the operator's name, and no value of a tensor.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from visualprof.remote.protocol import TaskFailure

MAGIC = b"visualprof operator 1\n"  # no profile begins like that
NAME = re.compile(r"[A-Za-z_]\w{0,99}::[A-Za-z_]\w{0,99}", re.ASCII)
DTYPES = (
    "float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "complex64", "complex128", "int64", "int32", "int16", "int8", "uint8", "bool",
)  # fmt: skip
# How Kineto calls the type of an element.
KINETO = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
    "c10::Float8_e4m3fnuz": "float8_e4m3fnuz", "c10::Float8_e5m2fnuz": "float8_e5m2fnuz",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
    "long int": "int64", "long": "int64", "__int64": "int64", "long long": "int64", "int": "int32",
    "short int": "int16", "short": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
}  # fmt: skip
NOT_FINITE = ("inf", "-inf", "nan")
MOST_ARGUMENTS, MOST_PARTS, MOST_SIDES, LARGEST = 128, 4096, 64, 1 << 48
WHOLE = 1 << 63
MAX_BYTES = 1 << 20
RECORDED = ("calls", "host_ns", "device_ns", "peak_ns")
DEVICE = re.compile(r"[\w .()/+-]{0,80}", re.ASCII)

Argument = Any  # a tensor or tensors as a dict, a number, a list of numbers, None


@dataclass(frozen=True)
class Call:
    """operator: `namespace::name`. arguments: as `torch_call.Operator` takes them.

    recorded: of the run: calls, median host_ns and device_ns of one, peak_ns at the roof of its device, and device.
    """

    operator: str
    arguments: list[Argument]
    recorded: dict[str, Any] = field(default_factory=dict[str, Any])

    def encoded(self) -> bytes:
        """A file of it; the same call gives the same bytes."""
        body = {"operator": self.operator, "arguments": self.arguments, "recorded": self.recorded}
        return MAGIC + json.dumps(body, indent=1).encode()


def kineto_call(
    operator: str, shapes: str, strides: str, types: str, values: str, recorded: Mapping[str, Any] | None = None
) -> Call:
    """A call by the texts of `Input Dims`, `Input Strides`, `Input type` and `Concrete Inputs`, "" where absent.

    Raises: ValueError: it cannot be run alone; the message says why.
    """
    if not NAME.fullmatch(operator):
        raise ValueError(f"{operator[:100]!r} is a range, a node of autograd or a kernel: run an operator inside it")
    if not shapes:
        raise ValueError(f"the profile has no inputs of {operator}: record it with record_shapes=True")
    try:
        dims, *others = (_list_of(text) for text in (shapes, strides, types, values))
        rows = zip(dims, *(_padded(other, len(dims)) for other in others), strict=True)
        arguments = [_argument(*row) for row in rows]
    except (TypeError, AttributeError, RecursionError, ValueError) as error:
        raise ValueError(f"the profile's inputs of {operator} cannot be read: {error}") from None
    return checked(Call(operator, arguments, dict(recorded or {})))


def decoded(data: bytes) -> Call:
    """The call of a file.

    Raises: TaskFailure: it is none, or not one that is run.
    """
    try:
        if not data.startswith(MAGIC) or len(data) > MAX_BYTES:
            raise ValueError(f"it does not begin with {MAGIC.decode().strip()!r}, or has over {MAX_BYTES >> 10:,} KiB")
        body = json.loads(data[len(MAGIC) :])
        return checked(Call(body["operator"], body["arguments"], body.get("recorded", {})))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TaskFailure(
            "model_error", f"this is no call of an operator: {error}", "`visualprof replay` makes one"
        ) from None


def checked(call: Call) -> Call:
    """The same call. Raises: ValueError, TypeError: it is not one that may become code."""
    if not NAME.fullmatch(call.operator):
        raise ValueError(f"{call.operator[:100]!r} is no name of an operator")
    if len(call.arguments) > MOST_ARGUMENTS or not all(map(_is_argument, call.arguments)):
        raise ValueError("an argument is neither a tensor nor a number")
    numbers = [call.recorded.get(name) for name in RECORDED]
    known = {*RECORDED, "device"}.issuperset(call.recorded)
    if not known or not all(number is None or _is_number(number) for number in numbers):
        raise ValueError("what was recorded of it are no numbers")
    if not DEVICE.fullmatch(call.recorded.get("device") or ""):
        raise ValueError("the name of its device is none")
    return call


def _list_of(text: str) -> list[Any]:
    """Raises: TypeError, ValueError, RecursionError: it is no list in JSON."""
    values: object = json.loads(text or "[]")
    if not _is_list(values):
        raise TypeError("they are no lists")
    return values


def _padded(values: list[Any], count: int) -> list[Any]:
    return [*values[:count], *[None] * (count - len(values))]


def _argument(shape: list[Any], strides: list[Any] | None, kind: str | None, value: Any) -> Argument:
    """One input: a tensor, tensors, or what its text says."""
    if shape and isinstance(shape[0], list):
        steps = _padded(strides or [], len(shape))
        return {"tensors": [_tensor(one, step, kind) for one, step in zip(shape, steps, strict=True)]}
    if shape or kind in KINETO:
        return _tensor(shape, strides, kind)
    return _number(value) if isinstance(value, str) else None


def _tensor(shape: list[int], strides: list[int] | None, kind: str | None) -> dict[str, Any]:
    steps = strides if strides is not None and len(strides) == len(shape) else None
    return {"shape": shape, "strides": steps, "dtype": KINETO.get(kind or "")}


def _number(text: str) -> Argument:
    """A number, a truth value or a list of them; None for any other text, which is nobody's business."""
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


def _is_argument(value: object) -> bool:
    if _is_object(value) and value.keys() == {"tensors"}:
        tensors = value["tensors"]
        return _is_list(tensors) and len(tensors) <= MOST_PARTS and all(map(_is_tensor, tensors))
    if _is_list(value):
        return len(value) <= MOST_PARTS and all(map(_is_number, value))
    return value is None or _is_number(value) or _is_tensor(value)


def _is_tensor(value: object) -> bool:
    if not _is_object(value) or value.keys() != {"shape", "strides", "dtype"}:
        return False
    shape, strides, dtype = value["shape"], value["strides"], value["dtype"]
    alike = strides is None or (_are_sizes(strides) and _are_sizes(shape) and len(strides) == len(shape))
    return _are_sizes(shape) and alike and (dtype is None or dtype in DTYPES)


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    return _is_list(value) and len(value) <= MOST_SIDES and all(map(_is_size, value))


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST


def _is_number(value: object) -> bool:
    if isinstance(value, str):
        return value in NOT_FINITE
    return isinstance(value, (bool, float)) or (isinstance(value, int) and -WHOLE <= value < WHOLE)


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
