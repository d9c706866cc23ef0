"""All tables of one trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from visualprof.query.tables import blocks, events, facts, memory
from visualprof.query.tables.columns import Builder, Values
from visualprof.query.tables.run_data import RUN_DATA_TABLES
from visualprof.reader.run_data.run import RunData
from visualprof.reader.trace import Trace

TABLES: dict[str, type[events.EventTable] | type[facts.Facts]] = {
    "slice": events.SliceTable,
    "track": facts.TrackTable,
    "thread_track": facts.ThreadTrackTable,
    "thread": facts.ThreadTable,
    "process": facts.ProcessTable,
    "flow": facts.FlowTable,
    "counter": facts.CounterTable,
    "counter_track": facts.CounterTrackTable,
    "step": facts.StepTable,
    "kernel": events.KernelTable,
    "op": events.OperatorTable,
    "copy": events.CopyTable,
    "collective": facts.CollectiveTable,
    "range": events.RangeTable,
    "module": events.ModuleTable,
    "python": events.PythonTable,
    "gap": facts.GapTable,
    "allocation": memory.AllocationTable,
    "memory": memory.MemoryTable,
    "block": blocks.BlockTable,
    "meta": facts.MetaTable,
}


class Source:
    """The columns of one trace, each computed once.

    Args:
        trace: The trace.
        name: Name of the trace in the table `trace`.
        rank: Rank in the column `rank`; by default that of the trace, `None` if unknown.
        read_run_data: Return the run data next to the trace, `None` without any. Called when a query needs it.
    """

    def __init__(
        self,
        trace: Trace,
        name: str,
        rank: int | None = None,
        read_run_data: Callable[[], RunData | None] = lambda: None,
    ) -> None:
        self.trace, self.name, self._read_run_data = trace, name, read_run_data
        self.rank = rank if rank is not None else trace.meta.rank if trace.meta.rank >= 0 else None
        self._builders: dict[str, dict[str, Builder]] = {}
        self._values: dict[tuple[str, str], Values | None] = {}

    @cached_property
    def _run_data(self) -> RunData | None:
        return self._read_run_data()

    def column(self, table: str, name: str) -> Values | None:
        """Return the values of a column, `None` if the trace has no such data."""
        key = table, name
        if key not in self._values:
            if table not in self._builders:
                if table in RUN_DATA_TABLES:
                    self._builders[table] = RUN_DATA_TABLES[table](self._run_data).builders()
                else:
                    self._builders[table] = TABLES[table](self.trace).builders()
            builder = self._builders[table].get(name)
            self._values[key] = builder() if builder else None
        return self._values[key]
