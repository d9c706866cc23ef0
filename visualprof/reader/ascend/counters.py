"""Counters of a recording of Ascend NPUs: clock, bandwidths, and memory by component."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from visualprof.reader.ascend.tables import NO_TIME, column, integers, read_table, times_ns
from visualprof.reader.sqlite_file import MISSING, Tables
from visualprof.reader.trace import TrackKind
from visualprof.reader.trace.builder import TraceBuilder


class _Counter(NamedTuple):
    """Samples of a table: one track per combination of keys and per value column.

    Attributes:
        table: The table.
        time: Column of the times.
        label: First part of the track names; the texts of the keys follow.
        keys: Columns of keys.
        values: Columns of values, with a name and unit for the track.
        texts: Keys that are ids of texts in the table STRING_IDS.
    """

    table: str
    time: str
    label: str
    keys: Sequence[str]
    values: Mapping[str, str]
    texts: Sequence[str] = ()


_COUNTERS = (
    _Counter("AICORE_FREQ", "timestampNs", "AI Core Freq", (), {"freq": "MHz"}),
    _Counter("HBM", "timestampNs", "HBM", ("hbmId", "type"), {"bandwidth": "B/s"}, ("type",)),
    _Counter("DDR", "timestampNs", "DDR", (), {"read": "read B/s", "write": "write B/s"}),
    _Counter("LLC", "timestampNs", "LLC", ("llcId", "mode"), {"hitRate": "hit %", "throughput": "B/s"}, ("mode",)),
    _Counter("NPU_MEM", "timestampNs", "NPU MEM", ("type",), {"hbm": "HBM B", "ddr": "DDR B"}, ("type",)),
    _Counter("NPU_MODULE_MEM", "timestampNs", "Module memory", ("moduleId",), {"totalReserved": "B"}),
    _Counter(
        "MEMORY_RECORD",
        "timestamp",
        "Memory",
        ("component",),
        {"totalAllocated": "allocated B", "totalReserved": "reserved B"},
        ("component",),
    ),
    _Counter(
        "ACC_PMU",
        "timestampNs",
        "Acc PMU",
        ("accId",),
        {"readBwLevel": "read level", "writeBwLevel": "write level"},
    ),
    _Counter(
        "SOC_BANDWIDTH_LEVEL",
        "timestampNs",
        "Stars Soc Info",
        (),
        {"l2BufferBwLevel": "L2 buffer level", "mataBwLevel": "Mata level"},
    ),
)


def add_counters(builder: TraceBuilder, tables: Tables, texts: Mapping[int, str]) -> None:
    """Add the samples of all tables of counters; rows without a time or value are left out."""
    modules = tables.texts("ENUM_MODULE", "id", "name")
    for counter in _COUNTERS:
        columns = tables.integers(counter.table, counter.time, *counter.keys)
        time = columns[counter.time]
        if not len(time):
            continue
        keys = np.stack([columns[key] for key in counter.keys] or [np.zeros(len(time), np.int64)], axis=1)
        distinct, index = np.unique(keys, axis=0, return_inverse=True)
        labels = [_label(counter, key, texts, modules) for key in distinct.tolist()]
        for name, unit in counter.values.items():
            values = tables.floats(counter.table, name)
            if len(values) != len(time):
                continue
            tracks = np.array([builder.track(TrackKind.COUNTER, f"{label} {unit}") for label in labels], np.int64)
            has_value = ~np.isnan(values) & (time > MISSING)
            builder.counter(tracks[index.ravel()[has_value]], time[has_value], values[has_value])


# Of the text form: file, first part of the track names, and columns in MiB with the rest of the track names
_MEMORY_TABLES = (
    ("memory_record.csv", "Memory", {"Total Allocated(MB)": "allocated B", "Total Reserved(MB)": "reserved B"}),
    ("npu_module_mem.csv", "Module memory", {"Total Reserved(MB)": "B"}),
)


def add_memory_curves(builder: TraceBuilder, folder: Path) -> None:
    """Add the memory of each component and module in the tables of the text form, on tracks as in the database."""
    for file, label, values in _MEMORY_TABLES:
        table = read_table(folder, file, builder)
        if not table:
            continue
        components = column(table, "Component")
        numbers_of = {name: number for number, name in enumerate(dict.fromkeys(components))}
        component = np.array([numbers_of[name] for name in components], np.int64)
        time = times_ns(column(table, "Timestamp(us)"))
        for name, unit in values.items():
            sizes = integers(column(table, name), -1, 1 << 20)
            is_known = (sizes >= 0) & (time != NO_TIME)
            used = set(component[is_known].tolist())
            tracks = np.array(
                [
                    builder.track(TrackKind.COUNTER, f"{label} {text} {unit}") if number in used else -1
                    for text, number in numbers_of.items()
                ],
                np.int64,
            )
            builder.counter(tracks[component[is_known]], time[is_known], sizes[is_known].astype(np.float64))


def _label(counter: _Counter, key: Sequence[int], texts: Mapping[int, str], modules: Mapping[int, str]) -> str:
    """Return the name of a track."""
    words = [
        texts.get(number, "")
        if name in counter.texts
        else modules.get(number, "")
        if name == "moduleId"
        else str(number)
        for name, number in zip(counter.keys, key, strict=False)
    ]
    return " ".join((counter.label, *words)).strip()
