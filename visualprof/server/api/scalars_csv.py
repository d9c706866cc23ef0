"""Scalars as CSV."""

from __future__ import annotations

import io
import math

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.run_data.join import JoinedPoints
from visualprof.reader.run_data.rows import unix_seconds

_MAX_CSV_POINTS = 5_000_000


def scalars_csv(lines: list[tuple[str, str, str, JoinedPoints]]) -> str:
    """Return every point as CSV, given tag, run, line and points.

    Raises:
        BadParameter: There are too many points.
    """
    if sum(len(part.points.step) for *_, part in lines) > _MAX_CSV_POINTS:
        raise BadParameter(
            msg("views.too_many_points", f"there are more than {_MAX_CSV_POINTS:,} points"),
            msg("server.select_fewer_runs", "select fewer runs"),
        )
    out = io.StringIO()
    out.write("run,line,tag,step,wall_time_s,value,superseded\n")
    for tag, run, name, part in lines:
        prefix = ",".join(_quoted(text) for text in (run, name, tag))
        for points, flag in ((part.points, "false"), (part.superseded, "true")):
            seconds = unix_seconds(points.wall_ns).tolist()
            for step, wall_s, value in zip(points.step.tolist(), seconds, points.value.tolist(), strict=True):
                wall = "" if math.isnan(wall_s) else f"{wall_s:.6f}"
                out.write(f"{prefix},{step},{wall},{value!r},{flag}\n")
    return out.getvalue()


def _quoted(text: str) -> str:
    """Return a text as a CSV field that a spreadsheet does not take for a formula."""
    safe = f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
    return '"' + safe.replace('"', '""') + '"'
