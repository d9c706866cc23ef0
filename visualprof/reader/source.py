"""A file as a stream of plain bytes: opened, unpacked, bounded, measured."""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Callable, Generator, Iterator
from functools import cached_property
from io import FileIO
from pathlib import Path

import msgspec

from visualprof.errors import FormatError, SourceError
from visualprof.messages import msg
from visualprof.reader.digest import blake2b
from visualprof.reader.gzipped import GZIP_MAGIC, read_ahead, unpack

HEAD_BYTES = 64 * 1024
CHUNK_BYTES = 1024 * 1024  # four times as much takes 1.3 times as long: it leaves the processor cache
# A profile of real events packs 8 to 40 times; a bomb packs 1,000 times.
MAX_UNPACK_RATIO = 200
_FINGERPRINT_SAMPLES, _FINGERPRINT_SAMPLE_BYTES = 64, 4096
ALWAYS_ALLOWED_BYTES = 256 * 1024 * 1024
MAX_LISTED_OFFSETS = 5
# In a bucket, or on a file system of fsspec.
ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+)://[^?#]+(\?[^#]*)?")
GROWING_HINT = msg("reader.may_still_being_written", "it may still be being written; it opens by itself once complete")

# What a decoder raises of text that is not whole JSON, not of the types it expects, or nested too deeply.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)

Progress = Callable[[float], None]
# Fills a buffer with the next plain bytes; fewer than it holds only at the end.
Filler = Callable[[memoryview], int]


def is_address(path: object) -> bool:
    """Is it an address, as `s3://bucket/runs`, and no path?"""
    return isinstance(path, str) and ADDRESS.fullmatch(path) is not None


def _ignore_progress(fraction: float) -> None:
    """Where nobody asks for the progress."""
    del fraction


class SkippedParts:
    """What is damaged in a file and was left out: how many parts, how many bytes, where the first ones are."""

    def __init__(self) -> None:
        self.count = 0
        self._bytes = 0
        self._offsets: list[int] = []

    def add(self, offset: int, size: int) -> None:
        """Note a part. at: its place in the plain bytes of the file."""
        self.count += 1
        self._bytes += size
        if len(self._offsets) < MAX_LISTED_OFFSETS:
            self._offsets.append(offset)

    def sentence(self, label: str = msg("reader.damaged_part", "damaged part")) -> str:
        """`12 damaged parts of 3,400 bytes skipped, at byte 7,000, 9,000, ...`."""
        offsets = ", ".join(f"{at:,}" for at in self._offsets) + ", ..." * (self.count > len(self._offsets))
        return msg(
            "reader.bytes_skipped_byte",
            f"{self.count:,} {label}{'s' * (self.count > 1)} of {self._bytes:,} bytes skipped, at byte {offsets}",
        )


class Source:
    """One file to read.

    Args:
        path: the file.
        progress: called with 0..1 as the file is consumed.
    """

    def __init__(self, path: str | Path, progress: Progress | None = None) -> None:
        self.path = Path(path)
        self.name = self.path.name
        self._progress = progress or _ignore_progress

    @cached_property
    def size(self) -> int:
        """Bytes on disk."""
        with self._open() as file:
            return os.fstat(file.fileno()).st_size

    @cached_property
    def is_gzipped(self) -> bool:
        """Is it gzip, whatever its name says?"""
        with self._open() as file:
            return file.read(2) == GZIP_MAGIC

    def head(self, size: int = HEAD_BYTES) -> bytes:
        """The first 64 KiB (or `size`), unpacked; fewer of a short or cut file."""
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

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The plain bytes in pieces of about `size`; a cut gzip file gives what can be unpacked.

        Raises: SourceError: it cannot be read, or it unpacks to over 200 times its size (a bomb).
        """
        with self._open() as file, contextlib.closing(self._pieces(file, size)) as pieces:
            for piece, fraction in pieces:
                yield piece
                self._progress(fraction)

    @contextlib.contextmanager
    def open_filler(self) -> Generator[Filler]:
        """What fills buffers with the plain bytes, one after the other.

        Raises: SourceError: as `chunks`; when it is entered or when a buffer is filled.
        """
        chunks, rest, failed = self.chunks(), memoryview(b""), None

        def unpack(buffer: memoryview) -> int:
            """What was unpacked before damage first; then it is told."""
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
        """All plain bytes.

        Args:
            limit: bytes, a multiple of 1 GiB.
            what: the kind of file, for the message: `a memory plan`.
            hint: what to ask who has a larger one.

        Raises: FormatError: it is larger than that. SourceError: as `chunks`.
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
        """Around the decoding of JSON that can only be read whole. what: the kind of file, as in `not a whole ...`.

        Raises: FormatError: in place of DECODE_ERRORS.
        """
        try:
            yield
        except DECODE_ERRORS as error:
            raise self.error(msg("reader.not_whole", f"not a whole {kind} ({error})"), hint) from error

    def error(self, problem: str, hint: str) -> FormatError:
        """What is wrong with the content, to be raised: the message names the file."""
        return FormatError(f"{self.name}: {problem}", hint)

    def _pieces(self, file: FileIO, size: int) -> Generator[tuple[bytes, float]]:
        """Plain pieces, each with the fraction of the file that has been read with it."""
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
        """Identity of the content: size, time of change, and 64 samples of the bytes, or all that there are.

        Hashing 350 MB whole takes 0.5 s, a third of parsing it; the time of change covers what samples miss.
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
            return self.path.open("rb", buffering=0)
        except OSError as error:
            raise SourceError(
                f"{self.name}: {error.strerror}",
                msg("reader.file_still_there_readable", "is the file still there and readable?"),
            ) from error
