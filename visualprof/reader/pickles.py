"""The pickle of a TorchScript archive as data: objects with their attributes, tensors with type and shape.

The codes of the pickle are interpreted here; nothing is imported and nothing is called. What a pickle of TorchScript
never has (unpickler.cpp of torch) is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from visualprof.messages import msg

MAX_CODES = 3_000_000  # about 30 a weight
STORAGES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Int": "int32", "Long": "int64",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128", "QInt8": "qint8", "QUInt8": "quint8", "QInt32": "qint32",
}  # fmt: skip
ELSEWHERE = ("collections.OrderedDict", "builtins.complex", "__builtin__.complex")
TENSORS = tuple(f"torch._utils._rebuild_{kind}" for kind in ("tensor", "tensor_v2", "qtensor"))


class PickleError(ValueError):
    """The pickle is damaged, or does what no TorchScript model does."""


@dataclass(frozen=True)
class Name:
    """A class or function, by its name only."""

    text: str


@dataclass(eq=False)
class Record:
    """An object. state: its attributes by name."""

    kind: str
    state: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor, the same only as itself; two of one pickle are one when it says so."""

    dtype: str
    shape: tuple[int, ...]


def load(data: bytes) -> object:
    """What a pickle describes.

    Raises: PickleError.
    """
    machine, place = _Machine(), 0
    try:
        for _ in range(MAX_CODES):
            code = data[place : place + 1]
            if code == b".":
                return machine.pop()
            if code not in _STEPS:
                raise PickleError(
                    msg("reader.step_which_no_model", f"the step {code!r}, which no model has")
                    if code
                    else msg("reader.cut_before_end", "cut before its end")
                )
            form, step = _STEPS[code]
            argument, place = _argument(data, place + 1, form)
            step(machine, argument)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise (
            error if isinstance(error, PickleError) else PickleError(msg("reader.damaged", f"damaged ({error})"))
        ) from error
    raise PickleError(msg("reader.over_steps", f"over {MAX_CODES:,} steps"))


def _argument(data: bytes, place: int, form: str) -> tuple[Any, int]:
    """What follows a code, and the place after it: a number, two lines, or text or a number with its size before."""
    if not form:
        return None, place
    if form == "lines":
        middle = data.index(b"\n", place)
        end = data.index(b"\n", middle + 1)
        return f"{data[place:middle].decode()}.{data[middle + 1 : end].decode()}", end + 1
    number = struct.unpack_from(form[:2], data, place)[0]
    place += struct.calcsize(form[:2])
    if len(form) == 2:
        return number, place
    held = data[place : place + number]
    if len(held) < number:
        raise PickleError(msg("reader.cut_before_end", "cut before its end"))
    return (
        held.decode("utf-8", "replace") if form[2:] == "text" else int.from_bytes(held, "little", signed=True)
    ), place + number


class _Machine:
    """A stack, places in it, and a memory."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memory: dict[int, Any] = {}

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        return self.stack.pop()

    def since_mark(self) -> list[Any]:
        """What was put since the last mark, taken away."""
        place = self.marks.pop()
        taken, self.stack[place:] = self.stack[place:], []
        return taken

    def tuple_of(self, size: int) -> None:
        """The last values as one."""
        taken, self.stack[len(self.stack) - size :] = self.stack[len(self.stack) - size :], []
        self.push(tuple(taken))

    def keep(self, number: int) -> None:
        self.memory[number] = self.stack[-1]

    def name(self, text: str) -> None:
        if text.split(".")[0] not in ("torch", "__torch__") and text not in ELSEWHERE:
            raise PickleError(msg("reader.asks_which_no_model", f"it asks for {text[:100]}, which no model does"))
        self.push(Name(text))

    def new(self) -> None:
        """An object without attributes; those follow."""
        self.pop()
        self.push(Record(cast("Name", self.pop()).text))

    def build(self) -> None:
        """Attributes of an object; those of C++ have a state of their own."""
        state = self.pop()
        if isinstance(state, dict) and isinstance(self.stack[-1], Record):
            self.stack[-1].state = cast("dict[str, Any]", state)

    def items(self, pairs: list[Any]) -> None:
        """Entries of a dictionary; keys that are no names belong to no object."""
        if isinstance(self.stack[-1], dict):
            self.stack[-1].update((k, v) for k, v in zip(pairs[::2], pairs[1::2], strict=True) if isinstance(k, str))

    def append(self, values: list[Any]) -> None:
        cast("list[Any]", self.stack[-1]).extend(values)

    def call(self) -> None:
        """What a call would give: a tensor, an argument passed on, a dictionary; None of what is not of interest."""
        given, name = cast("tuple[Any, ...]", self.pop()), cast("Name", self.pop()).text
        if name in TENSORS:
            sizes = cast("tuple[int, ...]", given[2])
            if not all(type(size) is int and size >= 0 for size in sizes):
                raise PickleError(msg("reader.tensor_sizes_no_numbers", "a tensor with sizes that are no numbers"))
            self.push(Tensor(cast("str", given[0]), tuple(sizes)))
        elif name.startswith("torch.jit._pickle."):
            self.push(given[0])
        else:
            self.push({} if name == "collections.OrderedDict" else None)

    def storage(self) -> None:
        """The type of what a tensor lies in: `('storage', torch.FloatStorage, '0', 'cpu', 12)`."""
        kind = cast("Name", self.pop()[1]).text.removeprefix("torch.").removesuffix("Storage")
        self.push(STORAGES.get(kind, ""))


_PUSH: Callable[[_Machine, Any], None] = _Machine.push
# What stands after a code, and what it does.
_STEPS: dict[bytes, tuple[str, Callable[[_Machine, Any], None]]] = {
    b"\x80": ("<B", lambda m, a: None),
    b"c": ("lines", lambda m, a: m.name(a)),
    b"(": ("", lambda m, a: m.marks.append(len(m.stack))),
    b"0": ("", lambda m, a: m.stack.pop()),
    b"N": ("", _PUSH),
    b"\x88": ("", lambda m, a: m.push(True)),
    b"\x89": ("", lambda m, a: m.push(False)),
    b"K": ("<B", _PUSH),
    b"M": ("<H", _PUSH),
    b"J": ("<i", _PUSH),
    b"G": (">d", _PUSH),
    b"\x8a": ("<Bnumber", _PUSH),
    b"X": ("<Itext", _PUSH),
    b"T": ("<Itext", _PUSH),
    b")": ("", lambda m, a: m.push(())),
    b"t": ("", lambda m, a: m.push(tuple(m.since_mark()))),
    b"\x85": ("", lambda m, a: m.tuple_of(1)),
    b"\x86": ("", lambda m, a: m.tuple_of(2)),
    b"\x87": ("", lambda m, a: m.tuple_of(3)),
    b"]": ("", lambda m, a: m.push([])),
    b"a": ("", lambda m, a: m.append([m.pop()])),
    b"e": ("", lambda m, a: m.append(m.since_mark())),
    b"}": ("", lambda m, a: m.push({})),
    b"s": ("", lambda m, a: m.items([m.pop(), m.pop()][::-1])),
    b"u": ("", lambda m, a: m.items(m.since_mark())),
    b"q": ("<B", lambda m, a: m.keep(a)),
    b"r": ("<I", lambda m, a: m.keep(a)),
    b"h": ("<B", lambda m, a: m.push(m.memory[a])),
    b"j": ("<I", lambda m, a: m.push(m.memory[a])),
    b"\x81": ("", lambda m, a: m.new()),
    b"b": ("", lambda m, a: m.build()),
    b"R": ("", lambda m, a: m.call()),
    b"Q": ("", lambda m, a: m.storage()),
}
