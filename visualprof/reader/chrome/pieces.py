"""A file of Chrome trace events cut into pieces of about 1 MiB, each a valid JSON list of whole events.

Also where a file is damaged, cut short or not quite JSON, as profilers write it: what can be kept is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from typing import Any, cast

import msgspec

from visualprof.errors import FormatError, SourceError
from visualprof.messages import msg
from visualprof.reader.chrome.salvage import (
    EVENT,
    REPAIRABLE,
    Entries,
    Fault,
    Sink,
    behind,
    damage_at,
    entry_ends,
    list_end,
    repair,
)
from visualprof.reader.chrome.scan import Scanner, Window
from visualprof.reader.native.scanner import ENDED, REFUSED, Part
from visualprof.reader.source import DECODE_ERRORS, Filler, SkippedParts, Source

HEAD_LIMIT = 64 * 1024 * 1024
LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
SPLIT = re.compile(rb"\}\s*,\s*\{")
ONE_COMMA = re.compile(rb"\s*,?\s*")
TAIL = re.compile(rb'\]\s*(?:,\s*"|\})')  # the end of the list and the next key of the document, or its end

DAMAGE_LIMIT = 4 * 1024 * 1024  # without an event in so much, what was read of a damaged part is let go
BLOCK_BYTES = 1 << 16
_TAILS = 8
REPAIRED = msg(
    "reader.json_not_valid_bare",
    "the JSON was not valid (bare NaN, bad escapes or bytes that are not UTF-8) and was repaired",
)


# What scans windows, and what takes the rows of one.
Scan = tuple[Scanner, Callable[[Part], None]]


class Pieces:
    """Cuts the file at event borders and feeds the pieces to the columns.

    A piece `p` was cut between two entries of the outer list exactly if `[p]` is valid JSON: inside a nested value
    or a string it would leave something open. So a cut is guessed and then proved. Where it is not valid the place
    of the error tells how far it is: whole events before it are taken, the damaged one is repaired or skipped, and
    the rest is tried from the next event on. Each byte is decoded a few times at most.
    """

    def __init__(self, source: Source, columns: Sink, scan: Scan | None = None) -> None:
        self.name = source.name
        self.columns = columns
        self._source = source
        self._scan_with = scan
        self.head: dict[str, Any] = {}
        self.truncated = False
        self.listed = False
        self._chunks = source.chunks()
        self._ended = False
        self._read = 0
        self._skipped = SkippedParts()
        self._broken: FormatError | SourceError | None = None
        self._warnings: dict[str, None] = {}

    @property
    def warnings(self) -> list[str]:
        """Oddities that were tolerated, one sentence each."""
        return list(self._warnings)

    def run(self) -> None:
        """Feed every event of the file.

        Raises: FormatError, SourceError: nothing could be read; later damage only makes a warning.
        """
        if self._scan_with:
            with self._source.open_filler() as fill:
                self._scan(fill, *self._scan_with)
        else:
            self._feed_all(self._open_list())
        if self._skipped.count:
            self._warn(self._skipped.sentence())
        if self._broken:
            self.truncated = False  # it will not grow
            self._warn(
                msg(
                    "reader.what_follows_event_damaged",
                    f"what follows event {self.columns.rows:,} is damaged and was left out: {self._broken.error}",
                )
            )
        elif self.truncated:
            self._warn(
                msg("reader.file_ends_middle_after", f"the file ends in the middle, after event {self.columns.rows:,}")
            )
        if self.columns.rows == 0 and (self._broken or self._skipped.count):
            raise self._broken or FormatError(
                msg("reader.no_event_can_read", f"{self.name}: no event can be read: {self._skipped.sentence()}"),
                msg("reader.file_cut_edited", "was the file cut or edited?"),
            )

    def _feed_all(self, rest: bytes | None) -> None:
        try:
            while rest is not None:
                more = self._more(len(rest))
                rest = self._feed(rest + more, last=not more)
        except FormatError as error:
            self._broken = error

    def _scan(self, fill: Filler, scanner: Scanner, take: Callable[[Part], None]) -> None:
        """As `_feed_all`, of what the scanner refuses: from there to the end of a window."""
        self._chunks = iter(partial(_block, fill), b"")
        begun = self._open_list()
        self._read -= len(begun)
        with closing(scanner.windows(_Front(begun, fill))) as windows:
            self._chunks = (bytes(window.text) for window in windows)
            try:
                self._take_windows(windows, scanner, take)
            except FormatError as error:
                self._broken = error
        try:
            fill(memoryview(bytearray(1)))
        except SourceError as error:  # why the text ended
            self._broken = self._broken or error

    def _take_windows(self, windows: Iterable[Window], scanner: Scanner, take: Callable[[Part], None]) -> None:
        begun, tried = bytearray(), 0  # an event whose end is yet to come, and how much of it was scanned
        for window in windows:
            self._read += len(window.text)
            if len(begun) + len(window.text) < min(2 * tried, HEAD_LIMIT) and not window.ends:
                begun += window.text  # as in `_more`: what has no end yet is not scanned often
                continue
            whole = scanner.again(begun, window, first=not self.columns.rows) if begun else window
            if whole.rows:
                take(whole.rows)
            rest = self._behind(whole)
            if rest is None:
                return
            begun, tried = bytearray(rest), len(rest)

    def _behind(self, window: Window) -> bytes | None:
        """As `_feed`, of what is not scanned of a window."""
        state, stop = window.scanned[:2]
        if state == ENDED:
            self._close_list(bytes(window.text[stop + 1 :]))
            return None
        rest = bytes(window.text[stop:])
        if self.columns.rows:
            rest = ONE_COMMA.sub(b"", rest, count=1)
        if window.ends or state == REFUSED or len(rest) > DAMAGE_LIMIT:
            return self._feed(rest, window.ends, cut=window.cut)
        return rest

    def _warn(self, text: str) -> None:
        self._warnings[text] = None

    def _more(self, least: int) -> bytes:
        """The next chunk, or so many that they are `least` bytes: what has no end yet is not decoded often."""
        chunks: list[bytes] = []
        size = 0
        try:
            for chunk in self._chunks:
                chunks.append(chunk)
                size += len(chunk)
                if size >= least:
                    break
        except SourceError as error:  # what was unpacked before the damage is read like a cut file
            self._broken = error
        self._read += size
        return b"".join(chunks)

    def _open_list(self) -> bytes:
        """Bytes after the `[` that opens the list of events; fills `head` with the keys before it."""
        data = b""
        while len(data) <= HEAD_LIMIT and (more := self._more(len(data))):
            data = (data + more).lstrip(b"\xef\xbb\xbf \t\r\n") if len(data) < 16 else data + more
            if data.startswith(b"["):
                self.listed = True
                return data[1:]
            matches = list(LIST.finditer(data))
            for match in matches:
                head = _decode_object(data[: match.start()] + b'"traceEvents":0}')
                if head is not None:
                    self.head |= head
                    return data[match.end() :]
            if matches:
                self._warn(
                    msg(
                        "reader.what_stands_before_list",
                        "what stands before the list of events is not valid JSON and was ignored",
                    )
                )
                return data[matches[0].end() :]
        raise self._broken or FormatError(
            msg("reader.there_no_list_events", f"{self.name}: there is no list of events ('traceEvents') in it"),
            msg("reader.profile_copied_whole", "is it a profile, and was it copied whole?"),
        )

    def _feed(self, data: bytes, last: bool, *, cut: bool = False) -> bytes | None:
        """Take the whole events off the front; returns what is left, None at the end of the list.

        Args: last: nothing follows; cut: it ends with an event, probably.
        """
        stop = len(data) if last or cut else _likely_end(data) or len(data) * (len(data) > DAMAGE_LIMIT)
        done = self._take(data, stop, last) if stop else 0
        if done is None:
            return None
        rest = data[behind(data, done) if done else 0 :]
        if last:
            self.truncated = bool(rest) or not self.listed  # a bare list may stay open
            if not self.truncated and self.columns.rows:
                self._warn(
                    msg(
                        "reader.list_events_not_closed",
                        f"the list of events is not closed: the file may be cut, after event {self.columns.rows:,}",
                    )
                )
            return None
        if len(rest) > HEAD_LIMIT:
            raise FormatError(
                msg("reader.no_end_event_within", f"{self.name}: no end of an event within {HEAD_LIMIT >> 20} MiB"),
                msg("reader.profile", "is it a profile?"),
            )
        return rest

    def _take(self, data: bytes, stop: int, last: bool) -> int | None:
        """Take the events of data[:stop]; returns how far that is done, None where the list ended."""
        try:
            self.columns.add(b"".join((b"[", memoryview(data)[:stop], b"]")))  # the only copy
            return stop
        except DECODE_ERRORS as error:
            fault = Fault.of(error)
        # What may be wrong in many events, such as NaN, is repaired in all of them at once.
        if stop < DAMAGE_LIMIT and REPAIRABLE.search(fault.text) and self._take_repaired(data, stop):
            return None if self._ended else stop
        return self._salvage(data, stop, fault, last)

    def _take_repaired(self, data: bytes, stop: int) -> bool:
        repaired = repair(data[:stop])
        entries = Entries(repaired, self.columns)
        fault = entries.take(0, len(repaired))
        if fault:
            end = list_end(fault, repaired, 0, len(repaired))
            if end is None or entries.take(0, end):
                return False
            self._close_list(repaired[end + 1 :] + data[stop:])
        self._warn(REPAIRED)
        return True

    def _salvage(self, data: bytes, stop: int, fault: Fault | None, last: bool) -> int | None:
        """As `_take`, from event to event: what is damaged is repaired alone or skipped."""
        entries, start = Entries(data[:stop], self.columns), 0
        while fault:
            end = list_end(fault, data, start, stop)
            if end is not None:
                if entries.take(start, end):
                    self._take_whole(entries, data, start, end)
                self._close_list(data[end + 1 :])
                return None
            at = damage_at(fault, data, start, stop)
            whole = self._take_whole(entries, data, start, at)
            first = behind(data, whole)
            if at >= stop and data[first : first + 1] in (b"{", b""):  # an event without its end
                return first
            event = EVENT.search(data, first + (at > first), stop)
            if not event and not last:
                return self._let_go(data, first)
            start = event.start() if event else stop
            self._repair_or_skip(data, first, start)
            if not event:
                self._close_damaged(data, first)
                return None
            fault = entries.take(start, stop)
        return stop

    def _let_go(self, data: bytes, first: int) -> int:
        """Where to go on from damage that has no end in the data yet: from its start, or almost from its end."""
        if len(data) - first < DAMAGE_LIMIT:
            return first
        stop = data.rfind(b"{", first, len(data))
        stop = max(first + 1, stop if stop > len(data) - 1000 else len(data))
        self._skipped.add(self._read - len(data) + first, stop - first)
        return stop

    def _take_whole(self, entries: Entries, data: bytes, start: int, at: int) -> int:
        """Take the whole entries of data[start:at], which is not damaged; returns where they end."""
        ends = [start + end for end in entry_ends(data[start:at])]
        if not ends:
            return start
        if entries.take(start, ends[-1]):
            for first, end in zip([start, *ends], ends, strict=False):  # rare: the decoder told of another fault first
                self._repair_or_skip(data, behind(data, first), end)
        return ends[-1]

    def _repair_or_skip(self, data: bytes, start: int, stop: int) -> None:
        text = repair(data[start:stop].rstrip(b" \t\r\n,")) if stop - start < DAMAGE_LIMIT else b""
        if text and Entries(text, self.columns).take(0, len(text)) is None:
            self._warn(REPAIRED)
        else:
            self._skipped.add(self._read - len(data) + start, stop - start)

    def _close_damaged(self, data: bytes, start: int) -> None:
        """Read the keys after a list whose last event is damaged."""
        for match in [*TAIL.finditer(data, start)][: -_TAILS - 1 : -1]:
            keys = _decode_object(b'{"_":0' + data[match.start() + 1 :].rstrip())
            if keys is not None:
                self.head |= keys
                return
        self.truncated = not data.rstrip().endswith((b"}", b"]"))

    def _close_list(self, tail: bytes) -> None:
        """Read the keys after the list."""
        tail += self._more(HEAD_LIMIT)
        self._ended = True
        rest = tail.strip()
        if self.listed:
            if rest:
                self._warn(
                    msg("reader.something_follows_list_events", "something follows the list of events and was ignored")
                )
            return
        for text in (rest, repair(rest)):
            keys = _decode_object(b'{"_":0' + text)
            if keys is not None:
                self.head |= keys
                return
        self.truncated = not rest.endswith(b"}")
        self._warn(
            msg("reader.what_follows_list_events", "what follows the list of events is not valid JSON and was ignored")
        )


class _Front:
    """Fills buffers with what was read before, then with what follows it."""

    def __init__(self, begun: bytes, fill: Filler) -> None:
        self._begun, self._fill = begun, fill

    def __call__(self, buffer: memoryview) -> int:
        first, self._begun = self._begun[: len(buffer)], self._begun[len(buffer) :]
        buffer[: len(first)] = first
        return len(first) + self._fill(buffer[len(first) :])


def _block(fill: Filler) -> bytes:
    buffer = bytearray(BLOCK_BYTES)
    return bytes(memoryview(buffer)[: fill(memoryview(buffer))])


def _likely_end(data: bytes, window: int = 1 << 18) -> int:
    """Where the last event in the data probably ends, 0 where none is near the end."""
    ends = [(m.start() + 1, b"\n" in m.group()) for m in SPLIT.finditer(data, max(0, len(data) - window))]
    lines = [end for end, newline in ends if newline]
    return lines[-1] if lines else ends[-1][0] if ends else 0


def _decode_object(text: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(text)
    except DECODE_ERRORS:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
