"""A memory snapshot of any size: opcodes as Python's pickler writes them, with one list of frames per entry."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

BLOCK_BYTES, SEGMENT_BYTES = 1 << 20, 1 << 30
LIVE, STACKS = 512, 400
Item = str | int | Callable[[], bytes]


class Writer:
    """Opcodes of protocol 4 with a memo of texts.

    Args:
        stacks: Number of distinct call stacks.
        depth: Frames per stack.
    """

    def __init__(self, stacks: int, depth: int) -> None:
        self._memo: dict[str, int] = {}
        self._size = 0
        self._frames = [self._frame_row(number) for number in range(stacks * 2)]
        self._stacks = [[(stack + level * 7) % (stacks * 2) for level in range(depth)] for stack in range(stacks)]
        self._written: dict[int, int] = {}

    def _frame_row(self, number: int) -> tuple[str, int, str]:
        return f"/job/package_{number % 20}/module_{number % 50}.py", number, f"function_{number}"

    def _memoized(self, code: bytes) -> bytes:
        self._size += 1
        return code + b"\x94"

    def _get(self, index: int) -> bytes:
        return b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index)

    def text(self, text: str) -> bytes:
        """Return a text, or its place in the memo."""
        if text in self._memo:
            return self._get(self._memo[text])
        self._memo[text] = self._size
        data = text.encode()
        return self._memoized(b"\x8c" + bytes([len(data)]) + data)

    def number(self, value: int) -> bytes:
        """Return an integer."""
        if 0 <= value < 256:
            return b"K" + bytes([value])
        return b"J" + struct.pack("<i", value) if value < 2**31 else b"\x8a\x08" + struct.pack("<q", value)

    def mapping(self, **items: Item) -> bytes:
        """Return a dictionary. Values are texts, numbers, or functions that return opcodes."""
        # One after the other, because each may add texts to the memo.
        return (
            b"}("
            + b"".join([part for key, item in items.items() for part in (self.text(key), self._value(item))])
            + b"u"
        )

    def _value(self, item: Item) -> bytes:
        return self.text(item) if isinstance(item, str) else self.number(item) if isinstance(item, int) else item()

    def frames(self, stack: int) -> bytes:
        """Return a list of the frames of a stack; each frame is written once."""
        return b"](" + b"".join([self._frame(frame) for frame in self._stacks[stack]]) + b"e"

    def _frame(self, frame: int) -> bytes:
        if frame in self._written:
            return self._get(self._written[frame])
        self._written[frame] = self._size
        file, line, name = self._frames[frame]
        start = self._memoized(b"}")
        return start + self.mapping(filename=file, line=line, name=name)[1:]


def snapshot_parts(entries: int, depth: int, stacks: int = STACKS) -> Iterator[bytes]:
    """Yield a snapshot of one segment, whose blocks are allocated and released in turn.

    Args:
        entries: Number of entries; 3 per allocation.
        depth: Frames per stack.
        stacks: Number of distinct call stacks.
    """
    out = Writer(stacks, depth)
    base, live = 0x7F0000000000, min(LIVE, entries // 6)
    yield b"\x80\x04}(" + out.text("segments") + b"]("
    yield (
        out.mapping(
            device=0,
            address=base,
            total_size=SEGMENT_BYTES,
            stream=0,
            segment_type="large",
            segment_pool_id=lambda: b"K\x00K\x00\x86",
            is_expandable=lambda: b"\x89",
            frames=lambda: b"]",
            blocks=lambda: _blocks(out, base),
        )
        + b"e"
    )
    yield out.text("device_traces") + b"](" + b"]"
    batch: list[bytes] = []
    for entry in range(entries):
        cycle, action = divmod(entry, 3)
        slot = cycle % live
        addr = base + slot * 2 * BLOCK_BYTES
        name = ("alloc", "free_requested", "free_completed")[action]
        batch.append(
            out.mapping(
                action=name,
                addr=addr,
                size=BLOCK_BYTES + 4096,
                stream=0,
                time_us=1_700_000_000_000_000 + entry * 3,
                frames=lambda stack=(cycle * 31) % stacks: out.frames(stack),
                compile_context="N/A",
            )
        )
        if len(batch) == 1000 or entry == entries - 1:
            yield b"(" + b"".join(batch) + b"e"
            batch.clear()
    yield b"eu."


def _blocks(out: Writer, base: int) -> bytes:
    return (
        b"]("
        + out.mapping(address=base, size=SEGMENT_BYTES, requested_size=0, state="inactive", frames=lambda: b"]")
        + b"e"
    )


def write_snapshot(path: Path, entries: int, depth: int) -> Path:
    """Write a snapshot, and return its path."""
    with path.open("wb") as file:
        for part in snapshot_parts(entries, depth):
            file.write(part)
    return path
