"""Threads, streams, arrows and counters of Chrome trace-event files, shared by the formats that use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from visualprof.reader.chrome.document import NO_INT, Document, Kind
from visualprof.reader.chrome.lanes import DocumentLanes
from visualprof.reader.chrome.values import natural
from visualprof.reader.trace import Ids, Ints, LinkKind, Rows, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.matching import number_processes
from visualprof.reader.trace.pairing import pair_marks

STREAM_DIGITS = str.maketrans("", "", "Sstream ()")
MAX_DEVICE = 63  # larger process numbers are not those of a device
FLOW_PHASES = ("s", "t", "f")


class Tracks(msgspec.Struct, frozen=True):
    """Tracks of the events.

    Attributes:
        of_thread: Track by index of the thread and kind of track.
        keys: Returns the keys of rows.
        numbers: Track of each key, -1 for none.
    """

    of_thread: dict[tuple[int, TrackKind], int]
    keys: Callable[[Rows], Ids]
    numbers: Ids

    def lookup(self, rows: Rows) -> Ids:
        """Return the tracks of rows."""
        return self.numbers[self.keys(rows)]


def add_tracks(
    doc: Document,
    builder: TraceBuilder,
    rows: Ints,
    track_kind: Callable[[Kind], TrackKind | None],
    lanes: DocumentLanes | None = None,
) -> Tracks:
    """Add one track per (process, thread, kind of track) with events, named by the file's metadata.

    Devices and streams are numbered by the arguments `device` and `stream` if these are numbers, else by the names of
    the lane, else by pid and tid.

    Args:
        doc: The file's events.
        builder: Gets the tracks.
        rows: Rows of the document that are events.
        track_kind: Returns the kind of track for a kind of event; `None` if its lane decides.
        lanes: The lanes of devices.
    """
    by_event = [track_kind(kind) for kind in doc.kinds]
    kinds = np.array([TrackKind.THREAD if kind is None else kind for kind in by_event], np.int32)
    is_open = np.array([kind is None for kind in by_event], bool)
    lane_kind = None if lanes is None or not (lanes.kind >= 0).any() else lanes.kind

    def keys(rows: Rows | slice) -> Ids:
        thread = doc.thread[rows]
        key = kinds[doc.kind[rows]]
        if lane_kind is not None:
            by_lane = lane_kind[thread]
            key = np.where(is_open[doc.kind[rows]] & (by_lane >= 0), by_lane, key)
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
        is_device_track = kind is not TrackKind.THREAD
        device, stream = _parse_small_number(pid), _parse_small_number(tid.translate(STREAM_DIGITS))
        if lanes is not None and lanes.kind[thread] >= 0:
            device = int(lanes.device[thread]) if lanes.device[thread] >= 0 else device * (device <= MAX_DEVICE)
            stream = int(lanes.stream[thread]) if lanes.stream[thread] >= 0 else stream
        numbers[k] = of_place[thread, kind] = builder.track(
            kind,
            doc.track_names.thread.get((pid, tid), tid),
            pid,
            tid,
            process=doc.track_names.process.get(pid, ""),
            device=devices.get(k, device) if is_device_track else -1,
            stream=streams.get(k, stream) if is_device_track else -1,
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
    """Add flow arrows (ph s, t, f) as links between the events in which they start and end.

    Arrows are matched by (category, id), and by process if they never leave it. A step t ends one arrow and starts the
    next. With `begin_rows`, the rows of begin marks, an arrow ends in the event of its thread that began last before it
    in the file. This distinguishes events that start at the same time.

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
    """Return for each row the last of `begin_rows` before it in the file on the same thread, -1 for none."""
    size = len(doc.kind) + 1
    keys = np.sort(doc.thread[begin_rows].astype(np.int64) * size + begin_rows)
    target_keys = doc.thread[rows].astype(np.int64) * size + rows
    last = keys[np.maximum(np.searchsorted(keys, target_keys) - 1, 0)] if len(keys) else np.full(len(rows), -1)
    return np.where(last // size == doc.thread[rows], last % size, -1)


def _track_of_threads(doc: Document, tracks: Tracks) -> Ids:
    """Return the track to which arrows of a thread bind: its thread track, else its stream, -1 if it has no event."""
    track_of_thread = np.full(len(doc.threads), -1, np.int32)
    for kind in (TrackKind.GPU_ANNOTATION, TrackKind.STREAM, TrackKind.THREAD):
        for (thread, k), number in tracks.of_thread.items():
            if k is kind:
                track_of_thread[thread] = number
    return track_of_thread


def pair_begin_end(doc: Document) -> tuple[Ints, Ints, int]:
    """Return rows of matching begin and end events, as a stack per thread, and the number of unpaired ones."""
    sign = doc.map_kinds(lambda k: 1 if k.ph == "B" else -1 if k.ph == "E" else 0)
    rows = np.flatnonzero(sign)
    begin, end = pair_marks(rows, doc.ts[rows], sign[rows], doc.thread[rows])
    return begin, end, len(rows) - 2 * len(begin)


def add_counters(doc: Document, builder: TraceBuilder) -> None:
    """Add counter events (ph C): one track per (process, name, series)."""
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
    """Return the first value of some arguments on each track, by its key; empty for arguments that are not numbers.

    Args:
        doc: The file's events.
        names: The arguments.
        keys: Track key of every row, below `size`.
        size: The number of keys.
    """
    first_values: list[dict[int, int]] = []
    first_index_cache: dict[int, Ids] = {}  # frequent arguments share their rows
    for name in names:
        column = doc.args.get(name)
        if column is None or column.text:
            first_values.append({})
            continue
        if id(column.rows) not in first_index_cache:
            first = first_index_cache[id(column.rows)] = np.full(size, -1, np.int32)
            # Reversed, so that the first row wins
            first[keys[column.rows][::-1]] = np.arange(len(column.rows), dtype=np.int32)[::-1]
        first = first_index_cache[id(column.rows)]
        keys_with_value = np.flatnonzero(first >= 0)
        first_values.append(
            dict(zip(keys_with_value.tolist(), column.values[first[keys_with_value]].tolist(), strict=True))
        )
    return first_values


def _parse_small_number(text: str) -> int:
    """Return the number in a label, 0 if it is not a small number."""
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    return sign * max(0, natural(digits)) if len(text) < 9 else 0
