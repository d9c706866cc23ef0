"""One call of an operator as the profile records it: the tensors that it takes, and the values of its other inputs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import msgspec

from visualprof.reader.trace.serving import ServingStep

_JSON = msgspec.json.Decoder(Any)

# How a profile calls the type of an element: what we call it, its bytes.
ELEMENT_TYPES: dict[str, tuple[str, int]] = {
    "float": ("fp32", 4), "double": ("fp64", 8), "c10::Half": ("fp16", 2), "c10::BFloat16": ("bf16", 2),
    "c10::Float8_e4m3fn": ("fp8", 1), "c10::Float8_e5m2": ("fp8", 1), "c10::Float8_e4m3fnuz": ("fp8", 1),
    "c10::Float8_e5m2fnuz": ("fp8", 1), "c10::Float4_e2m1fn_x2": ("fp4", 1), "c10::Float8_e8m0fnu": ("fp8", 1),
    "c10::complex<float>": ("complex64", 8),
    "c10::complex<double>": ("complex128", 16), "long int": ("int64", 8), "long": ("int64", 8), "__int64": ("int64", 8),
    "int": ("int32", 4), "short int": ("int16", 2), "short": ("int16", 2), "signed char": ("int8", 1),
    "unsigned char": ("uint8", 1), "bool": ("bool", 1), "float16": ("fp16", 2), "bfloat16": ("bf16", 2),
    "float8e4m3fn": ("fp8", 1), "int64": ("int64", 8), "int32": ("int32", 4), "int16": ("int16", 2),
    "int8": ("int8", 1), "uint8": ("uint8", 1),
}  # fmt: skip


class NotRecorded(Exception):
    """The profile does not record what a formula needs."""


class Tensor(NamedTuple):
    """shape: its sides. type: of an element, "" where unknown. size: bytes of an element, NaN where unknown."""

    shape: tuple[int, ...]
    type: str = ""
    size: float = math.nan

    @property
    def elements(self) -> int:
        """How many it has."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> float:
        """What it takes; NaN where its type is unknown."""
        return self.elements * self.size


class OperatorCall(NamedTuple):
    """A call: each input a tensor, the tensors of a list, or None; and as text what is no tensor.

    name: the operator. values: () where the profile has none. outputs, moved: what comes out, and the bytes of all that
    is read and written, of profiles that record them. load: the step of a server around it, if that says all that
    attention needs.
    """

    name: str
    inputs: tuple[Tensor | list[Tensor] | None, ...]
    values: tuple[str, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    moved_bytes: float = math.nan
    serving_step: ServingStep | None = None

    def tensor(self, place: int, sides: int | None = None) -> Tensor:
        """The tensor at a place; of so many sides.

        Raises: Unknown: there is none.
        """
        tensor = self.inputs[place] if place < len(self.inputs) else None
        if not isinstance(tensor, Tensor) or (sides is not None and len(tensor.shape) != sides):
            raise NotRecorded
        return tensor

    def tensors(self) -> list[Tensor]:
        """All inputs that are one tensor."""
        return [one for one in self.inputs if isinstance(one, Tensor)]

    def value(self, place: int) -> Any:
        """What is no tensor at a place: a number, a truth value, a list of them, or None.

        Raises: Unknown: the profile does not record it.
        """
        if place >= len(self.values):
            raise NotRecorded
        text = self.values[place]
        return _JSON.decode(text.lower()) if text else None

    def numbers(self, place: int) -> tuple[int, ...]:
        """The whole numbers at a place, one or a list of them.

        Raises: Unknown: there are none, or the profile does not record them.
        """
        value = self.value(place)
        numbers = tuple(cast("list[Any]", value)) if isinstance(value, list) else (value,)
        if not all(isinstance(number, int) for number in numbers):
            raise NotRecorded
        return numbers

    def numbers_per_side(self, place: int, count: int) -> tuple[int, ...]:
        """A whole number for each of `count` sides; a single one is that of all.

        Raises: Unknown: there are not so many.
        """
        numbers = self.numbers(place)
        numbers = numbers * count if len(numbers) == 1 else numbers
        if len(numbers) != count:
            raise NotRecorded
        return numbers


def torch_call(name: str, shapes: str, types: str, values: str) -> OperatorCall:
    """A call of torch by the texts of `Input Dims`, `Input type` and `Concrete Inputs`, "" where absent.

    Raises: msgspec.MsgspecError, TypeError: a text is not what torch writes.
    """
    dims: list[Any] = _JSON.decode(shapes)
    kinds: list[str] = _JSON.decode(types) if types else [""] * len(dims)
    concrete: list[str] = _JSON.decode(values) if values else []
    return OperatorCall(name, tuple(_input(s, t) for s, t in zip(dims, kinds, strict=False)), tuple(map(str, concrete)))


def _input(shape: list[Any], type: str) -> Tensor | list[Tensor] | None:
    if shape and isinstance(shape[0], list):
        return [Tensor(_whole(one)) for one in shape]
    if not shape and type not in ELEMENT_TYPES:
        return None  # a number, or nothing
    return Tensor(_whole(shape), *ELEMENT_TYPES.get(type, ("", math.nan)))


def _whole(shape: list[Any]) -> tuple[int, ...]:
    if not all(isinstance(side, int) for side in shape):
        raise TypeError
    return tuple(shape)


def onnx_call(name: str, inputs: str, outputs: str, moved: float) -> OperatorCall:
    """A node of ONNX Runtime by the texts of its shapes, `float[2,16] int64[]`, which are not those of its constants.

    Raises: ValueError: a text is not such a list.
    """
    return OperatorCall(name, tuple(_typed(inputs)), (), tuple(_typed(outputs)), moved)


def _typed(text: str) -> list[Tensor]:
    parts = [part.rstrip("]").partition("[") for part in text.split()]
    return [
        Tensor(tuple(int(n) for n in sides.split(",") if n), *ELEMENT_TYPES.get(type, ("", math.nan)))
        for type, _, sides in parts
    ]
