"""A replacement for the loguru functions that FlagPerf's cases and engines call. It writes to the log of the run."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

# FlagPerf's levels with their numbers.
LEVELS = {
    "DEBUG": 10,
    "INFO": 20,
    "SUCCESS": 25,
    "WARNING": 30,
    "ERROR": 40,
    "CRITICAL": 50,
    "Finish Info": 50,
    **{
        f"{step} {end}": 21
        for end in ("Begin", "End")
        for step in ("Init", "Export", "Model Forward", "Vendor Compile", "Vendor Inference")
    },
}


class Logger:
    """Writes lines with time, level and message."""

    def __init__(self) -> None:
        self._levels = dict(LEVELS)

    def log(self, level: str | int, message: Any, *values: Any, **named: Any) -> None:
        """Write one line.

        Raises:
            ValueError: There is no such level.
        """
        if isinstance(level, str) and level not in self._levels:
            raise ValueError(f"unknown level {level!r}")
        text = str(message).format(*values, **named) if values or named else str(message)
        sys.stdout.write(f"{time.strftime('%H:%M:%S')} | {level} | {text}\n")
        sys.stdout.flush()

    def level(self, name: str, no: int | None = None, **_: Any) -> None:
        """Register a level."""
        if no is None and name not in self._levels:
            raise ValueError(f"unknown level {name!r}")
        self._levels.setdefault(name, no or 0)

    def add(self, *_: Any, **__: Any) -> int:
        """Do nothing: the only log is that of the run."""
        return 0

    def remove(self, *_: Any) -> None:
        """Do nothing: the only log is that of the run."""

    def opt(self, *_: Any, **__: Any) -> Logger:
        """Return the logger unchanged, as for `bind` and `patch` of loguru."""
        return self

    bind = patch = contextualize = opt

    def __getattr__(self, name: str) -> Any:
        """Return the function of a level: `debug`, `info`, `exception`, ..."""
        level = "ERROR" if name == "exception" else name.upper()
        if level not in LEVELS:
            raise AttributeError(name)
        return partial(self.log, level)
