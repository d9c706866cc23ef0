"""Links between ranks as a matrix of senders and receivers; of many ranks, of their hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from visualprof.views.measure.bins import bin_edges

AxisKind = Literal["rank", "host", "ranks"]
MAX_RANK_ROWS = 64  # that have a row each
MAX_HOST_ROWS = 128  # of 4 px each on a map of 512


class RankLink(NamedTuple):
    """What two ranks exchange by one kind of message, or of collective of two, as a row of the table of pairs.

    both: has it no direction?
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

    bandwidth: bytes per second of all of them together. slowest: place of the one that is slowest against others alike.
    """

    row: int
    column: int
    links: int
    calls: int
    bandwidth: float
    slowest: int


def link_matrix(
    links: Sequence[RankLink], ranks: Sequence[int], hosts: Sequence[str]
) -> tuple[AxisKind, list[str], list[LinkCell]]:
    """What the ends are, their names in order, and the cells in which anything is exchanged, row by row.

    Args: ranks, hosts: all of the run; "" is an unknown host.
    Source: rows that are slow are senders, columns receivers (C4D, HPCA 2025); docs/views.md#collectives.
    """
    ends, names, place = _ends(ranks, hosts)
    cells: dict[tuple[int, int], list[int]] = {}
    for i, link in enumerate(links):
        a, b = place.get(link.source), place.get(link.destination)
        if a is not None and b is not None:
            for way in {(a, b), (b, a)} if link.bidirectional else ((a, b),):
                cells.setdefault(way, []).append(i)
    return ends, names, [_cell(*way, links, of) for way, of in sorted(cells.items())]


def _cell(row: int, column: int, links: Sequence[RankLink], of: Sequence[int]) -> LinkCell:
    calls = sum(links[i].calls for i in of)
    took = sum(links[i].calls * links[i].latency_ns for i in of)
    size = sum(links[i].calls * links[i].bytes for i in of)
    slowest = max(of, key=lambda i: (links[i].slow, links[i].slower or 0.0, -i))
    return LinkCell(row, column, len(of), calls, size / took * 1e9, slowest)


def _ends(ranks: Sequence[int], hosts: Sequence[str]) -> tuple[AxisKind, list[str], dict[int, int]]:
    """What a row is, the names of all, and the row of each rank."""
    if len(ranks) <= MAX_RANK_ROWS:
        order = sorted(ranks)
        return "rank", [str(rank) for rank in order], {rank: i for i, rank in enumerate(order)}
    if "" in hosts:
        return _merged(ranks)
    names = list(dict.fromkeys(host for _, host in sorted(zip(ranks, hosts, strict=True))))
    if len(names) > MAX_HOST_ROWS:
        return _merged(ranks)
    row = {name: i for i, name in enumerate(names)}
    return "host", names, {rank: row[host] for rank, host in zip(ranks, hosts, strict=True)}


def _merged(ranks: Sequence[int]) -> tuple[AxisKind, list[str], dict[int, int]]:
    """Neighbours by number, where hosts are unknown or too many."""
    order = sorted(ranks)
    borders = bin_edges(len(order), MAX_RANK_ROWS)
    rows = np.repeat(np.arange(len(borders) - 1), np.diff(borders)).tolist()
    return "ranks", list(_named(order, borders.tolist())), dict(zip(order, rows, strict=True))


def _named(order: Sequence[int], borders: Sequence[int]) -> Iterator[str]:
    for first, until in pairwise(borders):
        yield f"{order[first]}-{order[until - 1]}" if until - first > 1 else str(order[first])
