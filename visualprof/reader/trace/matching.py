"""Ids that are unique within a process only: which entry one of them means."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from visualprof.reader.trace.types import Ids, Ints, Rows


def number_processes(pids: Iterable[str]) -> Ids:
    """A number for each pid, equal ones the same."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(pid, len(numbers)) for pid in pids], np.int32)


def match_ids(ids: Ints, process: Ids, wanted: Ints, seeker: Ids) -> Rows:
    """The entry that each wanted id means, -1 for none: the first one of that id in the same process.

    Where nothing of a process is found in itself (kernels stand under their device's number), it finds what only one
    other process has.

    Args:
        ids, process: (n,) of the entries, those to prefer first.
        wanted, seeker: (m,) the id looked for and the process that looks for it.
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
