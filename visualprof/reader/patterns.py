"""Regular expressions that are compiled on first use, because compiling all of them takes 5 ms at start-up."""

from __future__ import annotations

import re
from typing import Any, AnyStr, Generic, cast


class _LazyPattern(Generic[AnyStr]):
    """A pattern that compiles on first use. Each accessed method replaces itself with that of the compiled pattern."""

    def __init__(self, text: AnyStr, flags: int) -> None:
        self._arguments = text, flags

    def __getattr__(self, name: str) -> Any:
        attribute: Any = getattr(re.compile(*self._arguments), name)  # `re` caches the compiled pattern
        setattr(self, name, attribute)
        return attribute


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern like `re.compile`, but compiled on first use.

    Syntax errors surface on first use as well, so use it for constant patterns only.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(text, flags))
