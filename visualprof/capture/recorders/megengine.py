"""Recorder for MegEngine 1.13: its profiler with work-arounds for its defects (docs/capture.md#megengine)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from visualprof.capture.options import Options
from visualprof.capture.recorders import Recorder as Shape
from visualprof.capture.topics import Topics

_MEGENGINE: Any = importlib.import_module("megengine")
_CORE: Any = importlib.import_module("megengine.core._imperative_rt.core2")
_LOCAL: Any = importlib.import_module("megengine.utils.profiler")

WAIT_SCOPE = "visualprof: wait for the device"  # the reader of this format knows it


class Recorder(Shape):
    """Profiler with one output format and steps as scopes, because `Profiler.step()` crashes some processes at dump."""

    kind = "chrome_timeline.json"
    can = Topics.ALL
    can_stack = True
    most_steps = 20  # 1.6 MB per step while recording, and 20 times the file while writing

    def __init__(self, options: Options) -> None:
        self._cuda = bool(_MEGENGINE.is_cuda_available())
        self._profiler: Any = _LOCAL.Profiler(
            "unused", with_backtrace=options.stacks, sample_rate=int(options.with_memory), enable_cupti=int(self._cuda)
        )
        self._scopes = bool(options.topics & Topics.SCOPE)
        self._name = ""
        self._open = False
        self._write: Callable[[str, str], None] | None = None

    @property
    def forkable(self) -> bool:
        """Whether there is no CUDA context."""
        return not self._cuda

    def start(self) -> None:
        """Start recording, with the names of modules and functions, which the profiler's own `start` leaves out.

        All queued work must end before the profiler starts. The host waits here; otherwise the wait would be part of
        a step.
        """
        if self._scopes:
            self._profiler._patcher.__enter__()  # noqa: SLF001
        _CORE.full_sync()
        self._profiler.start()
        _CORE.full_sync()

    def mark(self, step: int) -> None:
        """Open the scope of a step."""
        self._end()
        self._name = f"ProfilerStep#{step}"
        _CORE.push_scope(self._name)
        self._open = True

    def stop(self, whole: bool) -> tuple[bytes, bytes] | None:
        """End the recording and take over its data. Otherwise the profiler would write the data into its own folder."""
        self._end()
        self._profiler.stop()
        if self._scopes:
            self._profiler._patcher.__exit__(None, None, None)  # noqa: SLF001
        self._write, self._profiler._dump_callback = self._profiler._dump_callback, None  # noqa: SLF001
        _LOCAL._living_profilers.discard(self._profiler)  # noqa: SLF001
        if whole or not self._name:
            return None
        return f'"{self._name}"'.encode(), f'"{self._name.replace("ProfilerStep#", "AfterTheStep ")}"'.encode()

    def facts(self) -> dict[str, Any]:
        """Return the version and the position among the ranks."""
        facts: dict[str, Any] = {"framework": "megengine", "version": str(_MEGENGINE.__version__)}
        ranks: Any = _MEGENGINE.distributed
        if ranks.is_distributed():
            facts |= {"rank": ranks.get_rank(), "world_size": ranks.get_world_size()}
        return facts

    def dump(self, path: Path) -> None:
        """Write the timeline."""
        if self._write:
            self._write(str(path), self.kind)

    def _end(self) -> None:
        """End the step when its work has ended. The interpreter runs up to 7 ms ahead of the work."""
        if self._open:
            _CORE.push_scope(WAIT_SCOPE)  # waiting itself leaves no event
            _CORE.full_sync()
            _CORE.pop_scope(WAIT_SCOPE)
            _CORE.pop_scope(self._name)
            self._open = False
