"""Threads that do not work at the same time form one group, found without comparing all their work."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from visualprof.reader import read_trace
from visualprof.reader.trace import Ints, Trace
from visualprof.views import view
from visualprof.views.measure.columns.intervals import intersect, merge, span_length
from visualprof.views.measure.operators.self_time import thread_busy_spans
from visualprof.views.measure.replay.thread_groups import MAX_OVERLAP_SHARE, thread_groups


def trace_of(path: Path, events: list[dict[str, Any]]) -> Trace:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return read_trace(path)


def simple_groups(trace: Trace) -> list[tuple[list[int], list[list[int]]]]:
    groups: list[tuple[list[int], Ints]] = []
    for track, busy in sorted(thread_busy_spans(trace).items(), key=lambda item: -span_length(item[1])):
        for i, (tracks, spans) in enumerate(groups):
            if span_length(intersect(spans, busy)) <= MAX_OVERLAP_SHARE * span_length(busy):
                groups[i] = [*tracks, track], merge(spans, busy)
                break
        else:
            groups.append(([track], busy))
    return [(tracks, spans.tolist()) for tracks, spans in groups]


@pytest.mark.parametrize("seed", range(8))
def test_groups_are_those_of_comparing_all_work(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    length = chance.choice((20, 200, 2000))
    events = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::add",
            "pid": 1,
            "tid": chance.randrange(60),
            "ts": chance.randrange(20_000),
            "dur": chance.randrange(1, length),
        }
        for _ in range(600)
    ]
    trace = trace_of(tmp_path / "t.json", events)
    assert [(group.tracks, group.spans.tolist()) for group in thread_groups(trace)] == simple_groups(trace)


@pytest.mark.parametrize("seed", range(8))
def test_a_range_inside_one_of_its_name_counts_once(tmp_path: Path, seed: int) -> None:
    """Compare with climbing from each range to its callers."""
    chance = random.Random(seed)
    events: list[dict[str, Any]] = []

    def fill(start: int, end: int, tid: int, depth: int) -> None:
        at = start
        while depth < 6 and at + 4 < end:
            stop = min(end, at + chance.randrange(1, 60 - 8 * depth))
            common = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": tid}
            events.append(common | {"name": f"r{chance.randrange(3)}", "ts": at, "dur": stop - at})
            if chance.random() < 0.6:
                fill(at, stop, tid, depth + 1)
            at = stop + chance.randrange(2)

    for tid in (1, 2):
        fill(0, 300, tid, 0)
    trace = trace_of(tmp_path / "t.json", events)
    parent, name = trace.events.parent.tolist(), trace.events.name.tolist()
    counted: dict[str, int] = {}
    for row in range(len(parent)):
        above = parent[row]
        while above >= 0 and name[above] != name[row]:
            above = parent[above]
        if above < 0:
            text = str(trace.strings[name[row]])
            counted[text] = counted.get(text, 0) + 1
    answer: Any = view("overview").compute(trace, view("overview").parse({}))
    columns = answer.annotations.columns
    assert dict(zip(columns.name, columns.calls.tolist(), strict=True)) == counted
