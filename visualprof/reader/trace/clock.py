"""Plausible times: their sums and differences fit 64 bits."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace.types import Ints

EARLIEST_NS, LATEST_NS = -(10**18), 4 * 10**18  # as Unix time the years 1938 and 2096
MAX_DURATION_NS = 10**16  # 115 days


def plausible_time_range(ts: Ints) -> tuple[int, int]:
    """Return the first and last plausible time.

    If a few events are months away from the others, their times are wrong.
    """
    if not len(ts) or (ts.min() >= EARLIEST_NS and ts.max() <= min(LATEST_NS, int(ts.min()) + MAX_DURATION_NS)):
        return EARLIEST_NS, LATEST_NS
    in_range = ts[(ts >= EARLIEST_NS) & (ts <= LATEST_NS)]
    if len(in_range) and int(in_range.max()) - int(in_range.min()) > MAX_DURATION_NS:
        middle = int(np.median(in_range))
        if np.count_nonzero(np.abs(in_range - middle) > MAX_DURATION_NS) * 20 <= len(in_range):
            return middle - MAX_DURATION_NS, middle + MAX_DURATION_NS
    return EARLIEST_NS, LATEST_NS
