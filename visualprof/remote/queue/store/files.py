"""File store in a folder. Only this module knows that the store is a folder, except for callers of `path`.

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
_ENTRY = re.compile(r"(blobs|incoming)/(?!\.\.?$)[^/\\]+")


@dataclass(frozen=True)
class PartUpload:
    """A missing part of a file, with its own URL."""

    offset: int
    size_bytes: int
    url: str


@dataclass(frozen=True)
class UploadPlan:
    """How to upload a file to the store.

    Attributes:
        have: Bytes that the store already has.
        url: URL to which the rest is appended; "" if the file is uploaded in parts.
        parts: Missing parts; of a large file, the next ones.
    """

    have: int
    url: str = ""
    parts: list[PartUpload] = field(default_factory=list[PartUpload])


class Store:
    """Files by key, in a folder. Files also have paths, so that results need not be copied.

    Attributes:
        direct_uploads: Whether browsers and commands send files to another service, following `begin_upload`.
    """

    direct_uploads = False

    def __init__(self, folder: Path, signer: Signer) -> None:
        self._folder = folder
        self._signer = signer
        self._append_locks = [threading.Lock() for _ in range(64)]

    def path(self, key: str) -> Path:
        """Return the path of a file, whether it exists or not.

        Raises:
            NotFound: The key is invalid.
        """
        if not _KEY.fullmatch(key):
            raise NotFound(msg("queue.no_file_server", f"{key[:100]!r} is no file of this server"))
        return self._folder / key

    def local_path(self, blob: str) -> Path:
        """Return the path of a blob or its local copy, whether it exists or not."""
        return self._folder / "blobs" / blob

    def put(self, read: ReadChunk, limit: int) -> tuple[str, int]:
        """Store a blob; identical content is stored once.

        Returns:
            The sha256 and the size.

        Raises:
            PayloadTooLarge: The blob is larger than `limit`; nothing is stored.
            DiskFull: The disk is full; nothing is stored.
        """
        with disk_errors(f"{self._folder}"):
            folder = self._folder / "blobs"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = folder / f".{uuid.uuid4().hex}"
            try:
                digest, size = _write_stream(part, read, limit)
                path = folder / digest
                try:
                    os.utime(path)  # used again; `remove_leftovers` checks the time
                except FileNotFoundError:
                    if os.name != "nt":  # Windows cannot delete read-only files
                        part.chmod(0o444)  # results are hard links; overwriting one must not change the blob
                    part.replace(path)
            finally:
                part.unlink(missing_ok=True)
        return digest, size

    def begin_upload(self, key: str, size: int, is_new: bool = True) -> UploadPlan:
        """Announce a file, and return how to upload it.

        Args:
            key: Key of the file.
            size: Size of the file.
            is_new: Whether nothing of it was uploaded before.

        Raises:
            DiskFull: The disk is full.
        """
        del is_new
        path = self.path(key)
        with disk_errors(f"{self._folder}"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch()
        return UploadPlan(path.stat().st_size, self._signer.sign_url("put", key, PUT_VALID_S, size=str(size)))

    def received_bytes(self, key: str, size: int) -> int:
        """Return how many bytes of a file of this size have arrived."""
        del size
        with contextlib.suppress(FileNotFoundError):
            return self.path(key).stat().st_size
        return 0

    def download(self, key: str, size: int, target: Path) -> str:
        """Copy an uploaded file to `target`; return the sha256 of the copy.

        Raises:
            NotFound: The file was not uploaded.
        """
        del size
        link_or_copy(self.path(key), target)
        with target.open("rb") as file:
            return hash_stream(file.read)[0]

    def append(self, key: str, offset: int, read: ReadChunk, limit: int) -> int:
        """Append bytes to a file. A failed append leaves the file unchanged.

        Args:
            key: Key of the file.
            offset: Position of the bytes, which must be the current size.
            read: Reads the bytes.
            limit: Maximum size of the file.

        Returns:
            The new size.

        Raises:
            NotFound: The file was not announced.
            UploadOffsetMismatch: The file has another size.
            PayloadTooLarge: The file would exceed `limit`.
            DiskFull: The disk is full.
        """
        try:
            handle = os.open(self.path(key), os.O_WRONLY)
        except FileNotFoundError as error:
            raise NotFound(msg("queue.not_expected_any_more", f"{key} is no longer expected")) from error
        with self._append_locks[hash(key) % 64], disk_errors(f"{self._folder}"), os.fdopen(handle, "wb", 0) as file:
            end = file.seek(0, os.SEEK_END)
            if end != offset:
                raise UploadOffsetMismatch(end)
            try:
                while piece := read(CHUNK_BYTES):
                    if file.tell() + len(piece) > limit:
                        raise PayloadTooLarge(
                            msg("queue.more_than_bytes_announced", f"more than the {limit} bytes that were announced")
                        )
                    _write_unbuffered(file, piece)
            except BaseException:
                with contextlib.suppress(OSError):
                    file.truncate(offset)
                raise
            return file.tell()

    def delete(self, prefix: str) -> None:
        """Delete a file, or all files of an `incoming/<task>-<attempt>` folder."""
        if not (_KEY.fullmatch(prefix) or _ENTRY.fullmatch(prefix)):
            raise NotFound(msg("queue.nothing_server", f"{prefix[:100]!r} is nothing of this server"))
        path = self._folder / prefix
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def delete_blob(self, blob: str) -> None:
        """Delete a blob that no row references."""
        self.delete(f"blobs/{blob}")

    def list_names(self, namespace: Namespace) -> list[str]:
        """Return the names in a namespace: blobs, or folders of uploads."""
        folder = self._folder / namespace
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return [name for name in names if _ENTRY.fullmatch(f"{namespace}/{name}")]

    def age_s(self, blob: str) -> float:
        """Return the age of a blob; 0 if it does not exist."""
        try:
            return time.time() - (self._folder / "blobs" / blob).stat().st_mtime
        except OSError:
            return 0.0

    def require(self, key: str) -> None:
        """Mark a file as used again, which resets its age.

        Raises:
            NotFound: The file does not exist.
        """
        try:
            os.utime(self.path(key))
        except FileNotFoundError as error:
            raise NotFound(msg("queue.gone", f"{key} is gone")) from error

    def get_url(self, key: str, name: str) -> str:
        """Return a signed URL for reading a file, valid for an hour.

        Args:
            key: Key of the file.
            name: File name of the download.
        """
        return self._signer.sign_url("get", key, GET_VALID_S, name=name)


def _write_unbuffered(file: FileIO, piece: bytes) -> None:
    """Write all bytes without a buffer.

    A buffer would retry the bytes that a full disk rejected when the file is truncated or closed.
    """
    remaining = memoryview(piece)
    while remaining:
        remaining = remaining[file.write(remaining) :]


def _write_stream(path: Path, read: ReadChunk, limit: int) -> tuple[str, int]:
    """Write a stream to a new file; return its sha256 and size."""
    with path.open("xb") as file:

        def read_and_write(size: int) -> bytes:
            piece = read(size)
            if file.tell() + len(piece) > limit:
                raise PayloadTooLarge(
                    msg("queue.file_over_mib", f"the file is over {limit >> 20:,} MiB"),
                    msg("queue.server_keeps_no_larger", "this server keeps no larger ones"),
                )
            file.write(piece)
            return piece

        return hash_stream(read_and_write)


def hash_stream(read: ReadChunk) -> tuple[str, int]:
    """Return the sha256 and size of a stream."""
    digest, size = hashlib.sha256(), 0
    while piece := read(CHUNK_BYTES):
        digest.update(piece)
        size += len(piece)
    return digest.hexdigest(), size


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link a file to another path, or copy it if the disk does not allow links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError as error:
        raise NotFound(msg("queue.gone", f"{source.name} is gone")) from error
    except OSError:  # another disk, or a disk without hard links
        shutil.copyfile(source, target)


def display_name(name: str) -> str:
    """Return the last part of a user's file name, without control characters and with at most 200 characters."""
    base_name = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    printable = "".join(c if c.isprintable() else "_" for c in base_name.encode("utf-8", "replace").decode())
    return printable[:200] or "file"


def file_id(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
