"""What must hold of the numbers of every recording, whatever is in it."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES, SAMPLES, Write, json_of, trace_of
from tests.recordings import RECORDINGS, recording_path
from tests.views.test_steps import Event, host, kernel, launch, step
from visualprof.errors import VisualprofError
from visualprof.reader.models import read_model
from visualprof.reader.recognition import recognize
from visualprof.reader.source import Source
from visualprof.views import RunView, all_views, run_view, view
from visualprof.views.flame import TREES, available_trees
from visualprof.views.graph import drawn
from visualprof.views.measure.steps.parts import STEP_PARTS
from visualprof.views.measure.steps.windows import step_windows

NAMES = {
    "cpu_op": ("aten::mm", "aten::add", "nccl:all_reduce", "autograd::engine::evaluate_function: MmBackward0"),
    "user_annotation": (
        "Optimizer.step#Adam.step",
        "Optimizer.zero_grad#Adam.zero_grad",
        "mine",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    ),
}
KERNELS = ("kernel", "kernel", "ncclDevKernel_AllReduce_Sum_f32", "s16816gemm")
STAGES = ("dataloader", "forward", "backward", "optimizer", "other")
RATIOS = ("ratio", "utilization", "occupancy", "sm_efficiency")
LARGEST = 500_000  # bytes of a file; the suite stays fast
Answers = dict[str, Any]


def recordings(largest: int = LARGEST) -> list[Path]:
    """Every file of ours and, if they are there, of others that is a recording."""
    sorted_rows = (f for folder in (SAMPLES, FIXTURES, RECORDINGS / "traces") for f in sorted(folder.rglob("*.json*")))
    return [f for f in sorted_rows if f.stat().st_size <= largest and _is_recording(f)]


def _is_recording(path: Path) -> bool:
    try:
        recognize(Source(path))
    except VisualprofError:  # a model, a report, ...
        return False
    return True


def _answers(path: Path) -> Answers:
    """Every view of one trace, as others receive it."""
    trace = trace_of(path)
    shown = (v for v in all_views() if v.subject in ("trace", "run") and v.needs(trace))
    return {
        v.name: json_of(
            v.compute_from_traces([("w", trace)], v.parse({}))
            if isinstance(v, RunView)
            else v.compute(trace, v.parse({}))
        )
        for v in shown
    }


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every number with the path that leads to it."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, key)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield key, value


def check_shares(answers: Answers) -> list[str]:
    """No share exceeds the whole, no time is negative."""
    collected: list[str] = []
    for key, value in _leaves(answers):
        last = key.rsplit(".", 1)[-1]
        if last.endswith(RATIOS) and not -1e-9 <= value <= 1 + 1e-9:
            collected.append(f"{key} is {value}")
        if last.endswith("_ns") and "excess" not in last and "offset" not in last and value < 0:
            collected.append(f"{key} is {value}")
    return collected


def check_steps(path: Path, answers: Answers) -> list[str]:
    """Parts of a step add up to it, steps do not overlap, and every mark is counted or left out with a reason."""
    overview, windows = answers["overview"], step_windows(trace_of(path))
    steps, by_stage = overview["steps"], overview["stage_steps"]
    collected: list[str] = []
    for i, total in enumerate(steps["total_ns"]):
        if sum(steps[f"{part}_ns"][i] for part in STEP_PARTS) != total:
            collected.append(f"parts of step {steps['name'][i]} are not it")
        stages = [by_stage[f"{stage}_ns"][i] for stage in STAGES]
        if None not in stages and sum(stages) != total:
            collected.append(f"stages of step {steps['name'][i]} are not it")
    if (windows.start[1:] < windows.end[:-1]).any():
        collected.append("steps overlap")
    first, last = trace_of(path).span_ns
    if len(windows) and (windows.start[0] < first or windows.end[-1] > last):
        collected.append("steps leave the recording")
    marks = overview["environment"]["steps"]
    if marks and len(steps["name"]) + len(overview["dropped_steps"]) != marks:
        collected.append(f"{marks} marks, {len(steps['name'])} steps, {len(overview['dropped_steps'])} left out")
    if "distributed" in answers and answers["distributed"]["columns"]["total_ns"] != steps["total_ns"]:
        collected.append("a step lasts differently among ranks")
    return collected


def check_stages(answers: Answers) -> list[str]:
    """Shares of the stages are parts of one whole."""
    table = answers["overview"]["stages"]["columns"]
    return [
        f"{side} shares of stages add up to {total}"
        for side in ("host", "device")
        if not (total := math.fsum(r or 0 for r in table[f"{side}_ratio"])) <= 1.0001
    ]


def check_findings(path: Path, answers: Answers) -> list[str]:
    """No gain exceeds the step, and what is shown lies inside the recording."""
    response, collected = answers.get("findings", {"findings": []}), list[str]()
    longest = answers["overview"]["environment"]["duration_ns"]
    for finding in response["findings"]:
        gain, start, end = finding["gain_ns_per_step"], finding["start_ns"], finding["end_ns"]
        if gain is not None and not 0 <= gain <= response["simulated_ns"]:
            collected.append(f"{finding['id']} gains {gain} of a step of {response['simulated_ns']}")
        if start is not None and not 0 <= start < end <= longest:
            collected.append(f"{finding['id']} is seen from {start} to {end} of {longest}")
    return collected


def check_operators(path: Path, answers: Answers) -> list[str]:
    """Self time is part of the total, and operators and what no operator owns are all that devices did."""
    if "operator" not in answers:
        return []
    table, collected = answers["operator"]["columns"], list[str]()
    for side in ("host", "device"):
        for name, own, total in zip(table["name"], table[f"{side}_self_ns"], table[f"{side}_total_ns"], strict=True):
            if own > total:
                collected.append(f"{side} self time of {name}: {own} of {total}")
    return collected


def check_waits(answers: Answers) -> list[str]:
    """Transferring and waiting are parts of the step; computation and communication make it up."""
    if "distributed" not in answers:
        return []
    result, collected = answers["distributed"], list[str]()
    table, waits = result["columns"], result["waits"]["columns"]
    lasts = dict(zip(zip(table["rank"], table["step"], strict=True), table["total_ns"], strict=True))
    for rank, name, *parts in zip(*(waits[c] for c in ("rank", "step", "transfer_ns", "wait_ns")), strict=True):
        if sum(parts) > lasts[rank, name]:
            collected.append(f"rank {rank} transfers and waits {sum(parts)} of step {name} of {lasts[rank, name]}")
    for place in (table, result["by_device"]["columns"]):
        columns = (place[f"{c}_ns"] for c in ("computation", "communication", "other", "overlap", "total"))
        for row in zip(*columns, strict=True):
            if row[0] + row[1] + row[2] - row[3] != row[4]:
                collected.append(f"computation and communication {row}")
            if row[3] > min(row[:2]):
                collected.append(f"overlap is more than a part of it: {row}")
    return collected


def check_sums(path: Path, answers: Answers) -> list[str]:
    """Sums of operations are marked as lower bounds if the work of a product on a device is unknown."""
    if "roofline" not in answers or "operator" not in answers or answers["roofline"]["at_least"]:
        return []
    operators, work = answers["operator"]["columns"], answers["roofline"]["columns"]
    known = {name for name, flops in zip(work["name"], work["flops"], strict=True) if flops is not None}
    columns = (operators[c] for c in ("name", "tensor_core_eligible", "device_self_ns"))
    products = [name for name, can_be_product, ns in zip(*columns, strict=True) if can_be_product and ns > 0]
    return [f"the sum misses {name}, and does not say so" for name in products if not _known_around(path, name) & known]


def _known_around(path: Path, name: str) -> set[str]:
    """Return the names of an operator's first call and of the operators around it, which may have its work."""
    trace, names = trace_of(path), set[str]()
    row = next(row for row, i in enumerate(trace.events.name.tolist()) if trace.strings[i] == name)
    while row >= 0:
        names.add(trace.strings[int(trace.events.name[row])])
        row = int(trace.events.parent[row])
    return names


def check_siblings(path: Path) -> list[str]:
    """Rows of a tree with one parent have different names: one path is one row."""
    trace, collected = trace_of(path), list[str]()
    trees = [("modules", {})] + [("flame", {"tree": t, "weight": w}) for t in TREES for w in ("host", "device")]
    for name, params in trees:
        shown = view(name)
        if not shown.needs(trace) or params.get("tree", "module") not in available_trees(trace):
            continue
        columns = json_of(shown.compute(trace, shown.parse(params)))["columns"]
        siblings = Counter(zip(columns["parent"], columns["name"], strict=True))
        collected += [f"{name} {params} has {n} rows {row}" for row, n in siblings.items() if n > 1]
    return collected


def check(path: Path) -> list[str]:
    """Everything that is wrong with the numbers of one trace."""
    answers = _answers(path)
    if "overview" not in answers:
        return check_shares(answers)
    return [
        *check_shares(answers),
        *check_steps(path, answers),
        *check_stages(answers),
        *check_findings(path, answers),
        *check_operators(path, answers),
        *check_waits(answers),
        *check_sums(path, answers),
        *check_siblings(path),
    ]


@pytest.mark.parametrize("path", recordings(), ids=lambda path: "/".join(path.parts[-2:]))
def test_numbers_of_recordings_hold_together(path: Path) -> None:
    assert check(path) == []


@pytest.mark.parametrize("case", ["paths/depth.json", "paths/flat.json", "ckpt.json.gz"])
def test_a_path_of_a_public_case_is_one_row(case: str) -> None:
    assert check_siblings(recording_path(f"cases/numbers/{case}")) == []


@pytest.mark.parametrize("path", sorted((RECORDINGS / "cases").rglob("*.onnx")), ids=lambda path: path.name)
def test_sums_of_models_say_at_least_if_sizes_are_unknown(path: Path) -> None:
    try:
        model = read_model(path)
    except VisualprofError:
        return
    shown = drawn(model).model
    assert any("at least" in warning for warning in shown.warnings) == (shown.unknown_constants > 0)


@pytest.mark.parametrize("seed", range(60))
def test_numbers_of_any_trace_hold_together(write: Write, seed: int) -> None:
    assert check(write(_arbitrary(random.Random(seed)), f"{seed}.json")) == []


@pytest.mark.parametrize("seed", range(20))
def test_numbers_of_arbitrary_ranks_hold_together(write: Write, seed: int) -> None:
    paths = [write(_arbitrary(random.Random(100 + seed)), f"{rank}.json") for rank in range(2)]
    paths.append(write(_arbitrary(random.Random(200 + seed)), "2.json"))
    distributed = run_view("distributed")
    for chosen in (paths[:2], paths[1:]):  # ranks that did the same, and such that did not
        ranks = [(path.name, trace_of(path)) for path in chosen]
        answers = {"distributed": json_of(distributed.compute_from_traces(ranks, distributed.parse({})))}
        assert check_shares(answers) + check_waits(answers) == []


def _arbitrary(chance: random.Random) -> list[Event]:
    """Threads, streams and steps of arbitrary lengths: ranges outlive steps, work starts late, ids lead nowhere."""
    length, count = chance.choice((200, 1000)), chance.choice((0, 1, 3, 6))
    events = [step(n, n * length, chance.choice((length, length - 5, length // 2))) for n in range(count)]
    free = [0, 0, 0]  # when each stream is done
    for tid in range(1, chance.choice((2, 3, 4))):
        at = chance.randint(-50, 100)
        while at < max(count, 2) * length + chance.randint(-length, length):
            took, cat = chance.randint(0, length // 5), chance.choice(tuple(NAMES))
            events.append(
                host(cat, chance.choice(NAMES[cat]), at, took, tid, **{"Sequence number": 1} if took % 3 else {})
            )
            for _ in range(chance.choice((0, 1, 3))):
                correlation, stream = len(events), chance.randrange(3)
                call = launch(at + 1, correlation, chance.randint(0, took))
                start = max(free[stream], at + 1 + chance.choice((0, 3, length // 2)))
                free[stream] = start + chance.randint(0, length // 5)
                run = kernel(start, free[stream] - start, correlation, chance.choice(KERNELS), stream)
                events += chance.choice(([call, run], [call, run], [run], [call])) if tid == 1 else [run]
            at += took + chance.randint(1, length // 8)
    chance.shuffle(events)
    return events


def test_a_view_is_found_by_the_name_of_its_file() -> None:
    assert [view(known.name) for known in all_views()] == list(all_views())
