"""Findings about files, stored next to the cached traces, so that a restarted server reads no file twice.

There is one file of JSON lines per set of log directories. A line is added for each examined file; the last line of a
file counts. A file is identified by path, size, modification time and inode, as between two scans of a server.
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

# Folders whose code decides what a file is, and which views it has.
_VERSIONED_FOLDERS = (
    ".",
    "trace",
    "chrome",
    "megengine",
    "formats",
    "native",
    "graph_capture",
    "models",
    "logdir",
    "../views/**",
)
_MAX_STALE_LINES = 1000  # lines of deleted or changed files
_UNUSED_INDEX_S = 60 * 86400


class _Finding(msgspec.Struct, array_like=True, frozen=True):
    """The finding about a file at one time.

    Attributes:
        path: Path of the file.
        version: Version of the file.
        verdict: Kind of the file.
        summary: Result of a parse.
        failure: Failure of a parse. Both are `None` if the head was sufficient.
    """

    path: str
    version: Version
    verdict: Verdict
    summary: Summary | None = None
    failure: Failure | None = None


_LINE_DECODER = msgspec.json.Decoder(_Finding)


class FileIndex:
    """Findings of earlier servers, and new findings.

    Args:
        folder: The cache folder.
        roots: The log directories.
    """

    def __init__(self, folder: Path, roots: Sequence[str]) -> None:
        key = blake2b(
            "\n".join((reader_version(_VERSIONED_FOLDERS), *roots)).encode("utf-8", "replace"), digest_size=16
        )
        self._path = folder / f"{key.hexdigest()}{INDEX_SUFFIX}"
        self._earlier = self._load()
        self._current: list[_Finding] | None = []
        self._failed = False
        self._lock = threading.Lock()

    def pop_finding(self, file: LogFile) -> tuple[Verdict | None, Outcome | None]:
        """Return the finding of an earlier server about this version of a file, if any; until `finish_first_scan`."""
        finding = self._earlier.pop(file.path, None)
        if finding is None or finding.version != file.version:
            return None, None
        with self._lock:
            if self._current is not None:
                self._current.append(finding)
        return finding.verdict, finding.summary or finding.failure

    def record(self, file: LogFile, verdict: Verdict, outcome: Outcome | None = None) -> None:
        """Store the kind of a file, or the outcome of a parse, if this outcome depends only on the file.

        Findings are not stored if the name is not UTF-8 or the index cannot be written. The file is then examined
        again next time.
        """
        summary, failure = (outcome, None) if isinstance(outcome, Summary) else (None, outcome)
        if (failure and failure.status >= 500) or (outcome is None and verdict.kind in ("profile", "growing")):
            return
        finding = _Finding(file.path, file.version, verdict, summary, failure)
        with self._lock, contextlib.suppress(UnicodeEncodeError):
            if self._current is not None:
                self._current.append(finding)
            self._write(self._path, os.O_APPEND, [finding])

    def finish_first_scan(self) -> None:
        """Free unused findings after the first scan, and compact the file if it has many stale lines."""
        with self._lock:
            if self._current is None:
                return
            if self._lines > 2 * len(self._current) + _MAX_STALE_LINES:
                temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
                if self._write(temporary, os.O_TRUNC, self._current):
                    with contextlib.suppress(OSError):  # the folder was deleted
                        temporary.replace(self._path)
            for path in self._path.parent.glob(f"*{INDEX_SUFFIX}"):  # of log directories that are no longer opened
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > _UNUSED_INDEX_S:
                        path.unlink()
            self._earlier, self._current = {}, None

    def _write(self, path: Path, flags: int, findings: Sequence[_Finding]) -> bool:
        """Append findings in one call, because two servers may write."""
        data = b"".join(msgspec.json.encode(finding) + b"\n" for finding in findings)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
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

    def _load(self) -> dict[str, _Finding]:
        """Return the findings in the file, by path."""
        self._lines = 0
        earlier: dict[str, _Finding] = {}
        with contextlib.suppress(OSError):
            lines = self._path.read_bytes().splitlines()
            os.utime(self._path)  # the modification time records the last use
            self._lines = len(lines)
            for line in lines:
                with contextlib.suppress(msgspec.MsgspecError, UnicodeError):  # truncated by a crash
                    finding = _LINE_DECODER.decode(line)
                    earlier[finding.path] = finding
        return earlier
