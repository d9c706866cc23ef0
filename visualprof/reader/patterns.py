"""Regular expressions that are compiled with the first text that they look at: all of them are 5 ms of a start."""

from __future__ import annotations

import re
from typing import Any, AnyStr, Generic, cast


class _Later(Generic[AnyStr]):
    """A pattern to be: the first use of a method puts that of the compiled one in its place."""

    def __init__(self, text: AnyStr, flags: int) -> None:
        self._how = text, flags

    def __getattr__(self, name: str) -> Any:
        found: Any = getattr(re.compile(*self._how), name)  # which `re` keeps
        setattr(self, name, found)
        return found


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What `re.compile` gives, later. Errors in it come later, too: only for what is written in the program."""
    return cast("re.Pattern[AnyStr]", _Later(text, flags))


# Names of ranges that mark steps: `step 5`, `iteration_5`, `ProfilerStep#5`.
STEP = pattern(r"^(ProfilerStep#|(?:step|iteration|iter)[ _#:=-]*)(\d+)$", re.IGNORECASE)
