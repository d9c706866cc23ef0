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

MAX_OPCODES = 3_000_000  # about 30 a weight
STORAGE_DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Int": "int32", "Long": "int64",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128", "QInt8": "qint8", "QUInt8": "quint8", "QInt32": "qint32",
}  # fmt: skip
ALLOWED_NAMES = ("collections.OrderedDict", "builtins.complex", "__builtin__.complex")
TENSOR_REBUILDERS = tuple(f"torch._utils._rebuild_{kind}" for kind in ("tensor", "tensor_v2", "qtensor"))


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
    machine, offset = _Unpickler(), 0
    try:
        for _ in range(MAX_OPCODES):
            opcode = data[offset : offset + 1]
            if opcode == b".":
                return machine.pop()
            if opcode not in _OPCODES:
                raise PickleError(
                    msg("reader.step_which_no_model", f"the step {opcode!r}, which no model has")
                    if opcode
                    else msg("reader.cut_before_end", "cut before its end")
                )
            form, step = _OPCODES[opcode]
            argument, offset = _read_argument(data, offset + 1, form)
            step(machine, argument)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise (
            error if isinstance(error, PickleError) else PickleError(msg("reader.damaged", f"damaged ({error})"))
        ) from error
    raise PickleError(msg("reader.over_steps", f"over {MAX_OPCODES:,} steps"))


def _read_argument(data: bytes, offset: int, form: str) -> tuple[Any, int]:
    """What follows a code, and the place after it: a number, two lines, or text or a number with its size before."""
    if not form:
        return None, offset
    if form == "lines":
        middle = data.index(b"\n", offset)
        end = data.index(b"\n", middle + 1)
        return f"{data[offset:middle].decode()}.{data[middle + 1 : end].decode()}", end + 1
    number = struct.unpack_from(form[:2], data, offset)[0]
    offset += struct.calcsize(form[:2])
    if len(form) == 2:
        return number, offset
    payload = data[offset : offset + number]
    if len(payload) < number:
        raise PickleError(msg("reader.cut_before_end", "cut before its end"))
    return (
        payload.decode("utf-8", "replace") if form[2:] == "text" else int.from_bytes(payload, "little", signed=True)
    ), offset + number


class _Unpickler:
    """A stack, places in it, and a memory."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memory: dict[int, Any] = {}

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        return self.stack.pop()

    def pop_mark(self) -> list[Any]:
        """What was put since the last mark, taken away."""
        start = self.marks.pop()
        items, self.stack[start:] = self.stack[start:], []
        return items

    def make_tuple(self, size: int) -> None:
        """The last values as one."""
        items, self.stack[len(self.stack) - size :] = self.stack[len(self.stack) - size :], []
        self.push(tuple(items))

    def memoize(self, number: int) -> None:
        self.memory[number] = self.stack[-1]

    def name(self, text: str) -> None:
        if text.split(".")[0] not in ("torch", "__torch__") and text not in ALLOWED_NAMES:
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
        arguments, name = cast("tuple[Any, ...]", self.pop()), cast("Name", self.pop()).text
        if name in TENSOR_REBUILDERS:
            sizes = cast("tuple[int, ...]", arguments[2])
            if not all(type(size) is int and size >= 0 for size in sizes):
                raise PickleError(msg("reader.tensor_sizes_no_numbers", "a tensor with sizes that are no numbers"))
            self.push(Tensor(cast("str", arguments[0]), tuple(sizes)))
        elif name.startswith("torch.jit._pickle."):
            self.push(arguments[0])
        else:
            self.push({} if name == "collections.OrderedDict" else None)

    def storage(self) -> None:
        """The type of what a tensor lies in: `('storage', torch.FloatStorage, '0', 'cpu', 12)`."""
        kind = cast("Name", self.pop()[1]).text.removeprefix("torch.").removesuffix("Storage")
        self.push(STORAGE_DTYPES.get(kind, ""))


_PUSH: Callable[[_Unpickler, Any], None] = _Unpickler.push
# What stands after a code, and what it does.
_OPCODES: dict[bytes, tuple[str, Callable[[_Unpickler, Any], None]]] = {
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
    b"t": ("", lambda m, a: m.push(tuple(m.pop_mark()))),
    b"\x85": ("", lambda m, a: m.make_tuple(1)),
    b"\x86": ("", lambda m, a: m.make_tuple(2)),
    b"\x87": ("", lambda m, a: m.make_tuple(3)),
    b"]": ("", lambda m, a: m.push([])),
    b"a": ("", lambda m, a: m.append([m.pop()])),
    b"e": ("", lambda m, a: m.append(m.pop_mark())),
    b"}": ("", lambda m, a: m.push({})),
    b"s": ("", lambda m, a: m.items([m.pop(), m.pop()][::-1])),
    b"u": ("", lambda m, a: m.items(m.pop_mark())),
    b"q": ("<B", lambda m, a: m.memoize(a)),
    b"r": ("<I", lambda m, a: m.memoize(a)),
    b"h": ("<B", lambda m, a: m.push(m.memory[a])),
    b"j": ("<I", lambda m, a: m.push(m.memory[a])),
    b"\x81": ("", lambda m, a: m.new()),
    b"b": ("", lambda m, a: m.build()),
    b"R": ("", lambda m, a: m.call()),
    b"Q": ("", lambda m, a: m.storage()),
}
