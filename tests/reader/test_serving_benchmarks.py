"""Results of load generators against servers, read as reports. Expected values are written out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import json_of
from tests.recordings import LOCAL_COPY
from visualprof.cli._subjects import reports_below
from visualprof.reader.logdir.scan import LogFile, examine, roots, walk
from visualprof.reader.results.benchmark_run import Latency
from visualprof.reader.results.report import Report
from visualprof.views.evaluation import EvaluationParams, compute, overlay_charts

CASE = LOCAL_COPY / "cases" / "reports" / "43-serving-benchmarks"


def vllm(concurrency: int | None, ttft_ms: float, **more: Any) -> str:
    """Return a result of `vllm bench serve` with 100 requests in 20 s."""
    result = {"date": "20260901-120000", "backend": "vllm", "model_id": "org/m", "num_prompts": 102}
    result |= {"request_rate": "inf", "max_concurrency": concurrency, "duration": 20.0, "completed": 100}
    result |= {"total_input_tokens": 12_800, "total_output_tokens": 6_400, "request_throughput": 5.0}
    result |= {"output_throughput": 320.0, "total_token_throughput": 960.0}
    result |= {"mean_ttft_ms": ttft_ms, "median_ttft_ms": ttft_ms / 2, "p99_ttft_ms": ttft_ms * 3}
    return json.dumps(result | {"mean_tpot_ms": 9.5, "p99_tpot_ms": 12.25, "mean_e2el_ms": 640.0} | more)


def sglang(concurrency: int, throughput: float) -> str:
    """Return a line of SGLang's `bench_serving`, which writes Infinity and NaN."""
    result: dict[str, Any] = {"backend": "sglang", "request_rate": float("inf"), "max_concurrency": concurrency}
    result |= {"server_info": {"model_path": "org/m"}, "duration": 10.0, "completed": 50}
    result |= {"request_throughput": throughput, "output_throughput": 100.0, "total_throughput": 300.0}
    return json.dumps(result | {"mean_e2e_latency_ms": 500.0, "p90_e2e_latency_ms": 700.0, "mean_itl_ms": float("nan")})


def metrics(unit: str = "ms", **more: Any) -> str:
    """Return a result of GenAI-Perf."""
    result: dict[str, Any] = {"request_throughput": {"unit": "requests/sec", "avg": 3.9}}
    result["time_to_first_token"] = {"unit": unit, "avg": 40.0, "p50": 38.5, "p99": 90.0}
    result["inter_token_latency"] = {"unit": "us", "avg": 2_500.0, "p90": 3_000.0}
    config = {"model": ["org/m"], "backend": "tensorrtllm", "concurrency": 16, "request_rate": None}
    return json.dumps(result | {"input_config": config} | more)


def reports_of(folder: Path, **files: str) -> list[Report]:
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content)
    return reports_below(str(folder))


def test_a_sweep_of_vllm_is_one_report_ordered_by_concurrency(tmp_path: Path) -> None:
    (report,) = reports_of(tmp_path, b_json=vllm(16, 80.0), a_json=vllm(4, 40.0))
    assert (report.id, report.name, report.spec) == ("vLLM bench · vllm org/m", "org/m", "vLLM bench · vllm")
    assert [run.concurrency for run in report.serving] == [4, 16]
    run = report.serving[0]
    assert (run.n, run.failed, run.duration_ns, run.offered_per_s) == (100, 2, 20_000_000_000, None)
    assert (run.achieved_per_s, run.output_tokens_per_s, run.total_tokens_per_s) == (5.0, 320.0, 960.0)
    assert run.ttft == Latency(mean_ns=40_000_000, p50_ns=20_000_000, p99_ns=120_000_000)
    assert run.tpot == Latency(mean_ns=9_500_000, p99_ns=12_250_000)
    assert (run.itl, run.request) == (Latency(), Latency(mean_ns=640_000_000))


def test_lines_of_sglang_are_runs_and_damaged_lines_are_counted(tmp_path: Path) -> None:
    (report,) = reports_of(tmp_path, out_jsonl="\n".join((sglang(1, 5.0), sglang(8, 9.0), sglang(16, 9.5)[:-9], "")))
    assert (report.spec, report.model) == ("SGLang bench · sglang", "org/m")
    assert [(run.concurrency, run.achieved_per_s, run.failed) for run in report.serving] == [
        (1, 5.0, None),
        (8, 9.0, None),
    ]
    assert report.serving[0].request == Latency(mean_ns=500_000_000, p90_ns=700_000_000)
    assert (report.serving[0].offered_per_s, report.serving[0].itl) == (None, Latency())
    assert report.warnings == ("1 lines are not results and were left out",)


def test_units_of_genai_perf_are_converted_and_unknown_ones_are_unknown(tmp_path: Path) -> None:
    (report,) = reports_of(tmp_path, a_json=metrics())
    (run,) = report.serving
    assert (run.tool, run.backend, run.model, run.concurrency) == ("GenAI-Perf", "tensorrtllm", "org/m", 16)
    assert run.ttft == Latency(mean_ns=40_000_000, p50_ns=38_500_000, p99_ns=90_000_000)
    assert run.tpot == Latency(mean_ns=2_500_000, p90_ns=3_000_000)
    (report,) = reports_of(tmp_path, a_json=metrics(unit="ticks"))
    assert report.serving[0].ttft == Latency()


def test_aiperf_names_its_load_in_another_place(tmp_path: Path) -> None:
    config = {"endpoint": {"model_names": ["org/m"]}, "loadgen": {"concurrency": 64, "request_rate": 7.5}}
    count = {"request_count": {"avg": 640.0}, "error_request_count": {"avg": 3.0}, "total_osl": {"avg": 512.0}}
    (report,) = reports_of(tmp_path, a_json=metrics("ms", aiperf_version="0.12.0", input_config=config, **count))
    (run,) = report.serving
    assert (run.tool, run.model, run.concurrency, run.offered_per_s) == ("AIPerf", "org/m", 64, 7.5)
    assert (run.n, run.failed, run.output_tokens) == (640, 3, 512)


@pytest.mark.parametrize(
    "content",
    ['{"request_throughput": "fast"}', '{"request_throughput": {"avg": null}}', "[" * 9, '{"request_throughput": 1'],
)
def test_other_and_damaged_json_is_no_report(tmp_path: Path, content: str) -> None:
    assert reports_of(tmp_path, a_json=content) == []


def test_values_of_a_wrong_type_are_unknown(tmp_path: Path) -> None:
    (report,) = reports_of(
        tmp_path, a_json=vllm(4, 1.0, completed="x", mean_ttft_ms=[1], max_concurrency=True, duration=-1)
    )
    run = report.serving[0]
    assert (run.n, run.failed, run.ttft.mean_ns, run.concurrency, run.duration_ns) == (None, None, None, None, None)


def test_a_log_directory_lists_no_such_file_as_skipped(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(vllm(1, 10.0))
    (file,) = (item for item in walk(roots([tmp_path])[0]) if isinstance(item, LogFile))
    assert examine(file).kind == "other"


def test_the_view_has_a_row_per_run_and_lines_over_the_concurrency(tmp_path: Path) -> None:
    reports = reports_of(tmp_path, a_json=vllm(4, 40.0), b_json=vllm(16, 80.0), out_jsonl=sglang(8, 9.0))
    overlay = json_of(compute(reports, EvaluationParams()))
    columns = overlay["serving"]["columns"]
    assert (columns["concurrency"], columns["ttft_p99_ns"]) == ([4, 16, 8], [120_000_000, 240_000_000, None])
    assert overlay["best"]["columns"]["report"] == overlay["columns"]["report"] == []
    drawn = overlay_charts(reports)
    assert set(drawn) == {"serving_tokens", "serving_ttft"}
    points = {
        series["name"]: series["data"] for series in drawn["serving_tokens"]["series"] if series["type"] == "line"
    }
    assert points == {"SGLang bench · sglang": [[8, 100.0]], "vLLM bench · vllm": [[4, 320.0], [16, 320.0]]}


def test_runs_without_concurrency_are_drawn_over_the_request_rate(tmp_path: Path) -> None:
    reports = reports_of(tmp_path, a_json=vllm(None, 40.0, request_rate=2.0), b_json=vllm(16, 80.0, request_rate=8.0))
    (line,) = (s for s in overlay_charts(reports)["serving_tokens"]["series"] if s["type"] == "line")
    assert line["data"] == [[2.0, 320.0], [8.0, 320.0]]


@pytest.mark.skipif(not CASE.is_dir(), reason="needs the case of serving benchmarks")
def test_the_case_has_two_reports() -> None:
    reports = {report.serving[0].tool: report.serving[0] for report in reports_below(str(CASE))}
    assert (reports["vLLM bench"].achieved_per_s, reports["vLLM bench"].ttft.p99_ns) == (3.98, 93_100_000)
    assert (reports["GenAI-Perf"].achieved_per_s, reports["GenAI-Perf"].ttft.p99_ns) == (3.9, 90_000_000)
