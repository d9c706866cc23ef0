"""Files of runs that are kept elsewhere: they are listed always, and here once somebody asks for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol

from visualprof.errors import VisualprofError
from visualprof.reader.logdir.scan import LogFile, Problem


class RemoteFileSource(Protocol):
    """Where they are kept."""

    def files(self) -> Sequence[LogFile | Problem] | None:
        """All of them, and what cannot be looked at; None as long as that is not known."""

    def fetch(self, path: str, on_done: Callable[[VisualprofError | None], object]) -> None:
        """Bring a file to its path in the background. then: is told why it could not be, or None."""

    def ensure_local(self, path: str) -> None:
        """Somebody is about to read a file.

        Raises: NotReady: it is being fetched, ask again. VisualprofError: it cannot be.
        """


class RemoteFileSources:
    """Several of them. A `RemoteFileSource`."""

    def __init__(self, sources: Sequence[RemoteFileSource]) -> None:
        self._sources = sources
        self._source_of_path: dict[str, RemoteFileSource] = {}

    def files(self) -> Sequence[LogFile | Problem] | None:
        """Of all; None as long as those of one are not known."""
        items: list[LogFile | Problem] = []
        for source in self._sources:
            source_items = source.files()
            if source_items is None:
                return None
            items += source_items
            self._source_of_path |= {item.path: source for item in source_items if isinstance(item, LogFile)}
        return items

    def fetch(self, path: str, on_done: Callable[[VisualprofError | None], object]) -> None:
        """By the one that has the file."""
        self._source_of_path[path].fetch(path, on_done)

    def ensure_local(self, path: str) -> None:
        """By the one that has the file; the others know nothing of it."""
        for source in self._sources:
            source.ensure_local(path)


def is_local(file: LogFile) -> bool:
    """Can it be read now?"""
    return file.verdict is None or os.path.isfile(file.path)
