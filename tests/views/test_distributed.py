"""Overlap, waits and collectives of several ranks against asserted and hand-worked values."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kineto_file import write as write_file
from tests.conftest import SAMPLES, Write, answer, json_of, trace_of
from tests.recordings import recording_path
from tests.views.rank_events import event, launched_kernel, step
from visualprof.reader.trace.rank_split import split_ranks
from visualprof.views import run_view


def distributed(*paths: Path, **params: str) -> dict[str, Any]:
    chosen = run_view("distributed")
    return json_of(chosen.compute_from_traces([(p.name, trace_of(p)) for p in paths], chosen.parse(params)))


def micro() -> list[Path]:
    return [recording_path(f"traces/kineto/micro/test_distributed_nccl.{w}.json") for w in "ab"]


def us(values: list[int | None]) -> list[float | None]:
    return [None if v is None else v / 1000 for v in values]


def test_overlap_of_the_hand_made_ranks() -> None:
    columns = distributed(*micro())["columns"]
    exclusive = [
        (c - o, o, m - o, x)
        for c, o, m, x in zip(
            *(us(columns[k]) for k in ("computation_ns", "overlap_ns", "communication_ns", "other_ns")), strict=True
        )
    ]
    assert exclusive == [(30, 75, 75, 55), (121, 40, 74, 0)]


def test_ranks_are_the_means_of_their_steps() -> None:
    paths = sorted((SAMPLES / "synthetic-4gpu").glob("*.json.gz"))
    answer = distributed(*paths)
    steps, ranks = answer["columns"], answer["ranks"]["columns"]
    assert ranks["rank"] == [0, 1, 2, 3]
    assert len(set(ranks["worker"])) == 4
    for place, rank in enumerate(ranks["rank"]):
        rows = [row for row, of in enumerate(steps["rank"]) if of == rank]
        assert ranks["steps"][place] == len(rows) > 1
        for name in ("total_ns", "computation_ns", "communication_ns"):
            assert ranks[name][place] == pytest.approx(sum(steps[name][row] for row in rows) / len(rows))
        exposed = [steps["communication_ns"][row] - steps["overlap_ns"][row] for row in rows]
        assert ranks["exposed_ns"][place] == pytest.approx(sum(exposed) / len(rows))


def test_collectives_of_the_hand_made_ranks() -> None:
    table = distributed(*micro())["collectives"]["columns"]
    keys = ("rank", "name", "calls", "bytes", "mean_bytes", "total_ns", "transfer_ns")
    values_by_name = {(r, n): rest for r, n, *rest in zip(*(table[k] for k in keys), strict=True)}
    assert values_by_name[0, "broadcast"] == [1, 212480, 212480, 75_000, 36_000]
    assert values_by_name[0, "all_reduce"] == [1, 8196000, 8196000, 1_558_000, 1_133_000]
    assert values_by_name[1, "broadcast"] == [1, 212480, 212480, 39_000, 36_000]
    assert values_by_name[1, "all_reduce"] == [1, 8196000, 8196000, 1_133_000, 1_133_000]
    # torch-tb-profiler's wait graph asserts transfer 1,169 us on both ranks, wait 464 and 3 us.
    sums = [
        [sum(v) / 1000 for v in zip(*(r[3:] for (n, _), r in values_by_name.items() if n == rank), strict=True)]
        for rank in (0, 1)
    ]
    assert [(transfer, total - transfer) for total, transfer in sums] == [(1169, 464), (1169, 3)]


def test_paddle_ranks_equal_visualdl() -> None:
    paths = [
        recording_path(
            f"traces/paddle/synthetic_gpu_2workers/host_rank{r}_time_2023_01_01_00_00_00_00{r}.paddle_trace.json"
        )
        for r in (0, 1)
    ]
    columns = distributed(*paths)["columns"]
    keys = ("total_ns", "communication_ns", "computation_ns", "overlap_ns", "other_ns")
    sums = {
        r: [sum(v for v, n in zip(columns[k], columns["rank"], strict=True) if n == r) / 1e6 for k in keys]
        for r in (0, 1)
    }
    assert sums[0] == pytest.approx([20, 4.4, 10, 2, 7.6])
    # VisualDL: others 5.6. By hand: 20 - 12 - 4.4 + overlap; the gemm runs to 5.5 ms and does not touch 6.0 to 8.2 ms.
    assert sums[1] == pytest.approx([20, 4.4, 12, 2, 5.6])


def test_waits_are_never_negative() -> None:
    name = "traces/paddle/synthetic_gpu_2workers/host_rank{0}_time_2023_01_01_00_00_00_00{0}.paddle_trace.json"
    waits = distributed(*[recording_path(name.format(r)) for r in (0, 1)])["waits"]["columns"]
    assert min(waits["wait_ns"]) >= 0


@pytest.mark.parametrize("world", [2, 4])
def test_a_straggler_waits_least_and_has_most_of_the_replay(world: int) -> None:
    """Rank 1 slept 3 ms in one of the steps, which two cores for so many processes drowned: rank 0 had more to do."""
    paths = [recording_path(f"traces/torch_cpu/ddp{world}/rank{r}.pt.trace.json.gz") for r in range(world)]
    result = distributed(*paths)
    assert [s["rank"] for s in result["stragglers"]] == [0]
    waits, ranks = result["waits"]["columns"], run_view("ranks")
    by_rank = [sum(ns for r, ns in zip(waits["rank"], waits["wait_ns"], strict=True) if r == n) for n in range(world)]
    assert by_rank.index(min(by_rank)) == 0
    replayed = json_of(ranks.compute_from_traces([(path.name, trace_of(path)) for path in paths], ranks.parse({})))[
        "columns"
    ]
    assert replayed["rank"][replayed["own_ns"].index(max(replayed["own_ns"]))] == 0
    assert result["missing_ranks"] == []


def test_only_the_synthetic_straggler_is_named() -> None:
    result = distributed(*sorted((SAMPLES / "synthetic-4gpu").glob("*.gz")))
    assert [s["rank"] for s in result["stragglers"]] == [2]
    assert result["stragglers"][0]["cause"] == "device"  # its kernels have as many blocks and take longer
    ranks = run_view("ranks")
    traces = [(path.name, trace_of(path)) for path in sorted((SAMPLES / "synthetic-4gpu").glob("*.gz"))]
    replayed = json_of(ranks.compute_from_traces(traces, ranks.parse({})))
    columns = replayed["columns"]  # most of the critical path first
    assert columns["rank"][0] == 2
    assert columns["share"][0] > 0.9
    assert replayed["changes"]["columns"]["change"][1] == "rank[2]=median"


def test_missing_ranks_are_reported() -> None:
    result = distributed(
        recording_path("traces/kineto/hta/sampled_rank-0of128.json.gz"),
        recording_path("traces/kineto/hta/sampled_rank-1of128.json.gz"),
    )
    assert result["missing_ranks"] == list(range(2, 128))


def test_one_rank_alone_has_no_transfer_time() -> None:
    result = distributed(recording_path("traces/kineto/hta/nccl_data__a100_rank0of2.json.gz"))
    assert set(result["collectives"]["columns"]["transfer_ns"]) == {None}
    assert result["missing_ranks"] == [1]


def test_transfer_and_wait_of_concurrent_collectives_stay_within_the_step(write: Write) -> None:
    """Two gloo calls of rank 0 run side by side in a step of 100 us, each for 60 us and more."""
    own_events = [step(1, 0, 100), event("gloo:all_reduce", 10, 60, tid=2), event("gloo:all_reduce", 20, 75, tid=3)]
    other = [step(1, 0, 100), event("gloo:all_reduce", 30, 40, tid=2), event("gloo:all_reduce", 65, 30, tid=3)]
    result = distributed(write(own_events, name="a.json"), write(other, name="b.json"))
    # Rank 0 transfers for the 40 and 30 us of rank 1, at the ends: 30 to 70 and 65 to 95; before, from 10, it waits.
    # Rank 1 transfers from 30 to 95 and waits for nobody.
    waits = result["waits"]["columns"]
    assert (us(waits["transfer_ns"]), us(waits["wait_ns"])) == ([65, 65], [20, 0])
    # Each call by itself: 60 + 75 us, of which 40 + 30 transfer.
    table = result["collectives"]["columns"]
    assert [us(table[k]) for k in ("total_ns", "transfer_ns", "wait_ns")] == [[135, 70], [70, 70], [65, 0]]


def test_a_step_counts_only_its_part_of_a_collective(write: Write) -> None:
    steps = [step(1, 0, 50), step(2, 50, 50), event("aten::mm", 5, 1), event("aten::mm", 55, 1)]
    ranks = [[*steps, event("gloo:barrier", ts, 80 - ts, tid=2)] for ts in (20, 40)]
    waits = distributed(*(write(rank, name=f"{i}.json") for i, rank in enumerate(ranks)))["waits"]["columns"]
    # The fastest takes 40 us: on both from 40 to 80, 10 us of it in the first step.
    assert (waits["step"], us(waits["transfer_ns"]), us(waits["wait_ns"])) == (
        ["1", "2", "1", "2"],
        [10, 30, 10, 30],
        [20, 0, 0, 0],
    )


def test_a_step_without_collectives_has_no_transfer_or_wait(write: Write) -> None:
    rank = [step(1, 0, 50), step(2, 50, 50), event("gloo:barrier", 60, 20, tid=2)]
    waits = distributed(write(rank, name="a.json"), write(rank, name="b.json"))["waits"]["columns"]
    assert (
        list(zip(waits["step"], us(waits["transfer_ns"]), us(waits["wait_ns"]), strict=True))
        == [
            ("1", 0, 0),
            ("2", 20, 0),
        ]
        * 2
    )


def test_bus_bandwidth_uses_the_kernel_of_the_rank_that_does_not_wait(write: Write) -> None:
    """The host operators last 300 us, the kernels 200 and 50 us: 1 MB over 50 us is 20 GB/s, times 2 (2-1)/2."""
    args: dict[str, Any] = {"Collective name": "allreduce", "In msg nelems": 250_000, "dtype": "Float", "Group size": 2}
    head = {"distributedInfo": {"backend": "nccl", "world_size": 2}}
    paths = [
        write(
            [
                event("nccl:all_reduce", 10, 300),
                *launched_kernel("ncclDevKernel_AllReduce_Sum_f32", 400 - took, took, 20, **args),
            ],
            name=f"{took}.json",
            **head,
        )
        for took in (200, 50)
    ]
    table = distributed(*paths)["collectives"]["columns"]
    assert table["name"] == ["allreduce"] * 2
    assert table["bytes"] == [1_000_000] * 2
    assert table["bus_bandwidth_bytes_per_s"] == pytest.approx([20e9] * 2)
    # One rank alone cannot tell waiting from transfer: its own 200 us are all that is known.
    alone = distributed(paths[0])["collectives"]["columns"]
    assert alone["bus_bandwidth_bytes_per_s"] == pytest.approx([5e9])


@pytest.mark.parametrize(("slept", "computed", "cause"), [(20, 0, "host"), (0, 20, "computation"), (10, 10, "unknown")])
def test_a_straggler_is_late_by_its_own_work(write: Write, slept: int, computed: int, cause: str) -> None:
    """Rank 1 sleeps or computes longer before its collective; computing takes 10 us on rank 0 and 12 on rank 1."""

    def rank(sleeps: int, computes: int) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = []
        for i in range(3):
            start = 100 * i + sleeps
            work, comm = (
                event("aten::mm", start, computes),
                event("gloo:all_reduce", start + computes, 90 - sleeps - computes, tid=2),
            )
            out += [step(i, 100 * i, 92), work, comm]
        return out

    late = distributed(write(rank(1, 10), name="a.json"), write(rank(1 + slept, 12 + computed), name="b.json"))[
        "stragglers"
    ]
    assert [(s["rank"], s["steps_late"], s["cause"]) for s in late] == [(1, 3, cause)]
    assert [(s["own_excess_ns"], s["computation_excess_ns"], s["host_excess_ns"]) for s in late] == [
        ((slept + computed + 2) * 1000, (computed + 2) * 1000, slept * 1000)
    ]


def test_a_straggler_that_waits_for_data_has_its_input_named(write: Write) -> None:
    """Both ranks compute for 10 us; rank 1 loads data for 31 us before that, rank 0 for 1."""

    def rank(loading: int) -> list[dict[str, Any]]:
        loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        out: list[dict[str, Any]] = []
        for i in range(3):
            start = 100 * i + loading
            out += [step(i, 100 * i, 92), {**event(loader, 100 * i, loading), "cat": "user_annotation"}]
            out += [event("aten::mm", start, 10), event("gloo:all_reduce", start + 10, 80 - loading, tid=2)]
        return out

    (late,) = distributed(write(rank(1), name="a.json"), write(rank(31), name="b.json"))["stragglers"]
    assert (late["rank"], late["cause"]) == (1, "input")
    assert (late["own_excess_ns"], late["input_excess_ns"], late["host_excess_ns"]) == (30_000, 30_000, 0)


@pytest.mark.parametrize(("blocks", "cause"), [(2.0, "device"), (4.0, "work")])
def test_more_blocks_are_more_work_and_as_many_a_slower_device(write: Write, blocks: float, cause: str) -> None:
    """Rank 1's kernel takes 60 us, rank 0's 20 with 2 blocks for each multiprocessor."""

    def rank(late: int, blocks: float) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = []
        for i in range(3):
            work = launched_kernel("gemm", 100 * i + 5, 20 + late, 25 * i + 1)
            for item in work:
                item["args"] |= {"blocks per SM": blocks} if item["name"] == "gemm" else {}
            kernel = launched_kernel("ncclDevKernel_AllReduce", 100 * i + 30 + late, 70 - late, 25 * i + 11, stream=8)
            out += [step(i, 25 * i, 25), *work, event("nccl:all_reduce", 25 * i + 10, 5), *kernel]
        return out

    (late,) = distributed(write(rank(0, 2.0), name="a.json"), write(rank(40, blocks), name="b.json"))["stragglers"]
    assert (late["rank"], late["cause"]) == (1, cause)


def test_a_collective_belongs_to_the_step_that_asked_for_it(write: Write) -> None:
    """The hosts are done after 75 us; the devices run each of three steps for 100 us, rank 1 comes 40 us late."""

    def rank(late: int) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = []
        for i in range(3):
            work, comm = (
                launched_kernel("gemm", 100 * i + 5, 20 + late, 25 * i + 1),
                event("nccl:all_reduce", 25 * i + 10, 5),
            )
            kernel = launched_kernel("ncclDevKernel_AllReduce", 100 * i + 30 + late, 70 - late, 25 * i + 11, stream=8)
            out += [step(i, 25 * i, 25), *work, comm, *kernel]
        return out

    late = distributed(write(rank(0), name="a.json"), write(rank(40), name="b.json"))["stragglers"]
    found = [(s["rank"], s["steps_late"], s["steps"], s["own_excess_ns"], s["cause"]) for s in late]
    assert found == [(1, 3, 3, 40_000, "computation")]


def test_many_collectives_take_a_moment(tmp_path: Path) -> None:
    """The work is linear in the collectives: a call cost 0.8 ms when each made its own columns of the whole trace."""
    for rank in (0, 1):
        write_file(tmp_path / f"{rank}.json", 40_000, rank=rank, ranks=2, every=1)
    traces = [(path.name, trace_of(path)) for path in sorted(tmp_path.iterdir())]
    begin = time.process_time()
    chosen = run_view("distributed")
    result = json_of(chosen.compute_from_traces(traces, chosen.parse({})))
    assert result["collectives"]["columns"]["calls"] == [4000, 4000]
    assert time.process_time() - begin < 1  # measured 0.05 s; was 6 s


def test_ranks_with_different_steps_are_noted(write: Write) -> None:
    op = event("nccl:all_reduce", 1, 5)
    a = write([step(1, 0, 10), op], name="a.json")
    b = write([step(1, 0, 10), step(2, 20, 10), op, event("nccl:all_reduce", 21, 5)], name="b.json")
    assert "different_steps" in distributed(a, b)["notes"]


def test_no_rank_is_late_if_collectives_do_not_match(write: Write) -> None:
    """One rank lacks a collective."""
    own_events = [step(1, 0, 100), event("gloo:all_reduce", 10, 5), event("gloo:all_reduce", 20, 5)]
    other = [step(1, 30, 100), event("gloo:all_reduce", 50, 5)]
    result = distributed(write(own_events, name="a.json"), write(other, name="b.json"))
    assert (result["stragglers"], result["notes"]) == ([], ["unmatched"])


def test_collectives_match_within_their_process_group(write: Write) -> None:
    """Kernels of ranks 0 and 1, group a: 50 us; of ranks 2 and 3, group b: 200 and 500. Only rank 3 waits: 300 us."""
    kernel = "ncclDevKernel_AllReduce"
    paths = [
        write(
            launched_kernel(kernel, 600 - took, took, 5, 7, **{"Process Group Name": group, "Group size": 2}),
            name=f"{rank}.json",
            distributedInfo={"backend": "nccl", "world_size": 4, "rank": rank},
        )
        for rank, (group, took) in enumerate([("a", 50), ("a", 50), ("b", 200), ("b", 500)])
    ]
    table = distributed(*paths)["collectives"]["columns"]
    assert (us(table["transfer_ns"]), us(table["wait_ns"])) == ([50, 50, 200, 200], [0, 0, 0, 300])
    # A group of which one rank is known has nobody to meet.
    assert distributed(*paths[:3])["collectives"]["columns"]["transfer_ns"] == [50_000, 50_000, None]


def two_device_process(write: Write) -> Path:
    """GPU 0 computes from 100 to 500 us; GPU 1 from 100 to 200, and then communicates until 500."""

    def on_second_device(work: list[dict[str, Any]]) -> list[dict[str, Any]]:
        work[1]["args"]["device"] = work[1]["pid"] = 1
        return work

    return write(
        [
            step(0, 0, 1000),
            *launched_kernel("gemm", 100, 400, 12),
            *on_second_device(launched_kernel("gemm", 100, 100, 42)),
            event("nccl:all_reduce", 70, 20),
            *on_second_device(launched_kernel("ncclDevKernel_AllReduce", 200, 300, 72, stream=20)),
        ]
    )


def test_computation_on_one_device_does_not_overlap_communication_on_another(write: Write) -> None:
    result = distributed(two_device_process(write))
    keys = ("device", "computation_ns", "communication_ns", "overlap_ns", "other_ns")
    by_device = result["by_device"]["columns"]
    assert list(zip(*(by_device[k] for k in keys), strict=True)) == [
        (0, 400_000, 0, 0, 600_000),
        (1, 100_000, 300_000, 0, 600_000),
    ]
    # The rank has the values of the device that exposes the most communication.
    assert [result["columns"][k] for k in keys] == [[1], [100_000], [300_000], [0], [600_000]]
    assert result["ranks"]["columns"]["exposed_ns"] == [300_000]


def test_the_step_breakdown_is_computed_per_device(write: Write) -> None:
    overview = answer("overview", two_device_process(write))
    assert overview["average_step"]["kernel_ns"] == 100_000
    assert overview["average_step"]["communication_ns"] == 300_000
    by_device = overview["average_step_by_device"]["columns"]
    assert [by_device[k] for k in ("device", "kernel_ns", "communication_ns")] == [
        [0, 1],
        [400_000, 100_000],
        [0, 300_000],
    ]


def test_two_devices_of_one_public_process_overlap_nothing() -> None:
    result = distributed(recording_path("cases/reports/10-two-devices-overlap/trace.json"))
    table = result["by_device"]["columns"]
    assert table["overlap_ns"] == [0, 0]
    assert table["communication_ns"] == [0, 300_000]


def test_host_operators_of_collectives_without_kernels_count_for_every_device(write: Write) -> None:
    second = launched_kernel("gemm", 100, 50, 42)
    second[1]["args"]["device"] = second[1]["pid"] = 1
    path = write([step(0, 0, 500), *launched_kernel("gemm", 100, 200, 12), *second, event("gloo:barrier", 120, 100)])
    table = distributed(path)["by_device"]["columns"]
    assert [table[k] for k in ("communication_ns", "overlap_ns")] == [[100_000, 100_000], [100_000, 30_000]]


def test_a_host_operator_that_launches_a_recorded_kernel_is_not_communication(write: Write) -> None:
    """The operator runs from 40 to 60 us, its kernel from 200 to 300; gloo's operator has no kernel and takes 30 us."""
    collective = [event("c10d::allreduce_", 40, 20), *launched_kernel("ncclDevKernel_AllReduce", 200, 100, 45)]
    path = write([step(0, 0, 500), *launched_kernel("gemm", 100, 50, 12), *collective, event("gloo:barrier", 350, 30)])
    columns = distributed(path)["columns"]
    assert [columns[k] for k in ("computation_ns", "communication_ns", "other_ns")] == [[50_000], [130_000], [320_000]]
    average = answer("overview", path)["average_step"]
    assert average["communication_ns"] == 130_000


@pytest.mark.parametrize("name", ["merged-x.trace.json", "combined-plain.trace.json"])
def test_communication_of_a_public_file_of_two_ranks_is_that_of_its_kernels(name: str) -> None:
    ranks = split_ranks(trace_of(recording_path(f"cases/reports/08-merged-ranks/{name}")))
    chosen = run_view("distributed")
    result = json_of(chosen.compute_from_traces([(r.label, r.trace) for r in ranks], chosen.parse({})))
    assert result["collectives"]["columns"]["total_ns"] == [160_000, 130_000]
    table = result["columns"]
    assert [table[k] for k in ("rank", "computation_ns", "communication_ns")] == [
        [0, 1],
        [320_000, 400_000],
        [160_000, 130_000],
    ]


def test_ranks_of_files_that_state_none_are_those_of_their_names(write: Write) -> None:
    paths = [write([step(0, 0, 100), *launched_kernel("gemm", 10, 20, 1)], name=f"rank{n}.json") for n in (10, 2)]
    assert distributed(*paths)["ranks"]["columns"]["rank"] == [2, 10]
    assert run_view("distributed").is_in_run([path.name for path in paths], has_data=False)
    assert not run_view("distributed").is_in_run(["trace.json"], has_data=False)


def test_two_files_of_one_rank_are_two_rows(write: Write) -> None:
    info = {"distributedInfo": {"rank": 0, "world_size": 2}}
    paths = [
        write([step(0, 0, 100), *launched_kernel("gemm", 10, dur, 1)], name=f"host{dur}.json", **info)
        for dur in (20, 40)
    ]
    ranks = distributed(*paths)["ranks"]["columns"]
    assert (ranks["rank"], ranks["computation_ns"]) == ([0, 0], [20_000, 40_000])
