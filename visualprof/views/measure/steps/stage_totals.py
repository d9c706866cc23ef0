"""Host and device time of the stages of the steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from visualprof.reader.trace import Ints, Trace
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns
from visualprof.views.measure.columns.intervals import covered_ns, merge
from visualprof.views.measure.launches.launch import Launches
from visualprof.views.measure.steps.stage_times import device_time_in_ranges
from visualprof.views.measure.steps.stages import Stage, unknown_stages
from visualprof.views.measure.steps.windows import StepWindows


class StageColumns(Columns):
    """Stages of the steps; `other` is time outside of all stages.

    Host columns cover the time of the host in the stage, device columns the work launched in it.

    Values are unknown if forward and backward cannot be told apart.

    Attributes:
        derived: Whether the stage is derived rather than annotated in the trace.
        host_ratio: Share of the host time in the steps.
    """

    name: kinds.WordColumn
    derived: kinds.FlagColumn
    calls: kinds.CountColumn
    host_total_ns: kinds.DurationColumn
    host_mean_ns: kinds.DurationColumn
    host_max_ns: kinds.DurationColumn
    host_min_ns: kinds.DurationColumn
    host_ratio: kinds.RatioColumn
    device_total_ns: kinds.DurationColumn
    device_mean_ns: kinds.DurationColumn
    device_max_ns: kinds.DurationColumn
    device_min_ns: kinds.DurationColumn
    device_ratio: kinds.RatioColumn


def stage_totals(trace: Trace, windows: StepWindows, stages: dict[str, Stage], joined: Launches) -> StageColumns:
    """Return host and device time of the stages of the steps; `other` is time outside of all stages."""
    low, high = windows.host_spans[:, 0], windows.host_spans[:, 1]
    rest = device_time_in_ranges(trace, joined.work, joined.issuer, low, high)
    host_whole, device_whole = int((high - low).sum()), int(rest.sum())
    rows: list[dict[str, Any]] = []
    for name, stage in stages.items():
        spans, step = windows.split_spans(stage.spans)
        device = device_time_in_ranges(trace, joined.work, joined.issuer, spans[:, 0], spans[:, 1])
        np.subtract.at(rest, step, device)
        call = np.searchsorted(stage.start, spans[:, 0], side="right") - 1
        shown = windows.positions_at(stage.start) >= 0
        shown[call] = True
        times = (spans[:, 1] - spans[:, 0], device)
        host_ns, device_ns = (np.bincount(call, v, len(shown)).astype(np.int64)[shown] for v in times)
        rows.append(_stage_row(name, stage.derived, host_ns, device_ns, host_whole, device_whole))
    spans = merge(*(s.spans for s in stages.values()))
    if not len(joined.work):
        rest = rest[:0]
    rows.append(_stage_row("other", False, high - low - covered_ns(spans, low, high), rest, host_whole, device_whole))
    if unknown := unknown_stages(trace):
        none = dict.fromkeys(rows[0])
        rows[-1:] = [none | {"name": name, "derived": False} for name in (*unknown, "other")]
    return StageColumns(**{k: [r[k] for r in rows] for k in rows[0]})


def _stage_row(
    name: str, derived: bool, host: Ints, device: Ints, host_whole: int, device_whole: int
) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "derived": derived, "calls": len(host)}
    for prefix, values, base in (("host", host, host_whole), ("device", device, device_whole)):
        some = len(values) > 0
        row |= {
            f"{prefix}_total_ns": int(values.sum()),
            f"{prefix}_mean_ns": float(values.mean()) if some else np.nan,
            f"{prefix}_max_ns": int(values.max()) if some else None,
            f"{prefix}_min_ns": int(values.min()) if some else None,
            f"{prefix}_ratio": float(values.sum() / base) if base else np.nan,
        }
    return row
