"""Many ranks: the time of all views of a run against the time of parsing its files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.kineto_file import write
from benchmarks.rows import Row
from visualprof.reader import read_trace
from visualprof.reader.cache import Cache
from visualprof.reader.trace import Trace
from visualprof.views import RunView, all_views, run_view
from visualprof.views.answers.part_cache import load_or_compute_part, load_part

RANKS, EVENTS, EVERY = 64, 20_000, 40
NCCL_RANKS, NCCL_EVENTS, NCCL_EVERY = 2, 420_000, 1
THOUSAND, PARTS = 1024, 16
BAR, BAR_S = 1.2, 2.0


def many_ranks(folder: Path) -> Iterator[Row]:
    """Rows (what, figure, bar, met) of 64 ranks, a collective every 40 kernels: all views of each and of the run."""
    traces, parsing = _read(folder, "rank", RANKS, EVENTS, EVERY)
    start = time.perf_counter()
    for each in all_views():
        if isinstance(each, RunView):
            each.compute_from_traces(traces, each.params())
        elif each.subject == "trace":
            for _, trace in traces:
                if each.needs(trace):
                    each.compute(trace, each.params())
    views = time.perf_counter() - start
    events = sum(len(trace.events) for _, trace in traces)
    yield Row(f"{RANKS} ranks, {events:,} events: parsing, one process", f"{parsing:.2f} s")
    ratio = views / parsing
    yield Row("all views of all ranks", f"{views:.2f} s = {ratio:.2f} x parsing", f"at most {BAR} x", ratio <= BAR)


def thousand_ranks(folder: Path) -> Iterator[Row]:
    """Measure the critical path across ranks with the summaries of some ranks, repeated for a thousand."""
    chosen, cache = run_view("ranks"), Cache(folder / "cache")
    for name, trace in _read(folder, "part", PARTS, EVENTS, EVERY)[0]:
        load_or_compute_part(cache, chosen, name, lambda trace=trace: trace)
    start = time.perf_counter()
    parts: list[Any] = []
    for rank in range(THOUSAND):
        part: Any = load_part(cache, chosen, f"part{rank % PARTS}.json")
        parts.append((f"{rank}", replace(part, location=replace(part.location, rank=rank, world_size=THOUSAND))))
    answer: Any = chosen.compute_from_parts(parts, chosen.params())
    took = time.perf_counter() - start
    changes = len(answer.changes.columns.change)
    label = f"{THOUSAND:,} ranks, {answer.collectives} collectives: path and {changes} forecasts from parts"
    yield Row(label, f"{took:.2f} s", f"at most {BAR_S:.0f} s", took <= BAR_S)


def many_collectives(folder: Path) -> Iterator[Row]:
    """Measure the distributed view of two ranks whose kernels are all collectives."""
    traces, parsing = _read(folder, "nccl", NCCL_RANKS, NCCL_EVENTS, NCCL_EVERY)
    start = time.perf_counter()
    chosen = run_view("distributed")
    answer: Any = chosen.compute_from_traces(traces, chosen.params())
    took = time.perf_counter() - start
    calls = sum(answer.collectives.columns.calls)
    ratio = took / parsing
    yield Row(
        f"{NCCL_RANKS} ranks, {calls:,} NCCL kernels: distributed view",
        f"{took:.2f} s = {ratio:.2f} x parsing",
        f"at most {BAR} x",
        ratio <= BAR,
    )


def _read(folder: Path, name: str, ranks: int, events: int, every: int) -> tuple[list[tuple[str, Trace]], float]:
    """Traces of ranks that are written first, by their file's name, and the seconds that reading them took."""
    paths = [folder / f"{name}{rank}.json" for rank in range(ranks)]
    for rank, path in enumerate(paths):
        write(path, events, rank, ranks, every)
    start = time.perf_counter()
    traces = [(path.name, read_trace(path)) for path in paths]
    return traces, time.perf_counter() - start
