"""A file of Chrome trace events cut into pieces of about 1 MiB, each a valid JSON list of whole events.

Also where a file is damaged, cut short or not quite JSON, as profilers write it: what can be kept is kept.
"""

from __future__ import annotations

import re
from typing import Any, Protocol, cast

import msgspec

from visualprof.errors import FormatError, SourceError
from visualprof.reader.source import Source

HEAD_LIMIT = 64 * 1024 * 1024
SPLIT = re.compile(rb"\}\s*,\s*\{")
POSITION = re.compile(r"\(byte (\d+)\)")
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\b(?:NaN|nan|Infinity|inf)\b|-(?:NaN|nan|Infinity|inf)\b', re.DOTALL)
BAD_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|(\\)')
CONTROL = re.compile(rb"[\x00-\x1f]")

REPAIRED = "the JSON was not valid (bare NaN, bad escapes or bytes that are not UTF-8) and was repaired"
UNREADABLE = (msgspec.DecodeError, UnicodeError)


class Sink(Protocol):
    """What takes the pieces: `rows` events so far, `add` one JSON list of events."""

    rows: int

    def add(self, text: bytes) -> None:
        """Takes a list; raises msgspec.DecodeError when it is not whole."""


class Pieces:
    """Cuts the file at event borders and feeds the pieces to the columns.

    A piece `p` was cut between two entries of the outer list exactly if `[p]` is valid JSON: inside a
    nested value or a string it would leave something open. So a cut is guessed and then proved.
    """

    def __init__(self, source: Source, columns: Sink) -> None:
        self.name = source.name
        self.columns = columns
        self.head: dict[str, Any] = {}
        self.truncated = False
        self.listed = False
        self._chunks = source.chunks()
        self._warnings: dict[str, None] = {}

    @property
    def warnings(self) -> list[str]:
        """Oddities that were tolerated, one sentence each."""
        return list(self._warnings)

    def run(self) -> None:
        """Feeds every event of the file.

        Raises: FormatError, SourceError: nothing could be read; later damage only makes a warning.
        """
        rest: bytes | None = self._open_list()
        try:
            while rest is not None:
                more = next(self._chunks, b"")
                rest = self._feed(rest + more, last=not more)
        except (FormatError, SourceError) as error:
            if self.columns.rows == 0:
                raise
            self._warnings[f"what follows event {self.columns.rows:,} is damaged and was left out: {error.error}"] = (
                None
            )
        if self.truncated:
            self._warnings[
                f"the file ends in the middle, after event {self.columns.rows:,}; is it still being written?"
            ] = None

    def _open_list(self) -> bytes:
        """Bytes after the `[` that opens the list of events; fills `head` with the keys before it."""
        data = b""
        for more in self._chunks:
            data = (data + more).lstrip(b"\xef\xbb\xbf \t\r\n") if len(data) < 16 else data + more
            if data.startswith(b"["):
                self.listed = True
                return data[1:]
            for match in re.finditer(rb'"traceEvents"\s*:\s*\[', data):
                head = _decode_object(data[: match.start()] + b'"traceEvents":0}')
                if head is not None:
                    self.head |= head
                    return data[match.end() :]
            if len(data) > HEAD_LIMIT:
                break
        raise FormatError(
            f"{self.name}: there is no list of events ('traceEvents') in it",
            "is it a profile, and was it copied whole?",
        )

    def _feed(self, data: bytes, last: bool) -> bytes | None:
        """Takes the whole events off the front; returns what is left, None at the end of the list."""
        if last:
            return self._finish(data)
        for cut in _cuts(data):
            end = self._take(memoryview(data)[: cut + 1])
            if end is None:
                return data[data.index(b",", cut) + 1 :]
            if end >= 0:
                return self._close_list(data[end:])
        if len(data) > HEAD_LIMIT:
            raise FormatError(f"{self.name}: no end of an event within {HEAD_LIMIT >> 20} MiB", "is it a profile?")
        return data

    def _take(self, view: memoryview) -> int | None:
        """Decodes one piece: None when it was whole events, >= 0 where the list ended, -1 for a wrong cut."""
        try:
            self.columns.add(b"".join((b"[", view, b"]")))  # the only copy
        except UNREADABLE as error:
            piece = bytes(view)
            end = _list_end(error, piece)
            if end is not None:
                self.columns.add(b"[" + piece[:end])
                return end
            if len(piece) - _position(error, len(piece)) < 1 << 18:  # near the end: probably the cut
                return -1
            self._take_repaired(piece)
        return None

    def _take_repaired(self, piece: bytes) -> None:
        """Takes a damaged piece repaired, or what stands before the damage."""
        repaired = repair(piece)
        try:
            self.columns.add(b"[" + repaired + b"]")
        except UNREADABLE as error:
            self._keep_whole(repaired[: _position(error, len(repaired)) - 1])
            raise FormatError(
                f"{self.name}: damaged JSON after event {self.columns.rows:,} ({error})",
                "was the file cut or edited? record the profile again",
            ) from error
        self._warnings[REPAIRED] = None

    def _finish(self, data: bytes) -> None:
        """The last bytes of the file: the end of the list, or a cut."""
        for attempt, repaired in ((data, False), (repair(data), True)):
            try:
                self.columns.add(b"[" + attempt)
            except UNREADABLE as error:
                end = _list_end(error, attempt)
                if end is None:
                    continue
                self.columns.add(b"[" + attempt[:end])
                self._close_list(attempt[end:])
            if repaired:
                self._warnings[REPAIRED] = None
            return
        self._finish_cut(data)

    def _finish_cut(self, data: bytes) -> None:
        """No closing bracket: keeps the whole events before the cut."""
        whole = data.rstrip(b" \t\r\n,")
        kept = self._keep_whole(whole)
        self.truncated = not (self.listed and kept == len(whole))  # a bare list may stay open

    def _keep_whole(self, data: bytes) -> int:
        """Takes the whole events at the front of `data`; returns the bytes they fill."""
        for end in [len(data)] + [c + 1 for c in _cuts(data)]:
            for piece in (data[:end], repair(data[:end])):
                try:
                    self.columns.add(b"[" + piece + b"]")
                except UNREADABLE:
                    continue
                return end
        return 0

    def _close_list(self, tail: bytes) -> None:
        """Reads the keys after the list."""
        tail += b"".join(self._chunks)
        rest = tail.strip()
        if self.listed:
            if rest not in (b"]", b""):
                self._warnings["something follows the list of events and was ignored"] = None
            return
        keys = _decode_object(b'{"_":0' + rest.removeprefix(b"]")) or _decode_object(
            b'{"_":0' + repair(rest).removeprefix(b"]")
        )
        if keys is None:
            self.truncated = not rest.rstrip().endswith(b"}")
            self._warnings["what follows the list of events is not valid JSON and was ignored"] = None
        else:
            self.head |= {k: v for k, v in keys.items() if k != "_"}


def repair(data: bytes) -> bytes:
    """JSON with bare NaN/Infinity, wrong escapes, control characters and broken UTF-8 made valid."""

    def mend(match: re.Match[bytes]) -> bytes:
        token = match.group()
        if not token.startswith(b'"'):
            return b"null"
        token = BAD_ESCAPE.sub(lambda m: b"\\\\" if m.group(1) else m.group(), token)
        return CONTROL.sub(lambda m: b"\\u%04x" % m.group()[0], token)

    return TOKEN.sub(mend, data.decode("utf-8", "replace").encode())


def _cuts(data: bytes, window: int = 1 << 18) -> list[int]:
    """Likely ends of an event (positions of `}`) near the end of the data, the likeliest first."""
    ends = [(m.start(), b"\n" in m.group()) for m in SPLIT.finditer(data, max(0, len(data) - window))]
    ends.reverse()
    return [p for p, newline in ends if newline][:8] + [p for p, newline in ends if not newline][:64]


def _position(error: Exception, default: int) -> int:
    match = POSITION.search(str(error))
    return int(match.group(1)) if match else default


def _list_end(error: Exception, piece: bytes) -> int | None:
    """Where the list closed inside `piece`, if that is what the decoder stumbled over."""
    if "trailing characters" not in str(error):
        return None
    end = piece.rfind(b"]", 0, _position(error, 0))
    return None if end < 0 else end + 1


def _decode_object(text: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(text)
    except (*UNREADABLE, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
