"""Times that can be: sums and differences of them fit 64 bits."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace.types import Ints

EARLIEST_NS, LATEST_NS = -(10**18), 4 * 10**18  # as Unix time the years 1938 and 2096
LONGEST_NS = 10**16  # 115 days


def likely_times(ts: Ints) -> tuple[int, int]:
    """The first and last time that can be: of a few events that are months away from the others the time is wrong."""
    if not len(ts) or (ts.min() >= EARLIEST_NS and ts.max() <= min(LATEST_NS, int(ts.min()) + LONGEST_NS)):
        return EARLIEST_NS, LATEST_NS
    known = ts[(ts >= EARLIEST_NS) & (ts <= LATEST_NS)]
    if len(known) and int(known.max()) - int(known.min()) > LONGEST_NS:
        middle = int(np.median(known))
        if np.count_nonzero(np.abs(known - middle) > LONGEST_NS) * 20 <= len(known):
            return middle - LONGEST_NS, middle + LONGEST_NS
    return EARLIEST_NS, LATEST_NS
