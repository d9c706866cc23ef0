"""The history of a caching allocator as a memory snapshot: at the end of a recording, and when memory runs out."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from visualprof.capture.files import warn

MAX_ENTRIES = 1_000_000  # about 200 MB of file; older entries are dropped
PICKLE_PROTOCOL = 4  # viewers of other tools refuse protocol 5
SUFFIX = ".memory_snapshot.pickle"
# Stacks of C++ take a hundred times as long as those of Python.
HISTORY_OPTIONS: dict[str, Any] = {"context": "all", "stacks": "python", "max_entries": MAX_ENTRIES}


class MemoryHistory:
    """History of the allocator of one process.

    Args:
        folder: Folder of the files.
        worker: Name of the process, with which the names of the files begin.
        torch: The module; replaced in tests.

    Attributes:
        files: The snapshots that were written.
    """

    def __init__(self, folder: Path, worker: str, torch: Any = None) -> None:
        self.files: list[Path] = []
        self._torch: Any = torch
        self._folder, self._worker = folder, worker
        self._memory: Any = None
        self._is_started = self._is_recording = self._is_failure_written = False

    def start(self) -> bool:
        """Start the history once, and return whether this is possible. Without a GPU, a warning says why not."""
        if self._is_started:
            return self._is_recording
        self._is_started = True
        self._torch = self._torch or importlib.import_module("torch")
        self._memory = _allocator(self._torch)
        if self._memory is None:
            warn(
                "memory snapshots need a GPU, and this PyTorch finds none (torch.cuda.is_available() is False): "
                "no snapshot is written"
            )
            return False
        self._memory._record_memory_history(enabled="all", **HISTORY_OPTIONS)  # noqa: SLF001 - the only interface
        self._is_recording = True
        attach: Callable[..., None] | None = getattr(
            self._torch._C,  # noqa: SLF001
            "_cuda_attach_out_of_memory_observer",
            None,
        )
        if attach is not None:
            attach(self._write_failure)
        return True

    def stop(self) -> Path | None:
        """Write the snapshot, end the history, and return the file; `None` if nothing was written."""
        if not self._is_recording:
            return None
        self._is_recording = False
        path = self._write(SUFFIX)
        self._memory._record_memory_history(enabled=None)  # noqa: SLF001
        return path

    def _write_failure(self, *numbers: int) -> None:
        """Write a snapshot when memory runs out, before the error releases tensors. Only the first one is written."""
        del numbers
        if self._is_recording and not self._is_failure_written:
            self._is_failure_written = True
            self._write(f".oom{SUFFIX}")

    def _write(self, suffix: str) -> Path | None:
        path = self._folder / f"{self._worker}{suffix}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.part")
            with part.open("wb") as file:
                pickle.dump(self._memory._snapshot(), file, protocol=PICKLE_PROTOCOL)  # noqa: SLF001
            part.replace(path)
        except (OSError, RuntimeError, MemoryError) as error:  # the program continues without the file
            warn(f"{path.name} was not written: {error}")
            return None
        self.files.append(path)
        return path


def _allocator(torch: Any) -> Any:
    """Return the memory module of the device that the process uses, `None` without one."""
    for name in ("cuda", "npu", "xpu"):
        device: Any = getattr(torch, name, None)
        if device is not None and device.is_available() and hasattr(device.memory, "_record_memory_history"):
            return device.memory
    return None
