"""Threads, streams, arrows and counters of Chrome trace-event files, shared by the formats that use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from visualprof.reader.chrome.document import NO_INT, Document, Kind
from visualprof.reader.chrome.values import natural
from visualprof.reader.trace import Ids, Ints, LinkKind, Rows, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.matching import number_processes

STREAM_DIGITS = str.maketrans("", "", "stream ()")
FLOW_PHASES = ("s", "t", "f")


class Tracks(msgspec.Struct, frozen=True):
    """of_place: track of a process, thread and kind. keys: of some rows; numbers: track of each key, -1 for none."""

    of_thread: dict[tuple[int, TrackKind], int]
    keys: Callable[[Rows], Ids]
    numbers: Ids

    def lookup(self, rows: Rows) -> Ids:
        """Tracks of some rows."""
        return self.numbers[self.keys(rows)]


def add_tracks(
    doc: Document,
    builder: TraceBuilder,
    rows: Ints,
    track_kind: Callable[[Kind], TrackKind],
    thread_devices: Ints | None = None,
) -> Tracks:
    """One track for each (process, thread, kind of track) that has an event, named by the file's metadata.

    The arguments `device` and `stream`, where they are numbers, number devices and streams; else those in pid and tid.

    Args:
        doc: the file's events.
        builder: gets the tracks.
        rows: of the document that are events.
        track_kind: where events of a kind ran.
        device_places: device number of every place; those with one >= 0 are streams whatever their events' kind.
    """
    kinds = np.array([track_kind(kind) for kind in doc.kinds], np.int32)
    on_device = None if thread_devices is None else thread_devices >= 0

    def keys(rows: Rows | slice) -> Ids:
        thread = doc.thread[rows]
        key = kinds[doc.kind[rows]]
        if on_device is not None:
            key[on_device[thread]] = TrackKind.STREAM
        key += thread * np.int32(len(TrackKind))
        return key

    numbers = np.full(len(doc.threads) * len(TrackKind), -1, np.int32)
    all_keys = keys(slice(None))
    devices, streams = _first_values(doc, ("device", "stream"), all_keys, len(numbers))
    numbers[all_keys[rows]] = 0
    del all_keys
    used_keys: list[int] = np.flatnonzero(numbers == 0).tolist()
    of_place: dict[tuple[int, TrackKind], int] = {}
    for k in used_keys:
        thread, kind = k // len(TrackKind), TrackKind(k % len(TrackKind))
        pid, tid = doc.threads[thread]
        own = kind is not TrackKind.THREAD
        device = devices.get(k, _parse_small_number(pid)) if thread_devices is None else int(thread_devices[thread])
        numbers[k] = of_place[thread, kind] = builder.track(
            kind,
            doc.track_names.thread.get((pid, tid), tid),
            pid,
            tid,
            process=doc.track_names.process.get(pid, ""),
            device=device if own else -1,
            stream=streams.get(k, _parse_small_number(tid.translate(STREAM_DIGITS))) if own else -1,
            order=doc.track_names.order.get((pid, tid), 0),
        )
    return Tracks(of_place, keys, numbers)


def add_flows(
    doc: Document,
    builder: TraceBuilder,
    tracks: Tracks,
    link_kind: Callable[[Kind], LinkKind | None],
    begin_rows: Ints | None = None,
    same_process: bool = False,
) -> None:
    """Flow arrows (ph s, t, f) as links between the events that they start and end in.

    Arrows are matched by (category, id), of one process where they never leave it; a step t ends one arrow and
    starts the next. With `begins`, the rows of begin marks, an arrow ends in the event that began last before it in
    the file, on its thread: the way to tell apart events that start at the same time.
    Source: "Flow events" of the Trace Event Format description.
    """

    def link(kind: Kind) -> int:
        selected = link_kind(kind) if kind.ph in FLOW_PHASES else None
        return -1 if selected is None else int(selected)

    links = doc.map_kinds(link, doc.flow_rows)
    chosen = links >= 0
    rows, ids, links = doc.flow_rows[chosen], doc.flow_ids[chosen], links[chosen]
    if not len(rows):
        return
    cat = doc.categories(rows)
    if same_process:
        cat = cat * len(doc.threads) + number_processes(pid for pid, _ in doc.threads)[doc.thread[rows]]
    phase = doc.map_kinds(lambda kind: FLOW_PHASES.index(kind.ph) if kind.ph in FLOW_PHASES else -1, rows)
    order = np.lexsort((rows, doc.ts[rows], phase, ids, cat))
    a, b = order[:-1], order[1:]
    joined = (ids[a] == ids[b]) & (cat[a] == cat[b]) & (phase[a] < 2) & (phase[b] > 0)
    src, dst, links = rows[a[joined]], rows[b[joined]], links[a[joined]]
    track_of_thread = _track_of_threads(doc, tracks)
    kinds: list[int] = np.flatnonzero(np.bincount(links)).tolist()
    for kind in kinds:
        s, d = src[links == kind], dst[links == kind]
        dst_rows = (
            np.full(len(d), -1) if begin_rows is None or kind != LinkKind.LAUNCH else _last_begin(doc, begin_rows, d)
        )
        builder.flow(
            track_of_thread[doc.thread[s]],
            doc.ts[s],
            track_of_thread[doc.thread[d]],
            doc.ts[d],
            LinkKind(kind),
            dst_rows,
        )


def _last_begin(doc: Document, begin_rows: Ints, rows: Ints) -> Ints:
    """For each row the last of `begins` before it in the file on the same thread, -1 for none."""
    size = len(doc.kind) + 1
    keys = np.sort(doc.thread[begin_rows].astype(np.int64) * size + begin_rows)
    target_keys = doc.thread[rows].astype(np.int64) * size + rows
    last = keys[np.maximum(np.searchsorted(keys, target_keys) - 1, 0)] if len(keys) else np.full(len(rows), -1)
    return np.where(last // size == doc.thread[rows], last % size, -1)


def _track_of_threads(doc: Document, tracks: Tracks) -> Ids:
    """Track that the arrows of a place bind to: its thread, else its stream, -1 when it has no event."""
    track_of_thread = np.full(len(doc.threads), -1, np.int32)
    for kind in (TrackKind.GPU_ANNOTATION, TrackKind.STREAM, TrackKind.THREAD):
        for (thread, k), number in tracks.of_thread.items():
            if k is kind:
                track_of_thread[thread] = number
    return track_of_thread


def pair_begin_end(doc: Document) -> tuple[Ints, Ints, int]:
    """Rows of begin and end events that belong together, as a stack on each thread, and the number left over."""
    sign = doc.map_kinds(lambda k: 1 if k.ph == "B" else -1 if k.ph == "E" else 0)
    rows = np.flatnonzero(sign)
    begin, end = pair_marks(doc, rows, sign, doc.thread[rows])
    return begin, end, len(rows) - 2 * len(begin)


def pair_marks(doc: Document, rows: Ints, sign: Ids, group: Ints | Ids) -> tuple[Ints, Ints]:
    """Rows of marks that belong together, as a stack in each group.

    Marks are taken by time, those of equal time in the order of the file.

    Args:
        doc: the file's events.
        rows: (n,) those that are marks.
        sign: of every row of the document: 1 a begin, -1 an end.
        group: (n,) what the marks are a stack of: a thread, or an id.
    """
    order = np.lexsort((rows, doc.ts[rows], group))
    rows, group = rows[order], group[order]
    delta = sign[rows]
    level = np.cumsum(delta) - (delta > 0)  # a begin stands on the level below it, its end returns there
    order = np.lexsort((np.arange(len(rows)), level, group))
    rows, group, level, delta = rows[order], group[order], level[order], delta[order]
    paired = (group[1:] == group[:-1]) & (level[1:] == level[:-1]) & (delta[:-1] > 0) & (delta[1:] < 0)
    first = np.flatnonzero(paired)
    return rows[first], rows[first + 1]


def add_counters(doc: Document, builder: TraceBuilder) -> None:
    """Counter events (ph C): one track for each (process, name, series)."""
    rows, series = doc.sample_rows, doc.sample_series
    keys = (doc.thread[rows].astype(np.int64) * len(doc.kinds) + doc.kind[rows]) * len(doc.series) + series
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    numbers = np.zeros(len(first), np.int32)
    numbers_by_name: dict[tuple[str, str, str], int] = {}
    for i in np.argsort(first).tolist():
        row, series_name = int(rows[first[i]]), doc.series[series[first[i]]]
        (pid, _), name = doc.thread_at(row), doc.kind_at(row).name
        if (pid, name, series_name) not in numbers_by_name:
            label = name if series_name in ("value", name, "") else f"{name} {series_name}"
            process = doc.track_names.process.get(pid, "")
            numbers_by_name[pid, name, series_name] = builder.track(TrackKind.COUNTER, label, pid, process=process)
        numbers[i] = numbers_by_name[pid, name, series_name]
    timed = doc.ts[rows] != NO_INT
    builder.counter(numbers[group[timed]], doc.ts[rows[timed]], doc.sample_values[timed])


def _first_values(doc: Document, names: Sequence[str], keys: Ids, size: int) -> list[dict[int, int]]:
    """First value of some arguments on each track, by its key; none where it is not a number.

    Args: keys: of every row, below `size`.
    """
    first_values: list[dict[int, int]] = []
    first_index_cache: dict[int, Ids] = {}  # those that most events have are those of the same rows
    for name in names:
        column = doc.args.get(name)
        if column is None or column.text:
            first_values.append({})
            continue
        if id(column.rows) not in first_index_cache:
            first = first_index_cache[id(column.rows)] = np.full(size, -1, np.int32)
            first[keys[column.rows][::-1]] = np.arange(len(column.rows), dtype=np.int32)[::-1]  # written last stays
        first = first_index_cache[id(column.rows)]
        keys_with_value = np.flatnonzero(first >= 0)
        first_values.append(
            dict(zip(keys_with_value.tolist(), column.values[first[keys_with_value]].tolist(), strict=True))
        )
    return first_values


def _parse_small_number(text: str) -> int:
    """A small number for a label; labels that are no number get 0."""
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    return sign * max(0, natural(digits)) if len(text) < 9 else 0
