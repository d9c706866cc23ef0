"""Sort rows by group and time, by counting: files are nearly sorted and groups are few."""

from __future__ import annotations

from ctypes import c_int, c_int64

import numpy as np

from visualprof.reader.native import INT32, INT64, function
from visualprof.reader.trace.types import Ids, Ints, Mask


def group_rows(group: Ids, groups: int) -> tuple[Ints, Ints]:
    """Return rows by group, in stable order, (n,), and the slice of each group, (groups + 1,).

    Args:
        group: (n,) numbers from 0 to groups - 1.
        groups: The number of groups.
    """
    group = np.ascontiguousarray(group, np.int32)
    order, first = np.empty(len(group), np.int64), np.empty(groups + 1, np.int64)
    native = function("vp_group", c_int, INT32, c_int64, c_int64, INT64, INT64)
    if native and not native(group, len(group), groups, first, order):
        return order, first
    narrow = group.astype(np.uint16) if groups <= 65536 else group  # numpy sorts 16-bit integers by counting
    first[0], first[1:] = 0, np.cumsum(np.bincount(group, minlength=groups))
    return np.argsort(narrow, kind="stable"), first


def sort_events(ts: Ints, dur: Ints, track: Ids, tracks: int) -> tuple[Ints, Ints]:
    """Return rows by (track, ts, -dur), in stable order, (n,), and the slice of each track, (tracks + 1,).

    Args:
        ts: (n,) start in ns.
        dur: (n,) duration in ns.
        track: (n,) numbers from 0 to tracks - 1.
        tracks: The number of tracks.
    """
    native = function("vp_sort", None, INT64, INT64, INT64, c_int64, INT64, INT64)
    if native:
        ts, dur = np.ascontiguousarray(ts), np.ascontiguousarray(dur)
        order, first = group_rows(track, tracks)
        spare = np.empty(len(ts) // 2 + 1, np.int64)
        native(ts, dur, first, tracks, order, spare)
        return order, first
    order = np.argsort(ts, kind="stable")  # files are nearly sorted, from which a stable sort profits
    by_track, first = group_rows(track[order], tracks)
    order = order[by_track]
    sorted_ts, sorted_track = ts[order], track[order]
    same: Mask = (sorted_ts[1:] == sorted_ts[:-1]) & (sorted_track[1:] == sorted_track[:-1])
    if same.any():
        ties = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
        rows = order[ties]
        order[ties] = rows[np.lexsort((-dur[rows], ts[rows], track[rows]))]
    return order, first


def sort_unique(numbers: Ids, limit: int) -> tuple[Ids, Ints]:
    """Return the numbers without -1 in ascending order, and their positions; equal numbers keep their order.

    Args:
        numbers: (n,) numbers below `limit`, nearly always distinct.
        limit: One more than the largest possible number.
    """
    native = function("vp_sort_unique", c_int64, INT32, c_int64, c_int64, INT32, INT32, INT64)
    if native:
        position = np.empty(limit, np.int32)
        sorted_numbers, order = np.empty(len(numbers), np.int32), np.empty(len(numbers), np.int64)
        count = native(numbers, len(numbers), limit, position, sorted_numbers, order)
        if count >= 0:
            return sorted_numbers[:count], order[:count]
    position = np.full(limit + 1, -1, np.int32)
    position[numbers] = np.arange(len(numbers), dtype=np.int32)
    present = np.flatnonzero(position[:-1] >= 0)
    if len(present) == np.count_nonzero(numbers >= 0):
        return present.astype(np.int32), position[present].astype(np.int64)
    order = np.argsort(numbers, kind="stable")[np.count_nonzero(numbers < 0) :]
    return numbers[order], order
