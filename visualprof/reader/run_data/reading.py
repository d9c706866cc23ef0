"""How the files of run data are read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from visualprof.reader.run_data.event_file import EventFile


class FileReader(Protocol):
    """Reads the appended records of files."""

    def update(self, file: EventFile, end_s: float) -> bool:
        """Read or start to read the appended records, and return whether everything was read.

        Args:
            file: The file.
            end_s: Stop soon after this time of the monotonic clock.

        Raises:
            SourceError: The file cannot be read.
        """
        ...

    def wait(self, files: Sequence[EventFile], end_s: float) -> bool:
        """Wait until `end_s` for other processes that read the files, and return whether to update again."""
        ...


class LocalReader:
    """Reads files in this process."""

    def update(self, file: EventFile, end_s: float) -> bool:
        """Read the appended records until `end_s`."""
        return file.update(lambda: time.monotonic() > end_s)

    def wait(self, files: Sequence[EventFile], end_s: float) -> bool:
        """Return False, because no other process reads the files."""
        del files, end_s
        return False
