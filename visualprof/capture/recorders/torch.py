"""PyTorch: Kineto by `torch.profiler`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
import torch.profiler  # pyright: ignore[reportMissingImports]

from visualprof.capture.options import Options
from visualprof.capture.recorders import Recorder as Shape
from visualprof.capture.topics import Topics

_TORCH: Any = torch
_PROFILER: Any = _TORCH.profiler


class Recorder(Shape):
    """One profiler without a schedule; the steps are marked as torch marks them with one.

    With a schedule torch opens a step that nobody ends, and `step()` of one that is not its turn costs 10 us.
    """

    kind = "pt.trace.json"
    can = Topics.OPERATOR | Topics.TENSOR_LIFETIME | Topics.SYNC | Topics.SCOPE | Topics.MEMORY
    can_stack = True
    most_steps = 0

    def __init__(self, options: Options) -> None:
        self._cuda = bool(_TORCH.cuda.is_available())
        activities = [_PROFILER.ProfilerActivity.CPU] + [_PROFILER.ProfilerActivity.CUDA] * self._cuda
        # Else threads that live already are left out. With it torch 2.13 records no memory.
        config: dict[str, Any] = {} if options.with_memory else {"profile_all_threads": True}
        if self._cuda and options.topics & Topics.SYNC:
            config["enable_cuda_sync_events"] = True
        self._profiler: Any = _PROFILER.profile(
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
        """Not beside a CUDA context."""
        return not (self._cuda and _TORCH.cuda.is_initialized())

    def start(self) -> None:
        """Begin to record."""
        self._profiler.start()

    def mark(self, step: int) -> None:
        """Opens torch's own mark of a step."""
        self._end()
        self._name = f"ProfilerStep#{step}"
        self._mark = _TORCH.profiler.record_function(self._name)
        self._mark.__enter__()

    def stop(self, whole: bool) -> tuple[bytes, bytes] | None:
        """Ends; a step that was only begun is renamed in the file, as torch cannot take it back."""
        self._end()
        self._profiler.stop()
        return None if whole or not self._name else (f'"{self._name}"'.encode(), _other(self._name))

    def facts(self) -> dict[str, Any]:
        """Version, and the place among the ranks."""
        facts: dict[str, Any] = {"framework": "pytorch", "version": str(_TORCH.__version__)}
        ranks: Any = _TORCH.distributed
        if ranks.is_available() and ranks.is_initialized():
            facts |= {"rank": ranks.get_rank(), "world_size": ranks.get_world_size()}
        return facts

    def dump(self, path: Path) -> None:
        """Writes Kineto's JSON."""
        self._profiler.export_chrome_trace(str(path))

    def _end(self) -> None:
        if self._mark is not None:
            self._mark.__exit__(None, None, None)
            self._mark = None


def _config(wanted: dict[str, Any]) -> Any:
    """The experimental options that this torch has."""
    made: Any = _TORCH._C._profiler._ExperimentalConfig  # noqa: SLF001
    known = str(made.__init__.__doc__)
    return made(**{key: value for key, value in wanted.items() if key in known})


def _other(name: str) -> bytes:
    return f'"{name.replace("ProfilerStep#", "AfterTheStep ")}"'.encode()
