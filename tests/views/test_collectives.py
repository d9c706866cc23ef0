"""Collectives of a run by group and size, pairs, and bubbles, on ranks small enough to work out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Write, json_of, trace_of
from tests.views.rank_events import collective_kernel, distributed_info, event, launched_kernel, step
from visualprof.peaks import find_link_bandwidth
from visualprof.views import run_view

PIPELINES = {f"p{i}": ("PIPELINE_MODEL_PARALLEL_GROUP", [i, i + 4]) for i in range(4)}
WORLD = {"0": ("default_pg", list(range(8)))}


def of_run(write: Write, ranks: dict[int, list[dict[str, Any]]], groups: Any = WORLD | PIPELINES) -> dict[str, Any]:
    """The view of eight ranks, each on a host of its own."""
    chosen = run_view("collectives")
    traces = [
        (
            f"node{rank}_{4000 + rank}",
            trace_of(write(events, name=f"{rank}.json", distributedInfo=distributed_info(rank, 8, groups))),
        )
        for rank, events in ranks.items()
    ]
    return json_of(chosen.compute_from_traces(traces, chosen.parse({})))


def stages(slow: int = -1, microbatches: int = 2) -> dict[int, list[dict[str, Any]]]:
    """Two stages of four ranks in three steps of 100 us. The first computes for 20 us and sends, so many times, the
    second computes what it received; a message takes 5 us, 15 from rank `slow`. At the end all meet: the first waits.
    """
    ranks: dict[int, list[dict[str, Any]]] = {}
    for rank in range(8):
        out: list[dict[str, Any]] = []
        took = 15 if rank % 4 == slow else 5
        for i in range(3):
            at, call = 100.0 * i, 100 * i + 1
            out.append(step(i, at, 100))
            for m in range(microbatches):
                ready = at + 20 * (m + 1) + took
                if rank < 4:
                    out += launched_kernel("gemm", at + 20 * m, 20, call + 2 * m)
                    out += collective_kernel(
                        "send", at + 20 * (m + 1), took, call + 2 * m + 1, f"p{rank}", **{"Dst Rank": rank + 4}
                    )
                else:
                    out += collective_kernel(
                        "recv", ready - 25, 25, call + 2 * m, f"p{rank - 4}", **{"Src Rank": rank - 4}
                    )
                    out += launched_kernel("gemm", ready, 10, call + 2 * m + 1)
            late = at + 20 * microbatches + 25
            begin = at + 20 * microbatches + took if rank < 4 else late
            out += collective_kernel("allreduce", begin, late + 5 - begin, call + 20, "0", Seq=i)
        ranks[rank] = out
    return ranks


def rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    columns = table["columns"]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def test_calls_of_the_same_size_are_one_row_with_bandwidths(write: Write) -> None:
    result = of_run(write, stages())
    values_by_name = {row["name"]: row for row in rows(result)}
    reduced, sent = values_by_name["allreduce"], values_by_name["send_recv"]
    assert (reduced["role"], reduced["members"], reduced["calls"], reduced["bytes"]) == ("world", 8, 3, 1_000_000)
    assert (sent["role"], sent["members"], sent["calls"], sent["span"]) == ("pipeline", 2, 24, "hosts")
    # The last to come to the all-reduce is there for 5 us: 1 MB in 5 us, times 2 x 7 / 8.
    assert (reduced["latency_ns"], reduced["bandwidth_bytes_per_s"]) == (5000, pytest.approx(2e11))
    assert reduced["bus_bandwidth_bytes_per_s"] == pytest.approx(3.5e11)
    assert (sent["latency_ns"], sent["bus_bandwidth_bytes_per_s"]) == (5000, pytest.approx(2e11))
    # Four ranks wait for 20 us in it, four do not.
    assert reduced["wait_ns"] == pytest.approx(10_000)
    assert (sent["against"], sent["of_peak"]) == ("measured", pytest.approx(2 / 3.5))


def test_groups_are_named_with_their_ranks(write: Write) -> None:
    values_by_name = {row["name"]: row for row in rows(of_run(write, stages())["groups"])}
    assert set(values_by_name) == {"0", "p0", "p1", "p2", "p3"}
    pair = values_by_name["p1"]
    assert (pair["role"], pair["told"], pair["ranks"], pair["hosts"]) == ("pipeline", "description", "1, 5", 2)
    assert (pair["calls"], pair["bytes"]) == (6, 6_000_000)
    # Six messages: 5 us for the sender, 25 for the receiver, who waits for 20 of them.
    assert (pair["busy_ns"], pair["wait_ns"]) == (6 * 15_000, 6 * 10_000)


def test_a_pair_that_takes_three_times_as_long_is_slow(write: Write) -> None:
    table_rows = rows(of_run(write, stages(slow=2))["pairs"])
    assert [(row["source"], row["destination"], row["slow"]) for row in table_rows] == [
        (2, 6, True),
        (0, 4, False),
        (1, 5, False),
        (3, 7, False),
    ]
    first = table_rows[0]
    assert (first["source_host"], first["destination_host"]) == ("node2", "node6")
    assert (first["latency_ns"], first["usual_ns"], first["slower"]) == (15_000, 5000, pytest.approx(3))


def test_a_slow_pair_is_named_among_the_stragglers(write: Write) -> None:
    ranks = stages(slow=2)
    chosen = run_view("distributed")
    traces = [
        (
            f"node{n}_4{n}00",
            trace_of(write(events, name=f"{n}.json", distributedInfo=distributed_info(n, 8, WORLD | PIPELINES))),
        )
        for n, events in ranks.items()
    ]
    named = json_of(chosen.compute_from_traces(traces, chosen.parse({})))["stragglers"]
    (slow,) = (row for row in named if row["unit"] != "stage")  # the first stage has more to do, too
    assert (slow["unit"], slow["name"], slow["ranks"], slow["cause"]) == ("link", "node2 - node6", [2, 6], "link")
    assert (slow["steps_late"], slow["late_excess_ns"], slow["slower"]) == (3, 20_000, pytest.approx(3))


def test_bubbles_are_waits_for_other_stages(write: Write) -> None:
    """A step: the first stage sends for 5 us beside the next microbatch, and 5 alone, and waits 20 at the end."""
    result = of_run(write, stages())
    values_by_name = {row["stage"]: row for row in rows(result["stages"])}
    assert {stage: row["ranks"] for stage, row in values_by_name.items()} == {0: 4, 1: 4}
    assert [values_by_name[stage]["computation_ns"] for stage in (0, 1)] == [40_000, 20_000]
    # Of the second one's two messages of 25 us, 5 are beside computation or each other.
    assert [values_by_name[stage]["bubble_ns"] for stage in (0, 1)] == [25_000, 35_000]
    assert (result["microbatches"], result["ideal_bubble_ratio"]) == (2, pytest.approx(1 / 3))
    assert [row["stage"] for row in rows(result["bubbles"])] == [0] * 4 + [1] * 4


def test_a_run_without_pipelines_has_no_bubbles(write: Write) -> None:
    ranks = {rank: [step(1, 0, 50), *collective_kernel("allreduce", 10, 5 + rank, 1, "0")] for rank in range(8)}
    result = of_run(write, ranks, WORLD)
    assert (rows(result["bubbles"]), result["microbatches"], result["ideal_bubble_ratio"]) == ([], None, None)


def test_ranks_without_groups_have_their_collectives(write: Write) -> None:
    chosen = run_view("collectives")
    traces = [(f"{i}", trace_of(write([event("gloo:all_reduce", 10, 5 + i)], name=f"{i}.json"))) for i in range(2)]
    (row,) = rows(json_of(chosen.compute_from_traces(traces, chosen.parse({}))))
    assert (row["role"], row["name"], row["span"], row["bytes"], row["latency_ns"]) == (
        "unknown",
        "all_reduce",
        "unknown",
        None,
        5000,
    )


@pytest.mark.parametrize(
    ("name", "gb_s"),
    [
        ("NVIDIA A100-SXM4-80GB", 300),
        ("NVIDIA A100-PCIE-40GB", None),
        ("NVIDIA H100 80GB HBM3", 450),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H200", 450),
        ("NVIDIA B200", 900),
        ("NVIDIA GB200", None),
        ("Tesla V100-SXM2-16GB", 150),
        ("Tesla T4", None),
    ],
)
def test_a_link_has_half_of_the_datasheet_bandwidth(name: str, gb_s: int | None) -> None:
    assert find_link_bandwidth(name) == (gb_s and gb_s * 1e9)


def test_links_are_a_matrix_of_ranks(write: Write) -> None:
    run_answer = of_run(write, stages(slow=2))
    assert (run_answer["ends_are"], run_answer["ends"]) == ("rank", [str(rank) for rank in range(8)])
    cells = {(row["row"], row["column"]): row for row in rows(run_answer["links"])}
    assert list(cells) == [(0, 4), (1, 5), (2, 6), (3, 7)]  # only the first stage sends
    slow, usual = cells[2, 6], cells[1, 5]
    assert (slow["slow"], slow["slower"], slow["latency_ns"]) == (True, pytest.approx(3), 15_000)
    assert (usual["slow"], usual["slower"], usual["calls"]) == (False, pytest.approx(1), 6)
    # 1 MB in 5 us, and in 15.
    assert (usual["bandwidth_bytes_per_s"], slow["bandwidth_bytes_per_s"]) == (
        pytest.approx(2e11),
        pytest.approx(2e11 / 3),
    )
