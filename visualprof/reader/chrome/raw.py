"""The text of single events, fetched from their file again: the columns keep only what views need."""

from __future__ import annotations

from pathlib import Path

import msgspec

from visualprof.errors import FormatError, VisualprofError
from visualprof.reader.chrome.pieces import EventPieces
from visualprof.reader.source import Source


class _AllFound(Exception):  # not an error: the way out of the loop
    """The wanted events have gone by."""


class _EventFinder:
    """Takes pieces until the last wanted event has gone by."""

    def __init__(self, wanted: set[int]) -> None:
        self.rows = 0
        self.texts: dict[int, str] = {}
        self._wanted = wanted

    def add(self, text: bytes | memoryview) -> None:
        entries = msgspec.json.decode(text, type=list[msgspec.Raw])
        for row in self._wanted:
            if self.rows <= row < self.rows + len(entries):
                self.texts[row] = bytes(entries[row - self.rows]).decode("utf-8", "replace")
        self.rows += len(entries)
        if len(self.texts) == len(self._wanted):
            raise _AllFound


def raw_events(path: str | Path, rows: set[int]) -> dict[int, str]:
    """JSON text of the events at the given rows of a file; rows that are not there are left out.

    A format without a list of events (the monitor's lines, MegEngine's plans) has none to give.

    Reads the file up to the last of them: about 1 s for 350 MB.

    Raises: SourceError: the file is gone or cannot be read.
    """
    rows = {row for row in rows if row >= 0}
    if not rows:  # what is inside captured graphs stands in no row of the file
        return {}
    finder = _EventFinder(rows)
    try:
        EventPieces(Source(path), finder).run()
    except (_AllFound, FormatError):
        pass
    except VisualprofError:
        if not finder.texts:
            raise
    return finder.texts
