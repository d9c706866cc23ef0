"""Files of runs that are kept elsewhere: they are listed always, and here once somebody asks for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol

from visualprof.errors import VisualprofError
from visualprof.reader.logdir.scan import LogFile, Problem


class Elsewhere(Protocol):
    """Where they are kept."""

    def files(self) -> Sequence[LogFile | Problem] | None:
        """All of them, and what cannot be looked at; None as long as that is not known."""

    def fetch(self, path: str, then: Callable[[VisualprofError | None], object]) -> None:
        """Bring a file to its path in the background. then: is told why it could not be, or None."""

    def bring(self, path: str) -> None:
        """Somebody is about to read a file.

        Raises: NotReady: it is being fetched, ask again. VisualprofError: it cannot be.
        """


class Places:
    """Several of them. An `Elsewhere`."""

    def __init__(self, places: Sequence[Elsewhere]) -> None:
        self._places = places
        self._of: dict[str, Elsewhere] = {}

    def files(self) -> Sequence[LogFile | Problem] | None:
        """Of all; None as long as those of one are not known."""
        items: list[LogFile | Problem] = []
        for place in self._places:
            own = place.files()
            if own is None:
                return None
            items += own
            self._of |= {item.path: place for item in own if isinstance(item, LogFile)}
        return items

    def fetch(self, path: str, then: Callable[[VisualprofError | None], object]) -> None:
        """By the one that has the file."""
        self._of[path].fetch(path, then)

    def bring(self, path: str) -> None:
        """By the one that has the file; the others know nothing of it."""
        for place in self._places:
            place.bring(path)


def is_here(file: LogFile) -> bool:
    """Can it be read now?"""
    return file.known is None or os.path.isfile(file.path)
