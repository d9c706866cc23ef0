"""The monitor's samples of a remote run, `monitor.jsonl`: phases as slices, numbers as counters.

The first line is a header of schema `visualprof.monitor/1`; the prototype wrote none and had other keys.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from visualprof.errors import EmptyFile
from visualprof.reader.chrome.decode import json_objects
from visualprof.reader.monitor_samples import HOST, MAX_TEXT, ON_GPU, PROTOTYPE, MonitorColumns, blocks
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, Device, Floats, Ids, Ints, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.types import Values

ASSUMED_INTERVAL_NS = 100_000_000

_HEADER = re.compile(rb'^\s*\{[^\n]{0,400}"schema"\s*:\s*"visualprof\.monitor/\d+"')
_SAMPLE = re.compile(rb'^\s*\{\s*"t(_ns)?"\s*:\s*[0-9.eE+]+\s*,\s*"phase"\s*:')
_BATCH = re.compile(r"^.+:b\d+$")


def sniff(head: bytes) -> bool:
    """A header of the monitor's schema, or a sample as the first line."""
    start = head.removeprefix(b"\xef\xbb\xbf")
    return bool(_HEADER.match(start) or _SAMPLE.match(start))


def read(source: Source, builder: TraceBuilder) -> None:
    """Reads a file; times are Unix ns. A phase lasts until the first sample of the next one."""
    columns = MonitorColumns()
    for block, whole in blocks(source):
        columns.add(block, whole)
    if columns.rows == 0:
        raise EmptyFile(f"{source.name} has no samples yet", "it opens by itself once the first one is written")
    header = columns.header
    interval = _interval(header)
    ts, order = columns.times()
    end = int(ts[-1]) + (interval or ASSUMED_INTERVAL_NS)
    pid = str(header.get("pid", ""))[:MAX_TEXT]
    shown = _add_phases(builder, columns, ts, order, end, pid)
    for key, name, factor in HOST if columns.dated_in_ns else PROTOTYPE:
        _add_counter(builder, name, ts, columns.numbers(key)[order] * factor, pid)
    _add_gpus(builder, columns, ts, order, end, shown)
    if columns.bad:
        builder.warn(f"{columns.bad:,} lines are no samples and were left out; the first: {columns.first_bad}")
    if columns.cut:
        builder.warn("the file ends in the middle of a line; is it still being written?")
    builder.describe(
        framework="",  # it says how the machine was, whatever ran on it
        producer="visualprof monitor",
        device_type="cuda" if columns.gpus else "cpu",
        devices=tuple(Device(i, name) for i, (_, name) in enumerate(_gpu_names(header, columns.gpus))),
        clock_origin_ns=0,
        truncated=columns.cut,
        properties={"interval_ns": str(interval)} if interval else {},
    )


def _add_phases(builder: TraceBuilder, columns: MonitorColumns, ts: Ints, order: Ints, end: int, pid: str) -> int:
    """A slice for each phase, their number; each measured batch is a step."""
    phases = columns.phases()
    names = [phase if batch is None else f"{phase} batch {batch}" for phase, batch in phases]
    measured = [bool(p == "measuring" and b is not None) or bool(_BATCH.match(p)) for p, b in phases]
    track = builder.track(TrackKind.THREAD, "phases", pid)
    kind = columns.ids("phase")[order]
    first = _changes(kind)
    start, stop = ts[first], np.append(ts[first[1:]], end)
    category = np.where(np.array(measured)[kind[first]], Category.STEP, Category.SESSION)
    builder.events(
        ts=start,
        dur=stop - start,
        name=builder.strings(names)[kind[first]],
        category=category,
        track=np.full(len(first), track),
        row=np.arange(len(first)),
    )
    for i in np.flatnonzero(category == Category.STEP).tolist():
        phase, batch = phases[int(kind[first[i]])]
        builder.step(phase if batch is None else f"batch {batch}", int(start[i]), int(stop[i] - start[i]), track)
    return len(first)


def _add_counter(builder: TraceBuilder, name: str, ts: Ints, values: Floats, pid: str, process: str = "") -> None:
    known = np.isfinite(values)
    if known.any():
        track = builder.track(TrackKind.COUNTER, name, pid, process=process)
        builder.counter(track, ts[known], values[known])


def _add_gpus(builder: TraceBuilder, columns: MonitorColumns, ts: Ints, order: Ints, end: int, row: int) -> None:
    for i, (short, long) in enumerate(_gpu_names(columns.header, columns.gpus)):
        for key, name, factor in ON_GPU:
            _add_counter(builder, f"{short} {name}", ts, columns.numbers(f"{i}.{key}")[order] * factor, short, long)
        kind = columns.ids(f"{i}.throttle")[order]
        row += _add_throttling(builder, f"{short} throttled", np.array(columns.reasons()), kind, ts, end, row)


def _add_throttling(builder: TraceBuilder, label: str, reasons: Values, kind: Ids, ts: Ints, end: int, row: int) -> int:
    """A slice for each time in which something held the clocks down, numbered from `row`; their number."""
    slowed = reasons[kind] != ""
    if not slowed.any():
        return 0
    told = ", ".join(np.unique(reasons[kind[slowed]]).tolist())[:MAX_TEXT]
    builder.warn(f"{label} in {slowed.mean():.0%} of the samples: {told}")
    first = _changes(kind)
    stop = np.append(ts[first[1:]], end)
    keep = slowed[first]
    n = int(keep.sum())
    builder.events(
        ts=ts[first][keep],
        dur=(stop - ts[first])[keep],
        name=builder.strings(reasons.tolist())[kind[first[keep]]],
        category=np.full(n, int(Category.OTHER)),
        track=np.full(n, builder.track(TrackKind.THREAD, label)),
        row=row + np.arange(n),
    )
    return n


def _changes(kind: Ids) -> Ints:
    """Places at which a value differs from the one before, the first included."""
    return np.flatnonzero(np.concatenate(([True], kind[1:] != kind[:-1]))).astype(np.int64)


def _gpu_names(header: dict[str, Any], gpus: int) -> list[tuple[str, str]]:
    """Id and name of each GPU."""
    told = json_objects(header.get("gpus"))
    entries = [told[i] if i < len(told) else {} for i in range(gpus)]
    return [(str(e.get("id", f"GPU {i}"))[:MAX_TEXT], str(e.get("name", ""))[:MAX_TEXT]) for i, e in enumerate(entries)]


def _interval(header: dict[str, Any]) -> int:
    """Nanoseconds between samples, 0 where the header does not say."""
    told = header.get("interval_ms")
    return round(told * 1e6) if isinstance(told, (int, float)) and 0 < told < 1e7 else 0


FORMAT = Format("monitor", "samples of a remote run", 5, sniff, read)
