"""Many ranks: the time of all views of a run against the time of parsing its files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.kineto_file import write
from benchmarks.rows import Row

RANKS, EVENTS, EVERY = 64, 20_000, 40
NCCL_RANKS, NCCL_EVENTS, NCCL_EVERY = 2, 420_000, 1
BAR = 1.2


def many_ranks(folder: Path) -> Iterator[Row]:
    """Rows (what, figure, bar, met) of 64 ranks, a collective every 40 kernels: all views of each and of the run."""
    from visualprof.reader import read_trace
    from visualprof.views import all_views

    paths = [folder / f"rank{rank}.json" for rank in range(RANKS)]
    for rank, path in enumerate(paths):
        write(path, EVENTS, rank, RANKS, EVERY)
    start = time.perf_counter()
    traces = [(path.name, read_trace(path)) for path in paths]
    parsing = time.perf_counter() - start
    start = time.perf_counter()
    for view in all_views():
        if view.subject == "run":
            view.compute(traces, view.params())
        elif view.subject == "trace":
            for _, trace in traces:
                if view.needs(trace):
                    view.compute(trace, view.params())
    views = time.perf_counter() - start
    events = sum(len(trace.events) for _, trace in traces)
    yield Row(f"{RANKS} ranks, {events:,} events: parsing, one process", f"{parsing:.2f} s")
    ratio = views / parsing
    yield Row("all views of all ranks", f"{views:.2f} s = {ratio:.2f} x parsing", f"at most {BAR} x", ratio <= BAR)


def many_collectives(folder: Path) -> Iterator[Row]:
    """The distributed view of two ranks whose kernels are all collectives."""
    from visualprof.reader import read_trace
    from visualprof.views import view

    paths = [folder / f"nccl{rank}.json" for rank in range(NCCL_RANKS)]
    for rank, path in enumerate(paths):
        write(path, NCCL_EVENTS, rank, NCCL_RANKS, NCCL_EVERY)
    start = time.perf_counter()
    traces = [(path.name, read_trace(path)) for path in paths]
    parsing = time.perf_counter() - start
    start = time.perf_counter()
    chosen = view("distributed")
    answer: Any = chosen.compute(traces, chosen.params())
    took = time.perf_counter() - start
    calls = sum(answer.collectives.columns.calls)
    ratio = took / parsing
    yield Row(
        f"{NCCL_RANKS} ranks, {calls:,} NCCL kernels: distributed view",
        f"{took:.2f} s = {ratio:.2f} x parsing",
        f"at most {BAR} x",
        ratio <= BAR,
    )
