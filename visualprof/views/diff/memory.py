"""Compared memory of a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from visualprof.reader.trace import Trace
from visualprof.reader.trace.heap import is_at
from visualprof.views import view
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns, Table, from_rows
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.timing import name_texts
from visualprof.views.measure.devices.memory import is_memory_owner, memory_owners
from visualprof.views.measure.heap.choice import choose_entry, heap_of
from visualprof.views.measure.heap.growth import named_steps
from visualprof.views.measure.heap.labels import block_labels, place_name
from visualprof.views.measure.heap.moment import device_entries
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

    Memory by operator is the memory held at the peak and the memory allocated per step; of a memory snapshot, it is by
    the function that allocated it.
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
    if trace.heap is not None:
        return Table(columns=from_rows(HeldColumns, [*rows, *_held_in_snapshot(trace, answer.device, step)]))
    if answer.peak.operators:  # UNSET without a curve
        held = answer.peak.operators.columns
        rows += [(n, "held_at_peak", answer.device, None, int(b)) for n, b in zip(held.name, held.bytes, strict=True)]
    for phase in dict.fromkeys(windows.phases):
        phase_windows = windows.select_phase(phase)
        rows += (
            (n, "allocated", answer.device, phase, size) for n, size in _allocated(trace, phase_windows, answer.device)
        )
    return Table(columns=from_rows(HeldColumns, rows))


def _held_in_snapshot(trace: Trace, device: int, step: str) -> Iterator[tuple[Any, ...]]:
    """Yield the memory by function: requested bytes at the peak, and allocated bytes per step or of the whole history.

    Args:
        trace: A memory snapshot.
        device: Number of the device.
        step: Name of the step to compare; "" for the whole history.
    """
    heap, labels = heap_of(trace), block_labels(trace, "line")
    places = [place_name(name) for name in labels.names]
    blocks = heap.blocks
    on_device = blocks.device == device
    at_peak = on_device & is_at(blocks.born, blocks.died, choose_entry(trace, device, step or "peak"))
    steps = named_steps(trace, heap, device)
    ranges = [steps[step]] if step in steps else list(steps.values())
    in_steps = np.zeros(len(on_device), bool)
    for first, end in ranges or [device_entries(heap, device)]:
        in_steps |= on_device & (blocks.born >= first) & (blocks.born < end)
    for figure, rows, count in (("held_at_peak", at_peak, 1), ("allocated", in_steps, max(len(ranges), 1))):
        sums = np.bincount(labels.label[rows], blocks.requested[rows], len(places))
        totals: dict[str, int] = {}
        for place, size in zip(places, sums.tolist(), strict=True):
            totals[place] = totals.get(place, 0) + int(size)
        yield from ((place, figure, device, None, round(size / count)) for place, size in totals.items() if size)


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
