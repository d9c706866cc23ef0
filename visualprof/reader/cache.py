"""Parsed traces on disk, memory-mapped: the second opening of a file costs milliseconds. Graphs of models too.

A file is written under a temporary name and renamed, so no reader ever sees half of it; one that does not
validate, its checksum included, counts as absent. Its name is the key: the content's fingerprint, the schema version
and a digest of the reader's own source, so that a changed reader never meets old columns.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from visualprof.reader.digest import blake2b
from visualprof.reader.graph_capture.files import recording_fingerprint as fingerprint_of
from visualprof.reader.graph_capture.read import read_joined
from visualprof.reader.source import Progress
from visualprof.reader.trace import SCHEMA_VERSION, Trace
from visualprof.reader.trace.codec import DamagedFile, decode, encode, reader_version

if TYPE_CHECKING:
    from visualprof.reader.graph import ModelGraph

_SUFFIX = ".vptrace"
_GRAPH_SUFFIX = ".vpgraph"
_BYTES_SUFFIX = ".vpanswer"
INDEX_SUFFIX = ".vpknown"
_MODEL_READER_FOLDERS = (".", "models", "megengine")
_DEFAULT_MAX_BYTES = 10 * 1024**3
_STALE_TEMPORARY_S = 3600


@dataclass
class Cache:
    """A folder of parsed traces.

    Args:
        folder: created when needed; shared by any number of processes.
        max_bytes: the least recently used traces beyond it are deleted.
    """

    folder: Path
    max_bytes: int = _DEFAULT_MAX_BYTES
    # Bytes stored since the folder was last measured, which takes 12 ms with 5,000 files; the first time it is due.
    _unmeasured: int = field(default=2**62, compare=False, repr=False)

    @staticmethod
    def default() -> Cache:
        """The user's cache: `VISUALPROF_CACHE_DIR` and `VISUALPROF_CACHE_MAX_BYTES`, or the system's habits."""
        folder = os.environ.get("VISUALPROF_CACHE_DIR") or _user_cache_folder()
        try:
            limit = int(os.environ.get("VISUALPROF_CACHE_MAX_BYTES") or _DEFAULT_MAX_BYTES)
        except ValueError:
            limit = _DEFAULT_MAX_BYTES
        return Cache(Path(folder), limit)

    def is_writable(self) -> bool:
        """Can traces be kept here? Tries it, because access bits do not tell of quotas and read-only mounts."""
        import tempfile

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as probe:
                probe.write(b"x")
        except OSError:
            return False
        return True

    def path(self, fingerprint: str) -> Path:
        """The file that holds, or would hold, the trace."""
        key = blake2b(f"{fingerprint}:{SCHEMA_VERSION}:{reader_version()}".encode(), digest_size=16)
        return self.folder / f"{key.hexdigest()}{_SUFFIX}"

    def load(self, fingerprint: str) -> Trace | None:
        """The trace, its columns memory-mapped and read-only; None when it is not here or not whole."""
        path = self.path(fingerprint)
        try:
            with path.open("rb", buffering=0) as file:
                trace = decode(file, fingerprint)
        except (OSError, DamagedFile):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # its time of change is its time of use
        return trace

    def store(self, trace: Trace, fingerprint: str) -> bool:
        """Keep the trace. False, with one line in the log, when the folder cannot be written."""
        return self._write(self.path(fingerprint), lambda file: encode(trace, fingerprint, file))

    def graph_path(self, fingerprint: str) -> Path:
        """The file that holds, or would hold, the graph of a model."""
        key = blake2b(f"{fingerprint}:{reader_version(_MODEL_READER_FOLDERS)}".encode(), digest_size=16)
        return self.folder / f"{key.hexdigest()}{_GRAPH_SUFFIX}"

    def load_graph(self, fingerprint: str) -> ModelGraph | None:
        """The graph of a model; None when it is not here or not whole."""
        from visualprof.reader import graph_file

        path = self.graph_path(fingerprint)
        try:
            graph = graph_file.decode(path.read_bytes())
            os.utime(path)
        except (OSError, ValueError):
            return None
        return graph

    def store_graph(self, graph: ModelGraph, fingerprint: str) -> bool:
        """Keep the graph of a model, like `store`.

        Raises: ModelTooLarge: it is larger than can be shown.
        """
        from visualprof.reader import graph_file

        data = graph_file.encode(graph)
        return self._write(self.graph_path(fingerprint), lambda file: file.write(data))

    def load_bytes(self, key: str) -> bytes | None:
        """What was kept under a key; None when it is not here or not whole."""
        path = self.folder / f"{key}{_BYTES_SUFFIX}"
        with contextlib.suppress(OSError):
            data = path.read_bytes()
            os.utime(path)
            return data[4:] if zlib.crc32(data[4:]).to_bytes(4, "little") == data[:4] else None

    def store_bytes(self, key: str, data: bytes) -> bool:
        """Keeps bytes under a key, like `store`."""
        path = self.folder / f"{key}{_BYTES_SUFFIX}"
        return self._write(path, lambda file: file.write(zlib.crc32(data).to_bytes(4, "little") + data))

    def _write(self, path: Path, write: Callable[[FileIO], int]) -> bool:
        temporary = path.with_name(f".{path.stem}.{os.getpid()}.{time.monotonic_ns()}.tmp")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("x+b", buffering=0) as file:
                    written = write(file)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            import logging

            logging.getLogger(__name__).warning("cannot keep parsed files in %s: %s", self.folder, error.strerror)
            return False
        self._unmeasured += written
        if self._unmeasured > self.max_bytes // 100:
            self._unmeasured = 0
            self._evict(path)
        return True

    def _evict(self, newest: Path) -> None:
        """Delete the least recently used beyond the cap, never `newest`, and what crashed writers left."""
        entries: list[tuple[float, int, Path]] = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.folder):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if entry.name.endswith((_SUFFIX, _GRAPH_SUFFIX, _BYTES_SUFFIX, INDEX_SUFFIX)):
                        entries.append((status.st_mtime, status.st_size, Path(entry.path)))
                    elif entry.name.endswith(".tmp") and time.time() - status.st_mtime > _STALE_TEMPORARY_S:
                        Path(entry.path).unlink()
        excess = sum(size for _, size, _ in entries) - self.max_bytes
        for _, size, path in sorted(entries):
            if excess <= 0:
                return
            if path != newest:
                with contextlib.suppress(OSError):  # another process was faster, or has it mapped (Windows)
                    path.unlink()
                    excess -= size


def _user_cache_folder() -> str:
    """Where the system keeps a user's caches. As `platformdirs` says, whose import takes as long as opening a trace."""
    if sys.platform == "linux":
        return os.path.join(
            os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.expanduser("~/.cache"), "visualprof"
        )
    from platformdirs import user_cache_dir

    return user_cache_dir("visualprof", appauthor=False)


def open_trace(
    path: str | Path, progress: Progress | None = None, cache: Cache | None = None, *, wait: bool = True
) -> Trace:
    """The trace of a file, joined with the captures beside it: from the cache, or read and then kept there.

    Args:
        path: the file.
        progress: called with 0..1 while the file is read.
        cache: by default the user's.
        wait: return when the trace is kept; otherwise it is written meanwhile, at the latest when the program ends.

    Raises: like `visualprof.reader.read_trace`.
    """
    cache = cache or Cache.default()
    fingerprint = fingerprint_of(path)
    trace = cache.load(fingerprint)
    if trace is not None:
        return trace
    trace = read_joined(path, progress, cache)
    if fingerprint_of(path) == fingerprint:  # else it changed while being read: its columns belong to no content
        if wait:
            cache.store(trace, fingerprint)
        else:
            threading.Thread(target=cache.store, args=(trace, fingerprint), name="cache").start()
    return trace
