"""The part of `LogWriter` that owns the file and logs scalars."""

from __future__ import annotations

import functools
import itertools
import os
import socket
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from visualprof.capture.files import warn, worker_of
from visualprof.capture.log import messages
from visualprof.capture.log.arrays import as_number
from visualprof.capture.log.stream import EventStream, Sample, Scalar
from visualprof.capture.options import CaptureError

_MAX_SECONDS = 1e11  # larger times are milliseconds
_count = itertools.count()
W = TypeVar("W", bound="FileWriter")


class FileWriter:
    """Base class of `LogWriter`, with the file and the methods for scalars."""

    def __init__(
        self,
        logdir: str | os.PathLike[str] | None = None,
        comment: str = "",
        *,
        log_dir: str | os.PathLike[str] | None = None,
        purge_step: int | None = None,
        filename_suffix: str = "",
        file_name: str = "",
        write_to_disk: bool = True,
        max_queue: int = 10,
        flush_secs: float = 120,
        display_name: str = "",
    ) -> None:
        del max_queue, flush_secs, display_name
        folder = logdir or log_dir or _default_folder(comment)
        self._folder = Path(folder)
        self._stream: EventStream | None = None
        if not write_to_disk:
            return
        try:
            name = functools.partial(_file_path, self._folder, filename_suffix, file_name)
            self._stream = EventStream(name, purge_step)
        except OSError as error:
            problem = f"LogWriter cannot write into {self._folder}: {error.strerror}"
            raise CaptureError(problem, "give another logdir") from error
        weakref.finalize(self, self._stream.close)

    @property
    def logdir(self) -> str:
        """Folder of the run."""
        return str(self._folder)

    log_dir = logdir

    @property
    def file_name(self) -> str:
        """Path of the file, "" if nothing is written."""
        return str(self._stream.path) if self._stream else ""

    def get_logdir(self) -> str:
        """Return the folder of the run."""
        return self.logdir

    def add_scalar(
        self,
        tag: str,
        value: Any = None,
        step: int | None = None,
        walltime: float | None = None,
        *,
        scalar_value: Any = None,
        global_step: int | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Log a number, with 64 bits if `double_precision`."""
        del new_style
        if self._stream is None:
            return
        try:
            number = value if type(value) is float else as_number(scalar_value if value is None else value)
            step = global_step if step is None else step
            wall_s = time.time() if walltime is None else to_seconds(walltime)
            if double_precision:
                self._add(lambda: [messages.double_scalar(tag, number)], step, wall_s)
            else:
                self._stream.put(Scalar(tag, number, None if step is None else int(step), wall_s))
        except Exception as error:  # noqa: BLE001 - logging must not end a training
            warn(f"add_scalar logged nothing: {error}")

    def add_scalars(
        self,
        main_tag: str,
        tag_value: Mapping[str, Any] | None = None,
        step: int | None = None,
        walltime: float | None = None,
        *,
        tag_scalar_dict: Mapping[str, Any] | None = None,
        global_step: int | None = None,
    ) -> None:
        """Log numbers as `main_tag/name`."""
        for name, value in (tag_value or tag_scalar_dict or {}).items():
            self.add_scalar(f"{main_tag}/{name}", value, step, walltime, global_step=global_step)

    def flush(self) -> None:
        """Write all values now."""
        if self._stream:
            self._stream.flush()

    def close(self) -> None:
        """Write all values and close the file."""
        if self._stream:
            self._stream.close()

    def __enter__(self: W) -> W:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add(self, encode: Callable[[], Iterable[bytes]], step: int | None, walltime: float | None) -> None:
        """Add values that are encoded in the background."""
        if self._stream:
            wall_s = time.time() if walltime is None else to_seconds(walltime)
            self._stream.put(Sample(encode, int(step or 0), wall_s))


def to_seconds(walltime: float) -> float:
    """Return a time in seconds; VisualDL passes milliseconds."""
    return walltime / 1000 if walltime > _MAX_SECONDS else float(walltime)


def _default_folder(comment: str) -> Path:
    name = f"{time.strftime('%b%d_%H-%M-%S')}_{socket.gethostname()}{comment}"
    return Path("runs") / name


def _file_path(folder: Path, suffix: str, name: str) -> Path:
    if name:
        return folder / (name if "tfevents" in name else f"events.out.tfevents.{name}")
    worker = worker_of({})
    rank = f".rank{worker.rank}" if worker.rank >= 0 else ""
    stem = f"events.out.tfevents.{int(time.time()):010d}.{worker.host}.{worker.pid}.{next(_count)}"
    return folder / f"{stem}{rank}{suffix}"
