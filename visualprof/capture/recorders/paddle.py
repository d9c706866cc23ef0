"""Recorder for Paddle: its own profiler, with the numbers of the real steps."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
from pathlib import Path
from typing import Any

from visualprof.capture.options import Options
from visualprof.capture.recorders import Recorder as Shape
from visualprof.capture.topics import Topics

_PADDLE: Any = importlib.import_module("paddle")
_LOCAL: Any = importlib.import_module("paddle.profiler")


class Recorder(Shape):
    """Profiler of Paddle. A second one at the same time fails, even after this one has stopped."""

    kind = "paddle_trace.json"
    can = Topics.OPERATOR | Topics.TENSOR_LIFETIME | Topics.SYNC | Topics.SCOPE | Topics.MEMORY | Topics.SHAPE_INFER
    can_stack = False
    most_steps = 0

    def __init__(self, options: Options) -> None:
        self._device = bool(_PADDLE.is_compiled_with_cuda() or _PADDLE.is_compiled_with_xpu())
        self._shapes, self._memory = options.shapes, options.with_memory
        self._profiler: Any = None

    @property
    def forkable(self) -> bool:
        """Whether no device is in use."""
        return not self._device

    def start(self) -> None:
        """Create the profiler; the first `mark` starts it, because Paddle opens a step at the start."""
        self._profiler = _LOCAL.Profiler(
            on_trace_ready=_nothing,  # otherwise Paddle writes ./profiler_log
            record_shapes=self._shapes,
            profile_memory=self._memory,
        )

    def mark(self, step: int) -> None:
        """Start a step; the first one starts the profiler."""
        if self._profiler.record_event is None:
            self._profiler.step_num = step
            self._profiler.start()
        else:
            self._profiler.step()

    def stop(self, whole: bool) -> None:
        """End the recording; the annotation of a step that was only started is never written."""
        begun = None if whole else self._profiler.record_event
        if begun:
            self._profiler.record_event = None
        with contextlib.redirect_stdout(io.StringIO()):  # Paddle always prints a summary
            self._profiler.stop()
        del begun  # otherwise its annotation would be written while the profiler runs

    def facts(self) -> dict[str, Any]:
        """Return the version and the position among the ranks."""
        facts: dict[str, Any] = {"framework": "paddle", "version": str(_PADDLE.__version__)}
        if os.environ.get("PADDLE_TRAINER_ID") or _PADDLE.distributed.is_initialized():
            facts |= {"rank": _PADDLE.distributed.get_rank(), "world_size": _PADDLE.distributed.get_world_size()}
        return facts

    def dump(self, path: Path) -> None:
        """Write Paddle's JSON."""
        self._profiler.export(str(path), "json")


def _nothing(profiler: Any) -> None:
    del profiler
