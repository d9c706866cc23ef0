"""The monitor's samples that a remote run adds to a profile as counter events."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES, trace_of
from visualprof.reader import Trace, read_trace
from visualprof.reader.trace import TrackKind

TRACES = [
    "onnxruntime-cpu/if_loop.json.gz",
    "pytorch-ddp-cpu/rank0.pt.trace.json.gz",
    "megengine-train/1890.chrome_timeline.json.gz",
]


def with_counters(path: Path, folder: Path) -> Path:
    document: Any = json.loads(gzip.decompress(path.read_bytes()))
    events = document if isinstance(document, list) else document["traceEvents"]
    first = next(float(e["ts"]) for e in events if e.get("ph") in ("X", "B") and float(e["ts"]) >= 0)
    for i, value in enumerate((12.5, 99, 0)):
        event = {"ph": "C", "name": "CPU %", "ts": first + i * 10, "pid": 1, "tid": 0, "args": {"value": value}}
        events.append(event)
    (folder / "profile.json").write_text(json.dumps(document))
    return folder / "profile.json"


def counter(trace: Trace, name: str) -> list[float]:
    at = [i for i, t in enumerate(trace.tracks) if t.kind is TrackKind.COUNTER and t.name == name]
    assert len(at) == 1
    return trace.counters.value[trace.counters.track == at[0]].tolist()


@pytest.mark.parametrize("name", TRACES)
def test_counter_events_become_a_counter_track(name: str, tmp_path: Path):
    trace = read_trace(with_counters(SAMPLES / name, tmp_path))
    assert counter(trace, "CPU %") == [12.5, 99.0, 0.0]


@pytest.mark.parametrize("name", TRACES)
def test_counter_events_change_nothing_else(name: str, tmp_path: Path):
    plain, trace = trace_of(SAMPLES / name), read_trace(with_counters(SAMPLES / name, tmp_path))
    assert trace.meta.format == plain.meta.format
    assert trace.meta.warnings == plain.meta.warnings
    assert len(trace.events) == len(plain.events)
    assert trace.span_ns == plain.span_ns
    assert len(trace.steps) == len(plain.steps)
