"""String tables that grow while a trace is joined with other files."""

from __future__ import annotations

from collections.abc import Sequence


class StringTable:
    """The string table of a trace, extended by more texts."""

    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = list(strings)
        self._ids = {text: i for i, text in enumerate(self.strings)}

    def id(self, text: str) -> int:
        """Return the id of a text, a new one if it is not in the table yet."""
        number = self._ids.setdefault(text, len(self.strings))
        if number == len(self.strings):
            self.strings.append(text)
        return number
