"""Sums of launches of which one stands for all that are alike are those of all launches."""

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
from visualprof.views.measure.graph_dedup import dedup_graphs


def recording() -> list[Event]:
    """Twelve launches of 300 us: some in steps, some called from elsewhere or within operators, some unexplained."""
    events: list[Event] = []
    for i in range(12):
        names, at = names_of(3), 100 + 300 * i
        if i % 5 == 3:
            names = [*names[:4], "new", *names[4:]]
        if i == 11:
            names = ["z"] * 4
        launch = replay(names, at=at, correlation=i + 1)
        for place, event in enumerate(launch):
            event["dur"] += (place * i) % 3  # no two launches take as long
        events += launch
        if i % 3 == 0:
            events.append(span("python_function", f"model.py({i % 2}): run", at - 20, 260))
        if i % 4 == 1:
            events.append(span("cpu_op", "graph::replay", at - 2, 20, **{"Input Dims": [[i]]}))
        if i >= 6:
            events.append(span("user_annotation", f"ProfilerStep#{i // 2}", at - 30, 290))
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
        {}, {"group": "shape"}, {"group": "stack"}, {"step": "4"}, {"step": "5", "group": "stack"},
        {"operator": "aten::mm"}, {"module": "a/Layer_1"},
    ],
)  # fmt: skip
def test_the_table_of_operators_is_the_same(trace: Trace, params: dict[str, str]) -> None:
    every = trace.with_columns()  # each launch by itself
    assert dedup_graphs(every).weight is None
    found = operators(trace, params)
    assert found == operators(every, params)
    assert sum(found["columns"]["calls"]) > 0


def test_one_launch_stands_for_all_that_are_alike(trace: Trace) -> None:
    """0 and 6 are called from one place and 2, 4, 7 and 10 from nowhere; 1, 5 and 9 stand in operators.

    Of 3 and 8, with a kernel that is new, one is called from another place; the kernels of 11 are not known at all.
    """
    few = dedup_graphs(trace)
    assert few.weight is not None
    links = few.trace.links
    launched = few.weight[links.src[links.kind == LinkKind.OWNER]]
    whole = 3 * len(LAYER)
    assert Counter(launched.tolist()) == {2: whole, 4: whole, 1: 3 * whole + 2 * (whole + 1) + 4}
    rows, few_rows = (one.events.name == list(trace.strings).index("gemm") for one in (trace, few.trace))
    assert int(few.weight[few_rows].sum()) == np.count_nonzero(rows) == 3 * 11
    assert int(few.trace.events.dur[few_rows].sum()) == int(trace.events.dur[rows].sum())


def test_launches_are_not_made_into_events_for_it(trace: Trace) -> None:
    operators(trace, {})
    assert "events" not in trace.derived
