"""Collectives of each rank by name, and the links that carried them."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Ints, Mask
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns, from_rows
from visualprof.views.measure.ranks.communication_events import bus_bytes
from visualprof.views.measure.ranks.run_analysis import RunAnalysis


class CollectiveColumns(Columns):
    """Collectives of each rank by name. Times are sums over the calls.

    Attributes:
        event: Row of the longest call.
    """

    rank: kinds.IdentifierColumn
    name: kinds.NameColumn
    calls: kinds.CountColumn
    bytes: kinds.SizeColumn
    mean_bytes: kinds.SizeColumn
    total_ns: kinds.DurationColumn
    mean_ns: kinds.DurationColumn
    transfer_ns: kinds.DurationColumn
    wait_ns: kinds.DurationColumn
    bus_bandwidth_bytes_per_s: kinds.BandwidthColumn
    event: kinds.IdentifierColumn


class RankLinkColumns(Columns):
    """Collectives of each rank by operation and type of link, if the recording reports links. Times are sums.

    Attributes:
        link: Type of the link: HCCS, RDMA, PCIE, SIO.
        bytes: Bytes that the link carried.
        link_ns: Time of all transfers over the link; parallel transfers add up.
        bandwidth_bytes_per_s: Bytes per second of transfer.
        elapsed_ns: Duration of the collectives.
        transit_ns: The part of the duration in which the main plane transferred data; None if unknown.
        wait_ns: The part in which the main plane waited for other ranks; None if unknown.
        idle_ns: The rest of the duration; None if unknown.
    """

    rank: kinds.IdentifierColumn
    name: kinds.NameColumn
    link: kinds.WordColumn
    calls: kinds.CountColumn
    bytes: kinds.SizeColumn
    link_ns: kinds.DurationColumn
    bandwidth_bytes_per_s: kinds.BandwidthColumn
    elapsed_ns: kinds.DurationColumn
    transit_ns: kinds.DurationColumn
    wait_ns: kinds.DurationColumn
    idle_ns: kinds.DurationColumn


def rank_collectives(run: RunAnalysis) -> CollectiveColumns:
    """Return the collectives of each rank by name."""
    sums, numbers = run.collective_totals, np.array(run.process_groups.ranks, np.int64)
    order = np.lexsort((numbers[sums.rank], np.argsort(np.argsort(run.collective_names))[sums.name]))
    sizes = np.array([rank.location.world_size for rank in run.ranks], np.int64)[sums.rank]
    members = np.where(sums.group_size > 0, sums.group_size, sizes)
    sized, is_known = sums.bytes >= 0, sums.transfer_ns >= 0
    bandwidth = np.full(len(sums.name), np.nan)
    for i, name in enumerate(run.collective_names):
        rows = np.flatnonzero((sums.name == i) & (sums.data_transfer_ns > 0))
        moved = bus_bytes(name, sums.bytes[rows].astype(np.float64), members[rows])
        bandwidth[rows] = moved / sums.data_transfer_ns[rows] * 1e9
    return CollectiveColumns(
        rank=numbers[sums.rank][order],
        name=[run.collective_names[int(i)] for i in sums.name[order]],
        calls=sums.calls[order],
        bytes=_optional_ints(sized, sums.bytes, order),
        mean_bytes=np.where(sized, sums.bytes / sums.calls, np.nan)[order],
        total_ns=_optional_ints(sums.latency_ns >= 0, sums.latency_ns, order),
        mean_ns=np.where(sums.latency_ns >= 0, sums.latency_ns / sums.calls, np.nan)[order],
        transfer_ns=_optional_ints(is_known, sums.transfer_ns, order),
        wait_ns=_optional_ints(is_known, sums.latency_ns - sums.transfer_ns, order),
        bus_bandwidth_bytes_per_s=bandwidth[order],
        event=sums.event[order],
    )


def rank_links(run: RunAnalysis) -> RankLinkColumns:
    """Return the links that carried the collectives of each rank."""
    rows: list[tuple[int | float | str | None, ...]] = []
    for number, rank in zip(run.process_groups.ranks, run.ranks, strict=True):
        for use in rank.links:
            transit, wait = (ns if ns >= 0 else None for ns in (use.transit_ns, use.wait_ns))
            idle = None if transit is None or wait is None else use.elapsed_ns - transit - wait
            rate = use.bytes / use.link_ns * 1e9 if use.link_ns > 0 else None
            phases = (use.elapsed_ns, transit, wait, idle)
            rows.append((number, use.operation, use.link, use.calls, use.bytes, use.link_ns, rate, *phases))
    return from_rows(RankLinkColumns, rows)


def _optional_ints(is_known: Mask, values: Ints, order: Ints) -> Ints | list[int | None]:
    """Return integers in the given order, None if unknown."""
    if is_known.all():
        return values[order]
    return [
        value if is_value else None
        for value, is_value in zip(values[order].tolist(), is_known[order].tolist(), strict=True)
    ]
