"""Ranks replayed together by their parts: what follows is what follows of all their moments."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.kineto_file import write as write_file
from tests.conftest import SAMPLES, Write, json_of, shared, trace_of
from tests.views.test_invariants import _arbitrary
from visualprof.errors import BadParameter
from visualprof.reader import native
from visualprof.reader.cache import Cache
from visualprof.reader.trace import Trace
from visualprof.views import view
from visualprof.views.answers.part_cache import load_or_compute_part, load_part
from visualprof.views.measure.replay import baseline
from visualprof.views.measure.replay.build import wait_graph
from visualprof.views.measure.replay.contraction import contract
from visualprof.views.measure.replay.rank_graph import RankGraph, rank_graph

RANKS = view("ranks")
CHANGES = ("", "rank[*]=median; kernel*0.3", "operator[name~a]*0.5", "host[name~a]*0.3; collective*0.7")
TRAINING = {
    "synthetic-4gpu": sorted((SAMPLES / "synthetic-4gpu").glob("*.gz")),
    "pytorch-ddp-cpu": sorted((SAMPLES / "pytorch-ddp-cpu").glob("*.gz")),
}


def answers(traces: list[Trace], change: str, every: bool) -> dict[str, Any]:
    params = RANKS.parse({"change": change})
    parts = [(f"{place}", rank_graph(trace, RANKS.part_key_for(params), every)) for place, trace in enumerate(traces)]
    try:
        return json_of(RANKS.compute(parts, params))
    except BadParameter as error:
        return {"error": error.error}


def numbers(answer: Any) -> list[float]:
    """All numbers of an answer in order."""
    if isinstance(answer, dict):
        return [n for value in answer.values() for n in numbers(value)]
    if isinstance(answer, list):
        return [n for value in answer for n in numbers(value)]
    return [float(answer)] if isinstance(answer, (int, float)) else []


def words(answer: Any) -> Any:
    """An answer without its numbers."""
    if isinstance(answer, dict):
        return {key: words(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [words(value) for value in answer]
    return None if isinstance(answer, (int, float)) else answer


def check(traces: list[Trace], monkeypatch: pytest.MonkeyPatch, changes: tuple[str, ...] = CHANGES) -> None:
    monkeypatch.setattr(baseline, "MAX_ERROR_RATIO", 9)  # forecasts, however far the replay is off
    monkeypatch.setattr(baseline, "MAX_UNEXPLAINED_RATIO", 9)
    for change in changes:
        whole, few = (answers(traces, change, every) for every in (True, False))
        assert words(few) == words(whole)
        # A thousand waits of odd lengths add up to the same but for some ns.
        assert numbers(few) == pytest.approx(numbers(whole), rel=1e-9, abs=30)


@pytest.mark.parametrize("name", TRAINING)
def test_parts_answer_as_all_moments_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check([trace_of(path) for path in TRAINING[name]], monkeypatch)


def test_parts_of_recordings_with_many_streams_answer_as_all_moments_do(monkeypatch: pytest.MonkeyPatch) -> None:
    one = trace_of(shared("traces/kineto/hta/nccl_data__a100_rank0of2.json.gz"))
    check([one, one], monkeypatch, CHANGES[:2])
    other = trace_of(shared("traces/kineto/hta/trace_diff_control__a100_rank3of8.json.gz"))
    check([other, other], monkeypatch, CHANGES[:1])


@pytest.mark.parametrize("seed", range(40))
def test_parts_of_any_ranks_answer_as_all_moments_do(write: Write, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clocks of such ranks differ, so that waits lead backwards."""
    events = [_arbitrary(random.Random(seed)) for seed in (seed, seed, 1000 + seed)]
    traces = [trace_of(write(each, f"{place}.json")) for place, each in enumerate(events)]
    stepped = [trace for trace in traces if bool(len(trace.steps)) == bool(len(traces[0].steps))]
    check(stepped, monkeypatch, CHANGES[:3])


def test_a_part_grows_with_its_exchanges_not_with_its_events(tmp_path: Path) -> None:
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


def test_the_compiled_contraction_equals_its_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    if native.library() is None:
        pytest.skip("needs the compiled reader")
    graph = wait_graph(trace_of(SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"))
    dur, work = graph.nodes.dur.astype(np.float64), np.where(graph.nodes.thread_group < 0, 8, -1).astype(np.int32)
    chosen = np.zeros(len(dur), np.uint8)
    chosen[::50] = chosen[graph.edges.first_edges(len(dur))[1:] == graph.edges.first_edges(len(dur))[:-1]] = 1
    compiled = contract(graph.edges, work, 9, chosen)
    ways = compiled.shortcuts(dur, graph.edges.delay_ns, with_breakdown=True)
    assert ways.breakdown_ns.sum(axis=1) == pytest.approx(ways.delay_ns)
    assert compiled.is_retained.sum() > chosen.sum()
    monkeypatch.setattr("visualprof.views.measure.replay.contraction.function", lambda *_: None)
    twin = contract(graph.edges, work, 9, chosen)
    np.testing.assert_array_equal(compiled.is_retained, twin.is_retained)
    others = twin.shortcuts(dur, graph.edges.delay_ns, with_breakdown=True)
    for name in ("src", "dst", "delay_ns", "breakdown_ns"):
        np.testing.assert_array_equal(getattr(ways, name), getattr(others, name))


def test_only_a_change_that_parts_do_not_know_asks_for_other_parts(tmp_path: Path) -> None:
    asks = {
        "": "",
        "rank[1]=median": "",
        "gpu*0.5; rank[*]=median": "",
        "kernel[name~gemm]*0.5": "kernel[name~gemm]*0.5",
        "gpu*0.5;copies=async; rank[1]=median": "gpu*0.5; copies=async",
    }
    assert {change: RANKS.part_key_for(RANKS.parse({"change": change})) for change in asks} == asks
    cache, trace = Cache(tmp_path), trace_of(TRAINING["synthetic-4gpu"][0])
    load_or_compute_part(cache, RANKS, "f", lambda: trace)
    assert load_part(cache, RANKS, "f") is not None
    assert load_part(cache, RANKS, "f", "kernel[name~gemm]*0.5") is None
    asked = load_or_compute_part(cache, RANKS, "f", lambda: trace, "kernel[name~gemm]*0.5")
    assert isinstance(asked, RankGraph)
    assert "kernel[name~gemm]*0.5" in asked.change_overrides


def test_a_change_of_what_no_rank_has_is_an_error() -> None:
    traces = [trace_of(path) for path in TRAINING["synthetic-4gpu"]]
    assert answers(traces, "kernel[none]*0.5", False) == {
        "error": "kernel[none]*0.5: the recording has nothing of that"
    }
    with pytest.raises(BadParameter, match="is no change"):
        RANKS.part_key_for(RANKS.parse({"change": "nonsense"}))
