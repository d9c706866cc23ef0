"""Pair begin marks with end marks by time, whatever their order in the file."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace.types import Ints, Mask, Rows


def pair_marks(rows: Rows, ts: Ints, sign: Rows, group: Rows) -> tuple[Ints, Ints]:
    """Return the rows of matching begin and end marks. In each group, an end closes the latest open begin.

    Marks are processed in order of time. The order of marks with equal times depends on the group:

    - If the file has the group's marks in order of time, the order in the file is used.
    - Otherwise, as in files with all begins before all ends, a slice ends before the next slice begins. Slices without
      length are an exception.

    If every end of a group directly follows its begin in the file, the two belong together, and slices may overlap.

    Args:
        rows: (n,) rows of the marks in the file.
        ts: (n,) their times in ns.
        sign: (n,) 1 for a begin, -1 for an end.
        group: (n,) stack of each mark, such as a thread.

    Returns:
        begin: (m,) rows of the begins.
        end: (m,) rows of their ends.
    """
    order = np.lexsort((rows, group))
    rows, ts, sign, group = rows[order].astype(np.int64), ts[order], sign[order], group[order]
    is_whole = _has_whole_slices(rows, ts, sign, group)
    whole, rest = rows[is_whole], ~is_whole
    rows, ts, sign, group = rows[rest], ts[rest], sign[rest], group[rest]
    order = np.lexsort((np.arange(len(rows)), _tie_ranks(ts, sign, group), ts, group))
    rows, sign, group = rows[order], sign[order], group[order]
    level = np.cumsum(sign)
    first = np.flatnonzero(_starts_group(group))
    level -= np.repeat(
        np.append(0, level)[first], np.diff(np.append(first, len(rows)))
    )  # counted from the group's start
    level -= sign > 0  # a begin is on the level below it, to which its end returns
    order = np.lexsort((np.arange(len(rows)), level, group))
    rows, group, level, sign = rows[order], group[order], level[order], sign[order]
    is_pair = (group[1:] == group[:-1]) & (level[1:] == level[:-1]) & (sign[:-1] > 0) & (sign[1:] < 0)
    matched = np.flatnonzero(is_pair)
    return np.concatenate((whole[::2], rows[matched])), np.concatenate((whole[1::2], rows[matched + 1]))


def _has_whole_slices(rows: Ints, ts: Ints, sign: Rows, group: Rows) -> Mask:
    """Return (n,) whether the marks of a group are pairs: each end directly follows its begin and is not earlier."""
    n = len(ts)
    starts_group = _starts_group(group)
    group_index = np.cumsum(starts_group) - 1
    is_end = (np.arange(n) - np.flatnonzero(starts_group)[group_index]) % 2 == 1
    rank = np.empty(n, np.int64)
    rank[np.argsort(rows, kind="stable")] = np.arange(n)
    is_valid = sign == np.where(is_end, -1, 1)
    is_valid[1:] &= ~is_end[1:] | ((ts[1:] >= ts[:-1]) & (rank[1:] == rank[:-1] + 1))
    size = np.bincount(group_index)
    is_whole = (np.bincount(group_index, is_valid) == size) & (size % 2 == 0)
    return is_whole[group_index]


def _starts_group(group: Rows) -> Mask:
    return np.append(True, group[1:] != group[:-1])[: len(group)]


def _tie_ranks(ts: Ints, sign: Rows, group: Rows) -> Ints:
    """Return (n,) ranks of marks at equal times, 0 for all marks of groups that are in order of time.

    In other groups, the order at equal times is: ends, then both marks of slices without length, then begins.

    Args:
        ts: (n,) times, by group and in the order of the file.
        sign: (n,) 1 for a begin, -1 for an end.
        group: (n,) stack of each mark.
    """
    n = len(ts)
    ranks = np.zeros(n, np.int64)
    starts_group = _starts_group(group)
    is_back = np.append(False, ts[1:] < ts[:-1])[:n] & ~starts_group
    if not is_back.any():
        return ranks
    group_index = np.cumsum(starts_group) - 1
    unordered = np.isin(group_index, group_index[is_back])
    partner = _likely_partners(ts, sign, group_index)
    has_no_length = (partner >= 0) & (ts[partner] == ts) & (partner[partner] == np.arange(n))
    # Pairs without length keep the order of their begins.
    pair_rank = 1 + 2 * np.minimum(partner, np.arange(n)) + (sign < 0)
    ranks[unordered] = np.where(has_no_length, pair_rank, np.where(sign < 0, 0, 2 * n + 1))[unordered]
    return ranks


def _likely_partners(ts: Ints, sign: Rows, group: Ints) -> Ints:
    """Return (n,) the mark that probably belongs to each mark according to the order of the file, -1 for none.

    The partner is the next mark of the group at the same time. Writers that put all begins before all ends use the same
    order for both. So the i-th end is the partner of the i-th begin, if then no end of the group is before its begin.
    """
    n = len(ts)
    groups = int(group[-1]) + 1
    begins, ends = np.flatnonzero(sign > 0), np.flatnonzero(sign < 0)
    begin_keys, end_keys = (_ordinals(group[marks], groups) * groups + group[marks] for marks in (begins, ends))
    _, begin_index, end_index = np.intersect1d(begin_keys, end_keys, assume_unique=True, return_indices=True)
    begins, ends = begins[begin_index], ends[end_index]
    is_possible = np.bincount(group, sign, groups) == 0
    is_possible[group[begins[ts[ends] < ts[begins]]]] = False
    begins, ends = (marks[is_possible[group[begins]]] for marks in (begins, ends))
    partner = np.full(n, -1)
    partner[begins], partner[ends] = ends, begins
    is_next = (sign[:-1] > 0) & (sign[1:] < 0) & (ts[1:] == ts[:-1]) & (group[1:] == group[:-1])
    adjacent = np.flatnonzero(is_next)
    partner[adjacent], partner[adjacent + 1] = adjacent + 1, adjacent
    return partner


def _ordinals(group: Ints, groups: int) -> Ints:
    """Return the ordinal of each row within its group; `group` is ascending."""
    first = np.searchsorted(group, np.arange(groups))
    return np.arange(len(group)) - first[group]
