"""Any other Chrome trace-event JSON: complete, begin/end, instant, counter, flow and async events."""

from __future__ import annotations

import re

import numpy as np

from visualprof.messages import msg
from visualprof.reader.chrome.decode import read_document
from visualprof.reader.chrome.document import Args, Document, Kind
from visualprof.reader.chrome.events import add_events, describe
from visualprof.reader.chrome.tracks import add_counters, add_flows, pair_begin_end
from visualprof.reader.patterns import pattern
from visualprof.reader.registry import Format, opens_with
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, Ints, LinkKind, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.pairing import pair_marks

KERNEL_CATEGORY = pattern(r"(^|[^a-z])(gpu|cuda|device)?_?kernels?($|[^a-z])", re.IGNORECASE)


def sniff(head: bytes) -> bool:
    """Return whether this is a list of events, or an object with one, in which an event has a phase."""
    if b'"traceEvents"' in head:
        return True
    return opens_with(head, b"[") and bool(re.search(rb'"ph"\s*:\s*"', head))


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file. `ts` is in microseconds on a clock of unknown origin."""
    doc = read_document(source, Args, {})
    begin, end, unpaired = pair_begin_end(doc)
    async_begin, async_end, async_unpaired = _pair_async(doc)
    if unpaired + async_unpaired:
        builder.warn(
            msg(
                "formats.begin_end_marks_no",
                f"{unpaired + async_unpaired:,} begin or end marks have no counterpart and were left out",
            )
        )
    single_rows = np.flatnonzero(doc.map_kinds(lambda k: k.ph in ("X", "i", "I", "R", "n")))
    instant = doc.map_kinds(lambda k: k.ph != "X") == 1
    dur = np.where(instant, -1, doc.dur)
    for a, b in ((begin, end), (async_begin, async_end)):
        dur[a] = np.maximum(doc.ts[b] - doc.ts[a], -1)
    rows = np.concatenate((begin, async_begin, single_rows))
    tracks = add_events(doc, builder, rows, doc.map_kinds(_category), _track_kind, dur=dur)
    add_flows(doc, builder, tracks, lambda _: LinkKind.FLOW)
    add_counters(doc, builder)
    on_device = any(_track_kind(kind) is TrackKind.STREAM for kind in doc.kinds)
    device_type = "cuda" if on_device else "cpu"
    describe(doc, builder, framework="chrome", producer="Chrome trace events", device_type=device_type)


def _track_kind(kind: Kind) -> TrackKind:
    return TrackKind.STREAM if KERNEL_CATEGORY.search(kind.cat) else TrackKind.THREAD


def _category(kind: Kind) -> int:
    if KERNEL_CATEGORY.search(kind.cat):
        return Category.KERNEL
    return Category.OP if kind.ph in ("X", "B", "b") else Category.OTHER


def _pair_async(doc: Document) -> tuple[Ints, Ints, int]:
    """Return rows of async begin and end events, paired as a stack per category and id, and the number unpaired."""
    sign = doc.map_kinds(lambda k: 1 if k.ph in ("b", "S") else -1 if k.ph in ("e", "F") else 0)
    is_marked = sign[doc.flow_rows] != 0
    rows = doc.flow_rows[is_marked]
    ids, id_index = np.unique(doc.flow_ids[is_marked], return_inverse=True)
    begin, end = pair_marks(rows, doc.ts[rows], sign[rows], doc.categories(rows) * len(ids) + id_index)
    return begin, end, int((sign != 0).sum()) - 2 * len(begin)


FORMAT = Format("chrome", "Chrome trace-event JSON", 90, sniff, read)
