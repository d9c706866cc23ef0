"""The same number everywhere: what one answer says does not contradict another answer of the same recording."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from tests.conftest import SAMPLES, answer, json_of, trace_of
from tests.recordings import recording_path
from tests.views.test_invariants import recordings
from tests.views.test_step_time import LARGEST, answers
from visualprof.errors import VisualprofError
from visualprof.views import Params, run_view

V100 = "traces/kineto/tb_plugin/resnet50_num_workers_{}.pt.trace.json.gz"
V100_NAMES = ("0__worker0.1623143089861", "4__worker0.1623213129365")
DDP4 = "traces/torch_cpu/ddp4/rank0.pt.trace.json.gz"
OPTIMIZER = re.compile(r"\b(Adam\w*|SGD|RMSprop|Adagrad|LBFGS)\(")
MAX_OVERLAP = 0.02  # of threads that form one line of control: the time of both counts
MIN_GAIN_RATIO = 0.001  # of the step: the page folds smaller gains
Answers = dict[str, Any]


def rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    columns = table["columns"]
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def check_findings_and_plan(results: Answers) -> list[str]:
    """The first rung gains as much as its finding; bounds of changes do not exceed those of their findings."""
    findings = {finding["id"]: finding for finding in results["findings"]["findings"]}
    wrong: list[str] = []
    for rung in rows(results["plan"]["rungs"]):
        finding = findings.get(rung["finding"])
        if finding is None or finding["change"] != (rung["change"] or finding["change"]):
            continue
        gain, most = finding["gain_ns_per_step"], finding["most_ns_per_step"]
        if rung["alone_ns"] is not None and gain is not None and abs(rung["alone_ns"] - gain) > 1:
            wrong.append(f"{finding['id']} gains {gain}, alone in the plan {rung['alone_ns']}")
        bound = gain if most is None else most
        if (
            rung["step_ns"] is None
            and rung["most_ns"] is not None
            and bound is not None
            and rung["most_ns"] > bound + 1
        ):
            wrong.append(f"{finding['id']} gains at most {bound}, in the plan {rung['most_ns']}")
    return wrong


def check_path(results: Answers) -> list[str]:
    """Segments of the critical path, its names and its parts are parts of the same path."""
    if "critical" not in results:
        return []
    critical, wrong = results["critical"], list[str]()
    path_ns, by_name, named = critical["path_ns"], dict[str, int](), defaultdict[str, int](int)
    for row in rows(critical):
        by_name[row["name"]] = by_name.get(row["name"], 0) + row["path_ns"]
    for piece in rows(critical["longest"]):
        named[piece["name"]] += piece["name_ns"] or 0
    sums = {
        "names": sum(by_name.values()),
        "segments": sum(critical["longest"]["columns"]["duration_ns"]),
        "parts": sum(critical["parts"]["columns"]["path_ns"]),
    }
    rounding_ns = 1000 + MAX_OVERLAP * path_ns
    wrong += [f"{kind} add up to {ns} of {path_ns}" for kind, ns in sums.items() if ns > path_ns + rounding_ns]
    wrong += [
        f"{name}: {ns} > {by_name.get(name)}" for name, ns in named.items() if ns > by_name.get(name, 0) + rounding_ns
    ]
    before, steps = results["whatif"]["path_before"]["columns"], results["whatif"]["steps"]
    if abs(sum(before["path_ns"]) * steps - sums["parts"]) > rounding_ns:
        wrong.append(f"the path is {sum(before['path_ns']) * steps} in what-if and {sums['parts']}")
    return wrong


def check_forecasts(results: Answers) -> list[str]:
    """Less work does not make a step longer, and one kernel does not save more than all device work."""
    whatif = results["whatif"]
    gains = dict(zip(*(whatif["changes"]["columns"][name] for name in ("change", "gain_ns")), strict=True))
    least = MIN_GAIN_RATIO * whatif["step"]["measured_ns"]
    wrong = [f"{change} gains {gain}" for change, gain in gains.items() if gain < -1]
    most = gains.get("gpu*0.5", float("inf"))
    return wrong + [
        f"{change} gains {gain}, all device work {most}"
        for change, gain in gains.items()
        if change.startswith("kernel[") and gain > most + least
    ]


def check_shares_of_findings(results: Answers) -> list[str]:
    """Evidence about typical steps is the median of the steps of the overview, and exposed communication a part."""
    overview, wrong = results["overview"], list[str]()
    steps = overview["steps"]
    if overview["headline"]["typical_steps"] != len(steps["name"]):
        return []
    for finding in results["findings"]["findings"]:
        evidence = finding["evidence"]
        if finding["id"] == "dataloader_bound" and abs(evidence["dataloader_ns"] - median(steps["dataloader_ns"])) > 1:
            wrong.append(f"data loading takes {evidence['dataloader_ns']}")
        if finding["id"] == "communication_bound" and "distributed" in results:
            exposed = [row["communication_ns"] - row["overlap_ns"] for row in rows(results["distributed"])]
            if abs(evidence["communication_ns"] - median(exposed)) > 1:
                wrong.append(f"exposed communication takes {evidence['communication_ns']} and {median(exposed)}")
    return wrong


def check_texts(path: Path, results: Answers) -> list[str]:
    """Code names only the optimizer of the recording, and a table of unknown memory is left out."""
    names = {name for name in trace_of(path).strings if name.startswith("Optimizer.step#")}
    codes = [finding["code"] for finding in results["findings"]["findings"]]
    codes += [code or "" for code in results["plan"]["rungs"]["columns"]["code"]]
    wrong = [
        f"{code} names {optimizer}"
        for code in codes
        for optimizer in OPTIMIZER.findall(code)
        if f"Optimizer.step#{optimizer}.step" not in names
    ]
    categories = results["memory"]["peak"].get("categories") if "memory" in results else None
    if categories is not None and set(categories["columns"]["name"]) <= {"unknown"}:
        wrong.append("all memory is of unknown purpose")
    return wrong


def contradictions(path: Path) -> list[str]:
    """Return what the answers for a recording say that cannot all be true."""
    results = dict(answers(path))
    if not {"overview", "findings", "plan", "whatif"} <= results.keys():
        return []
    if results["overview"]["environment"]["rank"] is not None:
        alone = run_view("distributed").compute_from_traces([(path.name, trace_of(path))], Params())
        results["distributed"] = json_of(alone)
    wrong = [
        *check_findings_and_plan(results),
        *check_path(results),
        *check_forecasts(results),
        *check_shares_of_findings(results),
        *check_texts(path, results),
    ]
    return [f"{path.name}: {text}" for text in wrong]


@pytest.mark.slow
def test_answers_of_all_recordings_agree() -> None:
    wrong, compared = list[str](), 0
    for path in recordings(LARGEST):
        try:
            wrong += contradictions(path)
        except VisualprofError:
            continue
        compared += 1
    assert wrong == []
    assert compared > 40


@pytest.mark.slow
@pytest.mark.parametrize("name", V100_NAMES)
def test_answers_of_a_training_on_a_v100_agree(name: str) -> None:
    assert contradictions(recording_path(V100.format(name))) == []


@pytest.mark.parametrize("name", ["pytorch-h200/cnn", "pytorch-loader/no-workers", "pytorch-ddp-cpu/rank0"])
def test_answers_of_a_sample_agree(name: str) -> None:
    assert contradictions(SAMPLES / f"{name}.pt.trace.json.gz") == []


def union_ns(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def common_ns(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> int:
    return sum(max(min(b, d) - max(a, c), 0) for a, b in first for c, d in second)


def test_communication_of_the_overview_and_its_exposed_part_as_in_the_file() -> None:
    """The file itself, read without visualprof: 69.6 % of a step communicates, and 32.5 % while nothing computes."""
    path = recording_path(DDP4)
    events = [
        event for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if event.get("ph") == "X"
    ]
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        start = round(event["ts"] * 1000)
        kind = "step" if event["name"].startswith("ProfilerStep") else event.get("cat", "")
        kind = "communication" if event["name"].startswith(("gloo:", "c10d::")) else kind
        spans[kind].append((start, start + round(event["dur"] * 1000)))
    communication, computation = union_ns(spans["communication"]), union_ns(spans["cpu_op"])
    active, exposed = list[int](), list[int]()
    for step in spans["step"]:
        inside = [(max(a, step[0]), min(b, step[1])) for a, b in communication if a < step[1] and b > step[0]]
        active.append(common_ns(inside, [step]))
        exposed.append(active[-1] - common_ns(inside, computation))
    average = answer("overview", path)["average_step"]
    findings = {finding["id"]: finding for finding in answer("findings", path)["findings"]}
    assert average["communication_ns"] == pytest.approx(mean(active), rel=0.001)
    assert findings["communication_bound"]["evidence"]["communication_ns"] == pytest.approx(median(exposed), rel=0.001)
    assert (average["communication_ns"] / average["total_ns"]) == pytest.approx(0.696, abs=0.001)
    assert findings["communication_bound"]["evidence"]["communication_ratio"] == pytest.approx(0.325, abs=0.001)


@pytest.mark.parametrize("run", ["synthetic-4gpu", "pytorch-ddp-cpu"])
def test_totals_of_collectives_cover_the_transfer_of_their_steps(run: str) -> None:
    """The table sums up all calls of a recording, the chart the union per step: the sum is never less."""
    paths = sorted((SAMPLES / run).glob("*.json.gz"))
    traces = [(path.name, trace_of(path)) for path in paths]
    result = json_of(run_view("distributed").compute_from_traces(traces, Params()))
    totals, steps = defaultdict[int, int](int), defaultdict[int, int](int)
    for row in rows(result["collectives"]):
        totals[row["rank"]] += row["transfer_ns"]
    for row in rows(result["waits"]):
        steps[row["rank"]] += row["transfer_ns"]
    assert len(steps) == len(paths)
    assert all(0 < steps[rank] <= totals[rank] for rank in steps)
