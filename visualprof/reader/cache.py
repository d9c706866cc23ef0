"""Parsed traces on disk, memory-mapped: the second opening of a file costs milliseconds.

One file a trace: 8 bytes magic, header length, total length, a JSON header, then the raw columns, each
at a multiple of 64 bytes. It is written under a temporary name and renamed, so no reader ever sees half
of it; a file that does not validate counts as absent. The name is the key: the content's fingerprint,
the schema version and a digest of the reader's own source, so that a changed reader never meets old columns.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import mmap
import os
import struct
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, cast, get_type_hints, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof import __version__
from visualprof.reader import read_trace
from visualprof.reader.source import Progress, Source
from visualprof.reader.trace import SCHEMA_VERSION, ArgColumn, Meta, Trace, Track

_log = logging.getLogger(__name__)

_MAGIC = b"VPTRACE\x01"
_START = struct.Struct("<8sQQ")
_ALIGN = 64
_SUFFIX = ".vptrace"
_DEFAULT_MAX_BYTES = 10 * 1024**3
_STALE_S = 3600

_Array = NDArray[Any]


class Strings(Sequence[str]):
    """The string dictionary of a cached trace: decoded one by one when asked, all at once when iterated."""

    def __init__(self, blob: memoryview, offsets: NDArray[np.int64]) -> None:
        self._blob = blob
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(index)
        return str(self._blob[self._offsets[place] : self._offsets[place + 1]], "utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        text = str(self._blob, "utf-8", "surrogatepass")
        if len(text) != len(self._blob):  # not ASCII: bytes are not characters
            return (self[i] for i in range(len(self)))
        ends = self._offsets.tolist()
        return (text[a:b] for a, b in pairwise(ends))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (tuple, Strings)) and tuple(self) == tuple(cast("Sequence[str]", other))

    def __hash__(self) -> int:
        return hash(tuple(self))


class _Column(msgspec.Struct):
    """Where an array lies, counted from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    offset: int


class _Argument(msgspec.Struct):
    events: _Column
    values: _Column
    text: bool


class _Header(msgspec.Struct):
    schema: int
    reader: str
    fingerprint: str
    blob: _Column
    offsets: _Column
    groups: dict[str, dict[str, _Column]]
    args: dict[str, _Argument]
    tracks: list[Track]
    meta: Meta


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
        folder = os.environ.get("VISUALPROF_CACHE_DIR")
        if not folder:
            from platformdirs import user_cache_dir

            folder = user_cache_dir("visualprof", appauthor=False)
        try:
            limit = int(os.environ.get("VISUALPROF_CACHE_MAX_BYTES") or _DEFAULT_MAX_BYTES)
        except ValueError:
            limit = _DEFAULT_MAX_BYTES
        return Cache(Path(folder), limit)

    def writable(self) -> bool:
        """Can traces be kept here? Tries it, because access bits do not tell of quotas and read-only mounts."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as probe:
                probe.write(b"x")
        except OSError:
            return False
        return True

    def path(self, fingerprint: str) -> Path:
        """The file that holds, or would hold, the trace."""
        key = hashlib.blake2b(f"{fingerprint}:{SCHEMA_VERSION}:{reader_version()}".encode(), digest_size=16)
        return self.folder / f"{key.hexdigest()}{_SUFFIX}"

    def load(self, fingerprint: str) -> Trace | None:
        """The trace, its columns memory-mapped and read-only; None when it is not here or not whole."""
        path = self.path(fingerprint)
        try:
            with path.open("rb") as file:
                mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            trace = _decode(mapped, fingerprint)
        except (OSError, ValueError, TypeError, KeyError, struct.error, msgspec.MsgspecError):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # its time of change is its time of use
        return trace

    def store(self, trace: Trace, fingerprint: str) -> bool:
        """Keeps the trace. False, with one line in the log, when the folder cannot be written."""
        path = self.path(fingerprint)
        temporary = path.with_name(f".{path.stem}.{os.getpid()}.{time.monotonic_ns()}.tmp")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("xb", buffering=0) as file:
                    written = _encode(trace, fingerprint, file)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("cannot keep parsed traces in %s: %s", self.folder, error.strerror)
            return False
        self._unmeasured += written
        if self._unmeasured > self.max_bytes // 100:
            self._unmeasured = 0
            self._evict(path)
        return True

    def _evict(self, newest: Path) -> None:
        """Deletes the least recently used beyond the cap, never `newest`, and what crashed writers left."""
        used: list[tuple[float, int, Path]] = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.folder):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(_SUFFIX):
                        used.append((status.st_mtime, status.st_size, Path(entry.path)))
                    elif entry.name.endswith(".tmp") and time.time() - status.st_mtime > _STALE_S:
                        Path(entry.path).unlink()
        excess = sum(size for _, size, _ in used) - self.max_bytes
        for _, size, path in sorted(used):
            if excess <= 0:
                return
            if path != newest:
                with contextlib.suppress(OSError):  # another process was faster, or has it mapped (Windows)
                    path.unlink()
                    excess -= size


def open_trace(path: str | Path, progress: Progress | None = None, cache: Cache | None = None, *, wait: bool = True) -> Trace:
    """The trace of a file: from the cache, or read and then kept there.

    Args:
        path: the file.
        progress: called with 0..1 while the file is read.
        cache: by default the user's.
        wait: return when the trace is kept; otherwise it is written meanwhile, at the latest when the program ends.

    Raises: like `visualprof.reader.read_trace`.
    """
    kept = cache or Cache.default()
    fingerprint = Source(path).fingerprint()
    trace = kept.load(fingerprint)
    if trace is not None:
        return trace
    trace = read_trace(path, progress)
    if Source(path).fingerprint() == fingerprint:  # else it changed while being read: its columns belong to no content
        if wait:
            kept.store(trace, fingerprint)
        else:
            threading.Thread(target=kept.store, args=(trace, fingerprint), name="cache").start()
    return trace


@cache
def reader_version() -> str:
    """Changes with every change of the reader's source; 15 small files, about a millisecond."""
    digest = zlib.crc32(__version__.encode())
    folder = Path(__file__).parent
    for path in sorted([*folder.glob("*.py"), *folder.glob("formats/*.py")]):
        with contextlib.suppress(OSError):
            digest = zlib.crc32(path.read_bytes(), digest)
    return f"{__version__}-{digest:08x}"


@cache
def _groups() -> dict[str, type[Any]]:
    """The parts of a trace that are arrays and nothing else, by name: events, links, counters, ..."""
    hints = get_type_hints(Trace)
    return {f.name: hints[f.name] for f in fields(Trace) if f.name != "meta" and is_dataclass(hints[f.name])}


def _encode(trace: Trace, fingerprint: str, file: BinaryIO) -> int:
    """Writes a trace and returns its size."""
    arrays: list[_Array] = []
    end = 0

    def column(array: _Array) -> _Column:
        nonlocal end
        whole = np.ascontiguousarray(array)
        place, end = end, _aligned(end + whole.nbytes)
        arrays.append(whole)
        return _Column(f"{whole.dtype.byteorder}{whole.dtype.kind}{whole.dtype.itemsize}", whole.shape, place)

    blob, offsets = _pack(trace.strings)
    header = _Header(
        schema=SCHEMA_VERSION,
        reader=reader_version(),
        fingerprint=fingerprint,
        blob=column(blob),
        offsets=column(offsets),
        groups={name: {f.name: column(getattr(getattr(trace, name), f.name)) for f in fields(kind)} for name, kind in _groups().items()},
        args={k: _Argument(column(a.events), column(a.values), a.text) for k, a in trace.args.items()},
        tracks=list(trace.tracks),
        meta=trace.meta,
    )
    encoded = _header_json(header)
    first = _aligned(_START.size + len(encoded))
    _write(file, (_START.pack(_MAGIC, len(encoded), first + end) + encoded).ljust(first, b"\0"))
    for array in arrays:
        _write(file, array)
        _write(file, bytes(_aligned(array.nbytes) - array.nbytes))
    return first + end


def _header_json(header: _Header) -> bytes:
    try:
        return msgspec.json.encode(header)
    except UnicodeEncodeError:  # half a surrogate pair in a name
        return json.dumps(msgspec.to_builtins(header), ensure_ascii=False).encode("utf-8", "replace")


def _write(file: BinaryIO, data: Any) -> None:
    """All of some bytes or an array; an unbuffered file may take them in pieces."""
    view = memoryview(data)
    if view.nbytes:
        view = view.cast("B")
    while view.nbytes:
        view = view[file.write(view) :]


def _decode(mapped: memoryview, fingerprint: str) -> Trace:
    magic, length, total = _START.unpack_from(mapped)
    if magic != _MAGIC or total != len(mapped):
        raise ValueError("not a whole cache file")
    header = msgspec.json.decode(mapped[_START.size : _START.size + length], type=_Header)
    if (header.schema, header.reader, header.fingerprint) != (SCHEMA_VERSION, reader_version(), fingerprint):
        raise ValueError("of another reader")
    body = mapped[_aligned(_START.size + length) :]

    def array(column: _Column) -> Any:
        dtype = np.dtype(column.dtype)
        count = int(np.prod(column.shape, dtype=np.int64))
        if count == 0:
            return np.zeros(column.shape, dtype)
        flat: Any = np.frombuffer(body, dtype, count, column.offset)  # read-only, as the map is
        return flat.reshape(column.shape)

    groups = {name: kind(**{k: array(c) for k, c in header.groups[name].items()}) for name, kind in _groups().items()}
    args: Mapping[str, ArgColumn] = {k: ArgColumn(array(a.events), array(a.values), a.text) for k, a in header.args.items()}
    strings = Strings(memoryview(array(header.blob)), array(header.offsets))
    return Trace(strings=cast("tuple[str, ...]", strings), tracks=tuple(header.tracks), args=args, meta=header.meta, **groups)


def _pack(strings: Sequence[str]) -> tuple[_Array, NDArray[np.int64]]:
    """All strings as UTF-8 in one piece, and where each starts and the last ends."""
    text = "".join(strings)
    if text.isascii():
        data = text.encode()
        sizes = list(map(len, strings))
    else:
        encoded = [s.encode("utf-8", "surrogatepass") for s in strings]
        data = b"".join(encoded)
        sizes = list(map(len, encoded))
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return np.frombuffer(data, np.uint8), offsets


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
