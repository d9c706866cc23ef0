"""Sums over deduplicated launches equal those over all launches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import json_of
from tests.graphs import LAYER, Event, capture, joined, names_of, replay, span
from visualprof.reader.trace import LinkKind, Trace
from visualprof.views import view
from visualprof.views.measure.operators.graph_dedup import dedup_graphs


def recording() -> list[Event]:
    """Return twelve launches of 300 us: in steps, called from Python or inside operators, and with unknown kernels."""
    events: list[Event] = []
    for i in range(12):
        names, start = names_of(3), 100 + 300 * i
        if i % 5 == 3:
            names = [*names[:4], "new", *names[4:]]
        if i == 11:
            names = ["z"] * 4
        launch = replay(names, at=start, correlation=i + 1)
        for position, event in enumerate(launch):
            event["dur"] += (position * i) % 3  # all launches have different durations
        events += launch
        if i % 3 == 0:
            events.append(span("python_function", f"model.py({i % 2}): run", start - 20, 260))
        if i % 4 == 1:
            events.append(span("cpu_op", "graph::replay", start - 2, 20, **{"Input Dims": [[i]]}))
        if i >= 6:
            events.append(span("user_annotation", f"ProfilerStep#{i // 2}", start - 30, 290))
    return events


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return joined(tmp_path, recording(), {"a.json": capture(3)})


def operators(trace: Trace, params: dict[str, str]) -> dict[str, Any]:
    chosen = view("operator")
    return json_of(chosen.compute(trace, chosen.parse(params)))


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"group": "shape"},
        {"group": "stack"},
        {"step": "4"},
        {"step": "5", "group": "stack"},
        {"operator": "aten::mm"},
        {"module": "a/Layer_1"},
    ],
)
def test_the_operator_table_is_unchanged(trace: Trace, params: dict[str, str]) -> None:
    expanded = trace.with_columns()  # without merged launches
    assert dedup_graphs(expanded).weight is None
    table = operators(trace, params)
    assert table == operators(expanded, params)
    assert sum(table["columns"]["calls"]) > 0


def test_one_launch_represents_all_similar_launches(trace: Trace) -> None:
    """0 and 6 have the same caller; 2, 4, 7 and 10 have none; 1, 5 and 9 are inside operators.

    3 and 8 contain a new kernel and have different callers; the kernels of 11 are all unknown.
    """
    reduced = dedup_graphs(trace)
    assert reduced.weight is not None
    links = reduced.trace.links
    weights = reduced.weight[links.src[links.kind == LinkKind.OWNER]]
    layer_events = 3 * len(LAYER)
    assert Counter(weights.tolist()) == {
        2: layer_events,
        4: layer_events,
        1: 3 * layer_events + 2 * (layer_events + 1) + 4,
    }
    is_gemm, is_reduced_gemm = (
        each_trace.events.name == list(trace.strings).index("gemm") for each_trace in (trace, reduced.trace)
    )
    assert int(reduced.weight[is_reduced_gemm].sum()) == np.count_nonzero(is_gemm) == 3 * 11
    assert int(reduced.trace.events.dur[is_reduced_gemm].sum()) == int(trace.events.dur[is_gemm].sum())


def test_deduplication_does_not_expand_launches_into_events(trace: Trace) -> None:
    operators(trace, {})
    assert "events" not in trace.derived
