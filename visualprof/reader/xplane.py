"""Planes of an XSpace: a device or the host, with lines and events as columns, and statistics by name.

Schema: tsl/profiler/protobuf/xplane.proto; the constants are its field numbers. The meaning of the names:
visualprof/reader/formats/xspace.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from visualprof.reader.fields import Fields
from visualprof.reader.trace.types import Ints, Mask

MAX_TEXT_BYTES = 2000
_DOUBLE, _TEXT, _REFERENCE = 2, 5, 7  # fields of a statistic; 3 and 4 are integers


class StringTable:
    """Texts of a file by their ids in the trace's string table.

    Args:
        data: The file.
        string: Returns the id of a text.
    """

    def __init__(self, data: bytes, string: Callable[[str], int]) -> None:
        self._data, self._string = data, string
        self._texts = {0: ""}

    def id(self, text: str) -> int:
        """Return the id of a text."""
        number = self._string(text)
        self._texts[number] = text
        return number

    def text(self, number: int) -> str:
        """Return the text of an id from `id`."""
        return self._texts[number]

    def read(self, start: int, size: int) -> str:
        """Return a text of the file; invalid UTF-8 becomes replacement characters."""
        return self._data[start : start + min(size, MAX_TEXT_BYTES)].decode("utf-8", "replace")

    def message_texts(self, fields: Fields, messages: int) -> list[str]:
        """Return a text per message, "" if it has none."""
        texts = [""] * messages
        spans = zip(fields.message.tolist(), fields.value.tolist(), fields.size.tolist(), strict=True)
        for message, start, size in spans:
            texts[message] = self.read(start, size)
        return texts


class Statistics:
    """Statistics of events: each has an owner, a name and a value.

    Args:
        owner: (k,) index of the owner of each statistic.
        content: The fields of the statistics.
        names: String ids of names by the numbers that statistics use.
        texts: String table of the file.
    """

    def __init__(self, owner: Ints, content: Fields, names: dict[int, int], texts: StringTable) -> None:
        values = content.select(content.number > 1)
        self._owner = owner[values.message]
        self._kind, self._value, self._size = values.number, values.value, values.size
        self._name = content.last_values(1, len(owner))[values.message]
        self._names, self._texts = names, texts

    def numbers(self, name: str, owners: int, missing: int) -> Ints:
        """Return an integer per owner, (owners,), or `missing`."""
        is_integer = self._rows_named(name) & (self._size < 0) & (self._kind != _REFERENCE)
        column = np.full(owners, missing, np.int64)
        column[self._owner[is_integer]] = self._value[is_integer]
        real = is_integer & (self._kind == _DOUBLE)
        if real.any():
            numbers = np.nan_to_num(self._value[real].view(np.float64), posinf=0, neginf=0)
            column[self._owner[real]] = np.clip(numbers, -(2.0**62), 2.0**62).astype(np.int64)
        return column

    def texts(self, name: str, owners: int) -> Ints:
        """Return the string id of a text per owner, (owners,), 0 if missing."""
        column = np.zeros(owners, np.int64)
        refers = self._rows_named(name) & (self._kind == _REFERENCE)
        numbers, place = np.unique(self._value[refers], return_inverse=True)
        ids = np.array([self._names.get(number, 0) for number in numbers.tolist()] or [0], np.int64)
        column[self._owner[refers]] = ids[place] if len(numbers) else 0
        for i in np.flatnonzero(self._rows_named(name) & (self._kind == _TEXT) & (self._size >= 0)).tolist():
            column[self._owner[i]] = self._texts.id(self._texts.read(int(self._value[i]), int(self._size[i])))
        return column

    def _rows_named(self, name: str) -> Mask:
        mask = np.zeros(len(self._name), bool)
        for number, text in self._names.items():
            if self._texts.text(text) == name:
                mask |= self._name == number
        return mask


class Plane:
    """A device or the host.

    Args:
        texts: String table of the file.
        fields: Parses messages of the file by their bounds.
        start: Offset of the plane.
        end: End of the plane.

    Attributes:
        lines: Names of the lines.
        line_ids: Numbers of the lines.
        name: (n,) string id of each event's name.
        line: (n,) index of each event's line.
        ts: (n,) start in ns.
        dur: (n,) duration in ns, -1 for an instant.
        timed: (n,) whether the event has a time; other events are aggregates, or damaged.
    """

    def __init__(self, texts: StringTable, fields: Callable[[Ints, Ints], Fields], start: int, end: int) -> None:
        content = fields(np.array([start]), np.array([end]))
        self.title = texts.message_texts(content.with_number(2, texts=True), 1)[0]
        self._texts, self._fields = texts, fields
        numbers, names, _ = self._entries(content.with_number(5, texts=True))
        self._names = {number: texts.id(name) for number, name in zip(numbers, names, strict=True)}
        numbers, names, metadata = self._entries(content.with_number(4, texts=True))
        self.event_names = np.array([0, *map(texts.id, names)], np.int64)
        plane_statistics = content.with_number(6, texts=True)
        self._plane_statistics = self._statistics(np.zeros(len(plane_statistics.value), np.int64), plane_statistics)
        self._add_lines(content.with_number(3, texts=True), numbers)
        self._metadata_statistics = self._statistics(1 + metadata.message.astype(np.int64), metadata)

    def _add_lines(self, lines: Fields, metadata: list[int]) -> None:
        """Read the lines and their events as columns; `metadata` has the numbers of the event metadata, in order."""
        content, count = self._fields(lines.value, lines.end), len(lines.value)
        display_names, names = (
            self._texts.message_texts(content.with_number(number, texts=True), count) for number in (11, 2)
        )
        self.lines = [a or b for a, b in zip(display_names, names, strict=True)]
        self.line_ids, line_start = content.last_values(1, count), content.last_values(3, count)
        events = content.with_number(4, texts=True)
        n = len(events.value)
        event_fields = self._fields(events.value, events.end)
        self.line = events.message.astype(np.int64)
        offset_ps, dur_ps = event_fields.last_values(2, n), event_fields.last_values(3, n, -1)
        self.ts = line_start[self.line] + offset_ps // 1000
        self.dur = np.where(dur_ps < 0, -1, (offset_ps + dur_ps) // 1000 - offset_ps // 1000)
        self.timed = (np.bincount(event_fields.message, minlength=n) > 0) & (event_fields.last_values(5, n) == 0)
        order = np.argsort(metadata, kind="stable")
        numbers = np.array(metadata, np.int64)[order]
        number = event_fields.last_values(1, n)
        index = np.searchsorted(numbers, number)
        is_known = (index < len(numbers)) & (np.append(numbers, 0)[index] == number)
        self._metadata = np.where(is_known, 1 + np.append(order, 0)[index], 0)
        self.name = self.event_names[self._metadata]
        stats = event_fields.with_number(4, texts=True)
        self._event_statistics = self._statistics(stats.message.astype(np.int64), stats)

    def plane_number(self, name: str) -> int:
        """Return an integer statistic of the plane itself, -1 if missing."""
        return int(self._plane_statistics.numbers(name, 1, -1)[0])

    def plane_text(self, name: str) -> str:
        """Return a text statistic of the plane itself, "" if missing."""
        return self._texts.text(int(self._plane_statistics.texts(name, 1)[0]))

    def number(self, name: str, missing: int = -1) -> Ints:
        """Return (n,) an integer statistic per event, of the event itself or of its metadata."""
        values = self._event_statistics.numbers(name, len(self.line), missing)
        return np.where(
            values == missing,
            self._metadata_statistics.numbers(name, len(self.event_names), missing)[self._metadata],
            values,
        )

    def text(self, name: str) -> Ints:
        """Return (n,) the string id of a text statistic per event, 0 if missing."""
        values = self._event_statistics.texts(name, len(self.line))
        return np.where(
            values == 0, self._metadata_statistics.texts(name, len(self.event_names))[self._metadata], values
        )

    def _entries(self, entries: Fields) -> tuple[list[int], list[str], Fields]:
        """Return the entries of a map: numbers, display names, and the statistics of each entry."""
        inside, n = self._fields(entries.value, entries.end), len(entries.value)
        values = inside.with_number(2, texts=True)
        content = self._fields(values.value, values.end)
        display_names, plain_names = (
            self._texts.message_texts(content.with_number(number, texts=True), len(values.value)) for number in (4, 2)
        )
        names = [a or b for a, b in zip(display_names, plain_names, strict=True)]
        return inside.last_values(1, n)[values.message].tolist(), names, content.with_number(5, texts=True)

    def _statistics(self, owner: Ints, stats: Fields) -> Statistics:
        return Statistics(owner, self._fields(stats.value, stats.end), self._names, self._texts)
