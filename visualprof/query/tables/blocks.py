"""The table of blocks of a memory snapshot."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from visualprof.query import origins
from visualprof.query.tables.columns import Builder, Values, objects, words
from visualprof.query.tables.facts import Facts
from visualprof.reader.trace import Floats, Ids, Ints, Mask, Trace
from visualprof.reader.trace.heap import NO_TIME, Heap
from visualprof.views.measure.heap.growth import named_steps
from visualprof.views.measure.heap.labels import GroupBy, block_labels, pool_name, stack_frames, stream_name


class BlockTable(Facts):
    """Blocks of a memory snapshot; other traces have none."""

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        if self.trace.heap is None:
            return {"id": lambda: Values(np.zeros(0, np.int64))}
        heap = self.trace.heap
        blocks = heap.blocks
        born, died = self.entries
        return {
            "id": lambda: Values(np.arange(len(blocks.addr))),
            "ts": lambda: Values(self._times(heap, blocks.born, born >= 0), "time", origins.NO_TIME),
            "freed_ts": lambda: Values(self._times(heap, blocks.died, died >= 0), "time", origins.NO_TIME),
            "lifetime": lambda: Values(self._lifetimes(heap)),
            "entry": lambda: Values(born, missing=-1),
            "freed_entry": lambda: Values(died, missing=-1),
            "requested": lambda: Values(blocks.requested),
            "bytes": lambda: Values(blocks.size),
            "exact": lambda: Values(blocks.exact != 0),
            "device": lambda: Values(blocks.device),
            "address": lambda: objects([hex(value) for value in blocks.addr.tolist()]),
            "pool": lambda: objects([pool_name(heap, row) for row in blocks.pool.tolist()]),
            "stream": lambda: objects([stream_name(heap, row) for row in blocks.stream.tolist()]),
            **{name: self._label(by) for name, by in _LABELS.items()},
            "operator": lambda: objects(labels_or_none(self.trace, "operator")),
            "stack": lambda: self._stacks(heap, blocks.stack),
            "free_stack": lambda: self._stacks(heap, blocks.free_stack),
            "step": lambda: objects(self._steps(heap, born)),
        }

    @cached_property
    def entries(self) -> tuple[Ints, Ints]:
        """Return the entries that allocated and released each block, counted from 0 on its device; -1 for none."""
        heap = self.trace.heap
        assert heap is not None
        blocks, tables = heap.blocks, heap.tables
        index = np.searchsorted(tables.device, blocks.device)
        first, end = tables.first_entry[index], tables.first_entry[index + 1]
        return np.maximum(blocks.born - first, -1), np.where(blocks.died < end, blocks.died - first, -1)

    def _times(self, heap: Heap, entries: Ints, is_known: Mask) -> Ints:
        """Return the times of entries in the clock of the trace."""
        out = np.full(len(entries), origins.NO_TIME, np.int64)
        rows = np.flatnonzero(is_known)
        times = heap.entries.time_us[entries[rows]]
        out[rows] = np.where(times == NO_TIME, origins.NO_TIME, times * 1000)
        return out

    def _lifetimes(self, heap: Heap) -> Floats:
        born, died = self.entries
        start, end = (
            self._times(heap, column, entry >= 0)
            for column, entry in ((heap.blocks.born, born), (heap.blocks.died, died))
        )
        is_known = (start != origins.NO_TIME) & (end != origins.NO_TIME)
        return np.where(is_known, np.where(is_known, end, 0) - np.where(is_known, start, 0), np.nan)

    def _label(self, by: GroupBy) -> Builder:
        return lambda: objects(labels_or_none(self.trace, by))

    def _stacks(self, heap: Heap, stacks: Ids) -> Values:
        texts = ["\n".join(stack_frames(self.trace, stack)) for stack in range(len(heap.stacks.offset) - 1)]
        is_empty = np.array([not text for text in texts], bool)
        return words(np.where(is_empty[stacks], -1, stacks), texts)

    def _steps(self, heap: Heap, born: Ints) -> list[str | None]:
        """Return the name of the step that allocated each block."""
        out: list[str | None] = [None] * len(born)
        for index, device in enumerate(heap.tables.device.tolist()):
            first = int(heap.tables.first_entry[index])
            for name, (low, high) in named_steps(self.trace, heap, device).items():
                is_inside = (heap.blocks.device == device) & (born >= low - first) & (born < high - first)
                for row in np.flatnonzero(is_inside).tolist():
                    out[row] = name
        return out


def labels_or_none(trace: Trace, by: GroupBy) -> list[str | None]:
    """Return the label of each block of a memory snapshot, `None` for none.

    There are no operators unless the snapshot is joined with a recording.
    """
    heap = trace.heap
    assert heap is not None
    if by == "operator" and not len(heap.origins):
        return [None] * len(heap.blocks.addr)
    labels = block_labels(trace, by)
    rows: list[int] = labels.label.tolist()
    return [labels.names[row] or None for row in rows]


_LABELS: dict[str, GroupBy] = {"line": "line", "function": "function", "module": "module", "category": "category"}
