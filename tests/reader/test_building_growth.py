"""Twice as many events, threads, devices, ... take about twice as long to build, however oddly they lie."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from visualprof.reader import read_trace
from visualprof.reader.chrome.document import Document
from visualprof.reader.trace import Category, Ids, Ints, LinkKind, Trace, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

AT_MOST = 2.7  # times for twice as much; a square would be 4
TRIES = 4


def built(
    ts: Ints, dur: Ints | int, threads: int = 1, thread: Ids | int = 0, kind: TrackKind = TrackKind.THREAD
) -> TraceBuilder:
    """Events on so many tracks, each of a process of its own."""
    builder = TraceBuilder("odd")
    for i in range(threads):
        builder.track(kind, f"track {i}", str(i), str(i))
    name = np.full(len(ts), builder.string("op"))
    builder.events(ts=ts, dur=dur, name=name, category=Category.OP, track=thread, row=np.arange(len(ts)))
    return builder


def all_open(n: int) -> TraceBuilder:
    """All are open at once and none contains another."""
    return built(np.arange(n) * 10, np.full(n, 10 * n + 5))


def backwards(n: int) -> TraceBuilder:
    """The last comes first in the file."""
    return built(np.arange(n)[::-1] * 10, 7)


def shuffled(n: int) -> TraceBuilder:
    """In no order."""
    return built(np.random.default_rng(0).permutation(n) * 10, 7)


def deep(n: int) -> TraceBuilder:
    """Two stacks; arrows from where all but the lowest events of the first are closed to the second."""
    level = np.arange(n) % (n // 2)
    builder = built(np.arange(n) // (n // 2) * 8 * n + level, 4 * n - 2 * level)
    ends = np.full(n // 2, 4 * n - 3)
    none = np.full(n // 2, -1)
    builder.flow(none * 0, ends, none * 0, ends + 8 * n, LinkKind.FWDBWD, none)
    return builder


def threads(n: int) -> TraceBuilder:
    """Forty events on each thread, arrows between all threads, steps on each, queued work."""
    count, at = n // 40, np.arange(n)
    builder = built(at * 10, 15, count, (at % count).astype(np.int32))
    half = at[: n // 2]
    none = np.full(n // 2, -1)
    builder.flow(half % count, half * 10 + 5, half * 7 % count, half * 10 + 400, LinkKind.ASYNC, none)
    for i in range(count):
        builder.step("", 10 * i, 10 * n, i)
    return builder


def streams(n: int) -> TraceBuilder:
    """Forty kernels on each stream, launched by one thread in steps."""
    at, count = np.arange(n), n // 40
    builder = built(at * 10, 5, count, (at % count).astype(np.int32), TrackKind.STREAM)
    thread, name = builder.track(TrackKind.THREAD, "host"), np.full(n, builder.string("launch"))
    builder.events(ts=at * 10 - 5, dur=1, name=name, category=Category.RUNTIME, track=thread, row=at + n)
    builder.link(at + n, at, LinkKind.LAUNCH)
    for i in range(count):
        builder.step("", 400 * i, 300, thread)
    return builder


def devices(n: int) -> TraceBuilder:
    """Forty memory events on each device."""
    at, count = np.arange(n), n // 40
    builder = built(at * 10, -1)
    size = np.where(at // count % 2, -64, 64)
    builder.allocs(ts=at * 10, bytes=size, device=at % count, addr=at % count, event=at, complete=True)
    return builder


def counters(n: int) -> TraceBuilder:
    """Forty samples of each counter."""
    at, count = np.arange(n), n // 40
    builder = built(at[:0], 0, count, kind=TrackKind.COUNTER)
    builder.counter(at % count, at * 10, at.astype(np.float64))
    return builder


def seconds(shape: Callable[[int], TraceBuilder], n: int) -> float:
    """CPU time of building once."""
    builder = shape(n)
    gc.collect()
    start = time.process_time()
    builder.build()
    return time.process_time() - start


@pytest.mark.slow
@pytest.mark.parametrize("shape", [all_open, backwards, shuffled, deep, threads, streams, devices, counters])
def test_twice_as_much_takes_about_twice_as_long(shape: Callable[[int], TraceBuilder]) -> None:
    once = twice = float("inf")
    for _ in range(TRIES):  # the best of a few: the machine may be busy
        once, twice = min(once, seconds(shape, 80_000)), min(twice, seconds(shape, 160_000))
        if twice <= AT_MOST * once:
            return
    pytest.fail(f"{twice * 1e3:.0f} ms after {once * 1e3:.0f}")


def series(path: Path, count: int) -> Trace:
    """A file with so many series of counters."""
    events = [{"ph": "C", "name": f"c{i}", "pid": 1, "ts": i, "args": {"value": i}} for i in range(count)]
    path.write_text(json.dumps([{"ph": "X", "name": "op", "cat": "a", "pid": 1, "tid": 1, "ts": 0, "dur": 1}, *events]))
    return read_trace(path)


def test_rows_are_not_looked_at_again_for_every_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    each_kind = Document.map_kinds
    monkeypatch.setattr(Document, "map_kinds", lambda *args: (looks.append(1), each_kind(*args))[1])
    assert len(series(tmp_path / "few.json", 2).counters.ts) == 2
    few = len(looks)
    assert len(series(tmp_path / "many.json", 200).tracks) == 201
    assert len(looks) == 2 * few
