"""Zip archives written by torch: names in their head, single texts out of them. Pickles are never opened."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager

from visualprof.errors import FormatError
from visualprof.messages import msg
from visualprof.reader.source import Source

MAGIC = b"PK\x03\x04"
PICKLE_START = re.compile(rb"\x80[\x02-\x05]")
ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    RuntimeError,
    NotImplementedError,
    ValueError,
    struct.error,
)
MAX_ENTRIES = 500_000
MAX_UNPACKED_BYTES = 256 << 20
MAX_UNPACK_RATIO = 500  # JSON of a graph compresses 10 to 60 times


class Archive:
    """An open archive. Each read is limited to the size that the caller expects."""

    def __init__(self, source: Source, file: zipfile.ZipFile) -> None:
        self._source = source
        self._file = file
        self._infos = {i.filename: i for i in file.infolist()}
        if len(file.infolist()) > MAX_ENTRIES:
            raise source.error(
                msg("models.over_files_archive", f"over {MAX_ENTRIES:,} files in the archive"),
                msg("models.model", "is it a model?"),
            )

    @property
    def names(self) -> list[str]:
        """Names of the files, in order."""
        return list(self._infos)

    def size(self, name: str) -> int:
        """Return the unpacked size of a file in bytes."""
        return self._infos[name].file_size

    def read(self, name: str, limit: int) -> bytes:
        """Return a file of at most `limit` bytes.

        Raises:
            FormatError: The file is larger, implausibly well compressed, or damaged.
        """
        info = self._infos[name]
        if info.file_size > limit or info.file_size > MAX_UNPACK_RATIO * max(info.compress_size, 1024):
            raise self._source.error(
                msg("models.unpacks_bytes", f"{name} unpacks to {info.file_size:,} bytes from {info.compress_size:,}"),
                msg("models.looks_like_decompression_bomb", "this looks like a decompression bomb"),
            )
        with self._file.open(info) as file:
            data = file.read(limit + 1)  # the directory's sizes may be false
        if len(data) > limit:
            raise self._source.error(
                msg("models.larger_than_archive_says", f"{name} is larger than the archive says"),
                msg("models.copy_file_again", "copy the file again"),
            )
        return data

    @contextmanager
    def window(self, name: str) -> Generator[Callable[[int, int], bytes]]:
        """Return a context with a function that reads parts (offset, size) of a file.

        A stored file is read in place. A compressed file of at most `MAX_UNPACKED_BYTES` is unpacked.
        """
        info = self._infos[name]
        if info.compress_type != zipfile.ZIP_STORED:
            data = self.read(name, MAX_UNPACKED_BYTES)
            yield lambda offset, size: data[offset : offset + size]
            return
        with open(self._source.path, "rb") as file:
            file.seek(info.header_offset)
            header = file.read(30)
            if not header.startswith(MAGIC) or len(header) < 30:
                raise zipfile.BadZipFile(name)
            start = info.header_offset + 30 + sum(struct.unpack_from("<HH", header, 26))

            def read_at(offset: int, size: int) -> bytes:
                file.seek(start + offset)
                return file.read(min(size, max(info.file_size - offset, 0)))

            yield read_at


@contextmanager
def open_archive(source: Source) -> Generator[Archive]:
    """Return a context with the archive of a file.

    Raises:
        FormatError: The archive cannot be read.
    """
    if source.is_gzipped:
        raise source.error(
            msg("models.archive_inside_gzip", "an archive inside gzip"),
            msg("models.unpack_first_gunzip", "unpack it first: gunzip"),
        )
    try:
        with zipfile.ZipFile(source.path) as file:
            yield Archive(source, file)
    except ARCHIVE_ERRORS as error:
        raise source.error(
            msg("models.damaged_zip_archive", f"damaged zip archive ({error})"),
            msg("models.cut_while_being_copied", "was it cut while being copied?"),
        ) from error


def entry_names(head: bytes) -> list[str]:
    """Return the names in the local headers in the head of an archive."""
    names: list[str] = []
    offset = 0 if head.startswith(MAGIC) else -1
    while 0 <= offset <= len(head) - 30:
        length = struct.unpack_from("<H", head, offset + 26)[0]
        names.append(head[offset + 30 : offset + 30 + length].decode("utf-8", "replace"))
        offset = head.find(MAGIC, offset + 30 + length)
    return names


def rejection_reason(name: str, head: bytes) -> FormatError | None:
    """Return why a file of torch or a Python pickle is not a model for visualprof, or `None` for any other file."""
    hint = msg(
        "models.export_model_torch_export",
        "export the model with torch.export.save, torch.onnx.export or visualprof.capture.add_graph",
    )
    if PICKLE_START.match(head):
        if name.lower().endswith(".tm"):
            hint = msg(
                "models.dump_traced_module_mge",
                "load it with MegEngine and dump a traced function: `function.dump('model.mge', keep_opr_name=True)`, "
                "or call visualprof.capture.add_graph",
            )
        return FormatError(
            msg(
                "models.python_pickle_opening_one",
                f"{name}: a Python pickle; opening one may run any code, so visualprof never does",
            ),
            hint,
        )
    if any(re.search(r"(^|/)data\.pkl$", n) for n in entry_names(head)):
        return FormatError(
            msg(
                "models.weights_python_pickle_without",
                f"{name}: weights in a Python pickle, without the structure of the model",
            ),
            hint,
        )
    return None
