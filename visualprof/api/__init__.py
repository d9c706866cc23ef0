"""Recordings in notebooks and scripts: tables as frames, SQL, views and charts. `visualprof.open(path)` is the entry.

pandas, polars, pyarrow and pyecharts are imported when a method needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from visualprof.api.recording import OpenedProfile, open_recording
from visualprof.api.results import Result, ViewResult, ViewTable

if TYPE_CHECKING:
    from visualprof.api.view_chart import ViewChart

__all__ = ["OpenedProfile", "Result", "ViewChart", "ViewResult", "ViewTable", "open_recording"]


def __getattr__(name: str) -> object:
    if name == "ViewChart":  # pyecharts is only imported when a chart is needed
        from visualprof.api.charts import chart_class

        return chart_class()
    raise AttributeError(f"module 'visualprof.api' has no attribute {name!r}")
