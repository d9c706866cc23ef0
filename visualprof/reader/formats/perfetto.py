"""Perfetto traces (`.pftrace`, `.perfetto-trace`): track events of any producer, rocprofv3 among them.

A slice begins in one packet and ends in another; visualprof/reader/perfetto.py has the packets.
https://perfetto.dev/docs/reference/trace-packet-proto
"""

from __future__ import annotations

import contextlib
import re
from typing import NamedTuple

import numpy as np

from visualprof.messages import msg
from visualprof.reader import perfetto
from visualprof.reader.fields import Fields, parse_fields, parse_leading_fields
from visualprof.reader.patterns import STEP_NAME, pattern
from visualprof.reader.perfetto import Interned, Packets
from visualprof.reader.protobuf import Message, ProtobufError
from visualprof.reader.registry import Format
from visualprof.reader.source import GROWING_HINT, Source
from visualprof.reader.trace import Category, Ints, LinkKind, Mask, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.xplane import StringTable

MAX_BYTES = 2 << 30
MAX_TEXT = 200  # of what a track is called
_LOOKED_AT = 20  # packets of a head
_KINDS = {6, 8, 10, 11, 33, 36, 58, 60, 89}  # fields of the packets with which producers begin
_CATEGORIES, _NAME_IID, _TYPE, _TRACK, _NAME, _CATEGORY_TEXT, _INTEGER, _REAL = 3, 10, 9, 11, 23, 22, 30, 44
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_FLOWS = (47, 36, 48, 42)  # and those that end there, each of two ages
_DEPTH = 20  # of parents of a track
# (what a category holds, what its events are), the first that fits
_MEANINGS = (
    (pattern(r"kernel", re.IGNORECASE), Category.KERNEL),
    (pattern(r"memory_?copy|memcpy", re.IGNORECASE), Category.MEMCPY),
    (pattern(r"rccl|nccl", re.IGNORECASE), Category.COMM),
    (pattern(r"(hip|hsa|cuda)\w*_api", re.IGNORECASE), Category.RUNTIME),
    (pattern(r"marker|roctx|nvtx", re.IGNORECASE), Category.ANNOTATION),
)
_DEVICE = (Category.KERNEL, Category.MEMCPY)
_COPY, _FILL = pattern(r"^__amd_rocclr_copyBuffer"), pattern(r"^__amd_rocclr_fillBuffer")
_COLLECTIVE = pattern(r"nccl|rccl", re.IGNORECASE)
_AGENT = pattern(r"AGENT \[(\d{1,4})\]")


def start(first: bytes) -> bool:
    """The first field is a packet."""
    return first.startswith(b"\n")


def sniff(head: bytes) -> bool:
    """Does its messages look like packets: a time or a sequence as numbers, or what a trace begins with?"""
    top, _ = parse_leading_fields(head)
    packets = top.with_number(1, texts=True)
    if not len(packets.value) or len(packets.value) < len(top.value):
        return False
    known, damaged = parse_fields(head, packets.value[:_LOOKED_AT], packets.end[:_LOOKED_AT])
    counted = set(known.number[known.size < 0].tolist())
    return (
        not damaged
        and bool(counted & {perfetto.TIMESTAMP, perfetto.SEQUENCE})
        and bool(set(known.number.tolist()) & _KINDS)
    )


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file; what is damaged in it is left out, with a warning."""
    data = source.read_all(
        MAX_BYTES,
        msg("formats.perfetto_trace", "a Perfetto trace"),
        msg("formats.record_shorter_time", "record for a shorter time"),
    )
    packets = Packets(data)
    reading = _Reading(data, builder, packets)
    if not reading.events:
        raise source.error(
            msg("formats.perfetto_trace_without_track", "a Perfetto trace without track events"),
            GROWING_HINT if not packets.is_complete else _OTHERS,
        )
    reading.add()
    if not packets.is_complete:
        builder.warn(msg("formats.file_ends_middle_what", "the file ends in the middle: what follows is missing"))
        builder.describe(truncated=True)


_OTHERS = msg(
    "formats.samples_scheduling_other_sources",
    "samples, scheduling and other sources of Perfetto are not shown: record with the data source track_event",
)


class _Description(NamedTuple):
    """What a track is called; "" is not told. parent: its number."""

    name: str = ""
    pid: str = ""
    process: str = ""
    tid: str = ""
    parent: int = 0


def _described(track: Message) -> _Description:
    process, thread = track.message(3), track.message(4)
    name = track.text(2) or track.text(10) or thread.text(5) or process.text(6)
    pid = process.number(1) or thread.number(1)
    told = (name, str(pid or ""), process.text(6), str(thread.number(2) or ""))
    name, pid, process_name, tid = (text[:MAX_TEXT] for text in told)
    return _Description(name, pid, process_name, tid, track.number(5))


class _Reading:
    """The events of the file while they are put into the trace, (events,) each column, in the order of the file."""

    def __init__(self, data: bytes, builder: TraceBuilder, packets: Packets) -> None:
        self._data, self._builder, self._packets = data, builder, packets
        self._texts = StringTable(data, builder.string)
        self._fields, self._packet = packets.submessages(perfetto.EVENT)
        self.events = len(self._packet)
        self._left = 0
        self._agents = False

    def add(self) -> None:
        """Everything."""
        kind = self._fields.last_values(_TYPE, self.events)
        ts, name = self._packets.ts[self._packet], self._names()
        meaning = self._meanings()
        uuid = self._uuids()
        keys, track = np.unique(uuid, return_inverse=True)
        device = np.bincount(track, np.isin(meaning, _DEVICE), len(keys)) > 0
        counting = np.bincount(track, kind != _COUNTER, len(keys)) == 0
        tracks = self._add_tracks(keys.tolist(), device.tolist(), counting.tolist())
        begin, end = self._pairs(kind, ts, track)
        marks = np.flatnonzero((kind == _INSTANT) & (ts >= 0))
        rows = np.concatenate((begin, marks))
        dur = np.concatenate((np.maximum(ts[end] - ts[begin], 0), np.full(len(marks), -1)))
        category = self._refined(meaning[rows], name[rows])
        self._builder.events(
            ts=ts[rows], dur=dur, name=name[rows], category=category, track=tracks[track[rows]], row=rows
        )
        self._add_steps(ts[rows], dur, name[rows], tracks[track[rows]])
        sampled = (kind == _COUNTER) & counting[track]
        self._add_counters(sampled & (ts >= 0), ts, tracks[track])
        self._add_links(rows, ts, device[track])
        self._add_sizes(rows[category == Category.MEMCPY])
        others = self.events - int((sampled | np.isin(kind, (_BEGIN, _END, _INSTANT))).sum())
        if others:
            self._builder.warn(
                msg("formats.events_kinds_not_read", f"{others:,} events of kinds that are not read were left out")
            )
        if self._left:
            self._builder.warn(
                msg(
                    "formats.begin_end_marks_no",
                    f"{self._left:,} begin or end marks have no counterpart and were left out",
                )
            )
        undated = int((ts < 0).sum())
        if undated:
            self._builder.warn(
                msg(
                    "formats.events_clocks_file_not",
                    f"{undated:,} events on clocks that the file does not relate to its own were left out",
                )
            )
        if self._packets.damaged:
            self._builder.warn(
                msg(
                    "formats.damaged_parts_file_left",
                    f"{self._packets.damaged:,} damaged parts of the file were left out",
                )
            )
        self._builder.describe(
            framework="hip" if self._agents else "perfetto", producer="Perfetto",
            device_type="hip" if self._agents else "cuda" if device.any() else "cpu",
            clock_origin_ns=self._packets.origin_ns,
        )  # fmt: skip

    def _interned(self, number: int, of: Fields, packet: Ints) -> Interned:
        """Texts that sequences interned in a field: string ids of the trace."""
        entries, holder = self._packets.nested_messages(of, number)
        texts = self._texts.message_texts(entries.with_number(2, texts=True), len(holder))
        values = np.array([self._texts.id(text) for text in texts], np.int64)
        return Interned(self._packets.generation[packet[holder]], entries.last_values(1, len(holder)), values)

    def _names(self) -> Ints:
        """(events,) names, interned or beside the event."""
        held, packet = self._packets.submessages(perfetto.INTERNED)
        self._categories = self._interned(1, held, packet)
        self._annotations = self._interned(3, held, packet)
        known = self._interned(2, held, packet).lookup(
            self._generation, self._fields.last_values(_NAME_IID, self.events)
        )
        own = self._texts.message_texts(self._fields.with_number(_NAME, texts=True), self.events)
        ids = np.array([self._texts.id(text) for text in own], np.int64)
        return np.where(ids > 0, ids, known)

    @property
    def _generation(self) -> Ints:
        return self._packets.generation[self._packet]

    def _meanings(self) -> Ints:
        """(events,) what the category of each says."""
        ids = self._categories.lookup(self._generation, self._fields.last_values(_CATEGORIES, self.events))
        own = self._texts.message_texts(self._fields.with_number(_CATEGORY_TEXT, texts=True), self.events)
        ids = np.where(ids > 0, ids, np.array([self._texts.id(text) for text in own], np.int64))
        distinct, which = np.unique(ids, return_inverse=True)
        return np.array([_meaning(self._texts.text(i)) for i in distinct.tolist()], np.int64)[which]

    def _refined(self, meaning: Ints, name: Ints) -> Ints:
        """(n,) categories: kernels that copy, fill or communicate are told by their names, steps by theirs."""
        keys, which = np.unique(np.stack([meaning, name], axis=1), axis=0, return_inverse=True)
        found = [_named(Category(kind), self._texts.text(text)) for kind, text in keys.tolist()]
        return np.array(found, np.int64)[which.ravel()]

    def _uuids(self) -> Ints:
        """(events,) tracks, by the numbers that the file has for them."""
        usual, packet = self._packets.submessages(perfetto.DEFAULTS)
        of_events, holder = self._packets.nested_messages(usual, _TRACK)
        default = self._packets.default(of_events.last_values(_TRACK, len(holder)), packet[holder], 0)[self._packet]
        own = self._fields.with_number(_TRACK)
        default[own.message] = own.value
        return default

    def _add_tracks(self, uuids: list[int], device: list[bool], counting: list[bool]) -> Ints:
        """(tracks,) numbers of the trace's tracks."""
        known = self._descriptions()
        numbers: list[int] = []
        for uuid, on_device, counter in zip(uuids, device, counting, strict=True):
            line = [known.get(uuid, _Description())]
            while line[-1].parent in known and len(line) < _DEPTH:
                line.append(known[line[-1].parent])
            name, pid = line[0].name, next((one.pid for one in line if one.pid), "")
            process = next((one.process for one in line if one.process), "")
            tid = next((one.tid for one in line if one.tid), "")
            agent = _AGENT.search(name)
            self._agents |= on_device and agent is not None
            kind = TrackKind.STREAM if on_device else TrackKind.COUNTER if counter else TrackKind.THREAD
            place = {"device": int(agent[1]) if agent else 0, "stream": len(numbers)} if on_device else {}
            title = name or f"track {uuid}"
            numbers.append(self._builder.track(kind, title, pid, f"{tid}.{uuid}", process=process, **place))
        return np.array(numbers, np.int64)

    def _descriptions(self) -> dict[int, _Description]:
        """Of tracks, by their numbers; of several the last."""
        at = self._packets.fields.with_number(perfetto.DESCRIPTOR, texts=True)
        view, found = memoryview(self._data), dict[int, _Description]()
        for begin, end in zip(at.value.tolist(), at.end.tolist(), strict=True):
            track = Message(view[begin:end])
            with contextlib.suppress(ProtobufError):
                found[track.number(1)] = _described(track)
        return found

    def _pairs(self, kind: Ints, ts: Ints, track: Ints) -> tuple[Ints, Ints]:
        """Rows where slices begin and end: as a stack in what one sequence says of a track, the rest by time."""
        marked = np.flatnonzero(((kind == _BEGIN) | (kind == _END)) & (ts >= 0))
        sequences, of = np.unique(self._packets.sequence[self._packet[marked]], return_inverse=True)
        sign = np.where(kind == _BEGIN, 1, -1)
        begin, end = _stack(marked, sign, track[marked] * len(sequences) + of)
        open_ones = np.ones(self.events, bool)
        open_ones[begin], open_ones[end] = False, False
        rest = marked[open_ones[marked]]
        rest = rest[np.argsort(ts[rest], kind="stable")]
        more, ends = _stack(rest, sign, track[rest])
        self._left = len(rest) - 2 * len(more)
        return np.concatenate((begin, more)), np.concatenate((end, ends))

    def _add_steps(self, ts: Ints, dur: Ints, name: Ints, track: Ints) -> None:
        steps = {number: STEP_NAME.match(self._texts.text(number)) for number in np.unique(name).tolist()}
        for row in np.flatnonzero(np.isin(name, [n for n, step in steps.items() if step]) & (dur > 0)).tolist():
            step = steps[int(name[row])]
            self._builder.step(step[2] if step else "", int(ts[row]), int(dur[row]), int(track[row]))

    def _add_counters(self, counted: Mask, ts: Ints, track: Ints) -> None:
        real = self._fields.with_number(_REAL)
        value = self._fields.last_values(_INTEGER, self.events).astype(np.float64)
        value[real.message] = np.nan_to_num(real.value.view(np.float64))
        rows = np.flatnonzero(counted)
        self._builder.counter(track[rows], ts[rows], value[rows])

    def _add_links(self, rows: Ints, ts: Ints, device: Mask) -> None:
        """Flows: from a call to all the device work that has its number, else from each event to the next."""
        kept = np.zeros(self.events, bool)
        kept[rows] = True
        parts = [self._fields.with_number(number) for number in _FLOWS]
        row, flow = (np.concatenate([getattr(part, what) for part in parts]) for what in ("message", "value"))
        row, flow = row[kept[row]].astype(np.int64), flow[kept[row]]
        if not len(row):
            return
        order = np.lexsort((ts[row], device[row], flow))
        row, flow = row[order], flow[order]
        begins = np.append(True, flow[1:] != flow[:-1])
        first = row[np.maximum.accumulate(np.where(begins, np.arange(len(row)), 0))]
        launched = ~begins & device[row] & ~device[first]
        self._builder.link(first[launched], row[launched], LinkKind.LAUNCH)
        other = np.flatnonzero(~begins & ~launched)
        self._builder.link(row[other - 1], row[other], LinkKind.FLOW)

    def _add_sizes(self, rows: Ints) -> None:
        """Bytes of rocprofv3's copies, which stand in a note of the event."""
        notes, holder = self._packets.nested_messages(self._fields, 4)
        number = notes.last_values(1, len(holder))
        name = self._annotations.lookup(self._generation[holder], number)
        value = np.maximum(notes.last_values(3, len(holder), -1), notes.last_values(4, len(holder), -1))
        sized = (name == self._builder.string("copy_bytes")) & np.isin(holder, rows) & (value >= 0)
        self._builder.arg("bytes", holder[sized], value[sized])


def _stack(rows: Ints, sign: Ints, group: Ints) -> tuple[Ints, Ints]:
    """Rows of begins and ends that belong together: in each group the last open one is ended first."""
    order = np.argsort(group, kind="stable")
    rows, group = rows[order], group[order]
    level = np.cumsum(sign[rows])
    starts = np.flatnonzero(np.append(True, group[1:] != group[:-1])[: len(rows)])
    base = np.append(0, level)[starts]
    level = level - np.repeat(base, np.diff(np.append(starts, len(rows)))) + (sign[rows] < 0)
    order = np.lexsort((np.arange(len(rows)), level, group))
    rows, group, level = rows[order], group[order], level[order]
    opens = sign[rows[:-1]] > 0
    matched = np.flatnonzero(opens & (sign[rows[1:]] < 0) & (group[1:] == group[:-1]) & (level[1:] == level[:-1]))
    return rows[matched], rows[matched + 1]


def _meaning(category: str) -> Category:
    return next((meaning for known, meaning in _MEANINGS if known.search(category)), Category.OP)


def _named(meaning: Category, name: str) -> Category:
    if STEP_NAME.match(name):
        return Category.STEP
    if meaning != Category.KERNEL:
        return meaning
    if _COPY.match(name):
        return Category.MEMCPY
    if _FILL.match(name):
        return Category.MEMSET
    return Category.COMM if _COLLECTIVE.search(name) else Category.KERNEL


FORMAT = Format("perfetto", "Perfetto", 32, sniff, read, start=start, suffixes=(".pftrace", ".perfetto-trace"))
