"""Match ids that are unique within a process only."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from visualprof.reader.trace.types import Ids, Ints, Rows


def number_processes(pids: Iterable[str]) -> Ids:
    """Return a number per pid, the same for equal pids."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(pid, len(numbers)) for pid in pids], np.int32)


def match_ids(ids: Ints, process: Ids, wanted: Ints, seeker: Ids) -> Rows:
    """Return the entry of each wanted id, -1 for none: the first entry with the id in the same process.

    If none of a process's ids are found in its own process, an id that exists in exactly one other process matches.
    Kernels need this, as their process is the device's number.

    Args:
        ids: (n,) ids of the entries, preferred ones first.
        process: (n,) processes of the entries.
        wanted: (m,) the ids to look up.
        seeker: (m,) the processes that look them up.
    """
    if not len(ids):
        return np.full(len(wanted), -1)
    order = np.lexsort((process, ids))
    ids, entry_process = ids[order], process[order]
    first = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    is_match = ids[first] == wanted
    if entry_process.min() < entry_process.max():
        last = np.searchsorted(ids, wanted, side="right") - 1
        keys = np.concatenate(([0], np.cumsum(ids[1:] != ids[:-1]))) * (int(entry_process.max()) + 1) + entry_process
        exact = np.minimum(np.searchsorted(keys, keys[first] - entry_process[first] + seeker), len(ids) - 1)
        same = (ids[exact] == wanted) & (entry_process[exact] == seeker)
        is_match &= same | ((entry_process[first] == entry_process[last]) & ~np.isin(seeker, seeker[same]))
        first = np.where(same, exact, first)
    return np.where(is_match, order[first], -1)
