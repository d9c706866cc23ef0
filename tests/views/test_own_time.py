"""What threads did within a stretch: the same whether only what lies there is looked at, or all of the thread."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import SAMPLES, trace_of
from visualprof.reader.trace import TrackKind
from visualprof.views.measure.intervals import covered_ns, span_length, subtract, union
from visualprof.views.measure.self_time import self_times


@pytest.mark.parametrize("name", ["pytorch-h200/cnn", "pytorch-h200/compiled", "pytorch-ddp-cpu/rank0"])
def test_own_time_in_a_stretch_is_that_of_all_events_of_the_thread(name: str) -> None:
    trace = trace_of(SAMPLES / f"{name}.pt.trace.json.gz")
    events, random = trace.events, np.random.default_rng(0)
    threads = [i for i, track in enumerate(trace.tracks) if track.kind == TrackKind.THREAD and track.count]
    number = max(threads, key=lambda i: trace.tracks[i].count)
    mine = np.arange(trace.tracks[number].first, trace.tracks[number].first + trace.tracks[number].count)
    edges = np.concatenate((events.ts[mine], events.end[mine]))  # stretches that begin or end where events do, too
    for _ in range(40):
        low, high = np.sort(random.choice(edges, 2, replace=False)).tolist()
        spans = np.array([[low, high]]) if high > low else np.zeros((0, 2), np.int64)
        own = covered_ns(spans, events.ts[mine], events.end[mine])
        nested = events.parent[mine] >= 0
        own -= np.bincount(events.parent[mine][nested] - mine[0], own[nested], len(mine)).astype(np.int64)
        some = own > 0
        found = self_times(trace, (number,), spans)
        assert dict(zip(found.rows.tolist(), found.ns.tolist(), strict=True)) == dict(
            zip(mine[some].tolist(), own[some].tolist(), strict=True)
        )
        assert found.outside_ns == span_length(subtract(spans, union(events.ts[mine], events.end[mine])))


def test_nothing_is_done_in_no_time() -> None:
    trace = trace_of(SAMPLES / "pytorch-h200/cnn.pt.trace.json.gz")
    assert len(self_times(trace, (0,), np.zeros((0, 2), np.int64)).rows) == 0
