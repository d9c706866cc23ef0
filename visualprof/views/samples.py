"""Images, sound and texts that a training program logged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from visualprof.errors import FormatError
from visualprof.reader.run_data.kinds import SampleKind
from visualprof.reader.run_data.media import Media, image_head, images_of, read_sound, sounds_of, texts_of
from visualprof.reader.run_data.rows import unix_seconds
from visualprof.reader.run_data.run import RunData
from visualprof.reader.run_data.samples import SampleSeries
from visualprof.views import Params, View
from visualprof.views.answers.kinds import CountColumn, NameColumn, SizeColumn, TextColumn, WordColumn
from visualprof.views.answers.table import Columns, Table, from_rows
from visualprof.views.measure.run_data.lines import line_name, needs_run_data, rows_of, select_series

_MAX_TEXT = 1000


@dataclass(frozen=True)
class SamplesParams(Params):
    """Parameters of the view.

    Attributes:
        tag: Regular expression that a part of the tag must match.
    """

    tag: str = ""


class SamplesColumns(Columns):
    """Samples, by tag, run and step. A value with several images has a row per image.

    Attributes:
        kind: `image`, `audio` or `text`.
        wall_time_s: Unix time.
        width: Width of an image in pixels.
        height: Height of an image in pixels.
        rate_hz: Frames per second of sound.
        frames: Length of sound in frames.
        size_bytes: Size of the stored file or text.
        text: The text, or the label of sound.
    """

    tag: NameColumn
    run: NameColumn
    kind: WordColumn
    step: CountColumn
    wall_time_s: CountColumn
    width: CountColumn
    height: CountColumn
    rate_hz: CountColumn
    frames: CountColumn
    size_bytes: SizeColumn
    text: TextColumn


class SamplesAnswer(Table[SamplesColumns]):
    """Samples of the matching tags.

    Attributes:
        warnings: Skipped parts of the files.
    """

    warnings: list[str]


class _Facts(NamedTuple):
    width: int | None = None
    height: int | None = None
    rate_hz: int | None = None
    frames: int | None = None
    size_bytes: int | None = None
    text: str | None = None


def compute(data: RunData, params: SamplesParams) -> SamplesAnswer:
    """Return every sample, sorted by tag, line and step."""
    series = select_series(data, ("image", "audio", "text"), params.tag)
    rows = [
        (entry.tag, line_name(entry.line, entry.writer), entry.kind, int(entry.step[row]), wall_s, *facts)
        for entry, row in rows_of(series)
        for wall_s in unix_seconds(entry.wall_ns[row : row + 1]).tolist()
        for facts in _facts(entry, row)
    ]
    return SamplesAnswer(columns=from_rows(SamplesColumns, rows), warnings=data.warnings())


def _facts(series: SampleSeries, row: int) -> list[_Facts]:
    if series.kind == "text":
        grid = series.decode(row, texts_of)
        text = "\n".join("\t".join(cells) for cells in grid.rows)
        return [_Facts(size_bytes=len(text.encode()), text=text[:_MAX_TEXT])]
    items = series.decode(row, images_of if series.kind == "image" else sounds_of)
    return [_media_facts(series.kind, media) for media in items]


def _media_facts(kind: SampleKind, media: Media) -> _Facts:
    """Return the facts about a file; only its size if it has another type."""
    size, label = len(media.content), media.label or None
    try:
        if kind == "image":
            head = image_head(media.content)
            return _Facts(head.width, head.height, size_bytes=size)
        sound = read_sound(media.content)
    except FormatError:
        return _Facts(size_bytes=size)
    return _Facts(rate_hz=sound.rate_hz, frames=sound.frames, size_bytes=size, text=label)


VIEW = View("samples", 6, needs_run_data, SamplesParams, compute, subject="data")
