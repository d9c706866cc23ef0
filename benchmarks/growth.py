"""How the time of building and of every view grows with each dimension of a trace: at most in proportion.

    python -m benchmarks.growth [dimension ...]

Each dimension doubles while the others stay. CPU time, the best of a few; where it seems to grow faster than AT_MOST
a doubling it is measured again. What takes less than MEASURABLE is not judged.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise

import numpy as np
from msgspec import structs

from benchmarks import growth_models
from benchmarks.growth_models import Model
from benchmarks.rows import Row
from visualprof.reader.allocator import keep_freed_memory
from visualprof.reader.trace import Category, Device, LinkKind, Rows, Trace, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.views import RunView, all_views, view
from visualprof.views.measure.timeline.window import busy_profile, search_events, window_table

AT_MOST = 2.3  # times the time of half the size
MEASURABLE = 0.05  # seconds
TRIES = 6
SPAN = 1_000  # ns of an operator with all that it does


@dataclass(frozen=True)
class Made:
    """A trace to be made.

    operators: each holds another one and a call that launches a kernel. threads, streams, devices: among which they
    and the kernels are spread. frames: Python calls around each thread's operators, in stacks of `depth`. links: from a
    forward to a backward operator. samples, counters: of memory-like counters, and their tracks. groups: process groups
    of the collectives.
    """

    operators: int = 6_000
    steps: int = 4
    threads: int = 1
    streams: int = 1
    devices: int = 1
    names: int = 20
    kernels: int = 20
    shapes: int = 20
    ranges: int = 4
    frames: int = 0
    depth: int = 8
    links: int = 0
    collectives: int = 0
    groups: int = 1
    allocations: int = 0
    samples: int = 0
    counters: int = 1
    ranks: int = 1


DIMENSIONS: dict[str, tuple[Made | Model, Sequence[int]]] = {
    "operators": (Made(steps=16), (50_000, 100_000, 200_000)),
    "steps": (Made(12_000), (3_000, 6_000, 12_000)),
    "threads": (Made(12_000), (4_000, 8_000, 16_000)),
    "streams": (Made(12_000), (1_000, 2_000, 4_000)),
    "devices": (Made(12_000, streams=4_000), (500, 1_000, 2_000)),
    "names": (Made(12_000), (3_000, 6_000, 12_000)),
    "kernels": (Made(12_000), (3_000, 6_000, 12_000)),
    "shapes": (Made(50_000), (12_000, 24_000, 48_000)),
    "ranges": (Made(50_000), (12_000, 24_000, 48_000)),
    "frames": (Made(depth=32), (200_000, 400_000, 800_000)),
    "depth": (Made(frames=200_000), (200, 400, 800)),
    "links": (Made(50_000), (50_000, 100_000, 200_000)),
    "collectives": (Made(ranks=2), (10_000, 20_000, 40_000)),
    "groups": (Made(collectives=24_000, ranks=2), (6_000, 12_000, 24_000)),
    "ranks": (Made(200, steps=10, collectives=100), (64, 128, 256)),
    "allocations": (Made(), (100_000, 200_000, 400_000)),
    "samples": (Made(), (800_000, 1_600_000, 3_200_000)),
    "counters": (Made(samples=16_000), (2_000, 4_000, 8_000)),
    "nodes": (Model(), (2_500, 5_000, 10_000)),
    "scopes": (Model(), (8, 16, 32)),
    "nodes of a flat model": (Model(named=False), (2_500, 5_000, 10_000)),
    "runs": (Model(1_000), (50, 100, 200)),
    "all of a trace": (
        Made(4_000, 200, 200, 200, 50, 500, 500, 500, 500, 4_000, 50, 2_000, 1_000, 100, 4_000, 4_000, 100, 2),
        (1, 2, 4),
    ),
}


def made(of: Made, rank: int = 0) -> Trace:
    """The trace of one rank."""
    out = TraceBuilder("made")
    out.describe(
        rank=rank,
        world_size=of.ranks,
        device_type="cuda",
        clock_origin_ns=0,
        devices=tuple(Device(i, compute_capability="8.0", multiprocessors=108) for i in range(of.devices)),
    )
    rows = _operators(out, of)
    rows = _frames(out, of, rows)
    rows = _collectives(out, of, rows)
    _rest(out, of, rows)
    return out.build()


def _ranks(of: Made) -> list[tuple[str, Trace]]:
    return [(f"rank{rank}", made(of, rank)) for rank in range(of.ranks)]


def _ids(out: TraceBuilder, kind: str, number: int, count: int) -> Rows:
    """Return ids that repeat a number of texts in turn."""
    return out.strings(f"{kind}{i}" for i in range(number))[np.arange(count) % number]


def _operators(out: TraceBuilder, of: Made) -> int:
    """Operators with their calls and kernels, steps, and ranges around some of them; the number of rows used."""
    n = of.operators
    at = np.arange(n, dtype=np.int64)
    ts = at * SPAN
    threads = np.array([out.track(TrackKind.THREAD, f"thread {i}", "1", str(i)) for i in range(of.threads)])
    streams = [
        out.track(TrackKind.STREAM, f"stream {i}", "0", str(i), device=i % of.devices, stream=i)
        for i in range(of.streams)
    ]
    thread, stream = threads[at % of.threads], np.array(streams)[at % of.streams]
    name, kernel = _ids(out, "aten::op_", of.names, n), _ids(out, "kernel_", of.kernels, n)
    call = np.full(n, out.string("cudaLaunchKernel"))
    parts = (
        (ts, 900, name, Category.OP, thread, None),
        (ts + 100, 700, np.roll(name, 1), Category.OP, thread, None),
        (ts + 200, 300, call, Category.RUNTIME, thread, at + 1),
        (ts + 400, 800, kernel, Category.KERNEL, stream, at + 1),
    )
    for place, (start, dur, names, category, track, corr) in enumerate(parts):
        out.events(ts=start, dur=dur, name=names, category=category, track=track, row=at + place * n, corr=corr)
    out.arg("input_shapes", at, _ids(out, "[[1, 2], ", of.shapes, n), text=True)
    out.arg("sequence", at, at)
    out.arg("external_id", np.concatenate((at, at + 3 * n)), np.concatenate((at, at)) + 1)
    out.arg("occupancy", at + 3 * n, np.full(n, 0.1))
    out.arg("blocks_per_sm", at + 3 * n, np.full(n, 0.5))
    whole, used = n * SPAN, 4 * n
    for count, named, category in (
        (of.steps, "ProfilerStep#", Category.STEP),
        (of.ranges, "mine", Category.ANNOTATION),
    ):
        begin, track = np.arange(count, dtype=np.int64) * (whole // max(1, count)), int(threads[0])
        length, ids = whole // max(1, count) - 1, out.strings(f"{named}{i}" for i in range(count))
        out.events(ts=begin, dur=length, name=ids, category=category, track=track, row=np.arange(count) + used)
        used += count
    for i in range(of.steps):
        out.step(f"{i}", i * (whole // of.steps), whole // of.steps - 1, int(threads[0]))
    first, last = np.arange(of.links) % (n // 2), n // 2 + np.arange(of.links) % (n // 2)
    out.link(first, last, LinkKind.FWDBWD)
    return used


def _frames(out: TraceBuilder, of: Made, used: int) -> int:
    """Python calls in stacks of `depth`, each with an operator at its bottom, on a thread of their own."""
    stacks = of.frames // of.depth
    level, stack = np.arange(stacks * of.depth) % of.depth, np.arange(stacks * of.depth) // of.depth
    width = 2 * of.depth + 100
    track, row = out.track(TrackKind.THREAD, "python", "1", "python"), np.arange(len(level)) + used
    name = _ids(out, "module.py: f", 200, len(level))
    start, length = stack * width + level, width - 1 - 2 * level
    out.events(ts=start, dur=length, name=name, category=Category.PYTHON, track=track, row=row)
    begin, named = np.arange(stacks) * width + of.depth, np.full(stacks, out.string("aten::in_python"))
    row = np.arange(stacks) + used + len(level)
    out.events(ts=begin, dur=20, name=named, category=Category.OP, track=track, row=row)
    return used + len(level) + stacks


def _collectives(out: TraceBuilder, of: Made, used: int) -> int:
    """Collectives, each an operator of the host and a kernel."""
    n = of.collectives
    at = np.arange(n, dtype=np.int64)
    ts = at * SPAN
    thread = out.track(TrackKind.THREAD, "nccl", "1", "nccl")
    stream = out.track(TrackKind.STREAM, "nccl", "0", "nccl", device=0, stream=99)
    host, kernel = (np.full(n, out.string(f"nccl{text}")) for text in (":all_reduce", "DevKernel_AllReduce_Sum"))
    corr = at + of.operators + 1
    out.events(ts=ts, dur=300, name=host, category=Category.COMM, track=thread, row=at + used, corr=corr)
    out.events(ts=ts + 200, dur=400, name=kernel, category=Category.COMM, track=stream, row=at + used + n, corr=corr)
    out.arg("group", at + used, _ids(out, "group ", of.groups, n), text=True)
    return used + 2 * n


def _rest(out: TraceBuilder, of: Made, used: int) -> None:
    """Memory events, and samples of counters."""
    n = of.allocations
    at = np.arange(n, dtype=np.int64)
    ts = at * (of.operators * SPAN // max(1, n)) + 150
    named = np.full(n, out.string("[memory]"))
    out.events(ts=ts, dur=-1, name=named, category=Category.MEMORY, track=0, row=at + used)
    size = np.where(at % 2, -512, 512)
    out.allocs(ts=ts, bytes=size, device=0, addr=4096 + at // 2 % 1000, event=at + used)
    for i in range(of.counters if of.samples else 0):
        track = out.track(TrackKind.COUNTER, f"counter {i}", "1", f"c{i}")
        samples = np.arange(of.samples // of.counters, dtype=np.int64)
        out.counter(track, samples * SPAN, samples.astype(np.float64))


@dataclass(frozen=True)
class Case:
    """A measured operation: its name and its function of the traces of all ranks."""

    name: str
    work: Callable[[list[tuple[str, Trace]]], object]


def cases() -> list[Case]:
    """Return every view with its charts, expensive queries of some views, and the requests of the timeline."""
    asked: list[tuple[str, dict[str, str]]] = [(v.name, {}) for v in all_views() if v.subject in ("trace", "run")]
    asked += [("operator", {"group": "stack"}), ("kernel", {"group": "launch"})]
    return [Case(" ".join((name, *params.values())), _computing(name, params)) for name, params in asked] + [
        Case("window", lambda ranks: window_table(ranks[0][1], *ranks[0][1].span_ns, _all(ranks[0][1]))),
        Case("minimap", lambda ranks: busy_profile(ranks[0][1])),
        Case("search", lambda ranks: search_events(ranks[0][1], "op")),
    ]


def _all(trace: Trace) -> list[int]:
    return list(range(len(trace.tracks)))


def _computing(name: str, texts: dict[str, str]) -> Callable[[list[tuple[str, Trace]]], object]:
    chosen = view(name)
    params = chosen.parse(texts)

    def compute(ranks: list[tuple[str, Trace]]) -> object:
        if not any(chosen.needs(trace) for _, trace in ranks):
            return None
        answer = (
            chosen.compute_from_traces(ranks, params)
            if isinstance(chosen, RunView)
            else chosen.compute(ranks[0][1], params)
        )
        return chosen.charts(answer, params, 10) if chosen.charts else answer

    return compute


def _seconds(work: Callable[[], object], best: float = 1e9, rounds: int = 3) -> float:
    """CPU seconds, the best of some rounds; the collector of garbage would look through what other sizes hold."""
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    gc.enable()
    return best


def _worst(works: Sequence[Callable[[], object]]) -> tuple[float, list[float]]:
    """Return the worst growth of time from one size to the next, and the times of all sizes."""
    took, worst = [_seconds(work) for work in works], 0.0
    for _ in range(TRIES):
        pairs = [(b / a, i) for i, (a, b) in enumerate(pairwise(took)) if b >= MEASURABLE]
        worst, place = max(pairs, default=(0.0, 0))
        if worst <= AT_MOST:
            break
        took[place], took[place + 1] = (_seconds(works[i], took[i]) for i in (place, place + 1))
    return worst, took


def _sized(start: Made, dimension: str, size: int) -> Made:
    """Return the shape with one dimension set, or with all dimensions of a rank scaled."""
    if hasattr(start, dimension):
        return replace(start, **{dimension: size})
    return replace(
        start, **{field.name: size * getattr(start, field.name) for field in fields(start) if field.name != "ranks"}
    )


def _measured(dimension: str) -> Iterator[tuple[str, float, list[float]]]:
    """Yield name, worst growth and seconds per size of building and of each view."""
    start, sizes = DIMENSIONS[dimension]
    if isinstance(start, Model):
        models = [growth_models.made(replace(start, **{dimension.split()[0]: size})) for size in sizes]
        yield "graph", *_worst([partial(growth_models.shown, model) for model in models])
        return
    shapes = [_sized(start, dimension, size) for size in sizes]
    yield "building", *_worst([partial(_ranks, of) for of in shapes])
    ranks = [_ranks(shape) for shape in shapes]
    for case in cases():
        yield case.name, *_worst([partial(_once, case, rank) for rank in ranks])


def _once(case: Case, ranks: list[tuple[str, Trace]]) -> object:
    """The case of traces of which nothing has been worked out."""
    return case.work([(name, structs.replace(trace, events=structs.replace(trace.events))) for name, trace in ranks])


def growth(chosen: Sequence[str] = ()) -> Iterator[Row]:
    """A row a dimension: what grew most over a doubling."""
    keep_freed_memory()  # otherwise new pages of large arrays look like growth
    for dimension in chosen or DIMENSIONS:
        tables: list[tuple[str, float, list[float]]] = list(_measured(dimension))
        name, worst, took = max(tables, key=lambda each: each[1])
        slowest = max(tables, key=lambda each: each[2][-1])
        sizes = DIMENSIONS[dimension][1]
        figure = f"{worst:.2f} x per doubling ({name}, {took[-1] * 1e3:.0f} ms)" if worst else "too little to measure"
        figure += f"; most time in {slowest[0]}, {slowest[2][-1] * 1e3:.0f} ms"
        label = f"growth with {dimension}, {sizes[0]:,} to {sizes[-1]:,}"
        yield Row(label, figure, f"at most {AT_MOST} x", worst <= AT_MOST)


if __name__ == "__main__":
    rows: list[Row] = []
    for row in growth(sys.argv[1:]):
        print(row.line(), flush=True)
        rows.append(row)
    sys.exit(0 if all(row.ok for row in rows) else 1)
