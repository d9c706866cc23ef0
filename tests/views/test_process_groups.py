"""Roles of process groups, positions of ranks, hosts and racks, and matched calls."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.conftest import Write, trace_of
from tests.views.rank_events import collective_kernel, distributed_info
from visualprof.reader.trace import Ints
from visualprof.views.measure.ranks.call_matching import CallTransfers, call_transfers, match_calls
from visualprof.views.measure.ranks.process_groups import ProcessGroups, find_process_groups
from visualprof.views.measure.ranks.processes import ordered_ranks
from visualprof.views.measure.ranks.rank_summary import RankSummary, rank_summary

# Ranks 0 to 7: pairs are tensor parallel, pairs of pairs are data parallel, halves are stages.
TENSOR = {f"t{i}": [2 * i, 2 * i + 1] for i in range(4)}
DATA = {"d0": [0, 2], "d1": [1, 3], "d2": [4, 6], "d3": [5, 7]}
PIPELINE = {f"p{i}": [i, i + 4] for i in range(4)}


def rank_summaries(
    write: Write, describe: dict[str, str], worker: str, events: Any = lambda rank, groups: []
) -> list[tuple[str, RankSummary]]:
    """Return the summaries of eight ranks.

    Args:
        describe: Description of each kind of group.
        worker: Names of the workers, formatted with rank, host and pid.
    """
    summaries = list[tuple[str, RankSummary]]()
    for rank in range(8):
        kinds = {"tensor": TENSOR, "data": DATA, "pipeline": PIPELINE}
        groups = {
            name: (describe.get(kind, ""), ranks)
            for kind, groups_of_kind in kinds.items()
            for name, ranks in groups_of_kind.items()
            if rank in ranks
        }
        all_groups = {"0": ("default_pg", list(range(8))), **groups}
        path = write(
            [*collective_kernel("allreduce", 10, 5, 1, "0"), *events(rank, groups)],
            name=f"{rank}.json",
            distributedInfo=distributed_info(rank, 8, all_groups),
        )
        summaries.append((worker.format(rank=rank, host=rank // 4, pid=4000 + rank), rank_summary(trace_of(path))))
    return summaries


def groups_from(summaries: list[tuple[str, RankSummary]]) -> ProcessGroups:
    ranks, numbers = ordered_ranks(summaries, lambda summary: summary.location)
    return find_process_groups(ranks, numbers, match_calls([summary.collectives for _, summary in ranks]))


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
def test_roles_are_read_from_descriptions(write: Write, describe: dict[str, str]) -> None:
    process_groups = groups_from(rank_summaries(write, describe, "rank{rank}"))
    roles = {entry.name: (entry.role, entry.role_source) for entry in process_groups.groups}
    assert roles["0"] == ("world", "description")
    assert {roles[name] for name in TENSOR} == {("tensor", "description")}
    assert {roles[name] for name in DATA} == {("data", "description")}
    assert {roles[name] for name in PIPELINE} == {("pipeline", "description")}
    assert process_groups.axis_position["pipeline"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert process_groups.axis_position["tensor"].tolist() == [0, 1] * 4
    assert process_groups.axis_position["data"].tolist() == [0, 0, 1, 1] * 2
    assert [process_groups.groups[i].name for i in process_groups.axis_group["tensor"]] == [
        "t0",
        "t0",
        "t1",
        "t1",
        "t2",
        "t2",
        "t3",
        "t3",
    ]


def communication_of(rank: int, groups: dict[str, tuple[str, list[int]]]) -> list[dict[str, Any]]:
    """Return the events of a rank in its groups: a message to the other stage, and an all-reduce with
    each other group.
    """
    events: list[dict[str, Any]] = []
    for i, (name, (_, ranks)) in enumerate(groups.items()):
        peer = next(entry for entry in ranks if entry != rank)
        end = {"Dst Rank": peer} if rank < peer else {"Src Rank": peer}
        kind = "allreduce" if name[0] != "p" else "send" if rank < peer else "recv"
        facts = {"Process Group Description": "undefined"} | (end if name[0] == "p" else {})
        events += collective_kernel(kind, 20 + 10 * i, 5, 2 + i, name, **facts)
    return events


def test_roles_without_descriptions_are_inferred_from_calls(write: Write) -> None:
    process_groups = groups_from(rank_summaries(write, {}, "node{host}_{pid}", communication_of))
    roles = {entry.name: (entry.role, entry.role_source) for entry in process_groups.groups}
    assert {roles[name] for name in TENSOR} == {("tensor", "structure")}
    assert {roles[name] for name in DATA} == {("data", "structure")}
    assert {roles[name] for name in PIPELINE} == {("pipeline", "structure")}


def test_consecutive_ranks_on_unknown_hosts_have_no_role(write: Write) -> None:
    process_groups = groups_from(rank_summaries(write, {}, "rank{rank}", communication_of))
    assert {entry.role for entry in process_groups.groups if entry.name in TENSOR} == {"unknown"}


def test_hosts_and_racks_are_read_from_worker_names(write: Write) -> None:
    process_groups = groups_from(rank_summaries(write, {}, "rack3-node{host}_{pid}"))
    assert process_groups.hosts == ("rack3-node0",) * 4 + ("rack3-node1",) * 4
    assert set(process_groups.racks) == {"rack3"}
    assert set(groups_from(rank_summaries(write, {}, "rank_{rank}")).hosts) == {""}


def transfer_times(result: CallTransfers) -> list[Ints]:
    """Return the transfer times of each rank's calls."""
    return [result.transfer_ns[rank_slice] for rank_slice in result.calls.rank_slices()]


def test_calls_of_a_group_are_matched_by_sequence_number(write: Write) -> None:
    """Rank 1 was recorded from call 8 on and lacks call 7: the i-th call of one rank is not the i-th of the other."""
    summaries = list[RankSummary]()
    for rank, calls in ((0, [(7, 40), (8, 10)]), (1, [(8, 30), (9, 5)])):
        events = [
            entry
            for i, (seq, took) in enumerate(calls)
            for entry in collective_kernel("allreduce", 100 * i + 50 - took, took, i + 1, "0", Seq=seq)
        ]
        path = write(events, name=f"{rank}.json", distributedInfo=distributed_info(rank, 2, {"0": ("", [0, 1])}))
        summaries.append(rank_summary(trace_of(path)))
    result = call_transfers([summary.collectives for summary in summaries])
    assert [entry.tolist() for entry in transfer_times(result)] == [[-1, 10_000], [10_000, -1]]


def test_messages_are_matched_by_their_ends_and_order(write: Write) -> None:
    """Rank 0 sends two messages to 1, which sends one back; `Seq` counts each rank's own calls and does not help."""
    calls_by_rank = {0: [("send", 50), ("send", 20), ("recv", 9)], 1: [("recv", 30), ("send", 4), ("recv", 25)]}
    summaries = list[RankSummary]()
    for rank, calls in calls_by_rank.items():
        events = [
            entry
            for i, (name, duration) in enumerate(calls)
            for entry in collective_kernel(
                name, 100 * i, duration, i + 1, "0", Seq=i, Rank=1 - rank
            )  # the peer's rank in the group
        ]
        path = write(events, name=f"{rank}.json", distributedInfo=distributed_info(rank, 2, {"0": ("", [0, 1])}))
        summaries.append(rank_summary(trace_of(path)))
    assert (summaries[0].collectives.source.tolist(), summaries[0].collectives.destination.tolist()) == (
        [0, 0, 1],
        [1, 1, 0],
    )
    result = call_transfers([summary.collectives for summary in summaries])
    assert [(entry // 1000).tolist() for entry in transfer_times(result)] == [[30, 20, 4], [30, 4, 20]]


def test_matching_many_calls_is_fast(write: Write) -> None:
    path = write(
        collective_kernel("allreduce", 10, 5, 1, "0", Seq=1),
        distributedInfo=distributed_info(0, 2, {"0": ("", [0, 1])}),
    )
    collectives, n = rank_summary(trace_of(path)).collectives, 1000
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
    repeated = {name: np.full(n, getattr(collectives, name)[0], getattr(collectives, name).dtype) for name in fixed}
    many = replace(collectives, **repeated, sequence=np.arange(n), part_call=np.arange(n), is_transfer=np.ones(n, bool))
    start = time.process_time()
    result = call_transfers([many] * 64)
    assert (result.transfer_ns == 5000).all()
    assert time.process_time() - start < 0.5  # measured 0.04 s


def test_two_files_of_one_rank_are_two_rows(write: Write) -> None:
    groups = {"t0": ("mesh_tp", [0, 1])}
    summaries = [
        rank_summary(
            trace_of(
                write(
                    collective_kernel("allreduce", 10, 5, 1, "t0"),
                    name=f"{i}.json",
                    distributedInfo=distributed_info(rank, 2, groups),
                )
            )
        )
        for i, rank in enumerate((0, 0, 1))
    ]
    process_groups = groups_from([(f"{i}", summary) for i, summary in enumerate(summaries)])
    assert process_groups.ranks == (0, 0, 1)
    assert len(process_groups.axis_position["tensor"]) == 3
