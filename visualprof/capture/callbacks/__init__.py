"""Callbacks of training loops: one file per framework, with the classes `StepProfiler` and `ScalarLogger`.

`StepProfiler` takes the arguments of `profile`, and `ScalarLogger` the arguments of `LogWriter`. Each file imports
its framework:
`from visualprof.capture.callbacks.lightning import StepProfiler`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from visualprof.capture.log.arrays import as_number
from visualprof.capture.log.writer import LogWriter
from visualprof.capture.profile import profile


class Driven:
    """Recording that the hooks of a training loop start, step and end.

    If a loop has no hook for exceptions, the recorded steps are written at the end of the process.

    Args:
        logdir: Like `profile`.
        options: Like `profile`.
    """

    framework = "torch"

    def __init__(self, logdir: str | os.PathLike[str], **options: Any) -> None:
        super().__init__()
        self._profile = profile(logdir, framework=self.framework, **options)

    def begin(self, *_: Any, **__: Any) -> None:
        """Count steps from here."""
        self._profile.__enter__()

    def step(self, *_: Any, **__: Any) -> None:
        """End a step."""
        self._profile.step()

    def end(self, *_: Any, **__: Any) -> None:
        """Write the recording."""
        self._profile.__exit__(None, None, None)


class Logged:
    """Writer of the metrics that a training loop reports.

    Args:
        logdir: Like `LogWriter`.
        options: Like `LogWriter`.
    """

    def __init__(self, logdir: str | os.PathLike[str], **options: Any) -> None:
        super().__init__()
        self._logdir, self._options = logdir, options
        self._writer: LogWriter | None = None

    @property
    def writer(self) -> LogWriter:
        """The writer, created with the first value."""
        if self._writer is None:
            self._writer = LogWriter(self._logdir, **self._options)
        return self._writer

    def write(self, metrics: Mapping[str, Any] | None, step: int | None, prefix: str = "") -> None:
        """Log the metrics that are numbers."""
        for name, value in (metrics or {}).items():
            try:
                number = as_number(value)
            except (TypeError, ValueError):  # a text, or several values
                continue
            self.writer.add_scalar(f"{prefix}{name}", number, step)

    def close(self, *_: Any, **__: Any) -> None:
        """Write all values."""
        if self._writer is not None:
            self._writer.close()
