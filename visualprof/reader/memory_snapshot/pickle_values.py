"""Decode a pickle that consists of built-in containers only: dictionaries, lists, tuples, texts and numbers.

The opcodes are interpreted here; nothing is imported, called or unpickled. Any other opcode is rejected, so that a file
cannot name a class or a function. Memory is bounded by the size of the file: indices of the memo follow each other, and
a text cannot be longer than the rest of the file.

Source: the opcodes that torch 2.0 to 2.13 write, in pickle protocols 2 to 5.
"""

from __future__ import annotations

import re
import struct
from typing import Any, cast

from visualprof.messages import msg

MAX_INT_BYTES = 9  # an unsigned integer of 64 bits
RESTORE_TYPE_TAG = "torch.jit._pickle.restore_type_tag"
_TYPE_TAG = object()
_TEXT_SIZES = {0x8C: ("<B", 1), ord("X"): ("<I", 4), 0x8D: ("<Q", 8)}
_INT_FORMATS = {ord("M"): ("<H", 2)}
_CONSTANTS = {ord("N"): None, 0x88: True, 0x89: False}
_TUPLE_SIZES = {ord(")"): 0, 0x85: 1, 0x86: 2, 0x87: 3}
# A list, its MEMOIZE, and values of the memo; then no further items, and no index that replaces another.
_MEMO_LIST = re.compile(rb"\](\x94?)\(((?:h.|j.{4}){2,})e(?![(a])", re.DOTALL).match
_MEMO_INDEX = re.compile(rb"h.|j.{4}", re.DOTALL)
# Lists in lists, or empty ones. A snapshot has one empty list per unused device, of a few dozens.
_NESTED_LISTS = b"]" * 1024
_HEADER_SIZES = {0x80: 1, 0x95: 8}  # PROTO and FRAME: their arguments are not needed


class SharedList(list[Any]):
    """A list that occurs several times, and cannot be extended."""

    def append(self, item: Any) -> None:
        """Refuse an item.

        Raises:
            TypeError: Always.
        """
        raise TypeError("a list that is extended after its end")

    def extend(self, items: Any) -> None:
        """Refuse items, like `append`."""
        self.append(items)


class PickleError(ValueError):
    """The pickle is damaged, or contains something that no memory snapshot has."""


def decode(data: bytes) -> object:
    """Return the value that a pickle describes.

    Raises:
        PickleError: The pickle is damaged or contains more than built-in containers.
    """
    try:
        return _Decoder(data).run()
    except PickleError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise PickleError(msg("reader.damaged", f"damaged ({error})")) from error


class _Decoder:
    """A stack with marks, and a memo."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: list[Any] = []
        self.lists: dict[bytes, SharedList] = {}

    def run(self) -> object:  # noqa: C901 - a chain of the frequent opcodes is twice as fast as calls
        """Interpret all opcodes. The loop handles the frequent ones itself: 3 of 4 opcodes read the memo."""
        data, stack, marks, memo = self.data, self.stack, self.marks, self.memo
        push, from_bytes, offset, size = stack.append, int.from_bytes, 0, len(data)
        while offset < size:
            opcode = data[offset]
            if opcode == 0x68:  # BINGET
                push(memo[data[offset + 1]])
                offset += 2
            elif opcode == 0x6A:  # LONG_BINGET
                push(memo[from_bytes(data[offset + 1 : offset + 5], "little")])
                offset += 5
            elif opcode == 0x94:  # MEMOIZE
                memo.append(stack[-1])
                offset += 1
            elif opcode == 0x8A:  # LONG1
                end = offset + 2 + data[offset + 1]
                if end > size or end > offset + 2 + MAX_INT_BYTES:
                    self._check_integer(end - offset - 2)
                push(from_bytes(data[offset + 2 : end], "little", signed=True))
                offset = end
            elif opcode == 0x4B:  # BININT1
                push(data[offset + 1])
                offset += 2
            elif opcode == 0x4A:  # BININT
                push(from_bytes(data[offset + 1 : offset + 5], "little", signed=True))
                offset += 5
            elif opcode == 0x7D:  # EMPTY_DICT
                push({})
                offset += 1
            elif opcode == 0x5D:  # EMPTY_LIST
                offset = self._read_list(offset)
            elif opcode == 0x28:  # MARK
                marks.append(len(stack))
                offset += 1
            elif opcode == 0x75:  # SETITEMS
                first = marks.pop()
                stack[first - 1].update(zip(stack[first::2], stack[first + 1 :: 2], strict=True))
                del stack[first:]
                offset += 1
            elif opcode == 0x2E:  # STOP
                return stack.pop()
            else:
                self.offset = offset + 1
                self._step(opcode)
                offset = self.offset
        raise PickleError(msg("reader.cut_before_end", "cut before its end"))

    def _read_list(self, offset: int) -> int:
        """Add an empty list, or a list of values of the memo, and return the offset after it.

        Call stacks are lists of frames of the memo, and most of them repeat. Equal ones become one list, which cannot
        be changed. The other opcodes read lists that are filled in several parts.
        """
        match = _MEMO_LIST(self.data, offset)
        if match is None:
            if self.data.startswith(_NESTED_LISTS, offset):
                raise PickleError(msg("reader.nested_lists", "lists in lists, which no memory snapshot has"))
            self.stack.append([])
            return offset + 1
        text = match[2]
        items = self.lists.get(text)
        if items is None:
            indices = _MEMO_INDEX.findall(text)
            items = self.lists[text] = SharedList(self.memo[int.from_bytes(index[1:], "little")] for index in indices)
        self.stack.append(items)
        if match[1]:
            self.memo.append(items)
        return match.end()

    def _check_integer(self, count: int) -> None:
        if count > MAX_INT_BYTES:
            raise PickleError(msg("reader.integer_too_large", f"an integer of {count} bytes"))
        raise PickleError(msg("reader.cut_before_end", "cut before its end"))

    def _step(self, opcode: int) -> None:
        stack = self.stack
        if opcode in _INT_FORMATS:
            stack.append(self._number(*_INT_FORMATS[opcode]))
        elif opcode in _TEXT_SIZES:
            stack.append(self._bytes(self._number(*_TEXT_SIZES[opcode])).decode("utf-8", "surrogatepass"))
        elif opcode == 0x47:  # BINFLOAT
            stack.append(self._number(">d", 8))
        elif opcode in _CONSTANTS:
            stack.append(_CONSTANTS[opcode])
        elif opcode in _TUPLE_SIZES:
            start = len(stack) - _TUPLE_SIZES[opcode]
            if start < 0:
                raise IndexError("a tuple of too few values")
            stack[start:] = [tuple(stack[start:])]
        elif opcode in _HEADER_SIZES:
            self._bytes(_HEADER_SIZES[opcode])
        else:
            self._collect(opcode)

    def _collect(self, opcode: int) -> None:
        """Interpret an opcode that fills a container or the memo."""
        stack = self.stack
        if opcode == 0x65:  # APPENDS
            items = self._pop_mark()
            cast("list[Any]", stack[-1]).extend(items)
        elif opcode == 0x73:  # SETITEM
            value, key = stack.pop(), stack.pop()
            stack[-1][key] = value
        elif opcode == 0x61:  # APPEND
            value = stack.pop()
            stack[-1].append(value)
        elif opcode == 0x74:  # TUPLE
            stack.append(tuple(self._pop_mark()))
        elif opcode == 0x6C:  # LIST
            stack.append(self._pop_mark())
        elif opcode == 0x64:  # DICT
            pairs = self._pop_mark()
            stack.append(dict(zip(pairs[::2], pairs[1::2], strict=True)))
        elif opcode in (0x71, 0x72):  # BINPUT, LONG_BINPUT
            self._put(self._number(*(("<B", 1) if opcode == 0x71 else ("<I", 4))))
        elif opcode == 0x63:  # GLOBAL
            stack.append(self._name())
        elif opcode == 0x52:  # REDUCE
            self._reduce()
        else:
            raise PickleError(
                msg("reader.step_no_snapshot", f"the step {bytes([opcode])!r}, which no memory snapshot has")
            )

    def _put(self, index: int) -> None:
        if index > len(self.memo):
            raise PickleError(
                msg("reader.memo_index", f"the index {index:,} of the memo, where {len(self.memo):,} follows")
            )
        if index < len(self.memo):
            self.lists.clear()  # its index means another value now
        self.memo[index : index + 1] = [self.stack[-1]]

    def _name(self) -> object:
        """Return the marker of `restore_type_tag`, the only name that is accepted: torch_npu marks types with it."""
        end = self.data.index(b"\n", self.data.index(b"\n", self.offset) + 1)
        name = self.data[self.offset : end].replace(b"\n", b".").decode("utf-8", "replace")
        if name != RESTORE_TYPE_TAG:
            raise PickleError(msg("reader.asks_for_name", f"it asks for {name[:100]}, which no memory snapshot does"))
        self.offset = end + 1
        return _TYPE_TAG

    def _reduce(self) -> None:
        """Replace `restore_type_tag(value, text)` by its value."""
        arguments, called = self.stack.pop(), self.stack.pop()
        if called is not _TYPE_TAG:
            raise PickleError(msg("reader.calls_what_is_no_function", "it calls a value that is no function"))
        self.stack.append(arguments[0])

    def _pop_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def _number(self, form: str, size: int) -> Any:
        return struct.unpack(form, self._bytes(size))[0]

    def _bytes(self, size: int) -> bytes:
        start = self.offset
        if size > len(self.data) - start:
            raise PickleError(msg("reader.cut_before_end", "cut before its end"))
        self.offset = start + size
        return self.data[start : self.offset]
