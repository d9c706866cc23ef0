"""One file of run data, read piece by piece while it grows."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Callable
from io import FileIO
from typing import Any

import numpy as np

from visualprof.errors import SourceError
from visualprof.messages import msg
from visualprof.reader.protobuf import Message, ProtobufError
from visualprof.reader.run_data import events, records
from visualprof.reader.run_data.framing import MAX_SEARCH_BYTES, Frames, Kind, find_record, split_frames
from visualprof.reader.run_data.growth import Damage, FileState, Growth, series_head
from visualprof.reader.run_data.rows import ParsedRecords, RestartMark, ValueRows
from visualprof.reader.run_data.series import Points, Samples, Series
from visualprof.reader.trace.types import Mask

PIECE_BYTES = 2 << 20
MAX_TAGS, MAX_TAG_BYTES = 100_000, 1024
MAX_DAMAGES = 1000  # after which the rest of a file is not read
_HEAD_BYTES = 4096  # compared to notice that a file was replaced
_ROW_BYTES = 24
_SNIFF_BYTES = 64


class EventFile:
    """A file of run data. Each `update` continues after the last whole record.

    Args:
        path: Path of the file.
        place: Name of the file in messages (default: its folder and its name).

    Attributes:
        path: Path of the file.
        name: Name of the file.
        place: Name of the file in messages.
        kind: Format of the file, `None` until the file is long enough to recognize.
        series: The values by tag.
        restarts: Restarts that the writer recorded.
        damages: Skipped ranges, except a damaged end of the file.
        is_complete: Whether everything that can be read was read.
        version: Increases with each change of the values.
        mtime_ns: Modification time of the file.
        memory_bytes: Estimated size of the values in memory.
        problem: Why the file, or the rest of the file, is not read; "" otherwise.
    """

    def __init__(self, path: str, place: str = "") -> None:
        self.path, self.name = path, os.path.basename(path)
        self.place = place or place_of(path)
        self._inode: int = -1
        self._offset: int = 0
        self.version = self.mtime_ns = self._generation = 0
        self._reset(b"")

    def _reset(self, head: bytes) -> None:
        self.kind: Kind | None = None
        self.series: dict[str, Series] = {}
        self.restarts: list[RestartMark] = []
        self.damages: list[Damage] = []
        self.is_complete, self.problem, self.memory_bytes = False, "", 0
        self._mappings: list[mmap.mmap] = []
        self._head, self._offset = head, 0
        self._size: int = 0
        self._tail: Damage | None = None
        self.version += 1
        self._generation += 1

    @property
    def offset(self) -> int:
        """Offset after the last whole record that was read."""
        return self._offset

    def is_unchanged(self) -> bool:
        """Return whether the file was read completely and has not changed since.

        Raises:
            OSError: The file cannot be examined.
        """
        status = os.stat(self.path)
        read = self._inode, self._size, self.mtime_ns
        return self.is_complete and read == (status.st_ino, status.st_size, status.st_mtime_ns)

    def state(self) -> FileState:
        """Return how far the file was read, without values."""
        return FileState(
            generation=self._generation,
            kind=self.kind,
            inode=self._inode,
            head=self._head,
            offset=self._offset,
            size=self._size,
            mtime_ns=self.mtime_ns,
            restarts=self.restarts,
            damages=self.damages,
            tail=self._tail,
            is_complete=self.is_complete,
            problem=self.problem,
            series=[series_head(tag, series) for tag, series in self.series.items()],
        )

    def can_absorb(self, growth: Growth) -> bool:
        """Return whether stored values belong to this file, and follow its state.

        Raises:
            OSError: The file cannot be read.
        """
        state = growth.state
        if state.offset <= self._offset or (self._offset and state.generation != self._generation):
            return False
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            return state.size <= size and file.read(len(state.head)) == state.head

    def resume(self, state: FileState) -> None:
        """Continue after a state."""
        self._generation, self.kind, self.problem = state.generation, state.kind, state.problem
        self._inode, self._head, self._offset, self._size = state.inode, state.head, state.offset, state.size
        self.mtime_ns, self.is_complete, self._tail = state.mtime_ns, state.is_complete, state.tail
        self.restarts, self.damages = list(state.restarts), list(state.damages)
        for head in state.series:
            if head.tag not in self.series:
                self.series[head.tag] = Series(head.plugin, head.content, head.display_name, head.description)

    def growth(self) -> Growth:
        """Return all values with the state."""
        return Growth(self.state(), [(series.points, series.samples) for series in self.series.values()])

    def absorb(self, growth: Growth) -> None:
        """Append the values that another process read after the state of this file."""
        state = growth.state
        if state.generation != self._generation:
            self._reset(b"")
        self.resume(state)
        for head, (points, samples) in zip(state.series, growth.values, strict=True):
            if len(points.step):
                self.series[head.tag].add_points(points)
            if len(samples.step):
                self.series[head.tag].add_samples(samples)
            if growth.mapping is None:
                self.memory_bytes += _ROW_BYTES * (len(points.step) + len(samples.step))
        if growth.mapping is not None:
            self._mappings.append(growth.mapping)
        self.version += 1

    def release(self) -> None:
        """Release the memory of mapped values; the system maps the values again when they are used."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for mapping in self._mappings:
                mapping.madvise(mmap.MADV_DONTNEED)

    @property
    def all_damages(self) -> list[Damage]:
        """The skipped ranges, including a damaged end of the file."""
        return [*self.damages, self._tail] if self._tail else self.damages

    @property
    def missing_bytes(self) -> int:
        """Bytes at the end of the file that are not a whole record yet."""
        return self._size - self._offset if self.is_complete and not self.problem else 0

    def update(self, should_stop: Callable[[], bool] = lambda: False) -> bool:
        """Read the appended records, and return whether everything was read.

        A file that was replaced or became shorter is read again from its start.

        Args:
            should_stop: Whether to stop after the current piece of the file.

        Raises:
            SourceError: The file cannot be opened.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise SourceError(msg("reader.no_plain_file", f"{self.place} is not a regular file"))
                head = file.read(_HEAD_BYTES)
                is_same = status.st_ino == self._inode and status.st_size >= self._offset
                if not is_same or not head.startswith(self._head):
                    self._reset(head)
                self._head, self._inode, self._size = head, status.st_ino, status.st_size
                self.mtime_ns = status.st_mtime_ns
                self._choose_kind(head)
                self.is_complete = self.kind is None or bool(self.problem)
                while not self.is_complete:
                    self.is_complete = not self._read_piece(file)
                    if should_stop():
                        break
        except OSError as error:
            problem = msg("reader.cannot_read_run_data", f"{self.place} cannot be read: {error.strerror}")
            raise SourceError(problem) from error
        return self.is_complete

    def _choose_kind(self, head: bytes) -> None:
        if self.kind is None and len(head) >= _SNIFF_BYTES:
            self.kind = recognize_kind(head)
            if self.kind is None:
                self.problem = msg("reader.no_run_data", f"{self.place} is neither an event file nor a VisualDL log")

    def _read_piece(self, file: FileIO) -> bool:
        """Read the next records, and return whether there may be more."""
        assert self.kind
        wanted = PIECE_BYTES
        while True:
            file.seek(self._offset)
            data = _read_fully(file, wanted)
            is_end = self._offset + len(data) >= self._size
            frames = split_frames(data, self.kind)
            if len(frames.start):
                self._add(data, frames)
            if len(frames.start) or (frames.is_damaged and self._skip_damage(data, is_end)):
                return self._offset < self._size and not self.problem
            enough = MAX_SEARCH_BYTES + PIECE_BYTES if frames.is_damaged else frames.needed
            if is_end or len(data) >= enough:
                return False
            wanted = enough

    def _skip_damage(self, data: bytes, is_end: bool) -> bool:
        """Skip damage at the start of `data`, and return whether a valid record follows.

        Without a valid record, nothing is skipped yet, because the file may grow.
        """
        assert self.kind
        following = find_record(data, 1, self.kind)
        reason = msg("reader.run_data_length_damaged", "the length of a record is damaged")
        if following < 0:
            if is_end or len(data) > MAX_SEARCH_BYTES:
                self._tail = Damage(self._offset, self._size - self._offset, reason)
            if len(data) > MAX_SEARCH_BYTES:
                self._give_up()
            return False
        self._tail = None
        self._add_damage(Damage(self._offset, following, reason))
        self._offset += following
        return True

    def _add(self, data: bytes, frames: Frames) -> None:
        """Add the values of records; `data` starts at the current offset."""
        self._tail = None
        for row in np.flatnonzero(~frames.is_valid)[:MAX_DAMAGES].tolist():
            reason = msg("reader.run_data_checksum_wrong", "the checksum of a record is wrong")
            first, size = int(frames.start[row]), int(frames.size[row])
            self._add_damage(Damage(self._offset + first, size, reason))
        start, size = frames.start[frames.is_valid], frames.size[frames.is_valid]
        parse = events.parse_events if self.kind == "tensorboard" else records.parse_records
        parsed = parse(data, start, size)
        if parsed.damaged:
            reason = msg("reader.run_data_messages_damaged", f"{parsed.damaged:,} messages are damaged")
            self._add_damage(Damage(self._offset, frames.next, reason))
        self.restarts += parsed.restarts
        self._add_values(data, parsed)
        self._offset += frames.next
        self.version += 1

    def _add_damage(self, damage: Damage) -> None:
        self.damages.append(damage)
        if len(self.damages) >= MAX_DAMAGES:
            self._give_up()

    def _give_up(self) -> None:
        """Stop reading a file with too much damage."""
        self.problem = msg("reader.run_data_rest_not_read", f"{self.place} is too damaged: the rest of it is not read")

    def _add_values(self, data: bytes, parsed: ParsedRecords) -> None:
        bounds: list[int] = parsed.bounds.tolist()
        for tag, first, end in zip(parsed.tags, bounds[:-1], bounds[1:], strict=True):
            rows = parsed.rows.select(slice(first, end))
            series = self._series_of(tag, data, rows) if end > first else None
            if series:
                self._extend(series, data, rows)

    def _series_of(self, tag: bytes, data: bytes, rows: ValueRows) -> Series | None:
        """Return the series of a tag, `None` if there are too many or the tag is too long."""
        name = tag.decode("utf-8", "replace")
        series = self.series.get(name)
        if series is None:
            if len(self.series) >= MAX_TAGS or len(tag) > MAX_TAG_BYTES:
                reason = msg("reader.run_data_tags_not_read", "tags that are too long or too many were not read")
                if not any(damage.reason == reason for damage in self.damages):
                    self._add_damage(Damage(self._offset, 0, reason))
                return None
            series = self.series[name] = Series()
            if self.kind == "tensorboard":
                first = int(rows.start[0])
                _describe(series, data[first : first + int(rows.size[0])])
        return series

    def _extend(self, series: Series, data: bytes, rows: ValueRows) -> None:
        """Append the rows of one tag to its series."""
        self.memory_bytes += _ROW_BYTES * len(rows.step)
        dtype: np.dtype[Any] = np.dtype(np.float32)
        is_scalar = rows.field == (records.VALUE if self.kind == "visualdl" else events.SIMPLE_VALUE)
        if self.kind == "tensorboard":
            is_tensor = (rows.field == events.TENSOR) & (series.plugin == "scalars")
            if is_tensor.any():
                numbers, is_known, is_double = events.tensor_scalars(data, rows, is_tensor)
                at = np.flatnonzero(is_tensor)[is_known]
                rows.number[at], is_scalar[at] = numbers[is_known], True
                dtype = np.dtype(np.float64) if is_double.any() else dtype
        points = Points(rows.step, rows.wall_ns, rows.number.astype(dtype))
        if is_scalar.all():
            series.add_points(points)
            return
        if is_scalar.any():
            series.add_points(points.select(is_scalar))
        is_sample = ~is_scalar & (rows.field > 0)
        if is_sample.any():
            series.add_samples(_samples(rows, is_sample, self._offset))


def _samples(rows: ValueRows, chosen: Mask, offset: int) -> Samples:
    return Samples(
        rows.step[chosen],
        rows.wall_ns[chosen],
        rows.field[chosen].astype(np.int64),
        rows.start[chosen] + offset,
        rows.size[chosen],
    )


def _describe(series: Series, value: bytes) -> None:
    """Set the properties of a series from the metadata of its first value."""
    try:
        metadata = Message(value).message(events.METADATA)
        plugin = metadata.message(1)
        series.plugin, series.content = plugin.text(1), bytes(plugin.content(2))
        series.display_name, series.description = metadata.text(2), metadata.text(3)
    except ProtobufError:
        return


def _read_fully(file: FileIO, size: int) -> bytes:
    """Return the next bytes, fewer only at the end of the file."""
    parts: list[bytes] = []
    while size > 0 and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def place_of(path: str, line: str = "") -> str:
    """Return the name of a file in messages: the folder of its run, its line, and its name."""
    folder = os.path.dirname(path)
    run_folder = folder[: -len(line)].rstrip("/\\") if line else folder
    return "/".join(filter(None, (os.path.basename(run_folder), line, os.path.basename(path))))


def recognize_kind(head: bytes) -> Kind | None:
    """Return the format of a file of run data by its first bytes, `None` for another file."""
    kinds: tuple[Kind, ...] = ("tensorboard", "visualdl")
    return next((kind for kind in kinds if starts_with_record(head, kind)), None)


def starts_with_record(head: bytes, kind: Kind) -> bool:
    """Return whether a record of this format starts at the first byte."""
    frames = split_frames(head, kind)
    return len(frames.start) > 0 or (not frames.is_damaged and frames.needed > 0)
