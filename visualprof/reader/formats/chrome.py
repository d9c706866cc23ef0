"""Any other Chrome trace-event JSON: complete, begin/end, instant, counter, flow and async events."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from visualprof.reader.chrome.decode import NO_INT, NO_TEXT, Document, Kind, Text, read_document
from visualprof.reader.chrome.tracks import add_counters, add_flows, lay_tracks, pair_begin_end
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, LinkKind, TrackKind
from visualprof.reader.trace.builder import TraceBuilder


class Args(msgspec.Struct, gc=False):
    """Only what names processes and threads; the rest is fetched from the file when an event is looked at."""

    name: Text = NO_TEXT
    labels: Text = NO_TEXT
    sort_index: int | None = NO_INT


KERNEL = re.compile(r"(^|[^a-z])(gpu|cuda|device)?_?kernels?($|[^a-z])", re.IGNORECASE)


def sniff(head: bytes) -> bool:
    """A list of events, or an object with one, in which something has a phase."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if b'"traceEvents"' in head:
        return True
    return start.startswith(b"[") and bool(re.search(rb'"ph"\s*:\s*"', head))


def read(source: Source, builder: TraceBuilder) -> None:
    """Reads a file; `ts` is microseconds on a clock that the file does not date."""
    doc = read_document(source, Args, {})
    begin, end, left = pair_begin_end(doc)
    async_begin, async_end, async_left = _pair_async(doc)
    if left + async_left:
        builder.warn(f"{left + async_left:,} begin or end marks have no counterpart and were left out")
    single = np.flatnonzero(doc.each_kind(lambda k: k.ph in ("X", "i", "I", "R", "n")))
    rows = np.concatenate((begin, async_begin, single))
    single_dur = doc.dur[single]
    instant = doc.each_kind(lambda k: k.ph != "X")[single] == 1
    undone = ~instant & (single_dur == -1)
    if undone.any():
        builder.warn(f"{int(undone.sum()):,} complete events have no duration and are shown with 0")
    single_dur = np.where(instant, -1, np.where(undone, 0, single_dur))
    dur = np.concatenate((doc.ts[end] - doc.ts[begin], doc.ts[async_end] - doc.ts[async_begin], single_dur))
    category = doc.each_kind(_category)
    kinds = [TrackKind.STREAM if KERNEL.search(k.cat) else TrackKind.THREAD for k in doc.kinds]
    tracks = lay_tracks(doc, builder, rows, kinds)
    names = builder.strings(k.name for k in doc.kinds) if doc.kinds else np.zeros(0, np.int32)
    builder.events(
        ts=doc.ts[rows],
        dur=np.maximum(dur, -1),
        name=names[doc.kind[rows]],
        category=category[rows],
        track=tracks.of_row[rows],
        row=rows,
    )
    add_flows(doc, builder, tracks, lambda _: LinkKind.FLOW)
    add_counters(doc, builder)
    on_device = any(k is TrackKind.STREAM for k in kinds)
    builder.describe(
        framework="chrome",
        producer="Chrome trace events",
        device_type="cuda" if on_device else "cpu",
        truncated=doc.truncated,
    )
    for warning in doc.warnings:
        builder.warn(warning)


def _category(kind: Kind) -> int:
    if KERNEL.search(kind.cat):
        return Category.KERNEL
    return Category.OP if kind.ph in ("X", "B", "b") else Category.OTHER


def _pair_async(doc: Document) -> tuple[np.ndarray, np.ndarray, int]:
    """Async begin and end events of the same category and id, nested ones as a stack."""
    sign = doc.each_kind(lambda k: 1 if k.ph in ("b", "S") else -1 if k.ph in ("e", "F") else 0)
    marks = np.flatnonzero(sign)
    rows = doc.flow_rows[np.isin(doc.flow_rows, marks)]
    ids = doc.flow_ids[np.isin(doc.flow_rows, marks)]
    cats = {c: i for i, c in enumerate(dict.fromkeys(k.cat for k in doc.kinds))}
    cat = np.array([cats[k.cat] for k in doc.kinds] or [0])[doc.kind[rows]]
    order = np.lexsort((rows, doc.ts[rows], ids, cat))
    rows, key = rows[order], np.stack((cat[order], ids[order]))
    delta = sign[rows]
    level = np.cumsum(delta) - (delta > 0)
    order = np.lexsort((np.arange(len(rows)), level, key[1], key[0]))
    rows, key, level, delta = rows[order], key[:, order], level[order], delta[order]
    same = (key[:, 1:] == key[:, :-1]).all(axis=0) & (level[1:] == level[:-1])
    first = np.flatnonzero(same & (delta[:-1] > 0) & (delta[1:] < 0))
    return rows[first], rows[first + 1], len(marks) - 2 * len(first)


FORMAT = Format("chrome", "Chrome trace-event JSON", 90, sniff, read)
