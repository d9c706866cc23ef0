"""Files of trtexec, written by hand as its source writes them; every number is worked out here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import answer, rows
from tests.reader.test_formats import check_invariants
from visualprof.errors import FormatError
from visualprof.reader import Trace, read_trace

Write = Callable[[str], Path]

PROFILE = """[
  { "count" : 100 }
, { "name" : "conv1 + relu1", "timeMs" : 30, "averageMs" : 0.3, "medianMs" : 0.29, "percentage" : 75 }
, { "name" : "fc", "timeMs" : 10, "averageMs" : 0.1, "medianMs" : 0.1, "percentage" : 25 }
]
"""
# Two runs: the second's copy in, and its enqueuing, overlap the first's computing.
TIMES = """[
  { "startEnqMs" : 1000.0, "endEnqMs" : 1000.05, "startH2dMs" : 1000.1, "endH2dMs" : 1000.2,
    "startComputeMs" : 1000.2, "endComputeMs" : 1001.2, "startD2hMs" : 1001.2, "endD2hMs" : 1001.25,
    "h2dMs" : 0.1, "computeMs" : 1, "d2hMs" : 0.05, "latencyMs" : 1.15 }
, { "startEnqMs" : 1000.5, "endEnqMs" : 1000.55, "startH2dMs" : 1000.6, "endH2dMs" : 1000.7,
    "startComputeMs" : 1001.2, "endComputeMs" : 1002.1, "startD2hMs" : 1002.1, "endD2hMs" : 1002.15,
    "h2dMs" : 0.1, "computeMs" : 0.9, "d2hMs" : 0.05, "latencyMs" : 1.05 }
]
"""
OLD = """[
  { "startInMs" : 0, "endInMs" : 0.1, "startComputeMs" : 0.1, "endComputeMs" : 0.6, "startOutMs" : 0.6,
    "endOutMs" : 0.7 }
]
"""


@pytest.fixture
def file(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "trtexec.json"
        path.write_text(text)
        return path

    return write


def events(trace: Trace) -> list[tuple[str, int, int]]:
    names = [trace.strings[i] for i in trace.events.name]
    return sorted(zip(names, trace.events.ts.tolist(), trace.events.dur.tolist(), strict=True), key=lambda e: e[1])


def test_layers_are_placed_end_to_end_with_their_mean_times(file: Write) -> None:
    trace = read_trace(file(PROFILE))
    check_invariants(trace)
    assert events(trace) == [("conv1 + relu1", 0, 300_000), ("fc", 300_000, 100_000)]
    assert trace.meta.framework == "tensorrt"
    assert trace.meta.properties == {"runs": "100"}
    assert any("mean durations of 100 runs" in warning for warning in trace.meta.warnings)
    assert rows(answer("operator", file(PROFILE)), "host_self_ns") == {"conv1 + relu1": [300_000], "fc": [100_000]}


def test_runs_are_steps_and_their_parts_may_overlap(file: Write) -> None:
    trace = read_trace(file(TIMES))
    check_invariants(trace)
    assert events(trace) == [
        ("enqueue", 0, 50_000),
        ("copy in", 100_000, 100_000),
        ("compute", 200_000, 1_000_000),
        ("enqueue", 500_000, 50_000),
        ("copy in", 600_000, 100_000),
        ("compute", 1_200_000, 900_000),
        ("copy out", 1_200_000, 50_000),
        ("copy out", 2_100_000, 50_000),
    ]
    result = answer("overview", file(TIMES))
    assert list(result["steps"]["name"]) == ["0", "1"]
    assert list(result["steps"]["total_ns"]) == [1_000_000, 900_000]


def test_older_versions_name_the_copies_otherwise(file: Write) -> None:
    assert events(read_trace(file(OLD))) == [
        ("copy in", 0, 100_000),
        ("compute", 100_000, 500_000),
        ("copy out", 600_000, 100_000),
    ]


def test_another_list_is_not_mistaken_for_layers(file: Write) -> None:
    other = json.dumps([{"ph": "X", "name": "startComputeMs", "ts": 0, "dur": 1, "pid": 1, "tid": 1}])
    assert read_trace(file(other)).meta.framework != "tensorrt"


def test_cut_and_odd_files_are_clear(file: Write) -> None:
    with pytest.raises(FormatError, match="not a whole file of trtexec"):
        read_trace(file(PROFILE[:150]))
    odd = '[{"count": "many"}, {"name": 5, "averageMs": -1, "timeMs": 1}, {"name": "a", "averageMs": 1e300}]'
    assert events(read_trace(file(odd))) == [("(unnamed)", 0, 0), ("a", 0, 0)]
