"""MegEngine 1.13: its profiler without its defects (docs/capture.md#megengine)."""

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
_OWN: Any = importlib.import_module("megengine.utils.profiler")


class Recorder(Shape):
    """One profiler of one format, its steps as scopes: `Profiler.step()` ends some processes when they dump."""

    kind = "chrome_timeline.json"
    can = Topics.ALL
    can_stack = True
    most_steps = 20  # 1.6 MB a step while it records, and 20 times the file while it is written

    def __init__(self, options: Options) -> None:
        self._cuda = bool(_MEGENGINE.is_cuda_available())
        self._profiler: Any = _OWN.Profiler(
            "unused", with_backtrace=options.stacks, sample_rate=int(options.with_memory), enable_cupti=int(self._cuda)
        )
        self._scopes = bool(options.topics & Topics.SCOPE)
        self._name = ""
        self._open = False
        self._write: Callable[[str, str], None] | None = None

    @property
    def forkable(self) -> bool:
        """Not beside CUDA."""
        return not self._cuda

    def start(self) -> None:
        """Begin to record; `start` alone would leave out the names of modules and functions."""
        if self._scopes:
            self._profiler._patcher.__enter__()  # noqa: SLF001
        self._profiler.start()

    def mark(self, step: int) -> None:
        """Open the scope of a step."""
        self._end()
        self._name = f"ProfilerStep#{step}"
        _CORE.push_scope(self._name)
        self._open = True

    def stop(self, whole: bool) -> tuple[bytes, bytes] | None:
        """Ends; takes the data from the profiler, which else writes it into its own folder when it is deleted."""
        self._end()
        self._profiler.stop()
        if self._scopes:
            self._profiler._patcher.__exit__(None, None, None)  # noqa: SLF001
        self._write, self._profiler._dump_callback = self._profiler._dump_callback, None  # noqa: SLF001
        _OWN._living_profilers.discard(self._profiler)  # noqa: SLF001
        if whole or not self._name:
            return None
        return f'"{self._name}"'.encode(), f'"{self._name.replace("ProfilerStep#", "AfterTheStep ")}"'.encode()

    def facts(self) -> dict[str, Any]:
        """Version, and the place among the ranks."""
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
        """End the step when its work has ended: the interpreter runs up to 7 ms ahead of it."""
        if self._open:
            _CORE.full_sync()
            _CORE.pop_scope(self._name)
            self._open = False
