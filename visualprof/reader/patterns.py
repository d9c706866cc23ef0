"""Regular expressions that are compiled with the first text that they look at: all of them are 5 ms of a start."""

from __future__ import annotations

import re
from typing import Any, AnyStr, Generic, cast


class _LazyPattern(Generic[AnyStr]):
    """A pattern to be: the first use of a method puts that of the compiled one in its place."""

    def __init__(self, text: AnyStr, flags: int) -> None:
        self._arguments = text, flags

    def __getattr__(self, name: str) -> Any:
        attribute: Any = getattr(re.compile(*self._arguments), name)  # which `re` keeps
        setattr(self, name, attribute)
        return attribute


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What `re.compile` gives, later. Errors in it come later, too: only for what is written in the program."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(text, flags))


# Names of ranges that mark steps: `step 5`, `iteration_5`, `ProfilerStep#5`.
STEP_NAME = pattern(r"^(ProfilerStep#|(?:step|iteration|iter)[ _#:=-]*)(\d+)$", re.IGNORECASE)
