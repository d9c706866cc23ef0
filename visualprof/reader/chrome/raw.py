"""Fetch the text of single events from their file: the columns only hold what views need."""

from __future__ import annotations

from pathlib import Path

import msgspec

from visualprof.errors import FormatError, VisualprofError
from visualprof.reader.chrome.pieces import EventPieces
from visualprof.reader.source import Source


class _AllFound(Exception):  # not an error: ends the loop
    """All wanted events were found."""


class _EventFinder:
    """Takes pieces until the last wanted event."""

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
    """Return the JSON text of events by their row in the file; missing rows are left out.

    Formats without a list of events (the monitor's lines, MegEngine's plans) return nothing. The file is read up to the
    last wanted event: about 1 s for 350 MB.

    Raises:
        SourceError: The file does not exist or cannot be read.
    """
    rows = {row for row in rows if row >= 0}
    if not rows:  # contents of captured graphs have no row in the file
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
