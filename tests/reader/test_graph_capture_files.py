"""Additions of `visualprof.capture` to files: the key `visualprof`, annotations of MegEngine's steps, names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Write
from visualprof.reader import read_trace
from visualprof.reader.logdir.layout import parse_run_path, recording_kind
from visualprof.reader.trace import Category

OP = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
ORT = {"ph": "X", "cat": "Session", "name": "model_run", "pid": 1, "tid": 1, "ts": 5, "dur": 2, "args": {}}
WHEN_NS = 1_700_000_000_000_000_000


@pytest.mark.parametrize(
    ("name", "run", "worker", "stamp", "rank"),
    [
        ("rank3_node7_42.step12.pt.trace.json.gz", "a", "rank3_node7_42", "step12", 3),
        ("node7_42.step0.1.chrome_timeline.json.gz", "a", "node7_42", "step0.1", -1),
        ("node7_42.step0.paddle_trace.json.gz", "a", "node7_42", "step0", -1),
        ("node7_42.step5.profile.json.gz", "a", "node7_42", "step5", -1),
        ("monitor_node8.jsonl", "a", "monitor_node8", "", -1),
        ("first_step2.json", "a/first_step2", "first_step2", "", -1),
    ],
)
def test_a_captured_file_is_a_worker_of_its_folder(name: str, run: str, worker: str, stamp: str, rank: int) -> None:
    run_path = parse_run_path("a", name)
    assert (run_path.run, run_path.worker, run_path.stamp, run_path.rank) == (run, worker, stamp, rank)


def test_monitors_of_other_hosts_are_recordings() -> None:
    assert [recording_kind(w) for w in ("monitor", "monitor_node8", "timeline", "rank0")] == ["monitor"] * 2 + [
        "timeline",
        "",
    ]


def test_rank_and_host_come_from_the_file_name_if_the_format_has_none(write: Write) -> None:
    facts: dict[str, Any] = {"rank": 3, "world_size": 8, "host": "node7", "clock_origin_ns": 5, "align_time": True}
    meta = read_trace(write([OP], baseTimeNanoseconds=WHEN_NS, visualprof=facts)).meta
    assert (meta.rank, meta.world_size, meta.host, meta.clock_origin_ns) == (3, 8, "node7", WHEN_NS)
    info = {"rank": 1, "world_size": 2}
    assert read_trace(write([OP], distributedInfo=info, visualprof=facts)).meta.rank == 1


@pytest.mark.parametrize("facts", [7, [], {"rank": "3", "host": 4, "clock_origin_ns": True, "align_time": 0}])
def test_facts_of_other_types_are_unknown(write: Write, facts: Any) -> None:
    meta = read_trace(write([OP], baseTimeNanoseconds=WHEN_NS, visualprof=facts)).meta
    assert (meta.rank, meta.host, meta.clock_origin_ns) == (-1, "", WHEN_NS)


def test_relative_times_are_undated(write: Write) -> None:
    meta = read_trace(write([OP], baseTimeNanoseconds=WHEN_NS, visualprof={"align_time": False})).meta
    assert meta.clock_origin_ns == -1


def test_a_list_of_onnxruntime_in_an_object_is_read_and_dated(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        json.dumps({"traceEvents": [ORT], "visualprof": {"clock_origin_ns": WHEN_NS}}, separators=(",", ":"))
    )
    meta = read_trace(path).meta
    assert (meta.format, meta.clock_origin_ns) == ("onnxruntime", WHEN_NS)


@pytest.mark.parametrize(("user", "inner"), [(5, Category.OPTIMIZER), (1, Category.ANNOTATION)])
def test_steps_of_megengine_are_those_marked_by_capture(tmp_path: Path, user: int, inner: Category) -> None:
    """Steps 7 and 8 of 10 us with a backward pass at 2-4; `step` at 5-6 is the optimizer's, at 1-6 the user's."""
    spans = [(f"ProfilerStep#{7 + i}", 10 * i, 10) for i in range(2)] + [("AfterTheStep 9", 20, 5)]
    spans += [row for i in range(2) for row in (("backward", 10 * i + 2, 2), ("step", 10 * i + user, 6 - user))]
    events: list[dict[str, Any]] = [
        {"ph": ph, "name": name, "pid": 9, "tid": 1, "ts": at}
        for name, ts, dur in spans
        for ph, at in (("B", ts), ("E", ts + dur))
    ]
    events.sort(key=lambda e: (e["ts"], e["ph"] == "B"))
    events.append({"ph": "M", "name": "thread_name", "pid": 9, "tid": 1, "args": {"name": "interpreter"}})
    path = tmp_path / "9.chrome_timeline.json"
    path.write_text(json.dumps({"traceEvents": events, "metadata": {"localTime": str(WHEN_NS)}}))
    trace = read_trace(path)
    assert [trace.strings[n] for n in trace.steps.name] == ["7", "8"]
    assert trace.steps.dur.tolist() == [10_000, 10_000]
    named = [trace.strings[n] == "step" for n in trace.events.name]
    assert set(trace.events.category[named].tolist()) == {inner}
    assert trace.meta.clock_origin_ns == WHEN_NS  # 19 digits
