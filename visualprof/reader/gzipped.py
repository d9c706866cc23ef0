"""Unpack gzip files in a thread ahead of their reader, including multi-member, truncated and damaged files.

isal unpacks four times as fast as zlib. zlib is used where isal has no wheel. Where isal fails, zlib starts over and
reports how far the data are intact, so both give the same bytes.
"""

from __future__ import annotations

import contextlib
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

GZIP_MAGIC = b"\x1f\x8b"
ASSUMED_RATIO = 8  # a profile compresses 8 to 40 times
MAX_READY_PIECES = 3  # pieces that are unpacked in advance

T = TypeVar("T")


def unpack(file: BinaryIO, size: int) -> Generator[bytes]:
    """Yield the unpacked bytes in pieces of at most `size`. For a truncated file, yield what can be unpacked.

    Raises:
        zlib.error: The data are damaged. All bytes before the damage were yielded.
    """
    yielded, isal = 0, _import_isal()
    if isal is not None:
        try:
            for piece in _inflate(file, size, isal.decompressobj):
                yield piece
                yielded += len(piece)
        except isal.error:
            file.seek(0)
        else:
            return
    for piece in _inflate(file, size, zlib.decompressobj):
        if len(piece) > yielded:
            yield piece[yielded:]
        yielded = max(0, yielded - len(piece))


def _import_isal() -> Any:
    """Return isal's module, imported with the first gzip file, or `None`."""
    try:
        from isal import isal_zlib
    except ImportError:
        return None
    return isal_zlib


def read_ahead(pieces: Generator[T]) -> Generator[T]:
    """Yield the same pieces, produced in a thread while the consumer handles earlier ones. Closing ends the thread."""
    from concurrent.futures import ThreadPoolExecutor  # takes 2 ms, and most files are plain

    thread = ThreadPoolExecutor(1, "ahead")
    waiting: deque[Future[T | None]] = deque()
    try:
        while True:
            waiting.extend(thread.submit(next, pieces, None) for _ in range(MAX_READY_PIECES - len(waiting)))
            if (piece := waiting.popleft().result()) is None:
                return
            yield piece
    finally:
        thread.shutdown(cancel_futures=True)
        pieces.close()


def _inflate(file: BinaryIO, size: int, make_inflater: Callable[..., Any]) -> Iterator[bytes]:
    """Yield the unpacked bytes of a gzip file in pieces of at most `size`."""
    inflater, salvage = make_inflater(wbits=31), make_inflater is zlib.decompressobj
    while packed := file.read(max(1, size // ASSUMED_RATIO)):
        full = False  # the last call filled its limit, so more output may be pending
        while packed or full:
            checkpoint = inflater.copy() if salvage else None
            try:
                plain = inflater.decompress(packed, size)
            except zlib.error:
                yield from _until_damage(checkpoint, packed, size)
                raise
            if plain:
                yield plain
            packed, full = inflater.unconsumed_tail, len(plain) == size
            if inflater.eof:
                packed, full = _next_member(file, inflater.unused_data), False
                if not packed:
                    return
                inflater = make_inflater(wbits=31)


def _next_member(file: BinaryIO, rest: bytes) -> bytes:
    """Return the first bytes of the next member, skipping zero padding; empty if missing."""
    while len(rest := rest.lstrip(b"\0")) < len(GZIP_MAGIC) and (more := file.read(1 << 16)):
        rest += more
    return rest if rest.startswith(GZIP_MAGIC) else b""


def _until_damage(inflater: Any, packed: bytes, size: int) -> Iterator[bytes]:
    """Yield the bytes before the damage.

    They are inflated byte by byte (0.1 s, once per file), because a larger call returns all or nothing.
    """
    plain = bytearray()
    with contextlib.suppress(zlib.error):
        for i in range(len(packed)):
            plain += inflater.decompress(packed[i : i + 1])
            if len(plain) >= size:
                yield bytes(plain)
                plain.clear()
    yield bytes(plain)
