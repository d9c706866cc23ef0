"""The table of blocks of a memory snapshot, against the truth that the simulated allocator wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest

import visualprof
from tests.conftest import FIXTURES, SAMPLES
from visualprof.api import OpenedProfile

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
