"""Roofline: operations and bytes of operators compared with the limits of their device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from visualprof.peaks import Peak
from visualprof.reader.trace import Floats, Mask, Trace
from visualprof.reader.trace.serving import Phase
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, Table, from_rows
from visualprof.views.measure.columns.groups import is_in
from visualprof.views.measure.columns.timing import name_texts, sort_columns
from visualprof.views.measure.names.tensor_core import match_names
from visualprof.views.measure.steps.windows import StepWindows, device_kernels, is_in_step, step_windows
from visualprof.views.measure.work.call_work import MODEL_FAMILIES
from visualprof.views.measure.work.operators import operator_work
from visualprof.views.measure.work.roofline import (
    OperatorCalls,
    device_peak,
    known_work_ratio,
    main_device,
    misses_work,
    operator_calls,
    roofline_groups,
)

MIN_POINT, MAX_POINT = 5.0, 30.0  # diameter of points, pixels
MIN_SHARE = 0.001  # share of the time that an operator needs for a point in the chart

Measured = Annotated[float, msgspec.Meta(ge=0, le=1e21)]


@dataclass(frozen=True)
class RooflineParams(Params):
    """Parameters of the view.

    Attributes:
        operator: Only operators with this name.
        peak: Measured FLO/s of fp32 products, for a device without a known datasheet.
        bandwidth: Measured memory bandwidth in bytes/s, to go with `peak`.
    """

    operator: str = ""
    peak: Measured = 0.0
    bandwidth: Measured = 0.0


class RooflineColumns(Columns):
    """Operators by shape.

    Attributes:
        kernels: Device work items of all calls.
        kernel: Name of the kernel, if every call launches the same single one.
        total_ns: Time of all calls.
        flops: Operations of all calls.
        bytes: Bytes of all calls.
        intensity: FLO per byte.
        of_roof: Time at the roof of the device over the actual time; above 1 if the data comes from a cache.
    """

    name: kinds.NameColumn
    input_shapes: kinds.TextColumn
    family: kinds.WordColumn
    precision: kinds.WordColumn
    calls: kinds.CountColumn
    kernels: kinds.CountColumn
    kernel: kinds.NameColumn
    total_ns: kinds.DurationColumn
    flops: kinds.OperationColumn
    bytes: kinds.SizeColumn
    flop_rate: kinds.OperationRateColumn
    bandwidth: kinds.BandwidthColumn
    intensity: kinds.CountColumn
    bound: kinds.WordColumn
    of_roof: kinds.RatioColumn


class PeakColumns(Columns):
    """Peak FLO/s of the device by type, for products, and `other` for fp32 outside of products."""

    precision: kinds.WordColumn
    flop_rate: kinds.OperationRateColumn


class RooflinePhaseColumns(Columns):
    """Steps of a server by phase: the work of all operators over the time of the steps.

    Attributes:
        of_bandwidth: Share of the memory bandwidth of all devices.
        of_roof: Time at the roof over the actual time, of the operators with known work.
        at_least: Whether model_flops, mfu and bytes are lower bounds, as in the answer.
    """

    phase: kinds.WordColumn
    steps: kinds.CountColumn
    step_ns: kinds.DurationColumn
    model_flops: kinds.OperationColumn
    mfu: kinds.RatioColumn
    bytes: kinds.SizeColumn
    bandwidth: kinds.BandwidthColumn
    of_bandwidth: kinds.RatioColumn
    of_roof: kinds.RatioColumn
    placed_ratio: kinds.RatioColumn
    at_least: kinds.FlagColumn


class RooflineAnswer(Table[RooflineColumns]):
    """Operators with the roof of their device; None if the roof is unknown.

    Attributes:
        placed_ratio: Share of device time, without collectives, of operators with known work; of operator time if
            nothing ran on a device.
        steps: Number of steps covered.
        step_ns: Total time of these steps.
        model_flops: Operations of products, convolutions and attention in these steps.
        mfu: Time of these operations at the peak of their types, over the time of the steps.
        at_least: Whether model_flops and mfu are lower bounds: an operator that may contain a product has unknown work.
    """

    device: str | None
    units: kinds.Count | None
    clock_mhz: kinds.Count | None
    bandwidth: kinds.Bandwidth | None
    source: str | None
    placed_ratio: kinds.Ratio | None
    steps: kinds.Count
    step_ns: kinds.Duration
    model_flops: kinds.Operation | None
    mfu: kinds.Ratio | None
    at_least: bool
    phases: Table[RooflinePhaseColumns]
    peaks: Table[PeakColumns]


def needs(trace: Trace) -> bool:
    """Whether the trace has an operator with known work."""
    return len(operator_work(trace).rows) > 0


def compute(trace: Trace, params: RooflineParams) -> RooflineAnswer:
    """Return operators by shape, the longest first.

    Source: Williams, Waterman, Patterson, Roofline, CACM 2009; docs/views/roofline.md
    """
    calls, device = operator_calls(trace), main_device(trace)
    peak = device_peak(trace, params.peak, params.bandwidth)
    keep = is_in_step(trace, params.step)[calls.rows]
    windows = step_windows(trace)
    windows = windows.select_step(params.step) if params.step else windows
    totals = _totals(trace, calls, windows, peak)
    placed = known_work_ratio(trace, calls, is_in_step(trace, params.step))
    if params.operator:
        keep &= match_names(trace, trace.events.name[calls.rows], lambda name: name == params.operator)
    return RooflineAnswer(
        columns=_columns(trace, calls, keep, peak),
        device=device.name or None if device else None,
        units=(peak.units or None) if peak else None,
        clock_mhz=(peak.mhz or None) if peak else None,
        bandwidth=peak.bandwidth if peak else None,
        source=peak.source if peak else None,
        placed_ratio=placed,
        steps=len(windows),
        step_ns=totals.step_ns,
        model_flops=totals.flops,
        mfu=totals.mfu,
        at_least=totals.at_least,
        phases=Table(columns=_phases(trace, calls, windows, peak)),
        peaks=Table(columns=_peaks(peak)),
    )


class _Totals(NamedTuple):
    """Totals of some steps.

    Attributes:
        step_ns: Time of the steps.
        flops: Operations of products, convolutions and attention.
        mfu: Time of these operations at their peaks over the time of the steps.
        bytes: Bytes of all operators with known bytes.
        of_roof: Time at the roof of the operators with known work over their actual time.
        at_least: Whether flops and mfu are lower bounds.
        bytes_at_least: Whether the bytes of some operator with known operations are unknown.
    """

    step_ns: int
    flops: float | None
    mfu: float | None
    bytes: float
    of_roof: float | None
    at_least: bool
    bytes_at_least: bool


def _totals(trace: Trace, calls: OperatorCalls, windows: StepWindows, peak: Peak | None) -> _Totals:
    is_selected = is_in(trace.events.step, windows.index)
    stepped = roofline_groups(trace, calls, is_selected[calls.rows], peak)
    model = np.array([family in MODEL_FAMILIES for family in stepped.family], bool)
    ideal, step_ns = stepped.compute_ns[model], int((windows.end - windows.start).sum())
    has_mfu = bool((ideal > 0).any()) and step_ns > 0
    mfu = float(np.nansum(ideal)) / (step_ns * max(len(device_kernels(trace)), 1)) if has_mfu else None
    placed = ~np.isnan(stepped.ideal_ns)
    spent = int(stepped.ns[placed].sum())
    return _Totals(
        step_ns=step_ns,
        flops=float(stepped.flops[model].sum()) if model.any() else None,
        mfu=mfu,
        bytes=float(np.nansum(stepped.bytes)),
        of_roof=float(stepped.ideal_ns[placed].sum()) / spent if spent else None,
        at_least=misses_work(trace, calls, is_selected) or (has_mfu and bool(np.isnan(ideal).any())),
        bytes_at_least=bool((np.isnan(stepped.bytes) & ~np.isnan(stepped.flops)).any()),
    )


def _phases(trace: Trace, calls: OperatorCalls, windows: StepWindows, peak: Peak | None) -> RooflinePhaseColumns:
    """Return a row per phase of a server's steps, the longest first."""
    rows: list[Any] = []
    phases: set[Phase] = {phase for phase in windows.phases if phase}
    for phase in phases:
        phase_windows = windows.select_phase(phase)
        totals = _totals(trace, calls, phase_windows, peak)
        step_ns, moved = totals.step_ns, totals.bytes
        rate = moved / step_ns * 1e9 / max(len(device_kernels(trace)), 1) if step_ns and moved else None
        share = rate / peak.bandwidth if rate and peak and peak.bandwidth else None
        placed = known_work_ratio(trace, calls, is_in(trace.events.step, phase_windows.index))
        at_least = totals.at_least or totals.bytes_at_least
        work = (totals.flops, totals.mfu, moved or None, rate, share, totals.of_roof, placed, at_least)
        rows.append((phase, len(phase_windows), step_ns, *work))
    return from_rows(RooflinePhaseColumns, sorted(rows, key=lambda row: -row[2]))


def make_charts(result: RooflineAnswer, params: RooflineParams, top: int) -> dict[str, charts.Option]:
    """Return the chart `roofline`: FLO/s over FLO per byte of the longest operators, one series per family.

    Operators without both values are left out. The `id` of a point is the name and the shapes of its row.
    """
    rows = result.columns
    spent, x, y = (np.asarray(column, np.float64) for column in (rows.total_ns, rows.intensity, rows.flop_rate))
    shown = np.flatnonzero((x > 0) & (y > 0) & (spent >= MIN_SHARE * spent.sum()))[:top]
    if not len(shown):
        return {}
    size = MIN_POINT + (MAX_POINT - MIN_POINT) * np.sqrt(spent[shown] / spent[shown].max())
    series: dict[str, list[charts.Option]] = {}
    for place, row in enumerate(shown.tolist()):
        series.setdefault(f"@t:roofline.family.{rows.family[row]}", []).append(
            {
                "name": rows.name[row],
                "id": f"{rows.name[row]} {rows.input_shapes[row] or ''}",
                "symbolSize": round(float(size[place]), 1),
                "value": [float(x[row]), float(y[row]), float(spent[row]), float(rows.bandwidth[row])],
            }
        )
    fields = (
        ("@t:column.in_roofline.intensity", "intensity"),
        ("@t:column.in_roofline.flop_rate", "flop_rate"),
        ("@t:column.total_ns", "ns"),
        ("@t:column.bandwidth", "rate"),
    )
    return {"roofline": charts.scatter(list(series.items()), fields, _roofs(result, x[shown]))}


def _columns(trace: Trace, calls: OperatorCalls, keep: Mask, peak: Peak | None) -> RooflineColumns:
    got = roofline_groups(trace, calls, keep, peak)
    rows = calls.rows[keep][got.groups.first]
    seconds = np.where(got.ns > 0, got.ns, np.nan) / 1e9
    shapes = name_texts(trace, trace.arg("input_shapes", rows, 0).astype(np.int64))
    columns: dict[str, Column] = {
        "name": name_texts(trace, trace.events.name[rows]),
        "input_shapes": [shape or None for shape in shapes],
        "family": got.family,
        "precision": [precision or None for precision in got.precision],
        "calls": got.groups.count,
        "kernels": got.kernel_count,
        "kernel": [kernel or None for kernel in name_texts(trace, got.kernel)],
        "total_ns": got.ns,
        "flops": got.flops,
        "bytes": got.bytes,
        "flop_rate": got.flops / seconds,
        "bandwidth": got.bytes / seconds,
        "intensity": got.flops / np.where(got.bytes > 0, got.bytes, np.nan),
        "bound": got.bound,
        "of_roof": got.ideal_ns / 1e9 / seconds,
    }
    return RooflineColumns(**sort_columns(columns, "total_ns"))


def _peaks(peak: Peak | None) -> PeakColumns:
    rows = [*peak.flops.items(), ("other", peak.other)] if peak else []
    return from_rows(PeakColumns, sorted((row for row in rows if row[1] > 0), key=lambda row: -row[1]))


def _roofs(result: RooflineAnswer, x: Floats) -> list[charts.Option]:
    """Return one roof per type that the operators use, the highest first. All share the bandwidth slope."""
    used = {*result.columns.precision, "other"}
    peaks = zip(result.peaks.columns.precision, result.peaks.columns.flop_rate, strict=True)
    tops = list({flops: name for name, flops in reversed(list(peaks)) if name in used}.items())[::-1]
    if not tops or result.bandwidth is None:
        return []
    low, high = float(x.min()) / 2, max(float(x.max()), tops[0][0] / result.bandwidth) * 2
    roofs: list[charts.Option] = []
    for flops, name in tops:
        ridge = flops / result.bandwidth
        start = [[low, low * result.bandwidth]] if flops == tops[0][0] and low < ridge else []
        roofs.append(
            {
                "type": "line",
                "name": f"@t:roofline.precision.{name}",
                "showSymbol": False,
                "silent": True,
                "lineStyle": {"type": "dashed", "width": 1.5},
                "itemStyle": {"color": "@c:other"},
                "data": [*start, [max(ridge, low), flops], [high, flops]],
            }
        )
    return roofs


VIEW = View("roofline", 22, needs, RooflineParams, compute, make_charts)
