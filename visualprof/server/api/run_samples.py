"""Run data other than scalars: its kinds, and the images, sound and texts of a step."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import numpy as np
from flask import Response
from msgspec import Meta

from visualprof.errors import FormatError, NotFound
from visualprof.messages import msg
from visualprof.reader.run_data.embeddings import list_embeddings
from visualprof.reader.run_data.kinds import DataKind, SampleKind
from visualprof.reader.run_data.media import MAX_PIXELS, Media, image_head, images_of, read_sound, sounds_of, texts_of
from visualprof.reader.run_data.run import RunData
from visualprof.reader.run_data.samples import SampleSeries
from visualprof.reader.trace import Floats
from visualprof.server.responses import bytes_response
from visualprof.server.routes import Query, Resource, get
from visualprof.server.run_data_store import RUN_DATA_ERRORS, RunDataStore, RunsQuery, version_of
from visualprof.server.services import Services
from visualprof.views.answers.kinds import CountColumn
from visualprof.views.measure.run_data.lines import line_name

_MEDIA_KINDS: tuple[SampleKind, ...] = ("image", "audio", "text")
SeriesPage = Literal["samples", "distributions", "curves"]
_KINDS: dict[SeriesPage, tuple[SampleKind, ...]] = {
    "samples": _MEDIA_KINDS,
    "distributions": ("histogram",),
    "curves": ("pr_curve", "roc_curve"),
}
_WAVEFORM_BUCKETS = 400
_ERRORS = RUN_DATA_ERRORS | {404: "there is no such run or value", 422: "the value is damaged or not of a known type"}


class SeriesQuery(RunsQuery, kw_only=True):
    """The runs and the page that shows the values."""

    page: Annotated[SeriesPage, Meta(description="which kinds of values")]


class SampleQuery(Query):
    """A value of a line."""

    run: Annotated[str, Meta(description="id of a run")]
    line: Annotated[str, Meta(description="name of a line, `.` for the run's own folder", max_length=4096)]
    tag: Annotated[str, Meta(description="name of a tag", max_length=1024)]
    step: Annotated[int, Meta(description="the last value at or before this step; the last one when absent")] | None = (
        None
    )


class BlobQuery(SampleQuery, kw_only=True):
    """A file of a value."""

    item: Annotated[int, Meta(ge=0, description="index of the image or the sound in the value")] = 0


class KindsAnswer(msgspec.Struct):
    """The kinds of run data.

    Attributes:
        complete: Whether all files were read; if not, ask again.
        kinds: The kinds.
    """

    complete: bool
    kinds: list[DataKind]


class SeriesLine(msgspec.Struct):
    """The steps with values of a tag in a line.

    Attributes:
        run: Id of the run.
        line: Name of the line within the run.
        tag: The tag.
        kind: Kind of the values.
        display_name: Name to show, or null.
        description: Description in Markdown, or null.
        step: The steps.
    """

    run: str
    line: str
    tag: str
    kind: SampleKind
    display_name: str | None
    description: str | None
    step: CountColumn


class SeriesAnswer(msgspec.Struct):
    """Values of runs, without their content.

    Attributes:
        version: Changes with the data.
        complete: Whether all files were read; if not, ask again.
        lines: The lines, by tag.
        warnings: Skipped parts of the files.
    """

    version: str
    complete: bool
    lines: list[SeriesLine]
    warnings: list[str]


class SampleItem(msgspec.Struct, kw_only=True):
    """An image or a sound.

    Attributes:
        size_bytes: Size of the file.
        problem: Why it is not shown, or null.
        label: Description, or null.
        width: Width of an image in pixels.
        height: Height of an image in pixels.
        rate_hz: Frames per second of sound.
        channels: Number of channels.
        frames: Length of sound in frames.
        low: Smallest value in each of equal intervals of sound, -1 to 1; empty if it is unknown.
        high: Largest value in each interval.
    """

    size_bytes: int
    problem: str | None = None
    label: str | None = None
    width: int | None = None
    height: int | None = None
    rate_hz: int | None = None
    channels: int | None = None
    frames: int | None = None
    low: list[float] = []
    high: list[float] = []


class SampleAnswer(msgspec.Struct):
    """The value of a tag at a step.

    Attributes:
        step: The step.
        wall_ns: Unix time, or null if unknown.
        items: Images or sounds.
        texts: Rows of texts; a single cell for a plain text.
        is_cut: Whether the texts were cut.
    """

    step: int
    wall_ns: int | None
    items: list[SampleItem]
    texts: list[list[str]]
    is_cut: bool


class RunSamples(Resource):
    """The routes for samples."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._store = services.get(RunDataStore)

    @get("/data/kinds", errors=RUN_DATA_ERRORS, needs="link")
    def kinds(self, query: RunsQuery) -> KindsAnswer:
        """List the kinds of run data that runs have."""
        runs, is_complete = self._store.load_all(query.runs)
        kinds: set[DataKind] = {kind for data in runs.values() for kind in data.kinds()}
        if any(list_embeddings(data) for data in runs.values()):
            kinds.add("embedding")
        return KindsAnswer(is_complete, sorted(kinds))

    @get("/data/series", errors=RUN_DATA_ERRORS, needs="link")
    def series(self, query: SeriesQuery) -> SeriesAnswer:
        """List the tags and steps with values of a page in runs."""
        runs, is_complete = self._store.load_all(query.runs)
        lines = [_line(run, entry) for run, data in runs.items() for entry in data.samples(_KINDS[query.page])]
        warnings = [text for data in runs.values() for text in data.warnings()]
        return SeriesAnswer(version_of(runs), is_complete, sorted(lines, key=lambda line: line.tag), warnings)

    @get("/data/sample", errors=_ERRORS, needs="link")
    def sample(self, query: SampleQuery) -> SampleAnswer:
        """Describe the value of a tag at a step, without the content of images and sounds."""
        series, row = self._find(query)
        wall_ns = int(series.wall_ns[row])
        answer = SampleAnswer(int(series.step[row]), wall_ns if wall_ns > 0 else None, [], [], is_cut=False)
        if series.kind == "text":
            answer.texts, answer.is_cut = series.decode(row, texts_of)
        else:
            answer.items = [_describe(series, media) for media in _media(series, row)]
        return answer

    @get("/data/blob", media=("image/png", "audio/wav"), errors=_ERRORS, needs="link")
    def blob(self, query: BlobQuery) -> Response:
        """Return an image or a sound of a value."""
        series, row = self._find(query)
        items = _media(series, row)
        if query.item >= len(items):
            raise NotFound(msg("server.no_such_item", f"there is no such item (number of items: {len(items)})"))
        content = items[query.item].content
        if series.kind == "audio":
            read_sound(content)
            return bytes_response(bytes(content), "audio/wav")
        head = image_head(content)
        if head.width * head.height > MAX_PIXELS:
            raise FormatError(_too_large(head.width, head.height))
        return bytes_response(bytes(content), head.mime)

    def _find(self, query: SampleQuery) -> tuple[SampleSeries, int]:
        """Return the series of a request and the row of its step.

        Raises:
            NotFound: There is no such value.
        """
        data, _ = self._store.load(query.run)
        series = _find_series(data, query.line, query.tag)
        return series, series.row_at(query.step)


def _find_series(data: RunData, line: str, tag: str) -> SampleSeries:
    """Return the values of a tag in a line.

    Raises:
        NotFound: The line has no such value.
    """
    for series in data.samples(_MEDIA_KINDS):
        if series.tag == tag and line_name(series.line, series.writer) == line:
            return series
    raise NotFound(msg("server.no_such_value", f"the line {line[:200]!r} has no value with the tag {tag[:200]!r}"))


def _line(run: str, series: SampleSeries) -> SeriesLine:
    return SeriesLine(
        run=run,
        line=line_name(series.line, series.writer),
        tag=series.tag,
        kind=series.kind,
        display_name=series.display_name or None,
        description=series.description or None,
        step=series.step,
    )


def _media(series: SampleSeries, row: int) -> list[Media]:
    if series.kind == "text":
        return []
    return series.decode(row, images_of if series.kind == "image" else sounds_of)


def _describe(series: SampleSeries, media: Media) -> SampleItem:
    item = SampleItem(size_bytes=len(media.content), label=media.label or None)
    try:
        if series.kind == "image":
            head = image_head(media.content)
            item.width, item.height = head.width, head.height
            if head.width * head.height > MAX_PIXELS:
                item.problem = _too_large(head.width, head.height)
        else:
            sound = read_sound(media.content)
            item.rate_hz, item.channels, item.frames = sound.rate_hz, sound.channels, sound.frames
            item.low, item.high = _waveform(sound.samples)
    except FormatError as error:
        item.problem = error.error
    return item


def _too_large(width: int, height: int) -> str:
    return msg("server.image_too_large", f"the image has {width:,} x {height:,} pixels, which is too large to show")


def _waveform(samples: Floats) -> tuple[list[float], list[float]]:
    """Return the smallest and largest value of all channels in equal intervals."""
    if not len(samples):
        return [], []
    starts = np.unique(np.linspace(0, len(samples), _WAVEFORM_BUCKETS, endpoint=False).astype(np.int64))
    low = np.minimum.reduceat(samples.min(axis=1), starts)
    high = np.maximum.reduceat(samples.max(axis=1), starts)
    return np.round(low, 4).tolist(), np.round(high, 4).tolist()
