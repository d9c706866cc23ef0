"""Perfetto traces (`.pftrace`, `.perfetto-trace`): track events of any producer, such as rocprofv3.

A slice starts in one packet and ends in another; visualprof/reader/perfetto.py reads the packets.
https://perfetto.dev/docs/reference/trace-packet-proto
"""

from __future__ import annotations

import contextlib
import re
from functools import cached_property
from typing import NamedTuple

import numpy as np

from visualprof.messages import msg
from visualprof.reader import perfetto
from visualprof.reader.fields import Fields, parse_fields, parse_leading_fields
from visualprof.reader.lanes import Lane, device_category, device_lane
from visualprof.reader.patterns import pattern
from visualprof.reader.perfetto import Interned, Packets
from visualprof.reader.protobuf import Message, ProtobufError
from visualprof.reader.registry import Format
from visualprof.reader.source import GROWING_HINT, Source
from visualprof.reader.trace import Category, Ints, LinkKind, Mask, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.pairing import pair_marks
from visualprof.reader.xplane import StringTable

MAX_BYTES = 2 << 30
MAX_TEXT_CHARS = 200  # of a track's name
_SNIFFED_PACKETS = 20  # packets of the head
_FIRST_PACKET_FIELDS = {6, 8, 10, 11, 33, 36, 58, 60, 89}  # fields of the first packets of producers
_CATEGORIES, _NAME_IID, _TYPE, _TRACK, _NAME, _CATEGORY_TEXT, _INTEGER, _REAL = 3, 10, 9, 11, 23, 22, 30, 44
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_FLOW_FIELDS = (47, 36, 48, 42)  # flows, and terminating flows, each in an old and a new field
_MAX_TRACK_DEPTH = 20  # parents of a track
# (pattern of a category, category of its events); the first match wins
_CATEGORY_PATTERNS = (
    (pattern(r"kernel", re.IGNORECASE), Category.KERNEL),
    (pattern(r"memory_?copy|memcpy", re.IGNORECASE), Category.MEMCPY),
    (pattern(r"rccl|nccl", re.IGNORECASE), Category.COMM),
    (pattern(r"(hip|hsa|cuda)\w*_api", re.IGNORECASE), Category.RUNTIME),
    (pattern(r"marker|roctx|nvtx", re.IGNORECASE), Category.ANNOTATION),
)
_DEVICE_CATEGORIES = (Category.KERNEL, Category.MEMCPY)


def start(head: bytes) -> bool:
    """Return whether the first field is a packet."""
    return head.startswith(b"\n")


def sniff(head: bytes) -> bool:
    """Return whether the messages look like packets.

    They have a numeric time or sequence, and a field of a trace's first packets.
    """
    top, _ = parse_leading_fields(head)
    packets = top.with_number(1, texts=True)
    if not len(packets.value) or len(packets.value) < len(top.value):
        return False
    packet_fields, damaged = parse_fields(head, packets.value[:_SNIFFED_PACKETS], packets.end[:_SNIFFED_PACKETS])
    number_fields = set(packet_fields.number[packet_fields.size < 0].tolist())
    return (
        not damaged
        and bool(number_fields & {perfetto.TIMESTAMP, perfetto.SEQUENCE})
        and bool(set(packet_fields.number.tolist()) & _FIRST_PACKET_FIELDS)
    )


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file. Damaged parts are left out, with a warning."""
    data = source.read_all(
        MAX_BYTES,
        msg("formats.perfetto_trace", "a Perfetto trace"),
        msg("formats.record_shorter_time", "record for a shorter time"),
    )
    packets = Packets(data)
    reading = _EventReader(data, builder, packets)
    if not reading.events:
        raise source.error(
            msg("formats.perfetto_trace_without_track", "a Perfetto trace without track events"),
            GROWING_HINT if not packets.is_complete else _UNSUPPORTED_HINT,
        )
    reading.add()
    if not packets.is_complete:
        builder.warn(msg("formats.file_ends_middle_what", "the file ends in the middle: what follows is missing"))
        builder.describe(truncated=True)


_UNSUPPORTED_HINT = msg(
    "formats.samples_scheduling_other_sources",
    "samples, scheduling and other sources of Perfetto are not shown: record with the data source track_event",
)


class _TrackDescription(NamedTuple):
    """Description of a track; "" means unknown, `parent` is the parent's number."""

    name: str = ""
    pid: str = ""
    process: str = ""
    tid: str = ""
    parent: int = 0


def _parse_description(track: Message) -> _TrackDescription:
    process, thread = track.message(3), track.message(4)
    name = track.text(2) or track.text(10) or thread.text(5) or process.text(6)
    pid = process.number(1) or thread.number(1)
    texts = (name, str(pid or ""), process.text(6), str(thread.number(2) or ""))
    name, pid, process_name, tid = (text[:MAX_TEXT_CHARS] for text in texts)
    return _TrackDescription(name, pid, process_name, tid, track.number(5))


class _EventReader:
    """Converts the events of the file to the trace; columns are (events,), in the order of the file."""

    def __init__(self, data: bytes, builder: TraceBuilder, packets: Packets) -> None:
        self._data, self._builder, self._packets = data, builder, packets
        self._texts = StringTable(data, builder.string)
        self._fields, self._packet = packets.submessages(perfetto.EVENT)
        self.events = len(self._packet)
        self._unpaired = 0
        self._device_type = ""

    def add(self) -> None:
        """Add everything."""
        kind = self._fields.last_values(_TYPE, self.events)
        ts, name = self._packets.ts[self._packet], self._names()
        category_of_event = self._categories_by_text()
        uuid = self._uuids()
        keys, track = np.unique(uuid, return_inverse=True)
        lanes = self._lanes(keys.tolist())
        kind_of_lane = np.array([-1 if lane is None else lane.kind for lane in lanes], np.int64)
        device = np.bincount(track, np.isin(category_of_event, _DEVICE_CATEGORIES), len(keys)) > 0
        device = (device | (kind_of_lane == TrackKind.STREAM)) & (kind_of_lane != TrackKind.GPU_ANNOTATION)
        counting = np.bincount(track, kind != _COUNTER, len(keys)) == 0
        tracks = self._add_tracks(keys.tolist(), lanes, device.tolist(), counting.tolist())
        begin, end = self._pairs(kind, ts, track)
        marks = np.flatnonzero((kind == _INSTANT) & (ts >= 0))
        rows = np.concatenate((begin, marks))
        dur = np.concatenate((np.maximum(ts[end] - ts[begin], 0), np.full(len(marks), -1)))
        category = self._refine_categories(category_of_event[rows], name[rows], kind_of_lane[track[rows]])
        self._builder.events(
            ts=ts[rows], dur=dur, name=name[rows], category=category, track=tracks[track[rows]], row=rows
        )
        is_sample = (kind == _COUNTER) & counting[track]
        self._add_counters(is_sample & (ts >= 0), ts, tracks[track])
        self._add_links(rows, ts, device[track])
        self._add_sizes(rows[category == Category.MEMCPY])
        unsupported = self.events - int((is_sample | np.isin(kind, (_BEGIN, _END, _INSTANT))).sum())
        if unsupported:
            self._builder.warn(
                msg("formats.events_kinds_not_read", f"{unsupported:,} events of kinds that are not read were left out")
            )
        if self._unpaired:
            self._builder.warn(
                msg(
                    "formats.begin_end_marks_no",
                    f"{self._unpaired:,} begin or end marks have no counterpart and were left out",
                )
            )
        without_time = int((ts < 0).sum())
        if without_time:
            self._builder.warn(
                msg(
                    "formats.events_clocks_file_not",
                    f"{without_time:,} events on clocks that the file does not relate to its own were left out",
                )
            )
        if self._packets.damaged:
            self._builder.warn(
                msg(
                    "formats.damaged_parts_file_left",
                    f"{self._packets.damaged:,} damaged parts of the file were left out",
                )
            )
        device_type = (self._device_type or "cuda") if device.any() else "cpu"
        self._builder.describe(
            framework="hip" if device_type == "hip" else "perfetto",
            producer="Perfetto",
            device_type=device_type,
            clock_origin_ns=self._packets.origin_ns,
        )

    def _interned(self, number: int, fields: Fields, packet: Ints) -> Interned:
        """Return interned texts of a field, as string ids of the trace."""
        entries, holder = self._packets.nested_messages(fields, number)
        texts = self._texts.message_texts(entries.with_number(2, texts=True), len(holder))
        values = np.array([self._texts.id(text) for text in texts], np.int64)
        return Interned(self._packets.generation[packet[holder]], entries.last_values(1, len(holder)), values)

    def _names(self) -> Ints:
        """Return (events,) names, interned or inline."""
        interned, packet = self._packets.submessages(perfetto.INTERNED)
        self._categories = self._interned(1, interned, packet)
        self._annotations = self._interned(3, interned, packet)
        interned_names = self._interned(2, interned, packet).lookup(
            self._generation, self._fields.last_values(_NAME_IID, self.events)
        )
        inline_names = self._texts.message_texts(self._fields.with_number(_NAME, texts=True), self.events)
        ids = np.array([self._texts.id(text) for text in inline_names], np.int64)
        return np.where(ids > 0, ids, interned_names)

    @property
    def _generation(self) -> Ints:
        return self._packets.generation[self._packet]

    def _categories_by_text(self) -> Ints:
        """Return (events,) categories, from the text of each event's category."""
        ids = self._categories.lookup(self._generation, self._fields.last_values(_CATEGORIES, self.events))
        inline_categories = self._texts.message_texts(self._fields.with_number(_CATEGORY_TEXT, texts=True), self.events)
        ids = np.where(ids > 0, ids, np.array([self._texts.id(text) for text in inline_categories], np.int64))
        distinct, id_index = np.unique(ids, return_inverse=True)
        return np.array([_category_of_text(self._texts.text(i)) for i in distinct.tolist()], np.int64)[id_index]

    def _refine_categories(self, meaning: Ints, name: Ints, lane: Ints) -> Ints:
        """Return (n,) categories refined by name: kernels that copy, fill or communicate, and events of lanes.

        Args:
            meaning: (n,) categories by the category text of the events.
            name: (n,) string ids.
            lane: (n,) kind of track that the names of the lane indicate, -1 unknown.
        """
        keys, key_index = np.unique(np.stack([meaning, name, lane], axis=1), axis=0, return_inverse=True)
        refined = [
            _refine_category(Category(kind), self._texts.text(text), lane_kind)
            for kind, text, lane_kind in keys.tolist()
        ]
        return np.array(refined, np.int64)[key_index.ravel()]

    def _uuids(self) -> Ints:
        """Return (events,) track numbers of the file."""
        defaults, packet = self._packets.submessages(perfetto.DEFAULTS)
        of_events, holder = self._packets.nested_messages(defaults, _TRACK)
        default = self._packets.default(of_events.last_values(_TRACK, len(holder)), packet[holder], 0)[self._packet]
        explicit = self._fields.with_number(_TRACK)
        default[explicit.message] = explicit.value
        return default

    def _lanes(self, uuids: list[int]) -> list[Lane | None]:
        """Return (tracks,) lanes of devices by the names of tracks and processes, `None` for other tracks."""
        lanes: list[Lane | None] = []
        for uuid in uuids:
            description = self._with_ancestors(uuid)
            lanes.append(device_lane(description.process, description.name))
        return lanes

    def _with_ancestors(self, uuid: int) -> _TrackDescription:
        """Return the description of a track, with the process and thread of its nearest ancestors that have them."""
        ancestors = [self._descriptions.get(uuid, _TrackDescription())]
        while ancestors[-1].parent in self._descriptions and len(ancestors) < _MAX_TRACK_DEPTH:
            ancestors.append(self._descriptions[ancestors[-1].parent])
        pid, process, tid = (
            next((text for ancestor in ancestors if (text := getattr(ancestor, field))), "")
            for field in ("pid", "process", "tid")
        )
        return ancestors[0]._replace(pid=pid, process=process, tid=tid)

    def _add_tracks(self, uuids: list[int], lanes: list[Lane | None], device: list[bool], counting: list[bool]) -> Ints:
        """Add tracks and return (tracks,) their numbers in the trace."""
        numbers: list[int] = []
        for uuid, lane, on_device, counter in zip(uuids, lanes, device, counting, strict=True):
            track = self._with_ancestors(uuid)
            self._device_type = self._device_type or (lane.device_type if lane else "")
            kind = TrackKind.STREAM if on_device else TrackKind.COUNTER if counter else TrackKind.THREAD
            if not counter and lane and lane.kind is TrackKind.GPU_ANNOTATION:
                kind = TrackKind.GPU_ANNOTATION
            number, stream = (max(lane.device, 0), lane.stream) if lane else (0, -1)
            fields = {"device": number, "stream": stream if stream >= 0 else len(numbers)} if on_device else {}
            title = track.name or f"track {uuid}"
            tid = f"{track.tid}.{uuid}"
            numbers.append(self._builder.track(kind, title, track.pid, tid, process=track.process, **fields))
        return np.array(numbers, np.int64)

    @cached_property
    def _descriptions(self) -> dict[int, _TrackDescription]:
        """Return descriptions of tracks by number; the last one wins."""
        matches = self._packets.fields.with_number(perfetto.DESCRIPTOR, texts=True)
        view, descriptions = memoryview(self._data), dict[int, _TrackDescription]()
        for begin, end in zip(matches.value.tolist(), matches.end.tolist(), strict=True):
            track = Message(view[begin:end])
            with contextlib.suppress(ProtobufError):
                descriptions[track.number(1)] = _parse_description(track)
        return descriptions

    def _pairs(self, kind: Ints, ts: Ints, track: Ints) -> tuple[Ints, Ints]:
        """Return rows at which slices start and end: paired per sequence and track, the rest per track."""
        marks = np.flatnonzero(((kind == _BEGIN) | (kind == _END)) & (ts >= 0))
        sequences, sequence_index = np.unique(self._packets.sequence[self._packet[marks]], return_inverse=True)
        sign = np.where(kind == _BEGIN, 1, -1)
        begin, end = pair_marks(marks, ts[marks], sign[marks], track[marks] * len(sequences) + sequence_index)
        is_open = np.ones(self.events, bool)
        is_open[begin], is_open[end] = False, False
        unmatched = marks[is_open[marks]]
        late_begin, late_end = pair_marks(unmatched, ts[unmatched], sign[unmatched], track[unmatched])
        self._unpaired = len(unmatched) - 2 * len(late_begin)
        return np.concatenate((begin, late_begin)), np.concatenate((end, late_end))

    def _add_counters(self, is_sample: Mask, ts: Ints, track: Ints) -> None:
        real = self._fields.with_number(_REAL)
        value = self._fields.last_values(_INTEGER, self.events).astype(np.float64)
        value[real.message] = np.nan_to_num(real.value.view(np.float64))
        rows = np.flatnonzero(is_sample)
        self._builder.counter(track[rows], ts[rows], value[rows])

    def _add_links(self, rows: Ints, ts: Ints, device: Mask) -> None:
        """Add flows: from a call to all device work with its number, else from each event to the next."""
        is_event = np.zeros(self.events, bool)
        is_event[rows] = True
        flow_fields = [self._fields.with_number(number) for number in _FLOW_FIELDS]
        row, flow = (
            np.concatenate([getattr(fields, column) for fields in flow_fields]) for column in ("message", "value")
        )
        row, flow = row[is_event[row]].astype(np.int64), flow[is_event[row]]
        if not len(row):
            return
        order = np.lexsort((ts[row], device[row], flow))
        row, flow = row[order], flow[order]
        starts_chain = np.append(True, flow[1:] != flow[:-1])
        chain_start = row[np.maximum.accumulate(np.where(starts_chain, np.arange(len(row)), 0))]
        is_launched = ~starts_chain & device[row] & ~device[chain_start]
        self._builder.link(chain_start[is_launched], row[is_launched], LinkKind.LAUNCH)
        others = np.flatnonzero(~starts_chain & ~is_launched)
        self._builder.link(row[others - 1], row[others], LinkKind.FLOW)

    def _add_sizes(self, rows: Ints) -> None:
        """Add the bytes of rocprofv3's copies, which are in an annotation of the event."""
        annotations, holder = self._packets.nested_messages(self._fields, 4)
        number = annotations.last_values(1, len(holder))
        name = self._annotations.lookup(self._generation[holder], number)
        value = np.maximum(annotations.last_values(3, len(holder), -1), annotations.last_values(4, len(holder), -1))
        is_size = (name == self._builder.string("copy_bytes")) & np.isin(holder, rows) & (value >= 0)
        self._builder.arg("bytes", holder[is_size], value[is_size])


def _category_of_text(category: str) -> Category:
    return next(
        (
            event_category
            for category_pattern, event_category in _CATEGORY_PATTERNS
            if category_pattern.search(category)
        ),
        Category.OP,
    )


def _refine_category(category: Category, name: str, lane: int) -> Category:
    """Return the category of an event by its name; `lane` is the kind of track by the lane's names, -1 unknown."""
    if lane == TrackKind.GPU_ANNOTATION:
        return Category.ANNOTATION
    is_on_lane = lane == TrackKind.STREAM and category not in (*_DEVICE_CATEGORIES, Category.COMM)
    return device_category(name) if category == Category.KERNEL or is_on_lane else category


FORMAT = Format("perfetto", "Perfetto", 32, sniff, read, start=start, suffixes=(".pftrace", ".perfetto-trace"))
