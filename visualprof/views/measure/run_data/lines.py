"""Names of lines, and the selection of tags by a regular expression."""

from __future__ import annotations

import re

from visualprof.errors import BadParameter, MissingData
from visualprof.messages import msg
from visualprof.reader.run_data.kinds import SampleKind
from visualprof.reader.run_data.run import RunData
from visualprof.reader.run_data.samples import SampleSeries
from visualprof.reader.trace import Trace

MAX_VALUES = 20_000  # each is read from its file
_MAX_PATTERN = 200


def needs_run_data(trace: Trace) -> bool:
    """Return False, because traces hold no run data."""
    del trace
    return False


def line_name(line: str, writer: str) -> str:
    """Return the name of a line in tables."""
    return " ".join(part for part in (line or ".", writer) if part)


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return a regular expression.

    Raises:
        BadParameter: The expression is invalid or too long.
    """
    try:
        if len(pattern) <= _MAX_PATTERN:
            return re.compile(pattern)
    except re.error:
        pass
    raise BadParameter(
        msg("views.invalid_tag_pattern", f"{pattern[:_MAX_PATTERN]!r} is not a short regular expression"),
        msg("views.tag_pattern_hint", "for example: loss|accuracy"),
    )


def select_series(data: RunData, kinds: tuple[SampleKind, ...], pattern: str) -> list[SampleSeries]:
    """Return the values of some kinds with a tag that matches a regular expression.

    Raises:
        BadParameter: The expression is invalid, or too many values match.
        MissingData: No tag matches.
    """
    compiled = compile_pattern(pattern)
    chosen = [series for series in data.samples(kinds) if compiled.search(series.tag)]
    if not chosen:
        raise MissingData(
            msg("views.no_such_run_data", "no run data of this kind has a matching tag"),
            msg("views.log_scalars", "log some with the writer of TensorBoard or VisualDL"),
        )
    if sum(len(series.step) for series in chosen) > MAX_VALUES:
        raise BadParameter(
            msg("views.too_many_values", f"there are more than {MAX_VALUES:,} values"),
            msg("views.select_fewer_tags", "select fewer tags: --param tag=loss"),
        )
    return chosen


def rows_of(series: list[SampleSeries]) -> list[tuple[SampleSeries, int]]:
    """Return every value as its series and its row."""
    return [(entry, row) for entry in series for row in range(len(entry.step))]
