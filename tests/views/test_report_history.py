"""Reports of equal configuration: which are the newest, and how far the earlier ones spread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.results import SECOND, T0, write_result
from tests.views.test_evaluation import FAST, reports_in
from visualprof.cli import main
from visualprof.reader.results.report import Report
from visualprof.views.evaluation import EvaluationParams, compute
from visualprof.views.measure.reports.report_history import ReportHistory

REQUEST = {
    "inputs": [{"name": "x", "dims": ["batch", 3]}],
    "dims": {},
    "sweep": {"dim": "batch", "values": [1, 4]},
    "measure": {"min_s": 1.0, "load": {"concurrency": [1]}},
    "advise": {"objective": ""},
    "search": {"objective": ""},
}


def measured(
    folder: Path,
    name: str,
    latency_ns: int,
    order: int,
    spec: str = "ort",
    batches: tuple[int, ...] = (1, 4),
    **more: Any,
) -> None:
    """A report of a job whose runs all take a time, the `order`-th to end."""
    status = {"finished_ns": T0 + order * SECOND} | more.pop("status", {})
    request = REQUEST | more.pop("request", {})
    changes = {"spec": {"id": spec, "backend": "onnxruntime", "device": "cpu", "threads": 1, **more.pop("options", {})}}
    body = {"job": name, "name": f"name of {name}", "request": request} | changes | more.pop("job", {})
    samples = np.full(1000, latency_ns)
    write_result(folder / name / spec, dict.fromkeys(batches, samples), status=status, job=body, **more)


def shown(folder: Path) -> dict[str, list[str]]:
    """The shown reports of a folder with their earlier ones."""
    reports = list(reports_in(folder).values())
    history = ReportHistory(reports)
    return {r.id: [old.id for old in history.earlier(r)] for r in reports if history.is_shown(r)}


def test_the_newest_of_equal_configurations_has_the_earlier_ones_as_its_history(tmp_path: Path) -> None:
    for order, job in enumerate(("a", "b", "c")):
        measured(tmp_path, job, 100_000, order)
    assert shown(tmp_path) == {"c/ort": ["b/ort", "a/ort"]}


def test_names_and_measuring_times_do_not_change_the_configuration(tmp_path: Path) -> None:
    measured(tmp_path, "a", 100_000, 1, "ort")
    measure = {"min_s": 9.0, "load": {"concurrency": [1]}}
    measured(tmp_path, "b", 100_000, 2, "mine", request={"measure": measure, "priority": "high", "repeat": 3})
    assert shown(tmp_path) == {"b/mine": ["a/ort"]}


@pytest.mark.parametrize(
    "change",
    [
        {"options": {"threads": 2}},
        {"options": {"precision": "bf16"}},
        {"options": {"options": {"optimization": "basic"}}},
        {"options": {"backend": "openvino"}},
        {"env": {"version": "1.2.4"}},
        {"env": {"agent": "server"}},
        {"env": {"cpu": "another CPU"}},
        {"env": {"gpus": [{"name": "a GPU"}]}},
        {"env": {"device": "cuda"}},
        {"request": {"sweep": {"dim": "batch", "values": [1, 8]}}},
        {"request": {"inputs": [{"name": "x", "dims": ["batch", 5]}]}},
        {"request": {"dims": {"sequence": 64}}},
        {"request": {"measure": {"load": {"concurrency": [4]}}}},
        {"request": {"advise": {"objective": "latency"}}},
        {"request": {"search": {"objective": "latency"}}},
        {"request": {"case": {"name": "digits"}}},
        {"request": {"model": {"parts": [{"path": "w", "blob": "1"}]}}},
        {"job": {"model": {"name": "m.onnx", "sha256": "cd" * 32}}},
    ],
    ids=str,
)
def test_another_configuration_is_a_line_of_its_own(tmp_path: Path, change: dict[str, Any]) -> None:
    measured(tmp_path, "a", 100_000, 1)
    measured(tmp_path, "b", 100_000, 2, **change)
    assert shown(tmp_path) == {"a/ort": [], "b/ort": []}


def test_equal_run_configurations_of_one_job_are_both_shown(tmp_path: Path) -> None:
    measured(tmp_path, "old", 100_000, 1)
    for order, spec in enumerate(("a", "b"), 2):
        measured(tmp_path, "new", 100_000, order, spec)
    assert shown(tmp_path) == {"new/a": ["old/ort"], "new/b": ["old/ort"]}


@pytest.mark.parametrize("state", ["running", "failed", "cancelled"])
def test_an_incomplete_report_is_shown_next_to_the_newest_complete_one(tmp_path: Path, state: str) -> None:
    measured(tmp_path, "first", 100_000, 1)
    measured(tmp_path, "complete", 100_000, 2)
    measured(tmp_path, "older", 100_000, 3, batches=(), status={"state": "failed"})
    measured(tmp_path, "newest", 100_000, 4, batches=(1,), status={"state": state})
    assert shown(tmp_path) == {"complete/ort": ["older/ort", "first/ort"], "newest/ort": []}


def test_a_table_has_one_row_per_configuration_and_size_with_the_spread_of_earlier_ones(tmp_path: Path) -> None:
    for order, (job, latency_ns) in enumerate((("a", 120_000), ("b", 80_000), ("c", 100_000))):
        measured(tmp_path, job, latency_ns, order)
    measured(tmp_path, "partial", 50_000, -1, batches=(1,))
    columns = compute(list(reports_in(tmp_path).values()), EvaluationParams()).columns
    assert (list(columns.report), list(columns.batch)) == (["c/ort"] * 2, [1, 4])
    assert list(columns.earlier) == [3, 2], "the partial report has only one size"
    assert list(columns.earlier_least_p50_ns) == [50_000, 80_000]
    assert list(columns.earlier_most_p50_ns) == [120_000, 120_000]
    assert [round(rate) for rate in columns.earlier_least_samples_per_s if rate] == [8333, 33333]


def test_the_command_line_shows_all_reports_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for order, job in enumerate(("a", "b")):
        measured(tmp_path, job, 100_000, order, batches=(1,))

    def reports(*options: str) -> list[str]:
        assert main(["view", "evaluation", str(tmp_path), "--format", "json", *options]) == 0
        return json.loads(capsys.readouterr().out)["columns"]["report"]

    assert reports() == ["b/ort"]
    assert sorted(reports("--param", "history=all")) == ["a/ort", "b/ort"]


def test_reports_without_facts_are_not_taken_for_equal(tmp_path: Path) -> None:
    for name, sha256 in (("a", "1"), ("b", "2")):
        write_result(tmp_path / name, {1: FAST}, job={"job": name, "model": {"sha256": sha256}})
    assert shown(tmp_path) == {"a": [], "b": []}


def test_reports_that_are_unknown_to_the_history_are_shown(tmp_path: Path) -> None:
    measured(tmp_path, "a", 100_000, 1)
    (report,) = reports_in(tmp_path).values()
    assert isinstance(report, Report)
    history = ReportHistory([])
    assert history.is_shown(report)
    assert history.earlier(report) == []
