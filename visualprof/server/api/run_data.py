"""Run data: the tags of runs, and the points of a tag for a chart or as CSV."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import numpy as np
from flask import Response
from msgspec import Meta

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.run_data.event_file import Points
from visualprof.reader.run_data.join import JoinedPoints
from visualprof.reader.run_data.layouts import LayoutChart, list_layouts
from visualprof.reader.run_data.rows import unix_seconds
from visualprof.reader.run_data.run import RunData
from visualprof.reader.trace import Floats
from visualprof.server.api.recorded_scalars import RECORDED_PREFIX, RecordedScalars, Recording, points_of, recorded_tags
from visualprof.server.api.scalars_csv import scalars_csv
from visualprof.server.api.step_time_scalars import STEP_TIME_TAG, StepTimeScalars, step_time_lines, step_time_tags
from visualprof.server.responses import csv_response
from visualprof.server.routes import Resource, get
from visualprof.server.run_data_store import RUN_DATA_ERRORS, RunDataStore, RunsQuery, version_of
from visualprof.server.services import Services
from visualprof.views.answers.kinds import CountColumn, NameColumn, TextColumn
from visualprof.views.measure.run_data.buckets import Axis, Buckets, axis_values, earliest_ns, make_buckets
from visualprof.views.measure.run_data.lines import line_name
from visualprof.views.measure.run_data.smoothing import MAX_SMOOTHING, smooth
from visualprof.views.measure.run_data.spikes import find_spikes

_MAX_MARKS = 200
_MAX_SPIKES = 20
MAX_CHART_TAGS = 50
_TAGS = msgspec.json.Decoder(Annotated[list[Annotated[str, Meta(max_length=1024)]], Meta(max_length=MAX_CHART_TAGS)])


class ScalarsQuery(RunsQuery, kw_only=True):
    """The tag, the axis and the window of a chart."""

    tag: Annotated[str, Meta(description="name of a tag", max_length=1024)]
    x: Annotated[Axis, Meta(description="horizontal axis")] = "step"
    first: Annotated[float, Meta(description="start of the window; the start of the line when absent")] | None = None
    last: Annotated[float, Meta(description="end of the window; the end of the line when absent")] | None = None
    buckets: Annotated[int, Meta(ge=2, le=5000, description="maximum number of buckets per line")] = 500
    tags: Annotated[str, Meta(description="further tags of the chart as a JSON list", max_length=100_000)] = "[]"
    spikes: Annotated[bool, Meta(description="whether to find points far above their neighbors")] = False
    smooth: Annotated[float, Meta(ge=0, le=MAX_SMOOTHING, description="weight of TensorBoard's moving average")] = 0.0
    format: Annotated[Literal["json", "csv"], Meta(description="csv: every point, ignoring axis and window")] = "json"


class TagColumns(msgspec.Struct):
    """Tags with scalars, a row per line.

    Attributes:
        run: Id of the run.
        line: Name of the line within the run, "." for the run's own folder.
        tag: The tag.
        display_name: Name to show, or null.
        description: Description in Markdown, or null.
        points: Number of points.
        superseded: Number of points that a restart replaced.
        first_step: First step.
        last_step: Last step.
        last: Value at the last step, or null if it is not finite.
        min: Smallest finite value, or null without one.
        max: Largest finite value, or null without one.
    """

    run: NameColumn
    line: NameColumn
    tag: NameColumn
    display_name: TextColumn
    description: TextColumn
    points: CountColumn
    superseded: CountColumn
    first_step: CountColumn
    last_step: CountColumn
    last: CountColumn
    min: CountColumn
    max: CountColumn


class TagsAnswer(msgspec.Struct):
    """The tags of runs.

    Attributes:
        version: Changes with the data.
        complete: Whether all files were read; if not, ask again.
        columns: The tags.
        warnings: Skipped parts of the files.
    """

    version: str
    complete: bool
    columns: TagColumns
    warnings: list[str]


class RecordedRange(msgspec.Struct):
    """A recording of a run.

    Attributes:
        run: Id of the run.
        worker: Id of its worker.
        span: Id of its span.
        first_step: Its first step, or null if its steps have no numbers.
        last_step: Its last step, or null.
        start_s: Unix time of its start in seconds, or null if unknown.
        end_s: Unix time of its end in seconds, or null if unknown.
    """

    run: str
    worker: str
    span: str
    first_step: int | None
    last_step: int | None
    start_s: float | None
    end_s: float | None


class RecordedRanges(msgspec.Struct):
    """The recordings of runs.

    Attributes:
        complete: Whether all recordings were examined; if not, ask again.
        recordings: The recordings of the first worker of each run.
    """

    complete: bool
    recordings: list[RecordedRange]


class Marks(msgspec.Struct):
    """Points that are not finite.

    Attributes:
        x: Positions.
        value: `nan`, `inf` or `-inf`.
    """

    x: list[float | None]
    value: list[str]


class SpikePoints(msgspec.Struct):
    """Points far above their neighbors, the largest 20 of a line.

    Attributes:
        x: Positions.
        step: Steps.
        wall_s: Unix times in seconds, or null if unknown.
        value: Values.
        median: Medians of the neighbors.
    """

    x: list[float | None]
    step: list[int]
    wall_s: list[float | None]
    value: list[float]
    median: list[float]


class Line(msgspec.Struct):
    """The points of a tag in a line, in buckets.

    Attributes:
        tag: The tag.
        run: Id of the run.
        line: Name of the line within the run.
        x: Position of the last point of each bucket.
        step: Step of the last point.
        min: Smallest value, or null if no value is finite.
        max: Largest value, or null if no value is finite.
        last: Value of the last point, or null if it is not finite.
        smoothed: Smoothed value of the last point, or null if it is not finite.
        points: Number of points in each bucket.
        marks: Points that are not finite.
        superseded_x: Positions of points that a restart replaced.
        superseded: Their values, or null if they are not finite.
        spikes: Spikes if requested, or null.
    """

    tag: str
    run: str
    line: str
    x: CountColumn
    step: CountColumn
    min: CountColumn
    max: CountColumn
    last: CountColumn
    smoothed: CountColumn
    points: CountColumn
    marks: Marks
    superseded_x: CountColumn
    superseded: CountColumn
    spikes: SpikePoints | None = None


class ScalarLines(msgspec.Struct):
    """The lines of the tags of a chart.

    Attributes:
        tag: The first tag.
        complete: Whether all files were read; if not, ask again.
        lines: The lines.
    """

    tag: str
    complete: bool
    lines: list[Line]


class LayoutsAnswer(msgspec.Struct):
    """Charts that training programs defined.

    Attributes:
        complete: Whether all files were read; if not, ask again.
        charts: The charts.
    """

    complete: bool
    charts: list[LayoutChart]


class RunDataRoutes(Resource):
    """The routes for run data."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._store = services.get(RunDataStore)
        self._recorded = services.get(RecordedScalars)
        self._step_times = services.get(StepTimeScalars)

    @get("/data/tags", errors=RUN_DATA_ERRORS, needs="link")
    def tags(self, query: RunsQuery) -> TagsAnswer:
        """List the tags of runs with their latest values."""
        runs, is_complete = self._store.load_all(query.runs)
        recordings, _ = self._recorded.load(runs)
        rows = [(run, row) for run, data in runs.items() for row in data.scalar_tags()]
        rows += [(run, row) for run in runs for row in recorded_tags(recordings, run)]
        step_times = step_time_tags(self._step_times.load(runs))
        rows += step_times
        columns = TagColumns(
            run=[run for run, _ in rows],
            line=[line_name(row.line, row.writer) for _, row in rows],
            tag=[row.tag for _, row in rows],
            display_name=[row.display_name or None for _, row in rows],
            description=[row.description or None for _, row in rows],
            points=[row.points for _, row in rows],
            superseded=[row.superseded for _, row in rows],
            first_step=[row.first_step for _, row in rows],
            last_step=[row.last_step for _, row in rows],
            last=[row.last for _, row in rows],
            min=[row.min for _, row in rows],
            max=[row.max for _, row in rows],
        )
        warnings = [text for data in runs.values() for text in data.warnings()]
        version = f"{version_of(runs)} {len(recordings)} {sum(row.points for _, row in step_times)}"
        return TagsAnswer(version, is_complete, columns, warnings)

    @get("/data/recordings", errors=RUN_DATA_ERRORS, needs="link")
    def recordings(self, query: RunsQuery) -> RecordedRanges:
        """List the recordings of runs with their steps and times."""
        runs, _ = self._store.load_all(query.runs)
        recordings, is_complete = self._recorded.load(runs)
        return RecordedRanges(is_complete, [_range(recording) for recording in recordings])

    @get("/data/scalars", media=("application/json", "text/csv"), errors=RUN_DATA_ERRORS, needs="link")
    def scalars(self, query: ScalarsQuery) -> ScalarLines | Response:
        """Return the points of one or several tags in several runs."""
        runs, is_complete = self._store.load_all(query.runs)
        tags = list(dict.fromkeys((query.tag, *_further_tags(query.tags))))
        lines = {tag: self._lines(runs, tag) for tag in tags}
        if query.format == "csv":
            parts = [(tag, *line) for tag in tags for line in lines[tag]]
            return csv_response(scalars_csv(parts), f"scalars_{query.tag}")
        drawn = [_line(tag, run, name, part, query) for tag in tags for run, name, part in lines[tag]]
        return ScalarLines(query.tag, is_complete, drawn)

    def _lines(self, runs: dict[str, RunData], tag: str) -> list[tuple[str, str, JoinedPoints]]:
        """Return run, name and points of each line of a tag."""
        lines = [
            (run, line_name(line, part.file if len(parts) > 1 else ""), part)
            for run, data in runs.items()
            for line in data.lines_with(tag)
            for parts in [data.points(line, tag)]
            for part in parts
        ]
        if tag == STEP_TIME_TAG:
            lines += step_time_lines(self._step_times.load(runs))
        if tag.startswith(RECORDED_PREFIX):
            lines += [(run, ".", part) for run, part in self._recorded_lines(list(runs), tag)]
        return lines

    def _recorded_lines(self, runs: list[str], tag: str) -> list[tuple[str, JoinedPoints]]:
        recordings, _ = self._recorded.load(runs)
        points = [(run, points_of(recordings, run, tag)) for run in runs]
        return [(run, JoinedPoints("", part, part.select(slice(0)))) for run, part in points if len(part.step)]

    @get("/data/layouts", errors=RUN_DATA_ERRORS, needs="link")
    def layouts(self, query: RunsQuery) -> LayoutsAnswer:
        """List the charts that programs defined with `add_custom_scalars`, each once."""
        runs, is_complete = self._store.load_all(query.runs)
        charts = {msgspec.json.encode(chart): chart for data in runs.values() for chart in list_layouts(data)}
        return LayoutsAnswer(is_complete, list(charts.values()))


def _further_tags(tags: str) -> list[str]:
    """Return the further tags of a chart.

    Raises:
        BadParameter: They are not a JSON list.
    """
    try:
        return _TAGS.decode(tags)
    except msgspec.MsgspecError as error:
        raise BadParameter(
            msg("server.tags_no_json_list", f"tags must be a JSON list of at most {MAX_CHART_TAGS} tags"),
            msg("server.tags_listed_api_v1_data_tags", "tags are listed by /api/v1/data/tags"),
        ) from error


def _range(recording: Recording) -> RecordedRange:
    start_ns = recording.start_ns
    return RecordedRange(
        run=recording.run,
        worker=recording.worker,
        span=recording.span,
        first_step=recording.first_step,
        last_step=recording.last_step,
        start_s=None if start_ns is None else start_ns / 1e9,
        end_s=None if start_ns is None else (start_ns + recording.duration_ns) / 1e9,
    )


def _line(tag: str, run: str, name: str, joined: JoinedPoints, query: ScalarsQuery) -> Line:
    points, origin = joined.points, earliest_ns(joined.points)
    x = axis_values(points, query.x, origin)
    window = query.first, query.last
    buckets = make_buckets(x, points, smooth(points.value, query.smooth), query.buckets, window)
    old = _superseded(joined.superseded, query, origin)
    marked = np.flatnonzero(~np.isfinite(points.value))[:_MAX_MARKS]
    marks = Marks([_or_none(at) for at in x[marked].tolist()], [str(value) for value in points.value[marked].tolist()])
    return Line(
        tag=tag,
        run=run,
        line=name,
        x=buckets.x,
        step=buckets.step,
        min=buckets.min,
        max=buckets.max,
        last=_finite(buckets.last),
        smoothed=_finite(buckets.smoothed),
        points=buckets.points,
        marks=marks,
        superseded_x=old.x,
        superseded=_finite(old.last),
        spikes=_spikes(points, x) if query.spikes else None,
    )


def _spikes(points: Points, x: Floats) -> SpikePoints:
    spikes = find_spikes(points.value.astype(np.float64), _MAX_SPIKES)
    return SpikePoints(
        x=[_or_none(at) for at in x[spikes.row].tolist()],
        step=points.step[spikes.row].tolist(),
        wall_s=[_or_none(second) for second in unix_seconds(points.wall_ns[spikes.row]).tolist()],
        value=points.value[spikes.row].tolist(),
        median=spikes.median.tolist(),
    )


def _superseded(points: Points, query: ScalarsQuery, origin: int) -> Buckets:
    x = axis_values(points, query.x, origin)
    return make_buckets(x, points, points.value.astype(np.float64), query.buckets, (query.first, query.last))


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, np.nan)


def _or_none(number: float) -> float | None:
    return number if np.isfinite(number) else None
