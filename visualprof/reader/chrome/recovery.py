"""Recover damaged JSON text: find where it is intact, and repair the rest.

After a stray byte, a missing quote or a lone bracket, the decoder stops within an event or two. The text is intact up
to the position of the decoder. It is intact again at the next text that looks like an event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from visualprof.reader.patterns import pattern
from visualprof.reader.source import DECODE_ERRORS

TOKEN = pattern(
    rb'"(?:[^"\\]|\\.)*"|-?\b(?:NaN|nan|Infinity|inf)\b|-(?:NaN|nan|Infinity|inf)\b|,(?=\s*[\]}])', re.DOTALL
)
BAD_ESCAPE = pattern(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|(\\)')
SURROGATE = rb"\\u[dD][%s][0-9a-fA-F]{2}"  # of a surrogate pair; text that is no such escape is in the first group
LONE_SURROGATE = pattern(
    rb"(\\[^u]|\\u(?![dD][89a-fA-F])|%s%s)|%s" % (SURROGATE % b"89abAB", SURROGATE % b"c-fC-F", SURROGATE % b"89a-fA-F")
)
CONTROL = pattern(rb"[\x00-\x1f]")
ESCAPED = pattern(rb"\\.", re.DOTALL)
POSITION = pattern(r"\(byte (\d+)\)")
REPAIRABLE = pattern(r"invalid|surrogate|trailing comma")
SEPARATORS = pattern(rb"[\s,]*")
# An entry of the list, not the value of a key, that starts like an event.
EVENT = pattern(rb'(?<!:)(?<!:\s)\{\s*"(?:ph|cat|name|pid|tid|ts|dur|id|args|s|bp|tts|tdur|cname)"\s*:')

MAX_EVENT_DEPTH = 100  # no event opens that many brackets; the decoder gives up at a few hundred
_BLOCK_BYTES = 1 << 16


class Sink(Protocol):
    """Receives the pieces; `rows` counts the events so far."""

    rows: int

    def add(self, text: bytes | memoryview) -> None:
        """Take one JSON list of events. If it is incomplete, take nothing and raise one of `DECODE_ERRORS`."""


class DecodeFault(NamedTuple):
    """The decoder's error. Its exception would form a reference cycle with the frames that hold the piece."""

    text: str
    deep: bool

    @classmethod
    def from_error(cls, error: Exception) -> DecodeFault:
        """Return the fault of one of `DECODE_ERRORS`."""
        return cls(str(error), isinstance(error, RecursionError))


class ListEntries:
    """Entries of a list that are tried part by part, without copying each part."""

    def __init__(self, data: bytes, sink: Sink) -> None:
        self._text = bytearray(b"[%b]" % data)
        self._sink = sink

    def take(self, start: int, stop: int) -> DecodeFault | None:
        """Feed data[start:stop]; return the fault if these are not complete entries. Only moves forward."""
        byte_after = self._text[stop + 1]
        self._text[start], self._text[stop + 1] = b"[]"
        try:
            self._sink.add(memoryview(self._text)[start : stop + 2])
        except DECODE_ERRORS as error:
            return DecodeFault.from_error(error)
        finally:
            self._text[stop + 1] = byte_after
        return None


def repair(data: bytes) -> bytes:
    """Return the JSON made valid.

    Bare NaN/Infinity, commas after the last element, wrong escapes, control characters and invalid UTF-8 are replaced.
    """

    def mend(match: re.Match[bytes]) -> bytes:
        token = match.group()
        if token == b",":
            return b""
        if not token.startswith(b'"'):
            return b"null"
        if b"\\" in token:
            token = BAD_ESCAPE.sub(lambda m: b"\\\\" if m.group(1) else m.group(), token)
            token = LONE_SURROGATE.sub(lambda m: m.group(1) or b"\\ufffd", token)
        return CONTROL.sub(lambda m: b"\\u%04x" % m.group()[0], token)

    return TOKEN.sub(mend, data.decode("utf-8", "replace").encode())


def find_damage(fault: DecodeFault, data: bytes, start: int, stop: int) -> int:
    """Return the offset in data[start:stop] that the decoder could not read, `stop` if only an end is missing."""
    match = POSITION.search(fault.text)
    offset = min(start + int(match.group(1)) - 1, stop) if match else stop
    if fault.deep:
        offset = start + next((i for i, level in _levels(data[start:stop]) if level > MAX_EVENT_DEPTH), stop - start)
    try:
        data[start:offset].decode()  # the decoder reports no position for invalid UTF-8
    except UnicodeDecodeError as undecodable:
        return start + undecodable.start
    return offset


def find_list_end(fault: DecodeFault, data: bytes, start: int, stop: int) -> int | None:
    """Return where the list ends within data[start:stop], or `None` if the decoder failed for another reason."""
    if "trailing characters" not in fault.text:
        return None
    end = data.rfind(b"]", start, find_damage(fault, data, start, stop))
    # A stray bracket: the list continues
    return None if end < 0 or EVENT.match(data, skip_separators(data, end + 1)) else end


def skip_separators(data: bytes, offset: int) -> int:
    """Return the offset after blanks and commas."""
    match = SEPARATORS.match(data, offset)
    return match.end() if match else offset


def entry_ends(text: bytes) -> list[int]:
    """Return the end of each complete object or list at the start of a list's text; 10 ms for 1 MiB."""
    return [i + 1 for i, level in _levels(text) if level == 0]


def _levels(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield the brackets outside of strings that close the outermost level or nest too deeply: offset and level."""
    open_before, quoted_before, stop = 0, 0, 0
    while stop < len(text):
        first, stop = stop, min(stop + _BLOCK_BYTES, len(text))
        while text[stop - 1 : stop] == b"\\" and stop < len(text):  # do not split an escape
            stop += 1
        block = np.frombuffer(ESCAPED.sub(b"__", text[first:stop]), np.uint8)
        quoted = (np.cumsum(block == ord('"'), dtype=np.uint8) + quoted_before) & 1
        folded = block & 0xDF  # `{` and `[`, `}` and `]` differ in one bit
        step = (folded == ord("[")).astype(np.int8) - (folded == ord("]"))
        step[quoted == 1] = 0
        level = np.cumsum(step, dtype=np.int32) + open_before
        brackets = np.flatnonzero((step != 0) & ((level == 0) | (level > MAX_EVENT_DEPTH)))
        yield from zip((brackets + first).tolist(), level[brackets].tolist(), strict=True)
        open_before, quoted_before = int(level[-1]), int(quoted[-1])
