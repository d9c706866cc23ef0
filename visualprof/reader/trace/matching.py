"""Ids that are unique within a process only: which entry one of them means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visualprof.reader.trace import Track
from visualprof.reader.trace.types import Ids, Ints, Rows


def processes(pids: Sequence[str]) -> Ids:
    """A number for each pid, equal ones the same."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(pid, len(numbers)) for pid in pids], np.int32)


class Matching:
    """What an id means to the events on some tracks."""

    def __init__(self, tracks: Sequence[Track], track: Ids) -> None:
        """Args: tracks: of a trace. track: (n,) that of every event."""
        self._process = processes([t.pid for t in tracks])[track]
        self._device = np.array([t.pid == str(t.device) for t in tracks], bool)[track]

    def entries(self, ids: Ints, rows: Rows, wanted: Ints, seekers: Rows) -> Rows:
        """The entry that each wanted id means, -1 for none: the first one of that id in the same process.

        Kernels that stand under their device's number find what only one process has.

        Args:
            ids, rows: (n,) the ids that events have, and the events; those to prefer first.
            wanted, seekers: (m,) the ids looked for, and the events that look for them.
        """
        if not len(ids):
            return np.full(len(wanted), -1)
        process, seeker = self._process[rows], self._process[seekers]
        order = np.lexsort((process, ids))
        ids, own = ids[order], process[order]
        first = np.searchsorted(ids, wanted)
        last = np.searchsorted(ids, wanted, side="right") - 1
        found = last >= first
        first = np.where(found, first, 0)
        if own.min() < own.max():
            place = np.concatenate(([0], np.cumsum(ids[1:] != ids[:-1]))) * (int(own.max()) + 1) + own
            exact = np.minimum(np.searchsorted(place, place[first] - own[first] + seeker), len(ids) - 1)
            same = (ids[exact] == wanted) & (own[exact] == seeker)
            found &= same | ((own[first] == own[last]) & (self._device[seekers] | ~np.isin(seeker, own)))
            first = np.where(same, exact, first)
        return np.where(found, order[first], -1)
