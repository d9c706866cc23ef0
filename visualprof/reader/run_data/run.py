"""The run data of a run: all its files, followed while they grow."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from visualprof.errors import SourceError
from visualprof.messages import msg
from visualprof.reader.run_data.event_file import EventFile, place_of
from visualprof.reader.run_data.folders import DataFile
from visualprof.reader.run_data.growth import Damage
from visualprof.reader.run_data.join import JoinedPoints, WriterPoints, join_points
from visualprof.reader.run_data.kinds import DataKind, SampleKind
from visualprof.reader.run_data.reading import FileReader, LocalReader
from visualprof.reader.run_data.rows import UNKNOWN_NS
from visualprof.reader.run_data.samples import SampleSeries, kind_of_series, list_samples
from visualprof.reader.run_data.series import Points, Series

_MAX_JOINED = 64  # tags whose joined points are cached
_MAX_GROWTH_S = 60.0  # after this time, a file that ends inside a record is no longer growing


class ScalarTag(NamedTuple):
    """Summary of the scalars of a tag in a line.

    Attributes:
        line: The line.
        writer: Name of the writer's first file if parallel writers logged the tag; "" otherwise.
        tag: The tag.
        display_name: Name to show, "" for the tag.
        description: Description in Markdown.
        points: Number of points that are not superseded.
        superseded: Number of superseded points.
        first_step: First step.
        last_step: Last step.
        last_wall_ns: Unix time of the last point, `None` if unknown.
        last: Value at the last step, `None` if it is not finite.
        min: Smallest finite value, `None` without one.
        max: Largest finite value, `None` without one.
    """

    line: str
    writer: str
    tag: str
    display_name: str
    description: str
    points: int
    superseded: int
    first_step: int
    last_step: int
    last_wall_ns: int | None
    last: float | None
    min: float | None
    max: float | None


class PluginContent(NamedTuple):
    """Settings of a plugin in the metadata of a series.

    Attributes:
        line: The line.
        tag: The tag.
        content: The settings.
    """

    line: str
    tag: str
    content: bytes


class RunData:
    """The run data of a run. All methods may be called from several threads.

    Args:
        reader: Reads the files (default: this process).
    """

    def __init__(self, reader: FileReader | None = None) -> None:
        self._reader = reader or LocalReader()
        self._lock = threading.Lock()
        self._files: dict[DataFile, EventFile] = {}
        self._files_by_line: dict[str, list[EventFile]] = {}
        self._problems: dict[DataFile, str] = {}
        self._joined: OrderedDict[tuple[str, str], tuple[object, list[JoinedPoints]]] = OrderedDict()
        self._summaries: dict[tuple[str, str], tuple[object, list[ScalarTag]]] = {}

    def update(self, files: Sequence[DataFile], budget_s: float = float("inf")) -> bool:
        """Read the appended records of the files, and return whether everything was read.

        Args:
            files: All files of the run.
            budget_s: Stop soon after this many seconds; the next call continues.
        """
        end_s = time.monotonic() + budget_s
        with self._lock:
            for file in self._files.keys() - set(files):
                del self._files[file]
                self._problems.pop(file, None)
            for event_file in self._files.values():
                event_file.release()
            while True:
                is_complete = self._update_files(files, end_s)
                self._files_by_line = {}
                for entry, event_file in self._files.items():
                    self._files_by_line.setdefault(entry.line, []).append(event_file)
                if is_complete or not self._reader.wait([*self._files.values()], end_s):
                    return is_complete

    def _update_files(self, files: Sequence[DataFile], end_s: float) -> bool:
        is_complete = True
        for file in files:
            event_file = self._files.setdefault(file, EventFile(file.path, place_of(file.path, file.line)))
            try:
                is_complete &= self._reader.update(event_file, end_s)
                self._problems.pop(file, None)
            except SourceError as error:
                self._problems[file] = error.error
            if time.monotonic() > end_s:
                return is_complete and file == files[-1]
        return is_complete

    @property
    def version(self) -> tuple[int, ...]:
        """Versions of the files, which change with the content."""
        with self._lock:
            return tuple(file.version for file in self._files.values())

    @property
    def memory_bytes(self) -> int:
        """Estimated size in memory."""
        with self._lock:
            return sum(file.memory_bytes for file in self._files.values())

    def scalar_tags(self) -> list[ScalarTag]:
        """Return the tags with scalars, sorted by tag and line."""
        with self._lock:
            names = {
                (name, data_file.line)
                for data_file, file in self._files.items()
                for name, series in file.series.items()
                if series.has_points
            }
            return [summary for tag, line in sorted(names) for summary in self._summary(line, tag)]

    def lines_with(self, tag: str) -> list[str]:
        """Return the lines with scalars of a tag, sorted."""
        with self._lock:
            files = self._files.items()
            return sorted({entry.line for entry, file in files if tag in file.series and file.series[tag].has_points})

    def points(self, line: str, tag: str) -> list[JoinedPoints]:
        """Return the scalars of a tag in a line, one entry per parallel writer."""
        with self._lock:
            return self._join(line, tag)

    def samples(self, kinds: Collection[SampleKind]) -> list[SampleSeries]:
        """Return where the values of some kinds are stored, sorted by tag and line."""
        with self._lock:
            return list_samples(self._files, kinds)

    def kinds(self) -> set[DataKind]:
        """Return the kinds of values in the files."""
        with self._lock:
            kinds: set[DataKind] = set()
            for file in self._files.values():
                for series in file.series.values():
                    kind = kind_of_series(file, series)
                    kinds.update(filter(None, (kind, "scalar" if series.has_points else None)))
                    if series.plugin == "hparams":
                        kinds.add("trial")
            return kinds

    def plugin_contents(self, plugin: str) -> list[PluginContent]:
        """Return the settings of a plugin in all series, sorted by line and tag."""
        with self._lock:
            return sorted(
                PluginContent(entry.line, tag, series.content)
                for entry, file in self._files.items()
                for tag, series in file.series.items()
                if series.plugin == plugin
            )

    def folders(self) -> list[tuple[str, str]]:
        """Return line and path of the folders with files of run data, sorted."""
        with self._lock:
            return sorted({(entry.line, os.path.dirname(entry.path)) for entry in self._files})

    def warnings(self) -> list[str]:
        """Return a sentence per file with skipped data."""
        with self._lock:
            warnings = list(self._problems.values())
            for file in self._files.values():
                if file.problem:
                    warnings.append(file.problem)
                if damages := file.all_damages:
                    warnings.append(_damage_text(file.place, damages))
                elif file.missing_bytes and time.time_ns() - file.mtime_ns > _MAX_GROWTH_S * 1e9:
                    warnings.append(msg("reader.run_data_cut", f"{file.place} ends in the middle of a record"))
            return warnings

    def _files_with(self, line: str, tag: str) -> list[EventFile]:
        files = self._files_by_line.get(line, ())
        return [file for file in files if tag in file.series and file.series[tag].has_points]

    def _join(self, line: str, tag: str) -> list[JoinedPoints]:
        """Return the joined scalars of a tag, cached."""
        files = self._files_with(line, tag)
        version = _version(files)
        cached = self._joined.get((line, tag))
        if cached is None or cached[0] != version:
            writers = [WriterPoints(file.name, file.series[tag].points, file.restarts) for file in files]
            cached = self._joined[line, tag] = version, join_points(writers)
            if len(self._joined) > _MAX_JOINED:
                self._joined.popitem(last=False)
        return cached[1]

    def _summary(self, line: str, tag: str) -> list[ScalarTag]:
        files = self._files_with(line, tag)
        version = _version(files)
        cached = self._summaries.get((line, tag))
        if cached is None or cached[0] != version:
            series = files[0].series[tag]
            joined = self._join(line, tag)
            writers = [part.file if len(joined) > 1 else "" for part in joined]
            rows = [_summarize(line, tag, series, *pair) for pair in zip(writers, joined, strict=True)]
            cached = self._summaries[line, tag] = version, rows
        return cached[1]


def _version(files: Sequence[EventFile]) -> tuple[tuple[str, int], ...]:
    return tuple((file.path, file.version) for file in files)


def _summarize(line: str, tag: str, series: Series, writer: str, joined: JoinedPoints) -> ScalarTag:
    return summarize_points(line, tag, joined.points)._replace(
        writer=writer,
        display_name=series.display_name,
        description=series.description,
        superseded=len(joined.superseded.step),
    )


def summarize_points(line: str, tag: str, points: Points) -> ScalarTag:
    """Return the summary of scalars, at least one, without names and superseded points."""
    finite = points.value[np.isfinite(points.value)]
    last, wall_ns = float(points.value[-1]), int(points.wall_ns[-1])
    return ScalarTag(
        line=line,
        writer="",
        tag=tag,
        display_name="",
        description="",
        points=len(points.step),
        superseded=0,
        first_step=int(points.step[0]),
        last_step=int(points.step[-1]),
        last_wall_ns=wall_ns if wall_ns != UNKNOWN_NS else None,
        last=last if np.isfinite(last) else None,
        min=float(finite.min()) if len(finite) else None,
        max=float(finite.max()) if len(finite) else None,
    )


def _damage_text(name: str, damages: Sequence[Damage]) -> str:
    first, total = damages[0], sum(damage.size for damage in damages)
    return msg(
        "reader.run_data_skipped",
        f"{name}: {total:,} bytes were skipped in {len(damages):,} places, the first at byte {first.offset:,}: "
        f"{first.reason}",
    )
