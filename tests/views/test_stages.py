"""Stages compared with hand-computed traces: derived iterations, overlaps, and the stage that issued device work."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES, Write, answer, trace_of
from tests.recordings import recording_path
from tests.views.test_steps import Event, host, kernel, launch, overview, step, us
from visualprof.reader.trace import Category, LinkKind, Trace, TrackKind
from visualprof.views import view

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def forward(ts: int, dur: int) -> Event:
    event = host("cpu_op", "aten::conv2d", ts, dur)
    event["args"] = {"Sequence number": 7}
    return event


def backward(ts: int, dur: int) -> list[Event]:
    """Return two autograd functions with 5 us between them, in which a gradient is added outside of both functions."""
    name, half = "autograd::engine::evaluate_function: ConvolutionBackward0", (dur - 5) // 2
    return [
        host("cpu_op", name, ts, half),
        host("cpu_op", "aten::add_", ts + half + 1, 3),
        host("cpu_op", name, ts + dur - half, half),
    ]


def optimizer(name: str, ts: int, dur: int) -> Event:
    return host("user_annotation", f"Optimizer.{name}#SGD.{name}", ts, dur)


def training(at: int) -> list[Event]:
    """Return 80 of 100 us: loading 10, forward 20 in two parts around zero_grad 5, backward 25,
    clipping, optimizer 10.
    """
    return [
        host("user_annotation", LOADER, at, 10),
        forward(at + 10, 12),
        optimizer("zero_grad", at + 22, 5),
        forward(at + 27, 8),
        *backward(at + 35, 25),
        host("cpu_op", "aten::norm", at + 62, 4),
        optimizer("step", at + 70, 10),
        host("cpu_op", "aten::item", at + 85, 2),
    ]


def stages(result: Any) -> dict[str, tuple[int, float]]:
    """Return the calls and the host time in us of each stage."""
    table = result["stages"]["columns"]
    return dict(zip(table["name"], zip(table["calls"], us(table["host_total_ns"]), strict=True), strict=True))


def ratio_sum(result: Any) -> float:
    return sum(result["stages"]["columns"]["host_ratio"])


BY_HAND = {"dataloader": (4, 40), "forward": (4, 80), "backward": (4, 100), "optimizer": (8, 60)}


def test_iterations_without_step_annotations_are_derived(write: Write) -> None:
    result = overview(write, [e for n in range(4) for e in training(100 * n)])
    assert us(result["steps"]["total_ns"]) == [387]  # one step with four iterations, until the end of the last operator
    assert stages(result) == BY_HAND | {"other": (1, 387 - 280)}
    assert ratio_sum(result) == pytest.approx(1)
    assert result["stages"]["columns"]["derived"] == [False, True, True, False, False]
    assert result["environment"]["stages_derived"] == ["forward", "backward"]


def test_stages_of_annotated_steps_are_the_same(write: Write) -> None:
    events = [e for n in range(4) for e in [step(n, 100 * n, 100), *training(100 * n)]]
    result = overview(write, events)
    assert stages(result) == BY_HAND | {"other": (4, 120)}
    assert {k: v for k, v in result["stage_steps"].items() if k != "name"} == {
        "dataloader_ns": [10_000] * 4,
        "forward_ns": [20_000] * 4,
        "backward_ns": [25_000] * 4,
        "optimizer_ns": [15_000] * 4,
        "other_ns": [30_000] * 4,
    }
    single_step = overview(write, events, step="2")
    assert stages(single_step) == {n: (c // 4, t / 4) for n, (c, t) in (BY_HAND | {"other": (4, 120)}).items()}


def test_the_chart_labels_derived_stages(write: Write) -> None:
    chosen = view("overview")
    params = chosen.parse({})
    events = [e for n in range(2) for e in [step(n, 100 * n, 100), *training(100 * n)]]
    assert chosen.charts
    series = chosen.charts(chosen.compute(trace_of(write(events)), params), params, 10)["stages"]["series"]
    names = [str(each_series["name"]).removeprefix("@t:") for each_series in series]
    assert names == ["stage.dataloader", "derived.forward", "derived.backward", "stage.optimizer", "stage.other"]


def test_several_backwards_before_an_optimizer_step_are_several_iterations(write: Write) -> None:
    """Two micro batches: forward 0-20, backward 20-50, forward 60-80, backward 80-110, step 120-130."""
    events = [forward(0, 20), *backward(20, 30), forward(60, 20), *backward(80, 30), optimizer("step", 120, 10)]
    assert stages(overview(write, events)) == {
        "forward": (2, 40),
        "backward": (2, 60),
        "optimizer": (1, 10),
        "other": (1, 20),
    }


def test_without_sequence_numbers_each_step_has_one_backward(write: Write) -> None:
    """Old files have no sequence numbers; then any operator outside separates two backwards, and none does here."""
    name = "AddmmBackward"
    events = [step(n, 100 * n, 100) for n in range(2)]
    for n in range(2):
        events += [host("Operator", "aten::mm", 100 * n, 30), host("Operator", name, 100 * n + 30, 30)]
    result = overview(write, events)
    assert stages(result) == {"forward": (2, 60), "backward": (2, 60), "other": (2, 80)}


def test_an_annotated_stage_inside_another_is_subtracted_from_it(write: Write) -> None:
    events = [
        host("user_annotation", "forward", 0, 60),
        host("user_annotation", LOADER, 20, 10),
        host("cpu_op", "aten::mm", 0, 100),
    ]
    result = overview(write, events)
    assert stages(result) == {"dataloader": (1, 10), "forward": (1, 50), "other": (1, 40)}
    assert result["environment"]["stages_derived"] == []


def test_device_work_belongs_to_the_stage_that_issued_it(write: Write) -> None:
    """The device runs 100 us late: forward's kernel while the host is in backward, backward's in the optimizer."""
    events = [step(0, 0, 200), forward(0, 40), launch(10, 1), *backward(100, 45), launch(110, 2)]
    events += [optimizer("step", 160, 30), kernel(110, 40, 1), kernel(150, 60, 2)]
    result = overview(write, events)
    table = result["stages"]["columns"]
    assert dict(zip(table["name"], us(table["device_total_ns"]), strict=True)) == {
        "forward": 40,
        "backward": 60,
        "optimizer": 0,
        "other": 0,
    }
    # forward: on the host 0-100, on the device 110-150; backward: 100-110, 150-210; the optimizer is always hidden
    assert {k: us(v) for k, v in result["stage_steps"].items() if k != "name"} == {
        "dataloader_ns": [0],
        "forward_ns": [140],
        "backward_ns": [70],
        "optimizer_ns": [0],
        "other_ns": [0],
    }


def marker(ph: str, name: str, tid: int, ts: int, cat: str = "", **args: str) -> Event:
    return {"ph": ph, "name": name, "cat": cat, "pid": 9, "tid": tid, "ts": ts, "args": args}


def span(name: str, tid: int, ts: int, dur: int, cat: str = "", **args: str) -> list[Event]:
    return [marker("B", name, tid, ts, cat), marker("E", name, tid, ts + dur, cat, **args)]


def megengine(folder: Path) -> Path:
    """Return two steps of 20 us, forward then backward, that a queue processes 30 us later and a device later again.

    Operator n is dispatched 2 us into its stage; the worker takes 10 us for each operator, the
    device 40 us.
    """
    events: list[Event] = []
    for n in range(2):
        events += [*span("step", 1, 20 * n, 20), *span("forward", 1, 20 * n, 10), *span("backward", 1, 20 * n + 10, 10)]
    for i in range(4):
        dispatched, dequeued, device_start = 10 * i + 2, 30 + 10 * i, 32 + 40 * i
        flow: Event = {"pid": 9, "id": i, "name": "9", "scope": "", "bp": "e"}
        events += [
            *span("OpDispatch", 1, dispatched, 1),
            {**flow, "ph": "s", "cat": "OpDispatch", "tid": 1, "ts": dispatched},
        ]
        events += [marker("B", "Conv", 2, dequeued), {**flow, "ph": "f", "cat": "OpDispatch", "tid": 2, "ts": dequeued}]
        events += [
            *span("Input 1", 2, dequeued + 1, 1),
            {**flow, "ph": "s", "cat": "KernelLaunch", "tid": 2, "ts": dequeued + 1},
        ]
        events += [marker("E", "Conv", 2, dequeued + 9, __name__="Conv"), *span("Del 1", 2, dequeued + 9, 1)]
        events += [
            marker("B", "Conv", 3, device_start, "Kernel"),
            {**flow, "ph": "f", "cat": "KernelLaunch", "tid": 3, "ts": device_start},
        ]
        events += [marker("E", "Conv", 3, device_start + 40, "Kernel", __name__="Conv")]
    threads = {1: "interpreter", 2: "worker", 3: "xpux:0"}
    events += [{"ph": "M", "name": "thread_name", "pid": 9, "tid": t, "args": {"name": n}} for t, n in threads.items()]
    path = folder / "9.chrome_timeline.json"
    path.write_text(json.dumps({"traceEvents": events, "metadata": {"localTime": "1700000000000000000"}}))
    return path


def test_queued_and_device_work_belongs_to_the_issuing_step(tmp_path: Path) -> None:
    """Host: 0-20, 20-40. The device works from 32 to 192: 80 us per step, 40 us of them issued by each stage."""
    path = megengine(tmp_path)
    result = answer("overview", path)
    assert us(result["steps"]["total_ns"]) == [112, 80]
    assert us(result["steps"]["host_ns"]) == [20, 20]
    assert us(result["steps"]["kernel_ns"]) == [80, 80]
    # step 0: forward on the host 0-10 and its work 30-72; backward 10-20, 72-112; step 1: on the device only
    assert {k: us(v) for k, v in result["stage_steps"].items() if k != "name"} == {
        "dataloader_ns": [0, 0],
        "forward_ns": [52, 40],
        "backward_ns": [50, 40],
        "optimizer_ns": [0, 0],
        "other_ns": [10, 0],
    }
    assert stages(result) == {"forward": (2, 20), "backward": (2, 20), "other": (2, 0)}
    for number in ("0", "1"):
        table = answer("overview", path, step=number)["events"]["columns"]
        calls = dict(zip(zip(table["category"], table["track_kind"], strict=True), table["calls"], strict=True))
        # two dispatches, two `Input` and two `Del` of each step
        assert calls == {
            ("kernel", "device"): 2,
            ("op", "host"): 2,
            ("op_part", "host"): 6,
            ("forward", "host"): 1,
            ("backward", "host"): 1,
        }


def scope_of(trace: Trace, name: str) -> Callable[[int], int]:
    """Return a function that returns which of the interpreter's ranges of a name contains a time; -1 for none."""
    events = trace.events
    rows = [
        i for i in range(len(events)) if trace.strings[events.name[i]] == name and events.category[i] != Category.OTHER
    ]
    return lambda at: next((n for n, i in enumerate(rows) if events.ts[i] <= at < events.end[i]), -1)


def test_the_megengine_sample_has_every_stage_in_every_step() -> None:
    """Device time by stage, computed event by event: kernel <- operator of the worker <- dispatch <- scope."""
    path = SAMPLES / "megengine-train" / "1890.chrome_timeline.json.gz"
    trace, result = trace_of(path), answer("overview", path)
    events, links = trace.events, trace.links
    source = {(k, d): s for k, d, s in zip(links.kind.tolist(), links.dst.tolist(), links.src.tolist(), strict=True)}
    stage_of = {s: scope_of(trace, s) for s in ("forward", "backward", "optimizer")}
    expected = dict.fromkeys(stage_of, 0)
    for row in range(len(events)):
        if trace.tracks[events.track[row]].kind == TrackKind.STREAM:
            issued = int(events.ts[source[LinkKind.ASYNC, source[LinkKind.LAUNCH, row]]])
            expected[next(s for s, scope_at in stage_of.items() if scope_at(issued) >= 0)] += int(events.dur[row])
    table = result["stages"]["columns"]
    assert {n: t for n, t in zip(table["name"], table["device_total_ns"], strict=True) if n != "other"} == expected
    parts = [result["stage_steps"][f"{s}_ns"] for s in (*stage_of, "other")]
    assert [sum(p) for p in zip(*parts, strict=True)] == result["steps"]["total_ns"]
    assert all(t > 0 for part in parts[:3] for t in part)
    assert result["steps"]["host_ns"] == [20_804_415, 12_257_211, 15_520_671]


def without_scopes(path: Path, target: Path) -> Path:
    """Write a timeline without the user's scopes; those of MegEngine itself stay: `backward` and the
    optimizer's `step`.
    """
    doc = json.loads(gzip.decompress(path.read_bytes()))
    events: list[Event] = doc["traceEvents"]
    open_scopes: dict[int, list[tuple[str, bool]]] = {}
    dropped: set[int] = set()
    for i, e in sorted(enumerate(events), key=lambda item: (item[1].get("ts", 0), item[0])):
        if e["ph"] not in "BE":
            continue
        stack = open_scopes.setdefault(e["tid"], [])
        if e["ph"] == "B":
            is_nested = e["name"] in ("step", "backward") and e["name"] in (name for name, _ in stack)
            stack.append((e["name"], e["name"] in ("step", "forward", "backward", "optimizer") and not is_nested))
        if stack[-1][1]:
            dropped.add(i)
        if e["ph"] == "E":
            stack.pop()
    doc["traceEvents"] = [e for i, e in enumerate(events) if i not in dropped]
    target.write_text(json.dumps(doc))
    return target


def test_megengine_training_without_scopes_has_the_same_stages(tmp_path: Path) -> None:
    """Its only `step` is the optimizer's, which used to be taken for three steps of 0.5 ms without stages."""
    path = SAMPLES / "megengine-train" / "1890.chrome_timeline.json.gz"
    annotated, unannotated = answer("overview", path), answer("overview", without_scopes(path, tmp_path / "1.json"))
    assert unannotated["environment"]["steps"] == 0
    assert unannotated["environment"]["stages_derived"] == ["forward"]
    tables = [a["stages"]["columns"] for a in (annotated, unannotated)]
    assert tables[0]["device_total_ns"] == tables[1]["device_total_ns"]
    assert tables[0]["calls"][:3] == tables[1]["calls"][:3] == [3, 3, 3]
    for expected, actual in zip(*(t["host_total_ns"][:3] for t in tables), strict=True):
        assert actual == pytest.approx(expected, rel=0.08)  # a scope begins before its first operator


def test_forward_is_derived_if_only_backward_is_annotated(write: Write) -> None:
    events = [
        host("user_annotation", "backward", 50, 30),
        host("cpu_op", "aten::mm", 10, 20),
        host("cpu_op", "aten::mm_backward", 50, 30),
        host("cpu_op", "aten::norm", 85, 5),
    ]
    result = overview(write, events)
    assert stages(result) == {"forward": (1, 40), "backward": (1, 30), "other": (1, 10)}
    assert result["environment"]["stages_derived"] == ["forward"]


@pytest.mark.parametrize(
    "path",
    [
        "kineto/tb_plugin/resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz",
        "kineto/hta/nccl_data__a100_rank0of2.json.gz",
        "torch_cpu/ddp2/rank0.pt.trace.json.gz",
    ],
)
def test_stages_add_up_to_the_step(path: str) -> None:
    """V100: the bars of the stages used to sum to 262.6 ms in a step of 188 ms."""
    result = answer("overview", recording_path(f"traces/{path}"))
    parts = zip(*(v for k, v in result["stage_steps"].items() if k != "name"), strict=True)
    assert [sum(p) for p in parts] == result["steps"]["total_ns"]
    assert ratio_sum(result) == pytest.approx(1, abs=1e-9)
    calls = dict(zip(result["stages"]["columns"]["name"], result["stages"]["columns"]["calls"], strict=True))
    assert calls["forward"] == calls["backward"] == len(result["steps"]["name"])


def closure(start: int) -> list[Event]:
    """Return a step of 80 us that calls zero_grad 2, forward 20, backward 25, then forward 4 and backward 11 again."""
    first_pass = [optimizer("zero_grad", start + 2, 2), forward(start + 5, 20), *backward(start + 25, 25)]
    second_pass = [host("cpu_op", "aten::dot", start + 51, 4), forward(start + 56, 4), *backward(start + 60, 11)]
    return [optimizer("step", start, 80), *first_pass, *second_pass, host("cpu_op", "aten::add_", start + 73, 5)]


@pytest.mark.parametrize("marked", [True, False], ids=["steps", "no steps"])
def test_passes_inside_an_optimizer_step_are_stages(write: Write, marked: bool) -> None:
    events = [event for n in range(3) for event in closure(100 * n)]
    result = overview(write, events + [step(n, 100 * n, 99) for n in range(3)] if marked else events)
    optimizer_us = 3 * (80 - 20 - 25 - 4 - 11)  # time of the optimizer itself
    expected = {"forward": (6, 3 * (20 + 4)), "backward": (6, 3 * (25 + 11)), "optimizer": (3, optimizer_us)}
    assert {name: calls_and_time for name, calls_and_time in stages(result).items() if name != "other"} == expected


def test_a_stage_counts_in_the_steps_that_contain_it(write: Write) -> None:
    """Loading from 80 to 130 is in steps 0 and 1; the optimizer from 170 to 260 continues after the
    last step ends at 200.
    """
    loading, stepping = host("user_annotation", LOADER, 80, 50, tid=2), optimizer("step", 170, 90)
    work = [host("cpu_op", "aten::mm", at, 10) for at in (10, 110)]
    result = overview(write, [step(0, 0, 100), step(1, 100, 100), loading, stepping, *work])
    assert stages(result) == {"dataloader": (1, 50), "optimizer": (1, 30), "other": (2, 120)}
    assert ratio_sum(result) == 1
    by_step = result["stage_steps"]
    assert (us(by_step["dataloader_ns"]), us(by_step["optimizer_ns"])) == ([20, 30], [0, 30])


@pytest.mark.parametrize(
    ("made", "first", "cleared", "expected"),
    [(0, 55, 50, 80 - 55), (45, 50, 60, 80 - 45 - 5)],
    ids=["before", "inside"],
)
def test_forward_begins_after_zero_grad_unless_backward_uses_earlier_operators(
    write: Write, made: int, first: int, cleared: int, expected: int
) -> None:
    """Inputs are created; gradients are cleared before or inside the forward, which ends when the backward begins."""
    events = [step(0, 0, 200), host("cpu_op", "aten::randn", made, 5), optimizer("zero_grad", cleared, 5)]
    events += [forward(first, 3), forward(70, 5), *backward(80, 25), optimizer("step", 110, 10)]
    events += [
        {"ph": ph, "id": i, "pid": 1, "tid": 1, "ts": ts, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"}
        for i, (source, target) in enumerate([(first, 95), (70, 80)], 1)
        for ph, ts in (("s", source), ("f", target))
    ]
    assert stages(overview(write, events))["forward"] == (1, expected)


def chunk(name: str, ts: int, *, sequence: int = -1, autograd: bool = False) -> list[Event]:
    """Return 100 us of a schedule: a range, an operator that launches a kernel of 50 us, and the kernel.

    The operator is an autograd function, or has a sequence number, or neither.
    """
    op = host("cpu_op", "autograd::engine::evaluate_function: MmBackward0" if autograd else "aten::mm", ts + 10, 60)
    op["args"] = {"Sequence number": sequence} if sequence >= 0 else {}
    ranged = [host("user_annotation", name, ts, 90)] if name else []
    return [*ranged, op, launch(ts + 20, ts + 1, 5), kernel(ts + 30, 50, ts + 1)]


def schedule(names: str) -> list[Event]:
    """Return a step in which the passes alternate: forward, backward by hand, autograd, gradients of weights, twice."""
    forward_name, backward_name, weight_name = names.split() if names else ("", "", "")
    events = [step(0, 0, 900)]
    for at, sequence in ((0, 5), (400, 6)):
        events += chunk(forward_name, at, sequence=sequence) + chunk(backward_name, at + 100, sequence=sequence + 20)
        events += chunk(backward_name, at + 200, sequence=sequence, autograd=True) + chunk(weight_name, at + 300)
    return events


@pytest.mark.parametrize("names", ["attn(F) attn(B) attn(W)", "F0 B0 W0", "fwd_chunk bwd_chunk wgrad_chunk"])
def test_ranges_that_name_the_pass_are_the_stages(write: Write, names: str) -> None:
    result = overview(write, schedule(names))
    table = result["stages"]["columns"]
    assert table["name"] == ["forward", "backward", "other"]
    assert us(table["device_total_ns"]) == [100, 300, 0]
    assert table["derived"] == [False] * 3
    assert result["environment"]["stages_unknown"] == []


def test_interleaved_passes_without_such_ranges_are_unknown(write: Write) -> None:
    result = overview(write, schedule(""))
    assert result["environment"]["stages_unknown"] == ["forward", "backward"]
    assert result["environment"]["stages_derived"] == []
    table = result["stages"]["columns"]
    assert table["name"] == ["forward", "backward", "other"]
    assert table["device_total_ns"] == table["host_ratio"] == [None] * 3
    assert result["stage_steps"]["forward_ns"] == result["stage_steps"]["other_ns"] == [None]


def test_micro_batches_of_autograd_stay_derived(write: Write) -> None:
    events = [step(0, 0, 500)]
    for at, sequence in ((0, 5), (200, 6)):
        events += chunk("", at, sequence=sequence) + chunk("", at + 100, sequence=sequence, autograd=True)
    result = overview(write, events)
    assert result["environment"]["stages_derived"] == ["forward", "backward"]
    assert us(result["stages"]["columns"]["device_total_ns"]) == [100, 100, 0]


def test_reported_interleaved_passes() -> None:
    result = answer("overview", recording_path("cases/reports/45-interleaved-forward-backward/trace.json"))
    assert us(result["stages"]["columns"]["device_total_ns"]) == [200, 600, 0]
