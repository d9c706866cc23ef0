"""Convert rows of a document to a trace: events, steps, arguments, memory events, and the description."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from visualprof.messages import msg
from visualprof.reader.chrome.document import NO_INT, Document, Kind
from visualprof.reader.chrome.lanes import DocumentLanes
from visualprof.reader.chrome.tracks import Tracks, add_tracks
from visualprof.reader.chrome.values import Json, capture_meta
from visualprof.reader.trace import Category, Device, Ids, Ints, Rows, TrackKind, Values
from visualprof.reader.trace.builder import TraceBuilder

MAX_THREADS = 2048  # per multiprocessor; some have fewer, none has more
UNKNOWN_DURATION = -2  # marks an unknown duration for `TraceBuilder.events`


def add_events(
    doc: Document,
    builder: TraceBuilder,
    rows: Ints,
    category: Ids,
    track_kind: Callable[[Kind], TrackKind | None],
    *,
    ts: Ints | None = None,
    dur: Ints | None = None,
    name: Callable[[Kind], str] = lambda kind: kind.name,
    other_names: str = "",
    lanes: DocumentLanes | None = None,
    corr: Ints | None = None,
) -> Tracks:
    """Add rows of the document as events on their tracks. Rows without a start time are dropped, with a warning.

    Args:
        doc: The file's events. The argument `correlation`, if present, becomes the correlation id.
        builder: Gets tracks and events.
        rows: Rows of the document, in any order.
        category: Category of every row of the document.
        track_kind: Returns the kind of track for a kind of event; `None` if its lane decides.
        ts: Start of every row in ns, if not the document's own.
        dur: Duration of every row in ns, if not the document's own.
        name: Returns the name for a kind of event, "" if it has none.
        other_names: Argument with the names of events that have none, if the format has one.
        lanes: The lanes of devices.
        corr: Correlation id of every row, 0 for none, if not the argument `correlation`.
    """
    ts, dur = doc.ts if ts is None else ts, doc.dur if dur is None else dur
    rows = _timed_rows(builder, rows, ts)
    tracks = add_tracks(doc, builder, rows, track_kind, lanes)
    track = tracks.lookup(rows)
    if corr is None and "correlation" in doc.args:
        corr_of_rows = doc.arg_at("correlation", rows, 0)
    else:
        corr_of_rows = None if corr is None else corr[rows]
    lasting, kind = dur[rows], doc.kind[rows]
    lasting[(lasting < 0) & np.array([k.ph == "X" for k in doc.kinds], bool)[kind]] = UNKNOWN_DURATION
    names = builder.strings(map(name, doc.kinds))[kind]
    if other_names and len(nameless := np.flatnonzero(names == builder.string(""))):
        names[nameless] = text_ids(doc, builder, doc.arg_at(other_names, rows[nameless], 0))
    builder.events(
        ts=ts[rows],
        dur=lasting,
        name=names,
        category=category[rows],
        track=track,
        row=rows,
        corr=corr_of_rows,
    )
    return tracks


def _timed_rows(builder: TraceBuilder, rows: Ints, ts: Ints) -> Ints:
    """Return the rows that have a start time, and warn about the others."""
    timed = ts[rows] != NO_INT
    if timed.all():
        return rows
    builder.warn(
        msg(
            "reader.events_not_say_when",
            f"{np.count_nonzero(~timed):,} events do not say when they began and were left out",
        )
    )
    return rows[timed]


def add_steps(
    doc: Document,
    builder: TraceBuilder,
    tracks: Tracks,
    category: Ids,
    label: Callable[[int, str], str],
    ts: Ints | None = None,
    dur: Ints | None = None,
) -> None:
    """Add events of category STEP as steps.

    Args:
        doc: The file's events.
        builder: Gets the steps.
        tracks: The tracks of the events.
        category: Category of every row of the document.
        label: Returns the label of a step, given its number in order of time and its name.
        ts: Start of every row in ns, if not the document's own.
        dur: Duration of every row in ns, if not the document's own.
    """
    ts, dur = doc.ts if ts is None else ts, doc.dur if dur is None else dur
    rows = np.flatnonzero((category == Category.STEP) & (ts != NO_INT) & (dur >= 0))
    rows = rows[np.argsort(ts[rows], kind="stable")]
    for i, (row, track) in enumerate(zip(rows.tolist(), tracks.lookup(rows).tolist(), strict=True)):
        builder.step(label(i, doc.kind_at(row).name), int(ts[row]), int(dur[row]), track)


def text_ids(
    doc: Document, builder: TraceBuilder, values: Values, convert: Callable[[str], str] = lambda text: text
) -> Ids:
    """Return string ids of the builder for text ids of the document."""
    table = np.zeros(len(doc.texts), np.int32)
    used_ids = used_text_ids(doc, values)
    table[used_ids] = builder.strings(convert(doc.texts[i]) for i in used_ids)
    return table[values]


def used_text_ids(doc: Document, texts: Values) -> list[int]:
    """Return the distinct text ids in ascending order."""
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
    """Add arguments of the document to the trace.

    Args:
        doc: The file's events.
        builder: Gets the arguments.
        names: The arguments to add.
        trace_names: Their names in the trace, if different.
        empty: Texts without information, which are skipped.
        convert: Converts a text.
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
    """Add the argument `occupancy`, converted from percent to a ratio, unless the profiler failed to compute it.

    The profiler then writes 0: CUDA's calculator finds no space for the shared memory that many kernels request on
    Ampere and Hopper. A kernel that ran had at least one block on a multiprocessor. Its occupancy is at least
    min(blocks per SM, 1) x threads per block / threads per multiprocessor, so a 0 is only kept if that rounds to 0 %.
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
    """Add memory events from the arguments `memory_bytes`, `address`, `allocated` and `reserved`.

    Args:
        doc: The file's events.
        builder: Gets the memory events.
        device: Returns the devices of rows, -1 for the host.
        ts: Time of every row in ns.
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
    """Set fields of `Meta` and the document's own metadata."""
    builder.describe(**{**fields, **capture_meta(doc.head, fields)}, truncated=doc.truncated)
    for warning in doc.warnings:
        builder.warn(warning)


def parse_device(properties: Json) -> Device:
    """Return a device from the properties that the runtime of its vendor reports."""

    def number(*keys: str) -> int:
        try:
            value = int(next((properties[key] for key in keys if key in properties), 0))
        except (TypeError, ValueError, OverflowError):
            return 0
        return value if abs(value) < 2**62 else 0

    clusters = number("clusterCount") * number("McorePerCluster")  # of a Cambricon MLU
    major, minor = properties.get("computeMajor"), properties.get("computeMinor")
    return Device(
        id=number("id"),
        name=str(properties.get("name", "")),
        memory_bytes=number("totalGlobalMem") or number("totalMem(MiB)") << 20,
        compute_capability="" if major is None else f"{major}.{minor or 0}",
        multiprocessors=number("smCount", "numSms") or clusters,
        max_threads_per_multiprocessor=number("maxThreadsPerMultiprocessor"),
    )
