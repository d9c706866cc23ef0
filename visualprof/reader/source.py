"""A file as a stream of plain bytes: opened, unpacked, limited in size, and measured."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import zlib
from collections.abc import Callable, Generator
from functools import cached_property
from io import FileIO
from pathlib import Path

import msgspec

from visualprof.errors import FormatError, SourceError
from visualprof.messages import msg
from visualprof.reader.digest import blake2b
from visualprof.reader.gzipped import GZIP_MAGIC, read_ahead, unpack

HEAD_BYTES = 64 * 1024
CHUNK_BYTES = 1024 * 1024  # 4 MiB take 1.3 times as long, because they exceed the processor cache
# A profile of real events compresses 8 to 40 times, a decompression bomb 1,000 times.
MAX_UNPACK_RATIO = 200
_FINGERPRINT_SAMPLES, _FINGERPRINT_SAMPLE_BYTES = 64, 4096
ALWAYS_ALLOWED_BYTES = 256 * 1024 * 1024
MAX_LISTED_OFFSETS = 5
# An address in a bucket, or on a file system of fsspec.
ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+)://[^?#]+(\?[^#]*)?")
GROWING_HINT = msg(
    "reader.may_still_being_written", "it may still be being written; it opens automatically once complete"
)

# Errors of a decoder: the text is not complete JSON, has unexpected types, or is nested too deeply.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)

Progress = Callable[[float], None]
# Fills a buffer with the next plain bytes; a short fill means the end.
Filler = Callable[[memoryview], int]


def is_address(path: object) -> bool:
    """Return whether this is an address such as `s3://bucket/runs` rather than a path."""
    return isinstance(path, str) and ADDRESS.fullmatch(path) is not None


def _ignore_progress(fraction: float) -> None:
    """Ignore progress."""
    del fraction


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file. A pipe would otherwise wait for a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class SkippedParts:
    """Damaged parts of a file that were skipped: their number, their total size, and the first offsets."""

    def __init__(self) -> None:
        self.count = 0
        self._bytes = 0
        self._offsets: list[int] = []

    def add(self, offset: int, size: int) -> None:
        """Record a skipped part; `offset` counts plain bytes."""
        self.count += 1
        self._bytes += size
        if len(self._offsets) < MAX_LISTED_OFFSETS:
            self._offsets.append(offset)

    def sentence(self, label: str = msg("reader.damaged_part", "damaged part")) -> str:
        """Return a sentence: `12 damaged parts of 3,400 bytes skipped, at byte 7,000, 9,000, ...`."""
        offsets = ", ".join(f"{at:,}" for at in self._offsets) + ", ..." * (self.count > len(self._offsets))
        return msg(
            "reader.bytes_skipped_byte",
            f"{self.count:,} {label}{'s' * (self.count > 1)} of {self._bytes:,} bytes skipped, at byte {offsets}",
        )


class Source:
    """One file to read.

    Args:
        path: The file.
        progress: Called with a fraction from 0 to 1 as the file is consumed.
    """

    def __init__(self, path: str | Path, progress: Progress | None = None) -> None:
        self.path = Path(path)
        self.name = self.path.name
        self._progress = progress or _ignore_progress

    @cached_property
    def size(self) -> int:
        """Size on disk in bytes."""
        with self._open() as file:
            return os.fstat(file.fileno()).st_size

    @cached_property
    def is_gzipped(self) -> bool:
        """Whether the content is gzip, whatever the file name."""
        with self._open() as file:
            return file.read(2) == GZIP_MAGIC

    def head(self, size: int = HEAD_BYTES) -> bytes:
        """Return the first 64 KiB (or `size` bytes), unpacked; fewer for a short or truncated file."""
        with self._open() as file:
            data = file.read(size)
            if not data.startswith(GZIP_MAGIC):
                return data
            file.seek(0)
            plain = b""
            with contextlib.closing(self._unpack(file, size)) as pieces:
                try:
                    while len(plain) < size and (piece := next(pieces, None)):
                        plain += piece[0]
                except SourceError:
                    if not plain:
                        raise
            return plain[:size]

    def chunks(self, size: int = CHUNK_BYTES) -> Generator[bytes]:
        """Yield the plain bytes in pieces of about `size`. For a truncated gzip file, yield what can be unpacked.

        Raises:
            SourceError: The file cannot be read, or unpacks to over 200 times its size (a decompression bomb).
        """
        with self._open() as file, contextlib.closing(self._pieces(file, size)) as pieces:
            for piece, fraction in pieces:
                yield piece
                self._progress(fraction)

    @contextlib.contextmanager
    def open_filler(self) -> Generator[Filler]:
        """Return a context with a function that fills buffers with consecutive plain bytes.

        Raises:
            SourceError: As for `chunks`, on entry or when a buffer is filled.
        """
        chunks, rest, failed = self.chunks(), memoryview(b""), None

        def unpack(buffer: memoryview) -> int:
            """Fill the buffer. Bytes before damage are delivered first; the next call raises the error."""
            nonlocal rest, failed
            size = 0
            while size < len(buffer) and not failed:
                try:
                    rest = rest or memoryview(next(chunks, b""))
                except SourceError as error:
                    failed = error
                if not rest:
                    break
                n = min(len(rest), len(buffer) - size)
                buffer[size : size + n] = rest[:n]
                rest, size = rest[n:], size + n
            if failed and not size:
                raise failed
            return size

        if self.is_gzipped:
            with contextlib.closing(chunks):
                yield unpack
            return
        with self._open() as file:

            def read(buffer: memoryview) -> int:
                size = 0
                while size < len(buffer) and (n := file.readinto(buffer[size:]) or 0):
                    size += n
                self._progress(min(1.0, file.tell() / max(self.size, 1)))
                return size

            yield read

    def read_all(self, limit: int, kind: str, hint: str) -> bytes:
        """Return all plain bytes.

        Args:
            limit: Maximum size in bytes, a multiple of 1 GiB.
            kind: The kind of file, for messages: `a memory plan`.
            hint: What to do if the file is larger.

        Raises:
            FormatError: The content is larger than `limit`.
            SourceError: As for `chunks`.
        """
        too_large = self.error(msg("reader.over_gib", f"{kind} of over {limit >> 30} GiB"), hint)
        if self.size > limit:
            raise too_large
        pieces: list[bytes] = []
        total = 0
        for piece in self.chunks():
            total += len(piece)
            if total > limit:
                raise too_large
            pieces.append(piece)
        return b"".join(pieces)

    @contextlib.contextmanager
    def decoding(self, kind: str, hint: str) -> Generator[None]:
        """Return a context that turns decode errors of JSON into a `FormatError`; `kind` completes `not a whole ...`.

        Raises:
            FormatError: Instead of any of `DECODE_ERRORS`.
        """
        try:
            yield
        except DECODE_ERRORS as error:
            raise self.error(msg("reader.not_whole", f"not a whole {kind} ({error})"), hint) from error

    def error(self, problem: str, hint: str) -> FormatError:
        """Return an error about the content; its message names the file."""
        return FormatError(f"{self.name}: {problem}", hint)

    def _pieces(self, file: FileIO, size: int) -> Generator[tuple[bytes, float]]:
        """Yield plain pieces, each with the fraction of the file consumed so far."""
        return read_ahead(self._unpack(file, size)) if self.is_gzipped else self._plain(file, size)

    def _plain(self, file: FileIO, size: int) -> Generator[tuple[bytes, float]]:
        while piece := file.read(size):
            yield piece, min(1.0, file.tell() / (self.size or 1))

    def _unpack(self, file: FileIO, size: int) -> Generator[tuple[bytes, float]]:
        total, limit = 0, max(ALWAYS_ALLOWED_BYTES, MAX_UNPACK_RATIO * self.size)
        try:
            for plain in unpack(file, size):
                total += len(plain)
                if total > limit:
                    raise SourceError(
                        msg(
                            "reader.unpacks_over_mib_bytes",
                            f"{self.name} unpacks to over {limit >> 20} MiB from {self.size:,} bytes",
                        ),
                        msg(
                            "reader.looks_like_decompression_bomb",
                            "this looks like a decompression bomb; unpack it yourself if you trust it",
                        ),
                    )
                yield plain, min(1.0, file.tell() / (self.size or 1))
        except zlib.error as error:
            raise SourceError(
                msg("reader.damaged_gzip_data", f"{self.name}: damaged gzip data ({error})"),
                msg("reader.copy_file_again", "copy the file again"),
            ) from error

    def fingerprint(self) -> str:
        """Return a digest that identifies the content: size, modification time, and 64 samples of the bytes.

        Hashing 350 MB takes 0.5 s, a third of the parse time. The modification time shows changes between samples.
        """
        with self._open() as file:
            status = os.fstat(file.fileno())
            digest = blake2b(f"{status.st_size}:{status.st_mtime_ns}".encode(), digest_size=16)
            if status.st_size <= _FINGERPRINT_SAMPLES * _FINGERPRINT_SAMPLE_BYTES:
                digest.update(file.read(status.st_size))
            else:
                for i in range(_FINGERPRINT_SAMPLES):
                    file.seek(status.st_size * i // _FINGERPRINT_SAMPLES)
                    digest.update(file.read(_FINGERPRINT_SAMPLE_BYTES))
        return digest.hexdigest()

    def _open(self) -> FileIO:
        try:
            file = FileIO(os.fspath(self.path), "rb", opener=_open_without_waiting)
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.close()
                raise SourceError(
                    msg("reader.not_regular_file", f"{self.name}: not a regular file"),
                    msg("reader.devices_not_read", "devices, pipes and sockets are not read"),
                )
            return file
        except OSError as error:
            raise SourceError(
                f"{self.name}: {error.strerror}",
                msg("reader.file_still_there_readable", "is the file still there and readable?"),
            ) from error
