"""Recorders of frameworks: one file per framework, with a class `Recorder`, found by the framework's name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, ClassVar, Protocol

from visualprof.capture.options import CaptureError, Options
from visualprof.capture.topics import Topics

# Training frameworks come first: a training script may also import a runtime.
TRAINING = ("torch", "megengine", "paddle")
INFERENCE = ("onnxruntime", "openvino")


class Recorder(Protocol):
    """Profiler of a framework for one recording.

    Attributes:
        kind: Suffix of its files, without `.gz`.
        can: Topics that it records; further requested topics are a warning.
        can_stack: Whether it records Python stacks.
        most_steps: Maximum number of steps per recording, 0 for any number.
    """

    kind: ClassVar[str]
    can: ClassVar[Topics]
    can_stack: ClassVar[bool]
    most_steps: ClassVar[int]

    def __init__(self, options: Options) -> None: ...

    @property
    def forkable(self) -> bool:
        """Whether a forked child may write what this process recorded."""
        ...

    def start(self) -> None:
        """Start recording, on the thread that will stop it."""
        ...

    def mark(self, step: int) -> None:
        """End the open step and start this one."""
        ...

    def stop(self, whole: bool) -> tuple[bytes, bytes] | None:
        """End the recording.

        Args:
            whole: The last step ended; otherwise it was only started and is not a step.

        Returns:
            Bytes of the file that mark the last step, and a replacement of the same length that does not; None if the
                file is
            right as it is.
        """
        ...

    def facts(self) -> dict[str, Any]:
        """Return metadata for the file that the framework does not write: version, rank, clock."""
        ...

    def dump(self, path: Path) -> None:
        """Write the recording as JSON."""
        ...

    def close(self) -> None:
        """Restore the framework's state; also if the recording never started."""


def framework_of(options: Options) -> str:
    """Return the framework to record: named in the options, of the model, or the imported one.

    Raises:
        CaptureError: No framework is imported, or several that train.
    """
    if options.framework:
        if options.framework not in TRAINING + INFERENCE:
            raise CaptureError(f"capture knows no {options.framework!r}", f"it knows {', '.join(TRAINING + INFERENCE)}")
        return options.framework
    bases = {base.__module__.partition(".")[0] for base in type(options.model).__mro__}
    imported = [name for name in TRAINING + INFERENCE if name in bases]
    imported = imported or [name for name in TRAINING if name in sys.modules]
    imported = imported or [name for name in INFERENCE if name in sys.modules]
    if len(imported) != 1:
        problem = f"{' and '.join(imported)} are imported" if imported else "no framework is imported yet"
        raise CaptureError(f"capture cannot tell what to record: {problem}", "give framework='torch', or the model")
    return imported[0]


def recorder_of(framework: str) -> type[Recorder]:
    """Return the recorder of a framework."""
    return importlib.import_module(f"{__name__}.{framework}").Recorder
