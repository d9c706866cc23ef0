"""Tables of memory: allocations, and the allocated and reserved bytes over time."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import numpy as np

from visualprof.query import origins
from visualprof.query.tables.blocks import labels_or_none
from visualprof.query.tables.columns import Builder, Values, event_ids, objects, words
from visualprof.query.tables.events import names_of, stack_values, step_names
from visualprof.query.tables.facts import Facts
from visualprof.reader.trace import NO_ADDRESS, Ids, Ints, Trace
from visualprof.reader.trace.heap import Heap
from visualprof.views.measure.devices.memory import (
    NEVER,
    is_memory_owner,
    lifetimes,
    memory_curve,
    memory_devices,
    memory_owners,
)
from visualprof.views.measure.devices.memory_categories import allocation_purposes
from visualprof.views.measure.operators.call_paths import path_labels


class AllocationTable(Facts):
    """Allocations with their releases."""

    @cached_property
    def lifetimes(self) -> tuple[Ints, Ints, list[str]]:
        """Return the memory event, the end and the purpose of each allocation, in the order of time."""
        rows, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        purposes: list[tuple[int, str]] = []
        for device in memory_devices(self.trace):
            lives = lifetimes(self.trace, device)
            purpose = allocation_purposes(self.trace, lives)
            at = np.flatnonzero(lives.alloc_row >= 0)
            rows.append(lives.alloc_row[at])
            ends.append(lives.end_ns[at])
            ids: list[int] = purpose.ids[at].tolist()
            names = [purpose.names[i] for i in ids]
            purposes += zip(lives.alloc_row[at].tolist(), names, strict=True)
        row = np.concatenate(rows)
        order = np.argsort(row, kind="stable")
        return row[order], np.concatenate(ends)[order], [name for _, name in sorted(purposes)]

    @cached_property
    def owners(self) -> Ids:
        """Return the operator around each allocation, -1 for none."""
        return memory_owners(self.trace, is_memory_owner(self.trace))[self.lifetimes[0]]

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        trace, allocs = self.trace, self.trace.allocs
        row, end, purposes = self.lifetimes
        event, start = allocs.event[row], allocs.ts[row]
        is_open = end == NEVER
        step = np.where(event >= 0, trace.events.step[event], -1) if len(trace.events) else event
        module = origins.modules(trace)
        path = np.where(event >= 0, origins.module_path_ids(trace)[event], -1) if len(trace.events) else event
        return {
            "id": lambda: Values(row, "memory"),
            "ts": lambda: Values(start, "time"),
            "freed_ts": lambda: Values(np.where(is_open, origins.NO_TIME, end), "time", origins.NO_TIME),
            "lifetime": lambda: Values(np.where(is_open, -1, end - np.where(is_open, 0, start)), missing=-1),
            "bytes": lambda: Values(allocs.bytes[row]),
            "device": lambda: Values(allocs.device[row]),
            "address": lambda: objects([_address(value) for value in allocs.addr[row].tolist()]),
            "purpose": lambda: objects(purposes),
            "event_id": lambda: event_ids(event),
            "op_id": lambda: event_ids(self.owners),
            "op": lambda: Values(names_of(trace, self.owners), "text"),
            "operator": lambda: self._recorded("operator") or Values(names_of(trace, self.owners), "text"),
            "module_id": lambda: event_ids(np.where(event >= 0, module[event], -1)),
            "module": lambda: (
                self._recorded("module") or words(path, path_labels(origins.module_paths(trace), trace.strings))
            ),
            "stack": lambda: stack_values(trace, self.owners),
            "step_id": lambda: Values(step, "step", -1),
            "step": lambda: Values(step_names(trace)[step], "text"),
        }

    def _recorded(self, by: Literal["operator", "module"]) -> Values | None:
        """Return the labels of a memory snapshot's blocks, `None` for another trace."""
        if self.trace.heap is None:
            return None
        block = blocks_of_allocs(self.trace, self.trace.heap)[self.lifetimes[0]]
        labels = labels_or_none(self.trace, by)
        rows: list[int] = block.tolist()
        return objects([labels[row] for row in rows])


def blocks_of_allocs(trace: Trace, heap: Heap) -> Ints:
    """Return the block of each allocation in the memory events of a snapshot, -1 for releases.

    The reader writes one allocation per block and device, in the order of the history.
    """
    allocs, out = trace.allocs, np.full(len(trace.allocs.ts), -1, np.int64)
    for device in heap.tables.device.tolist():
        blocks = np.flatnonzero(heap.blocks.device == device)
        rows = np.flatnonzero((allocs.device == device) & (allocs.bytes > 0))
        if len(rows):  # a device without a history has no memory events
            out[rows] = blocks[np.argsort(heap.blocks.born[blocks], kind="stable")]
    return out


class MemoryTable(Facts):
    """Memory events."""

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        allocs = self.trace.allocs
        return {
            "id": lambda: Values(np.arange(len(allocs.ts)), "memory"),
            "ts": lambda: Values(allocs.ts, "time"),
            "device": lambda: Values(allocs.device),
            "bytes": lambda: Values(allocs.bytes),
            "allocated": lambda: Values(self._totals()[0], missing=-1),
            "reserved": lambda: Values(self._totals()[1], missing=-1),
            "address": lambda: objects([_address(value) for value in allocs.addr.tolist()]),
            "event_id": lambda: event_ids(allocs.event),
        }

    def _totals(self) -> tuple[Ints, Ints]:
        """Return the totals after each event, -1 if unknown; without totals in the file, sums from the first event."""
        totals = tuple(np.full(len(self.trace.allocs.ts), -1, np.int64) for _ in range(2))
        for device in memory_devices(self.trace):
            curve = memory_curve(self.trace, device)
            totals[0][curve.alloc_rows], totals[1][curve.alloc_rows] = curve.allocated, curve.reserved
        return totals[0], totals[1]


def _address(value: int) -> str | None:
    return None if value == NO_ADDRESS else hex(value)
