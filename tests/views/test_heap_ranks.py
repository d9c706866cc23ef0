"""Memory snapshots of several ranks: who has the highest peak, and which function makes it so."""

from __future__ import annotations

from pathlib import Path

from tests.heap_programs import FORWARD, Program
from visualprof.reader import read_trace
from visualprof.views import Params
from visualprof.views.heap_ranks import VIEW, HeapRanksAnswer, RankMemory, compute, rank_memory

MIB = 1 << 20
EMBEDDING = ("/job/embed.py:3:lookup",)


def answer(tmp_path: Path, *embeddings: int) -> HeapRanksAnswer:
    """Ranks with 4 MiB of activations and so many bytes of embeddings."""
    traces = []
    for rank, size in enumerate(embeddings):
        program = Program()
        program.alloc(4 * MIB, FORWARD)
        if size:
            program.alloc(size, EMBEDDING)
        traces.append((f"rank{rank}", read_trace(program.write(tmp_path / f"rank{rank}.pickle"))))
    result = VIEW.compute_from_traces(traces, Params())
    assert isinstance(result, HeapRanksAnswer)
    return result


def test_the_rank_with_the_highest_peak_names_the_function_that_others_lack(tmp_path: Path) -> None:
    result = answer(tmp_path, MIB, MIB, 3 * MIB)
    columns = result.columns
    assert list(columns.worker) == ["rank0", "rank1", "rank2"]
    assert list(columns.peak_bytes) == [5 * MIB, 5 * MIB, 7 * MIB]
    assert list(columns.excess_bytes) == [0, 0, 2 * MIB]
    assert list(columns.place) == [None, None, "embed.py lookup"]
    assert list(columns.place_bytes) == [None, None, 3 * MIB]
    assert list(columns.place_excess_bytes) == [None, None, 2 * MIB]
    assert (result.median_bytes, result.excess_ratio) == (5 * MIB, 7 / 5 - 1)


def test_equal_ranks_have_no_reason(tmp_path: Path) -> None:
    columns = answer(tmp_path, MIB, MIB).columns
    assert list(columns.place) == [None, None]
    assert list(columns.failures) == [0, 0]


def test_a_function_that_only_one_rank_has_counts_as_zero_on_others(tmp_path: Path) -> None:
    columns = answer(tmp_path, 0, 0, MIB).columns
    assert list(columns.place) == [None, None, "embed.py lookup"]
    assert list(columns.place_excess_bytes) == [None, None, MIB]


def test_ranks_without_a_snapshot_have_no_row() -> None:
    assert list(compute([("a", RankMemory([]))], Params()).columns.worker) == []


def test_the_part_of_a_rank_has_its_reserved_memory_and_places(tmp_path: Path) -> None:
    program = Program()
    program.alloc(4 * MIB, FORWARD)
    (peak,) = rank_memory(read_trace(program.write(tmp_path / "a.pickle"))).peaks
    assert (peak.device, peak.peak_bytes, peak.reserved_bytes) == (0, 4 * MIB, 5 * MIB)
    assert peak.places == {"model.py forward": 4 * MIB}
