"""Frames have the rows, ids and times of SQL, share the memory of the trace, and keep apart several traces."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import visualprof
from tests.conftest import SAMPLES
from visualprof.api import OpenedProfile
from visualprof.errors import NotFound
from visualprof.query.schema import TABLES

pd = pytest.importorskip("pandas")
pytest.importorskip("duckdb")
RANKS = SAMPLES / "synthetic-4gpu"
CNN = SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"
FRAMES = [name for name in TABLES if name not in ("args", "trace")]
ID_COLUMNS = {
    "slice": "id", "track": "id", "thread": "utid", "process": "upid", "counter_track": "id", "step": "id",
    "kernel": "id", "op": "id", "range": "id", "module": "id", "gap": "id", "allocation": "id", "memory": "id",
    "collective": "id",
}  # fmt: skip


@pytest.fixture(scope="module")
def several() -> OpenedProfile:
    """Two different traces, one of them twice."""
    return visualprof.open([CNN, RANKS / "rank0.pt.trace.json.gz", CNN])


def known(value: Any) -> Any:
    """A value of a frame, None if it is missing."""
    return None if value is None or value is pd.NA or value != value else value


@pytest.mark.parametrize("table", FRAMES)
def test_a_frame_equals_the_table_in_sql(several: OpenedProfile, table: str) -> None:
    names = [name for name in TABLES[table].columns if name != "stack"]
    frame = several.table(table, names)
    rows = several.sql(
        f'SELECT {", ".join(map(chr(34).__add__, (f"{n}{chr(34)}" for n in names)))} FROM "{table}"'
    ).rows
    assert len(frame) == len(rows)
    for i, name in enumerate(names):
        expected = [known(row[i]) for row in rows]
        assert sorted(map(repr, map(known, frame[name].tolist()))) == sorted(map(repr, expected)), name


@pytest.mark.parametrize("table", ID_COLUMNS)
def test_ids_are_unique_over_all_traces(several: OpenedProfile, table: str) -> None:
    column = ID_COLUMNS[table]
    ((rows, ids),) = several.sql(f"SELECT count(*), count(DISTINCT {column}) FROM {table}").rows
    assert rows == ids


def test_ids_lead_to_rows_of_the_same_trace(several: OpenedProfile) -> None:
    joins = {
        "memory": "allocation a JOIN memory b ON a.id = b.id AND a.bytes = b.bytes",
        "event": "allocation a JOIN slice b ON a.event_id = b.id",
        "step": "kernel a JOIN step b ON a.step_id = b.id AND a.step = b.name",
        "track": "slice a JOIN track b ON a.track_id = b.id",
        "thread": "track a JOIN thread b ON a.utid = b.utid",
        "process": "thread a JOIN process b ON a.upid = b.upid",
        "gap": "gap a JOIN slice b ON a.next_id = b.id AND b.name = a.next",
    }
    for name, join in joins.items():
        ((rows, same),) = several.sql(f"SELECT count(*), count(*) FILTER (WHERE a.trace = b.trace) FROM {join}").rows
        assert rows == same > 0, name


def test_the_same_trace_twice_has_the_same_rows(several: OpenedProfile) -> None:
    kernels = several.kernels
    first, second = (kernels[kernels["trace"] == number].reset_index(drop=True) for number in (0, 2))
    assert len(first) > 0
    same = [name for name in kernels.columns if not name.endswith("id") and name != "trace"]
    pd.testing.assert_frame_equal(first[same], second[same])


def test_columns_that_the_trace_stores_are_shared_and_read_only() -> None:
    opened = visualprof.open(CNN)
    tracks = opened.events["track_id"].to_numpy()
    assert np.shares_memory(tracks, opened.traces[0].events.track)
    assert not tracks.flags.writeable
    frame = opened.events
    frame["twice"] = frame["dur"] * 2
    assert frame["twice"].sum() == 2 * opened.events["dur"].sum()


def test_all_traces_have_the_same_columns() -> None:
    cpu = visualprof.open(SAMPLES / "pytorch-cpu")
    gpu = visualprof.open(CNN)
    for name in ("kernels", "operators", "events", "steps", "allocations", "modules", "collectives", "gaps"):
        ours, theirs = getattr(cpu, name), getattr(gpu, name)
        assert list(ours.columns) == list(theirs.columns), name
        assert "stack" not in ours.columns


def test_unknown_numbers_are_missing_and_texts_are_categories() -> None:
    kernels = visualprof.open(CNN).kernels
    assert str(kernels["launch_delay"].dtype) in ("int64", "Int64")
    assert str(kernels["name"].dtype) == "category"
    assert set(kernels["name"].cat.categories) == set(kernels["name"])


def test_an_unknown_table_or_column_is_named(several: OpenedProfile) -> None:
    with pytest.raises(NotFound, match="no table 'kernels'"):
        several.table("kernels")
    with pytest.raises(NotFound, match="no column 'duration'"):
        several.table("kernel", ["duration"])


def test_a_run_of_several_ranks_has_their_ranks(tmp_path: Path) -> None:
    run = Path(shutil.copytree(RANKS, tmp_path / "run"))
    kernels = visualprof.open(run).kernels
    assert sorted(kernels["rank"].unique()) == [0, 1, 2, 3]
    sums = visualprof.open(run).sql("SELECT sum(dur) FROM kernel GROUP BY rank ORDER BY rank").rows
    assert [(kernels["dur"][kernels["rank"] == rank].sum(),) for rank in range(4)] == sums
