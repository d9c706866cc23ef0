"""Many ranks: the time of all views of a run against the time of parsing its files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.kineto_file import write
from benchmarks.rows import Row

RANKS, EVENTS, EVERY = 64, 20_000, 40
BAR = 1.2


def many_ranks(folder: Path) -> Iterator[Row]:
    """Rows (what, figure, bar, met) of 64 ranks, a collective every 40 kernels: all views of each and of the run."""
    from visualprof.reader import read_trace
    from visualprof.views import all_views

    paths = [folder / f"rank{rank}.json" for rank in range(RANKS)]
    for rank, path in enumerate(paths):
        _write(path, rank)
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


def _write(path: Path, rank: int) -> None:
    """A generated file in which every EVERY-th kernel is an all-reduce, with the rank in its head."""
    write(path, EVENTS)
    text = path.read_text()
    head = f'"distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {RANKS}}},\n  "traceEvents": ['
    text = text.replace('"traceEvents": [', head, 1)
    parts = text.split('"cat": "kernel", "name": "')
    for i in range(1, len(parts), EVERY):
        parts[i] = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(" + parts[i]
    path.write_text('"cat": "kernel", "name": "'.join(parts))
