"""Scan Chrome trace events natively on several threads: from text to columns, without an object per event.

The scanner takes plain events and rejects everything else, which `decode` then handles. It can therefore be strict: it
interprets all events that it takes exactly as Python does.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from queue import SimpleQueue
from threading import Event, Lock, Thread

import msgspec

from visualprof.reader.chrome.document import Args, column_type
from visualprof.reader.native.scanner import (
    MAX_FIELDS,
    OPEN,
    PADDING,
    Fields,
    Part,
    Reader,
    Scanned,
    compiled,
    find_border,
)
from visualprof.reader.processors import thread_count
from visualprof.reader.source import Filler

PIECE_BYTES = 1 << 20
MAX_THREADS = 4
NOTHING_SCANNED = Scanned(OPEN, 0, 0, 0)


class Window(msgspec.Struct):
    """A part of the text.

    Attributes:
        text: The text, padded.
        is_last: Nothing follows.
        ends_with_event: The text probably ends with an event that a comma follows.
        rows: The scanned rows.
        scanned: The result of the scan.
        error: The error of reading or scanning.
        done: Set after the scan.
    """

    text: memoryview
    is_last: bool
    ends_with_event: bool
    rows: Part | None = None
    scanned: Scanned = NOTHING_SCANNED
    error: BaseException | None = None
    done: Event = msgspec.field(default_factory=Event)

    def scan(self, reader: Reader, *, first: bool = False) -> Window:
        """Scan the window, unless its last event continues in the next window."""
        if self.ends_with_event or self.is_last:
            self.scanned = reader.scan(self.text, first=first)
            self.rows = Part(reader, self.scanned.first, self.scanned.last)
        return self


class WindowReader:
    """Reads a text window by window.

    Args:
        fill: Fills a buffer with the next bytes.
        piece: Size of a window in bytes.
    """

    def __init__(self, fill: Filler, piece: int) -> None:
        self._fill, self._piece = fill, piece
        self._rest = b""

    def buffer(self) -> memoryview:
        """Return a buffer for one window."""
        return memoryview(bytearray(self._piece + PADDING))

    def next(self, buffer: memoryview) -> Window:
        """Return the next window, in the buffer if it is large enough."""
        size = len(self._rest)
        if size + PADDING >= len(buffer):
            buffer = memoryview(bytearray(2 * size + PADDING))
        buffer[:size] = self._rest
        size += self._fill(buffer[size:-PADDING])
        ends = size + PADDING < len(buffer)
        buffer[size : size + PADDING] = bytes(PADDING)
        cut = 0 if ends else find_border(buffer[:size])
        self._rest = bytes(buffer[cut:size]) if cut else b""
        if cut:
            buffer[cut : cut + PADDING] = bytes(PADDING)
        return Window(buffer[: cut or size], ends, cut > 0)


class Scanner:
    """Scans the text of one file.

    Args:
        args: As in `decode.read_document`.
        fields_by_cat: As in `decode.read_document`.
        threads: Number of scanning threads (default: one per usable processor, at most 4).
        piece: Size of a window in bytes.
    """

    def __init__(
        self, args: type[Args], fields_by_cat: Mapping[str, Sequence[str]], threads: int = 0, piece: int = PIECE_BYTES
    ) -> None:
        fields = msgspec.structs.fields(args)
        bit = {f.name: 1 << i for i, f in enumerate(fields)}
        self.fields = Fields(
            {f.name: column_type(f.default) for f in fields},
            [f.encode_name for f in fields],
            {cat: sum(bit[name] for name in set(names)) for cat, names in fields_by_cat.items()},
        )
        self._threads = threads or min(MAX_THREADS, thread_count())
        self._piece = piece
        self._readers: list[Reader] = []
        self._rescan_reader: Reader | None = None

    @classmethod
    def create(cls, args: type[Args], fields_by_cat: Mapping[str, Sequence[str]]) -> Scanner | None:
        """Return a scanner, or `None` without the native library or with too many arguments."""
        usable = compiled() and len(msgspec.structs.fields(args)) <= MAX_FIELDS
        return cls(args, fields_by_cat) if usable else None

    def windows(self, fill: Filler) -> Generator[Window]:
        """Yield all windows of a text in order, scanned. A window is overwritten when the next one is requested.

        Args:
            fill: Fills a buffer with the next bytes; a short fill means the end.
        """
        windows = WindowReader(fill, self._piece)
        reader, buffer = Reader(self.fields), windows.buffer()
        window = windows.next(buffer).scan(reader, first=True)
        yield window
        if not window.is_last and self._threads > 1:
            readers = [reader, *(Reader(self.fields) for _ in range(self._threads - 1))]
            yield from _scan_in_threads(windows, readers)
        else:
            while not window.is_last:
                window = windows.next(buffer).scan(reader)
                yield window

    def rescan(self, prefix: bytes | bytearray, window: Window, *, first: bool) -> Window:
        """Scan a window together with the text before it; `first` means that no event came before."""
        self._rescan_reader = self._rescan_reader or Reader(self.fields)
        size = len(prefix) + len(window.text)
        text = memoryview(bytearray(size + PADDING))
        text[: len(prefix)], text[len(prefix) : size] = prefix, window.text
        return Window(text[:size], window.is_last, window.ends_with_event).scan(self._rescan_reader, first=first)


def _scan_in_threads(windows: WindowReader, readers: Sequence[Reader]) -> Iterator[Window]:
    """Scan windows in threads, which take turns to fill the next window. At most two windows per thread are in use."""
    queues = _ThreadQueues(windows)
    threads = [Thread(target=queues.run_worker, args=(reader,), daemon=True) for reader in readers]
    for _ in range(2 * len(threads)):
        queues.free.put(windows.buffer())
    for thread in threads:
        thread.start()
    try:
        window = None
        while window is None or not window.is_last:
            buffer, window = queues.filled.get()
            window.done.wait()
            if window.error:
                raise window.error
            yield window
            queues.free.put(buffer)
    finally:
        queues.is_finished = True
        for _ in threads:
            queues.free.put(None)
        for thread in threads:
            thread.join()


class _ThreadQueues:
    """State shared by the threads."""

    def __init__(self, windows: WindowReader) -> None:
        self.free: SimpleQueue[memoryview | None] = SimpleQueue()
        self.filled: SimpleQueue[tuple[memoryview, Window]] = SimpleQueue()
        self.is_finished = False
        self._windows = windows
        self._filling = Lock()

    def run_worker(self, reader: Reader) -> None:
        """Fill and scan windows until the text ends. Errors are stored in their window."""
        while (buffer := self.free.get()) is not None:
            with self._filling:
                if self.is_finished:
                    return
                try:
                    window = self._windows.next(buffer)
                except BaseException as error:  # noqa: BLE001
                    window = Window(buffer, is_last=True, ends_with_event=False, error=error)
                self.is_finished = window.is_last
                self.filled.put((buffer, window))
            try:
                if not window.error:
                    window.scan(reader)
            except MemoryError as error:
                window.error = error
            finally:
                window.done.set()
