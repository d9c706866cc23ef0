"""The reports over HTTP: list, overlay, points."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.conftest import FIXTURES, SAMPLES
from tests.results import write_monitor, write_result
from tests.server_settings import server_settings
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.server.app import create_app

from sites import InlineParser  # isort: skip

FAST = np.full(1000, 100_000)
PROFILE = {"pass": "timeline", "file": "timeline.json", "start_ns": 1, "batch": 1, "runs": 20, "error": None}


class Dashboard:
    """A log directory with results, looked at when asked to."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "runs"
        self.folder.mkdir()
        cache = Cache(tmp_path / "cache")
        self.parser = InlineParser(cache)
        self.logdir = LogDirectory([self.folder], self.parser, cache, events=False, settle_s=0)
        self.app: Flask = create_app(self.logdir, server_settings(dist=tmp_path / "dist"))
        self.client: FlaskClient = self.app.test_client()

    def look(self) -> None:
        self.logdir.rescan()
        self.logdir.rescan()  # what was new the first time has come to rest

    def get(self, path: str, status: int = 200, **query: Any) -> Any:
        response = self.client.get(f"/api/v1/evaluation{path}", query_string=query)
        assert response.status_code == status, response.text
        return response.json


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Dashboard]:
    new_site = Dashboard(tmp_path)
    yield new_site
    new_site.logdir.close()


@pytest.fixture
def result(dashboard: Dashboard) -> Path:
    """A result with a profile of a GPU and a monitor's file."""
    folder = write_result(dashboard.folder / "m-1" / "ort", {1: FAST, 4: FAST * 2}, status={"profiles": [PROFILE]})
    sample = SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"
    (folder / "timeline.json").write_bytes(gzip.decompress(sample.read_bytes()))
    write_monitor(folder)
    dashboard.look()
    return folder


def rewrite(path: Path, data: bytes) -> None:
    """Another content, long ago: nobody waits for the file to come to rest."""
    path.write_bytes(data)
    os.utime(path, (10**9, 10**9))


def test_every_report_is_listed_the_newest_first(dashboard: Dashboard) -> None:
    for i, name in enumerate(("old", "new")):
        write_result(dashboard.folder / "m" / name, {1: FAST, 4: FAST * 2}, status={"finished_ns": 10**18 + i})
    dashboard.look()
    answer = dashboard.get("")
    assert [r["id"] for r in answer["reports"]] == ["m/new", "m/old"]
    row = answer["reports"][0]
    assert (row["points"], row["best_batch"], row["best_samples_per_s"]) == (2, 4, 20_000.0)
    assert (row["spec"], row["agent"], row["state"], row["run"]) == ("new", "laptop", "succeeded", None)


def test_reports_of_equal_configuration_name_their_earlier_ones(dashboard: Dashboard) -> None:
    for i, (job, samples) in enumerate((("a", FAST * 2), ("b", FAST), ("c", FAST * 4))):
        status = {"finished_ns": 10**18 + i}
        write_result(dashboard.folder / job / "ort", {1: samples}, job={"job": job}, status=status)
    dashboard.look()
    rows = dashboard.get("")["reports"]
    assert [(row["id"], row["newest"], row["earlier"]) for row in rows] == [
        ("c/ort", True, ["b/ort", "a/ort"]),
        ("b/ort", False, []),
        ("a/ort", False, []),
    ]
    assert len({row["configuration"] for row in rows}) == 1
    assert [rows[0][f"earlier_{end}_samples_per_s"] for end in ("least", "most")] == [5_000.0, 10_000.0]
    table = dashboard.get("/overlay", reports="c/ort,b/ort")["table"]
    assert table["report"] == ["c/ort", "b/ort"], "chosen reports are all shown"
    assert (table["earlier"], table["earlier_least_p50_ns"]) == ([2, None], [100_000, None])
    assert table["earlier_most_p50_ns"] == [200_000, None]


def test_a_shipped_report_is_marked(dashboard: Dashboard) -> None:
    for name in ("ours", "shipped"):
        write_result(dashboard.folder / "m" / name, {1: FAST}, job={"request": {"sample": name == "shipped"}})
    dashboard.look()
    assert {r["spec"]: r["sample"] for r in dashboard.get("")["reports"]} == {"ours": False, "shipped": True}
    (verdict,) = dashboard.get("/overlay", reports="m/ours,m/shipped")["verdicts"]
    assert (verdict["id"], verdict["report"], verdict["evidence"]["cpu"]) == ("sample", "m/shipped", "a CPU")


def test_a_report_knows_the_run_of_its_folder(dashboard: Dashboard, result: Path) -> None:
    assert dashboard.get("")["reports"][0]["run"] == "m-1/ort"


def test_the_revision_increases_only_with_changes(dashboard: Dashboard, result: Path) -> None:
    first = dashboard.get("")["revision"]
    dashboard.look()
    assert dashboard.get("")["revision"] == first
    write_result(dashboard.folder / "m-2" / "ort", {1: FAST})
    dashboard.look()
    second = dashboard.get("")
    assert (second["revision"], len(second["reports"])) == (first + 1, 2)
    shutil.rmtree(result)
    dashboard.look()
    third = dashboard.get("")
    assert (third["revision"], len(third["reports"])) == (first + 2, 1)


def test_a_poll_without_a_change_is_answered_by_304(dashboard: Dashboard, result: Path) -> None:
    response = dashboard.client.get("/api/v1/evaluation")
    again = dashboard.client.get("/api/v1/evaluation", headers={"If-None-Match": response.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")


def test_a_point_that_is_added_to_a_file_appears(dashboard: Dashboard, result: Path) -> None:
    line = json.loads((result / "points.jsonl").read_text().splitlines()[0])
    with (result / "points.jsonl").open("a") as out:
        out.write(json.dumps(line | {"batch": 16}) + "\n")
    dashboard.look()
    assert dashboard.get("")["reports"][0]["points"] == 3


def test_internal_files_of_the_server_are_not_reports(dashboard: Dashboard) -> None:
    write_result(dashboard.folder / ".visualprof" / "incoming" / "t1-1", {1: FAST})
    dashboard.look()
    assert dashboard.get("")["reports"] == []


def test_reports_are_laid_over_each_other(dashboard: Dashboard) -> None:
    shutil.copytree(FIXTURES / "evaluation" / "real_job", dashboard.folder / "real,job")
    write_result(dashboard.folder / "m-1" / "ort", {1: FAST})
    dashboard.look()
    names = ["m-1/ort", "real,job/ort-cpu-1t"]
    answer = dashboard.get("/overlay", reports=names, slo_ns=5_000_000)
    assert [r["id"] for r in answer["reports"]] == names
    assert answer["table"]["report"] == [names[0]] + [names[1]] * 6
    assert answer["best"]["slo_batch"] == [1, 4]
    assert {v["report"] for v in answer["verdicts"]} == {names[1]}
    assert list(answer["charts"]) == ["throughput", "qps", "latency", "tradeoff"]


def test_ids_may_share_a_parameter(dashboard: Dashboard, result: Path) -> None:
    write_result(dashboard.folder / "m-2" / "b", {1: FAST})
    dashboard.look()
    answer = dashboard.get("/overlay", reports="m-2/b,m-1/ort,m-2/b")
    assert [r["id"] for r in answer["reports"]] == ["m-2/b", "m-1/ort"]


def test_the_table_is_also_csv(dashboard: Dashboard, result: Path) -> None:
    response = dashboard.client.get("/api/v1/evaluation/overlay?reports=m-1/ort&format=csv")
    lines = response.get_data(as_text=True).splitlines()
    assert response.mimetype == "text/csv"
    assert lines[0].startswith("\ufeffreport,spec,batch,qps,")
    assert [line.split(",")[:3] for line in lines[1:]] == [["m-1/ort", "ort", "1"], ["m-1/ort", "ort", "4"]]


def test_reports_are_a_view_like_others(dashboard: Dashboard) -> None:
    write_result(dashboard.folder / "m-1" / "ort", {1: FAST, 2: FAST})
    write_result(dashboard.folder / "m-2" / "b", {1: FAST})
    dashboard.look()
    names = [report["id"] for report in dashboard.get("")["reports"]]
    rows: dict[str, int] = {}
    for name in names:
        answer: Any = dashboard.client.get("/api/v1/view/evaluation", query_string={"reports": name}).json
        rows[name] = answer["total_rows"]
        assert set(answer["columns"]["report"]) == {name}, "another choice is not answered from what was kept"
        assert (answer["kinds"]["p50_ns"], answer["kinds"]["spec"]) == ("ns", "name")
    assert sorted(rows.values()) == [1, 2]
    refused: Any = dashboard.client.get("/api/v1/view/evaluation")
    assert (refused.status_code, refused.json["hint"]) == (400, "ids are listed by /api/v1/evaluation")


@pytest.mark.parametrize(
    ("path", "query", "status", "error"),
    [
        ("/overlay", {}, 400, "'reports' is missing"),
        ("/overlay", {"reports": ","}, 400, "'reports' is missing"),
        ("/overlay", {"reports": "../../etc"}, 404, "no report '../../etc'"),
        ("/overlay", {"reports": ["a" + str(i) for i in range(101)]}, 400, "101 reports at once"),
        ("/overlay", {"reports": "m-1/ort", "slo_ns": "fast"}, 400, "slo_ns"),
        ("/overlay", {"reports": "m-1/ort", "slo_ns": "0"}, 400, "slo_ns"),
        ("/overlay", {"reports": "m-1/ort", "format": "xml"}, 400, "format='xml' is not one of"),
        ("/point", {"report": "m-1/ort"}, 400, "batch"),
        ("/point", {"batch": "1"}, 400, "'report' is missing"),
        ("/point", {"report": "m-1/ort", "batch": "2"}, 404, "no point of batch 2"),
        ("/point", {"report": "gone", "batch": "1"}, 404, "no report 'gone'"),
    ],
)
def test_wrong_queries_name_the_error(
    dashboard: Dashboard, result: Path, path: str, query: dict[str, Any], status: int, error: str
) -> None:
    assert error in dashboard.get(path, status, **query)["error"]


def test_a_point_has_its_distribution_its_machine_and_its_profile(dashboard: Dashboard, result: Path) -> None:
    answer = dashboard.get("/point", report="m-1/ort", batch=1)
    assert answer["report"]["id"] == "m-1/ort"
    assert answer["facts"]["p99_ns"] == 100_000
    assert (answer["facts"]["runs_shown"], answer["facts"]["kernels_are"]) == (1000, "kernel")
    assert answer["profile"] == {"run": "m-1/ort", "worker": "timeline", "span": "1"}
    assert answer["monitor"] == {"run": "m-1/ort", "worker": "monitor", "span": "1"}
    assert set(answer["charts"]) == {"histogram", "samples", "monitor", "clocks", "kernels", "runtime"}
    assert "cudaLaunchKernel" in answer["runtime"]["name"]
    assert len(answer["kernels"]["name"]) == len(answer["kernels"]["total_ns"])


def test_the_places_of_a_point_open_in_the_views(dashboard: Dashboard, result: Path) -> None:
    answer = dashboard.get("/point", report="m-1/ort", batch=1)
    for place, view in ((answer["profile"], "kernel"), (answer["monitor"], "trace")):
        assert dashboard.client.get(f"/api/v1/view/{view}", query_string=place).status_code == 200


def test_a_size_without_a_profile_shows_that_of_another_size(dashboard: Dashboard, result: Path) -> None:
    answer = dashboard.get("/point", report="m-1/ort", batch=4)
    assert answer["facts"]["profile_batch"] == 1
    assert answer["kernels"] is not None


def test_the_profile_of_the_same_size_is_preferred(dashboard: Dashboard, result: Path) -> None:
    other = PROFILE | {"file": "profile.json", "batch": 4}
    write_result(result, {1: FAST, 4: FAST * 2}, status={"profiles": [PROFILE, other]})
    sample = SAMPLES / "onnxruntime-cpu" / "if_loop.json.gz"
    (result / "profile.json").write_bytes(gzip.decompress(sample.read_bytes()))
    dashboard.look()
    answer = dashboard.get("/point", report="m-1/ort", batch=4)
    assert (answer["profile"]["worker"], answer["facts"]["kernels_are"]) == ("profile", "type")
    assert dashboard.get("/point", report="m-1/ort", batch=1)["profile"]["worker"] == "timeline"


def test_a_result_without_profile_monitor_and_samples_still_has_its_facts(dashboard: Dashboard) -> None:
    folder = write_result(dashboard.folder / "m", {1: FAST})
    (folder / "latencies.bin").unlink()
    dashboard.look()
    answer = dashboard.get("/point", report="m", batch=1)
    assert (answer["kernels"], answer["runtime"], answer["profile"], answer["monitor"]) == (None, None, None, None)
    assert (answer["charts"], answer["facts"]["n"]) == ({}, 1000)


def test_a_profile_that_cannot_be_read_hides_nothing_else(dashboard: Dashboard, result: Path) -> None:
    rewrite(result / "timeline.json", b'{"traceEvents": 5, "schemaVersion": 1, "x": "cuda_runtime"}')
    rewrite(result / "monitor.jsonl", b'{"schema": "visualprof.monitor/1"}\n')
    dashboard.look()
    answer = dashboard.get("/point", report="m-1/ort", batch=1)
    assert answer["kernels"] is None
    assert set(answer["charts"]) == {"histogram", "samples"}


def test_a_profile_that_is_being_read_is_waited_for(dashboard: Dashboard, result: Path) -> None:
    dashboard.parser.asleep = True
    rewrite(result / "timeline.json", (result / "timeline.json").read_bytes() + b"\n")
    dashboard.look()
    assert dashboard.get("/point", 503, report="m-1/ort", batch=1)["state"] == "parsing"


@pytest.mark.parametrize("file", ["../other/timeline.json", "/etc/passwd", "..", "", "\x00", "timeline.json/"])
def test_a_profile_outside_of_the_folder_is_ignored(dashboard: Dashboard, result: Path, file: str) -> None:
    write_result(dashboard.folder / "m-1" / "ort", {1: FAST}, status={"profiles": [PROFILE | {"file": file}]})
    shutil.copytree(result, dashboard.folder / "m-1" / "other")
    dashboard.look()
    assert dashboard.get("/point", report="m-1/ort", batch=1)["profile"] is None


def test_the_real_jobs_report_opens_with_profile_and_monitor(dashboard: Dashboard) -> None:
    shutil.copytree(FIXTURES / "evaluation" / "real_job", dashboard.folder / "p")
    dashboard.look()
    answer = dashboard.get("/point", report="p/ort-cpu-1t", batch=8)
    assert answer["profile"]["run"] == "p/ort-cpu-1t"
    assert answer["monitor"] == {"run": "p/ort-cpu-1t", "worker": "monitor", "span": "1"}
    assert set(answer["charts"]) == {"histogram", "samples", "monitor", "kernels"}


def test_points_of_a_lost_task_are_shown_without_samples(dashboard: Dashboard) -> None:
    write_result(dashboard.folder / "m", {1: FAST}, points={1: {"latencies": [0, 0]}}, status={"state": "failed"})
    (dashboard.folder / "m" / "latencies.bin").unlink()
    dashboard.look()
    answer = dashboard.get("/point", report="m", batch=1)
    assert (answer["charts"], answer["facts"]["runs_shown"], answer["facts"]["p50_ns"]) == ({}, 0, 100_000)
    assert dashboard.get("/overlay", reports="m")["table"]["n"] == [1000]


@pytest.mark.parametrize("n", [1, 2, 10])
def test_a_point_with_few_runs_opens_without_percentiles(dashboard: Dashboard, n: int) -> None:
    write_result(dashboard.folder / "m", {1: FAST[:n]})
    dashboard.look()
    row = dashboard.get("/overlay", reports="m", slo_ns=10**9)
    assert (row["table"]["p50_ns"], row["best"]["least_latency_batch"]) == ([None], [None])
    facts = dashboard.get("/point", report="m", batch=1)["facts"]
    assert (facts["p50_ns"], facts["tail_ns"], facts["n"], facts["runs_shown"]) == (None, None, n, n)
    assert [v["id"] for v in facts["verdicts"]] == ["n_too_small"]


def test_a_point_without_a_swept_dimension_opens(dashboard: Dashboard) -> None:
    job = {"request": {"sweep": {"dim": "", "values": [1]}}}
    write_result(dashboard.folder / "m", {1: FAST}, job=job)
    dashboard.look()
    assert dashboard.get("/overlay", reports="m")["table"]["batch"] == [1]
    assert dashboard.get("/point", report="m", batch=1)["facts"]["batch"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    ["NaN", "Infinity", "-Infinity", "1e308", "-1e308", "1e400", "-1", "0", '"7"', '"<b>"', "null", "[]", "true"],
)
def test_hostile_numbers_break_neither_overlay_nor_point(dashboard: Dashboard, value: str) -> None:
    folder = write_result(dashboard.folder / "m", {1: FAST, 2: FAST})
    good, line = (folder / "points.jsonl").read_text().splitlines()
    document = json.loads(line)
    keys = [key for key in document if key not in {"batch", "n", "trusted", "latencies"}]
    for changed in [*([key] for key in keys), keys, ["latencies"], ["trusted"], ["n"]]:
        text = ", ".join(f"{json.dumps(k)}: {value if k in changed else json.dumps(v)}" for k, v in document.items())
        rewrite(folder / "points.jsonl", (good + "\n{" + text + "}\n").encode() + b" " * len(changed[0]))
        dashboard.look()
        shown = dashboard.get("/overlay", reports="m", slo_ns=10**9)["table"]["batch"]
        assert shown in ([1], [1, 2])
        for batch in shown:
            assert dashboard.get("/point", report="m", batch=batch)["facts"]["batch"] == batch


def test_a_report_newer_than_the_last_scan_is_found_by_its_id(dashboard: Dashboard) -> None:
    dashboard.look()
    write_result(dashboard.folder / "late", {1: FAST})
    dashboard.get("/overlay", reports="late")


@pytest.mark.parametrize("name", ["late", "..", "../runs/late", "/", "late\0", "x" * 5000, ".late"])
def test_a_missing_report_does_not_cause_a_full_scan(
    dashboard: Dashboard, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dashboard.look()
    write_result(dashboard.folder / ".late", {1: FAST})
    monkeypatch.setattr(dashboard.logdir, "rescan", lambda: pytest.fail("looked"))
    dashboard.get("/overlay", status=404, reports=name)


def test_results_of_load_generators_are_reports_and_new_runs_are_found(dashboard: Dashboard) -> None:
    result = {"backend": "vllm", "model_id": "org/m", "num_prompts": 8, "completed": 8, "request_throughput": 2.0}
    folder = dashboard.folder / "bench"
    folder.mkdir()
    rewrite(folder / "one.json", json.dumps(result | {"max_concurrency": 1}).encode())
    dashboard.look()
    (row,) = dashboard.get("")["reports"]
    assert (row["id"], row["serving"], row["points"]) == ("bench/vLLM bench · vllm org/m", 1, 0)
    revision = dashboard.get("")["revision"]
    rewrite(folder / "two.json", json.dumps(result | {"max_concurrency": 2}).encode())
    dashboard.look()
    assert dashboard.get("")["revision"] > revision
    overlay = dashboard.get("/overlay", reports=row["id"])
    assert (overlay["serving"]["concurrency"], overlay["reports"][0]["serving"]) == ([1, 2], 2)
    for path in folder.iterdir():
        path.unlink()
    dashboard.look()
    assert dashboard.get("")["reports"] == []
