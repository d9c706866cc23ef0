"""Recorder for PyTorch: Kineto through `torch.profiler`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.capture.options import Options
from visualprof.capture.recorders import Recorder as Shape
from visualprof.capture.topics import Topics

_TORCH: Any = importlib.import_module("torch")
_PROFILER: Any = importlib.import_module("torch.profiler")


class Recorder(Shape):
    """Profiler without a schedule; steps get the annotations that torch writes with a schedule.

    With a schedule, torch opens a last step that never ends, and `step()` of an inactive profiler costs 10 us.
    """

    kind = "pt.trace.json"
    can = Topics.OPERATOR | Topics.TENSOR_LIFETIME | Topics.SYNC | Topics.SCOPE | Topics.MEMORY
    can_stack = True
    most_steps = 0

    def __init__(self, options: Options) -> None:
        self._cuda = bool(_TORCH.cuda.is_available())
        activities = [_PROFILER.ProfilerActivity.CPU] + [_PROFILER.ProfilerActivity.CUDA] * self._cuda
        # Without this option, existing threads are not recorded. With it, torch 2.13 records no memory.
        config: dict[str, Any] = {} if options.with_memory else {"profile_all_threads": True}
        if self._cuda and options.topics & Topics.SYNC:
            config["enable_cuda_sync_events"] = True
        self.profiler: Any = _PROFILER.profile(
            activities=activities,
            record_shapes=options.shapes,
            profile_memory=options.with_memory,
            with_stack=options.stacks,
            experimental_config=_config(config),
        )
        self._mark: Any = None
        self._name = ""

    @property
    def forkable(self) -> bool:
        """Whether there is no CUDA context."""
        return not (self._cuda and _TORCH.cuda.is_initialized())

    def start(self) -> None:
        """Start recording."""
        self.profiler.start()

    def mark(self, step: int) -> None:
        """Open torch's own step annotation."""
        self._end()
        self._name = f"ProfilerStep#{step}"
        self._mark = _TORCH.profiler.record_function(self._name)
        self._mark.__enter__()

    def stop(self, whole: bool) -> tuple[bytes, bytes] | None:
        """End the recording; a step that was only started is renamed in the file, as torch cannot remove it."""
        self._end()
        self.profiler.stop()
        return None if whole or not self._name else (f'"{self._name}"'.encode(), _other(self._name))

    def facts(self) -> dict[str, Any]:
        """Return the version and the position among the ranks."""
        facts: dict[str, Any] = {"framework": "pytorch", "version": str(_TORCH.__version__)}
        ranks: Any = _TORCH.distributed
        if ranks.is_available() and ranks.is_initialized():
            facts |= {"rank": ranks.get_rank(), "world_size": ranks.get_world_size()}
        return facts

    def dump(self, path: Path) -> None:
        """Write Kineto's JSON."""
        self.profiler.export_chrome_trace(str(path))

    def _end(self) -> None:
        if self._mark is not None:
            self._mark.__exit__(None, None, None)
            self._mark = None


def _config(wanted: dict[str, Any]) -> Any:
    """Return the experimental options that this version of torch has."""
    config_type: Any = _TORCH._C._profiler._ExperimentalConfig  # noqa: SLF001
    option_names = str(config_type.__init__.__doc__)
    return config_type(**{key: value for key, value in wanted.items() if key in option_names})


def _other(name: str) -> bytes:
    return f'"{name.replace("ProfilerStep#", "AfterTheStep ")}"'.encode()
