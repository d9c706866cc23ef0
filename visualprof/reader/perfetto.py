"""Packets of a Perfetto trace as columns: the sequences they belong to, their times on one clock, and what they intern.

Schema: protos/perfetto/trace/trace_packet.proto, whose field numbers stand here. What the events mean is in
visualprof/reader/formats/perfetto.py.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from visualprof.reader.fields import Fields, fields, leading
from visualprof.reader.trace.types import Ints

SNAPSHOT, TIMESTAMP, SEQUENCE, EVENT, INTERNED, FLAGS, CLOCK, DEFAULTS, DESCRIPTOR = 6, 8, 10, 11, 12, 13, 58, 59, 60
COMPRESSED = 50
_CLEARED, _WAS_CLEARED = 1, 41  # a flag, and the field that older files have for it
_REALTIME, BOOTTIME, _OWN_CLOCKS = 1, 6, 64  # from 64 on a sequence counts for itself
_LARGEST = 2**62


class Packets:
    """The packets of a file, in its order. sequence, generation, ts: (n,) each.

    generation: a number for what is interned and set in a sequence up to where it is cleared. ts: ns, -1 where the
    clock is unknown. origin_ns: what makes Unix times of them, -1 where that is unknown.
    """

    def __init__(self, data: bytes) -> None:
        top, damaged = fields(data, np.zeros(1, np.int64), np.array([len(data)]))
        self.whole = not damaged
        if damaged:
            top, _ = leading(data)
        self._data = data
        self._packets = top.of(1, texts=True)
        self.known, self.damaged = fields(data, self._packets.value, self._packets.end)
        self.origin_ns = -1
        self.sequence = self.known.last(SEQUENCE, len(self))
        cleared = (self.known.last(FLAGS, len(self)) & _CLEARED > 0) | (self.known.last(_WAS_CLEARED, len(self)) > 0)
        order = np.argsort(self.sequence, kind="stable")
        begins = cleared[order] | np.append(True, np.diff(self.sequence[order]) != 0)[: len(self)]
        self.generation = np.zeros(len(self), np.int64)
        self.generation[order] = np.cumsum(begins)
        self.ts = self._times()

    def __len__(self) -> int:
        return len(self._packets.value)

    def parts(self, number: int) -> tuple[Fields, Ints]:
        """The messages of that field: their own fields, and the packet that each stands in."""
        at = self.known.of(number, texts=True)
        return fields(self._data, at.value, at.end)[0], at.message.astype(np.int64)

    def inner(self, of: Fields, number: int) -> tuple[Fields, Ints]:
        """The same of messages inside: their fields, and the place of the message that each stands in."""
        at = of.of(number, texts=True)
        return fields(self._data, at.value, at.end)[0], at.message.astype(np.int64)

    def default(self, values: Ints, packet: Ints, missing: int) -> Ints:
        """(n,) a value that some packets set for what follows in their generation."""
        by_generation = np.full(len(self) + 1, missing, np.int64)
        by_generation[self.generation[packet]] = values
        return by_generation[self.generation]

    def _times(self) -> Ints:
        """(n,) ns of the machine's own clock since it started, where the file relates the clocks; else as they are."""
        own = self.known.last(CLOCK, len(self))
        set_there, packet = self.parts(DEFAULTS)
        usual = self.default(set_there.last(CLOCK, len(packet)), packet, 0)
        clock = np.where(own > 0, own, np.where(usual > 0, usual, BOOTTIME))
        ts = self.known.last(TIMESTAMP, len(self))
        offsets = self._offsets
        out = np.full(len(self), -1, np.int64)
        for number in np.unique(clock[clock < _OWN_CLOCKS]).tolist():
            out[clock == number] = ts[clock == number] + offsets.get(number, 0)
        counting = np.flatnonzero(clock >= _OWN_CLOCKS)
        keys, which = np.unique(np.stack([self.sequence, clock], axis=1)[counting], axis=0, return_inverse=True)
        order, first = np.argsort(which.ravel(), kind="stable"), np.cumsum(np.bincount(which.ravel()))
        for (sequence, number), rows in zip(keys.tolist(), np.split(counting[order], first[:-1]), strict=False):
            out[rows] = self._counted(
                ts[rows], rows, [s for s in self._snapshots if s[1] == sequence and s[2] == number]
            )
        return out

    def _counted(self, ts: Ints, rows: Ints, snapshots: list[tuple[int, ...]]) -> Ints:
        """Times of a clock that a sequence keeps for itself, from what it said of it last."""
        if not snapshots:
            return np.full(len(rows), -1, np.int64)
        columns: Ints = np.array(snapshots, np.int64)
        packet, value, unit, at_ns = (columns[:, i] for i in (0, 3, 4, 6))
        which = np.searchsorted(packet, rows, side="right") - 1
        inside = np.maximum(which, 0)
        if snapshots[0][5]:  # each packet has the time since the one before
            added = np.cumsum(ts)
            begin = np.searchsorted(rows, packet[inside])
            since = added - np.append(0, added)[begin]
        else:
            since = ts - value[inside]
        return np.where(which >= 0, at_ns[inside] + since * unit[inside], -1)

    @cached_property
    def _clocks(self) -> list[tuple[int, dict[int, tuple[int, int, int]]]]:
        """Of each snapshot: its packet, and the time, unit and kind of each clock in it."""
        snapshots, packet = self.parts(SNAPSHOT)
        clocks, snapshot = self.inner(snapshots, 1)
        columns = [clocks.last(number, len(snapshot), missing) for number, missing in ((1, 0), (2, -1), (4, 1), (3, 0))]
        out: dict[int, dict[int, tuple[int, int, int]]] = {}
        for at, number, value, unit, kind in zip(
            packet[snapshot].tolist(), *(c.tolist() for c in columns), strict=True
        ):
            if 0 <= value < _LARGEST:
                out.setdefault(at, {})[number] = value, min(max(unit, 1), 10**9), kind
        return sorted(out.items())

    @cached_property
    def _offsets(self) -> dict[int, int]:
        """What brings the times of each clock of the machine to those of its main one."""
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
        """Of clocks that sequences keep: packet, sequence, clock, its value, unit and kind, and the main clock's ns."""
        found: list[tuple[int, ...]] = []
        for packet, clocks in self._clocks:
            machine = next(((n, value) for n, (value, _, _) in clocks.items() if n < _OWN_CLOCKS), None)
            if machine:
                at_ns = machine[1] + self._offsets.get(machine[0], 0)
                own = ((number, *clock) for number, clock in clocks.items() if number >= _OWN_CLOCKS)
                found += [(packet, int(self.sequence[packet]), *clock, at_ns) for clock in own]
        return found


class Interned:
    """Values by the numbers that a sequence gave them. generation, iid, value: (k,) each."""

    def __init__(self, generation: Ints, iid: Ints, value: Ints) -> None:
        self._iids = np.unique(iid)
        key = generation * (len(self._iids) + 1) + np.searchsorted(self._iids, iid)
        order = np.argsort(key, kind="stable")
        self._keys, self._values = key[order], value[order]

    def of(self, generation: Ints, iid: Ints) -> Ints:
        """(m,) the values of numbers in generations, 0 where there is none."""
        if not len(self._keys):
            return np.zeros(len(iid), np.int64)
        place = np.minimum(np.searchsorted(self._iids, iid), len(self._iids) - 1)
        key = generation * (len(self._iids) + 1) + place
        at = np.maximum(np.searchsorted(self._keys, key, side="right") - 1, 0)
        return np.where((self._iids[place] == iid) & (self._keys[at] == key), self._values[at], 0)
