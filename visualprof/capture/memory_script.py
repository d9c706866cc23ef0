"""Memory snapshots of an unchanged script that uses PyTorch, without a profiler."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from visualprof.capture import hooks
from visualprof.capture.files import RecordingStore, run_name, worker_of
from visualprof.capture.memory_history import MemoryHistory


class MemoryScript:
    """History of the allocator from the first use of the GPU to the end of the script.

    A step ends with each step of the first optimizer, and is annotated as torch's profiler annotates it.

    Args:
        logdir: Folder of runs.
        run: Name of the run in it, "" for the run of this job.

    Raises:
        CaptureError: The folder cannot be written.
    """

    def __init__(self, logdir: str | os.PathLike[str], run: str) -> None:
        worker = worker_of({})
        folder = Path(logdir) / (run or run_name(logdir, worker))
        RecordingStore(folder, worker, 0)
        self._history = MemoryHistory(folder, worker.name)
        self._undo: list[hooks.Undo] = []
        self._torch: Any = None
        self._range: Any = None
        self._steps, self._pid = 0, os.getpid()

    def begin(self) -> None:
        """Wait for the import of PyTorch."""
        self._undo.append(hooks.when_imported(("torch",), self._imported))

    def end(self) -> list[Path]:
        """End the history, and return the snapshots of this process."""
        while self._undo:
            self._undo.pop()()
        if self._torch is None or os.getpid() != self._pid:
            return []
        self._history.start()  # only warns if there is no GPU
        self._close_range()
        self._history.stop()
        return self._history.files

    def _imported(self, name: str) -> None:
        self._torch = importlib.import_module(name)
        self._undo.append(hooks.watch(name, lambda _: self._step_ended()))
        if self._torch.backends.cuda.is_built():
            # The script may still choose its devices by CUDA_VISIBLE_DEVICES, so nothing may start CUDA here.
            self._torch.cuda._lazy_call(self._history.start)  # noqa: SLF001 - the only interface
        self._open_range()

    def _step_ended(self) -> None:
        self._history.start()
        self._close_range()
        self._open_range()

    def _open_range(self) -> None:
        self._range = self._torch.autograd.profiler.record_function(f"ProfilerStep#{self._steps}")
        self._range.__enter__()
        self._steps += 1

    def _close_range(self) -> None:
        self._range.__exit__(None, None, None)
