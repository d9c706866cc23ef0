"""Memory that grows in every step: blocks of each step that are alive at the end, by call stack."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from visualprof.reader.trace import Ids, Ints, Trace
from visualprof.reader.trace.heap import NO_TIME, Heap
from visualprof.views.measure.heap.moment import device_entries

MIN_STEPS = 3


class Growth(NamedTuple):
    """Blocks with one label that were allocated in every step and are alive at the end of the history.

    Attributes:
        label: Their label.
        step_bytes: Requested bytes that remain of each step.
    """

    label: int
    step_bytes: list[int]


def step_entries(trace: Trace, heap: Heap, device: int) -> list[tuple[int, int]]:
    """Return the first entry of each step, and the number after its last one; empty without times or steps."""
    return [entries for _, entries in _steps(trace, heap, device)]


def named_steps(trace: Trace, heap: Heap, device: int) -> dict[str, tuple[int, int]]:
    """Return the entries of each step by its name, like `step_entries`."""
    return dict(_steps(trace, heap, device))


def _steps(trace: Trace, heap: Heap, device: int) -> list[tuple[str, tuple[int, int]]]:
    first, end = device_entries(heap, device)
    times = heap.entries.time_us[first:end] * 1000
    steps = trace.steps
    if not len(times) or (heap.entries.time_us[first:end] == NO_TIME).any():
        return []
    starts = np.searchsorted(times, steps.ts) + first
    ends = np.searchsorted(times, steps.ts + steps.dur, side="right") + first
    names: list[int] = steps.name.tolist()
    bounds = zip(starts.tolist(), ends.tolist(), strict=True)
    return [(trace.strings[name], (a, b)) for name, (a, b) in zip(names, bounds, strict=True) if b > a]


def find_growth(heap: Heap, device: int, steps: list[tuple[int, int]], labels: Ids) -> list[Growth]:
    """Return the labels with memory that grows in every complete step, the fastest first.

    Blocks of the last step count although later steps might have released them; with fewer than `MIN_STEPS` steps
    nothing is said.

    Args:
        heap: The allocator's memory.
        device: Number of the device.
        steps: Entries of the steps, from `step_entries`.
        labels: (n,) label of each row of `heap.blocks`, from 0.
    """
    if len(steps) < MIN_STEPS:
        return []
    blocks = heap.blocks
    end = device_entries(heap, device)[1]
    is_left = (blocks.device == device) & (blocks.died >= end)
    count = int(labels.max(initial=-1)) + 1
    remaining: list[Ints] = []
    for first, last in steps:
        rows = np.flatnonzero(is_left & (blocks.born >= first) & (blocks.born < last))
        remaining.append(np.bincount(labels[rows], blocks.requested[rows], count).astype(np.int64))
    table = np.array(remaining)
    grows = np.flatnonzero((table > 0).all(axis=0))
    order = grows[np.argsort(-table[:, grows].sum(axis=0), kind="stable")]
    return [Growth(int(label), table[:, label].tolist()) for label in order.tolist()]
