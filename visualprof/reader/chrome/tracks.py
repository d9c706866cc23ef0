"""Threads, streams, arrows and counters of Chrome trace-event files, shared by the formats that use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.chrome.decode import ArgRows, Document, Kind
from visualprof.reader.trace import LinkKind, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

STREAM_DIGITS = str.maketrans("", "", "stream ()")


@dataclass(frozen=True)
class Tracks:
    """of_row: track of every row of the document; thread_of_place: track that flow arrows of a place bind to."""

    of_row: NDArray[np.int32]
    of_place: dict[tuple[int, TrackKind], int]


def text_ids(doc: Document, builder: TraceBuilder, values: NDArray[Any]) -> NDArray[np.int32]:
    """String ids of the builder for text ids of the document."""
    table = np.zeros(len(doc.texts), np.int32)
    used = np.unique(values)
    table[used] = builder.strings(doc.texts[int(i)] for i in used)
    return table[values]


def lay_tracks(
    doc: Document,
    builder: TraceBuilder,
    shown: NDArray[np.integer[Any]],
    kind_of: Sequence[TrackKind],
    device: ArgRows | None = None,
    stream: ArgRows | None = None,
    device_places: NDArray[np.int64] | None = None,
) -> Tracks:
    """One track for each (process, thread, kind of track) that has an event, named by the file's metadata.

    Args:
        doc: the file's events.
        builder: gets the tracks.
        shown: rows of the document that are events.
        kind_of: track kind of every event kind.
        device: argument that numbers the devices; without it the number in the pid is taken.
        stream: argument that numbers the streams; without it the number in the tid is taken.
        device_places: device number of every place; those with one >= 0 are streams whatever their events' kind.
    """
    canonical: dict[tuple[str, str], int] = {}
    place = np.array([canonical.setdefault(p, i) for i, p in enumerate(doc.places)] or [0], np.int64)[doc.place]
    kinds = np.array([int(k) for k in kind_of] or [0], np.int64)[doc.kind]
    if device_places is not None and len(doc.kind):
        kinds = np.where(device_places[doc.place] >= 0, int(TrackKind.STREAM), kinds)
    key = place * len(TrackKind) + kinds
    names = _names(doc)
    devices, streams = _first_values(device, key), _first_values(stream, key)
    of_row = np.full(len(doc.kind), -1, np.int32)
    used, which = np.unique(key[shown], return_inverse=True)
    numbers = np.zeros(len(used), np.int32)
    of_place: dict[tuple[int, TrackKind], int] = {}
    keys: list[int] = used.tolist()
    for i, k in enumerate(keys):
        at, kind = k // len(TrackKind), TrackKind(k % len(TrackKind))
        pid, tid = doc.places[at]
        on_device = kind is not TrackKind.THREAD
        device_number = devices.get(k, _number(pid)) if device_places is None else int(device_places[at])
        numbers[i] = builder.track(
            kind,
            names.thread.get((pid, tid), tid),
            pid,
            tid,
            process=names.process.get(pid, ""),
            device=device_number if on_device else -1,
            stream=streams.get(k, _number(tid.translate(STREAM_DIGITS))) if on_device else -1,
            order=names.order.get((pid, tid), 0),
        )
        of_place[at, kind] = int(numbers[i])
    of_row[shown] = numbers[which]
    return Tracks(of_row, of_place)


def add_flows(
    doc: Document,
    builder: TraceBuilder,
    tracks: Tracks,
    kind_of: Callable[[Kind], LinkKind | None],
    begins: NDArray[np.int64] | None = None,
) -> None:
    """Flow arrows (ph s, t, f) as links between the events that they start and end in.

    Arrows are matched by (category, id); a step t ends one arrow and starts the next. With `begins`, the rows of
    begin marks, an arrow ends in the event that began last before it in the file, on its thread: the way to
    tell apart events that start at the same time.
    Source: "Flow events" of the Trace Event Format description.
    """
    phases = np.array([("s", "t", "f").index(k.ph) if k.ph in ("s", "t", "f") else -1 for k in doc.kinds] or [-1])
    kinds = [kind_of(k) if k.ph in ("s", "t", "f") else None for k in doc.kinds]
    wanted = np.array([-1 if k is None else int(k) for k in kinds] or [-1])
    rows = doc.flow_rows
    keep = (wanted[doc.kind[rows]] >= 0) & (phases[doc.kind[rows]] >= 0)
    rows, ids = rows[keep], doc.flow_ids[keep]
    if not len(rows):
        return
    cats = {c: i for i, c in enumerate(dict.fromkeys(k.cat for k in doc.kinds))}
    cat = np.array([cats[k.cat] for k in doc.kinds])[doc.kind[rows]]
    phase = phases[doc.kind[rows]]
    order = np.lexsort((rows, doc.ts[rows], phase, ids, cat))
    a, b = order[:-1], order[1:]
    joined = (ids[a] == ids[b]) & (cat[a] == cat[b]) & (phase[a] < 2) & (phase[b] > 0)
    src, dst = rows[a[joined]], rows[b[joined]]
    at = _track_of_places(doc, tracks)
    link = wanted[doc.kind[src]]
    for kind in np.unique(link):
        chosen = link == kind
        s, d = src[chosen], dst[chosen]
        named = np.full(len(d), -1) if begins is None or kind != LinkKind.LAUNCH else _last_begin(doc, begins, d)
        builder.flow(at[doc.place[s]], doc.ts[s], at[doc.place[d]], doc.ts[d], LinkKind(int(kind)), named)


def _last_begin(doc: Document, begins: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each row the last of `begins` before it in the file on the same thread, -1 for none."""
    size = len(doc.kind) + 1
    keys = np.sort(doc.place[begins].astype(np.int64) * size + begins)
    wanted = doc.place[rows].astype(np.int64) * size + rows
    found = keys[np.maximum(np.searchsorted(keys, wanted) - 1, 0)] if len(keys) else np.full(len(rows), -1)
    return np.where(found // size == doc.place[rows], found % size, -1)


def pair_begin_end(doc: Document, begin: str = "B", end: str = "E") -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Rows of begin and end events that belong together, as a stack on each thread, and the number left over.

    Events are taken by time, those of equal time in the order of the file.
    """
    sign = doc.each_kind(lambda k: 1 if k.ph == begin else -1 if k.ph == end else 0)
    rows = np.flatnonzero(sign)
    labels: dict[tuple[str, str], int] = {}
    place = np.array([labels.setdefault(p, i) for i, p in enumerate(doc.places)] or [0], np.int64)[doc.place[rows]]
    order = np.lexsort((rows, doc.ts[rows], place))
    rows, place = rows[order], place[order]
    delta = sign[rows]
    level = np.cumsum(delta) - (delta > 0)  # a begin stands on the level below it, its end returns there
    order = np.lexsort((np.arange(len(rows)), level, place))
    rows, place, level, delta = rows[order], place[order], level[order], delta[order]
    paired = (place[1:] == place[:-1]) & (level[1:] == level[:-1]) & (delta[:-1] > 0) & (delta[1:] < 0)
    first = np.flatnonzero(paired)
    return rows[first], rows[first + 1], len(rows) - 2 * len(first)


def add_counters(doc: Document, builder: TraceBuilder) -> None:
    """Counter events (ph C): one track for each (process, name, series)."""
    series: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    for row, name, value in doc.samples:
        pid = doc.place_at(row)[0]
        series.setdefault((pid, doc.kind_at(row).name, name), []).append((row, value))
    for (pid, name, part), samples in series.items():
        label = name if part in ("value", name, "") else f"{name} {part}"
        rows = np.array([r for r, _ in samples])
        track = builder.track(TrackKind.COUNTER, label, pid, process=_names(doc).process.get(pid, ""))
        builder.counter(track, doc.ts[rows], np.array([v for _, v in samples], np.float64))


def lane_names(doc: Document) -> dict[tuple[str, str], str]:
    """Name of each (pid, tid) that the metadata names."""
    return _names(doc).thread


@dataclass(frozen=True)
class _Names:
    process: dict[str, str]
    thread: dict[tuple[str, str], str]
    order: dict[tuple[str, str], int]


def _names(doc: Document) -> _Names:
    """What the metadata events (ph M) call processes and threads."""
    meta = [i for i, k in enumerate(doc.kinds) if k.ph == "M"]
    rows = np.flatnonzero(np.isin(doc.kind, meta)) if meta else np.zeros(0, np.int64)
    texts = doc.arg_texts_at("name", rows) if "name" in doc.args else {}
    labels = doc.arg_texts_at("labels", rows) if "labels" in doc.args else {}
    found = _Names({}, {}, {})
    for row in rows.tolist():
        pid, tid = doc.place_at(row)
        match doc.kind_at(row).name:
            case "process_name" if row in texts:
                found.process.setdefault(pid, texts[row])
            case "process_labels" if row in labels:
                found.process[pid] = f"{found.process.get(pid, pid)} {labels[row]}"
            case "thread_name" if row in texts:
                found.thread[pid, tid] = texts[row]
            case "thread_sort_index":
                found.order[pid, tid] = doc.arg_number_at("sort_index", row)
            case _:
                pass
    return found


def _first_values(column: ArgRows | None, key: NDArray[np.int64]) -> dict[int, int]:
    """First value of an argument on each track."""
    if column is None or not len(column.rows):
        return {}
    keys, first = np.unique(key[column.rows], return_index=True)
    return dict(zip(keys.tolist(), column.values[first].tolist(), strict=True))


def _track_of_places(doc: Document, tracks: Tracks) -> NDArray[np.int32]:
    """Track that the arrows of a place bind to: its stream or thread, -1 when it has no event."""
    labels: dict[tuple[str, str], int] = {}
    for kind in (TrackKind.GPU_ANNOTATION, TrackKind.STREAM, TrackKind.THREAD):
        for (place, k), number in tracks.of_place.items():
            if k is kind:
                labels[doc.places[place]] = number
    return np.array([labels.get(p, -1) for p in doc.places] or [-1], np.int32)


def _number(text: str) -> int:
    """A small number for a label; labels that are no number get 0."""
    return int(text) if text.isascii() and text.lstrip("-").isdigit() and len(text) < 9 else 0
