"""The values of a tag in a file: scalars, and the places of other values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

from visualprof.reader.trace.types import Ints, Mask, Values

_MAX_CHUNKS = 64


class Points(NamedTuple):
    """Scalars of a series in the order of the file; all columns are (n,)."""

    step: Ints
    wall_ns: Ints
    value: Values

    def select(self, rows: Ints | Mask | slice) -> Points:
        """Return the points at the indexes, or where the mask is true."""
        return Points(self.step[rows], self.wall_ns[rows], self.value[rows])


class Samples(NamedTuple):
    """Other values of a series in the order of the file; all columns are (n,).

    Attributes:
        step: The step.
        wall_ns: Unix time.
        field: Number of the field that holds the value.
        start: Offset in the file of the message of the value.
        size: Size of that message.
    """

    step: Ints
    wall_ns: Ints
    field: Ints
    start: Ints
    size: Ints


Columns = TypeVar("Columns", Points, Samples)
_NO_INTS: Ints = np.zeros(0, np.int64)
_NO_POINTS = Points(_NO_INTS, _NO_INTS, np.zeros(0, np.float32))
_NO_SAMPLES = Samples(*[_NO_INTS] * 5)


@dataclass
class Series:
    """The values of a tag in a file.

    Attributes:
        plugin: Plugin that shows the values, "" if unknown.
        content: Settings of the plugin.
        display_name: Name to show, "" for the tag.
        description: Description in Markdown.
    """

    plugin: str = ""
    content: bytes = b""
    display_name: str = ""
    description: str = ""
    _points: list[Points] = field(default_factory=list[Points])
    _samples: list[Samples] = field(default_factory=list[Samples])

    @property
    def has_points(self) -> bool:
        """Whether the series has scalars."""
        return bool(self._points)

    @property
    def points(self) -> Points:
        """The scalars."""
        self._points = [join_chunks(self._points)] if self._points else []
        return self._points[0] if self._points else _NO_POINTS

    @property
    def samples(self) -> Samples:
        """The other values."""
        self._samples = [join_chunks(self._samples)] if self._samples else []
        return self._samples[0] if self._samples else _NO_SAMPLES

    def add_points(self, points: Points) -> None:
        """Append scalars."""
        self._points = _appended(self._points, points)

    def add_samples(self, samples: Samples) -> None:
        """Append other values."""
        self._samples = _appended(self._samples, samples)


def join_chunks(chunks: list[Columns]) -> Columns:
    """Return the rows of all chunks."""
    first = chunks[0]
    if len(chunks) == 1:
        return first
    return type(first)(*(np.concatenate(columns) for columns in zip(*chunks, strict=True)))


def _appended(chunks: list[Columns], chunk: Columns) -> list[Columns]:
    """Return the chunks with one more chunk; many chunks are joined into one."""
    chunks = [*chunks, chunk]
    return [join_chunks(chunks)] if len(chunks) > _MAX_CHUNKS else chunks
