"""Cache of parsed traces and model graphs on disk. Traces are memory-mapped, so reopening a file takes milliseconds.

A file is written under a temporary name and renamed, so readers never see a partial file. A file whose checksum does
not match counts as missing. The file name is the cache key: the content's fingerprint, the schema version and a digest
of the reader's source code. A changed reader therefore never loads columns of an older one.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable
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
_COLUMNS_SUFFIX = ".vpdata"
INDEX_SUFFIX = ".vpknown"
_MODEL_READER_FOLDERS = (".", "models", "megengine")
_DEFAULT_MAX_BYTES = 10 * 1024**3
_STALE_TEMPORARY_S = 3600


@dataclass
class Cache:
    """A folder of parsed traces.

    Args:
        folder: Created on demand; any number of processes can share it.
        max_bytes: Size limit; the least recently used traces are deleted beyond it.
    """

    folder: Path
    max_bytes: int = _DEFAULT_MAX_BYTES
    # Bytes stored since the folder size was last measured, which takes 12 ms with 5,000 files. The initial value forces
    # a measurement.
    _unmeasured: int = field(default=2**62, compare=False, repr=False)

    @staticmethod
    def default() -> Cache:
        """Return the user's cache.

        `VISUALPROF_CACHE_DIR` and `VISUALPROF_CACHE_MAX_BYTES` override the location and the size limit. The default
        location follows the conventions of the operating system.
        """
        folder = os.environ.get("VISUALPROF_CACHE_DIR") or _user_cache_folder()
        try:
            limit = int(os.environ.get("VISUALPROF_CACHE_MAX_BYTES") or _DEFAULT_MAX_BYTES)
        except ValueError:
            limit = _DEFAULT_MAX_BYTES
        return Cache(Path(folder), limit)

    def is_writable(self) -> bool:
        """Return whether traces can be stored.

        A file is written to find out, because access bits do not reveal quotas and read-only mounts.
        """
        import tempfile

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as probe:
                probe.write(b"x")
        except OSError:
            return False
        return True

    def path(self, fingerprint: str) -> Path:
        """Return the path of the cached trace, whether it exists or not."""
        key = blake2b(f"{fingerprint}:{SCHEMA_VERSION}:{reader_version()}".encode(), digest_size=16)
        return self.folder / f"{key.hexdigest()}{_SUFFIX}"

    def load(self, fingerprint: str) -> Trace | None:
        """Return the trace with memory-mapped, read-only columns, or `None` if it is missing or damaged."""
        path = self.path(fingerprint)
        try:
            with path.open("rb", buffering=0) as file:
                trace = decode(file, fingerprint)
        except (OSError, DamagedFile):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the modification time records the last use
        return trace

    def store(self, trace: Trace, fingerprint: str) -> bool:
        """Store the trace. Return `False` and log one warning if the folder cannot be written."""
        return self._write(self.path(fingerprint), lambda file: encode(trace, fingerprint, file))

    def graph_path(self, fingerprint: str) -> Path:
        """Return the path of the cached model graph, whether it exists or not."""
        key = blake2b(f"{fingerprint}:{reader_version(_MODEL_READER_FOLDERS)}".encode(), digest_size=16)
        return self.folder / f"{key.hexdigest()}{_GRAPH_SUFFIX}"

    def load_graph(self, fingerprint: str) -> ModelGraph | None:
        """Return the graph of a model, or `None` if it is missing or damaged."""
        from visualprof.reader import graph_file

        path = self.graph_path(fingerprint)
        try:
            graph = graph_file.decode(path.read_bytes())
            os.utime(path)
        except (OSError, ValueError):
            return None
        return graph

    def store_graph(self, graph: ModelGraph, fingerprint: str) -> bool:
        """Store the graph of a model, like `store`.

        Raises:
            ModelTooLarge: The graph is larger than can be shown.
        """
        from visualprof.reader import graph_file

        data = graph_file.encode(graph)
        return self._write(self.graph_path(fingerprint), lambda file: file.write(data))

    def load_bytes(self, key: str) -> bytes | None:
        """Return the bytes stored under a key, or `None` if they are missing or damaged."""
        path = self.folder / f"{key}{_BYTES_SUFFIX}"
        with contextlib.suppress(OSError):
            data = path.read_bytes()
            os.utime(path)
            return data[4:] if zlib.crc32(data[4:]).to_bytes(4, "little") == data[:4] else None

    def store_bytes(self, key: str, data: bytes) -> bool:
        """Store bytes under a key, like `store`."""
        path = self.folder / f"{key}{_BYTES_SUFFIX}"
        return self._write(path, lambda file: file.write(zlib.crc32(data).to_bytes(4, "little") + data))

    def columns_path(self, key: str) -> Path:
        """Return the path of stored columns, whether it exists or not."""
        return self.folder / f"{key}{_COLUMNS_SUFFIX}"

    def store_columns(self, path: Path, parts: Iterable[bytes | memoryview]) -> bool:
        """Store the parts of a file, like `store`."""
        return self._write(path, lambda file: sum(_write_fully(file, part) for part in parts))

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
        """Delete temporary files of crashed writers, and the least recently used files but not `newest`."""
        entries: list[tuple[float, int, Path]] = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.folder):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if entry.name.endswith((_SUFFIX, _GRAPH_SUFFIX, _BYTES_SUFFIX, _COLUMNS_SUFFIX, INDEX_SUFFIX)):
                        entries.append((status.st_mtime, status.st_size, Path(entry.path)))
                    elif entry.name.endswith(".tmp") and time.time() - status.st_mtime > _STALE_TEMPORARY_S:
                        Path(entry.path).unlink()
        excess = sum(size for _, size, _ in entries) - self.max_bytes
        for _, size, path in sorted(entries):
            if excess <= 0:
                return
            if path != newest:
                with contextlib.suppress(OSError):  # another process deleted it first, or has it mapped (Windows)
                    path.unlink()
                    excess -= size


def _write_fully(file: FileIO, data: bytes | memoryview) -> int:
    """Write all bytes, and return their number. One call of the system may write fewer."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
    return len(data)


def _user_cache_folder() -> str:
    """Return the user's cache folder, as `platformdirs` does, whose import takes as long as opening a trace."""
    if sys.platform == "linux":
        return os.path.join(
            os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.expanduser("~/.cache"), "visualprof"
        )
    from platformdirs import user_cache_dir

    return user_cache_dir("visualprof", appauthor=False)


def open_trace(
    path: str | Path, progress: Progress | None = None, cache: Cache | None = None, *, wait: bool = True
) -> Trace:
    """Return the trace of a file, joined with its CUDA-graph captures, from the cache or by reading the file.

    Args:
        path: The file.
        progress: Called with a fraction from 0 to 1 while the file is read.
        cache: The cache to use (default: the user's cache).
        wait: Return after the trace is stored. Otherwise a thread stores it in the background.

    Raises:
        VisualprofError: As for `visualprof.reader.read_trace`.
    """
    cache = cache or Cache.default()
    fingerprint = fingerprint_of(path)
    trace = cache.load(fingerprint)
    if trace is not None:
        return trace
    trace = read_joined(path, progress, cache)
    if fingerprint_of(path) == fingerprint:  # else the file changed while it was read, and the columns match no content
        if wait:
            cache.store(trace, fingerprint)
        else:
            threading.Thread(target=cache.store, args=(trace, fingerprint), name="cache").start()
    return trace
