"""What a recording is to hold and where it goes, and what may go wrong with it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from visualprof.capture.topics import Topics
from visualprof.errors import VisualprofError


class CaptureError(VisualprofError):
    """A recording cannot be made."""


class CaptureBusy(CaptureError):
    """Another recording of this process is not over: profilers that run in each other end processes."""

    status = 409


class CaptureWarning(UserWarning):
    """A recording holds less than was asked for, or was not written."""


@dataclass(frozen=True)
class Options:
    """One recording.

    steps: how many; 0 until `stop`. run: the folder in `logdir`, "" for that of this job. framework: its name, "" for
    the one that is imported, or that `model` is of. model, inputs: as `add_graph` takes them; None: no graph.
    max_files: of this process in its run; the oldest of them go.
    """

    logdir: str | os.PathLike[str]
    steps: int = 5
    topics: Topics = Topics.ALL
    memory: bool = True
    shapes: bool = True
    stacks: bool = False
    align_time: bool = True
    show_operator_name: bool = True
    monitor: bool = True
    framework: str = ""
    model: Any = None
    inputs: Any = None
    max_files: int = 20
    run: str = ""

    @property
    def with_memory(self) -> bool:
        """Allocations are recorded."""
        return self.memory and bool(self.topics & (Topics.MEMORY | Topics.TENSOR_LIFETIME))
