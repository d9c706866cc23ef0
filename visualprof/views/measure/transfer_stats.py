"""What all calls of a run add up to, by rank, step and name: so that the calls themselves need not be kept."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Ids, Ints, Mask
from visualprof.views.measure.call_matching import CallTransfers
from visualprof.views.measure.groups import group


class CollectiveTotals(msgspec.Struct, frozen=True):
    """The calls of each rank by name, k rows in order of the names' places and the ranks; sums over the calls.

    rank: (k,) places of ranks. name: (k,) ids of names. calls: (k,). bytes: (k,) and transfer: (k,) ns, -1 unknown.
    latency: (k,) ns, each call over its own span, whatever runs beside it. exchange: (k,) ns. members: (k,) of the
    largest group, -1. event: (k,) row of the longest call.
    """

    rank: Ids
    name: Ids
    calls: Ints
    bytes: Ints
    latency_ns: Ints
    transfer_ns: Ints
    data_transfer_ns: Ints
    group_size: Ints
    event: Ints


class WaitTotals(msgspec.Struct, frozen=True):
    """How long ranks wait for others, k rows.

    rank, step, name: (k,) places of ranks and of steps, -1 for none, ids of names. group: (k,) place among the groups
    of the run, -1 unknown. message: (k,) in messages? ns: (k,).
    """

    rank: Ids
    step: Ints
    name: Ids
    group: Ints
    is_message: Mask
    ns: Ints


def collective_totals(matched: CallTransfers) -> CollectiveTotals:
    """Sums of the calls of each rank by name."""
    calls = matched.calls
    same = group(calls.name, calls.rank)
    first = same.first
    nbytes, transfer = (
        np.where(same.min(values) >= 0, same.sum(values), -1) for values in (matched.bytes, matched.transfer_ns)
    )
    return CollectiveTotals(
        calls.rank[first],
        calls.name[first],
        same.count,
        nbytes,
        same.sum(matched.latency_ns),
        transfer,
        same.sum(matched.data_transfer_ns),
        same.max(matched.group_size),
        matched.event[same.largest_rows(matched.latency_ns)],
    )


def wait_totals(matched: CallTransfers, step: Ints, run_groups: Ints) -> WaitTotals:
    """What ranks wait in. step: (n,) of each call. of: places of the groups of the calls among those of the run."""
    calls, message = matched.calls, matched.calls.source >= 0
    rows = np.flatnonzero(matched.wait_ns > 0)
    same = group(calls.rank[rows], step[rows], calls.name[rows], calls.group[rows], message[rows])
    one = rows[same.first]
    return WaitTotals(
        calls.rank[one],
        step[one],
        calls.name[one],
        run_groups[calls.group[one]],
        message[one],
        same.sum(matched.wait_ns[rows]),
    )
