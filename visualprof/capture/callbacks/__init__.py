"""Callbacks of training loops: one file per framework, with a class `StepProfiler`.

`StepProfiler` takes the arguments of `profile`. Each file imports its framework:
`from visualprof.capture.callbacks.lightning import StepProfiler`.
"""

from __future__ import annotations

import os
from typing import Any

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
