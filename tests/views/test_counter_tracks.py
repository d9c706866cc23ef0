"""Counters derived from memory events and kernels of a hand-made trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conftest import Write, trace_of
from visualprof.views.measure.timeline.counter_tracks import UTILIZATION_BUCKETS, counter_tracks


def test_derived_counters_follow_the_counters_of_the_file(write: Write) -> None:
    """A recording of 1 ms has a kernel in its second quarter. 100 bytes are allocated at 0.1 ms, 60
    released at 0.5 ms.
    """

    def memory(ts: float, size: int, total: int) -> dict[str, Any]:
        args = {
            "Device Type": 1,
            "Device Id": 0,
            "Addr": 7,
            "Bytes": size,
            "Total Allocated": total,
            "Total Reserved": 512,
        }
        return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args}

    args = {"device": 0, "stream": 7, "correlation": 1}
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 0, "dur": 1000},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 250, "dur": 250, "args": args},
        {"ph": "C", "name": "queue", "pid": 1, "ts": 5, "args": {"value": 3}},
        memory(100, 100, 100),
        memory(500, -60, 40),
    ]
    trace = trace_of(write(events))
    tracks = {counter.name: counter for counter in counter_tracks(trace).values()}
    assert list(tracks) == [
        "queue",
        "cuda:0 memory allocated bytes",
        "cuda:0 memory reserved bytes",
        "cuda:0 utilization %",
    ]
    assert tracks["cuda:0 memory allocated bytes"].ts.tolist() == [100_000, 500_000]
    assert tracks["cuda:0 memory allocated bytes"].value.tolist() == [100, 40]
    assert tracks["cuda:0 memory reserved bytes"].value.tolist() == [512, 512]
    share = tracks["cuda:0 utilization %"].value
    assert share.tolist() == [0] * (UTILIZATION_BUCKETS // 4) + [100] * (UTILIZATION_BUCKETS // 4) + [0] * (
        UTILIZATION_BUCKETS // 2
    )
    numbers = list(counter_tracks(trace))
    assert numbers == sorted(numbers)
    assert numbers[1] == len(trace.tracks)
    assert np.all(np.diff(tracks["cuda:0 utilization %"].ts) > 0)
