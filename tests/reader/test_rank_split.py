"""Files with several ranks: one trace per rank, as if each had been recorded alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import visualprof
from tests.conftest import Write, json_of, trace_of
from tests.reader.test_formats import check_invariants
from tests.recordings import recording_path
from tests.views.rank_events import event, launched_kernel, step
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.listing import RunIndex, new_span
from visualprof.reader.logdir.open_traces import OpenTraces
from visualprof.reader.logdir.scan import LogFile, Root, Version
from visualprof.reader.logdir.summary import summarize
from visualprof.reader.trace import LinkKind, Trace, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.rank_split import rank_labels, select_rank, split_ranks
from visualprof.views import RunView, view


def rank_events(pid: int, device: int, took: int) -> list[dict[str, Any]]:
    """One step of 500 us in which a kernel computes and another communicates for half as long."""
    work = [
        step(3, 0, 500),
        event("aten::mm", 10, 20),
        *launched_kernel("gemm", 100, took, 15),
        event("nccl:all_reduce", 40, 20),
        *launched_kernel("ncclDevKernel_AllReduce", 300, took // 2, 45, stream=20),
    ]
    for one in work:
        on_device = one["cat"] == "kernel"
        one["pid"], one["args"] = (
            device if on_device else pid,
            {**one["args"], **({"device": device} if on_device else {})},
        )
    return work


def labeled(events: list[dict[str, Any]], label: str) -> list[dict[str, Any]]:
    return [{**one, "pid": f"[{label}] {one['pid']}"} for one in events]


def tables(name: str, trace: Trace) -> Any:
    chosen = view(name)
    answer = json_of(
        chosen.compute_from_traces([("w", trace)], chosen.parse({}))
        if isinstance(chosen, RunView)
        else chosen.compute(trace, chosen.parse({}))
    )
    return answer["columns"]


def test_python_reads_the_whole_file_or_one_trace_per_rank(write: Write) -> None:
    parts = [rank_events(4000, 0, 80), rank_events(4001, 1, 120)]
    path = write([one for part in parts for one in part], name="merged.json")
    whole, ranks = visualprof.read_trace(path), visualprof.read_ranks(path)
    assert [rank.label for rank in ranks] == ["rank0", "rank1"]
    assert [len(rank.trace.events) for rank in ranks] == [len(part) for part in parts]
    assert len(whole.events) == len(parts[0]) + len(parts[1])
    (alone,) = visualprof.read_ranks(write(parts[0], name="alone.json"))
    assert (alone.label, len(alone.trace.events)) == ("", len(parts[0]))


@pytest.mark.parametrize("has_labels", [True, False])
def test_each_rank_of_a_merged_file_has_the_values_of_its_own_file(write: Write, has_labels: bool) -> None:
    parts = [rank_events(4000, 0, 80), rank_events(4001, 1, 120)]
    merged = [labeled(part, f"TP0{rank}") for rank, part in enumerate(parts)] if has_labels else parts
    whole = trace_of(write([one for part in merged for one in part], name="merged.json"))
    assert rank_labels(whole) == (("TP00", "TP01") if has_labels else ("rank0", "rank1"))
    for rank, (split, part) in enumerate(zip(split_ranks(whole), parts, strict=True)):
        alone = trace_of(write(part, name=f"{rank}.json"))
        check_invariants(split.trace)
        assert split.trace.meta.rank == rank
        assert tables("kernel", split.trace) == tables("kernel", alone)
        for name in ("device_self_ns", "host_self_ns", "calls"):
            assert tables("operator", split.trace)[name] == tables("operator", alone)[name]
        for name in ("total_ns", "computation_ns", "communication_ns", "overlap_ns"):
            assert tables("distributed", split.trace)[name] == tables("distributed", alone)[name]


def test_ranks_whose_streams_share_a_number_are_told_apart_by_their_launches(write: Write) -> None:
    """Two hosts number their devices from 0, so the kernels of both are on one track."""
    whole = trace_of(write([*rank_events(4000, 0, 80), *rank_events(4001, 0, 120)]))
    kernels = [tables("kernel", split.trace)["total_ns"] for split in split_ranks(whole)]
    assert kernels == [[80_000, 40_000], [120_000, 60_000]]


def test_a_device_is_not_the_process_with_its_number(write: Write) -> None:
    """In containers pids are small: process 1 drives device 0, process 2 drives device 1."""
    whole = trace_of(write([*rank_events(1, 0, 80), *rank_events(2, 1, 120)]))
    kernels = [tables("kernel", split.trace)["total_ns"] for split in split_ranks(whole)]
    assert kernels == [[80_000, 40_000], [120_000, 60_000]]


def test_ranks_are_the_numbers_of_their_labels(write: Write) -> None:
    events = [*labeled(rank_events(1, 0, 80), "DP1-TP10"), *labeled(rank_events(2, 1, 80), "DP1-TP9")]
    whole = trace_of(write(events))
    assert [(split.label, split.trace.meta.rank) for split in split_ranks(whole)] == [("DP1-TP9", 9), ("DP1-TP10", 10)]


def test_a_process_without_device_work_is_not_a_rank(write: Write) -> None:
    loader = {**event("enumerate(DataLoader)#_next", 0, 20), "pid": 77}
    assert rank_labels(trace_of(write([*rank_events(4000, 0, 80), loader]))) == ()


def test_layers_of_a_process_that_launch_the_same_work_are_one_rank() -> None:
    """Ascend shows Python and CANN as processes; arrows lead from both to one kernel."""
    builder = TraceBuilder("chrome")
    kinds = (TrackKind.THREAD, TrackKind.THREAD, TrackKind.STREAM, TrackKind.STREAM)
    tracks = [builder.track(kind, "track", pid=str(pid), tid="1", device=0) for pid, kind in enumerate(kinds)]
    for row, (track, ts) in enumerate(zip(tracks, (0, 5, 20, 40), strict=True)):
        builder.events(ts=np.array([ts]), dur=8, name=np.array([0]), category=3, track=track, row=np.array([row]))
    builder.link(np.array([0, 1]), np.array([2, 2]), LinkKind.LAUNCH)
    assert rank_labels(builder.build()) == ()


def test_a_public_recording_of_ascend_is_one_rank() -> None:
    path = "traces/ascend/text/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json.gz"
    assert rank_labels(trace_of(recording_path(path))) == ()


def test_an_unknown_rank_is_an_error(write: Write) -> None:
    with pytest.raises(KeyError):
        select_rank(trace_of(write(rank_events(4000, 0, 80))), "rank1")


@pytest.mark.parametrize("name", ["merged-x", "combined-plain"])
def test_public_merged_files_equal_their_rank_files(name: str) -> None:
    whole = trace_of(recording_path(f"cases/reports/08-merged-ranks/{name}.trace.json"))
    for rank, split in enumerate(split_ranks(whole)):
        alone = trace_of(recording_path(f"cases/reports/08-merged-ranks/ranks/x-TP-{rank}.trace.json"))
        for columns in ("device_total_ns", "device_self_ns"):
            assert tables("operator", split.trace)[columns] == tables("operator", alone)[columns]
        assert len(split.trace.steps) == 1
        assert np.array_equal(split.trace.events.dur, alone.events.dur)


def test_the_ranks_of_a_file_are_workers_of_its_run(write: Write, tmp_path: Path) -> None:
    path = write([*rank_events(4000, 0, 80), *rank_events(4001, 1, 120)], name="merged.json")
    cache = Cache(tmp_path / "cache")
    summary = summarize(str(path), lambda _: None, cache, lambda _: ("kernel",))
    file = LogFile(
        path=str(path), file=path.name, root=Root(tmp_path, ""), folder="", name=path.name, version=Version(1, 1, 1)
    )
    index = RunIndex()
    index.set_span(replace(new_span(file), state="ready", summary=summary))
    (run,) = index.listing().runs
    assert [(worker.id, worker.rank) for worker in run.workers] == [("merged [rank0]", 0), ("merged [rank1]", 1)]
    opened = OpenTraces(cache)
    for worker, took in zip(run.workers, (80_000, 120_000), strict=True):
        (of_rank,) = worker.spans
        trace = opened.get(of_rank.summary.fingerprint) if of_rank.summary else None
        assert trace is not None
        assert tables("kernel", trace)["max_ns"][0] == took
    assert index.listing().find(run.id, "merged").run_path.worker == "merged [rank0]"


def test_the_command_line_shows_all_ranks_of_a_file(
    write: Write, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from visualprof.cli import main

    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    path = str(write([*rank_events(4000, 0, 80), *rank_events(4001, 1, 120)], name="merged.json"))

    def shown(*arguments: str) -> dict[str, Any]:
        assert main(["view", *arguments, "--format", "json"]) == 0
        return json.loads(capsysbinary.readouterr().out)["columns"]

    assert shown("distributed", path)["computation_ns"] == [80_000, 120_000]
    assert shown("kernel", path)["total_ns"] == [80_000, 40_000]
    for worker in ("rank1", "merged.json [rank1]"):
        assert shown("kernel", path, "--worker", worker)["total_ns"] == [120_000, 60_000]
