"""Where files are kept. Only this class knows that it is a folder, but for `path`.

Keys are `blobs/<sha256>` and `incoming/<task>-<attempt>/<uuid>`: never a name that a user chose.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import threading
import uuid
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from visualprof.errors import NotFound
from visualprof.remote.queue.refusals import Elsewhere, Oversize, disk
from visualprof.remote.queue.store.signing import GET_S, PUT_S, Signer

CHUNK = 1 << 20
MAX_BLOB = 8 << 30
DATABASE = "jobs.sqlite"
Read = Callable[[int], bytes]
_KEY = re.compile(r"blobs/[0-9a-f]{64}|incoming/[a-z0-9-]{1,60}/[0-9a-f]{32}")


class Store:
    """Files by key, in a folder. They can also be had as paths, so that results need not be copied."""

    def __init__(self, folder: Path, signer: Signer) -> None:
        self._folder = folder
        self._signer = signer
        self._appending = [threading.Lock() for _ in range(64)]

    def path(self, key: str) -> Path:
        """Where a file is, or would be.

        Raises: NotFound: no key of this store.
        """
        if not _KEY.fullmatch(key):
            raise NotFound(f"{key[:100]!r} is no file of this server")
        return self._folder / key

    def put(self, read: Read, limit: int) -> tuple[str, int]:
        """Keeps a blob; its sha256 and size. What is there already is kept once.

        Raises: Oversize, DiskFull; nothing is left then.
        """
        with disk(f"{self._folder}"):
            folder = self._folder / "blobs"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            arriving = folder / f".{uuid.uuid4().hex}"
            try:
                digest, size = _receive(arriving, read, limit)
                final = folder / digest
                try:
                    os.utime(final)  # it is wanted again: `remove_leftovers` looks at the time
                except FileNotFoundError:
                    if os.name != "nt":  # where it could not be removed then
                        arriving.chmod(0o444)  # results are links to it: an overwriting copy must not change it
                    arriving.replace(final)
            finally:
                arriving.unlink(missing_ok=True)
        return digest, size

    def open(self, key: str) -> BinaryIO:
        """Its bytes.

        Raises: NotFound.
        """
        try:
            return self.path(key).open("rb")
        except FileNotFoundError as error:
            raise NotFound(f"{key} is gone") from error

    def size(self, key: str) -> int | None:
        """Bytes that are there, None without the file."""
        with contextlib.suppress(FileNotFoundError):
            return self.path(key).stat().st_size
        return None

    def expect(self, key: str) -> None:
        """Makes an empty file that `append` may fill."""
        path = self.path(key)
        with disk(f"{self._folder}"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch()

    def append(self, key: str, offset: int, read: Read, limit: int) -> int:
        """Adds bytes at the end, which must be at `offset`; the new size. A piece that does not fit is not kept.

        Raises: NotFound: nobody expects it. Elsewhere: it ends elsewhere. Oversize: beyond `limit` bytes. DiskFull.
        """
        try:
            handle = os.open(self.path(key), os.O_WRONLY)
        except FileNotFoundError as error:
            raise NotFound(f"{key} is not expected any more") from error
        with self._appending[hash(key) % 64], disk(f"{self._folder}"), os.fdopen(handle, "wb", 0) as file:
            end = file.seek(0, os.SEEK_END)
            if end != offset:
                raise Elsewhere(end)
            try:
                while piece := read(CHUNK):
                    if file.tell() + len(piece) > limit:
                        raise Oversize(f"more than the {limit} bytes that were announced")
                    _write(file, piece)
            except BaseException:
                with contextlib.suppress(OSError):
                    file.truncate(offset)
                raise
            return file.tell()

    def delete(self, prefix: str) -> None:
        """Removes a file, or every file of an `incoming/<task>-<attempt>` folder."""
        path = self._folder / prefix
        if path.parent != self._folder / "incoming" and not _KEY.fullmatch(prefix):
            raise NotFound(f"{prefix[:100]!r} is nothing of this server")
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def get_url(self, key: str, name: str) -> str:
        """A signed address to read it, good for an hour. name: of the download."""
        return self._signer.url("get", key, GET_S, name=name)

    def put_url(self, key: str, size: int) -> str:
        """A signed address to append to it, up to `size` bytes, good for 15 minutes."""
        return self._signer.url("put", key, PUT_S, size=str(size))


def _write(file: FileIO, piece: bytes) -> None:
    """All of it, past no buffer: what a full disk refused would come again when the file is cut or closed."""
    rest = memoryview(piece)
    while rest:
        rest = rest[file.write(rest) :]


def _receive(path: Path, read: Read, limit: int) -> tuple[str, int]:
    """Writes a stream; its sha256 and size."""
    digest, size = hashlib.sha256(), 0
    with path.open("xb") as file:
        while piece := read(CHUNK):
            size += len(piece)
            if size > limit:
                raise Oversize(f"the file is over {limit >> 20:,} MiB", "this server keeps no larger ones")
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest(), size


def shown(name: str) -> str:
    """A user's file name as it may be shown and stored: its last part, without control characters, at most 200 long."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    clean = "".join(c if c.isprintable() else "_" for c in last.encode("utf-8", "replace").decode())
    return clean[:200] or "file"


def file_number(path: Path) -> tuple[int, int] | None:
    """Device and number of a file, None when there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
