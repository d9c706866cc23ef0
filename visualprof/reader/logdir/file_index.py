"""What was found out of files before, on disk beside the traces: a server that starts again reads none of them twice.

A file of lines for each choice of log directories; a line is added with each file that was looked into, the last one
of a file counts. It knows a file by path, size, time of change and inode, as a server does from one look to the next.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from visualprof.reader.cache import INDEX_SUFFIX
from visualprof.reader.digest import blake2b
from visualprof.reader.logdir.scan import LogFile, Verdict, Version
from visualprof.reader.logdir.summary import Failure, Outcome, Summary
from visualprof.reader.trace.codec import reader_version

_log = logging.getLogger(__name__)

# What says which views there are for a file, or what it is.
_SAYS = (".", "trace", "chrome", "megengine", "formats", "native", "captured", "models", "logdir", "../views/**")
_SUPERFLUOUS = 1000  # lines of files that are gone or came again
_UNUSED_S = 60 * 86400


class _Found(msgspec.Struct, array_like=True, frozen=True):
    """What a file was at one time. summary, failure: of a parse; neither when its head said enough."""

    path: str
    version: Version
    verdict: Verdict
    summary: Summary | None = None
    failure: Failure | None = None


_LINE = msgspec.json.Decoder(_Found)


class Known:
    """The findings of earlier servers, and a place for new ones.

    Args:
        folder: of the cache.
        roots: the log directories.
    """

    def __init__(self, folder: Path, roots: Sequence[str]) -> None:
        key = blake2b("\n".join((reader_version(_SAYS), *roots)).encode("utf-8", "replace"), digest_size=16)
        self._path = folder / f"{key.hexdigest()}{INDEX_SUFFIX}"
        self._earlier = self._load()
        self._used: list[_Found] | None = []
        self._failed = False
        self._lock = threading.Lock()

    def take(self, file: LogFile) -> tuple[Verdict | None, Outcome | None]:
        """What an earlier server found of this very version of a file, if it did; until `forget`."""
        found = self._earlier.pop(file.path, None)
        if found is None or found.version != file.version:
            return None, None
        with self._lock:
            if self._used is not None:
                self._used.append(found)
        return found.verdict, found.summary or found.failure

    def keep(self, file: LogFile, verdict: Verdict, outcome: Outcome | None = None) -> None:
        """Add a finding: what a file is, or, of a profile, what came of a parse, if that was up to the file.

        One of a name that is not UTF-8, or that cannot be written, is made again next time.
        """
        summary, failure = (outcome, None) if isinstance(outcome, Summary) else (None, outcome)
        if (failure and failure.status >= 500) or (outcome is None and verdict.kind in ("profile", "growing")):
            return
        found = _Found(file.path, file.version, verdict, summary, failure)
        with self._lock, contextlib.suppress(UnicodeEncodeError):
            if self._used is not None:
                self._used.append(found)
            self._write(self._path, os.O_APPEND, [found])

    def forget(self) -> None:
        """After the first look at every file: frees what is left, and leaves it out of the file when it is much."""
        with self._lock:
            if self._used is None:
                return
            if self._lines > 2 * len(self._used) + _SUPERFLUOUS:
                other = self._path.with_suffix(f".{os.getpid()}.tmp")
                if self._write(other, os.O_TRUNC, self._used):
                    with contextlib.suppress(OSError):  # the folder is gone: nothing is kept in it
                        other.replace(self._path)
            for path in self._path.parent.glob(f"*{INDEX_SUFFIX}"):  # of log directories that nobody opens any more
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > _UNUSED_S:
                        path.unlink()
            self._earlier, self._used = {}, None

    def _write(self, path: Path, how: int, findings: Sequence[_Found]) -> bool:
        """In one call, as two servers may add lines."""
        data = b"".join(msgspec.json.encode(found) + b"\n" for found in findings)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600)
            try:
                os.write(file, data)
            finally:
                os.close(file)
        except OSError as error:
            if not self._failed:
                _log.warning("cannot keep what is known of files in %s: %s", path.parent, error.strerror)
            self._failed = True
            return False
        return True

    def _load(self) -> dict[str, _Found]:
        self._lines = 0
        earlier: dict[str, _Found] = {}
        with contextlib.suppress(OSError):
            lines = self._path.read_bytes().splitlines()
            os.utime(self._path)  # its time of change is its time of use
            self._lines = len(lines)
            for line in lines:
                with contextlib.suppress(msgspec.MsgspecError, UnicodeError):  # cut by a crash
                    found = _LINE.decode(line)
                    earlier[found.path] = found
        return earlier
