"""Calls of the device API (CUDA, HIP, ...): how often and how long."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Trace
from visualprof.views import Params, View
from visualprof.views.answers import charts
from visualprof.views.answers.table import Table
from visualprof.views.measure.columns.timing import CallColumns, call_columns
from visualprof.views.measure.launches.launch import is_api_call
from visualprof.views.measure.steps.windows import is_in_step


def needs(trace: Trace) -> bool:
    """Whether the trace has a call of the device API."""
    return bool(is_api_call(trace).any())


def compute(trace: Trace, params: Params) -> Table[CallColumns]:
    """Return API calls by name, the largest total first."""
    rows = np.flatnonzero(is_api_call(trace) & is_in_step(trace, params.step))
    return Table(columns=call_columns(trace, rows))


def make_charts(result: Table[CallColumns], params: Params, top: int) -> dict[str, charts.Option]:
    """Return the chart `calls`: share of each call."""
    return {"calls": charts.pie(zip(result.columns.name, result.columns.total_ns, strict=True), top=top)}


VIEW = View("runtime", 40, needs, Params, compute, make_charts)
