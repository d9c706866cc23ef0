"""Any other Chrome trace-event JSON: complete, begin/end, instant, counter, flow and async events."""

from __future__ import annotations

import re

import numpy as np

from visualprof.messages import msg
from visualprof.reader.chrome.decode import read_document
from visualprof.reader.chrome.document import NO_INT, Args, Document, Kind
from visualprof.reader.chrome.events import add_events, describe
from visualprof.reader.chrome.lanes import LAUNCH_ARROW, find_lanes, lane_categories
from visualprof.reader.chrome.tracks import add_counters, add_flows, pair_begin_end
from visualprof.reader.communication import is_communication_kernel
from visualprof.reader.lanes import vendor_category
from visualprof.reader.patterns import pattern
from visualprof.reader.registry import Format, opens_with
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, Ints, LinkKind, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.pairing import pair_marks

API_CALL = pattern(r"^(?:cu|cuda|hip|acl|mu|musa|cn|mlu)[A-Z]\w+$")
KERNEL_CATEGORY = pattern(r"(^|[^a-z])(gpu|cuda|device)?_?kernels?($|[^a-z])", re.IGNORECASE)


class LaneArgs(Args, gc=False):
    """Arguments that identify devices and connect device work with its launch."""

    device: int | None = NO_INT
    stream: int | None = NO_INT
    correlation: int | None = NO_INT
    correlation_id: int | None = NO_INT
    connection_id: int | None = NO_INT


def sniff(head: bytes) -> bool:
    """Return whether this is a list of events, or an object with one, in which an event has a phase."""
    if b'"traceEvents"' in head:
        return True
    return opens_with(head, b"[") and bool(re.search(rb'"ph"\s*:\s*"', head))


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file. `ts` is in microseconds on a clock of unknown origin."""
    doc = read_document(source, LaneArgs, {})
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
    category = doc.map_kinds(_category)
    is_open = np.array([_track_kind(kind) is None for kind in doc.kinds], bool)
    lanes = find_lanes(doc, is_open)
    lane_categories(doc, lanes, category, is_open)
    corr = _correlation_ids(doc)
    category[(corr > 0) & (category == Category.OP) & doc.map_kinds(_is_api_call).astype(bool)] = Category.RUNTIME
    tracks = add_events(doc, builder, rows, category, _track_kind, dur=dur, lanes=lanes, corr=corr)
    add_flows(doc, builder, tracks, _flow_kind)
    add_counters(doc, builder)
    on_device = any(_track_kind(kind) is TrackKind.STREAM for kind in doc.kinds) or (lanes.kind >= 0).any()
    device_type = (lanes.device_type or "cuda") if on_device else "cpu"
    describe(doc, builder, framework="chrome", producer="Chrome trace events", device_type=device_type)


def _track_kind(kind: Kind) -> TrackKind | None:
    """Return the kind of track of an event, `None` if its lane decides."""
    if KERNEL_CATEGORY.search(kind.cat):
        return TrackKind.STREAM
    category = vendor_category(kind.cat)
    if category == Category.ANNOTATION:
        return TrackKind.GPU_ANNOTATION
    return None if category is None else TrackKind.STREAM


def _category(kind: Kind) -> int:
    category = vendor_category(kind.cat)
    if category is None and KERNEL_CATEGORY.search(kind.cat):
        category = Category.KERNEL
    if category == Category.KERNEL:
        return Category.COMM if is_communication_kernel(kind.name) else Category.KERNEL
    if category is not None:
        return category
    return Category.OP if kind.ph in ("X", "B", "b") else Category.OTHER


def _is_api_call(kind: Kind) -> bool:
    return bool(API_CALL.match(kind.name))


def _flow_kind(kind: Kind) -> LinkKind:
    return LinkKind.LAUNCH if LAUNCH_ARROW.match(kind.cat) else LinkKind.FLOW


def _correlation_ids(doc: Document) -> Ints:
    """Return the correlation id of every row, 0 for none."""
    corr = np.zeros(len(doc.kind), np.int64)
    for name in ("connection_id", "correlation_id", "correlation"):
        rows, values = doc.arg(name)
        corr[rows] = values
    return corr


def _pair_async(doc: Document) -> tuple[Ints, Ints, int]:
    """Return rows of async begin and end events, paired as a stack per category and id, and the number unpaired."""
    sign = doc.map_kinds(lambda k: 1 if k.ph in ("b", "S") else -1 if k.ph in ("e", "F") else 0)
    is_marked = sign[doc.flow_rows] != 0
    rows = doc.flow_rows[is_marked]
    ids, id_index = np.unique(doc.flow_ids[is_marked], return_inverse=True)
    begin, end = pair_marks(rows, doc.ts[rows], sign[rows], doc.categories(rows) * len(ids) + id_index)
    return begin, end, int((sign != 0).sum()) - 2 * len(begin)


FORMAT = Format("chrome", "Chrome trace-event JSON", 90, sniff, read)
