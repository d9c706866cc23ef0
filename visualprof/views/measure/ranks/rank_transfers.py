"""Transfers between ranks as the recordings report them, by operation and type of link."""

from __future__ import annotations

from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns, from_rows
from visualprof.views.measure.ranks.run_analysis import RunAnalysis


class TransferColumns(Columns):
    """Transfers between two ranks by operation and type of link, if the recording reports a matrix of them.

    Attributes:
        rank: The rank with the recording that reports the transfers.
        link: Type of the link: HCCS, RDMA, PCIE, SIO; LOCAL for copies within a device.
        source: Global rank of the sender; None if the members of the group are unknown.
        destination: Global rank of the receiver; None if unknown.
        group_source: Rank of the sender in the group.
        group_destination: Rank of the receiver in the group.
        link_ns: Time of the transfers; parallel transfers add up.
        bandwidth_bytes_per_s: Bytes per second of transfer.
    """

    rank: kinds.IdentifierColumn
    name: kinds.NameColumn
    group: kinds.WordColumn
    link: kinds.WordColumn
    source: kinds.IdentifierColumn
    destination: kinds.IdentifierColumn
    group_source: kinds.IdentifierColumn
    group_destination: kinds.IdentifierColumn
    bytes: kinds.SizeColumn
    link_ns: kinds.DurationColumn
    bandwidth_bytes_per_s: kinds.BandwidthColumn


def rank_transfers(run: RunAnalysis) -> TransferColumns:
    """Return the transfers between ranks that the recordings report."""
    rows: list[tuple[int | float | str | None, ...]] = []
    for number, rank in zip(run.process_groups.ranks, run.ranks, strict=True):
        for use in rank.transfers:
            ends = tuple(end if end >= 0 else None for end in (use.source, use.destination))
            rate = use.bytes / use.link_ns * 1e9 if use.link_ns > 0 else None
            place = (use.group_source, use.group_destination)
            rows.append((number, use.operation, use.group, use.link, *ends, *place, use.bytes, use.link_ns, rate))
    return from_rows(TransferColumns, rows)
