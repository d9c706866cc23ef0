"""Events inside launches: expanded after the definition, in C and in Python, from the cache and on demand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.graphs import capture, joined, kernel, names_of, put, replay, span
from tests.reader.test_cache import assert_same
from tests.reader.test_columns import both, in_python
from visualprof.reader import read_trace
from visualprof.reader.cache import Cache, open_trace
from visualprof.reader.graph_capture.launches import graph_launches
from visualprof.reader.trace import Category, Events, LinkKind, Trace, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.expansion import expand_graphs
from visualprof.reader.trace.graphs import Graphs
from visualprof.reader.trace.joined import JoinedTrace


class Inside(NamedTuple):
    """parent: of each node, -1 for the first. owner: node of each kernel; each node has a kernel at or below it."""

    parent: list[int]
    owner: list[int]


class Launch(NamedTuple):
    template: int
    stream: int
    kernels: list[tuple[int, int]]  # start and duration


@st.composite
def templates(draw: st.DrawFn) -> Inside:
    count = draw(st.integers(1, 5))
    parent = [-1, *(draw(st.integers(0, i - 1)) for i in range(1, count))]
    owner = draw(st.lists(st.integers(0, count - 1), max_size=4)) + list(range(count))
    return Inside(parent, draw(st.permutations(owner)))


@st.composite
def recordings(draw: st.DrawFn) -> tuple[list[Inside], list[Launch]]:
    """Launches on two streams whose kernels come in any order, overlap, and take no time or the same."""
    inside = draw(st.lists(templates(), min_size=1, max_size=3))
    launches: list[Launch] = []
    for _ in range(draw(st.integers(1, 6))):
        template = draw(st.integers(0, len(inside) - 1))
        times = st.tuples(st.integers(0, 50), st.integers(0, 9))
        size = len(inside[template].owner)
        kernels = draw(st.lists(times, min_size=size, max_size=size))
        launches.append(Launch(template, draw(st.integers(0, 1)), sorted(kernels, key=lambda one: one[0])))
    return inside, launches


def built(inside: Sequence[Inside], launches: Sequence[Launch]) -> tuple[Trace, Graphs]:
    builder = TraceBuilder("test")
    thread = builder.track(TrackKind.THREAD, "thread")
    streams = [builder.track(TrackKind.STREAM, f"stream {i}", tid=str(i)) for i in range(2)]
    kernels = [(*one, streams[launch.stream]) for launch in launches for one in launch.kernels]
    calls = [(i, 1, thread) for i in range(len(launches))]
    ts, dur, track = np.array(calls + kernels, np.int64).T
    kind = np.repeat([Category.RUNTIME, Category.KERNEL], [len(calls), len(kernels)])
    builder.events(ts=ts, dur=dur, name=np.zeros_like(ts), category=kind, track=track, row=np.arange(len(ts)))
    built_trace = builder.build()
    event = np.argsort(built_trace.events.row).astype(np.int32)
    nodes = [node for template in inside for node in template.parent]
    return built_trace, Graphs(
        call=event[: len(calls)],
        work=event[len(calls) :],
        first=np.cumsum([0, *(len(launch.kernels) for launch in launches)]),
        template=np.array([launch.template for launch in launches], np.int32),
        nodes=np.cumsum([0, *(len(template.parent) for template in inside)]),
        kernels=np.cumsum([0, *(len(template.owner) for template in inside)]),
        name=np.arange(len(nodes), dtype=np.int32),
        category=np.full(len(nodes), Category.OP, np.uint8),
        parent=np.array(nodes, np.int32),
        owner=np.concatenate([template.owner for template in inside]).astype(np.int32),
        args={},
    )


@given(recordings())
def test_all_that_is_inside_lasts_from_its_first_kernel_to_its_last(data: tuple[list[Inside], list[Launch]]) -> None:
    inside, launches = data
    trace, graphs = built(inside, launches)

    def work() -> tuple[np.ndarray, ...]:
        expanded = expand_graphs(trace, graphs)
        return (*(getattr(expanded.events, name) for name in Events.__struct_fields__), expanded.owner)

    columns = dict(zip((*Events.__struct_fields__, "owner"), both(work), strict=True))
    wanted: list[tuple[int, ...]] = []
    for number, launch in enumerate(launches):
        template = inside[launch.template]
        for node in range(len(template.parent)):
            below = {node}
            for other in range(node + 1, len(template.parent)):
                below |= {other} if template.parent[other] in below else set()
            own_times = [spent for spent, owner in zip(launch.kernels, template.owner, strict=True) if owner in below]
            start, end = min(ts for ts, _ in own_times), max(ts + dur for ts, dur in own_times)
            name = int(graphs.nodes[launch.template]) + node
            above = number if node == 0 else int(graphs.nodes[launch.template]) + template.parent[node]
            wanted.append((launch.stream, start, end - start, name, above))
    rows = range(len(trace.events), len(columns["ts"]))
    call_of = {int(row): number for number, row in enumerate(graphs.call)}
    tracks = {int(t): i for i, t in enumerate(np.unique(columns["track"][rows.start :]))}
    streams = sorted({launch.stream for launch in launches})
    events: list[tuple[int, ...]] = []
    for row in rows:
        above = int(columns["parent"][row])
        above = call_of[above] if above in call_of else int(columns["name"][above])
        stream = streams[tracks[int(columns["track"][row])]]
        events.append((stream, *(int(columns[key][row]) for key in ("ts", "dur", "name")), above))
    assert sorted(events) == sorted(wanted)
    assert [event_key[:2] for event_key in events] == sorted(template[:2] for template in events)  # by track and time
    owned = [node for launch in launches for node in graphs.nodes[launch.template] + inside[launch.template].owner]
    assert columns["name"][columns["owner"]].tolist() == owned


def various() -> list[dict[str, object]]:
    """Launches of unequal size with gaps and unknown kernels, a plain launch, and one from two streams."""
    events = replay(names_of(2), at=100, batch=4) + replay(names_of(2), at=400, correlation=2, batch=4)
    events += replay([*names_of(8)[:5], "new", *names_of(8)[5:]], at=700, correlation=3)
    events += replay(["z"] * 3, at=1000, correlation=4)
    events += [span("cpu_op", "aten::mm", 1200, 10), span("cuda_runtime", "cudaLaunchKernel", 1202, 2, correlation=9)]
    events += [kernel("gemm", 1210, 5, 9), span("cuda_runtime", "cudaGraphLaunch", 1300, 5, correlation=5)]
    return [*events, kernel("gemm", 1310, 9, 5), kernel("add", 1312, 3, 5, stream=20), kernel("flash", 1320, 4, 5)]


def captures() -> dict[str, list[dict[str, object]]]:
    return {"a.json": capture(2, batch=4), "b.json": capture(8), "c.json": capture(1)}


def test_links_and_launches_equal_those_of_the_fallback(tmp_path: Path) -> None:
    path = put(tmp_path / "run.json", various())
    compiled, twin = read_trace(path), in_python(lambda: read_trace(path))
    assert_same(compiled.links, twin.links)
    native_launches, same = graph_launches(compiled), in_python(lambda: graph_launches(twin))
    assert native_launches is not None
    assert same is not None
    assert_same(native_launches, same)
    assert native_launches.kinds == 4


def test_from_the_cache_all_columns_are_the_same(tmp_path: Path) -> None:
    trace = joined(tmp_path, various(), captures())
    again = open_trace(tmp_path / "run.json", cache=Cache(tmp_path / ".cache"))
    assert isinstance(again, JoinedTrace)
    assert_same(trace, again)
    twin = in_python(lambda: joined(tmp_path / "twin", various(), captures()).with_columns())
    assert_same(trace.with_columns(), twin)


def test_contents_of_launches_are_computed_on_demand(tmp_path: Path) -> None:
    recording = various()
    trace = joined(tmp_path, recording, captures())
    assert isinstance(trace, JoinedTrace)
    assert len(trace.file_trace.events) == len(recording)
    assert not trace.derived
    assert len(trace.events) > len(recording)
    assert set(trace.links.kind[trace.links.dst >= 0].tolist()) == {LinkKind.LAUNCH, LinkKind.OWNER}


def test_a_name_of_a_launch_without_kernels_adds_nothing(tmp_path: Path) -> None:
    trace = joined(tmp_path, [span("cuda_runtime", "cudaGraphLaunch", 0, 5), kernel("gemm", 10, 9, 1)], captures())
    assert not isinstance(trace, JoinedTrace)
    assert len(trace.pyramid.order) == 2
