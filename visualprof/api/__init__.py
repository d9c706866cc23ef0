"""Recordings in notebooks and scripts: tables as frames, SQL, views and charts. `visualprof.open(path)` is the entry.

pandas, polars, pyarrow and pyecharts are imported when a method needs them.
"""

from __future__ import annotations

from visualprof.api.recording import OpenedProfile, open_recording
from visualprof.api.results import Result, ViewResult, ViewTable

__all__ = ["OpenedProfile", "Result", "ViewResult", "ViewTable", "open_recording"]
