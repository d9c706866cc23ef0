"""Traces that stay open in a server: large ones are closed when they are not used."""

from __future__ import annotations

import json
from pathlib import Path

from tests.manual_clock import ManualClock
from visualprof.reader.cache import Cache, open_trace
from visualprof.reader.graph_capture.files import recording_fingerprint
from visualprof.reader.logdir.open_traces import OpenTraces

EVENTS = 10  # per trace


def store_traces(folder: Path, cache: Cache, count: int) -> list[str]:
    """Store traces in the cache; return their fingerprints."""
    fingerprints: list[str] = []
    for number in range(count):
        path = folder / f"{number}.json"
        event = {"ph": "X", "cat": "cpu_op", "name": f"op{number}", "pid": 1, "tid": 1, "dur": 5}
        path.write_text(json.dumps({"traceEvents": [event | {"ts": 10 * i} for i in range(EVENTS)]}))
        open_trace(path, cache=cache)
        fingerprints.append(recording_fingerprint(path))
    return fingerprints


def test_large_traces_are_closed_when_no_request_used_them_for_a_minute(tmp_path: Path) -> None:
    cache, clock = Cache(tmp_path / "cache"), ManualClock()
    first, second, third = store_traces(tmp_path, cache, 3)
    opened = OpenTraces(cache, max_idle_events=2 * EVENTS, clock=clock)
    traces = [opened.get(fingerprint) for fingerprint in (first, second, third)]
    assert opened.get(first) is traces[0], "all of them are in use"
    clock.advance(50)
    assert opened.get(second) is traces[1]
    clock.advance(20)
    assert opened.get(third) is traces[2]  # now the first one has been idle for 70 s
    assert opened.get(second) is traces[1]
    again = opened.get(first)
    assert again is not None
    assert again is not traces[0], "it was closed, and is read from the cache again"


def test_small_traces_stay_open(tmp_path: Path) -> None:
    cache, clock = Cache(tmp_path / "cache"), ManualClock()
    fingerprints = store_traces(tmp_path, cache, 3)
    opened = OpenTraces(cache, max_idle_events=3 * EVENTS, clock=clock)
    traces = [opened.get(fingerprint) for fingerprint in fingerprints]
    clock.advance(3600)
    assert [opened.get(fingerprint) for fingerprint in fingerprints] == traces
