"""Files of runs that are kept elsewhere: they are listed always, and here once somebody asks for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol

from visualprof.errors import VisualprofError
from visualprof.reader.logdir.scan import LogFile


class Elsewhere(Protocol):
    """Where they are kept."""

    def files(self) -> Sequence[LogFile] | None:
        """All of them; None as long as that is not known."""

    def fetch(self, path: str, then: Callable[[VisualprofError | None], object]) -> None:
        """Brings a file to its path in the background. then: is told why it could not be, or None."""

    def bring(self, path: str) -> None:
        """Somebody is about to read a file.

        Raises: NotReady: it is being fetched, ask again. VisualprofError: it cannot be.
        """


def is_here(file: LogFile) -> bool:
    """Can it be read now?"""
    return file.known is None or os.path.isfile(file.path)
