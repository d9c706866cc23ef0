"""Links that carried collectives, and the phases of collectives: transfer, waiting for other ranks, and idle."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Category, Ints, Rows, Trace
from visualprof.views.measure.columns.groups import Groups, group

_UNKNOWN = -1


class LinkUse(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one operation over one type of link. Times are sums in ns, -1 unknown.

    Attributes:
        operation: Operation of the collectives, such as `allReduce`.
        link: Type of the link, such as `HCCS`.
        calls: Number of collectives.
        bytes: Bytes that the link carried.
        link_ns: Time of all transfers over the link; parallel transfers add up.
        elapsed_ns: Duration of the collectives.
        transit_ns: Time in which the main plane transferred data.
        wait_ns: Time in which the main plane waited for other ranks.
    """

    operation: str
    link: str
    calls: int
    bytes: int
    link_ns: int
    elapsed_ns: int
    transit_ns: int
    wait_ns: int


def link_uses(trace: Trace) -> list[LinkUse]:
    """Return the use of each type of link by each operation; empty if the recording reports no links."""
    if "link_type" not in trace.args:
        return []
    rows = trace.args["link_type"].events
    rows = rows[trace.events.category[rows] == Category.COMM]
    operation, link = (trace.arg(name, rows, 0) for name in ("collective", "link_type"))
    operation = np.where(operation > 0, operation, trace.events.name[rows])
    groups = group(operation, link)
    sums = {
        name: _sums(trace, rows, groups, name) for name in ("link_bytes", "link_ns", "transit_ns", "notify_wait_ns")
    }
    elapsed = groups.sum(np.maximum(trace.events.dur[rows], 0))
    return [
        LinkUse(
            operation=trace.strings[int(operation[first])],
            link=trace.strings[int(link[first])],
            calls=int(groups.count[i]),
            bytes=int(sums["link_bytes"][i]),
            link_ns=int(sums["link_ns"][i]),
            elapsed_ns=int(elapsed[i]),
            transit_ns=int(sums["transit_ns"][i]),
            wait_ns=int(sums["notify_wait_ns"][i]),
        )
        for i, first in enumerate(groups.first.tolist())
    ]


def _sums(trace: Trace, rows: Rows, groups: Groups, name: str) -> Ints:
    """Return the sum of an argument per group, -1 if a collective lacks it."""
    values = trace.arg(name, rows, _UNKNOWN).astype(np.int64)
    return np.where(groups.min(values) < 0, _UNKNOWN, groups.sum(values))
