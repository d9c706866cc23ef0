"""Benchmark cases over HTTP: those that ship, their results side by side, what stands behind one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.server_settings import server_settings
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.results.case import SCHEMA, CasePass, CaseResult, CaseSetting, CaseStep
from visualprof.server.app import create_app
from visualprof.views.measure.reports.cases import metric_chart, newest_results

from sites import InlineParser  # isort: skip


def result(compiler: str, core: float, at: int, **more: Any) -> CaseResult:
    """A run of `net` on `lab`."""
    passed: dict[str, Any] = {
        name: CasePass(rate / 2, rate, 0.9, 8, n=2) for name, rate in (("validation", 10.0), ("inference", core))
    }
    fields: dict[str, Any] = {
        "case": "net",
        "framework": "numpy",
        "vendor": "cpu",
        "precision": "fp32",
        "batch_size": 4,
    }
    fields |= {"host": "lab", "state": "succeeded", "accuracy_difference": 0.0}
    return CaseResult(SCHEMA, compiler=compiler, finished_ns=at, **(fields | passed | more))


FAILED = result(
    "openvino",
    0,
    4,
    case="other",
    state="failed",
    step="export",
    reason="crashed",
    error="it broke",
    inference=None,
    steps=[CaseStep("init", "done", 5), CaseStep("export", "failed", 7, "it broke")],
    batch_size=8,
    settings=[CaseSetting("batch_size", "8", "command line", "4")],
)
RESULTS = {
    "net/ort": result("onnxruntime", 20.0, 1, mfu=0.5),
    "net/ov": result("openvino", 30.0, 2),
    "net/ov~2": result("openvino", 40.0, 3),
    "other/ov": FAILED,
}


@pytest.fixture
def get(tmp_path: Path) -> Iterator[Any]:
    """Asks a server over four results."""
    for run, one in RESULTS.items():
        folder = tmp_path / "runs" / run
        folder.mkdir(parents=True)
        (folder / "case.json").write_bytes(msgspec.json.encode(one))
        (folder / "log.txt").write_text(f"== init\n{'x' * 70_000 if run == 'net/ort' else ''}\nof {run}", "utf-8")
    cache = Cache(tmp_path / "cache")
    logdir = LogDirectory([tmp_path / "runs"], InlineParser(cache), cache, events=False, settle_s=0)
    client = create_app(logdir, server_settings(dist=tmp_path / "dist")).test_client()
    logdir.rescan()
    logdir.rescan()

    def ask(path: str = "cases", status: int = 200, **query: str) -> Any:
        answer = client.get(f"/api/v1/{path}", query_string=query)
        assert answer.status_code == status, answer.text
        return answer.json if answer.is_json else answer.text

    yield ask
    logdir.close()


def test_the_newest_result_of_each_setup_is_compared(get: Any) -> None:
    answer = get()
    rows = answer["results"]
    assert rows["run"] == ["other/ov", "net/ov~2", "net/ort"]
    assert rows["core_per_s"] == [None, 40.0, 20.0]  # validation is no figure of an engine that failed
    assert rows["validation_core_per_s"] == [10.0] * 3
    assert (rows["machine"], rows["state"]) == (["lab"] * 3, ["failed", "succeeded", "succeeded"])
    assert rows["mfu"] == [None, None, 0.5]
    assert {"core_per_s", "mfu", "accuracy"} <= set(answer["metrics"])
    assert "energy_j_per_sample" not in answer["metrics"]
    assert get(newest="false")["results"]["run"] == ["other/ov", "net/ov~2", "net/ov", "net/ort"]
    assert get(case="net", newest="false")["results"]["core_per_s"] == [40.0, 30.0, 20.0]
    assert get(machine="another")["results"]["run"] == []
    assert (answer["cases"], get(machine="another")["cases"]) == (["net", "other"], ["net", "other"])
    assert get(status=400, metric="speed")["error"] == "there is no figure 'speed'"


def test_bars_are_named_by_what_differs_within_a_case() -> None:
    option = metric_chart(RESULTS, "core_per_s")
    assert option["xAxis"]["data"] == ["net"]  # the other has no such figure
    assert {row["name"]: row["data"] for row in option["series"]} == {
        "onnxruntime": [{"value": 20.0, "id": "net/ort"}],
        "openvino": [{"value": 40.0, "id": "net/ov~2"}],
    }
    assert option["yAxis"]["type"] == "value"
    far = RESULTS | {"big": result("openvino", 3000.0, 5, host="gpu7")}
    option = metric_chart(far, "core_per_s")
    assert {row["name"] for row in option["series"]} == {"lab · onnxruntime", "lab · openvino", "gpu7 · openvino"}
    assert option["yAxis"]["type"] == "log"
    assert metric_chart(RESULTS, "energy_j_per_sample") == {}
    assert set(newest_results(far)) == {"net/ort", "net/ov~2", "other/ov", "big"}
    cancelled = result("onnxruntime", 0, 9, state="cancelled", inference=None)
    assert set(newest_results({"net/ort": RESULTS["net/ort"], "later": cancelled})) == {"net/ort"}
    assert set(newest_results({"later": cancelled})) == {"later"}


def test_tables_to_save(get: Any) -> None:
    head, first, *_ = get(format="csv", case="net").removeprefix("\ufeff").splitlines()
    assert dict(zip(head.split(","), first.split(","), strict=True))["core_per_s"] == "40.0"
    lines = get(format="flagperf", case="net").splitlines()
    assert lines[2] == "| net | lab | openvino | fp32 | 4 | / | 5.0 | 10.0 | 20.0 | 40.0 | / | 0.9/0.9 | /// |"


def test_details_of_a_result_are_answered(get: Any) -> None:
    answer = get("cases/result", run="other/ov")
    assert (answer["state"], answer["step"], answer["reason"], answer["error"]) == (
        "failed",
        "export",
        "crashed",
        "it broke",
    )
    assert answer["steps"] == {
        "name": ["init", "export"],
        "state": ["done", "failed"],
        "took_ns": [5, 7],
        "why": ["", "it broke"],
    }
    assert answer["settings"] == {"key": ["batch_size"], "value": ["8"], "origin": ["command line"], "before": ["4"]}
    assert (answer["passes"]["of"], answer["passes"]["n"]) == (["validation"], [2])
    assert (answer["log"].splitlines()[-1], answer["log_cut"], answer["report"]) == ("of other/ov", False, None)
    long = get("cases/result", run="net/ort")
    assert (len(long["log"]), long["log_cut"], long["log"][-10:]) == (1 << 16, True, "of net/ort")
    assert "no result" in get("cases/result", 404, run="net/../../secret")["error"]


@pytest.mark.slow
def test_shipped_cases_are_described_without_a_framework(get: Any) -> None:
    shipped = {row["name"]: row for row in get()["shipped"]}
    assert shipped["digits"]["frameworks"] == ["megengine", "pytorch", "tensorflow"]
    assert shipped["digits"]["compiler"] == "onnxruntime"
    code = (
        "import sys; from visualprof.server.api.cases import shipped_case_rows; shipped_case_rows(); "
        "print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
