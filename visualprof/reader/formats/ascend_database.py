"""Databases of torch_npu and msprof: `ascend_pytorch_profiler_{rank}.db`, `msprof_{time}.db`.

Times are ns since 1970. Texts are numbers in the table STRING_IDS. Columns differ between versions, so a column is only
read if it exists. Tables that MindStudio Insight adds to a file that it opened are ignored.
Source: Ascend/msprof-analyze, docs, "db interface"
"""

from __future__ import annotations

import numpy as np

from visualprof.messages import msg
from visualprof.reader.ascend.counters import add_counters
from visualprof.reader.ascend.database import Database
from visualprof.reader.ascend.database_device import DeviceTables
from visualprof.reader.ascend.database_host import HostTables
from visualprof.reader.ascend.folder import RecordingFacts, read_facts
from visualprof.reader.ascend.kernels import CubeCores
from visualprof.reader.ascend.matrix import read_transfers
from visualprof.reader.ascend.memory import add_operator_memory, operators_at
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.sqlite_file import MAGIC, Tables, map_distinct, open_database
from visualprof.reader.trace import Device
from visualprof.reader.trace.builder import TraceBuilder

# The head may hold none of the schema: tables are created while others are filled. It holds texts of the first tables.
_HEAD_TEXTS = (b"RDMA_SEND_NOTIFY", b"STANDARD_ROCE", b"COMPUTE_TASK_INFO", b"PYTORCH_API", b"CANN_API")


def start(head: bytes) -> bool:
    """Return whether this is an SQLite database."""
    return head.startswith(MAGIC)


def sniff(head: bytes) -> bool:
    """Return whether its first pages contain texts of Ascend's tables."""
    return any(text in head for text in _HEAD_TEXTS)


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a database. What follows a damaged page is left out, with a warning."""
    import sqlite3

    with open_database(source) as database:
        try:
            recording = _Recording(source, builder, Tables(database))
            recording.read()
        except sqlite3.DatabaseError as error:
            raise source.error(
                msg("ascend.no_whole_database", f"no whole database of an Ascend profiler ({error})"),
                msg("ascend.copy_database", "close the program that writes it, or copy the file again"),
            ) from error


class _Recording:
    """Reads the database table by table."""

    def __init__(self, source: Source, builder: TraceBuilder, tables: Tables) -> None:
        self._path = source.path.absolute()
        self._facts: RecordingFacts = read_facts(self._path, builder)
        self._db = Database(builder, tables)
        self._host = HostTables(self._db)
        self._device = DeviceTables(self._db, self._facts)

    def read(self) -> None:
        """Read everything."""
        pid = self._host.read_calls()
        self._host.read_operators()
        self._host.read_ranges()
        self._device.read_collectives(pid)
        cores = self._device.read_tasks(pid)
        self._read_memory()
        add_counters(self._db.builder, self._db.tables, self._db.texts)
        self._describe(cores)

    def _read_memory(self) -> None:
        """Read the allocations of operators."""
        columns = self._db.tables.integers(
            "OP_MEMORY",
            *("name", "size", "allocationTime", "releaseTime", "allocationTotalAllocated", "deviceId"),
            *("allocationTotalReserved", "releaseTotalAllocated", "releaseTotalReserved"),
        )
        if not len(columns["size"]):
            return
        ids = self._db.writer.texts(columns["name"], self._db.text)
        is_engine = map_distinct(columns["name"], lambda number: self._db.text(number).startswith("cann::")) > 0
        add_operator_memory(
            self._db.builder,
            size=columns["size"],
            allocated_at=columns["allocationTime"],
            released_at=columns["releaseTime"],
            totals={
                "allocated": np.maximum(columns["allocationTotalAllocated"], -1),
                "reserved": np.maximum(columns["allocationTotalReserved"], -1),
                "released_allocated": np.maximum(columns["releaseTotalAllocated"], -1),
                "released_reserved": np.maximum(columns["releaseTotalReserved"], -1),
            },
            is_framework=~is_engine,
            device=np.maximum(columns["deviceId"], 0),
            event=operators_at(ids, columns["allocationTime"], *self._host.operators),
        )

    def _describe(self, cube: CubeCores) -> None:
        facts, tables = self._facts, self._db.tables
        has_framework = self._host.has_framework
        ranks = tables.integers("RANK_DEVICE_MAP", "rankId")["rankId"]
        names_of_chips = tables.texts("NPU_INFO", "id", "name")
        self._db.builder.describe(
            framework="pytorch" if has_framework else "cann",
            producer="torch_npu profiler" if has_framework else "msprof",
            host=next(iter(tables.texts("HOST_INFO", "hostUid", "hostName").values()), ""),
            rank=int(ranks[0]) if len(ranks) == 1 and ranks[0] >= 0 else facts.rank,
            world_size=facts.world_size,
            groups=facts.groups,
            transfers=read_transfers(self._path.parent, facts, self._db.builder),
            device_type="npu",
            devices=tuple(
                Device(
                    id=number,
                    name=names_of_chips.get(number, ""),
                    multiprocessors=cube.cores,
                    clock_mhz=cube.mhz,
                )
                for number in sorted(self._db.devices | names_of_chips.keys())
            ),
            clock_origin_ns=0,
        )


FORMAT = Format("ascend-database", "Ascend NPUs (torch_npu, msprof)", 28, sniff, read, start=start)
