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
from visualprof.remote.agent.work.monitor_samples import ProfileTrace, add_counters

TRACES = [
    "onnxruntime-cpu/if_loop.json.gz",
    "pytorch-ddp-cpu/rank0.pt.trace.json.gz",
    "megengine-train/1890.chrome_timeline.json.gz",
]


def first_stamp(events: list[dict[str, Any]]) -> float:
    return min(float(e["ts"]) for e in events if e.get("ph") in ("X", "B") and float(e["ts"]) >= 0)


def with_counters(path: Path, folder: Path) -> Path:
    document: Any = json.loads(gzip.decompress(path.read_bytes()))
    events = document if isinstance(document, list) else document["traceEvents"]
    first = first_stamp(events)
    for i, value in enumerate((12.5, 99, 0)):
        event = {"ph": "C", "name": "CPU %", "ts": first + i * 10, "pid": 1, "tid": 0, "args": {"value": value}}
        events.append(event)
    (folder / "profile.json").write_text(json.dumps(document))
    return folder / "profile.json"


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("ticks", [50, 2000])
def test_counters_of_the_agent_do_not_change_the_format(name: str, ticks: int, tmp_path: Path) -> None:
    """As the agent adds them: to an object at its start, where they fill the head that formats are told by."""
    origin, path = 1_795_147_594_532_800_000, tmp_path / "timeline.json"
    path.write_bytes(gzip.decompress((SAMPLES / name).read_bytes()))
    document: Any = json.loads(path.read_bytes())
    listed = isinstance(document, list)
    start = origin + round(first_stamp(document if listed else document["traceEvents"]) * 1000)
    sample = {
        "phase": "profiling",
        "batch": 1,
        "cpu": 0.5,
        "child_cpu": 0.2,
        "pressure": 0.1,
        "rss_bytes": 10**9,
        "gpus": [{"util": 0.5, "sm_mhz": 1700, "power_w": 300.5, "temperature_c": 50}],
    }
    lines = [{"schema": "visualprof.monitor/1"}, *({"t_ns": start + i * 10**6, **sample} for i in range(ticks))]
    (tmp_path / "monitor.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    kind = "chrome_list" if listed else "chrome_object"
    profile = ProfileTrace(path, kind, origin, start, start + ticks * 10**6, 1)
    assert add_counters(profile, tmp_path / "monitor.jsonl") == 8 * ticks
    trace = read_trace(path)
    assert trace.meta.format == trace_of(SAMPLES / name).meta.format
    assert counter(trace, "CPU %") == [50.0] * ticks
    assert counter(trace, "GPU0 SM clock MHz") == [1700.0] * ticks


def counter(trace: Trace, name: str) -> list[float]:
    at = [i for i, t in enumerate(trace.tracks) if t.kind is TrackKind.COUNTER and t.name == name]
    assert len(at) == 1
    return trace.counters.value[trace.counters.track == at[0]].tolist()


@pytest.mark.parametrize("name", TRACES)
def test_counter_events_become_a_counter_track(name: str, tmp_path: Path) -> None:
    trace = read_trace(with_counters(SAMPLES / name, tmp_path))
    assert counter(trace, "CPU %") == [12.5, 99.0, 0.0]


@pytest.mark.parametrize("name", TRACES)
def test_counter_events_change_nothing_else(name: str, tmp_path: Path) -> None:
    plain, trace = trace_of(SAMPLES / name), read_trace(with_counters(SAMPLES / name, tmp_path))
    assert trace.meta.format == plain.meta.format
    assert trace.meta.warnings == plain.meta.warnings
    assert len(trace.events) == len(plain.events)
    assert trace.span_ns == plain.span_ns
    assert len(trace.steps) == len(plain.steps)
