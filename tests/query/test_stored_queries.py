"""The twenty stored queries answer as plain Python does over the JSON of the file."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import visualprof
from tests.conftest import SAMPLES
from tests.query.raw_trace import RawEvent, RawTrace, percentile, union
from visualprof.api import OpenedProfile
from visualprof.query.stored import STORED

pytest.importorskip("duckdb")
CNN = SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"
TRANSFORMER = SAMPLES / "pytorch-h200" / "transformer.pt.trace.json.gz"
GPT = SAMPLES / "pytorch-cpu" / "gpt.pt.trace.json.gz"
SERVER = SAMPLES / "synthetic-server" / "engine.pt.trace.json.gz"
RANKS = [SAMPLES / "synthetic-4gpu" / f"rank{rank}.pt.trace.json.gz" for rank in range(4)]


@cache
def raw(path: Path) -> RawTrace:
    return RawTrace(path)


@cache
def opened(*paths: Path) -> OpenedProfile:
    return visualprof.open(list(paths))


def stored(name: str, *paths: Path, **parameters: Any) -> list[tuple[Any, ...]]:
    """The rows of a stored query."""
    rows = opened(*paths).stored(name, **parameters).rows
    assert rows
    return rows


def total(events: Iterable[RawEvent]) -> int:
    return sum(event.duration for event in events)


def grouped(pairs: Iterable[tuple[Any, int]]) -> dict[Any, tuple[int, int]]:
    """Number and sum of values by key."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return {key: (len(values), sum(values)) for key, values in groups.items()}


def test_layer_kernels() -> None:
    trace = raw(TRANSFORMER)
    expected: list[tuple[Any, int]] = []
    for kernel in trace.kernels:
        path, is_backward = trace.modules(trace.surroundings(kernel))
        if "Linear_1" in "/".join(path):
            expected.append((("/".join(path), is_backward, kernel.name), kernel.duration))
    rows = stored("layer_kernels", TRANSFORMER, module="Linear_1")
    assert {row[:3]: row[3:] for row in rows} == grouped(expected)
    assert {row[1] for row in rows} == {True, False}


def test_range_kernels() -> None:
    trace = raw(TRANSFORMER)
    expected = [
        ((around.name, kernel.name), kernel.duration)
        for kernel in trace.kernels
        for around in trace.surroundings(kernel)
        if around.category == "user_annotation" and "optimizer" in around.name
    ]
    rows = stored("range_kernels", TRANSFORMER, range="optimizer")
    assert {row[:2]: row[2:] for row in rows} == grouped(expected)


def test_between_markers() -> None:
    trace = raw(TRANSFORMER)

    def work(around: RawEvent) -> list[RawEvent]:
        return [event for event in trace.device if around in trace.surroundings(event)]

    expected: list[tuple[int, int]] = []
    for first in trace.named("forward"):
        start = min(event.start for event in work(first))
        ends = [
            max(event.end for event in inside)
            for second in trace.named("optimizer")
            if second.name == "optimizer" and (inside := work(second)) and min(e.start for e in inside) >= start
        ]
        if ends:
            expected.append((start, min(ends) - start))
    pairs = stored("between_markers", TRANSFORMER, first="forward", second="optimizer")
    rows = [row for row in pairs if row[1:3] == ("forward", "optimizer")]
    assert [row[4] for row in rows] == [duration for _, duration in expected]
    assert [b[3] - a[3] for a, b in pairwise(rows)] == [b[0] - a[0] for a, b in pairwise(expected)]


def test_top_kernels() -> None:
    durations: dict[str, list[int]] = defaultdict(list)
    for kernel in raw(CNN).kernels:
        durations[kernel.name].append(kernel.duration)
    everything = total(raw(CNN).kernels)
    rows = stored("top_kernels", CNN)
    assert [row[2] for row in rows] == sorted((row[2] for row in rows), reverse=True)
    for name, calls, total_ns, mean_ns, p99_ns, share in rows:
        values = durations.pop(name)
        assert (calls, total_ns) == (len(values), sum(values))
        assert (mean_ns, p99_ns) == (pytest.approx(sum(values) / calls), pytest.approx(percentile(values, 0.99)))
        assert share == pytest.approx(total_ns / everything)
    assert not durations


def is_repeated(event: RawEvent) -> bool:
    """Whether an operator only repeats the operator around it: both have one name, and nothing else is inside."""
    around = event.parent
    return around is not None and around.category == "cpu_op" and around.name == event.name and around.children == 1


def operators(trace: RawTrace) -> list[RawEvent]:
    return [e for e in trace.host if e.category == "cpu_op" and not is_repeated(e)]


def frames(events: Iterable[RawEvent]) -> list[str]:
    """Python frames, the innermost first."""
    return [event.name for event in events if event.category == "python_function"]


def test_source_lines() -> None:
    trace = raw(GPT)
    nested: dict[RawEvent, int] = defaultdict(int)
    for event in operators(trace):
        if around := next((e for e in event.around() if e.category == "cpu_op" and not is_repeated(e)), None):
            nested[around] += event.duration
    expected: list[tuple[Any, int]] = []
    for event in operators(trace):
        stack = frames(event.around())
        forward = trace.forward([event, *event.around()])
        stack = frames(forward.around()) if forward and not stack else stack
        if stack:
            expected.append(((stack[0], event.name), event.duration - nested[event]))
    rows = stored("source_lines", GPT)
    assert {row[:2]: row[2:4] for row in rows} == grouped(expected)


def test_gemm_shapes() -> None:
    trace = raw(RANKS[0])
    expected: dict[Any, list[int]] = defaultdict(list)
    for event in operators(trace):
        if event.name == "aten::addmm":
            launched = [work for work in trace.device if trace.operator(work) is event]
            shapes = str(event.args["Input Dims"]).replace(" ", "")
            expected[event.name, shapes].append(total(launched))
    rows = stored("gemm_shapes", RANKS[0])
    assert {row[:2]: row[2:] for row in rows} == {key: (len(v), sum(v)) for key, v in expected.items()}


@pytest.mark.parametrize("path", [RANKS[0], CNN, TRANSFORMER])
def test_launches(path: Path) -> None:
    trace = raw(path)
    expected: Counter[Any] = Counter()
    for kernel in trace.kernels:
        op, call = trace.operator(kernel), trace.call(kernel)
        expected[kernel.name, kernel.duration, op and op.name, call and call.name] += 1
    rows = stored("launches", path)
    assert Counter((row[3], row[2], row[5], row[6]) for row in rows) == expected
    starts = [kernel.start for kernel in trace.kernels]
    assert [row[1] - rows[0][1] for row in rows] == [start - starts[0] for start in starts]


def test_argument() -> None:
    expected = [
        ((kernel.name, str(kernel.args["grid"]).replace(" ", "")), kernel.duration) for kernel in raw(RANKS[0]).kernels
    ]
    rows = stored("argument", RANKS[0], key="grid")
    assert {row[:2]: row[2:] for row in rows} == grouped(expected)


@pytest.mark.parametrize("path", [RANKS[0], CNN, TRANSFORMER])
def test_chosen_steps(path: Path) -> None:
    trace = raw(path)
    expected: list[tuple[Any, int]] = []
    for kernel in trace.kernels:
        call = trace.call(kernel)
        step = trace.step(call.start) if call else None
        if step and "3" in step.name:
            expected.append((("3", kernel.name), kernel.duration))
    rows = stored("chosen_steps", path, step="3")
    assert {row[:2]: row[2:] for row in rows} == grouped(expected)


def communication(trace: RawTrace) -> list[RawEvent]:
    return [kernel for kernel in trace.kernels if kernel.name.startswith("nccl")]


def test_exposed_communication() -> None:
    expected: dict[Any, tuple[int, int]] = {}
    for rank, path in enumerate(RANKS):
        trace = raw(path)
        by_step: dict[str, list[RawEvent]] = defaultdict(list)
        for kernel in trace.kernels:
            call = trace.call(kernel)
            step = trace.step(call.start) if call else None
            assert step
            by_step[step.name.removeprefix("ProfilerStep#")].append(kernel)
        for step, kernels in by_step.items():
            comm = [(k.start, k.end) for k in communication(trace) if k in kernels]
            compute = [(k.start, k.end) for k in kernels if not k.name.startswith("nccl")]
            expected[rank, rank, step] = union(comm), union(comm + compute) - union(compute)
    rows = stored("exposed_communication", *RANKS)
    assert {row[:3]: row[4:] for row in rows} == expected


def test_collectives() -> None:
    for row in (rows := stored("collectives", *RANKS)):
        rank, kind, _, size, size_bytes, calls, median_ns, bandwidth = row
        ours = communication(raw(RANKS[rank]))
        assert (kind, size, calls) == ("all_reduce", 4, len(ours))
        assert median_ns == median(kernel.duration for kernel in ours)
        moved = 2 * (size - 1) / size * size_bytes
        assert bandwidth == pytest.approx(median(moved / kernel.duration * 1e9 for kernel in ours))
    assert [row[0] for row in rows] == [0, 1, 2, 3]


def test_gaps() -> None:
    """Without other streams or graphs: whether the launch or the device was late decides the cause."""
    trace = raw(SERVER)
    causes: dict[str, list[int]] = defaultdict(list)
    busy_until = min(step.start for step in trace.named("execute_context_"))
    for work in trace.device:
        if work.start > busy_until:
            call = trace.call(work)
            assert call
            is_late = call.start > busy_until
            gap = work.start - busy_until
            causes["host_wait" if is_late else "kernel_wait" if gap < 30_000 else "other"].append(gap)
        busy_until = max(busy_until, work.end)
    rows = stored("gaps", SERVER)
    assert {row[1]: row[2:] for row in rows} == {
        cause: (len(gaps), sum(gaps), max(gaps)) for cause, gaps in causes.items()
    }


@pytest.mark.parametrize("path", [RANKS[1], TRANSFORMER])
def test_launch_delays(path: Path) -> None:
    trace = raw(path)
    delays: dict[Any, list[int]] = defaultdict(list)
    for kernel in trace.kernels:
        if call := trace.call(kernel):
            delays[kernel.args["device"], kernel.args["stream"]].append(max(0, kernel.start - call.end))
    rows = stored("launch_delays", path)
    assert {row[:2]: row[2:] for row in rows} == {
        key: (len(v), median(v), pytest.approx(percentile(v, 0.99)), max(v)) for key, v in delays.items()
    }


@pytest.mark.parametrize("path", [CNN, RANKS[0]])
def test_loader_waits(path: Path) -> None:
    trace = raw(path)
    expected: dict[str, tuple[int, int]] = {}
    for step in trace.named("ProfilerStep#"):
        waits = [(e.start, e.end) for e in trace.named("DataLoader") if trace.step(e.start) is step]
        expected[step.name.removeprefix("ProfilerStep#")] = step.duration, union(waits)
    rows = stored("loader_waits", path)
    assert {row[1]: row[2:4] for row in rows} == expected
    assert all(row[4] == pytest.approx(row[3] / row[2]) for row in rows)


def test_compare_traces() -> None:
    base, new = (grouped((k.name, k.duration) for k in raw(path).kernels) for path in (CNN, TRANSFORMER))
    rows = stored("compare_traces", CNN, TRANSFORMER)
    assert {row[0] for row in rows} == {*base, *new}
    for name, base_ns, new_ns, delta_ns, base_calls, new_calls in rows:
        assert (base_calls, base_ns or 0) == base.get(name, (0, 0))
        assert (new_calls, new_ns or 0) == new.get(name, (0, 0))
        assert delta_ns == (new_ns or 0) - (base_ns or 0)


def test_phases() -> None:
    """The names of the engine's ranges say how many requests are new (context) and how many generate."""
    trace = raw(SERVER)
    expected: list[tuple[Any, int]] = []
    for kernel in trace.kernels:
        call = trace.call(kernel)
        assert call
        (step,) = (e for e in trace.named("execute_context_") if e.start <= call.start < e.end)
        expected.append((("decode" if "context_0(" in step.name else "prefill", kernel.name), kernel.duration))
    rows = stored("phases", SERVER)
    assert {row[:2]: row[2:] for row in rows} == grouped(expected)


def device_memory(trace: RawTrace) -> list[tuple[int, Any, dict[str, Any]]]:
    return sorted((i for i in trace.instants if i[2]["Device Type"] == 1), key=lambda instant: instant[0])


def operator_at(trace: RawTrace, ns: int, thread: Any) -> str | None:
    return next((e.name for e in trace.at(ns, thread) if e.category == "cpu_op"), None)


@pytest.mark.parametrize("path", [CNN, TRANSFORMER])
def test_peak_allocations(path: Path) -> None:
    """Alive at the peak is what was allocated until then and is not released by then."""
    trace = raw(path)
    events = device_memory(trace)
    peak_ns = max(events, key=lambda event: event[2]["Total Allocated"])[0]
    alive: dict[int, tuple[str | None, int]] = {}
    for ns, thread, args in events:
        if ns > peak_ns:
            break
        if args["Bytes"] > 0:
            alive[args["Addr"]] = operator_at(trace, ns, thread), args["Bytes"]
        else:
            alive.pop(args["Addr"], None)
    counted: dict[str | None, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for device, op, _, allocations, size in stored("peak_allocations", path):
        if device == 0:
            counted[op] = counted[op][0] + allocations, counted[op][1] + size
    assert counted == grouped(alive.values())


def test_module_memory() -> None:
    trace = raw(TRANSFORMER)
    sizes: dict[str | None, list[int]] = defaultdict(list)
    for ns, thread, args in device_memory(trace):
        if args["Bytes"] > 0:
            path, _ = trace.modules(trace.at(ns, thread))
            sizes[path[-1] if path else None].append(args["Bytes"])
    rows = [row[1:] for row in stored("module_memory", TRANSFORMER) if row[0] == 0]
    assert {row[0]: row[1:] for row in rows} == {m: (len(v), sum(v), max(v)) for m, v in sizes.items()}


@pytest.mark.parametrize("path", [RANKS[0], GPT])
def test_outermost_operators(path: Path) -> None:
    expected = [e for e in operators(raw(path)) if not any(a.category == "cpu_op" for a in e.around())]
    rows = stored("outermost_operators", path)
    assert Counter((row[3], row[2]) for row in rows) == Counter((e.name, e.duration) for e in expected)
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)


@pytest.mark.parametrize("path", [RANKS[0], TRANSFORMER])
def test_kernel_pairs(path: Path) -> None:
    limit_ns = 1_000_000
    streams: dict[Any, list[RawEvent]] = defaultdict(list)
    for kernel in raw(path).kernels:
        streams[kernel.args["stream"]].append(kernel)
    expected: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    for kernels in streams.values():
        for a, b in pairwise(kernels):
            if max(a.duration, b.duration) < limit_ns:
                row = expected[a.name, b.name]
                row[0] += 1
                row[1] += a.duration + b.duration
                row[2] += max(0, b.start - a.end)
    rows = stored("kernel_pairs", path, max_ns=limit_ns)
    assert {row[:2]: list(row[2:]) for row in rows} == dict(expected)


def test_every_stored_query_has_a_test() -> None:
    names = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert set(STORED) <= names
    assert len(STORED) == 20
