"""Two servers compared by load, as load generators measured them. Expected values are written out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_diff_command import diff
from tests.reader.test_serving_benchmarks import metrics, reports_of, sglang, vllm
from visualprof.errors import MissingData
from visualprof.reader.results.benchmark_run import BenchmarkRun, Latency
from visualprof.reader.results.report import Report
from visualprof.views.diff.answer import DiffAnswer
from visualprof.views.diff.evaluation import compare_reports


def report(folder: Path, *runs: BenchmarkRun) -> Report:
    (read,) = reports_of(folder, a_json=vllm(1, 1.0))
    return replace(read, serving=runs)


def compared(base: Report, new: Report) -> DiffAnswer:
    return compare_reports("base", [base], "new", [new])


def values(answer: DiffAnswer) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return base, new, change and significance by concurrency, rate and metric."""
    assert answer.evaluation is not None
    c = answer.evaluation.columns
    assert c.concurrency is not None
    assert c.offered_per_s is not None
    keys = zip(c.concurrency, c.offered_per_s, c.figure, strict=True)
    return dict(zip(keys, zip(c.base_value, c.new_value, c.delta_ratio, c.significant, strict=True), strict=True))


def test_each_load_is_compared_with_the_same_load(tmp_path: Path) -> None:
    base = report(
        tmp_path,
        BenchmarkRun("t", concurrency=4, output_tokens_per_s=200.0, ttft=Latency(p99_ns=80)),
        BenchmarkRun("t", concurrency=8, output_tokens_per_s=400.0),
    )
    new = report(
        tmp_path,
        BenchmarkRun("t", concurrency=16, output_tokens_per_s=500.0),
        BenchmarkRun("t", concurrency=4, output_tokens_per_s=250.0, ttft=Latency(p99_ns=60), itl=Latency(p90_ns=7)),
    )
    assert values(compared(base, new)) == {
        (4, None, "output_tokens_per_s"): (200.0, 250.0, 0.25, None),
        (4, None, "ttft_p99"): (80, 60, -0.25, None),
        (4, None, "itl_p90"): (None, 7, None, None),
        (8, None, "output_tokens_per_s"): (400.0, None, None, None),
        (16, None, "output_tokens_per_s"): (None, 500.0, None, None),
    }


def test_runs_of_the_same_load_are_repeats(tmp_path: Path) -> None:
    base, new, scattered = (
        report(tmp_path, *(BenchmarkRun("t", offered_per_s=2.0, tpot=Latency(mean_ns=ns)) for ns in repeats))
        for repeats in ((100, 102, 104), (121, 122, 126), (80, 102, 130))
    )
    changed, unsure = (values(compared(base, side))[None, 2.0, "tpot_mean"] for side in (new, scattered))
    assert (changed[:2], round(changed[2], 6), changed[3]) == ((102, 123), round(21 / 102, 6), True)
    assert (unsure[:2], unsure[3]) == ((102, 104), False)


def test_a_base_of_zero_has_no_relative_change(tmp_path: Path) -> None:
    base, new = (report(tmp_path, BenchmarkRun("t", total_tokens_per_s=rate)) for rate in (0.0, 5.0))
    assert values(compared(base, new)) == {(None, None, "total_tokens_per_s"): (0.0, 5.0, None, None)}


def test_requests_of_other_lengths_are_a_note(tmp_path: Path) -> None:
    base, near, far, unknown = (
        report(tmp_path, BenchmarkRun("t", n=10, achieved_per_s=1.0, input_tokens=tokens, output_tokens=640))
        for tokens in (1000, 1030, 1040, None)
    )
    (note,) = compared(base, far).notes
    assert (note.id, note.base, note.new) == ("inputs", "100 + 64 tokens", "104 + 64 tokens")
    assert compared(base, near).notes == compared(base, unknown).notes == []


def test_without_a_common_load_there_is_nothing_to_compare(tmp_path: Path) -> None:
    base, new = (report(tmp_path, BenchmarkRun("t", concurrency=n, achieved_per_s=1.0)) for n in (1, 2))
    with pytest.raises(MissingData, match="base and new have no load level in common"):
        compared(base, new)


@pytest.mark.parametrize(
    ("base", "new", "row"),
    [
        (vllm(4, 40.0), vllm(4, 60.0), "4 ttft_p99 120.00 ms 180.00 ms 50.0 %"),
        (sglang(8, 4.0), sglang(8, 5.0), "8 achieved_per_s 4.00 5.00 25.0 %"),
        (metrics(), metrics("us"), "16 ttft_p50 38.50 ms 38.50 us -99.9 %"),
        (metrics(aiperf_version="1"), metrics("us", aiperf_version="1"), "16 ttft_p99 90.00 ms 90.00 us"),
    ],
    ids=["vllm", "sglang", "genai-perf", "aiperf"],
)
def test_the_command_compares_the_files_and_folders_of_each_tool(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], base: str, new: str, row: str
) -> None:
    files = [tmp_path / side / "result.json" for side in ("base", "new")]
    for file, content in zip(files, (base, new), strict=True):
        file.parent.mkdir()
        file.write_text(content)
    for pair in ((str(files[0]), str(files[1])), (str(files[0].parent), str(files[1].parent))):
        status, out, _ = diff(capfd, pair=pair)
        assert (status, row in " ".join(out.split())) == (0, True), out


def test_a_limit_names_the_load_that_exceeds_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, ttft_ms in (("base", 40.0), ("new", 50.0)):
        (tmp_path / f"{name}.json").write_text(vllm(4, ttft_ms, request_rate=2.5))
    pair = (str(tmp_path / "base.json"), str(tmp_path / "new.json"))
    status, _, error = diff(capfd, "--fail-on", "evaluation.ttft_p99>20%", pair=pair)
    assert (status, "vllm, concurrency 4, requests/s 2.5: 120.00 ms -> 150.00 ms (+25.0%)" in error) == (3, True), error
    assert diff(capfd, "--fail-on", "evaluation.output_tokens_per_s<-5%", pair=pair)[0] == 0


def test_results_next_to_a_profile_leave_the_profile_as_the_default(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "result.json").write_text(vllm(4, 40.0))
    event = {"ph": "X", "pid": 1, "tid": 1, "cat": "cpu_op", "name": "op", "ts": 1, "dur": 9}
    (tmp_path / "host.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    status, out, _ = diff(capfd, "--format", "json", pair=(str(tmp_path), str(tmp_path)))
    assert (status, '"view":"overview"' in out) == (0, True)
