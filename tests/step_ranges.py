"""A trace with two annotated steps, and ranges of two other kinds that can be chosen as steps."""

from __future__ import annotations

import json


def ranged_trace(slowdown_us: int = 0) -> bytes:
    """Return a trace whose steps 7 and 8 take 100 us, with a range `load` of 10 us and `work` of 80 and 70 us in each.

    Args:
        slowdown_us: Additional duration of each range `work`.
    """
    place = {"ph": "X", "pid": 1, "tid": 1}
    steps = [("ProfilerStep#7", 0, 100), ("ProfilerStep#8", 100, 100)]
    ranges = [("load", 0, 10), ("work", 10, 80 + slowdown_us), ("load", 100, 10), ("work", 110, 70 + slowdown_us)]
    events = [
        {**place, "cat": "user_annotation", "name": name, "ts": ts, "dur": dur} for name, ts, dur in (*steps, *ranges)
    ]
    events += [{**place, "cat": "cpu_op", "name": "aten::mm", "ts": ts + 1, "dur": 1} for _, ts, _ in ranges]
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
