"""The table of blocks of a memory snapshot, against the truth that the simulated allocator wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import visualprof
from tests.conftest import FIXTURES, SAMPLES
from tests.reader.test_snapshot_origins import recorded_allocations, write_recording, write_snapshot
from visualprof.api import OpenedProfile
from visualprof.query.tables.memory import blocks_of_allocs

pytest.importorskip("duckdb")
FOLDER = FIXTURES / "memory_snapshots"
TRUTH: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text())


@pytest.fixture(scope="module")
def snapshot() -> OpenedProfile:
    return visualprof.open(FOLDER / "train_oom.pickle")


def test_blocks_at_the_peak(snapshot: OpenedProfile) -> None:
    peak = TRUTH["train_oom.pickle"]["peak"]
    at = f"entry <= {peak['event']} AND (freed_entry > {peak['event']} OR freed_entry IS NULL)"
    ((requested, number),) = snapshot.sql(f"SELECT sum(requested), count(*) FROM block WHERE {at}").rows
    assert requested == peak["requested_bytes"]
    assert number == 93  # as in the map of the page
    rows = snapshot.sql(f"SELECT category, sum(requested) FROM block WHERE {at} GROUP BY ALL").rows
    held = dict(rows)
    assert held["optimizer_state"] == peak["by_category"]["optimizer_state"]


def test_the_line_that_leaks_by_step(snapshot: OpenedProfile) -> None:
    leak = TRUTH["train_oom.pickle"]["leak"]
    rows = snapshot.sql(
        "SELECT step, sum(requested), any_value(function) FROM block"
        " WHERE line LIKE '%metrics.py:22%' AND freed_ts IS NULL GROUP BY step ORDER BY step"
    ).rows
    assert [size for _, size, _ in rows] == leak["bytes_per_step"]
    assert {(step.split("#")[0], function) for step, _, function in rows} == {("ProfilerStep", "remember")}


def test_times_are_those_of_the_entries(snapshot: OpenedProfile) -> None:
    rows = snapshot.sql("SELECT entry, ts, lifetime, freed_ts FROM block ORDER BY entry").rows
    assert all(freed is None or lifetime == freed - ts for _, ts, lifetime, freed in rows)
    assert [ts for _, ts, *_ in rows] == sorted(ts for _, ts, *_ in rows)
    ((first,),) = snapshot.sql("SELECT min(ts) FROM slice").rows
    assert rows[0][1] >= first


def test_blocks_older_than_the_history_have_no_time() -> None:
    opened = visualprof.open(FOLDER / "train_ring_buffer.pickle.gz")
    ((older, unknown),) = opened.sql("SELECT count(*), count(ts) FROM block WHERE entry IS NULL").rows
    assert (older, unknown) == (128, 0)


def test_other_recordings_have_no_blocks() -> None:
    opened = visualprof.open(SAMPLES / "pytorch-cpu" / "gpt.pt.trace.json.gz")
    assert opened.sql("SELECT count(*) FROM block").rows == [(0,)]


@pytest.mark.parametrize("name", ["train_oom.pickle", "train_ring_buffer.pickle.gz", "torch_2_0_history.pickle"])
def test_allocations_are_the_blocks_of_a_snapshot(name: str) -> None:
    trace = visualprof.read_trace(FOLDER / name)
    assert trace.heap is not None
    block = blocks_of_allocs(trace, trace.heap)
    rows = np.flatnonzero(block >= 0)
    assert sorted(block[rows].tolist()) == list(range(len(trace.heap.blocks.addr)))
    assert trace.allocs.addr[rows].tolist() == trace.heap.blocks.addr[block[rows]].tolist()
    assert trace.allocs.bytes[rows].tolist() == trace.heap.blocks.size[block[rows]].tolist()


def test_operators_and_modules_are_those_of_the_joined_recording(tmp_path: Path) -> None:
    path = write_snapshot(tmp_path / "host_1.memory_snapshot.pickle")
    write_recording(tmp_path / "host_1.step4.pt.trace.json", recorded_allocations())
    opened = visualprof.open(path)
    allocations = opened.sql("SELECT bytes, operator, module, op FROM allocation ORDER BY ts").rows
    assert allocations == [
        (4096, "aten::mm", "Net_0/Linear_0", None),
        (1024, "aten::mm", "Net_0/Linear_0", None),
        (8192, "aten::relu", "Net_0", None),
        (2048, None, "model.py:10", None),
        (16384, "aten::empty", "Net_0/Linear_0", None),
    ]
    assert opened.sql("SELECT bytes, operator, module, NULL FROM block ORDER BY ts").rows == allocations


def test_a_snapshot_without_a_recording_has_no_operators(snapshot: OpenedProfile) -> None:
    for table in ("block", "allocation"):
        ((number, known),) = snapshot.sql(f"SELECT count(*), count(operator) FROM {table}").rows
        assert number > 0
        assert known == 0


def test_allocations_of_a_recording_have_their_own_operators() -> None:
    opened = visualprof.open(SAMPLES / "pytorch-cpu" / "gpt.pt.trace.json.gz")
    ((known, same),) = opened.sql("SELECT count(operator), count(*) FILTER (operator = op) FROM allocation").rows
    assert known == same > 0
