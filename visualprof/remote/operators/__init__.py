"""One operator call that can run alone: the operator, shapes, strides and types of its tensors, and its numbers.

Each framework has two parts: `server/recorded/FRAMEWORK` creates a call from a profile, `FRAMEWORK_call` runs it.
`script` turns the latter into a file, and the framework's backend measures a call on an agent. A call contains
only these texts of a profile: the operator's name, and words such as SAME_UPPER. Its only tensor values are a few
whole numbers: shapes and axes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from visualprof.messages import msg
from visualprof.remote.protocol import TaskFailure

# Each framework has a file `FRAMEWORK_call.py`.
TITLES = {
    "torch": "PyTorch",
    "onnxruntime": msg("remote.onnx_runtime", "ONNX Runtime"),
    "megengine": "MegEngine",
    "paddle": "Paddle",
}
MAGIC = b"visualprof operator 1"  # no profile starts like this
NAME = re.compile(r"([A-Za-z_][\w.]{0,99}::)?[A-Za-z_]\w{0,99}", re.ASCII)
WORD = re.compile(r"[A-Za-z_][\w,.>-]{0,79}|", re.ASCII)  # SAME_UPPER, bij,bjk->bik
DTYPES = tuple(
    """
    float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz complex64
    complex128 int64 int32 int16 int8 uint8 bool
    """.split()
)
TENSOR_KEYS = {"shape", "strides", "dtype"}
NOT_FINITE = ("inf", "-inf", "nan")
MAX_ARGUMENTS, MAX_PARTS, MAX_DIMENSIONS, MAX_SIZE = 128, 4096, 64, 1 << 48
INTEGER_LIMIT = 1 << 63
MAX_VALUES = 64  # of a tensor that holds a shape or axes
MAX_BYTES = 1 << 20
RECORDED_KEYS = ("calls", "host_ns", "device_ns", "peak_ns")
DEVICE = re.compile(r"[\w .:()/+-]{0,80}", re.ASCII)

Argument = Any  # a tensor or tensors as a dict, a number, a list of numbers, None


@dataclass(frozen=True)
class Call:
    """One call of an operator.

    Attributes:
        operator: `namespace::name` or `name`.
        arguments: The arguments in order, as `FRAMEWORK_call.Operator` takes them.
        recorded: Values of the run: `calls`, median `host_ns` and `device_ns` per call, `peak_ns` at the device's
            roofline, and `device`.
        framework: Name of the framework.
        attributes: Attributes by name: numbers, words, and lists of them.
        form: Further values that the framework needs, of the same types.
    """

    operator: str
    arguments: list[Argument]
    recorded: dict[str, Any] = field(default_factory=dict[str, Any])
    framework: str = "torch"
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    form: dict[str, Any] = field(default_factory=dict[str, Any])

    def parts(self) -> dict[str, Any]:
        """Return the parts that are run, without the recorded values."""
        optional = {"attributes": self.attributes, "form": self.form}
        required = {"operator": self.operator, "arguments": self.arguments}
        return required | {name: value for name, value in optional.items() if value}

    def encoded(self) -> bytes:
        """Return the call as a file; the same call gives the same bytes."""
        return file_magic(self.framework) + json.dumps(self.parts() | {"recorded": self.recorded}, indent=1).encode()


def file_magic(framework: str) -> bytes:
    """Return the start of a file with a call of a framework."""
    return MAGIC + (b"\n" if framework == "torch" else f" {framework}\n".encode())


def decode_call(data: bytes) -> Call:
    """Return the call of a file.

    Raises:
        TaskFailure: The file is not a call, or the call may not run.
    """
    try:
        framework = next((name for name in TITLES if data.startswith(file_magic(name))), None)
        if framework is None or len(data) > MAX_BYTES:
            raise ValueError(
                msg(
                    "remote.not_begin_over_kib",
                    f"it does not start with {MAGIC.decode()!r}, or exceeds {MAX_BYTES >> 10:,} KiB",
                )
            )
        body = json.loads(data[len(file_magic(framework)) :])
        more = body.get("recorded", {}), framework, body.get("attributes", {}), body.get("form", {})
        return check_call(Call(body["operator"], body["arguments"], *more))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TaskFailure(
            "model_error",
            msg("remote.no_call_operator", f"this is not an operator call: {error}"),
            msg("remote.visualprof_replay_makes_one", "create one with `visualprof replay`"),
        ) from None


def check_call(call: Call) -> Call:
    """Return the call if it may become code.

    Raises:
        ValueError, TypeError: The call is invalid.
    """
    if not NAME.fullmatch(call.operator):
        raise ValueError(msg("remote.no_name_operator", f"{call.operator[:100]!r} is not a name of an operator"))
    if len(call.arguments) > MAX_ARGUMENTS or not all(map(_is_argument, call.arguments)):
        raise ValueError(msg("remote.argument_neither_tensor_nor", "an argument is neither a tensor nor a number"))
    if call.framework not in TITLES or not (_are_named(call.attributes) and _are_named(call.form)):
        raise ValueError(msg("remote.attribute_neither_number_nor", "an attribute is neither a number nor a word"))
    numbers = [call.recorded.get(name) for name in RECORDED_KEYS]
    has_known_keys = {*RECORDED_KEYS, "device"}.issuperset(call.recorded)
    if not has_known_keys or not all(number is None or _is_number(number) for number in numbers):
        raise ValueError(msg("remote.what_recorded_no_numbers", "its recorded values are not numbers"))
    if not DEVICE.fullmatch(call.recorded.get("device") or ""):
        raise ValueError(msg("remote.name_device_none", "the name of its device is invalid"))
    return call


def _is_argument(value: object) -> bool:
    if _is_object(value) and value.keys() == {"tensors"}:
        tensors = value["tensors"]
        return is_list(tensors) and len(tensors) <= MAX_PARTS and all(map(_is_tensor, tensors))
    if is_list(value):
        return len(value) <= MAX_PARTS and all(map(_is_number, value))
    return value is None or _is_number(value) or _is_tensor(value)


def _are_named(values: object) -> bool:
    """Whether attributes are words with values: numbers, words, small tensors, or nested lists of numbers and words."""
    return (
        _is_object(values)
        and len(values) <= MAX_ARGUMENTS
        and all(WORD.fullmatch(name) and _is_attribute(value) for name, value in values.items())
    )


def _is_attribute(value: object, depth: int = 3) -> bool:
    if is_list(value):
        return depth > 0 and len(value) <= MAX_PARTS and all(_is_attribute(item, depth - 1) for item in value)
    return value is None or _is_number(value) or _is_tensor(value) or is_word(value)


def is_word(value: object) -> bool:
    """Whether a value is a word, such as the name of a mode."""
    return isinstance(value, str) and WORD.fullmatch(value) is not None


def _is_tensor(value: object) -> bool:
    if not _is_object(value) or not TENSOR_KEYS <= value.keys() <= TENSOR_KEYS | {"values", "constant"}:
        return False
    values = value.get("values", [])
    if not (is_list(values) and len(values) <= MAX_VALUES and all(map(_is_number, values))):
        return False
    if not isinstance(value.get("constant", False), bool):
        return False
    shape, strides, dtype = value["shape"], value["strides"], value["dtype"]
    alike = strides is None or (_are_sizes(strides) and _are_sizes(shape) and len(strides) == len(shape))
    return _are_sizes(shape) and alike and (dtype is None or dtype in DTYPES)


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    return is_list(value) and len(value) <= MAX_DIMENSIONS and all(map(_is_size, value))


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_SIZE


def _is_number(value: object) -> bool:
    if isinstance(value, str):
        return value in NOT_FINITE
    return isinstance(value, (bool, float)) or (isinstance(value, int) and -INTEGER_LIMIT <= value < INTEGER_LIMIT)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a value is a list."""
    return isinstance(value, list)


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
