"""Options and errors of recordings."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from typing import Any

from visualprof.capture.topics import Topics
from visualprof.errors import VisualprofError


class CaptureError(VisualprofError, docs_page="capture"):
    """A recording cannot be made."""


class CaptureBusy(CaptureError, status=409):
    """Another recording of this process is not finished. Nested profilers crash processes."""


class CaptureWarning(UserWarning):
    """A recording holds less than requested, or was not written."""


@dataclass(frozen=True)
class Options:
    """Options of one recording.

    Attributes:
        steps: Number of steps; 0 records until `stop`.
        memory_snapshot: Also write a memory snapshot of the allocator (PyTorch).
        run: Folder in `logdir`, "" for the run of this job.
        framework: Its name, "" for the imported one, or the one of `model`.
        model: As for `add_graph`; None records no graph.
        inputs: As for `add_graph`; None records no graph.
        max_files: Files of this process in its run; the oldest are deleted.
    """

    logdir: str | os.PathLike[str]
    _: KW_ONLY
    steps: int = 5
    topics: Topics = Topics.ALL
    memory: bool = True
    memory_snapshot: bool = False
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
        """Whether allocations are recorded."""
        return self.memory and bool(self.topics & (Topics.MEMORY | Topics.TENSOR_LIFETIME))
