"""Who of a run is where."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.conftest import Write, trace_of
from tests.views.ranks import met, told
from visualprof.reader.trace import Ints
from visualprof.views.measure.call_matching import CallTransfers, call_transfers, match_calls
from visualprof.views.measure.process_groups import ProcessGroups, find_process_groups
from visualprof.views.measure.processes import ordered_ranks
from visualprof.views.measure.rank_summary import RankSummary, rank_summary

# Ranks 0 to 7: pairs share tensors, pairs of pairs hold copies, halves are stages.
TENSOR = {f"t{i}": [2 * i, 2 * i + 1] for i in range(4)}
DATA = {"d0": [0, 2], "d1": [1, 3], "d2": [4, 6], "d3": [5, 7]}
PIPELINE = {f"p{i}": [i, i + 4] for i in range(4)}


def parts_of(
    write: Write, describe: dict[str, str], worker: str, events: Any = lambda rank, groups: []
) -> list[tuple[str, RankSummary]]:
    """The parts of eight ranks. describe: of each kind of group; worker: their names, by rank and host."""
    parts = list[tuple[str, RankSummary]]()
    for rank in range(8):
        kinds = {"tensor": TENSOR, "data": DATA, "pipeline": PIPELINE}
        groups = {
            name: (describe.get(kind, ""), ranks)
            for kind, own in kinds.items()
            for name, ranks in own.items()
            if rank in ranks
        }
        listed = {"0": ("default_pg", list(range(8))), **groups}
        path = write(
            [*met("allreduce", 10, 5, 1, "0"), *events(rank, groups)],
            name=f"{rank}.json",
            distributedInfo=told(rank, 8, listed),
        )
        parts.append((worker.format(rank=rank, host=rank // 4, pid=4000 + rank), rank_summary(trace_of(path))))
    return parts


def groups_of(parts: list[tuple[str, RankSummary]]) -> ProcessGroups:
    ranks, numbers = ordered_ranks(parts, lambda part: part.location)
    return find_process_groups(ranks, numbers, match_calls([part.collectives for _, part in ranks]))


@pytest.mark.parametrize(
    "describe",
    [
        {
            "tensor": "TENSOR_MODEL_PARALLEL_GROUP",
            "data": "DATA_PARALLEL_GROUP_WITH_CP",
            "pipeline": "PIPELINE_MODEL_PARALLEL_GROUP",
        },
        {"tensor": "mesh_tp", "data": "mesh_dp_shard", "pipeline": "mesh_pp"},
    ],
)
def test_roles_are_read_in_descriptions(write: Write, describe: dict[str, str]) -> None:
    where = groups_of(parts_of(write, describe, "rank{rank}"))
    roles = {one.name: (one.role, one.role_source) for one in where.groups}
    assert roles["0"] == ("world", "description")
    assert {roles[name] for name in TENSOR} == {("tensor", "description")}
    assert {roles[name] for name in DATA} == {("data", "description")}
    assert {roles[name] for name in PIPELINE} == {("pipeline", "description")}
    assert where.axis_position["pipeline"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert where.axis_position["tensor"].tolist() == [0, 1] * 4
    assert where.axis_position["data"].tolist() == [0, 0, 1, 1] * 2
    assert [where.groups[i].name for i in where.axis_group["tensor"]] == [
        "t0",
        "t0",
        "t1",
        "t1",
        "t2",
        "t2",
        "t3",
        "t3",
    ]


def exchanges(rank: int, groups: dict[str, tuple[str, list[int]]]) -> list[dict[str, Any]]:
    """What a rank does in its groups: a message to the other stage, an all-reduce with its other neighbours."""
    out: list[dict[str, Any]] = []
    for i, (name, (_, ranks)) in enumerate(groups.items()):
        other = next(one for one in ranks if one != rank)
        way = {"Dst Rank": other} if rank < other else {"Src Rank": other}
        kind = "allreduce" if name[0] != "p" else "send" if rank < other else "recv"
        facts = {"Process Group Description": "undefined"} | (way if name[0] == "p" else {})
        out += met(kind, 20 + 10 * i, 5, 2 + i, name, **facts)
    return out


def test_without_descriptions_what_happens_in_a_group_tells_its_role(write: Write) -> None:
    where = groups_of(parts_of(write, {}, "node{host}_{pid}", exchanges))
    roles = {one.name: (one.role, one.role_source) for one in where.groups}
    assert {roles[name] for name in TENSOR} == {("tensor", "structure")}
    assert {roles[name] for name in DATA} == {("data", "structure")}
    assert {roles[name] for name in PIPELINE} == {("pipeline", "structure")}


def test_neighbours_on_hosts_that_are_not_known_have_no_role(write: Write) -> None:
    where = groups_of(parts_of(write, {}, "rank{rank}", exchanges))
    assert {one.role for one in where.groups if one.name in TENSOR} == {"unknown"}


def test_hosts_and_racks_are_those_of_the_names(write: Write) -> None:
    where = groups_of(parts_of(write, {}, "rack3-node{host}_{pid}"))
    assert where.hosts == ("rack3-node0",) * 4 + ("rack3-node1",) * 4
    assert set(where.racks) == {"rack3"}
    assert set(groups_of(parts_of(write, {}, "rank_{rank}")).hosts) == {""}


def transfers(found: CallTransfers) -> list[Ints]:
    """Of each rank's calls."""
    return [found.transfer_ns[mine] for mine in found.calls.rank_slices()]


def test_calls_of_a_group_meet_by_their_number(write: Write) -> None:
    """Rank 1 was recorded from call 8 on, and so lacks call 7: the i-th of one is not the i-th of the other."""
    parts = list[RankSummary]()
    for rank, calls in ((0, [(7, 40), (8, 10)]), (1, [(8, 30), (9, 5)])):
        events = [
            one
            for i, (seq, took) in enumerate(calls)
            for one in met("allreduce", 100 * i + 50 - took, took, i + 1, "0", Seq=seq)
        ]
        path = write(events, name=f"{rank}.json", distributedInfo=told(rank, 2, {"0": ("", [0, 1])}))
        parts.append(rank_summary(trace_of(path)))
    found = call_transfers([part.collectives for part in parts])
    assert [one.tolist() for one in transfers(found)] == [[-1, 10_000], [10_000, -1]]


def test_a_message_meets_by_its_ends_and_order(write: Write) -> None:
    """Rank 0 sends two messages to 1, which sends one back; `Seq` counts what each does itself and tells nothing."""
    does = {0: [("send", 50), ("send", 20), ("recv", 9)], 1: [("recv", 30), ("send", 4), ("recv", 25)]}
    parts = list[RankSummary]()
    for rank, calls in does.items():
        events = [
            one
            for i, (name, took) in enumerate(calls)
            for one in met(name, 100 * i, took, i + 1, "0", Seq=i, Rank=1 - rank)  # the peer's rank in the group
        ]
        path = write(events, name=f"{rank}.json", distributedInfo=told(rank, 2, {"0": ("", [0, 1])}))
        parts.append(rank_summary(trace_of(path)))
    assert (parts[0].collectives.source.tolist(), parts[0].collectives.destination.tolist()) == ([0, 0, 1], [1, 1, 0])
    found = call_transfers([part.collectives for part in parts])
    assert [(one // 1000).tolist() for one in transfers(found)] == [[30, 20, 4], [30, 4, 20]]


def test_many_calls_are_matched_in_a_moment(write: Write) -> None:
    path = write(met("allreduce", 10, 5, 1, "0", Seq=1), distributedInfo=told(0, 2, {"0": ("", [0, 1])}))
    one, n = rank_summary(trace_of(path)).collectives, 1000
    fixed = (
        "bytes",
        "group_size",
        "source",
        "destination",
        "event",
        "part_row",
        "part_start",
        "part_end",
        "name",
        "group",
    )
    same = {name: np.full(n, getattr(one, name)[0], getattr(one, name).dtype) for name in fixed}
    many = replace(one, **same, sequence=np.arange(n), part_call=np.arange(n), is_transfer=np.ones(n, bool))
    began = time.process_time()
    found = call_transfers([many] * 64)
    assert (found.transfer_ns == 5000).all()
    assert time.process_time() - began < 0.5  # measured 0.04 s


def test_two_files_of_one_rank_are_two_rows(write: Write) -> None:
    groups = {"t0": ("mesh_tp", [0, 1])}
    parts = [
        rank_summary(
            trace_of(write(met("allreduce", 10, 5, 1, "t0"), name=f"{i}.json", distributedInfo=told(rank, 2, groups)))
        )
        for i, rank in enumerate((0, 0, 1))
    ]
    where = groups_of([(f"{i}", part) for i, part in enumerate(parts)])
    assert where.ranks == (0, 0, 1)
    assert len(where.axis_position["tensor"]) == 3
