"""List the datasets of an HDF5 file: path, type and shape. Their contents are not read.

Reads what HDF5 writes by default: a superblock of version 0 or 1, groups with a B-tree, object headers of version 1.
Format specification: https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t11.html
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from visualprof.messages import msg

MAGIC = b"\x89HDF\r\n\x1a\n"
MAX_OBJECTS = 200_000
MAX_DEPTH = 64
MAX_RANK = 32
MAX_READ_BYTES = 1 << 28  # of headers and names together
MAX_BLOCK_BYTES = 1 << 20
MAX_NAME_BYTES = 1024
_UNDEFINED = 0xFFFF_FFFF_FFFF_FFFF
_SYMBOL_TABLE, _CONTINUATION, _DATASPACE, _DATATYPE = 0x11, 0x10, 0x01, 0x03
_FIXED, _FLOAT, _STRING = 0, 1, 3  # classes of datatypes
_Read = Callable[[int, int], bytes]


class Hdf5Error(ValueError):
    """The bytes are not an HDF5 file that can be read."""


@dataclass(frozen=True)
class Dataset:
    """A dataset.

    Attributes:
        path: Names of its groups and its own name, joined with `/`.
        dtype: The element type, "" if it is not a number.
        shape: Its sizes.
        item_bytes: Size of an element.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    item_bytes: int


def datasets(read: _Read) -> Iterator[Dataset]:
    """Yield the datasets in the order of their paths.

    Args:
        read: Returns the bytes at an offset, fewer at the end of the file.

    Raises:
        Hdf5Error: The file is damaged, or has a newer layout.
    """
    file = _File(read)
    head = file.bytes(0, 96)
    if not head.startswith(MAGIC):
        raise Hdf5Error(msg("reader.hdf5_no_magic", "the signature of HDF5 is missing"))
    version = head[8]
    if version > 1 or head[13:15] != b"\x08\x08":
        raise Hdf5Error(msg("reader.hdf5_layout", f"HDF5 layout version {version} is not supported"))
    (root,) = struct.unpack_from("<Q", head, 64 + 4 * version)
    yield from file.members(root, "", 0)


class _File:
    """Reads blocks of a file, with a limit on their total size and on the number of objects."""

    def __init__(self, read: _Read) -> None:
        self._read = read
        self._budget = MAX_READ_BYTES
        self._seen: set[int] = set()

    def bytes(self, offset: int, size: int) -> bytes:
        """Return a block.

        Raises:
            Hdf5Error: It is not in the file, or too much was read.
        """
        self._budget -= size
        if size > MAX_BLOCK_BYTES or self._budget < 0:
            raise Hdf5Error(msg("reader.hdf5_too_large", "its tables are too large for a model"))
        data = self._read(offset, size) if offset < _UNDEFINED >> 1 else b""
        if len(data) < size:
            raise Hdf5Error(msg("reader.hdf5_outside", f"byte {offset + size:,} is outside of the file"))
        return data

    def members(self, header: int, path: str, depth: int) -> Iterator[Dataset]:
        """Yield the object itself if it is a dataset, or the datasets in a group. An object is visited once."""
        if header in self._seen:
            return
        self._seen.add(header)
        if depth > MAX_DEPTH or len(self._seen) > MAX_OBJECTS:
            raise Hdf5Error(msg("reader.hdf5_groups", "it has more groups than can be read"))
        messages = self._messages(header)
        if _SYMBOL_TABLE in messages:
            tree, heap = struct.unpack_from("<QQ", _padded(messages[_SYMBOL_TABLE], 16))
            names = self._heap(heap)
            for name_offset, child in self._entries(tree, set()):
                name = _name(names, name_offset)
                yield from self.members(child, f"{path}/{name}" if path else name, depth + 1)
        elif _DATASPACE in messages and _DATATYPE in messages:
            yield _dataset(path, messages[_DATASPACE], messages[_DATATYPE])

    def _messages(self, header: int) -> dict[int, bytes]:
        """Return the messages of an object header by type, the first of each type."""
        start = self.bytes(header, 16)
        if start[0] != 1:
            raise Hdf5Error(msg("reader.hdf5_layout", f"HDF5 layout version {start[0]} is not supported"))
        (size,) = struct.unpack_from("<I", start, 8)
        blocks, messages = [(header + 16, size)], dict[int, bytes]()
        for block, length in blocks:
            if len(blocks) > MAX_DEPTH:
                raise Hdf5Error(msg("reader.hdf5_too_large", "its tables are too large for a model"))
            data, offset = self.bytes(block, length), 0
            while offset + 8 <= len(data):
                kind, length = struct.unpack_from("<HH", data, offset)
                content = data[offset + 8 : offset + 8 + length]
                messages.setdefault(kind, content)
                if kind == _CONTINUATION:
                    blocks.append(struct.unpack_from("<QQ", _padded(content, 16)))
                offset += 8 + length
        return messages

    def _heap(self, offset: int) -> bytes:
        """Return the names of a group."""
        head = self.bytes(offset, 32)
        if head[:4] != b"HEAP":
            raise _misplaced("HEAP", offset)
        size, _, start = struct.unpack_from("<QQQ", head, 8)
        return self.bytes(start, size)

    def _entries(self, offset: int, seen: set[int]) -> Iterator[tuple[int, int]]:
        """Yield offset of the name and header of each member of a group, in the order of the names."""
        stack = [offset]
        while stack:
            offset = stack.pop()
            if offset in seen:
                raise _misplaced("TREE", offset)
            seen.add(offset)
            head = self.bytes(offset, 8)
            (count,) = struct.unpack_from("<H", head, 6)
            if head[:4] == b"TREE":
                keys = self.bytes(offset + 24, 8 + 16 * count)
                stack += [struct.unpack_from("<Q", keys, 8 + 16 * i)[0] for i in reversed(range(count))]
            elif head[:4] == b"SNOD":
                table = self.bytes(offset + 8, 40 * count)
                yield from (struct.unpack_from("<QQ", table, 40 * i) for i in range(count))
            else:
                raise _misplaced("TREE", offset)


def _misplaced(kind: str, offset: int) -> Hdf5Error:
    return Hdf5Error(msg("reader.hdf5_block", f"there is no {kind} at byte {offset:,}"))


def _padded(data: bytes, size: int) -> bytes:
    return data.ljust(size, b"\xff")


def _name(names: bytes, offset: int) -> str:
    end = names.find(b"\0", offset, offset + MAX_NAME_BYTES)
    return names[offset : end if end >= 0 else offset + MAX_NAME_BYTES].decode("utf-8", "replace")


def _dataset(path: str, space: bytes, kind: bytes) -> Dataset:
    """Return a dataset of its dataspace and datatype messages."""
    rank, start = (space[1], 8 if space[0] == 1 else 4) if len(space) >= 2 else (0, 0)
    if rank > MAX_RANK or len(space) < start + 8 * rank or len(kind) < 8:
        raise Hdf5Error(msg("reader.hdf5_dataset", f"the dataset {path!r} is damaged"))
    shape = struct.unpack_from(f"<{rank}Q", space, start)
    (size,) = struct.unpack_from("<I", kind, 4)
    number_class, is_signed = kind[0] & 15, kind[1] & 8
    prefix = {_FIXED: "int" if is_signed else "uint", _FLOAT: "float"}.get(number_class, "")
    dtype = f"{prefix}{8 * size}" if prefix and size <= 8 else ""
    return Dataset(path, dtype, shape, 0 if number_class == _STRING else size)
