"""One file a framework, with a class `Recorder` of one shape; found by the framework's name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, ClassVar, Protocol

from visualprof.capture.options import CaptureError, Options
from visualprof.capture.topics import Topics

# Those that train come first: a script that trains may also import a runtime.
TRAINING = ("torch", "megengine", "paddle")
INFERENCE = ("onnxruntime", "openvino")


class Recorder(Protocol):
    """The profiler of a framework for one recording.

    kind: ending of its files, without `.gz`. can: topics that it records; what is asked for besides is a warning.
    can_stack: it records Python stacks. most_steps: what it may hold at a time, 0 any number.
    """

    kind: ClassVar[str]
    can: ClassVar[Topics]
    can_stack: ClassVar[bool]
    most_steps: ClassVar[int]

    def __init__(self, options: Options) -> None: ...

    @property
    def forkable(self) -> bool:
        """A forked child may write what this process recorded."""
        ...

    def start(self) -> None:
        """Begin to record, on the thread that will stop."""
        ...

    def mark(self, step: int) -> None:
        """End the step that is open and begins this one."""
        ...

    def stop(self, whole: bool) -> tuple[bytes, bytes] | None:
        """End the recording.

        Args:
            whole: the last step ended; else it was only begun and is none.

        Returns:
            Bytes of the file that say that the last step is one, and others as long that do not; None when the file
            is right as it is.
        """
        ...

    def facts(self) -> dict[str, Any]:
        """What the file is to say beside what the framework writes: version, rank, clock."""
        ...

    def dump(self, path: Path) -> None:
        """Write what was recorded as JSON."""
        ...

    def close(self) -> None:
        """Leave the framework as it was; also where it never started."""


def framework_of(options: Options) -> str:
    """The framework to record: that of the options, of the model, or the one that is imported.

    Raises:
        CaptureError: none is imported, or several that train.
    """
    if options.framework:
        if options.framework not in TRAINING + INFERENCE:
            raise CaptureError(f"capture knows no {options.framework!r}", f"it knows {', '.join(TRAINING + INFERENCE)}")
        return options.framework
    bases = {base.__module__.partition(".")[0] for base in type(options.model).__mro__}
    found = [name for name in TRAINING + INFERENCE if name in bases]
    found = found or [name for name in TRAINING if name in sys.modules]
    found = found or [name for name in INFERENCE if name in sys.modules]
    if len(found) != 1:
        what = f"{' and '.join(found)} are imported" if found else "no framework is imported yet"
        raise CaptureError(f"capture cannot tell what to record: {what}", "give framework='torch', or the model")
    return found[0]


def recorder_of(framework: str) -> type[Recorder]:
    """The recorder of a framework."""
    return importlib.import_module(f"{__name__}.{framework}").Recorder
