"""Callbacks of training loops: one file a framework, with a class `StepProfiler` that takes what `profile` takes.

Each imports the framework that it is for: `from visualprof.capture.callbacks.lightning import StepProfiler`.
"""

from __future__ import annotations

import os
from typing import Any

from visualprof.capture.profile import profile


class Driven:
    """A recording whose beginning, steps and end are hooks of somebody's loop.

    Where a loop has no hook for exceptions, the end of the process writes what was recorded until then.

    Args:
        logdir, options: of `profile`.
    """

    framework = "torch"

    def __init__(self, logdir: str | os.PathLike[str], **options: Any) -> None:
        super().__init__()
        self._profile = profile(logdir, framework=self.framework, **options)

    def begin(self, *_: Any, **__: Any) -> None:
        """Counts steps from here."""
        self._profile.__enter__()

    def step(self, *_: Any, **__: Any) -> None:
        """End a step."""
        self._profile.step()

    def end(self, *_: Any, **__: Any) -> None:
        """Write what was recorded."""
        self._profile.__exit__(None, None, None)
