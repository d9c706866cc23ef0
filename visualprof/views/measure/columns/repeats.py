"""Find ranges of a sequence that repeat immediately."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Ints

HASH_MIX, HASH_BASE = np.uint64(0x9E3779B97F4A7C15), 0xBF58476D1CE4E5B9
WIDTH_FACTOR, MAX_WIDTH = 2, 4096  # growth and limit of the compared window; wider ones find nothing new
MAX_CANDIDATES = 500  # ranges among which disjoint ones are chosen


def find_repeats(kinds: Ints, min_length: int) -> tuple[Ints, Ints]:
    """Return the start of each repeat of a range that immediately follows itself, and the range's length, (r,) each.

    A range of p items repeats if the same items occur p positions later, for at least p items. This
    is tested for windows of several widths: narrow windows often recur inside a range, wider ones
    only in its next repeat. Among overlapping ranges the widest coverage is chosen, among
    equals the shortest. Results are disjoint and ascending.

    Args:
        kinds: (n,) kind of each item.
        min_length: Length of the shortest range.
    """
    candidates, width = list[Ints]([np.zeros((0, 3), np.int64)]), min_length
    while width < min(len(kinds), MAX_WIDTH):
        candidates.append(_periodic(kinds, width, min_length))
        width *= WIDTH_FACTOR
    all_candidates = np.concatenate(candidates)
    start, period, times = all_candidates[:, 0], all_candidates[:, 1], all_candidates[:, 2]
    order = np.lexsort((period, -period * times))[:MAX_CANDIDATES]
    is_taken = np.zeros(len(kinds), bool)
    selected = list[int]()
    for candidate in order.tolist():
        begin, second = int(start[candidate]), int(start[candidate] + period[candidate])
        stop = begin + int(period[candidate] * times[candidate])
        is_repeated = (
            kinds[begin : stop - second + begin] == kinds[second:stop]
        ).all()  # hashes may be equal by chance
        if is_repeated and not is_taken[begin:stop].any():
            is_taken[begin:stop] = True
            selected.append(candidate)
    rows = np.array(selected, np.int64)
    rows = rows[np.argsort(start[rows], kind="stable")]
    count = times[rows]
    repeated = np.repeat(rows, count)
    repeat_index = np.arange(len(repeated)) - np.repeat(np.cumsum(count) - count, count)
    return start[repeated] + repeat_index * period[repeated], period[repeated]


def _periodic(kinds: Ints, width: int, min_length: int) -> Ints:
    """Return start, length and number of repeats of ranges that follow themselves, (m, 3).

    The ranges are found by windows of one width.
    """
    hashes = _window_hashes(kinds, width)
    order = np.argsort(hashes, kind="stable")
    is_equal = hashes[order[1:]] == hashes[order[:-1]]
    distance = np.zeros(len(hashes), np.int64)  # distance to the next equal window, 0 for none
    distance[order[:-1][is_equal]] = (order[1:] - order[:-1])[is_equal]
    first = np.flatnonzero(np.diff(distance, prepend=-1))
    length, period = np.diff(np.append(first, len(distance))), distance[first]
    times = np.where(period > 0, (length + width - 1 + period) // np.maximum(period, 1), 0)
    is_valid = (period >= min_length) & (times >= 2)
    return np.stack((first, period, times), axis=1)[is_valid]


def _window_hashes(kinds: Ints, width: int) -> Ints:
    """Return a hash of each window of neighbors, (n - width + 1,): a polynomial modulo 2^64."""
    mixed = (kinds.astype(np.uint64) + np.uint64(1)) * HASH_MIX
    mixed = (mixed ^ (mixed >> np.uint64(29))) * HASH_MIX
    count = len(kinds)
    powers, inverse_powers = (
        np.cumprod(np.concatenate(([np.uint64(1)], np.full(count, factor, np.uint64))))
        for factor in (np.uint64(HASH_BASE), np.uint64(pow(HASH_BASE, -1, 1 << 64)))
    )
    sums = np.concatenate(([np.uint64(0)], np.cumsum(mixed * powers[:-1])))
    return ((sums[width:] - sums[:-width]) * inverse_powers[: count - width + 1]).view(np.int64)
