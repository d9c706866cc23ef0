"""Validation of zip files by their directory; nothing is unpacked."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from visualprof.errors import FormatError
from visualprof.messages import msg
from visualprof.remote.cases.content_errors import content_errors
from visualprof.remote.protocol import TaskFailure

MAGIC = b"PK\x03\x04"
MAX_ENTRIES = 100_000  # an archive of torch has one per tensor and a few more
MAX_DIRECTORY = 64 << 20
MAX_RATIO = 20  # torch compresses nothing, and its code compresses 5 to 10 times
ALWAYS_ALLOWED = 64 << 20
_END = struct.Struct("<4s4H2LH")


def check_zip(path: Path, name: str) -> None:
    """Reject decompression bombs and names that lead outside the folder.

    Raises:
        FormatError: The archive is damaged or dangerous.
    """
    _directory_is_small(path, name)
    with zip_errors(name), zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise FormatError(
            msg("queue.files_archive", f"{name}: {len(entries):,} files in the archive"),
            msg("queue.model", "is it a model?"),
        )
    for entry in entries:
        parts = entry.orig_filename.replace("\\", "/").split("/")
        if ".." in parts or not parts[0] or ":" in parts[0] or "\0" in entry.orig_filename:
            raise FormatError(
                msg(
                    "queue.file_archive_named_which",
                    f"{name}: a file in the archive is named {entry.orig_filename[:80]!r}, which leads out of it",
                ),
                msg("queue.export_model_again_not", "export the model again; do not trust this file"),
            )
    if len({e.filename for e in entries}) < len(entries):
        raise FormatError(
            msg("queue.two_files_archive_one", f"{name}: two files in the archive have one name"),
            msg("queue.export_model_again", "export the model again"),
        )
    _not_a_bomb(name, sum(e.file_size for e in entries), path.stat().st_size)


@contextmanager
def zip_errors(name: str) -> Generator[None]:
    """Translate errors of a damaged archive inside the block.

    Raises:
        FormatError: The archive is damaged.
    """
    try:
        with content_errors(
            msg("queue.damaged_zip", f"{name}: damaged zip archive"),
            msg("queue.cut_while_being_copied", "was it cut while being copied?"),
        ):
            yield
    except TaskFailure as failure:
        raise FormatError(failure.error, failure.hint) from None


def is_zip(path: Path) -> bool:
    """Return whether a file starts like a zip."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def list_members(path: Path, name: str) -> list[str]:
    """Return the files of a zip.

    Raises:
        FormatError: The archive is damaged or dangerous.
    """
    check_zip(path, name)
    with zip_errors(name), zipfile.ZipFile(path) as archive:
        return [entry.filename for entry in archive.infolist() if not entry.is_dir()]


def _directory_is_small(path: Path, name: str) -> None:
    """Check the size of the directory, which Python reads as a whole. For zip64, the child's memory limit applies."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 65_557))
        tail = file.read()
    place = tail.rfind(b"PK\x05\x06")
    if place < 0 or len(tail) - place < _END.size:
        raise FormatError(
            msg("queue.damaged_zip_archive_no", f"{name}: damaged zip archive (it has no end)"),
            msg("queue.cut_while_being_copied", "was it cut while being copied?"),
        )
    size = _END.unpack_from(tail, place)[5]
    if MAX_DIRECTORY < size < 0xFFFFFFFF:
        raise FormatError(
            msg("queue.archives_directory_bytes", f"{name}: the archive's directory has {size:,} bytes"),
            msg("queue.model", "is it a model?"),
        )


def _not_a_bomb(name: str, unpacked: int, packed: int) -> None:
    if unpacked > max(ALWAYS_ALLOWED, MAX_RATIO * packed):
        raise FormatError(
            msg("queue.unpacks_bytes", f"{name}: unpacks to {unpacked:,} bytes from {packed:,}"),
            msg("queue.looks_like_decompression_bomb", "this looks like a decompression bomb"),
        )
