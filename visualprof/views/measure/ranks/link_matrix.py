"""Links between ranks as a matrix of senders and receivers; for many ranks, between hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from visualprof.views.answers.table import none_if_nan
from visualprof.views.measure.columns.bins import bin_edges
from visualprof.views.measure.ranks.communication_events import CommunicationEvents
from visualprof.views.measure.ranks.link_times import link_times
from visualprof.views.measure.ranks.process_groups import ProcessGroups
from visualprof.views.measure.ranks.rank_summary import RankSteps

AxisKind = Literal["rank", "host", "ranks"]
MAX_RANK_ROWS = 64  # more ranks are merged into hosts
MAX_HOST_ROWS = 128  # 4 px each on a map of 512 px


class RankLink(NamedTuple):
    """Data that two ranks transfer by one kind of message or collective: a row of the table of pairs.

    Attributes:
        bidirectional: Whether the link has no direction.
    """

    source: int
    destination: int
    source_host: str | None
    destination_host: str | None
    name: str
    calls: int
    bytes: int
    latency_ns: float
    usual_ns: float | None
    slower: float | None
    bandwidth_bytes_per_s: float
    slow: bool
    bidirectional: bool


class LinkCell(NamedTuple):
    """The links from one end (row) to another (column).

    Attributes:
        row: Index of the sender.
        column: Index of the receiver.
        links: Number of links.
        calls: Number of calls.
        bandwidth: Bytes per second of all links together.
        slowest: Index of the link that is slowest compared with similar links.
    """

    row: int
    column: int
    links: int
    calls: int
    bandwidth: float
    slowest: int


def rank_pairs(
    met: CommunicationEvents, ranks: Sequence[RankSteps], process_groups: ProcessGroups, step: str
) -> list[RankLink]:
    """Return pairs of ranks, pairs slower than similar ones first."""
    shared = [name for name in met.steps if step in ("", name)]
    length = float(np.median(np.concatenate([rank.end - rank.start for rank in ranks]))) if shared else 0.0
    pairs = link_times(met, shared, length)
    at = {number: i for i, number in enumerate(process_groups.ranks)}
    rows = list[RankLink]()
    for i, row in enumerate(pairs.event_row.tolist()):
        sent = bool(met.is_message[row])
        if sent:
            ends = [int(met.source[row]), int(met.destination[row])]
        elif met.group[row] >= 0 and len(process_groups.groups[int(met.group[row])].members) == 2:
            ends = list(process_groups.groups[int(met.group[row])].members)
        else:
            continue
        took, usual, size = float(pairs.median_ns[i]), float(pairs.baseline_ns[i]), int(met.bytes[row])
        hosts = [process_groups.hosts[at[rank]] or None if rank in at else None for rank in ends]
        rows.append(
            RankLink(
                source=ends[0],
                destination=ends[1],
                source_host=hosts[0],
                destination_host=hosts[1],
                name=met.names[int(met.name[row])],
                calls=int(pairs.calls[i]),
                bytes=size,
                latency_ns=took,
                usual_ns=none_if_nan(usual),
                slower=none_if_nan(took / usual) if usual > 0 else None,
                bandwidth_bytes_per_s=size / took * 1e9,
                slow=bool(pairs.is_slow[i]),
                bidirectional=not sent,
            )
        )
    return sorted(rows, key=lambda link: (not link.slow, -(link.slower or 0), link.source, link.destination))


def link_matrix(
    links: Sequence[RankLink], ranks: Sequence[int], hosts: Sequence[str]
) -> tuple[AxisKind, list[str], list[LinkCell]]:
    """Return what the ends are, their names in order, and the cells with links, row by row.

    Slow rows indicate slow senders, slow columns slow receivers (C4D, HPCA 2025);
    docs/views/collectives.md.

    Args:
        links: All links.
        ranks: All ranks of the run.
        hosts: Their hosts; "" is unknown.
    """
    axis, names, axis_index = _matrix_axis(ranks, hosts)
    cells: dict[tuple[int, int], list[int]] = {}
    for i, link in enumerate(links):
        row, column = axis_index.get(link.source), axis_index.get(link.destination)
        if row is not None and column is not None:
            for cell in {(row, column), (column, row)} if link.bidirectional else ((row, column),):
                cells.setdefault(cell, []).append(i)
    return axis, names, [_cell(*cell, links, members) for cell, members in sorted(cells.items())]


def _cell(row: int, column: int, links: Sequence[RankLink], members: Sequence[int]) -> LinkCell:
    """Return the cell of some links."""
    calls = sum(links[i].calls for i in members)
    total_ns = sum(links[i].calls * links[i].latency_ns for i in members)
    total_bytes = sum(links[i].calls * links[i].bytes for i in members)
    slowest = max(members, key=lambda i: (links[i].slow, links[i].slower or 0.0, -i))
    return LinkCell(row, column, len(members), calls, total_bytes / total_ns * 1e9, slowest)


def _matrix_axis(ranks: Sequence[int], hosts: Sequence[str]) -> tuple[AxisKind, list[str], dict[int, int]]:
    """Return what a row is, the names of all rows, and the row of each rank."""
    if len(ranks) <= MAX_RANK_ROWS:
        order = sorted(ranks)
        return "rank", [str(rank) for rank in order], {rank: i for i, rank in enumerate(order)}
    if "" in hosts:
        return _rank_ranges(ranks)
    names = list(dict.fromkeys(host for _, host in sorted(zip(ranks, hosts, strict=True))))
    if len(names) > MAX_HOST_ROWS:
        return _rank_ranges(ranks)
    row_of_host = {name: i for i, name in enumerate(names)}
    return "host", names, {rank: row_of_host[host] for rank, host in zip(ranks, hosts, strict=True)}


def _rank_ranges(ranks: Sequence[int]) -> tuple[AxisKind, list[str], dict[int, int]]:
    """Return rows of consecutive ranks, for runs whose hosts are unknown or too many."""
    order = sorted(ranks)
    edges = bin_edges(len(order), MAX_RANK_ROWS)
    rows = np.repeat(np.arange(len(edges) - 1), np.diff(edges)).tolist()
    return "ranks", list(_range_names(order, edges.tolist())), dict(zip(order, rows, strict=True))


def _range_names(order: Sequence[int], edges: Sequence[int]) -> Iterator[str]:
    """Yield the name of each range of ranks."""
    for start, stop in pairwise(edges):
        yield f"{order[start]}-{order[stop - 1]}" if stop - start > 1 else str(order[start])
