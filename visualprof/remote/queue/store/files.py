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
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Literal

from visualprof.errors import NotFound
from visualprof.messages import msg
from visualprof.remote.queue.errors import PayloadTooLarge, UploadOffsetMismatch, disk_errors
from visualprof.remote.queue.store.signing import GET_VALID_S, PUT_VALID_S, Signer

CHUNK_BYTES = 1 << 20
MAX_BLOB_BYTES = 8 << 30
DATABASE_FILE = "jobs.sqlite"
ReadChunk = Callable[[int], bytes]
Namespace = Literal["blobs", "incoming"]
_KEY = re.compile(r"blobs/[0-9a-f]{64}|incoming/[a-z0-9-]{1,60}/[0-9a-f]{32}")
_BELOW = re.compile(r"(blobs|incoming)/(?!\.\.?$)[^/\\]+")


@dataclass(frozen=True)
class PartUpload:
    """Bytes of a file that are still to be sent, to an address of their own."""

    offset: int
    size_bytes: int
    url: str


@dataclass(frozen=True)
class UploadPlan:
    """How a file gets into the store. have: bytes that are there.

    url: to which the rest is appended; or parts: those that are missing, of a large file the next ones.
    """

    have: int
    url: str = ""
    parts: list[PartUpload] = field(default_factory=list[PartUpload])


class Store:
    """Files by key, in a folder. They can also be had as paths, so that results need not be copied.

    direct: browsers and commands send their files past this server, as `announce` says.
    """

    direct_uploads = False

    def __init__(self, folder: Path, signer: Signer) -> None:
        self._folder = folder
        self._signer = signer
        self._appending = [threading.Lock() for _ in range(64)]

    def path(self, key: str) -> Path:
        """Where a file is, or would be.

        Raises: NotFound: no key of this store.
        """
        if not _KEY.fullmatch(key):
            raise NotFound(msg("queue.no_file_server", f"{key[:100]!r} is no file of this server"))
        return self._folder / key

    def local_path(self, blob: str) -> Path:
        """Where a blob, or a copy of it, would be."""
        return self._folder / "blobs" / blob

    def put(self, read: ReadChunk, limit: int) -> tuple[str, int]:
        """Keep a blob; its sha256 and size. What is there already is kept once.

        Raises: Oversize, DiskFull; nothing is left then.
        """
        with disk_errors(f"{self._folder}"):
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

    def begin_upload(self, key: str, size: int, new: bool = True) -> UploadPlan:
        """Expects a file, and says how it is sent. new: nothing was ever sent of it.

        Raises: DiskFull.
        """
        del new
        path = self.path(key)
        with disk_errors(f"{self._folder}"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch()
        return UploadPlan(path.stat().st_size, self._signer.sign_url("put", key, PUT_VALID_S, size=str(size)))

    def received_bytes(self, key: str, size: int) -> int:
        """How much is there of a file of that size."""
        del size
        with contextlib.suppress(FileNotFoundError):
            return self.path(key).stat().st_size
        return 0

    def download(self, key: str, size: int, target: Path) -> str:
        """Put a file that has arrived where it is wanted; the sha256 of what is there then.

        Raises: NotFound.
        """
        del size
        link_or_copy(self.path(key), target)
        with target.open("rb") as file:
            return hash_stream(file.read)[0]

    def append(self, key: str, offset: int, read: ReadChunk, limit: int) -> int:
        """Add bytes at the end, which must be at `offset`; the new size. A piece that does not fit is not kept.

        Raises: NotFound: nobody expects it. Elsewhere: it ends elsewhere. Oversize: beyond `limit` bytes. DiskFull.
        """
        try:
            handle = os.open(self.path(key), os.O_WRONLY)
        except FileNotFoundError as error:
            raise NotFound(msg("queue.not_expected_any_more", f"{key} is not expected any more")) from error
        with self._appending[hash(key) % 64], disk_errors(f"{self._folder}"), os.fdopen(handle, "wb", 0) as file:
            end = file.seek(0, os.SEEK_END)
            if end != offset:
                raise UploadOffsetMismatch(end)
            try:
                while piece := read(CHUNK_BYTES):
                    if file.tell() + len(piece) > limit:
                        raise PayloadTooLarge(
                            msg("queue.more_than_bytes_announced", f"more than the {limit} bytes that were announced")
                        )
                    _write(file, piece)
            except BaseException:
                with contextlib.suppress(OSError):
                    file.truncate(offset)
                raise
            return file.tell()

    def delete(self, prefix: str) -> None:
        """Remove a file, or every file of an `incoming/<task>-<attempt>` folder, that nobody needs any more."""
        if not (_KEY.fullmatch(prefix) or _BELOW.fullmatch(prefix)):
            raise NotFound(msg("queue.nothing_server", f"{prefix[:100]!r} is nothing of this server"))
        path = self._folder / prefix
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def delete_blob(self, blob: str) -> None:
        """Remove a blob that no row names."""
        self.delete(f"blobs/{blob}")

    def list_names(self, room: Namespace) -> list[str]:
        """What lies in a room: blobs, or folders of what is arriving."""
        folder = self._folder / room
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return [name for name in names if _BELOW.fullmatch(f"{room}/{name}")]

    def age_s(self, blob: str) -> float:
        """Since when a blob is there; 0 without it."""
        try:
            return time.time() - (self._folder / "blobs" / blob).stat().st_mtime
        except OSError:
            return 0.0

    def require(self, key: str) -> None:
        """Note that a file is wanted again: it is as young as a new one.

        Raises: NotFound: it is not here.
        """
        try:
            os.utime(self.path(key))
        except FileNotFoundError as error:
            raise NotFound(msg("queue.gone", f"{key} is gone")) from error

    def get_url(self, key: str, name: str) -> str:
        """A signed address to read it, good for an hour. name: of the download."""
        return self._signer.sign_url("get", key, GET_VALID_S, name=name)


def _write(file: FileIO, piece: bytes) -> None:
    """All of it, past no buffer: what a full disk refused would come again when the file is cut or closed."""
    rest = memoryview(piece)
    while rest:
        rest = rest[file.write(rest) :]


def _receive(path: Path, read: ReadChunk, limit: int) -> tuple[str, int]:
    """Write a stream; its sha256 and size."""
    with path.open("xb") as file:

        def taken(size: int) -> bytes:
            piece = read(size)
            if file.tell() + len(piece) > limit:
                raise PayloadTooLarge(
                    msg("queue.file_over_mib", f"the file is over {limit >> 20:,} MiB"),
                    msg("queue.server_keeps_no_larger", "this server keeps no larger ones"),
                )
            file.write(piece)
            return piece

        return hash_stream(taken)


def hash_stream(read: ReadChunk) -> tuple[str, int]:
    """sha256 and size of a stream."""
    digest, size = hashlib.sha256(), 0
    while piece := read(CHUNK_BYTES):
        digest.update(piece)
        size += len(piece)
    return digest.hexdigest(), size


def link_or_copy(source: Path, target: Path) -> None:
    """The file under another name: the same file where the disk allows it, else a copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError as error:
        raise NotFound(msg("queue.gone", f"{source.name} is gone")) from error
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, target)


def display_name(name: str) -> str:
    """A user's file name as it may be shown and stored: its last part, without control characters, at most 200 long."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    clean = "".join(c if c.isprintable() else "_" for c in last.encode("utf-8", "replace").decode())
    return clean[:200] or "file"


def file_id(path: Path) -> tuple[int, int] | None:
    """Device and number of a file, None when there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
