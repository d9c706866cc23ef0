"""Compared memory of a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from visualprof.reader.trace import Trace
from visualprof.views import view
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns, Table, from_rows
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.timing import name_texts
from visualprof.views.measure.devices.memory import is_memory_owner, memory_owners
from visualprof.views.measure.steps.windows import StepWindows


class HeldColumns(Columns):
    """Memory, as in `DiffSizes`.

    Attributes:
        phase: Phase of the steps that it covers; None for the whole recording.
    """

    name: kinds.NameColumn
    what: kinds.WordColumn
    device: kinds.IdentifierColumn
    phase: kinds.WordColumn
    bytes: kinds.SizeColumn


def memory_table(trace: Trace, windows: StepWindows, step: str) -> Table[HeldColumns] | None:
    """Return the peaks of each device, and memory by operator on the device with the highest peak.

    Memory by operator is the memory held at the peak and the memory allocated per step.
    """
    memory = view("memory")
    if not memory.needs(trace):
        return None
    answer: Any = memory.compute(trace, memory.parse({"step": step} if step else {}))
    rows: list[tuple[Any, ...]] = []
    for device in answer.devices:
        name = device.name or f"device {device.id}"
        rows.append((name, "peak_allocated", device.id, None, device.peak_allocated_bytes))
        if device.peak_reserved_bytes is not None:
            rows.append((name, "peak_reserved", device.id, None, device.peak_reserved_bytes))
    if answer.peak.operators:  # UNSET without a curve
        held = answer.peak.operators.columns
        rows += [(n, "held_at_peak", answer.device, None, int(b)) for n, b in zip(held.name, held.bytes, strict=True)]
    for phase in dict.fromkeys(windows.phases):
        phase_windows = windows.select_phase(phase)
        rows += (
            (n, "allocated", answer.device, phase, size) for n, size in _allocated(trace, phase_windows, answer.device)
        )
    return Table(columns=from_rows(HeldColumns, rows))


def _allocated(trace: Trace, windows: StepWindows, device: int) -> Iterator[tuple[str, int]]:
    """Yield the bytes that operators allocate themselves per mean step."""
    allocs = trace.allocs
    row = memory_owners(trace, is_memory_owner(trace))
    place = np.flatnonzero((allocs.device == device) & (allocs.bytes > 0) & (row >= 0))
    place = place[windows.positions(trace, row[place]) >= 0]
    name = trace.events.name[row[place]]
    operators = group(name)
    mean = np.rint(operators.sum(allocs.bytes[place]) / len(windows)).astype(np.int64)
    return zip(name_texts(trace, name[operators.first]), mean.tolist(), strict=True)
