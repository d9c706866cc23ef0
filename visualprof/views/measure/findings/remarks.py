"""Remarks about a recording: where its time goes, and reasons not to conclude that nothing is slow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec
import numpy as np

from visualprof.reader.trace import Rows
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.findings.detection import RuleContext
from visualprof.views.measure.launches.launch import launches, operator_times
from visualprof.views.measure.names.families import kernel_family
from visualprof.views.measure.names.kernel_names import short_name
from visualprof.views.measure.steps.windows import device_kernels

RemarkId = Literal["cut_off", "uneven_steps", "slow_first_step", "device_busy", "top_kernels", "top_operator"]
MIN_SPREAD = 1.5  # longest over shortest typical step from which steps are uneven
MIN_BUSY_RATIO = 0.9  # a device that works for longer sets the pace
MIN_TOP_RATIO = 0.05  # of the self time of all operators; less says nothing about where the time goes


class Remark(msgspec.Struct, frozen=True):
    """A fact about where the time goes.

    Attributes:
        id: Its text is in the locales under `finding`.
        evidence: The measured numbers.
    """

    id: RemarkId
    evidence: Mapping[str, int | float | str]


def find_remarks(context: RuleContext) -> list[Remark]:
    """Return the remarks about a recording, doubts about its steps first. Source: docs/findings.md#remarks."""
    remarks = [Remark("cut_off", {})] if context.trace.meta.truncated else []
    return [*remarks, *_step_remarks(context), *_device_remarks(context)]


def _step_remarks(context: RuleContext) -> Iterator[Remark]:
    """Yield that typical steps differ, or that the first step is a warm-up."""
    if not len(context.trace.steps) or not context.is_typical.any():
        return
    total, is_typical = context.part_ns["total"], context.is_typical
    typical = total[is_typical]
    shortest, longest = int(typical.min()), int(typical.max())
    if longest > MIN_SPREAD * shortest:
        yield Remark("uneven_steps", {"shortest_step_ns": shortest, "longest_step_ns": longest, "steps": len(typical)})
    same_phase = np.flatnonzero(context.windows.main_phase()[1])
    first = int(same_phase[0])
    if not is_typical[first] and total[first] > MIN_SPREAD * context.step_ns:
        yield Remark("slow_first_step", {"first_step_ns": int(total[first]), "median_step_ns": round(context.step_ns)})


def _device_remarks(context: RuleContext) -> Iterator[Remark]:
    """Yield that a device is busy, and the kernels or the operator with the most time."""
    busiest = max(context.devices, key=lambda device: device.utilization or 0.0, default=None)
    if busiest is None or busiest.utilization is None:
        yield from _top_operator(context)
        return
    if busiest.utilization >= MIN_BUSY_RATIO and context.trace.meta.device_work == "kernel":
        yield Remark("device_busy", {"device": busiest.id, "utilization_ratio": busiest.utilization})
    rows = context.in_typical_steps(device_kernels(context.trace)[busiest.id].rows)
    time_by_family = _time_by_family(context, rows)
    if time_by_family:
        family, spent = max(time_by_family.items(), key=lambda item: item[1])
        kernel_ratio = spent / sum(time_by_family.values())
        yield Remark("top_kernels", {"family": family, "kernel_ratio": kernel_ratio})


def _time_by_family(context: RuleContext, rows: Rows) -> dict[str, float]:
    """Return the summed time of some kernels by family; kernels of no family count by their short name."""
    events, spent = context.trace.events, dict[str, float]()
    names = group(events.name[rows])
    total_ns = names.sum(events.dur[rows])
    for row, ns in zip(rows[names.first].tolist(), total_ns.tolist(), strict=True):
        name = context.event_name(row)
        family = kernel_family(name) or short_name(name)
        spent[family] = spent.get(family, 0.0) + ns
    return spent


def _top_operator(context: RuleContext) -> Iterator[Remark]:
    """Yield the operator with the longest self time on the host, as a share of the self time of all operators."""
    times = operator_times(context.trace, launches(context.trace))
    is_inside = np.isin(times.rows, context.in_typical_steps(times.rows))
    rows, self_ns = times.rows[is_inside], times.host_self[is_inside]
    if not self_ns.sum():
        return
    names = group(context.trace.events.name[rows])
    total_ns = names.sum(self_ns)
    longest = int(total_ns.argmax())
    ratio = float(total_ns[longest] / total_ns.sum())
    if ratio >= MIN_TOP_RATIO:
        name = context.event_name(int(rows[names.first[longest]]))
        yield Remark("top_operator", {"operator": name, "self_ratio": ratio})
