"""Links as a matrix of ranks; of hosts for many ranks; of rank ranges if hosts are unknown."""

from __future__ import annotations

from typing import Any

import pytest

from visualprof.views.measure.ranks.link_matrix import MAX_HOST_ROWS, MAX_RANK_ROWS, RankLink, link_matrix


def link(source: int, destination: int, **changes: Any) -> RankLink:
    fields: dict[str, Any] = {
        "source_host": None,
        "destination_host": None,
        "name": "send_recv",
        "calls": 1,
        "bytes": 1000,
        "latency_ns": 1000.0,
        "usual_ns": 1000.0,
        "slower": 1.0,
        "bandwidth_bytes_per_s": 1e9,
        "slow": False,
        "bidirectional": False,
    }
    return RankLink(source=source, destination=destination, **{**fields, **changes})


def test_a_message_has_one_direction_and_a_collective_both() -> None:
    axis, names, cells = link_matrix([link(7, 3), link(3, 9, bidirectional=True)], [9, 3, 7], ["", "", ""])
    assert (axis, names) == ("rank", ["3", "7", "9"])
    assert [(cell.row, cell.column, cell.slowest) for cell in cells] == [(0, 2, 1), (1, 0, 0), (2, 0, 1)]


def test_many_ranks_are_merged_into_hosts_with_their_slowest_link() -> None:
    ranks = list(range(MAX_RANK_ROWS + 8))
    hosts = [f"node{rank // 8}" for rank in ranks]
    links = [
        link(0, 8),
        link(1, 9, slower=3.0, latency_ns=3000.0, calls=3, slow=True),
        link(2, 10, slower=9.0),  # slower, but not significantly
        link(3, 4, bidirectional=True),
        link(5, 999),  # the other end is not in the run
    ]
    axis, names, cells = link_matrix(links, ranks, hosts)
    assert (axis, names) == ("host", [f"node{i}" for i in range(9)])
    within_host, across_hosts = cells
    assert (within_host.row, within_host.column, within_host.links) == (
        0,
        0,
        1,
    )  # counted once, although it has both directions
    assert (across_hosts.row, across_hosts.column, across_hosts.links, across_hosts.calls, across_hosts.slowest) == (
        0,
        1,
        3,
        5,
        1,
    )
    # Five calls of 1 kB in 1 + 3 x 3 + 1 us.
    assert across_hosts.bandwidth == pytest.approx(5000 / 11e-6)


def test_ranks_without_hosts_are_merged_into_ranges() -> None:
    count = 2 * MAX_RANK_ROWS
    for hosts in ([""] * count, [""] + ["node"] * (count - 1)):
        axis, names, cells = link_matrix([link(0, count - 1)], list(range(count)), hosts)
        assert (axis, names[0], names[-1], len(names)) == ("ranks", "0-1", f"{count - 2}-{count - 1}", MAX_RANK_ROWS)
        assert (cells[0].row, cells[0].column) == (0, MAX_RANK_ROWS - 1)


def test_the_number_of_rows_is_limited() -> None:
    ranks = list(range(MAX_HOST_ROWS + 1))
    assert len(link_matrix([], ranks, [f"node{rank}" for rank in ranks])[1]) <= MAX_HOST_ROWS
