"""What the rows of a document become in a trace: events and steps, arguments, memory events, the description."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from visualprof.messages import msg
from visualprof.reader.chrome.document import NO_INT, Document, Kind
from visualprof.reader.chrome.tracks import Tracks, add_tracks
from visualprof.reader.chrome.values import Json, capture_meta
from visualprof.reader.trace import Category, Device, Ids, Ints, Rows, TrackKind, Values
from visualprof.reader.trace.builder import TraceBuilder

MAX_THREADS = 2048  # of a multiprocessor; some have fewer, none has more
UNKNOWN_DURATION = -2  # a duration that is none


def add_events(
    doc: Document,
    builder: TraceBuilder,
    rows: Ints,
    category: Ids,
    track_kind: Callable[[Kind], TrackKind],
    *,
    ts: Ints | None = None,
    dur: Ints | None = None,
    name: Callable[[Kind], str] = lambda kind: kind.name,
    thread_devices: Ints | None = None,
) -> Tracks:
    """Some rows of the document as events on their tracks; those that do not say when they began are left out.

    Args:
        doc: the file's events. The argument `correlation`, where there is one, becomes the correlation id.
        builder: gets tracks and events.
        rows: of the document, in any order.
        category: of every row of the document.
        track_kind: where events of a kind ran.
        ts, dur: ns of every row, where the document's own are not those to show.
        name: what events of a kind are called.
        device_places: as in `add_tracks`.
    """
    ts, dur = doc.ts if ts is None else ts, doc.dur if dur is None else dur
    start = ts[rows]
    timed = start != NO_INT
    if not timed.all():
        builder.warn(
            msg(
                "reader.events_not_say_when",
                f"{np.count_nonzero(~timed):,} events do not say when they began and were left out",
            )
        )
        rows, start = rows[timed], start[timed]
    tracks = add_tracks(doc, builder, rows, track_kind, thread_devices)
    track = tracks.lookup(rows)
    lasting, kind = dur[rows], doc.kind[rows]
    lasting[(lasting < 0) & np.array([k.ph == "X" for k in doc.kinds], bool)[kind]] = UNKNOWN_DURATION
    builder.events(
        ts=start,
        dur=lasting,
        name=builder.strings(map(name, doc.kinds))[kind],
        category=category[rows],
        track=track,
        row=rows,
        corr=doc.arg_at("correlation", rows, 0) if "correlation" in doc.args else None,
    )
    return tracks


def add_steps(
    doc: Document,
    builder: TraceBuilder,
    tracks: Tracks,
    category: Ids,
    label: Callable[[int, str], str],
    ts: Ints | None = None,
    dur: Ints | None = None,
) -> None:
    """Events of category STEP as steps. label: of a step, by its number in order of time and its name."""
    ts, dur = doc.ts if ts is None else ts, doc.dur if dur is None else dur
    rows = np.flatnonzero((category == Category.STEP) & (ts != NO_INT) & (dur >= 0))
    rows = rows[np.argsort(ts[rows], kind="stable")]
    for i, (row, track) in enumerate(zip(rows.tolist(), tracks.lookup(rows).tolist(), strict=True)):
        builder.step(label(i, doc.kind_at(row).name), int(ts[row]), int(dur[row]), track)


def text_ids(
    doc: Document, builder: TraceBuilder, values: Values, convert: Callable[[str], str] = lambda text: text
) -> Ids:
    """String ids of the builder for text ids of the document."""
    table = np.zeros(len(doc.texts), np.int32)
    used_ids = used_text_ids(doc, values)
    table[used_ids] = builder.strings(convert(doc.texts[i]) for i in used_ids)
    return table[values]


def used_text_ids(doc: Document, texts: Values) -> list[int]:
    """The texts that stand there, by their ids in ascending order."""
    is_used = np.zeros(len(doc.texts), bool)
    is_used[texts] = True
    return np.flatnonzero(is_used).tolist()


def add_args(
    doc: Document,
    builder: TraceBuilder,
    names: Iterable[str],
    *,
    trace_names: Mapping[str, str] = MappingProxyType({}),
    empty: Collection[str] = (),
    convert: Callable[[str], str] = lambda text: text,
) -> None:
    """Arguments of the document as those of the trace.

    Args:
        doc: the file's events.
        builder: gets the arguments.
        names: those to take.
        called: their names in the trace, where they are others.
        empty: texts that say nothing.
        convert: what becomes of a text.
    """
    has_content = np.array([text not in empty for text in doc.texts], bool) if empty else None
    for name in names:
        column = doc.args[name]
        rows, values = column.rows, column.values
        if column.text:
            if has_content is not None:
                rows, values = rows[has_content[values]], values[has_content[values]]
            values = text_ids(doc, builder, values, convert)
        builder.arg(trace_names.get(name, name), rows, values, text=column.text)


def add_occupancy(doc: Document, builder: TraceBuilder, devices: Collection[Device]) -> None:
    """The argument `occupancy`, percent, as a ratio where the profiler could compute it.

    It writes 0 where it could not: CUDA's calculator finds no room for the shared memory that many kernels of Ampere
    and Hopper ask for. But a kernel that ran had a block in a multiprocessor, so that its occupancy is at least
    min(blocks per SM, 1) x threads of a block / threads of a multiprocessor; a 0 is one only where that rounds to 0 %.
    """
    rows, percent = doc.arg("occupancy")
    limits = {-1: MAX_THREADS} | {d.id: n for d in devices if (n := d.max_threads_per_multiprocessor)}
    device_numbers, number = np.array(sorted(limits), np.int64), doc.arg_at("device", rows, -1)
    index = np.searchsorted(device_numbers, number, side="right") - 1
    thread_limits = np.array([limits[i] for i in sorted(limits)], np.int64)
    capacity = np.where(device_numbers[index] == number, thread_limits[index], MAX_THREADS)
    blocks = np.minimum(doc.arg_at("blocks_per_sm", rows, 0), 1)
    texts = doc.arg_at("block", rows, 0)
    sizes = np.zeros(len(doc.texts))
    for i in used_text_ids(doc, texts):
        sizes[i] = i and min(math.prod(map(int, re.findall(r"\d{1,9}", doc.texts[i]))), MAX_THREADS)
    threads = sizes[texts]
    is_reliable = (percent > 0) | (np.round(100 * blocks * threads / capacity) == 0)
    builder.arg("occupancy", rows[is_reliable], percent[is_reliable] / 100.0)


def add_allocs(doc: Document, builder: TraceBuilder, device: Callable[[Ints], Rows], ts: Ints) -> None:
    """Memory events by the arguments `memory_bytes`, `address`, `allocated` and `reserved`.

    Args:
        doc: the file's events.
        builder: gets the memory events.
        device: of some rows; -1 is the host.
        ts: of every row.
    """
    rows, sizes = doc.arg("memory_bytes")
    timed = ts[rows] != NO_INT
    rows, sizes = rows[timed], sizes[timed]
    if len(rows):
        builder.allocs(
            ts=ts[rows],
            addr=doc.arg_at("address", rows, -1).astype(np.uint64),
            bytes=sizes,
            device=device(rows),
            event=rows,
            allocated=doc.arg_at("allocated", rows, -1),
            reserved=doc.arg_at("reserved", rows, -1),
        )


def describe(doc: Document, builder: TraceBuilder, **fields: Any) -> None:
    """Fields of Meta, and what the document says about itself."""
    builder.describe(**{**fields, **capture_meta(doc.head, fields)}, truncated=doc.truncated)
    for warning in doc.warnings:
        builder.warn(warning)


def parse_device(properties: Json) -> Device:
    """A device as CUDA's properties describe it."""

    def number(*keys: str) -> int:
        try:
            value = int(next((properties[key] for key in keys if key in properties), 0))
        except (TypeError, ValueError, OverflowError):
            return 0
        return value if abs(value) < 2**62 else 0

    major, minor = properties.get("computeMajor"), properties.get("computeMinor")
    return Device(
        id=number("id"),
        name=str(properties.get("name", "")),
        memory_bytes=number("totalGlobalMem"),
        compute_capability="" if major is None else f"{major}.{minor or 0}",
        multiprocessors=number("smCount", "numSms"),
        max_threads_per_multiprocessor=number("maxThreadsPerMultiprocessor"),
    )
