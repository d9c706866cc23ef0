"""Packets of a Perfetto trace as columns: their sequences, their times on one clock, and their interned data.

Schema: protos/perfetto/trace/trace_packet.proto; the constants are its field numbers. The meaning of the events:
visualprof/reader/formats/perfetto.py.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from visualprof.reader.fields import Fields, parse_fields, parse_leading_fields
from visualprof.reader.trace.types import Ints

SNAPSHOT, TIMESTAMP, SEQUENCE, EVENT, INTERNED, FLAGS, CLOCK, DEFAULTS, DESCRIPTOR = 6, 8, 10, 11, 12, 13, 58, 59, 60
COMPRESSED = 50
_CLEARED, _WAS_CLEARED = 1, 41  # a flag, and the field that older files use instead
_REALTIME, BOOTTIME, _FIRST_SEQUENCE_CLOCK = 1, 6, 64  # clocks from 64 on are local to a sequence
_MAX_TIME = 2**62


class Packets:
    """The packets of a file, in file order; `sequence`, `generation` and `ts` are (n,).

    Attributes:
        sequence: The id of the packet's sequence.
        generation: Number of the interval in which the interned data and defaults of a sequence are valid; clearing
            them starts a new one.
        ts: Time in ns, -1 if the clock is unknown.
        origin_ns: Unix time of `ts` 0, -1 if unknown.
        is_complete: The file does not end in the middle of a packet.
        fields: The fields of all packets.
        damaged: The number of damaged packets.
    """

    def __init__(self, data: bytes) -> None:
        top, damaged = parse_fields(data, np.zeros(1, np.int64), np.array([len(data)]))
        self.is_complete = not damaged
        if damaged:
            top, _ = parse_leading_fields(data)
        self._data = data
        self._packets = top.with_number(1, texts=True)
        self.fields, self.damaged = parse_fields(data, self._packets.value, self._packets.end)
        self.origin_ns = -1
        self.sequence = self.fields.last_values(SEQUENCE, len(self))
        cleared = (self.fields.last_values(FLAGS, len(self)) & _CLEARED > 0) | (
            self.fields.last_values(_WAS_CLEARED, len(self)) > 0
        )
        order = np.argsort(self.sequence, kind="stable")
        begins = cleared[order] | np.append(True, np.diff(self.sequence[order]) != 0)[: len(self)]
        self.generation = np.zeros(len(self), np.int64)
        self.generation[order] = np.cumsum(begins)
        self.ts = self._times()

    def __len__(self) -> int:
        return len(self._packets.value)

    def submessages(self, number: int) -> tuple[Fields, Ints]:
        """Return the fields of the submessages with that field number, and the packet of each submessage."""
        matches = self.fields.with_number(number, texts=True)
        return parse_fields(self._data, matches.value, matches.end)[0], matches.message.astype(np.int64)

    def nested_messages(self, parent: Fields, number: int) -> tuple[Fields, Ints]:
        """Return the fields of messages nested in `parent`, and the index of the parent message of each."""
        matches = parent.with_number(number, texts=True)
        return parse_fields(self._data, matches.value, matches.end)[0], matches.message.astype(np.int64)

    def default(self, values: Ints, packet: Ints, missing: int) -> Ints:
        """Return (n,) the default values in effect, which some packets set for the rest of their generation."""
        by_generation = np.full(len(self) + 1, missing, np.int64)
        by_generation[self.generation[packet]] = values
        return by_generation[self.generation]

    def _times(self) -> Ints:
        """Return (n,) ns since the machine started if the file relates its clocks, else the raw times."""
        explicit = self.fields.last_values(CLOCK, len(self))
        defaults, packet = self.submessages(DEFAULTS)
        default = self.default(defaults.last_values(CLOCK, len(packet)), packet, 0)
        clock = np.where(explicit > 0, explicit, np.where(default > 0, default, BOOTTIME))
        ts = self.fields.last_values(TIMESTAMP, len(self))
        offsets = self._offsets
        ts_ns = np.full(len(self), -1, np.int64)
        for number in np.unique(clock[clock < _FIRST_SEQUENCE_CLOCK]).tolist():
            ts_ns[clock == number] = ts[clock == number] + offsets.get(number, 0)
        sequence_rows = np.flatnonzero(clock >= _FIRST_SEQUENCE_CLOCK)
        keys, group = np.unique(np.stack([self.sequence, clock], axis=1)[sequence_rows], axis=0, return_inverse=True)
        order, bounds = np.argsort(group.ravel(), kind="stable"), np.cumsum(np.bincount(group.ravel()))
        for (sequence, number), rows in zip(keys.tolist(), np.split(sequence_rows[order], bounds[:-1]), strict=False):
            ts_ns[rows] = self._sequence_times(
                ts[rows], rows, [s for s in self._snapshots if s[1] == sequence and s[2] == number]
            )
        return ts_ns

    def _sequence_times(self, ts: Ints, rows: Ints, snapshots: list[tuple[int, ...]]) -> Ints:
        """Return times of a sequence-local clock, relative to its most recent snapshot."""
        if not snapshots:
            return np.full(len(rows), -1, np.int64)
        columns: Ints = np.array(snapshots, np.int64)
        packet, value, unit, at_ns = (columns[:, i] for i in (0, 3, 4, 6))
        snapshot = np.searchsorted(packet, rows, side="right") - 1
        nearest = np.maximum(snapshot, 0)
        if snapshots[0][5]:  # each packet has the time since the previous one
            added = np.cumsum(ts)
            begin = np.searchsorted(rows, packet[nearest])
            since = added - np.append(0, added)[begin]
        else:
            since = ts - value[nearest]
        return np.where(snapshot >= 0, at_ns[nearest] + since * unit[nearest], -1)

    @cached_property
    def _clocks(self) -> list[tuple[int, dict[int, tuple[int, int, int]]]]:
        """Clock snapshots: packet, and by clock id the time, unit and kind."""
        snapshots, packet = self.submessages(SNAPSHOT)
        clocks, snapshot = self.nested_messages(snapshots, 1)
        columns = [
            clocks.last_values(number, len(snapshot), missing) for number, missing in ((1, 0), (2, -1), (4, 1), (3, 0))
        ]
        clocks_of_packet: dict[int, dict[int, tuple[int, int, int]]] = {}
        for packet_number, number, value, unit, kind in zip(
            packet[snapshot].tolist(), *(c.tolist() for c in columns), strict=True
        ):
            if 0 <= value < _MAX_TIME:
                clocks_of_packet.setdefault(packet_number, {})[number] = value, min(max(unit, 1), 10**9), kind
        return sorted(clocks_of_packet.items())

    @cached_property
    def _offsets(self) -> dict[int, int]:
        """Offsets in ns that convert the times of each machine clock to the boot clock."""
        offsets: dict[int, int] = {}
        for _, clocks in self._clocks:
            if BOOTTIME in clocks:
                main = clocks[BOOTTIME][0]
                for number, (value, _, _) in clocks.items():
                    offsets.setdefault(number, main - value)
        if _REALTIME in offsets:
            self.origin_ns = -offsets[_REALTIME]
        return offsets

    @cached_property
    def _snapshots(self) -> list[tuple[int, ...]]:
        """Snapshots of sequence-local clocks: packet, sequence, clock, value, unit, kind, and ns on the boot clock."""
        rows: list[tuple[int, ...]] = []
        for packet, clocks in self._clocks:
            main_clock = next(((n, value) for n, (value, _, _) in clocks.items() if n < _FIRST_SEQUENCE_CLOCK), None)
            if main_clock:
                at_ns = main_clock[1] + self._offsets.get(main_clock[0], 0)
                sequence_clocks = (
                    (number, *clock) for number, clock in clocks.items() if number >= _FIRST_SEQUENCE_CLOCK
                )
                rows += [(packet, int(self.sequence[packet]), *clock, at_ns) for clock in sequence_clocks]
        return rows


class Interned:
    """Interned values by their number (iid) within a generation; `generation`, `iid` and `value` are (k,)."""

    def __init__(self, generation: Ints, iid: Ints, value: Ints) -> None:
        self._iids = np.unique(iid)
        key = generation * (len(self._iids) + 1) + np.searchsorted(self._iids, iid)
        order = np.argsort(key, kind="stable")
        self._keys, self._values = key[order], value[order]

    def lookup(self, generation: Ints, iid: Ints) -> Ints:
        """Return (m,) the values of numbers in generations, 0 if missing."""
        if not len(self._keys):
            return np.zeros(len(iid), np.int64)
        iid_index = np.minimum(np.searchsorted(self._iids, iid), len(self._iids) - 1)
        key = generation * (len(self._iids) + 1) + iid_index
        index = np.maximum(np.searchsorted(self._keys, key, side="right") - 1, 0)
        return np.where((self._iids[iid_index] == iid) & (self._keys[index] == key), self._values[index], 0)
