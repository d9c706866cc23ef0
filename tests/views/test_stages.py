"""Stages against hand-worked traces: derived iterations, cuts, and the stage that asked for what runs elsewhere."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES, Write, answer, shared, trace_of
from tests.views.test_steps import Event, host, kernel, launch, overview, step, us
from visualprof.reader.trace import Category, LinkKind, Trace, TrackKind
from visualprof.views import view

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def forward(ts: int, dur: int) -> Event:
    event = host("cpu_op", "aten::conv2d", ts, dur)
    event["args"] = {"Sequence number": 7}
    return event


def backward(ts: int, dur: int) -> list[Event]:
    """Two autograd functions with 5 us between them, in which a gradient is added that no function holds."""
    name, half = "autograd::engine::evaluate_function: ConvolutionBackward0", (dur - 5) // 2
    return [host("cpu_op", name, ts, half), host("cpu_op", "aten::add_", ts + half + 1, 3),
            host("cpu_op", name, ts + dur - half, half)]  # fmt: skip


def optimizer(name: str, ts: int, dur: int) -> Event:
    return host("user_annotation", f"Optimizer.{name}#SGD.{name}", ts, dur)


def training(at: int) -> list[Event]:
    """80 of 100 us: loading 10, forward 20 in two parts around zero_grad 5, backward 25, clipping, optimizer 10."""
    return [
        host("user_annotation", LOADER, at, 10),
        forward(at + 10, 12), optimizer("zero_grad", at + 22, 5), forward(at + 27, 8),
        *backward(at + 35, 25),
        host("cpu_op", "aten::norm", at + 62, 4), optimizer("step", at + 70, 10),
        host("cpu_op", "aten::item", at + 85, 2),
    ]  # fmt: skip


def stages(found: Any) -> dict[str, tuple[int, float]]:
    """Calls and host time in us of each stage."""
    table = found["stages"]["columns"]
    return dict(zip(table["name"], zip(table["calls"], us(table["host_total_ns"]), strict=True), strict=True))


def whole(found: Any) -> float:
    return sum(found["stages"]["columns"]["host_ratio"])


BY_HAND = {"dataloader": (4, 40), "forward": (4, 80), "backward": (4, 100), "optimizer": (8, 60)}


def test_iterations_without_step_marks_are_derived(write: Write) -> None:
    found = overview(write, [e for n in range(4) for e in training(100 * n)])
    assert us(found["steps"]["total_ns"]) == [387]  # one step: four iterations, to the end of the last operator
    assert stages(found) == BY_HAND | {"other": (1, 387 - 280)}
    assert whole(found) == pytest.approx(1)
    assert found["stages"]["columns"]["derived"] == [False, True, True, False, False]
    assert found["environment"]["stages_derived"] == ["forward", "backward"]


def test_stages_of_marked_steps_are_the_same_and_never_above_the_whole(write: Write) -> None:
    events = [e for n in range(4) for e in [step(n, 100 * n, 100), *training(100 * n)]]
    found = overview(write, events)
    assert stages(found) == BY_HAND | {"other": (4, 120)}
    assert {k: v for k, v in found["stage_steps"].items() if k != "name"} == {
        "dataloader_ns": [10_000] * 4, "forward_ns": [20_000] * 4, "backward_ns": [25_000] * 4,
        "optimizer_ns": [15_000] * 4, "other_ns": [30_000] * 4,
    }  # fmt: skip
    one = overview(write, events, step="2")
    assert stages(one) == {n: (c // 4, t / 4) for n, (c, t) in (BY_HAND | {"other": (4, 120)}).items()}


def test_the_chart_says_which_stages_are_derived(write: Write) -> None:
    chosen = view("overview")
    params = chosen.parse({})
    events = [e for n in range(2) for e in [step(n, 100 * n, 100), *training(100 * n)]]
    assert chosen.charts
    drawn = chosen.charts(chosen.compute(trace_of(write(events)), params), params, 10)["stages"]["series"]
    named = [str(one["name"]).removeprefix("@t:") for one in drawn]
    assert named == ["stage.dataloader", "derived.forward", "derived.backward", "stage.optimizer", "stage.other"]


def test_several_backwards_before_an_optimizer_step_are_several_iterations(write: Write) -> None:
    """Two micro batches: forward 0-20, backward 20-50, forward 60-80, backward 80-110, step 120-130."""
    events = [forward(0, 20), *backward(20, 30), forward(60, 20), *backward(80, 30), optimizer("step", 120, 10)]
    assert stages(overview(write, events)) == {
        "forward": (2, 40), "backward": (2, 60), "optimizer": (1, 10), "other": (1, 20),
    }  # fmt: skip


def test_a_backward_without_sequence_numbers_is_one_of_each_step(write: Write) -> None:
    """Old files have none; then any operator outside parts two backwards, and no operator here does."""
    name = "AddmmBackward"
    events = [step(n, 100 * n, 100) for n in range(2)]
    for n in range(2):
        events += [host("Operator", "aten::mm", 100 * n, 30), host("Operator", name, 100 * n + 30, 30)]
    found = overview(write, events)
    assert stages(found) == {"forward": (2, 60), "backward": (2, 60), "other": (2, 80)}


def test_a_marked_stage_inside_another_is_cut_out_of_it(write: Write) -> None:
    events = [host("user_annotation", "forward", 0, 60), host("user_annotation", LOADER, 20, 10),
              host("cpu_op", "aten::mm", 0, 100)]  # fmt: skip
    found = overview(write, events)
    assert stages(found) == {"dataloader": (1, 10), "forward": (1, 50), "other": (1, 40)}
    assert found["environment"]["stages_derived"] == []


def test_device_work_belongs_to_the_stage_that_asked_for_it(write: Write) -> None:
    """The device runs 100 us behind: forward's kernel while the host is in backward, backward's in the optimizer."""
    events = [step(0, 0, 200), forward(0, 40), launch(10, 1), *backward(100, 45), launch(110, 2)]
    events += [optimizer("step", 160, 30), kernel(110, 40, 1), kernel(150, 60, 2)]
    found = overview(write, events)
    table = found["stages"]["columns"]
    assert dict(zip(table["name"], us(table["device_total_ns"]), strict=True)) == {
        "forward": 40, "backward": 60, "optimizer": 0, "other": 0,
    }  # fmt: skip
    # forward: on the host 0-100, on the device 110-150; backward: 100-110, 150-210; optimizer all the while hidden
    assert {k: us(v) for k, v in found["stage_steps"].items() if k != "name"} == {
        "dataloader_ns": [0], "forward_ns": [140], "backward_ns": [70], "optimizer_ns": [0], "other_ns": [0],
    }  # fmt: skip


def mark(ph: str, name: str, tid: int, ts: int, cat: str = "", **args: str) -> Event:
    return {"ph": ph, "name": name, "cat": cat, "pid": 9, "tid": tid, "ts": ts, "args": args}


def span(name: str, tid: int, ts: int, dur: int, cat: str = "", **args: str) -> list[Event]:
    return [mark("B", name, tid, ts, cat), mark("E", name, tid, ts + dur, cat, **args)]


def megengine(folder: Path) -> Path:
    """Two steps of 20 us that a queue works off 30 us each later and a device again later; forward, then backward.

    Operator n is dispatched 2 us into its stage; the worker takes 10 us for each, the device 40 us.
    """
    events: list[Event] = []
    for n in range(2):
        events += [*span("step", 1, 20 * n, 20), *span("forward", 1, 20 * n, 10), *span("backward", 1, 20 * n + 10, 10)]
    for i in range(4):
        asked, ran, busy = 10 * i + 2, 30 + 10 * i, 32 + 40 * i
        flow: Event = {"pid": 9, "id": i, "name": "9", "scope": "", "bp": "e"}
        events += [*span("OpDispatch", 1, asked, 1), {**flow, "ph": "s", "cat": "OpDispatch", "tid": 1, "ts": asked}]
        events += [mark("B", "Conv", 2, ran), {**flow, "ph": "f", "cat": "OpDispatch", "tid": 2, "ts": ran}]
        events += [*span("Input 1", 2, ran + 1, 1), {**flow, "ph": "s", "cat": "KernelLaunch", "tid": 2, "ts": ran + 1}]
        events += [mark("E", "Conv", 2, ran + 9, __name__="Conv"), *span("Del 1", 2, ran + 9, 1)]
        events += [
            mark("B", "Conv", 3, busy, "Kernel"),
            {**flow, "ph": "f", "cat": "KernelLaunch", "tid": 3, "ts": busy},
        ]
        events += [mark("E", "Conv", 3, busy + 40, "Kernel", __name__="Conv")]
    lanes = {1: "interpreter", 2: "worker", 3: "xpux:0"}
    events += [{"ph": "M", "name": "thread_name", "pid": 9, "tid": t, "args": {"name": n}} for t, n in lanes.items()]
    path = folder / "9.chrome_timeline.json"
    path.write_text(json.dumps({"traceEvents": events, "metadata": {"localTime": "1700000000000000000"}}))
    return path


def test_a_queue_and_a_device_work_for_the_step_that_asked(tmp_path: Path) -> None:
    """Host: 0-20, 20-40. The device works from 32 to 192, 80 us a step, of which each stage asked for 40."""
    path = megengine(tmp_path)
    found = answer("overview", path)
    assert us(found["steps"]["total_ns"]) == [112, 80]
    assert us(found["steps"]["host_ns"]) == [20, 20]
    assert us(found["steps"]["kernel_ns"]) == [80, 80]
    # step 0: forward on the host 0-10 and of its work 30-72; backward 10-20, 72-112; step 1: on the device alone
    assert {k: us(v) for k, v in found["stage_steps"].items() if k != "name"} == {
        "dataloader_ns": [0, 0], "forward_ns": [52, 40], "backward_ns": [50, 40], "optimizer_ns": [0, 0],
        "other_ns": [10, 0],
    }  # fmt: skip
    assert stages(found) == {"forward": (2, 20), "backward": (2, 20), "other": (2, 0)}
    for number in ("0", "1"):
        table = answer("overview", path, step=number)["events"]["columns"]
        calls = dict(zip(zip(table["category"], table["track_kind"], strict=True), table["calls"], strict=True))
        # two dispatches, two `Input` and two `Del` of each step
        assert calls == {("kernel", "device"): 2, ("op", "host"): 2, ("op_part", "host"): 6, ("forward", "host"): 1,
                         ("backward", "host"): 1}  # fmt: skip


def scope_of(trace: Trace, name: str) -> Callable[[int], int]:
    """Which of the interpreter's ranges of that name holds a time; -1 for none."""
    events = trace.events
    rows = [
        i for i in range(len(events)) if trace.strings[events.name[i]] == name and events.category[i] != Category.OTHER
    ]
    return lambda at: next((n for n, i in enumerate(rows) if events.ts[i] <= at < events.end[i]), -1)


def test_the_sample_of_megengine_has_every_stage_in_every_step() -> None:
    """Device time by stage, worked out event by event: kernel <- operator of the worker <- dispatch <- scope."""
    path = SAMPLES / "megengine-train" / "1890.chrome_timeline.json.gz"
    trace, found = trace_of(path), answer("overview", path)
    events, links = trace.events, trace.links
    source = {(k, d): s for k, d, s in zip(links.kind.tolist(), links.dst.tolist(), links.src.tolist(), strict=True)}
    stage_of = {s: scope_of(trace, s) for s in ("forward", "backward", "optimizer")}
    expected = dict.fromkeys(stage_of, 0)
    for row in range(len(events)):
        if trace.tracks[events.track[row]].kind == TrackKind.STREAM:
            asked = int(events.ts[source[LinkKind.ASYNC, source[LinkKind.LAUNCH, row]]])
            expected[next(s for s, of in stage_of.items() if of(asked) >= 0)] += int(events.dur[row])
    table = found["stages"]["columns"]
    assert {n: t for n, t in zip(table["name"], table["device_total_ns"], strict=True) if n != "other"} == expected
    parts = [found["stage_steps"][f"{s}_ns"] for s in (*stage_of, "other")]
    assert [sum(p) for p in zip(*parts, strict=True)] == found["steps"]["total_ns"]
    assert all(t > 0 for part in parts[:3] for t in part)
    assert found["steps"]["host_ns"] == [20_804_415, 12_257_211, 15_520_671]


def without_scopes(path: Path, to: Path) -> Path:
    """A timeline without the user's scopes; those that MegEngine makes stay: `backward` and the optimizer's `step`."""
    doc = json.loads(gzip.decompress(path.read_bytes()))
    events: list[Event] = doc["traceEvents"]
    opened: dict[int, list[tuple[str, bool]]] = {}
    dropped: set[int] = set()
    for i, e in sorted(enumerate(events), key=lambda item: (item[1].get("ts", 0), item[0])):
        if e["ph"] not in "BE":
            continue
        stack = opened.setdefault(e["tid"], [])
        if e["ph"] == "B":
            own = e["name"] in ("step", "backward") and e["name"] in (name for name, _ in stack)
            stack.append((e["name"], e["name"] in ("step", "forward", "backward", "optimizer") and not own))
        if stack[-1][1]:
            dropped.add(i)
        if e["ph"] == "E":
            stack.pop()
    doc["traceEvents"] = [e for i, e in enumerate(events) if i not in dropped]
    to.write_text(json.dumps(doc))
    return to


def test_a_training_of_megengine_without_scopes_has_the_same_stages(tmp_path: Path) -> None:
    """Its only `step` is the optimizer's, which used to make three steps of 0.5 ms without forward and backward."""
    path = SAMPLES / "megengine-train" / "1890.chrome_timeline.json.gz"
    marked, bare = answer("overview", path), answer("overview", without_scopes(path, tmp_path / "1.json"))
    assert bare["environment"]["steps"] == 0
    assert bare["environment"]["stages_derived"] == ["forward"]
    tables = [a["stages"]["columns"] for a in (marked, bare)]
    assert tables[0]["device_total_ns"] == tables[1]["device_total_ns"]
    assert tables[0]["calls"][:3] == tables[1]["calls"][:3] == [3, 3, 3]
    for scoped, derived in zip(*(t["host_total_ns"][:3] for t in tables), strict=True):
        assert derived == pytest.approx(scoped, rel=0.08)  # a scope begins before its first operator


def test_forward_is_derived_where_only_backward_is_marked(write: Write) -> None:
    events = [host("user_annotation", "backward", 50, 30), host("cpu_op", "aten::mm", 10, 20),
              host("cpu_op", "aten::mm_backward", 50, 30), host("cpu_op", "aten::norm", 85, 5)]  # fmt: skip
    found = overview(write, events)
    assert stages(found) == {"forward": (1, 40), "backward": (1, 30), "other": (1, 10)}
    assert found["environment"]["stages_derived"] == ["forward"]


@pytest.mark.parametrize(
    "path",
    ["kineto/tb_plugin/resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz",
     "kineto/hta/nccl_data__a100_rank0of2.json.gz", "torch_cpu/ddp2/rank0.pt.trace.json.gz"],
)  # fmt: skip
def test_a_step_has_one_time_and_no_stage_exceeds_it(path: str) -> None:
    """V100: the bars of the stages summed to 262.6 ms in a step of 188."""
    found = answer("overview", shared(f"traces/{path}"))
    parts = zip(*(v for k, v in found["stage_steps"].items() if k != "name"), strict=True)
    assert [sum(p) for p in parts] == found["steps"]["total_ns"]
    assert whole(found) == pytest.approx(1, abs=1e-9)
    calls = dict(zip(found["stages"]["columns"]["name"], found["stages"]["columns"]["calls"], strict=True))
    assert calls["forward"] == calls["backward"] == len(found["steps"]["name"])


def closure(at: int) -> list[Event]:
    """A step of 80 us that calls zero_grad 2, forward 20, backward 25, then forward 4 and backward 11 again."""
    called = [optimizer("zero_grad", at + 2, 2), forward(at + 5, 20), *backward(at + 25, 25)]
    again = [host("cpu_op", "aten::dot", at + 51, 4), forward(at + 56, 4), *backward(at + 60, 11)]
    return [optimizer("step", at, 80), *called, *again, host("cpu_op", "aten::add_", at + 73, 5)]


@pytest.mark.parametrize("marked", [True, False], ids=["steps", "no steps"])
def test_passes_that_an_optimizer_step_calls_are_stages(write: Write, marked: bool) -> None:
    events = [event for n in range(3) for event in closure(100 * n)]
    found = overview(write, events + [step(n, 100 * n, 99) for n in range(3)] if marked else events)
    own = 3 * (80 - 20 - 25 - 4 - 11)  # what the optimizer does besides
    expected = {"forward": (6, 3 * (20 + 4)), "backward": (6, 3 * (25 + 11)), "optimizer": (3, own)}
    assert {name: of for name, of in stages(found).items() if name != "other"} == expected


def test_a_stage_counts_where_it_lies_in_steps(write: Write) -> None:
    """Loading from 80 to 130 is in steps 0 and 1, the optimizer from 170 to 260 outlives the last mark at 200."""
    loading, stepping = host("user_annotation", LOADER, 80, 50, tid=2), optimizer("step", 170, 90)
    work = [host("cpu_op", "aten::mm", at, 10) for at in (10, 110)]
    found = overview(write, [step(0, 0, 100), step(1, 100, 100), loading, stepping, *work])
    assert stages(found) == {"dataloader": (1, 50), "optimizer": (1, 30), "other": (2, 120)}
    assert whole(found) == 1
    by_step = found["stage_steps"]
    assert (us(by_step["dataloader_ns"]), us(by_step["optimizer_ns"])) == ([20, 30], [0, 30])


@pytest.mark.parametrize(
    ("made", "first", "cleared", "expected"),
    [(0, 55, 50, 80 - 55), (45, 50, 60, 80 - 45 - 5)],
    ids=["before", "inside"],
)
def test_a_forward_begins_after_zero_grad_if_a_backward_uses_nothing_before(
    write: Write, made: int, first: int, cleared: int, expected: int
) -> None:
    """Inputs are made, the gradients are cleared before or inside the forward, which ends when the backward begins."""
    events = [step(0, 0, 200), host("cpu_op", "aten::randn", made, 5), optimizer("zero_grad", cleared, 5)]
    events += [forward(first, 3), forward(70, 5), *backward(80, 25), optimizer("step", 110, 10)]
    events += [
        {"ph": ph, "id": i, "pid": 1, "tid": 1, "ts": ts, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"}
        for i, (source, target) in enumerate([(first, 95), (70, 80)], 1)
        for ph, ts in (("s", source), ("f", target))
    ]
    assert stages(overview(write, events))["forward"] == (1, expected)
