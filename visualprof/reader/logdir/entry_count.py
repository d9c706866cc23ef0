"""Limits on the size of a log directory."""

from __future__ import annotations

# A dataset that was put below a log directory by mistake must not block the scanner for minutes.
MAX_ENTRIES = 200_000
MAX_RUN_DATA_ENTRIES = 1_000_000  # files of run data, which the scanner does not read, and their folders


class EntryCount:
    """Number of files and folders of a walk. Folders with run data count as run data."""

    def __init__(self) -> None:
        self._others = self._run_data = 0

    def add(self, children: int, others: int) -> None:
        """Add a folder, which was counted with the folder above it, by the number of its entries."""
        has_data = others < children
        self._run_data += children - others + has_data
        self._others += others - has_data

    def exceeded(self) -> int:
        """Return the limit that is exceeded, 0 for none."""
        if self._others > MAX_ENTRIES:
            return MAX_ENTRIES
        return MAX_RUN_DATA_ENTRIES if self._run_data > MAX_RUN_DATA_ENTRIES else 0
