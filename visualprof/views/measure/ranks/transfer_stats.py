"""Sums over all calls of a run by rank, step and name, so that the calls need not be kept in memory."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Ids, Ints, Mask
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.ranks.call_matching import CallTransfers


class CollectiveTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the calls of each rank by name: k rows, sorted by name id, then by rank.

    Attributes:
        rank: (k,) index of the rank.
        name: (k,) index of the name.
        calls: (k,) number of calls.
        bytes: (k,) -1 unknown.
        latency_ns: (k,) each call over its own duration, even if other calls overlap it; -1 unknown.
        transfer_ns: (k,) -1 unknown.
        data_transfer_ns: (k,) see `CallTransfers`.
        group_size: (k,) size of the largest group, -1 unknown.
        event: (k,) row of the longest call.
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
    """Wait times of ranks, k rows.

    Attributes:
        rank: (k,) index of the rank.
        step: (k,) index of the step, -1 for none.
        name: (k,) index of the name.
        group: (k,) index of the group among those of the run, -1 unknown.
        is_message: (k,) whether the calls are messages.
        ns: (k,) wait time.
    """

    rank: Ids
    step: Ints
    name: Ids
    group: Ints
    is_message: Mask
    ns: Ints


def collective_totals(matched: CallTransfers) -> CollectiveTotals:
    """Return the sums over the calls of each rank by name."""
    calls = matched.calls
    by_name = group(calls.name, calls.rank)
    first_rows = by_name.first
    nbytes, latency, transfer, data_transfer = (
        np.where(by_name.min(values) >= 0, by_name.sum(values), -1)
        for values in (matched.bytes, matched.latency_ns, matched.transfer_ns, matched.data_transfer_ns)
    )
    return CollectiveTotals(
        rank=calls.rank[first_rows],
        name=calls.name[first_rows],
        calls=by_name.count,
        bytes=nbytes,
        latency_ns=latency,
        transfer_ns=transfer,
        data_transfer_ns=data_transfer,
        group_size=by_name.max(matched.group_size),
        event=matched.event[by_name.largest_rows(matched.latency_ns)],
    )


def wait_totals(matched: CallTransfers, step: Ints, run_groups: Ints) -> WaitTotals:
    """Return how long ranks wait, by rank, step, name, group and kind of call.

    Args:
        matched: All calls.
        step: (n,) index of the step of each call.
        run_groups: Index of each group of the calls among those of the run.
    """
    calls, is_message = matched.calls, matched.calls.source >= 0
    rows = np.flatnonzero(matched.wait_ns > 0)
    groups = group(calls.rank[rows], step[rows], calls.name[rows], calls.group[rows], is_message[rows])
    first_calls = rows[groups.first]
    return WaitTotals(
        calls.rank[first_calls],
        step[first_calls],
        calls.name[first_calls],
        run_groups[calls.group[first_calls]],
        is_message[first_calls],
        groups.sum(matched.wait_ns[rows]),
    )
