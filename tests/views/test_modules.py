"""Modules and flame graphs: worked out by hand, and against what torch makes of the same recording."""

from __future__ import annotations

import gzip
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES, SAMPLES, Write, answer, computed, rows
from tests.reader.test_kineto import call, kernel, op
from tests.recordings import recording_path
from visualprof.errors import BadParameter
from visualprof.views import flame
from visualprof.views.diff.compare import Named, compare
from visualprof.views.diff.side import SIDE
from visualprof.views.measure.operators.call_paths import path_texts

RECORDING = FIXTURES / "torch_modules" / "step.json.gz"
TORCH: dict[str, Any] = json.loads((FIXTURES / "torch_modules" / "tables.json").read_text())
US = 1000


def module(name: str, ts: float, dur: float) -> dict[str, Any]:
    return op(f"nn.Module: {name}", ts, dur) | {"cat": "python_function"}


def frame(name: str, ts: float, dur: float) -> dict[str, Any]:
    return op(name, ts, dur) | {"cat": "python_function"}


def linked(forward: float, backward: float, number: int) -> list[dict[str, Any]]:
    """An arrow from an operator of the main thread to one of autograd's."""
    arrow = {"cat": "fwdbwd", "name": "fwdbwd", "pid": 7, "id": number}
    return [{**arrow, "ph": "s", "ts": forward, "tid": 1}, {**arrow, "ph": "f", "bp": "e", "ts": backward, "tid": 2}]


def backward(ts: float, dur: float) -> list[dict[str, Any]]:
    engine = op("autograd::engine::evaluate_function: MmBackward0", ts, dur, tid=2)
    return [engine, op("MmBackward0", ts + 1, dur - 2, tid=2)]


def events() -> list[dict[str, Any]]:
    """train (0 to 200) calls Net_0 (10 to 90), in it Linear_0 twice (20 to 40, 50 to 80), each with a product.

    Kernels: 8 and 12 us of the products, 5 us of Net_0's own operator, 3 us outside; 30 and 40 us of the backward of
    the products, whose operators take 15 and 16 us on their thread.
    """
    return [
        frame("train.py(1): train", 0, 200),
        module("Net_0", 10, 80),
        module("Linear_0", 20, 20),
        op("aten::mm", 25, 10),
        call(26, 1),
        kernel(100, 1, 8),
        module("Linear_0", 50, 30),
        op("aten::mm", 55, 20),
        call(56, 2),
        kernel(110, 2, 12),
        op("aten::add", 82, 6),
        call(83, 3, 2),
        kernel(125, 3, 5),
        op("aten::sum", 95, 4),
        call(96, 4, 2),
        kernel(131, 4, 3),
        *backward(140, 15),
        {**call(145, 5), "tid": 2},
        kernel(150, 5, 30),
        *linked(55, 141, 1),
        *backward(160, 16),
        {**call(165, 6), "tid": 2},
        kernel(180, 6, 40),
        *linked(25, 161, 2),
    ]


TIMES = (
    "calls",
    "operators",
    "device_self_ns",
    "device_total_ns",
    "backward_device_ns",
    "host_self_ns",
    "host_total_ns",
    "backward_host_ns",
)


def test_a_module_has_its_launched_work_and_its_backward(write: Write) -> None:
    result = answer("modules", write(events()))
    assert rows(result, *TIMES) == {
        "Net_0": [1, 3, 5 * US, 25 * US, 70 * US, 30 * US, 80 * US, 31 * US],
        "Net_0/Linear_0": [2, 2, 20 * US, 20 * US, 70 * US, 50 * US, 50 * US, 31 * US],
    }
    assert result["columns"]["parent"] == [-1, 0]
    assert result["linked"]
    # aten::sum, and the engine's two calls: of the kernels only that of aten::sum
    assert result["outside"] == {"operators": 1, "host_ns": 4 * US, "device_ns": 3 * US}


def test_without_links_the_numbers_of_operators_tell_the_backward(write: Write) -> None:
    without = [e for e in events() if e["cat"] != "fwdbwd"]
    numbers = {("aten::mm", 25): 1, ("aten::mm", 55): 2, ("MmBackward0", 141): 2, ("MmBackward0", 161): 1}
    for e in without:
        if number := numbers.get((e["name"], e["ts"])):
            e["args"] = {**e["args"], "Sequence number": number}
    table_rows = rows(answer("modules", write(without)), *TIMES)
    assert table_rows == rows(answer("modules", write(events(), "linked.json")), *TIMES)


def test_unknown_backward_is_absent(write: Write) -> None:
    result = answer("modules", write([e for e in events() if e["cat"] != "fwdbwd"]))
    assert not result["linked"]
    assert "backward_device_ns" not in result["columns"]


def test_only_a_step_counts(write: Write) -> None:
    mark = {"ph": "X", "cat": "user_annotation", "pid": 7, "tid": 1, "args": {}}
    steps = [
        {**mark, "name": "ProfilerStep#0", "ts": 12, "dur": 33},
        {**mark, "name": "ProfilerStep#1", "ts": 45, "dur": 45},
    ]
    table_rows = rows(
        answer("modules", write([*events(), *steps]), step="1"), *TIMES[:1], "host_total_ns", "device_total_ns"
    )
    # of Net_0, which began before the step, what lies in it, and of Linear_0 the second call
    assert table_rows == {"Net_0": [1, 45 * US, 17 * US], "Net_0/Linear_0": [1, 30 * US, 12 * US]}


def test_operators_can_be_restricted_to_a_module(write: Write) -> None:
    path = write(events())
    inside = rows(answer("operator", path, module="Net_0/Linear_0"), "calls", "device_total_ns")
    assert inside == {
        "aten::mm": [2, 20 * US],
        "MmBackward0": [2, 70 * US],
        "autograd::engine::evaluate_function: MmBackward0": [2, 70 * US],
    }
    with pytest.raises(BadParameter, match="no module 'Net_1'"):
        computed("operator", path, module="Net_1")


def test_a_call_at_another_depth_is_on_the_same_path(write: Write) -> None:
    """Net_0 runs alone, inside a function, and inside an operator; aten::mm inside no, one and two ranges."""
    path = write(
        [
            module("Net_0", 0, 10),
            frame("f", 20, 30),
            module("Net_0", 25, 10),
            module("Linear_0", 27, 5),
            op("checkpoint", 60, 30),
            module("Net_0", 65, 20),
            module("Linear_0", 66, 7),
            op("aten::mm", 100, 4),
            op("mine", 110, 20) | {"cat": "user_annotation"},
            op("aten::mm", 115, 5),
            op("outer", 140, 30) | {"cat": "user_annotation"},
            op("mine", 145, 20) | {"cat": "user_annotation"},
            op("aten::mm", 150, 6),
        ]
    )
    assert rows(answer("modules", path), "calls", "host_self_ns", "host_total_ns") == {
        "Net_0": [3, 28 * US, 40 * US],
        "Net_0/Linear_0": [2, 12 * US, 12 * US],
        "mine": [1, 20 * US, 20 * US],
        "outer": [1, 10 * US, 30 * US],
        "outer/mine": [1, 20 * US, 20 * US],
    }
    assert flames(path, tree="operator") == {"checkpoint": (1, 30 * US, 30 * US), "aten::mm": (3, 15 * US, 15 * US)}
    assert flames(path, tree="python")["Net_0"] == (2, 23 * US, 30 * US)


def test_names_that_differ_only_in_hidden_parts_are_one_path(write: Write) -> None:
    same = [module("Net_0", 0, 10), op("Net_0", 20, 5) | {"cat": "user_annotation"}]
    addresses = [frame(f"<bound f of T at 0x{i:x}>", 40 + 10 * i, 5) for i in range(3)]
    result = answer("modules", write(same))
    assert rows(result, "calls") == {"Net_0": [2]}
    assert flames(write(addresses, "addresses.json"), tree="python") == {"<bound f of T>": (3, 15 * US, 15 * US)}


def test_every_module_of_a_checkpointed_model_is_one_row() -> None:
    """Three blocks of a checkpointed model, called from 4 places each, as `modules` named them."""
    table_rows = rows(answer("modules", recording_path("cases/numbers/ckpt.json.gz")), "calls")
    assert len(table_rows) == 12
    assert {name: calls for name, [calls] in table_rows.items() if "/" not in name} == {
        f"Sequential_{i}": 6 for i in range(3)
    }


def flames(path: Path, **params: str) -> dict[str, tuple[int, int, int]]:
    """Frames by path: calls, own and whole time."""
    columns = answer("flame", path, **params)["columns"]
    names: list[str] = []
    for name, parent in zip(columns["name"], columns["parent"], strict=True):
        names.append(f"{names[parent]}/{name}" if parent >= 0 else name)
    return dict(zip(names, zip(columns["calls"], columns["self_ns"], columns["total_ns"], strict=True), strict=True))


def test_frames_have_the_time_of_their_launched_work(write: Write) -> None:
    path = write(events())
    top = "train.py(1): train"
    assert flames(path) == {
        top: (1, 120 * US, 200 * US),
        f"{top}/Net_0": (1, 30 * US, 80 * US),
        f"{top}/Net_0/Linear_0": (2, 50 * US, 50 * US),
    }
    assert flames(path, weight="device") == {
        top: (1, 3 * US, 98 * US),
        f"{top}/Net_0": (1, 5 * US, 95 * US),
        f"{top}/Net_0/Linear_0": (2, 20 * US, 90 * US),
        f"{top}/Net_0/Linear_0/(backward)": (2, 70 * US, 70 * US),
    }
    engine = "autograd::engine::evaluate_function: MmBackward0"
    operators = flames(path, tree="operator", weight="device")
    assert operators[f"{engine}/MmBackward0"] == (2, 70 * US, 70 * US)
    assert operators["aten::mm"] == (2, 20 * US, 20 * US)


def test_small_frames_are_folded_and_counted(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flame, "MAX_FRAMES", 2)
    path = write([frame("a", 0, 100), frame("b", 10, 50), frame("c", 60, 20), frame("d", 62, 5), frame("e", 80, 10)])
    result = answer("flame", path, tree="python")
    assert (result["frames"], result["folded"]) == (5, 3)
    assert flames(path, tree="python") == {
        "a": (1, 20 * US, 100 * US),
        "a/b": (1, 50 * US, 50 * US),
        "a/(others)": (2, 30 * US, 30 * US),
    }


@pytest.mark.parametrize("tree", ["python", "module", "operator"])
@pytest.mark.parametrize("weight", ["host", "device"])
def test_own_times_add_up_to_the_whole(tree: str, weight: str) -> None:
    result = answer("flame", SAMPLES / "pytorch-h200" / "transformer.pt.trace.json.gz", tree=tree, weight=weight)
    columns = result["columns"]
    roots = [ns for ns, parent in zip(columns["total_ns"], columns["parent"], strict=True) if parent < 0]
    assert sum(columns["self_ns"]) == sum(roots) == result["total_ns"] > 0
    assert all(parent < row for row, parent in enumerate(columns["parent"]))
    assert all(a >= b for a, b in pairwise(columns["total_ns"]))
    if weight == "device":
        work = answer("kernel", SAMPLES / "pytorch-h200" / "transformer.pt.trace.json.gz")
        kernels = sum(work["columns"]["total_ns"]) + sum(work["memory_operations"]["columns"]["total_ns"])
        assert result["total_ns"] + result["outside_ns"] == kernels


def test_modules_have_torchs_times() -> None:
    columns = answer("modules", RECORDING)["columns"]
    ours = {
        name.split("/")[-1]: (total, total - own)
        for name, kind, total, own in zip(
            columns["name"], columns["kind"], columns["host_total_ns"], columns["host_self_ns"], strict=True
        )
        if kind == "module"
    }
    theirs = {name.removeprefix("nn.Module: "): times for name, times in TORCH["modules"].items()}
    assert ours.keys() == theirs.keys()
    assert len(ours) == 12
    for name, (total, inner) in theirs.items():
        assert ours[name] == pytest.approx((total * US, inner * US), abs=1)


def _shown(stack: str) -> str:
    """Without the frames that torch leaves out of every stack."""
    return "\n".join(
        line for line in stack.split("\n") if not re.search(r"autograd/__init__.*(_make_grads|backward)$", line)
    )


def test_operators_are_in_the_stacks_of_torch() -> None:
    table = answer("operator", RECORDING, group="stack")["columns"]
    columns = (table["name"], table["call_stack"], table["calls"], table["host_self_ns"])
    ours = {(name, _shown(stack)): [calls, ns] for name, stack, calls, ns in zip(*columns, strict=True)}
    theirs = {
        (name, "\n".join(stack)): [calls, round(us * US)] for name, stack, calls, us in TORCH["stacks"] if "::" in name
    }
    assert len(theirs) > 40
    assert {key: ours[key] for key in theirs} == theirs
    assert {stack for _, stack in ours.keys() - theirs.keys() if "run_backward" not in stack} == set()


def test_links_and_numbers_tell_the_same_backward(write: Write) -> None:
    recorded = json.loads(gzip.decompress(RECORDING.read_bytes()))
    without = write([e for e in recorded.pop("traceEvents") if e.get("cat") != "fwdbwd"], **recorded)
    both = [rows(answer("modules", path), "backward_host_ns") for path in (RECORDING, without)]
    assert both[0] == both[1]
    assert min(both[0]["Sequential_0/Block_1/Sequential_2/Linear_3"]) > 0


def test_layers_of_paddle_contain_the_cpp_work_of_their_thread() -> None:
    path = recording_path("traces/paddle/small") / "host_rank0_time_2026_11_20_03_52_36_795951.paddle_trace.json"
    table_rows = rows(answer("modules", path), "calls", "operators", "host_total_ns")
    assert table_rows["Net/Sequential/Conv2D"][:2] == [22, 66]
    assert (
        table_rows["Net"][1]
        == sum(table_rows[f"Net/{name}"][1] for name in ("Sequential", "AdaptiveAvgPool2D", "Linear")) + 11
    )


def test_scopes_of_megengine_contain_their_queued_work() -> None:
    path = recording_path("traces/megengine/train") / "lenet_scopes_backtrace.chrome_timeline.json.gz"
    result = answer("modules", path)
    times = rows(result, "operators", "device_total_ns")
    assert times["forward/conv1"] == [6, 307_218]
    assert result["outside"]["operators"] == 0
    assert not result["only_ranges"]


def named(path: Path) -> Named:
    side: Any = SIDE.compute(read(path), SIDE.parse({"view": "modules"}))
    return Named(path.name, side)


def read(path: Path) -> Any:
    from tests.conftest import trace_of

    return trace_of(path)


def net(*layers: tuple[str, float], wrapped: bool = False) -> list[dict[str, Any]]:
    """Net_0 with layers one after the other, each with a kernel of so many us."""
    out: list[dict[str, Any]] = []
    for i, (name, dur) in enumerate(layers):
        ts = 100 + 100 * i
        out += [module(name, ts, 50), op("aten::mm", ts + 5, 30), call(ts + 10, i + 1), kernel(ts + 20, i + 1, dur)]
    around = [module("Net_0", 50, 2000)]
    return [*around, *([module("DistributedDataParallel_0", 40, 2020)] if wrapped else []), *out]


def test_modules_of_two_runs_meet_in_their_place_whatever_their_numbers(write: Write) -> None:
    base = write(net(("Linear_0", 10), ("ReLU_0", 5), ("Linear_1", 20)), "base.json")
    new = write(net(("Linear_0", 10), ("Conv2d_0", 7), ("GELU_0", 6), ("Linear_1", 25), wrapped=True), "new.json")
    table = compare("modules", named(base), named(new)).rows.columns
    values_by_name = {
        name: (before, base_ns, new_ns, status)
        for name, before, base_ns, new_ns, status in zip(
            table.name, table.base_name or (), table.base_ns, table.new_ns, table.status, strict=True
        )
        if base_ns or new_ns
    }
    top = "DistributedDataParallel_0/Net_0"
    assert values_by_name == {
        f"{top}/Linear_0": ("Net_0/Linear_0", 10 * US, 10 * US, "same"),
        f"{top}/Conv2d_0": (None, 0, 7 * US, "added"),
        f"{top}/GELU_0": (None, 0, 6 * US, "added"),
        "Net_0/ReLU_0": (None, 5 * US, 0, "removed"),
        f"{top}/Linear_1": ("Net_0/Linear_1", 20 * US, 25 * US, "changed"),
    }
    again = compare("modules", named(base), named(base)).rows.columns
    assert set(again.status) == {"same"}


def test_an_added_module_renames_the_following_and_an_exchanged_one_is_replaced(write: Write) -> None:
    base = write(net(("Linear_0", 10), ("ReLU_0", 5), ("Linear_1", 20)), "base.json")
    new = write(net(("Linear_0", 10), ("GELU_0", 6), ("Linear_2", 20)), "new.json")
    table = compare("modules", named(base), named(new)).rows.columns
    values_by_name = dict(zip(table.name, zip(table.base_name or (), table.status, strict=True), strict=True))
    assert values_by_name["Net_0/Linear_2"] == ("Net_0/Linear_1", "same")
    assert values_by_name["Net_0/GELU_0"] == ("Net_0/ReLU_0", "replaced")
    assert values_by_name["Net_0/Linear_0"] == (None, "same")


def test_a_path_has_the_names_on_its_way(write: Write) -> None:
    from visualprof.views.measure.operators.call_paths import frame_paths

    trace = read(write([frame("<built-in method f of T object at 0x7fAB12>", 0, 9), frame("g", 1, 5)]))
    assert path_texts(frame_paths(trace), trace.strings) == [
        "<built-in method f of T object>",
        "<built-in method f of T object>/g",
    ]
