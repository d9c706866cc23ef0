"""MegEngine static-graph profile: the answers of megengine.tools.profile_analyze, also for inputs that crash it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import Floats, Ints, Trace, TrackKind, Values
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, Table, take_rows
from visualprof.views.measure.columns.timing import name_texts

Order = Literal[
    "time",
    "+time",
    "computation",
    "+computation",
    "memory",
    "+memory",
    "flops",
    "+flops",
    "bandwidth",
    "+bandwidth",
    "opr_id",
    "+opr_id",
]
UNKNOWN_DTYPE = "unknown"  # type of the inputs of operators for which the file contains no types
COPIES = re.compile(r"Copy")
MIN_POINT, MAX_POINT = 5, 26  # diameter of the points of the roofline, pixels
AGGREGATES: dict[str, Callable[[Values], Any]] = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}


@dataclass(frozen=True)
class ProfileParams(Params):
    """Options of megengine.tools.profile_analyze, spelled with underscores.

    Attributes:
        top: Number of rows; 0 for all.
        type: Operator types, comma-separated.
        opr_name: Regular expression for the start of a name.
        input_dtype: Regular expression for the start of a data type of an input, upper or lower case. `unknown` stands
            for operators whose input types the file does not contain.
        top_end_key: `end` for self time, `kern` for the time until the first kernel.
        aggregate: Function to aggregate with; "" for none.
        aggregate_by: One row for all operators, or per type.
        order_by: Column; a leading `+` sorts in ascending order.
        min_time: Seconds, per operator before aggregation.
        max_time: Seconds, per operator before aggregation.
        copy_time: Only operators that copy.
    """

    top: int = 0
    type: str = ""
    opr_name: str = ""
    input_dtype: str = ""
    top_end_key: Literal["end", "kern"] = "end"
    aggregate: Literal["", "sum", "mean", "max", "min"] = ""
    aggregate_by: Literal["", "type"] = ""
    order_by: Order = "time"
    min_time: float = 0.0
    max_time: float = 1e9
    time: Literal["device", "host"] = "device"
    copy_time: bool = False


class ProfileColumns(Columns, kw_only=True):
    """Operators, or aggregates of them; null if the time is 0 or the operand is unknown.

    Attributes:
        ratio: Share of the total.
        cumulative: Cumulative share in the order of the rows.
        computation_flo: A multiply-add counts as 2.
        flops: FLO/s.
    """

    device_self_ns: kinds.DurationColumn | None = None
    host_self_ns: kinds.DurationColumn | None = None
    ratio: kinds.RatioColumn
    cumulative_ns: kinds.DurationColumn
    cumulative_ratio: kinds.RatioColumn
    name: kinds.NameColumn
    type: kinds.TextColumn
    id: kinds.IdentifierColumn
    count: kinds.CountColumn
    computation_flo: kinds.OperationColumn
    flops: kinds.OperationRateColumn
    memory_bytes: kinds.SizeColumn
    bandwidth: kinds.BandwidthColumn
    in_shapes: kinds.TextColumn
    out_shapes: kinds.TextColumn


class ProfileTotals(msgspec.Struct):
    """Time of all operators, regardless of the filters."""

    device_ns: kinds.Duration
    host_ns: kinds.Duration


class ProfileAnswer(Table[ProfileColumns]):
    """Operators of a static graph.

    Attributes:
        types: Values for the filter by type.
        dtypes: Values for the filter by data type.
        unknown_dtypes: Number of operators whose input types the file does not contain; a filter by a type leaves them
            out.
    """

    totals: ProfileTotals
    types: list[str]
    dtypes: list[str]
    unknown_dtypes: kinds.Count


def needs(trace: Trace) -> bool:
    """Whether the trace is a static profile: operators with an index in the graph."""
    return "operator_index" in trace.args


def compute(trace: Trace, params: ProfileParams) -> ProfileAnswer:
    """Return the operators that match the options, or aggregates of them.

    Source: docs/views/profile.md
    """
    totals = {f"{side}_ns": _total(trace, side) for side in ("device", "host")}
    operators, dtypes = _operators(trace, params.time, params.top_end_key)
    types, rows = sorted(set(operators["type"])), _filtered(operators, dtypes, params)
    if params.aggregate_by and not params.aggregate:
        raise BadParameter(
            msg("views.aggregate_needs_aggregate", "aggregate_by needs aggregate"),
            msg("views.add_aggregate_sum_mean", "add aggregate=sum (or mean, max, min)"),
        )
    operators = {name: take_rows(column, rows) for name, column in operators.items()}
    columns = _ordered(_rated(_aggregated(operators, params) if params.aggregate else operators), params)
    total = totals[f"{params.time}_ns"]
    spent = _values(columns["time"])
    whole = float(total) if total else np.nan
    columns[f"{params.time}_self_ns"] = columns.pop("time")
    cumulative = np.cumsum(spent)
    return ProfileAnswer(
        columns=ProfileColumns(
            ratio=spent / whole, cumulative_ns=cumulative, cumulative_ratio=cumulative / whole, **columns
        ),
        totals=ProfileTotals(**totals),
        types=types,
        dtypes=sorted({dtype for text in dtypes for dtype in text.split()}),
        unknown_dtypes=dtypes.count(UNKNOWN_DTYPE),
    )


def _total(trace: Trace, side: str) -> int:
    return int(np.maximum(_values(_operators(trace, side, "end")[0]["time"]), 0).sum())


def _operators(trace: Trace, kind: str, until: str) -> tuple[dict[str, Column], list[str]]:
    """Return operators in the order of the graph, with their longest time over devices or threads, and types of inputs.

    The time is in ns, -1 without one. Unknown computation_flo and memory_bytes are NaN.
    """
    events = trace.events
    on = TrackKind.STREAM if kind == "device" else TrackKind.THREAD
    rows = np.flatnonzero(trace.track_mask(on))
    index = trace.arg("operator_index", rows).astype(np.int64)
    spent = np.maximum(events.dur[rows], 0) if until == "end" else trace.arg("wait_ns", rows).astype(np.int64)
    order = np.lexsort((-spent, index))
    first = order[np.flatnonzero(np.diff(index[order], prepend=-1))] if len(rows) else order
    chosen = rows[first]

    def text(name: str) -> list[str]:
        return name_texts(trace, trace.arg(name, chosen, 0))

    columns: dict[str, Column] = {
        "time": spent[first],
        "name": name_texts(trace, events.name[chosen]),
        "type": text("type"),
        "id": text("operator_id"),
        "count": np.ones(len(chosen), np.int64),
        "computation_flo": trace.arg("flops", chosen, np.nan).astype(np.float64),
        "memory_bytes": trace.arg("bytes", chosen, np.nan).astype(np.float64),
        "in_shapes": text("input_shapes"),
        "out_shapes": text("output_shapes"),
    }
    return columns, [dtypes or UNKNOWN_DTYPE for dtypes in text("input_types")]


def _filtered(operators: dict[str, Column], dtypes: list[str], params: ProfileParams) -> Ints:
    types = {t.strip() for t in params.type.split(",") if t.strip()}
    name, dtype = _pattern("opr_name", params.opr_name), _pattern("input_dtype", params.input_dtype, re.IGNORECASE)
    seconds = _values(operators["time"]) / 1e9
    keep = (seconds >= params.min_time) & (seconds <= params.max_time)
    for i, (label, kind, held) in enumerate(zip(operators["name"], operators["type"], dtypes, strict=True)):
        keep[i] &= (
            (not types or kind in types)
            and (name is None or bool(name.match(label)))
            and (dtype is None or any(map(dtype.match, held.split())))
            and (not params.copy_time or bool(COPIES.search(kind)))
        )
    return np.flatnonzero(keep)


def _pattern(name: str, text: str, flags: int = 0) -> re.Pattern[str] | None:
    try:
        return re.compile(text, flags) if text else None
    except re.error as error:
        raise BadParameter(
            msg("views.no_regular_expression", f"{name}: {text!r} is no regular expression ({error})"),
            msg("views.plain_name_works_too", "a plain name also works"),
        ) from error


def _aggregated(operators: dict[str, Column], params: ProfileParams) -> dict[str, Column]:
    """Return one row for all operators, or one per type in the order of their first appearance.

    Unknown values are left out of an aggregate.
    """
    groups: dict[str, list[int]] = {}
    for row, kind in enumerate(operators["type"]):
        groups.setdefault(kind if params.aggregate_by else "all", []).append(row)
    join = AGGREGATES[params.aggregate]

    def joined(name: str) -> Floats:
        parts = [_values(operators[name])[rows] for rows in groups.values()]
        known_values = [part[~np.isnan(part)] for part in parts]
        return np.array([join(part) if len(part) else np.nan for part in known_values], np.float64)

    none: list[Any] = [None] * len(groups)
    return {
        "time": joined("time"),
        "name": none,
        "type": list(groups),
        "id": none,
        "count": np.array([len(rows) for rows in groups.values()], np.int64),
        "computation_flo": joined("computation_flo"),
        "memory_bytes": joined("memory_bytes"),
        "in_shapes": none,
        "out_shapes": none,
    }


def _rated(columns: dict[str, Column]) -> dict[str, Column]:
    """Add the rates per second."""
    spent = _values(columns["time"])
    seconds = np.where(spent > 0, spent, np.nan) / 1e9
    rates = {
        "flops": _values(columns["computation_flo"]) / seconds,
        "bandwidth": _values(columns["memory_bytes"]) / seconds,
    }
    return {**columns, **rates}


def _values(column: Column | None) -> Floats:
    return np.asarray(column, np.float64)


def _ordered(columns: dict[str, Column], params: ProfileParams) -> dict[str, Column]:
    """Return the rows ordered by a column, unknown values last, ties in the order of the graph."""
    key = params.order_by.lstrip("+")
    names = {"computation": "computation_flo", "memory": "memory_bytes", "opr_id": "id"}
    values = columns[names.get(key, key)]
    if key == "opr_id":
        values = np.array([float(v) if str(v).isdigit() else np.nan for v in values])
    numbers = _values(values)
    order = np.argsort(
        np.where(np.isnan(numbers), np.inf, numbers if params.order_by.startswith("+") else -numbers), kind="stable"
    )
    order = order[: params.top] if params.top > 0 else order
    return {name: take_rows(column, order) for name, column in columns.items()}


def make_charts(result: ProfileAnswer, params: ProfileParams, top: int) -> dict[str, charts.Option]:
    """Return the chart `roofline`: FLOPS over computation / memory of the rows with both, one series per type.

    The roof is the best that any row reached (largest FLOPS, largest bandwidth), not the limit of the device.
    """
    columns = result.columns
    time = columns.device_self_ns if params.time == "device" else columns.host_self_ns
    spent, work, memory, flops, bandwidth = (
        _values(column)
        for column in (time, columns.computation_flo, columns.memory_bytes, columns.flops, columns.bandwidth)
    )
    shown = np.flatnonzero((work > 0) & (memory > 0) & (spent > 0))
    if not len(shown):
        return {}
    x, y = work[shown] / memory[shown], flops[shown]
    size = MIN_POINT + (MAX_POINT - MIN_POINT) * np.sqrt(spent[shown] / spent[shown].max())
    name, kind, number = map(_texts, (columns.name, columns.type, columns.id))
    series: dict[str, list[charts.Option]] = {}
    for place, row in enumerate(map(int, shown)):
        type_name = kind[row]
        series.setdefault(type_name, []).append(
            {
                "name": name[row] or type_name,
                "id": number[row] or type_name,
                "symbolSize": round(float(size[place]), 1),
                "value": [float(x[place]), float(y[place]), float(spent[row]), float(bandwidth[row])],
            }
        )
    fields = (
        ("@t:profile.intensity", "intensity"),
        ("@t:profile.flops", "flop_rate"),
        (f"@t:column.{params.time}_self_ns", "ns"),
        ("@t:column.bandwidth", "rate"),
    )
    return {
        "roofline": charts.scatter(
            list(series.items()), fields, [_roof(x, float(y.max()), float(np.nanmax(bandwidth[shown])))]
        )
    }


def _texts(column: Column) -> list[str]:
    return [str(value or "") for value in column]


def _roof(x: Floats, flops: float, bandwidth: float) -> charts.Option:
    """Return the line above all points: it rises with the bandwidth up to the FLOPS."""
    ridge = flops / bandwidth
    low, high = min(float(x.min()), ridge) / 2, max(float(x.max()), ridge) * 2
    return {
        "type": "line",
        "name": "@t:profile.roof",
        "showSymbol": False,
        "silent": True,
        "lineStyle": {"type": "dashed", "width": 1.5},
        "itemStyle": {"color": "@c:other"},
        "data": [[low, low * bandwidth], [ridge, flops], [high, flops]],
    }


VIEW = View("profile", 25, needs, ProfileParams, compute, make_charts)
