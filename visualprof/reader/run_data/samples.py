"""Values other than scalars: where they are stored, joined by the rules for scalars, and read when requested."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from visualprof.errors import FormatError, SourceError
from visualprof.messages import msg
from visualprof.reader.protobuf import Message, ProtobufError
from visualprof.reader.run_data import events, records
from visualprof.reader.run_data.event_file import EventFile
from visualprof.reader.run_data.folders import DataFile
from visualprof.reader.run_data.framing import Kind
from visualprof.reader.run_data.join import WriterPoints, join_points
from visualprof.reader.run_data.kinds import SampleKind, sample_kind
from visualprof.reader.run_data.series import Points, Samples, Series, join_chunks
from visualprof.reader.trace.types import Ints

Decoded = TypeVar("Decoded")


class StoredValue(NamedTuple):
    """A value as it is stored.

    Attributes:
        file_kind: Format of the file.
        field: Number of the field that holds the value.
        body: The message of that field.
    """

    file_kind: Kind
    field: int
    body: Message


class StoredFile(NamedTuple):
    """A file with values."""

    path: str
    name: str
    kind: Kind


class SampleSeries(NamedTuple):
    """The values of a tag in a line, sorted by step, one per step. All columns are (n,).

    Attributes:
        line: The line.
        writer: Name of the writer's first file if parallel writers logged the tag; "" otherwise.
        tag: The tag.
        kind: Kind of the values.
        display_name: Name to show, "" for the tag.
        description: Description in Markdown.
        step: The steps.
        wall_ns: Unix times.
        files: The files.
        file: Index in `files`.
        location: Field, start and size of each value, in `files`.
    """

    line: str
    writer: str
    tag: str
    kind: SampleKind
    display_name: str
    description: str
    step: Ints
    wall_ns: Ints
    files: tuple[StoredFile, ...]
    file: Ints
    location: Samples

    def row_at(self, step: int | None) -> int:
        """Return the row of the last value at or before a step, or the first row."""
        return len(self.step) - 1 if step is None else max(int(np.searchsorted(self.step, step, side="right")) - 1, 0)

    def decode(self, row: int, decode: Callable[[StoredValue], Decoded]) -> Decoded:
        """Return a decoded value.

        Raises:
            SourceError: The file cannot be read, or was replaced since it was read.
            FormatError: The value is damaged.
        """
        try:
            return decode(self._read(row))
        except ProtobufError as error:
            problem = msg("reader.run_data_value_damaged", f"{self.tag}, step {int(self.step[row])}: {error}")
            raise FormatError(problem) from error

    def _read(self, row: int) -> StoredValue:
        file = self.files[int(self.file[row])]
        _, _, field, start, size = (int(column[row]) for column in self.location)
        try:
            with open(file.path, "rb") as stream:
                stream.seek(start)
                value = Message(stream.read(size))
            if value.text(events.TAG if file.kind == "tensorboard" else records.TAG) == self.tag:
                return StoredValue(file.kind, field, value.message(field))
        except OSError as error:
            problem = msg("reader.cannot_read_run_data", f"{file.name} cannot be read: {error.strerror}")
            raise SourceError(problem) from error
        except ProtobufError:
            pass
        raise SourceError(
            msg("reader.run_data_replaced", f"{file.name} was replaced while it was read"),
            msg("reader.try_again_moment", "try again in a moment"),
        )


def list_samples(files: Mapping[DataFile, EventFile], kinds: Collection[SampleKind]) -> list[SampleSeries]:
    """Return the values of the given kinds, sorted by tag, line and writer."""
    groups: dict[tuple[str, str, SampleKind], list[EventFile]] = {}
    for entry, file in files.items():
        for tag, series in file.series.items():
            kind = kind_of_series(file, series)
            if kind in kinds and kind is not None:
                groups.setdefault((tag, entry.line, kind), []).append(file)
    return [series for (tag, line, kind), group in sorted(groups.items()) for series in _join(line, tag, kind, group)]


def kind_of_series(file: EventFile, series: Series) -> SampleKind | None:
    """Return the kind of the values of a series, `None` without values that a page shows."""
    samples = series.samples
    return sample_kind(file.kind, series.plugin, int(samples.field[-1])) if file.kind and len(samples.step) else None


def _join(line: str, tag: str, kind: SampleKind, files: list[EventFile]) -> list[SampleSeries]:
    """Return the joined values of a tag in a line, one entry per parallel writer."""
    chunks = [file.series[tag].samples for file in files]
    samples, first = join_chunks(chunks), 0
    writers: list[WriterPoints] = []
    for file, chunk in zip(files, chunks, strict=True):
        rows = np.arange(first, first + len(chunk.step))
        writers.append(WriterPoints(file.name, Points(chunk.step, chunk.wall_ns, rows), file.restarts))
        first += len(rows)
    file_of_row = np.repeat(np.arange(len(files)), [len(chunk.step) for chunk in chunks])
    joined, series = join_points(writers), files[0].series[tag]
    return [
        SampleSeries(
            line=line,
            writer=part.file if len(joined) > 1 else "",
            tag=tag,
            kind=kind,
            display_name=series.display_name,
            description=series.description,
            step=part.points.step,
            wall_ns=part.points.wall_ns,
            files=tuple(StoredFile(file.path, file.name, file.kind or "tensorboard") for file in files),
            file=file_of_row[part.points.value],
            location=Samples(*(column[part.points.value] for column in samples)),
        )
        for part in joined
    ]
