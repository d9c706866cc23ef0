"""Calls of the device API (CUDA, HIP, ...): how often and how long."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Category, Mask, Trace, TrackKind
from visualprof.views import Params, View, charts
from visualprof.views.measure.steps import in_step
from visualprof.views.table import Result, Table
from visualprof.views.timing import calls_table


def _calls(trace: Trace) -> Mask:
    return (trace.events.category == Category.RUNTIME) & trace.track_mask(TrackKind.THREAD)


def needs(trace: Trace) -> bool:
    """At least one API call."""
    return bool(_calls(trace).any())


def compute(trace: Trace, params: Params) -> Result:
    """Table `name, calls, total_ns, mean_ns, max_ns, min_ns`, the largest total first."""
    rows = np.flatnonzero(_calls(trace) & in_step(trace, params.step))
    return Result(Table(calls_table(trace, rows)))


def make_charts(result: Result, params: Params, top: int) -> dict[str, charts.Option]:
    """`calls`: share of each call."""
    assert result.table is not None
    columns = result.table.columns
    return {"calls": charts.pie(zip(columns["name"], columns["total_ns"], strict=True), top=top)}


VIEW = View("runtime", 40, needs, Params, compute, make_charts)
