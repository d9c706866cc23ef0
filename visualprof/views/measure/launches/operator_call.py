"""One operator call as the profile records it: its tensors, and the values of its other inputs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import msgspec

from visualprof.reader.trace.serving import ServingStep

_JSON = msgspec.json.Decoder(Any)

# Element type by its name in profiles: our name, and its size in bytes.
ELEMENT_TYPES: dict[str, tuple[str, int]] = {
    "float": ("fp32", 4),
    "double": ("fp64", 8),
    "c10::Half": ("fp16", 2),
    "c10::BFloat16": ("bf16", 2),
    "c10::Float8_e4m3fn": ("fp8", 1),
    "c10::Float8_e5m2": ("fp8", 1),
    "c10::Float8_e4m3fnuz": ("fp8", 1),
    "c10::Float8_e5m2fnuz": ("fp8", 1),
    "c10::Float4_e2m1fn_x2": ("fp4", 1),
    "c10::Float8_e8m0fnu": ("fp8", 1),
    "c10::complex<float>": ("complex64", 8),
    "c10::complex<double>": ("complex128", 16),
    "long int": ("int64", 8),
    "long": ("int64", 8),
    "__int64": ("int64", 8),
    "int": ("int32", 4),
    "short int": ("int16", 2),
    "short": ("int16", 2),
    "signed char": ("int8", 1),
    "unsigned char": ("uint8", 1),
    "bool": ("bool", 1),
    "float16": ("fp16", 2),
    "bfloat16": ("bf16", 2),
    "float8e4m3fn": ("fp8", 1),
    "int64": ("int64", 8),
    "int32": ("int32", 4),
    "int16": ("int16", 2),
    "int8": ("int8", 1),
    "uint8": ("uint8", 1),
}


class NotRecorded(Exception):
    """The profile does not record what a formula needs."""


class Tensor(NamedTuple):
    """A recorded tensor.

    Attributes:
        shape: Its dimensions.
        type: Type of an element, "" where unknown.
        size: Bytes per element, NaN where unknown.
    """

    shape: tuple[int, ...]
    type: str = ""
    size: float = math.nan

    @property
    def elements(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> float:
        """Return the size in bytes; NaN where the type is unknown."""
        return self.elements * self.size


class OperatorCall(NamedTuple):
    """A call: each input is a tensor, a list of tensors, or `None`.

    Attributes:
        name: The operator.
        inputs: The inputs.
        values: Texts of the inputs that are not tensors; () if the profile records none.
        outputs: The outputs, if the profile records them.
        moved_bytes: Bytes that are read and written, if the profile records them.
        serving_step: The server step around the call, if it records everything that attention
            needs.
    """

    name: str
    inputs: tuple[Tensor | list[Tensor] | None, ...]
    values: tuple[str, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    moved_bytes: float = math.nan
    serving_step: ServingStep | None = None

    def tensor(self, position: int, dimensions: int | None = None) -> Tensor:
        """Return the tensor at a position, optionally with a number of dimensions.

        Raises:
            NotRecorded: There is no such tensor.
        """
        tensor = self.inputs[position] if position < len(self.inputs) else None
        if not isinstance(tensor, Tensor) or (dimensions is not None and len(tensor.shape) != dimensions):
            raise NotRecorded
        return tensor

    def tensors(self) -> list[Tensor]:
        """Return all inputs that are a single tensor."""
        return [value for value in self.inputs if isinstance(value, Tensor)]

    def value(self, position: int) -> Any:
        """Return the input at a position that is not a tensor: a number, a boolean, a list of them, or `None`.

        Raises:
            NotRecorded: The profile does not record it.
        """
        if position >= len(self.values):
            raise NotRecorded
        text = self.values[position]
        return _JSON.decode(text.lower()) if text else None

    def flags(self, position: int) -> tuple[bool, ...]:
        """Return the booleans at a position, () if the profile does not record any there."""
        value = self.value(position) if 0 <= position < len(self.values) else None
        return tuple(map(bool, cast("list[Any]", value))) if isinstance(value, list) else ()

    def numbers(self, position: int) -> tuple[int, ...]:
        """Return the integers at a position, one or a list of them.

        Raises:
            NotRecorded: There are no integers, or the profile does not record them.
        """
        value = self.value(position)
        numbers = tuple(cast("list[Any]", value)) if isinstance(value, list) else (value,)
        if not all(isinstance(number, int) for number in numbers):
            raise NotRecorded
        return numbers

    def numbers_per_side(self, position: int, count: int) -> tuple[int, ...]:
        """Return one integer for each of `count` dimensions; a single recorded one applies to all.

        Raises:
            NotRecorded: The number of recorded integers differs.
        """
        numbers = self.numbers(position)
        numbers = numbers * count if len(numbers) == 1 else numbers
        if len(numbers) != count:
            raise NotRecorded
        return numbers


def torch_call(name: str, shapes: str, types: str, values: str) -> OperatorCall:
    """Return a call of torch from the texts of `Input Dims`, `Input type` and `Concrete Inputs`, "" where absent.

    Raises:
        msgspec.MsgspecError: A text is not valid JSON.
        TypeError: A text has another structure than torch writes.
    """
    shape_list: list[Any] = _JSON.decode(shapes)
    type_names: list[str] = _JSON.decode(types) if types else [""] * len(shape_list)
    value_texts: list[str] = _JSON.decode(values) if values else []
    return OperatorCall(
        name,
        tuple(_input(shape, kind) for shape, kind in zip(shape_list, type_names, strict=False)),
        tuple(map(str, value_texts)),
    )


def _input(shape: list[Any], type: str) -> Tensor | list[Tensor] | None:
    """Return a recorded input as a tensor, a list of tensors, or `None`."""
    if shape and isinstance(shape[0], list):
        return [Tensor(_int_shape(tensor_shape)) for tensor_shape in shape]
    if not shape and type not in ELEMENT_TYPES:
        return None  # a number, or no value
    return Tensor(_int_shape(shape), *ELEMENT_TYPES.get(type, ("", math.nan)))


def _int_shape(shape: list[Any]) -> tuple[int, ...]:
    """Return a shape as a tuple of integers.

    Raises:
        TypeError: A dimension is not an integer.
    """
    if not all(isinstance(side, int) for side in shape):
        raise TypeError
    return tuple(shape)


def onnx_call(name: str, inputs: str, outputs: str, moved_bytes: float) -> OperatorCall:
    """Return a node of ONNX Runtime from the texts of its shapes, such as `float[2,16] int64[]`.

    The shapes exclude those of constants.

    Raises:
        ValueError: A text is not such a list.
    """
    return OperatorCall(name, tuple(_parse_tensors(inputs)), (), tuple(_parse_tensors(outputs)), moved_bytes)


def _parse_tensors(text: str) -> list[Tensor]:
    """Return the tensors of a text such as `float[2,16] int64[]`."""
    parts = [part.rstrip("]").partition("[") for part in text.split()]
    return [
        Tensor(tuple(int(side) for side in shape_text.split(",") if side), *ELEMENT_TYPES.get(type, ("", math.nan)))
        for type, _, shape_text in parts
    ]
