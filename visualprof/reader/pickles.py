"""Interpret the pickle of a TorchScript archive as data: objects with attributes, tensors with type and shape.

The opcodes are interpreted here; nothing is imported or called. Opcodes that TorchScript never writes (unpickler.cpp of
torch) are rejected.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from visualprof.messages import msg

MAX_OPCODES = 3_000_000  # about 30 per weight
STORAGE_DTYPES = {
    name: value
    for name, _, value in (
        pair.partition("=")
        for pair in """
        Float=float32 Double=float64 Half=float16 BFloat16=bfloat16 Int=int32 Long=int64 Short=int16
        Char=int8 Byte=uint8 Bool=bool ComplexFloat=complex64 ComplexDouble=complex128 QInt8=qint8
        QUInt8=quint8 QInt32=qint32
    """.split()
    )
}
ALLOWED_NAMES = ("collections.OrderedDict", "builtins.complex", "__builtin__.complex")
TENSOR_REBUILDERS = tuple(f"torch._utils._rebuild_{kind}" for kind in ("tensor", "tensor_v2", "qtensor"))


class PickleError(ValueError):
    """The pickle is damaged, or contains something that no TorchScript model has."""


@dataclass(frozen=True)
class Name:
    """A class or function, by name only."""

    text: str


@dataclass(eq=False)
class Record:
    """An object with its attributes by name."""

    kind: str
    state: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor, compared by identity: shared tensors of a pickle are the same object."""

    dtype: str
    shape: tuple[int, ...]


def load(data: bytes) -> object:
    """Return the object that a pickle describes.

    Raises:
        PickleError: The pickle is damaged or not one of TorchScript.
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
    """Return the argument of an opcode and the offset after it.

    Args:
        data: The pickle.
        offset: The offset after the opcode.
        form: "" for no argument, "lines" for two lines, else a `struct` format of a number. After the format "text" or
            "number" means that the number is the size of that argument.
    """
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
    """A stack with marks, and a memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memory: dict[int, Any] = {}

    def push(self, value: object) -> None:
        """Push a value."""
        self.stack.append(value)

    def pop(self) -> Any:
        """Pop the last value."""
        return self.stack.pop()

    def pop_mark(self) -> list[Any]:
        """Pop the values since the last mark."""
        start = self.marks.pop()
        items, self.stack[start:] = self.stack[start:], []
        return items

    def make_tuple(self, size: int) -> None:
        """Replace the last `size` values by a tuple."""
        items, self.stack[len(self.stack) - size :] = self.stack[len(self.stack) - size :], []
        self.push(tuple(items))

    def memoize(self, number: int) -> None:
        """Store the last value in the memo."""
        self.memory[number] = self.stack[-1]

    def name(self, text: str) -> None:
        """Push a class or function name.

        Raises:
            PickleError: No TorchScript model uses the name.
        """
        if text.split(".")[0] not in ("torch", "__torch__") and text not in ALLOWED_NAMES:
            raise PickleError(msg("reader.asks_which_no_model", f"it asks for {text[:100]}, which no model does"))
        self.push(Name(text))

    def new(self) -> None:
        """Push an object without attributes; `build` sets them."""
        self.pop()
        self.push(Record(cast("Name", self.pop()).text))

    def build(self) -> None:
        """Set the attributes of an object. Objects of C++ classes have a state of their own, which is dropped."""
        state = self.pop()
        if isinstance(state, dict) and isinstance(self.stack[-1], Record):
            self.stack[-1].state = cast("dict[str, Any]", state)

    def items(self, pairs: list[Any]) -> None:
        """Add entries to a dictionary; entries whose keys are not names belong to no object and are dropped."""
        if isinstance(self.stack[-1], dict):
            self.stack[-1].update((k, v) for k, v in zip(pairs[::2], pairs[1::2], strict=True) if isinstance(k, str))

    def append(self, values: list[Any]) -> None:
        """Append values to a list."""
        cast("list[Any]", self.stack[-1]).extend(values)

    def call(self) -> None:
        """Push the result of a call: a tensor, a passed-through argument or a dictionary, `None` for anything else."""
        arguments, name = cast("tuple[Any, ...]", self.pop()), cast("Name", self.pop()).text
        if name in TENSOR_REBUILDERS:
            sizes = cast("tuple[int, ...]", arguments[2])
            if not all(type(size) is int and size >= 0 for size in sizes):
                raise PickleError(msg("reader.tensor_sizes_no_numbers", "a tensor has sizes that are not numbers"))
            self.push(Tensor(cast("str", arguments[0]), tuple(sizes)))
        elif name.startswith("torch.jit._pickle."):
            self.push(arguments[0])
        else:
            self.push({} if name == "collections.OrderedDict" else None)

    def storage(self) -> None:
        """Push the type of a tensor's storage, from `('storage', torch.FloatStorage, '0', 'cpu', 12)`."""
        kind = cast("Name", self.pop()[1]).text.removeprefix("torch.").removesuffix("Storage")
        self.push(STORAGE_DTYPES.get(kind, ""))


_PUSH: Callable[[_Unpickler, Any], None] = _Unpickler.push
# The form of an opcode's argument, and its action.
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
