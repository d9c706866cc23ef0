"""Stretches of a row of things that stand there several times, one after the other."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Ints

MIX, ODD = np.uint64(0x9E3779B97F4A7C15), 0xBF58476D1CE4E5B9
WIDTH_FACTOR, MAX_WIDTH = 2, 4096  # times as many neighbours are compared next; more tell no more
MAX_CANDIDATES = 500  # candidates among which those that are shown are chosen


def find_repeats(kinds: Ints, min_length: int) -> tuple[Ints, Ints]:
    """Where a stretch begins that follows itself at once, each time that it stands there, and its length, (r,) each.

    Where the same kinds stand again p places on, and again for p places, p of them repeat. Which is told by so many
    neighbours at a time: few are often found again inside a stretch, and more only in the next. Of stretches that
    overlap the one that covers most is taken, of several the shortest. They are disjoint and ascend.

    Args: kinds: (n,) what stands where. least: of a stretch.
    """
    found, width = list[Ints]([np.zeros((0, 3), np.int64)]), min_length
    while width < min(len(kinds), MAX_WIDTH):
        found.append(_periodic(kinds, width, min_length))
        width *= WIDTH_FACTOR
    every = np.concatenate(found)
    start, period, times = every[:, 0], every[:, 1], every[:, 2]
    order = np.lexsort((period, -period * times))[:MAX_CANDIDATES]
    taken = np.zeros(len(kinds), bool)
    chosen = list[int]()
    for place in order.tolist():
        low, next_one = int(start[place]), int(start[place] + period[place])
        high = low + int(period[place] * times[place])
        alike = (kinds[low : high - next_one + low] == kinds[next_one:high]).all()  # marks may be equal by chance
        if alike and not taken[low:high].any():
            taken[low:high] = True
            chosen.append(place)
    rows = np.array(chosen, np.int64)
    rows = rows[np.argsort(start[rows], kind="stable")]
    count = times[rows]
    of = np.repeat(rows, count)
    nth = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
    return start[of] + nth * period[of], period[of]


def _periodic(kinds: Ints, width: int, least: int) -> Ints:
    """Start, length and number of stretches that follow themselves, (m, 3), by so many neighbours."""
    marks = _marks(kinds, width)
    order = np.argsort(marks, kind="stable")
    same = marks[order[1:]] == marks[order[:-1]]
    again = np.zeros(len(marks), np.int64)  # how many places on the same neighbours stand, 0 for nowhere
    again[order[:-1][same]] = (order[1:] - order[:-1])[same]
    first = np.flatnonzero(np.diff(again, prepend=-1))
    length, period = np.diff(np.append(first, len(again))), again[first]
    times = np.where(period > 0, (length + width - 1 + period) // np.maximum(period, 1), 0)
    holds = (period >= least) & (times >= 2)
    return np.stack((first, period, times), axis=1)[holds]


def _marks(kinds: Ints, width: int) -> Ints:
    """A number for each so many neighbours, (n - width + 1,), one for equal ones: a polynomial modulo 2^64."""
    mixed = (kinds.astype(np.uint64) + np.uint64(1)) * MIX
    mixed = (mixed ^ (mixed >> np.uint64(29))) * MIX
    count = len(kinds)
    up, down = (
        np.cumprod(np.concatenate(([np.uint64(1)], np.full(count, factor, np.uint64))))
        for factor in (np.uint64(ODD), np.uint64(pow(ODD, -1, 1 << 64)))
    )
    sums = np.concatenate(([np.uint64(0)], np.cumsum(mixed * up[:-1])))
    return ((sums[width:] - sums[:-width]) * down[: count - width + 1]).view(np.int64)
