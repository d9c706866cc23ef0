"""Files of runs that are stored remotely: always listed, downloaded on demand."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol

from visualprof.errors import VisualprofError
from visualprof.reader.logdir.scan import LogFile, Problem


class RemoteFileSource(Protocol):
    """A place that stores files remotely."""

    def files(self) -> Sequence[LogFile | Problem] | None:
        """Return all files, and problems of listing them, or `None` until they are known."""

    def fetch(self, path: str, on_done: Callable[[VisualprofError | None], object]) -> None:
        """Download a file to its path in the background; `on_done` gets an error or `None`."""

    def ensure_local(self, path: str) -> None:
        """Make sure that a file can be read.

        Raises:
            NotReady: The file is being downloaded; ask again.
            VisualprofError: The file cannot be downloaded.
        """


class RemoteFileSources:
    """Several sources as one `RemoteFileSource`."""

    def __init__(self, sources: Sequence[RemoteFileSource]) -> None:
        self._sources = sources
        self._source_of_path: dict[str, RemoteFileSource] = {}

    def files(self) -> Sequence[LogFile | Problem] | None:
        """Return the files of all sources, or `None` until all are known."""
        items: list[LogFile | Problem] = []
        for source in self._sources:
            source_items = source.files()
            if source_items is None:
                return None
            items += source_items
            self._source_of_path |= {item.path: source for item in source_items if isinstance(item, LogFile)}
        return items

    def fetch(self, path: str, on_done: Callable[[VisualprofError | None], object]) -> None:
        """Download a file from the source that has it."""
        self._source_of_path[path].fetch(path, on_done)

    def ensure_local(self, path: str) -> None:
        """Ask all sources; those without the file ignore it."""
        for source in self._sources:
            source.ensure_local(path)


def is_local(file: LogFile) -> bool:
    """Return whether the file can be read now."""
    return file.verdict is None or os.path.isfile(file.path)
