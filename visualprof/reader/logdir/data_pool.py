"""Read files of run data for the server: large ones in child processes, which store the values in the cache."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from visualprof.errors import SourceError
from visualprof.reader.cache import Cache
from visualprof.reader.child import Failure
from visualprof.reader.digest import blake2b
from visualprof.reader.logdir.pool import Pool
from visualprof.reader.run_data.event_file import EventFile
from visualprof.reader.run_data.growth import FileState, Growth, encode_growth, load_growth
from visualprof.reader.source import Progress
from visualprof.reader.trace.codec import reader_version

MAX_LOCAL_BYTES = 1 << 20  # reading this much takes 5 ms; more is read by a child
_SOURCES = (".", "run_data", "native")


class _Request(NamedTuple):
    """A file that a child continues to read after a state."""

    path: str
    state: FileState


class PoolReader:
    """Reads large files in child processes, and finds the values of earlier processes in the cache.

    Args:
        cache: The cache.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._pool: Pool[Growth | str] = Pool(partial(read_growth, cache=cache))
        self._pool.start(self)
        self._condition = threading.Condition()
        self._running: set[str] = set()
        self._outcomes: dict[str, Growth | str | Failure] = {}
        self._failures: dict[str, tuple[int, Failure]] = {}  # with the size of the file

    def on_progress(self, key: str, progress: float) -> None:
        """Ignore the progress."""

    def on_finished(self, key: str, outcome: Growth | str | Failure) -> None:
        """Store the outcome of a job until its file is updated."""
        with self._condition:
            self._running.discard(key)
            self._outcomes[key] = outcome
            self._condition.notify_all()

    def update(self, file: EventFile, end_s: float) -> bool:
        """Read the appended records; a child reads more than `MAX_LOCAL_BYTES`."""
        with self._condition:
            if file.path in self._running:
                return False
            outcome = self._outcomes.pop(file.path, None)
        if isinstance(outcome, Growth):
            file.absorb(outcome)
        try:
            self._load(file)
            if file.is_unchanged():
                return True
            size = os.stat(file.path).st_size
        except OSError:  # `update` reports it
            size = 0
        if isinstance(outcome, Failure):
            self._failures[file.path] = size, outcome
        failed_size, failure = self._failures.get(file.path, (-1, None))
        if failure and failed_size == size:
            raise SourceError(failure.error, failure.hint)
        missing_bytes = size - file.offset
        if missing_bytes <= MAX_LOCAL_BYTES or file.problem:
            return file.update(lambda: time.monotonic() > end_s)
        with self._condition:
            self._running.add(file.path)
        self._pool.submit(file.path, file.path, missing_bytes, (0,), request=_Request(file.path, file.state()))
        return False

    def wait(self, files: Sequence[EventFile], end_s: float) -> bool:
        """Wait until a child has read any of the files, and return whether this happened before that time."""
        with self._condition:
            return self._condition.wait_for(
                lambda: any(file.path in self._outcomes for file in files), max(end_s - time.monotonic(), 0)
            )

    def close(self) -> None:
        """Stop all children."""
        self._pool.close()

    def _load(self, file: EventFile) -> None:
        """Absorb the values after the state of the file that the cache has."""
        while growth := load_growth(growth_path(self._cache, file.path, file.offset)):
            if not file.can_absorb(growth):
                return
            file.absorb(growth)


def growth_path(cache: Cache, path: str, offset: int) -> Path:
    """Return the path in the cache of the values that follow an offset of a file.

    Raises:
        OSError: The file cannot be examined.
    """
    identity = repr((path, os.stat(path).st_ino, offset, reader_version(_SOURCES)))
    return cache.columns_path(blake2b(identity.encode("utf-8", "replace"), digest_size=16).hexdigest())


def read_growth(request: _Request, progress: Progress, *, cache: Cache) -> Growth | str:
    """Read the appended records of a file, in a child process.

    Args:
        request: The file and its state.
        progress: Receives the progress.
        cache: The cache.

    Returns:
        The path of the values in the cache, or the values if they cannot be stored.
    """
    file = EventFile(request.path)
    file.resume(request.state)
    target = growth_path(cache, request.path, request.state.offset)
    file.update()
    progress(1.0)
    growth = file.growth()
    return str(target) if cache.store_columns(target, encode_growth(growth)) else growth
