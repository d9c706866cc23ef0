"""Ranks replayed together from contracted graphs give the same results as from complete graphs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.kineto_file import write as write_file
from tests.conftest import SAMPLES, Write, json_of, trace_of
from tests.recordings import recording_path
from tests.views.test_invariants import _arbitrary
from visualprof.errors import BadParameter
from visualprof.reader import native
from visualprof.reader.cache import Cache
from visualprof.reader.trace import Trace
from visualprof.views import run_view
from visualprof.views.answers.part_cache import load_or_compute_part, load_part
from visualprof.views.measure.replay import baseline
from visualprof.views.measure.replay.build import wait_graph
from visualprof.views.measure.replay.contraction import contract
from visualprof.views.measure.replay.rank_graph import RankGraph, rank_graph

RANKS = run_view("ranks")
CHANGES = ("", "rank[*]=median; kernel*0.3", "operator[name~a]*0.5", "host[name~a]*0.3; collective*0.7")
TRAINING = {
    "synthetic-4gpu": sorted((SAMPLES / "synthetic-4gpu").glob("*.gz")),
    "pytorch-ddp-cpu": sorted((SAMPLES / "pytorch-ddp-cpu").glob("*.gz")),
}


def answers(traces: list[Trace], change: str, keep_all: bool) -> dict[str, Any]:
    params = RANKS.parse({"change": change})
    parts = [
        (f"{index}", rank_graph(trace, RANKS.part_key_for(params), keep_all)) for index, trace in enumerate(traces)
    ]
    try:
        return json_of(RANKS.compute(parts, params))
    except BadParameter as error:
        return {"error": error.error}


def numbers(answer: Any) -> list[float]:
    """Return all numbers of an answer in order."""
    if isinstance(answer, dict):
        return [number for value in answer.values() for number in numbers(value)]
    if isinstance(answer, list):
        return [number for value in answer for number in numbers(value)]
    return [float(answer)] if isinstance(answer, (int, float)) else []


def words(answer: Any) -> Any:
    """Return an answer without its numbers."""
    if isinstance(answer, dict):
        return {key: words(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [words(value) for value in answer]
    return None if isinstance(answer, (int, float)) else answer


def check(traces: list[Trace], monkeypatch: pytest.MonkeyPatch, changes: tuple[str, ...] = CHANGES) -> None:
    monkeypatch.setattr(baseline, "MAX_ERROR_RATIO", 9)  # always forecast, however inaccurate the replay is
    monkeypatch.setattr(baseline, "MAX_UNEXPLAINED_RATIO", 9)
    for change in changes:
        complete, contracted = (answers(traces, change, keep_all) for keep_all in (True, False))
        assert words(contracted) == words(complete)
        # Rounding of a thousand edges adds up to some ns.
        assert numbers(contracted) == pytest.approx(numbers(complete), rel=1e-9, abs=30)


@pytest.mark.parametrize("name", TRAINING)
def test_contracted_graphs_give_the_same_answers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check([trace_of(path) for path in TRAINING[name]], monkeypatch)


def test_contracted_graphs_with_many_streams_give_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = trace_of(recording_path("traces/kineto/hta/nccl_data__a100_rank0of2.json.gz"))
    check([trace, trace], monkeypatch, CHANGES[:2])
    other_trace = trace_of(recording_path("traces/kineto/hta/trace_diff_control__a100_rank3of8.json.gz"))
    check([other_trace, other_trace], monkeypatch, CHANGES[:1])


@pytest.mark.parametrize("seed", range(40))
def test_contracted_graphs_of_random_ranks_give_the_same_answers(
    write: Write, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clocks of such ranks differ, so that some edges lead backwards."""
    events = [_arbitrary(random.Random(seed)) for seed in (seed, seed, 1000 + seed)]
    traces = [trace_of(write(rank_events, f"{index}.json")) for index, rank_events in enumerate(events)]
    comparable = [trace for trace in traces if bool(len(trace.steps)) == bool(len(traces[0].steps))]
    check(comparable, monkeypatch, CHANGES[:3])


def test_the_size_depends_on_transfers_and_not_on_events(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    for events, every in ((20_000, 40), (40_000, 80)):
        path = tmp_path / f"{events}.json"
        write_file(path, events, rank=0, ranks=2, every=every)
        trace = trace_of(path)
        rank = load_or_compute_part(cache, RANKS, path.name, lambda trace=trace: trace)
        assert isinstance(rank, RankGraph)
        assert len(rank.transfers.part) == 50
        assert len(rank.graph.nodes.time) < 70 < len(wait_graph(trace).nodes.time) / 50
    sizes = [file.stat().st_size for file in (tmp_path / "cache").glob("*.vpanswer")]
    assert max(sizes) < 25_000


def test_the_native_contraction_equals_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    if native.library() is None:
        pytest.skip("needs the compiled reader")
    graph = wait_graph(trace_of(SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"))
    dur, work = graph.nodes.dur.astype(np.float64), np.where(graph.nodes.thread_group < 0, 8, -1).astype(np.int32)
    retained = np.zeros(len(dur), np.uint8)
    retained[::50] = retained[graph.edges.first_edges(len(dur))[1:] == graph.edges.first_edges(len(dur))[:-1]] = 1
    from_native = contract(graph.edges, work, 9, retained)
    shortcuts = from_native.shortcuts(dur, graph.edges.delay_ns, with_breakdown=True)
    assert shortcuts.breakdown_ns.sum(axis=1) == pytest.approx(shortcuts.delay_ns)
    assert from_native.is_retained.sum() > retained.sum()
    monkeypatch.setattr("visualprof.views.measure.replay.contraction.function", lambda *_: None)
    fallback = contract(graph.edges, work, 9, retained)
    np.testing.assert_array_equal(from_native.is_retained, fallback.is_retained)
    fallback_shortcuts = fallback.shortcuts(dur, graph.edges.delay_ns, with_breakdown=True)
    for name in ("src", "dst", "delay_ns", "breakdown_ns"):
        np.testing.assert_array_equal(getattr(shortcuts, name), getattr(fallback_shortcuts, name))


def test_only_changes_without_stored_times_need_new_graphs(tmp_path: Path) -> None:
    part_keys = {
        "": "",
        "rank[1]=median": "",
        "gpu*0.5; rank[*]=median": "",
        "kernel[name~gemm]*0.5": "kernel[name~gemm]*0.5",
        "gpu*0.5;copies=async; rank[1]=median": "gpu*0.5; copies=async",
    }
    assert {change: RANKS.part_key_for(RANKS.parse({"change": change})) for change in part_keys} == part_keys
    cache, trace = Cache(tmp_path), trace_of(TRAINING["synthetic-4gpu"][0])
    load_or_compute_part(cache, RANKS, "f", lambda: trace)
    assert load_part(cache, RANKS, "f") is not None
    assert load_part(cache, RANKS, "f", "kernel[name~gemm]*0.5") is None
    with_change = load_or_compute_part(cache, RANKS, "f", lambda: trace, "kernel[name~gemm]*0.5")
    assert isinstance(with_change, RankGraph)
    assert "kernel[name~gemm]*0.5" in with_change.change_overrides


def test_a_change_that_applies_to_no_rank_is_an_error() -> None:
    traces = [trace_of(path) for path in TRAINING["synthetic-4gpu"]]
    assert answers(traces, "kernel[none]*0.5", False) == {
        "error": "kernel[none]*0.5: the recording has nothing of that"
    }
    with pytest.raises(BadParameter, match="is no change"):
        RANKS.part_key_for(RANKS.parse({"change": "nonsense"}))
