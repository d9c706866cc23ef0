"""Cut a file of Chrome trace events into pieces of about 1 MiB, each a valid JSON list of complete events.

Files that are damaged, truncated or not quite JSON, as some profilers write them, are recovered as far as possible.
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
from visualprof.reader.chrome.recovery import (
    EVENT,
    REPAIRABLE,
    DecodeFault,
    ListEntries,
    Sink,
    entry_ends,
    find_damage,
    find_list_end,
    repair,
    skip_separators,
)
from visualprof.reader.chrome.scan import Scanner, Window
from visualprof.reader.native.scanner import ENDED, REFUSED, Part
from visualprof.reader.source import DECODE_ERRORS, Filler, SkippedParts, Source

MAX_HEAD_BYTES = 64 * 1024 * 1024
EVENT_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
EVENT_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
OPTIONAL_COMMA = re.compile(rb"\s*,?\s*")
# The end of the list, followed by the next key or the end of the document
LIST_TAIL = re.compile(rb'\]\s*(?:,\s*"|\})')

MAX_DAMAGE_BYTES = 4 * 1024 * 1024  # damage without an event in this many bytes is dropped
BLOCK_BYTES = 1 << 16
_MAX_TAILS = 8
REPAIRED_WARNING = msg(
    "reader.json_not_valid_bare",
    "the JSON was not valid (bare NaN, a comma too many, bad escapes or bytes that are not UTF-8) and was repaired",
)


# The scanner of windows, and the function that takes the rows of one.
Scan = tuple[Scanner, Callable[[Part], None]]


class EventPieces:
    """Cuts the file at event boundaries and feeds the pieces to a sink.

    A cut is guessed and then verified. The cut of a piece `p` is between two entries of the outer list exactly if `[p]`
    is valid JSON. A cut inside a nested value or a string would leave a bracket or quote open.

    If the piece is invalid, all text before the position of the error is valid. Complete events in that text are
    used, the damaged event is repaired or skipped, and parsing resumes at the next event. Each byte is decoded a few
    times at most.

    Attributes:
        head: Top-level keys of the document other than the list.
        truncated: The file ends in the middle.
        is_bare_list: The document is the list itself.
    """

    def __init__(self, source: Source, columns: Sink, scan: Scan | None = None) -> None:
        self.name = source.name
        self.sink = columns
        self._source = source
        self._scanner = scan
        self.head: dict[str, Any] = {}
        self.truncated = False
        self.is_bare_list = False
        self._chunks = source.chunks()
        self._ended = False
        self._read_bytes = 0
        self._skipped = SkippedParts()
        self._read_error: FormatError | SourceError | None = None
        self._warnings: dict[str, None] = {}

    @property
    def warnings(self) -> list[str]:
        """Tolerated irregularities, one sentence each."""
        return list(self._warnings)

    def run(self) -> None:
        """Feed every event of the file.

        Raises:
            FormatError: No event can be read. Later damage only causes a warning.
            SourceError: As for `FormatError`.
        """
        if self._scanner:
            with self._source.open_filler() as fill:
                self._run_scanner(fill, *self._scanner)
        else:
            self._feed_all(self._open_list())
        if self._skipped.count:
            self._warn(self._skipped.sentence())
        if self._read_error:
            self.truncated = False  # the file will not grow
            self._warn(
                msg(
                    "reader.what_follows_event_damaged",
                    f"what follows event {self.sink.rows:,} is damaged and was left out: {self._read_error.error}",
                )
            )
        elif self.truncated:
            self._warn(
                msg("reader.file_ends_middle_after", f"the file ends in the middle, after event {self.sink.rows:,}")
            )
        if self.sink.rows == 0 and (self._read_error or self._skipped.count):
            raise self._read_error or FormatError(
                msg("reader.no_event_can_read", f"{self.name}: no event can be read: {self._skipped.sentence()}"),
                msg("reader.file_cut_edited", "was the file cut or edited?"),
            )

    def _feed_all(self, rest: bytes | None) -> None:
        """Feed all pieces."""
        try:
            while rest is not None:
                more = self._read_more(len(rest))
                rest = self._feed(rest + more, is_last=not more)
        except FormatError as error:
            self._read_error = error

    def _run_scanner(self, fill: Filler, scanner: Scanner, take: Callable[[Part], None]) -> None:
        """Feed all pieces to the scanner; the rest of a window that it rejects is decoded."""
        self._chunks = iter(partial(_read_block, fill), b"")
        prefix = self._open_list()
        self._read_bytes -= len(prefix)
        with closing(scanner.windows(_PrefixedFiller(prefix, fill))) as windows:
            self._chunks = (bytes(window.text) for window in windows)
            try:
                self._take_windows(windows, scanner, take)
            except FormatError as error:
                self._read_error = error
        try:
            fill(memoryview(bytearray(1)))
        except SourceError as error:  # the reason for the early end
            self._read_error = self._read_error or error

    def _take_windows(self, windows: Iterable[Window], scanner: Scanner, take: Callable[[Part], None]) -> None:
        pending, scanned_bytes = bytearray(), 0  # an event whose end has not been read, and how much of it was scanned
        for window in windows:
            self._read_bytes += len(window.text)
            if len(pending) + len(window.text) < min(2 * scanned_bytes, MAX_HEAD_BYTES) and not window.is_last:
                pending += window.text  # as in `_read_more`: an event without its end is rarely scanned again
                continue
            complete = scanner.rescan(pending, window, first=not self.sink.rows) if pending else window
            if complete.rows:
                take(complete.rows)
            rest = self._feed_remainder(complete)
            if rest is None:
                return
            pending, scanned_bytes = bytearray(rest), len(rest)

    def _feed_remainder(self, window: Window) -> bytes | None:
        """Decode the part of a window that was not scanned, like `_feed`."""
        state, stop = window.scanned[:2]
        if state == ENDED:
            self._close_list(bytes(window.text[stop + 1 :]))
            return None
        rest = bytes(window.text[stop:])
        if self.sink.rows:
            rest = OPTIONAL_COMMA.sub(b"", rest, count=1)
        if window.is_last or state == REFUSED or len(rest) > MAX_DAMAGE_BYTES:
            return self._feed(rest, window.is_last, cut=window.ends_with_event)
        return rest

    def _warn(self, text: str) -> None:
        self._warnings[text] = None

    def _read_more(self, min_bytes: int) -> bytes:
        """Return the next chunks, at least `min_bytes`, so that an event without its end is rarely decoded again."""
        chunks: list[bytes] = []
        size = 0
        try:
            for chunk in self._chunks:
                chunks.append(chunk)
                size += len(chunk)
                if size >= min_bytes:
                    break
        except SourceError as error:  # what was unpacked before the damage is read like a truncated file
            self._read_error = error
        self._read_bytes += size
        return b"".join(chunks)

    def _open_list(self) -> bytes:
        """Return the bytes after the `[` that opens the list of events, and add the keys before it to `head`."""
        data = b""
        while len(data) <= MAX_HEAD_BYTES and (more := self._read_more(len(data))):
            data = (data + more).lstrip(b"\xef\xbb\xbf \t\r\n") if len(data) < 16 else data + more
            if data.startswith(b"["):
                self.is_bare_list = True
                return data[1:]
            matches = list(EVENT_LIST.finditer(data))
            for match in matches:
                head = _decode_object(data[: match.start()] + b'"traceEvents":0}')
                if head is not None:
                    self.head |= head
                    return data[match.end() :]
            if matches:
                self._warn(
                    msg(
                        "reader.what_stands_before_list",
                        "the text before the list of events is not valid JSON and was ignored",
                    )
                )
                return data[matches[0].end() :]
        raise self._read_error or FormatError(
            msg("reader.there_no_list_events", f"{self.name} has no list of events ('traceEvents')"),
            msg("reader.profile_copied_whole", "is it a profile, and was it copied whole?"),
        )

    def _feed(self, data: bytes, is_last: bool, *, cut: bool = False) -> bytes | None:
        """Take complete events off the front; return the rest, or `None` at the end of the list.

        Args:
            data: The bytes.
            is_last: Nothing follows.
            cut: The data probably end with an event.
        """
        stop = len(data) if is_last or cut else _guess_event_end(data) or len(data) * (len(data) > MAX_DAMAGE_BYTES)
        done = self._take(data, stop, is_last) if stop else 0
        if done is None:
            return None
        rest = data[skip_separators(data, done) if done else 0 :]
        if is_last:
            self.truncated = bool(rest) or not self.is_bare_list  # a bare list need not be closed
            if not self.truncated and self.sink.rows:
                self._warn(
                    msg(
                        "reader.list_events_not_closed",
                        f"the list of events is not closed: the file may be cut, after event {self.sink.rows:,}",
                    )
                )
            return None
        if len(rest) > MAX_HEAD_BYTES:
            raise FormatError(
                msg("reader.no_end_event_within", f"{self.name}: no end of an event within {MAX_HEAD_BYTES >> 20} MiB"),
                msg("reader.profile", "is it a profile?"),
            )
        return rest

    def _take(self, data: bytes, stop: int, is_last: bool) -> int | None:
        """Take the events of data[:stop]; return the offset reached, or `None` at the end of the list."""
        try:
            self.sink.add(b"".join((b"[", memoryview(data)[:stop], b"]")))  # the only copy
            return stop
        except DECODE_ERRORS as error:
            fault = DecodeFault.from_error(error)
        # Faults that may occur in many events, such as NaN, are repaired in all events at once.
        if stop < MAX_DAMAGE_BYTES and REPAIRABLE.search(fault.text) and self._take_repaired(data, stop):
            return None if self._ended else stop
        return self._recover_events(data, stop, fault, is_last)

    def _take_repaired(self, data: bytes, stop: int) -> bool:
        """Repair the data and take its events; return `False` if they are still invalid."""
        repaired = repair(data[:stop])
        entries = ListEntries(repaired, self.sink)
        fault = entries.take(0, len(repaired))
        if fault:
            end = find_list_end(fault, repaired, 0, len(repaired))
            if end is None or entries.take(0, end):
                return False
            self._close_list(repaired[end + 1 :] + data[stop:])
        self._warn(REPAIRED_WARNING)
        return True

    def _recover_events(self, data: bytes, stop: int, fault: DecodeFault | None, is_last: bool) -> int | None:
        """Take events like `_take`, but repair or skip damaged ones individually."""
        entries, start = ListEntries(data[:stop], self.sink), 0
        while fault:
            end = find_list_end(fault, data, start, stop)
            if end is not None:
                if entries.take(start, end):
                    self._take_whole_entries(entries, data, start, end)
                self._close_list(data[end + 1 :])
                return None
            damage = find_damage(fault, data, start, stop)
            whole_end = self._take_whole_entries(entries, data, start, damage)
            next_entry = skip_separators(data, whole_end)
            if damage >= stop and data[next_entry : next_entry + 1] in (b"{", b""):  # an event without its end
                return next_entry
            event = EVENT.search(data, next_entry + (damage > next_entry), stop)
            if not event and not is_last:
                return self._skip_open_damage(data, next_entry)
            start = event.start() if event else stop
            self._repair_or_skip(data, next_entry, start)
            if not event:
                self._close_damaged(data, next_entry)
                return None
            fault = entries.take(start, stop)
        return stop

    def _skip_open_damage(self, data: bytes, start: int) -> int:
        """Return where to resume after damage without an end in the data: at its start, or nearly at its end."""
        if len(data) - start < MAX_DAMAGE_BYTES:
            return start
        stop = data.rfind(b"{", start, len(data))
        stop = max(start + 1, stop if stop > len(data) - 1000 else len(data))
        self._skipped.add(self._read_bytes - len(data) + start, stop - start)
        return stop

    def _take_whole_entries(self, entries: ListEntries, data: bytes, start: int, stop: int) -> int:
        """Take the complete entries of data[start:stop], which is undamaged; return where they end."""
        ends = [start + end for end in entry_ends(data[start:stop])]
        if not ends:
            return start
        if entries.take(start, ends[-1]):
            for first, end in zip([start, *ends], ends, strict=False):  # rare: the decoder reported another fault first
                self._repair_or_skip(data, skip_separators(data, first), end)
        return ends[-1]

    def _repair_or_skip(self, data: bytes, start: int, stop: int) -> None:
        text = repair(data[start:stop].rstrip(b" \t\r\n,")) if stop - start < MAX_DAMAGE_BYTES else b""
        if text and ListEntries(text, self.sink).take(0, len(text)) is None:
            self._warn(REPAIRED_WARNING)
        else:
            self._skipped.add(self._read_bytes - len(data) + start, stop - start)

    def _close_damaged(self, data: bytes, start: int) -> None:
        """Read the keys after a list whose last event is damaged."""
        for match in [*LIST_TAIL.finditer(data, start)][: -_MAX_TAILS - 1 : -1]:
            keys = _decode_object(b'{"_":0' + data[match.start() + 1 :].rstrip())
            if keys is not None:
                self.head |= keys
                return
        self.truncated = not data.rstrip().endswith((b"}", b"]"))

    def _close_list(self, tail: bytes) -> None:
        """Read the keys after the list."""
        tail += self._read_more(MAX_HEAD_BYTES)
        self._ended = True
        rest = tail.strip()
        if self.is_bare_list:
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


class _PrefixedFiller:
    """Fills buffers with bytes that were read before, then with what follows."""

    def __init__(self, prefix: bytes, fill: Filler) -> None:
        self._prefix, self._fill = prefix, fill

    def __call__(self, buffer: memoryview) -> int:
        piece, self._prefix = self._prefix[: len(buffer)], self._prefix[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece) + self._fill(buffer[len(piece) :])


def _read_block(fill: Filler) -> bytes:
    buffer = bytearray(BLOCK_BYTES)
    return bytes(memoryview(buffer)[: fill(memoryview(buffer))])


def _guess_event_end(data: bytes, window: int = 1 << 18) -> int:
    """Return where the last event of the data probably ends, 0 if none is near the end."""
    ends = [(m.start() + 1, b"\n" in m.group()) for m in EVENT_BOUNDARY.finditer(data, max(0, len(data) - window))]
    lines = [end for end, newline in ends if newline]
    return lines[-1] if lines else ends[-1][0] if ends else 0


def _decode_object(text: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(text)
    except DECODE_ERRORS:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
