"""Self time of threads within an interval equals that computed from all events of the thread."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import SAMPLES, trace_of
from visualprof.reader.trace import TrackKind
from visualprof.views.measure.columns.intervals import covered_ns, span_length, subtract, union
from visualprof.views.measure.operators.self_time import self_times


@pytest.mark.parametrize("library", ["c", "numpy"])
@pytest.mark.parametrize("name", ["pytorch-h200/cnn", "pytorch-h200/compiled", "pytorch-ddp-cpu/rank0"])
def test_self_time_in_an_interval_equals_that_from_all_events(
    name: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library == "numpy":
        monkeypatch.setattr("visualprof.views.measure.operators.self_time.function", lambda *_: None)
    trace = trace_of(SAMPLES / f"{name}.pt.trace.json.gz")
    events, random = trace.events, np.random.default_rng(0)
    threads = [i for i, track in enumerate(trace.tracks) if track.kind == TrackKind.THREAD and track.count]
    track_number = max(threads, key=lambda i: trace.tracks[i].count)
    rows = np.arange(
        trace.tracks[track_number].first, trace.tracks[track_number].first + trace.tracks[track_number].count
    )
    edges = np.concatenate((events.ts[rows], events.end[rows]))  # intervals that begin and end where events do
    for _ in range(40):
        start, end = np.sort(random.choice(edges, 2, replace=False)).tolist()
        spans = np.array([[start, end]]) if end > start else np.zeros((0, 2), np.int64)
        expected = covered_ns(spans, events.ts[rows], events.end[rows])
        nested = events.parent[rows] >= 0
        expected -= np.bincount(events.parent[rows][nested] - rows[0], expected[nested], len(rows)).astype(np.int64)
        is_positive = expected > 0
        result = self_times(trace, (track_number,), spans)
        assert dict(zip(result.rows.tolist(), result.ns.tolist(), strict=True)) == dict(
            zip(rows[is_positive].tolist(), expected[is_positive].tolist(), strict=True)
        )
        assert result.outside_ns == span_length(subtract(spans, union(events.ts[rows], events.end[rows])))


def test_an_empty_interval_has_no_self_time() -> None:
    trace = trace_of(SAMPLES / "pytorch-h200/cnn.pt.trace.json.gz")
    assert len(self_times(trace, (0,), np.zeros((0, 2), np.int64)).rows) == 0
