"""Counters of a recording of Ascend NPUs in database form: clock, bandwidths, and memory by component."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

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
        for column, unit in counter.values.items():
            values = tables.floats(counter.table, column)
            if len(values) != len(time):
                continue
            tracks = np.array([builder.track(TrackKind.COUNTER, f"{label} {unit}") for label in labels], np.int64)
            has_value = ~np.isnan(values) & (time > MISSING)
            builder.counter(tracks[index.ravel()[has_value]], time[has_value], values[has_value])


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
