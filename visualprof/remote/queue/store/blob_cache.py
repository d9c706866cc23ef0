"""Local copies of blobs in a bucket. The least recently used copies are removed first."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Container, Generator, Iterable
from pathlib import Path

_IN_USE_NS = 60 * 10**9


class BlobCache:
    """A folder of local copies.

    Args:
        folder: The folder.
        max_bytes: Maximum size of all copies. Copies used within the last minute stay in any case.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder, self._max_bytes = folder, max_bytes

    @contextlib.contextmanager
    def temporary_file(self) -> Generator[Path]:
        """Yield a path in the folder; the file is deleted unless it was renamed."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._folder / f".{uuid.uuid4().hex}"
        try:
            yield part
        finally:
            part.unlink(missing_ok=True)

    def add(self, part: Path, path: Path) -> None:
        """Move a complete temporary file to its path in the folder."""
        part.chmod(0o444)  # results are hard links to it
        part.replace(path)
        self.trim()

    def trim(self, other_copies: Iterable[Path] = (), busy_paths: Container[str] = ()) -> bool:
        """Remove the least recently used copies until the rest fits the cache.

        Args:
            other_copies: Copies outside this folder.
            busy_paths: Paths of copies that are being read.

        Returns:
            Whether the cache is still too large, because all other copies are in use.
        """
        files = dict[tuple[int, int], tuple[int, int, list[Path]]]()
        for path in (*(self._folder.iterdir() if self._folder.is_dir() else ()), *other_copies):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                last_use_ns = max(status.st_atime_ns, status.st_mtime_ns)
                # The copies of a model in the cache and in a run are one file.
                files.setdefault((status.st_dev, status.st_ino), (last_use_ns, status.st_size, []))[2].append(path)
        excess = sum(size for _, size, _ in files.values()) - self._max_bytes
        for last_use_ns, size, paths in sorted(files.values()):
            if excess <= 0 or last_use_ns > time.time_ns() - _IN_USE_NS:
                break
            if not any(str(path) in busy_paths for path in paths):
                for path in paths:
                    with contextlib.suppress(PermissionError):  # Windows does not delete files that are being read
                        path.unlink(missing_ok=True)
                excess -= size
        return excess > 0


def touch_access_time(path: Path) -> None:
    """Set a file's access time to now. Its modification time stays, because results are the same file."""
    with contextlib.suppress(FileNotFoundError):
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
