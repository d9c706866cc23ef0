"""The tables of the run data next to a trace: logged scalars, and hyper-parameters and metrics of trials."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np

from visualprof.query.tables.columns import Builder, Values, objects
from visualprof.reader.run_data.join import JoinedPoints
from visualprof.reader.run_data.rows import unix_seconds
from visualprof.reader.run_data.run import RunData, ScalarTag
from visualprof.reader.run_data.trials import Setting, list_trials
from visualprof.reader.trace import Ids
from visualprof.views.measure.run_data.lines import line_name


class ScalarTable:
    """Every point of every tag that no restart replaced, by tag, line and step.

    Args:
        data: The run data, `None` without any.
    """

    def __init__(self, data: RunData | None) -> None:
        self._data = data

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        return {
            "tag": lambda: self._names(lambda row: row.tag),
            "run": lambda: self._names(lambda row: line_name(row.line, row.writer)),
            "step": lambda: self._numbers(lambda part: part.points.step),
            "wall_time_s": lambda: self._numbers(lambda part: unix_seconds(part.points.wall_ns)),
            "value": lambda: self._numbers(lambda part: part.points.value.astype(np.float64)),
        }

    @cached_property
    def _rows(self) -> list[ScalarTag]:
        return self._data.scalar_tags() if self._data else []

    @cached_property
    def _parts(self) -> list[JoinedPoints]:
        """The points of each row."""
        if self._data is None:
            return []
        lines = {(row.line, row.tag) for row in self._rows}
        points = {key: self._data.points(*key) for key in lines}
        parts = [(row, points[row.line, row.tag]) for row in self._rows]
        return [next(part for part in files if row.writer in ("", part.file)) for row, files in parts]

    def _names(self, name: Callable[[ScalarTag], str]) -> Values:
        numbers: Ids = np.arange(len(self._rows), dtype=np.int32)
        counts = [len(part.points.step) for part in self._parts]
        return Values(np.repeat(numbers, counts), "text", texts=[name(row) for row in self._rows])

    def _numbers(self, column: Callable[[JoinedPoints], Any]) -> Values:
        columns = [column(part) for part in self._parts]
        return Values(np.concatenate(columns) if columns else np.zeros(0))


class TrialTable:
    """The hyper-parameters and metrics of trials, a row each, by run, kind and name.

    Args:
        data: The run data, `None` without any.
    """

    def __init__(self, data: RunData | None) -> None:
        self._data = data

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        names = ("run", "status", "kind", "name", "number", "text")
        return {name: partial(self._column, index) for index, name in enumerate(names)}

    def _column(self, index: int) -> Values:
        return objects([row[index] for row in self._rows])

    @cached_property
    def _rows(self) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = []
        for trial in list_trials(self._data) if self._data else ():
            start = line_name(trial.line, ""), trial.status or None
            rows += [(*start, "parameter", name, *_number_and_text(value)) for name, value in trial.settings.items()]
            rows += [(*start, "metric", name, value, None) for name, value in trial.metrics.items()]
        return rows


def _number_and_text(value: Setting) -> tuple[float | None, str | None]:
    """Return a hyper-parameter as a number, or as a text; booleans are texts."""
    if isinstance(value, bool):
        return None, str(value).lower()
    return (None, value) if isinstance(value, str) else (value, None)


RUN_DATA_TABLES: dict[str, type[ScalarTable] | type[TrialTable]] = {"scalar": ScalarTable, "trial": TrialTable}
