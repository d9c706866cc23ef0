"""Chrome JSON of hipprof, the profiler of Hygon DCUs: `hipprof --hip-trace --output-type 0`.

`ts` is relative, but the arguments contain exact times in ns. Kernels (`HIPOPS`) are on lanes of streams, copies and
fills (`HIPCOPY`) on lanes named by their direction. An arrow leads from a call to the work that it launched.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np
from msgspec.structs import replace

from visualprof.reader.chrome import document
from visualprof.reader.chrome.decode import read_document
from visualprof.reader.chrome.document import NO_INT, Document, Kind
from visualprof.reader.chrome.events import add_args, add_events, describe
from visualprof.reader.chrome.tracks import add_counters, add_flows
from visualprof.reader.communication import is_communication_call, is_communication_kernel
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, Device, LinkKind, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

_KERNEL, _COPY, _CALL, _ARROW = "HIPOPS", "HIPCOPY", "HIP", "DataFlow"
_FILL_LANE = "SET"


class Args(document.Args, gc=False):
    """The arguments that views need."""

    device: int | None = msgspec.field(name="devId", default=NO_INT)
    stream: int | None = msgspec.field(name="queueId", default=NO_INT)
    bytes: int | None = msgspec.field(name="Bytes", default=NO_INT)
    begin: int | None = msgspec.field(name="BeginNs", default=NO_INT)
    end: int | None = msgspec.field(name="EndNs", default=NO_INT)


def sniff(head: bytes) -> bool:
    """Return whether there are exact times and a category that only hipprof writes."""
    return b'"BeginNs"' in head and re.search(rb'"cat"\s*:\s*"HIP(?:OPS|COPY)?"', head) is not None


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file."""
    doc = _with_exact_times(read_document(source, Args, {}))
    category = doc.map_kinds(_category)
    is_fill_lane = np.array([tid == _FILL_LANE for _, tid in doc.threads], bool)[doc.thread]
    category[is_fill_lane & (category == Category.MEMCPY)] = Category.MEMSET
    tracks = add_events(doc, builder, np.flatnonzero(category >= 0), category, _track_kind, other_names="name")
    add_args(doc, builder, ("bytes",))
    add_flows(doc, builder, tracks, _flow_kind)
    add_counters(doc, builder)
    numbers: list[int] = sorted(set(doc.arg("device")[1].tolist()))
    devices = tuple(Device(id=number) for number in numbers if number >= 0)
    has_work = bool(np.isin(category, (Category.KERNEL, Category.MEMCPY, Category.MEMSET, Category.COMM)).any())
    describe(
        doc,
        builder,
        framework="hip",
        producer="hipprof",
        device_type="hip" if has_work else "cpu",
        devices=devices,
    )


def _with_exact_times(doc: Document) -> Document:
    """Return the document with all times on the clock of the exact ones."""
    rows, begin = doc.arg("begin")
    end = doc.arg_at("end", rows, NO_INT)
    is_known = (end >= begin) & (doc.ts[rows] != NO_INT)
    rows, begin, end = rows[is_known], begin[is_known], end[is_known]
    if not len(rows):
        return doc
    ts = np.where(doc.ts == NO_INT, NO_INT, doc.ts + (begin[0] - doc.ts[rows[0]]))
    dur = np.array(doc.dur, np.int64)
    ts[rows], dur[rows] = begin, end - begin
    return replace(doc, ts=ts, dur=dur)


def _category(kind: Kind) -> int:
    """Return the category of an event, -1 for metadata, arrows and counters."""
    if kind.ph not in ("X", "i", "I"):
        return -1
    if kind.cat == _KERNEL:
        return Category.COMM if is_communication_kernel(kind.name) else Category.KERNEL
    if kind.cat == _COPY:
        return Category.MEMCPY
    if kind.cat == _CALL:
        return Category.COMM if is_communication_call(kind.name) else Category.RUNTIME
    return Category.ANNOTATION


def _track_kind(kind: Kind) -> TrackKind:
    return TrackKind.STREAM if kind.cat in (_KERNEL, _COPY) else TrackKind.THREAD


def _flow_kind(kind: Kind) -> LinkKind | None:
    return LinkKind.LAUNCH if kind.cat == _ARROW else None


FORMAT = Format("hipprof", "hipprof (Hygon DCU)", 8, sniff, read)
