"""Reports of measured models: read from any folder, laid over each other, judged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import FIXTURES, json_of, trace_of
from tests.results import SECOND, T0, Json, nearest_rank, write_monitor, write_result
from visualprof.reader import read_trace
from visualprof.reader.logdir.scan import LogFile, roots, walk
from visualprof.reader.results.points import Point
from visualprof.reader.results.report import MAX_SAMPLES, Report, find_result_folders, read_latencies, read_report
from visualprof.views.answers.table import columns_of
from visualprof.views.evaluation import EvaluationParams, compute, labels, overlay_charts
from visualprof.views.measure.reports.evaluation import tail_latency
from visualprof.views.measure.reports.point import (
    api_call_columns,
    histogram_chart,
    latency_chart,
    latency_histogram,
    machine_charts,
    measurement_window,
    run_intervals,
    work_columns,
)
from visualprof.views.measure.reports.verdicts import find_verdicts, precision_name

REAL_JOB = FIXTURES / "evaluation" / "real_job"
FAST = np.full(1000, 100_000)


def reports_in(folder: Path) -> dict[str, Report]:
    result_folders = find_result_folders(item for item in walk(roots([folder])[0]) if isinstance(item, LogFile))
    return {r.id: r for name, parts in result_folders.items() if (r := read_report(name, parts))}


@pytest.fixture(scope="module")
def real_job() -> dict[str, Report]:
    return {r.spec: r for r in reports_in(REAL_JOB).values()}


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., Report]:
    def make(latencies: dict[int, Any], name: str = "ort", **more: Any) -> Report:
        write_result(tmp_path / "m-1" / name, latencies, **more)
        return reports_in(tmp_path)[f"m-1/{name}"]

    return make


def overlay(reports: list[Report], slo_ns: int | None = None) -> Json:
    return json_of(compute(reports, EvaluationParams(slo_ns)))


def verdicts(report: Report) -> dict[str, Json]:
    return {v.id: json_of(v.evidence) | {"batch": v.batch, "batches": v.batches} for v in find_verdicts([report])}


def test_a_sample_names_its_hardware_and_date(report: Callable[..., Report]) -> None:
    midnight = 1_795_305_600 * SECOND  # date -ud @1795305600
    times = {"finished_ns": midnight - 1}
    ours, theirs = (
        report({4: FAST}, name, status=times, job={"request": {"sample": name == "shipped"}})
        for name in ("measured", "shipped")
    )
    assert "sample" not in verdicts(ours)
    values_by_name = {"cpu": "a CPU", "day": "2026-11-21", "batch": None, "batches": (4,)}
    assert verdicts(theirs)["sample"] == values_by_name


# -- numbers against the raw samples


def test_percentiles_of_the_real_job_equal_those_of_its_raw_samples(real_job: dict[str, Report]) -> None:
    checked = 0
    for report in real_job.values():
        for point in report.points:
            samples = read_latencies(report, point)
            assert len(samples) == point.n
            for name, percent in (("p50_ns", 50), ("p90_ns", 90), ("p95_ns", 95), ("p99_ns", 99)):
                told = getattr(point, name)
                if told is not None:  # the file rounds to 100 ns
                    # the measuring program took the sample at p * n, one rank above the nearest one
                    neighbor = np.sort(samples)[min(point.n - 1, int(percent / 100 * point.n))]
                    assert min(abs(told - nearest_rank(samples, percent)), abs(told - int(neighbor))) <= 50
                    checked += 1
            assert point.min_ns == pytest.approx(int(samples.min()), abs=50)
            assert point.max_ns == pytest.approx(int(samples.max()), abs=50)
            assert point.mean_ns == pytest.approx(samples.mean(), abs=60)
    assert checked > 60


def test_rates_of_the_real_job_are_runs_over_time(real_job: dict[str, Report]) -> None:
    for report in real_job.values():
        for point in report.points:
            assert point.duration_ns
            assert point.qps
            assert point.qps == pytest.approx(point.n / point.duration_ns * 1e9, rel=1e-3)
            assert point.samples_per_s == pytest.approx(point.qps * point.batch, rel=1e-4)


def test_a_result_is_read_unchanged(report: Callable[..., Report]) -> None:
    samples = np.random.default_rng(1).integers(90_000, 110_000, 1000)
    built_report = report({1: samples, 4: samples * 2})
    assert [p.batch for p in built_report.points] == [1, 4]
    assert read_latencies(built_report, built_report.points[1]).tolist() == (samples * 2).tolist()
    assert built_report.points[1].p99_ns == nearest_rank(samples * 2, 99)
    assert (built_report.id, built_report.agent, built_report.version, built_report.state) == (
        "m-1/ort",
        "laptop",
        "1.2.3",
        "succeeded",
    )
    assert built_report.finished_ns == T0 + 9 * SECOND


def test_a_percentile_without_enough_samples_is_unknown(report: Callable[..., Report]) -> None:
    (point,) = report({1: [100] * 100}, points={1: {"p99_ns": 100, "trusted": [50, 90]}}).points
    assert (point.p90_ns, point.p95_ns, point.p99_ns) == (100, None, None)
    assert tail_latency(point) == (90, 100)


# -- folders


def test_each_folder_of_a_job_is_a_report() -> None:
    assert sorted(reports_in(FIXTURES / "evaluation")) == [
        "real_job/ort-cpu-1t",
        "real_job/ov-cpu-1t-auto",
        "real_job/ov-cpu-1t-f32",
    ]


def test_a_result_in_the_log_directory_itself_is_found(tmp_path: Path) -> None:
    write_result(tmp_path, {1: FAST})
    assert list(reports_in(tmp_path)) == ["."]


def test_with_several_log_directories_ids_begin_with_theirs(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        write_result(path / "m" / "ort", {1: FAST})
    files = [item for root in roots(paths) for item in walk(root) if isinstance(item, LogFile)]
    ids = [r.id for name, parts in find_result_folders(files).items() if (r := read_report(name, parts))]
    assert sorted(ids) == ["a/m/ort", "b/m/ort"]


@pytest.mark.parametrize("schema", ["visualprof.job/2", "other", None, True, 2, [1]])
def test_another_job_json_is_not_a_report(tmp_path: Path, schema: object) -> None:
    write_result(tmp_path / "m", {1: FAST}, job={"schema": schema})
    assert reports_in(tmp_path) == {}


def test_an_incomplete_last_line_is_not_an_error(tmp_path: Path) -> None:
    folder = write_result(tmp_path / "m", {1: FAST, 2: FAST})
    text = (folder / "points.jsonl").read_text()
    (folder / "points.jsonl").write_text(text[:-200])
    (loaded,) = reports_in(tmp_path).values()
    assert ([p.batch for p in loaded.points], loaded.warnings) == ([1], ())


def test_damaged_lines_are_reported(tmp_path: Path) -> None:
    folder = write_result(tmp_path / "m", {1: FAST, 2: FAST})
    good = (folder / "points.jsonl").read_text()
    (folder / "points.jsonl").write_text('nonsense\n{"batch": "x"}\n' + "[" * 50_000 + "\n" + good)
    (loaded,) = reports_in(tmp_path).values()
    assert [p.batch for p in loaded.points] == [1, 2]
    assert "2 damaged lines" in loaded.warnings[0]
    assert "1 lines are no points" in loaded.warnings[1]


def test_the_last_line_of_a_batch_counts(tmp_path: Path) -> None:
    folder = write_result(tmp_path / "m", {1: FAST})
    line = json.loads((folder / "points.jsonl").read_text())
    with (folder / "points.jsonl").open("a") as out:
        out.write(json.dumps(line | {"qps": 7.0}) + "\n")
    (loaded,) = reports_in(tmp_path).values()
    assert [p.qps for p in loaded.points] == [7.0]


@pytest.mark.parametrize("name", ["env.json", "status.json"])
@pytest.mark.parametrize("content", ["", "[]", '{"a', "null", '{"effective": 5, "profiles": {}, "state": "<b>"}'])
def test_damaged_companion_files_do_not_hide_points(tmp_path: Path, name: str, content: str) -> None:
    folder = write_result(tmp_path / "m", {1: FAST})
    (folder / name).write_text(content)
    (loaded,) = reports_in(tmp_path).values()
    assert len(loaded.points) == 1
    assert loaded.state == ("succeeded" if name == "env.json" else "failed")


HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "batch",
        "n",
        "qps",
        "p50_ns",
        "p99_ns",
        "trusted",
        "window_p50_ns",
        "stable",
        "latencies",
        "first_ns",
        "duration_ns",
        "samples_per_s",
        "pressure",
        "host_busy",
        "start_ns",
        "end_ns",
        "throttled",
    ]
)


@pytest.mark.slow
@given(st.dictionaries(KEYS, HOSTILE, max_size=8), HOSTILE, HOSTILE)
def test_no_content_breaks_tables_and_charts(line: Json, spec: Any, effective: Any) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = write_result(Path(name) / "m", {1: FAST[:20], 2: FAST[:700]}, points={2: line})
        env = {"effective": effective, "version": spec, "gpus": [spec]}
        (folder / "env.json").write_text(json.dumps(env))
        (folder / "status.json").write_text(json.dumps({"profiles": [{"file": spec}], "warnings": spec}))
        (loaded,) = reports_in(Path(name)).values()
        json.dumps(overlay([loaded], 10**6), allow_nan=False)
        json.dumps(overlay_charts([loaded]), allow_nan=False)
        for point in loaded.points:
            latencies = read_latencies(loaded, point)
            json.dumps(
                [histogram_chart(latencies, point), latency_chart(latencies, point.duration_ns)], allow_nan=False
            )


@pytest.mark.parametrize("place", [[-4, 10], [0, -1], [0, 10**9], [2**61, 5], [3996, 2], ["a", 1], [0], None, [0, 0]])
def test_samples_outside_of_their_file_are_not_read(report: Callable[..., Report], place: object) -> None:
    built_report = report({1: FAST}, points={1: {"latencies": place}})
    assert len(read_latencies(built_report, built_report.points[0])) == 0


def test_long_texts_are_shortened(report: Callable[..., Report]) -> None:
    built_report = report({1: FAST}, env={"agent": "x" * 100_000}, spec={"backend": "<script>" * 1000})
    assert (len(built_report.agent), len(built_report.backend)) == (500, 500)


# -- overlay


def test_the_table_has_a_row_a_point(real_job: dict[str, Report]) -> None:
    result = overlay(list(real_job.values()))
    columns = result["columns"]
    assert result["total_rows"] == 18
    rows = zip(*(columns[k] for k in ("spec", "batch", "samples_per_s", "n")), strict=True)
    assert ("ort-cpu-1t", 8, 4899.41, 919) in rows


def test_the_best_batch_depends_on_the_objective(report: Callable[..., Report]) -> None:
    rng = np.random.default_rng(2)
    sizes = {1: 100_000, 2: 150_000, 4: 250_000, 8: 700_000}
    built_report = report({b: rng.integers(ns, ns + 1000, 1000) for b, ns in sizes.items()})
    best = overlay([built_report], 200_000)["best"]["columns"]
    assert best["most_samples_batch"] == [4]
    assert best["least_latency_batch"] == [1]
    assert (best["slo_batch"], best["slo_percentile"]) == ([2], [99])
    assert best["slo_latency_ns"] == [built_report.points[1].p99_ns]


def test_an_unreachable_limit_gives_no_best_batch(report: Callable[..., Report]) -> None:
    best = overlay([report({1: FAST})], 99_999)["best"]["columns"]
    assert (best["slo_batch"], best["slo_samples_per_s"]) == ([None], [None])


def test_a_point_without_a_reliable_tail_meets_no_limit(report: Callable[..., Report]) -> None:
    best = overlay([report({1: FAST[:20]})], 10**9)["best"]["columns"]
    assert best["slo_batch"] == [None]


def test_reports_of_the_same_spec_get_names_of_their_own(report: Callable[..., Report]) -> None:
    first, other = report({1: FAST}), report({1: FAST}, "b", spec={"id": "ort"}, job={"name": "second"})
    assert labels([first]) == ["ort"]
    assert labels([first, other]) == ["sweep / ort", "second / ort"]
    assert labels([first, first]) == ["m-1/ort", "m-1/ort"]


def test_charts_have_a_line_a_report_and_axes_of_their_own(real_job: dict[str, Report]) -> None:
    found = overlay_charts(list(real_job.values()))
    assert list(found) == ["throughput", "qps", "latency", "tradeoff"]
    throughput: Any = found["throughput"]
    points = {s["name"]: s["data"] for s in throughput["series"] if s["type"] == "scatter"}
    assert set(points) == set(real_job)
    assert [p["value"][:2] for p in points["ort-cpu-1t"]][:2] == [[1, 3227.61], [2, 4045.74]]
    assert throughput["xAxis"]["logBase"] == 2
    assert throughput["yAxis"]["type"] == "value"
    lines = {s["name"]: s["data"] for s in throughput["series"] if s["type"] == "line"}
    assert lines["ort-cpu-1t"] == [p["value"][:2] for p in points["ort-cpu-1t"]]


@pytest.mark.slow
def test_of_a_huge_file_only_spaced_pieces_are_read(real_job: dict[str, Report], tmp_path: Path) -> None:
    file = tmp_path / "latencies.bin"
    file.touch()
    os.truncate(file, 4 << 32)  # 16 GiB, without a byte on the disk
    report = replace(next(iter(real_job.values())), latencies=str(file))
    point = replace(report.points[0], latencies=(0, 1 << 32))
    assert len(read_latencies(report, point)) == MAX_SAMPLES


def test_the_latency_chart_draws_tails_only_where_they_are_known(real_job: dict[str, Report]) -> None:
    option: Any = overlay_charts([real_job["ov-cpu-1t-f32"]])["latency"]
    drawn = {s["id"].rpartition("|")[2]: [x for x, _ in s["data"]] for s in option["series"] if s["type"] == "line"}
    batches = {k: [p.batch for p in real_job["ov-cpu-1t-f32"].points if getattr(p, k)] for k in drawn}
    assert drawn == batches
    assert len(drawn["p99_ns"]) < len(drawn["p50_ns"])


def test_the_tradeoff_falls_back_to_the_median_without_a_p99(real_job: dict[str, Report]) -> None:
    ort, vino = real_job["ort-cpu-1t"], real_job["ov-cpu-1t-f32"]
    with_tail: Any = overlay_charts([ort])["tradeoff"]
    without: Any = overlay_charts([ort, vino])["tradeoff"]
    assert (with_tail["xAxis"]["name"], without["xAxis"]["name"]) == ("@t:column.p99_ns", "@t:column.p50_ns")


# -- verdicts


def test_a_quiet_and_complete_report_has_no_verdict(report: Callable[..., Report]) -> None:
    assert verdicts(report({1: FAST, 2: FAST})) == {}


def test_a_precision_of_the_runtimes_own_choice_is_a_note_and_another_than_asked_for_is_severe(
    report: Callable[..., Report],
) -> None:
    built_report = report({1: FAST}, env={"effective": {"precision": "bf16"}})
    assert [v.severity for v in find_verdicts([built_report])] == ["low"]
    other = report({1: FAST}, spec={"precision": "f32"}, env={"effective": {"precision": "bf16"}})
    assert [v.severity for v in find_verdicts([other])] == ["high"]


def test_points_without_a_known_median_are_in_the_table_and_nowhere_the_best(report: Callable[..., Report]) -> None:
    few = {"stable": False, "window_p50_ns": [100]}
    built_report = report({1: FAST[:1], 2: FAST[:10]}, points={1: few})
    result = overlay([built_report], 10**9)
    assert result["columns"]["p50_ns"] == [None, None]  # type: ignore[index,call-overload]
    best = result["best"]["columns"]  # type: ignore[index,call-overload]
    assert (best["least_latency_batch"], best["least_latency_ns"], best["slo_batch"]) == ([None], [None], [None])
    assert best["verdicts"] == [["n_too_small"]]
    assert (verdicts(built_report)["n_too_small"]["batches"], verdicts(built_report)["n_too_small"]["percentile"]) == (
        (1, 2),
        0,
    )
    option: Any = histogram_chart(FAST[:10], built_report.points[1])
    assert option["series"][0]["markLine"]["data"] == []
    assert set(overlay_charts([built_report])) == {"throughput", "qps"}


def test_two_reports_of_the_same_batches_keep_their_points_apart(report: Callable[..., Report]) -> None:
    first, other = report({1: FAST, 2: FAST}), report({1: FAST * 2, 2: FAST * 2}, "b")
    option: Any = overlay_charts([first, other])["throughput"]
    ids = [point["id"] for series in option["series"] if series["type"] == "scatter" for point in series["data"]]
    assert ids == ["m-1/ort|1", "m-1/ort|2", "m-1/b|1", "m-1/b|2"]


def test_the_points_of_the_tradeoff_are_labelled_by_batch(report: Callable[..., Report]) -> None:
    option: Any = overlay_charts([report({1: FAST, 16: FAST * 8})])["tradeoff"]
    (dots,) = [series for series in option["series"] if series["type"] == "scatter"]
    assert dots["label"]["show"]
    assert dots["label"]["formatter"] == "{b}"
    assert [point["name"] for point in dots["data"]] == ["1", "16"]


def test_openvinos_own_bfloat16_is_a_verdict(real_job: dict[str, Report]) -> None:
    values_by_name = {spec: verdicts(r).get("precision_changed") for spec, r in real_job.items()}
    assert values_by_name["ov-cpu-1t-auto"] == {
        "asked": None,
        "effective": "bf16",
        "batch": None,
        "batches": (1, 2, 4, 8, 16, 32),
    }
    assert (values_by_name["ort-cpu-1t"], values_by_name["ov-cpu-1t-f32"]) == (None, None)


@pytest.mark.parametrize(
    ("asked", "really", "told"),
    [
        ("f32", "bf16", True),
        ("f16", "f32", True),
        ("bf16", "bfloat16", False),
        ("f32", "<Type: 'float32'>", False),
        ("", "f16", True),
        ("", "float32", False),
        ("", "as the model", False),
        ("f32", "", False),
    ],
)
def test_another_precision_than_asked_for(report: Callable[..., Report], asked: str, really: str, told: bool) -> None:
    built_report = report({1: FAST}, spec={"precision": asked}, env={"effective": {"precision": really}})
    assert ("precision_changed" in verdicts(built_report)) is told


def test_precisions_are_known_by_all_their_names() -> None:
    names = ["<Type: 'bfloat16'>", "float32", "f16", "FP16", "bf16", "torch.float64", "as-model", "int8", "tf32", ""]
    assert [precision_name(n) for n in names] == ["bf16", "f32", "f16", "f16", "bf16", "f64", "", "int8", "tf32", ""]


@pytest.mark.parametrize(
    ("device", "providers", "told"),
    [
        ("cuda:0", "CPUExecutionProvider", True),
        ("cuda:0", "CUDAExecutionProvider, CPUExecutionProvider", False),
        ("cuda:0", "TensorrtExecutionProvider", False),
        ("cpu", "CPUExecutionProvider", False),
        ("cuda:0", "", False),
    ],
)
def test_another_provider_than_the_device_asked_for(
    report: Callable[..., Report], device: str, providers: str, told: bool
) -> None:
    built_report = report({1: FAST}, env={"device": device, "effective": {"providers": providers}})
    assert ("fallback_provider" in verdicts(built_report)) is told


def test_noise_and_throttling_name_their_worst_batch(report: Callable[..., Report]) -> None:
    noisy = {"host_busy": True, "pressure": 0.4, "stable": False, "window_p50_ns": [100, 150, 100]}
    worse = {"host_busy": True, "pressure": 0.9, "stable": False, "window_p50_ns": [100, 300, 100], "throttled": True}
    verdicts_by_name = verdicts(report({1: FAST, 2: FAST, 4: FAST}, points={1: noisy, 2: worse}))
    assert verdicts_by_name["host_busy"]["batches"] == (1, 2)
    assert (verdicts_by_name["host_busy"]["batch"], verdicts_by_name["host_busy"]["pressure_ratio"]) == (2, 0.9)
    assert (verdicts_by_name["unstable"]["batch"], verdicts_by_name["unstable"]["spread_ratio"]) == (2, 2.0)
    assert verdicts_by_name["throttled"]["batches"] == (2,)


@pytest.mark.parametrize(
    ("windows", "evidence"),
    [
        ({"window_p50_ns": [100, 100, 112]}, {"spread_ratio": 0.12, "least_p50_ns": 100, "most_p50_ns": 112}),
        ({"window_p50_ns": [100, 100, 105], "window_mean_ns": [100, 100, 130]}, {"mean_spread_ratio": 0.3}),
        (
            {"window_p50_ns": [100] * 3, "window_mean_ns": [100] * 3, "window_p99_ns": [100, 160, 100]},
            {"p99_spread_ratio": 0.6},
        ),
    ],
)
def test_an_unstable_point_names_the_numbers_that_differ(
    report: Callable[..., Report], windows: dict[str, Any], evidence: dict[str, float]
) -> None:
    unstable = verdicts(report({1: FAST}, points={1: {"stable": False, **windows}}))["unstable"]
    names = ("spread_ratio", "least_p50_ns", "most_p50_ns", "mean_spread_ratio", "p99_spread_ratio")
    assert {name: unstable[name] for name in names if unstable[name] is not None} == pytest.approx(evidence)


def test_a_batch_beyond_the_best_with_lower_throughput_is_reported(report: Callable[..., Report]) -> None:
    verdicts_by_name = verdicts(report({1: FAST, 2: FAST * 1.9, 4: FAST * 3.9, 8: FAST * 16}))
    assert verdicts_by_name["slower_with_batch"]["best_batch"] == 2
    assert verdicts_by_name["slower_with_batch"]["batches"] == (8,)


def test_sizes_that_failed_are_reported(report: Callable[..., Report]) -> None:
    built = report({1: FAST, 2: FAST}, status={"not_measured": [4, "x", 8]})
    assert verdicts(built)["sizes_failed"] == {"batch": None, "batches": (4, 8)}
    assert "sizes_failed" not in verdicts(report({1: FAST}, "all"))


def test_a_slow_first_run_is_reported(report: Callable[..., Report]) -> None:
    verdicts_by_name = verdicts(
        report({1: FAST, 2: FAST}, points={1: {"first_ns": 1_000_000}, 2: {"first_ns": 1_000_001}})
    )
    assert verdicts_by_name["first_run_slow"]["batches"] == (2,)


@pytest.mark.parametrize(("n", "severity", "percentile"), [(5, "high", 0), (100, "low", 90), (661, "low", 95)])
def test_too_few_samples_are_reported(report: Callable[..., Report], n: int, severity: str, percentile: int) -> None:
    (loaded,) = find_verdicts([report({1: FAST[:n]})])
    assert (loaded.id, loaded.severity, loaded.evidence["percentile"]) == ("n_too_small", severity, percentile)


# -- points


@given(st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=300))
def test_every_run_is_in_the_histogram(samples: list[int]) -> None:
    count, edges = latency_histogram(np.array(samples, np.int64))
    assert count.sum() == len(samples)
    assert (np.diff(edges) > 0).all()


def test_bins_are_logarithmic_where_runs_spread_far() -> None:
    near, far = latency_histogram(np.array([100, 200]))[1], latency_histogram(np.array([100, 201]))[1]
    assert near[1] - near[0] == pytest.approx(near[2] - near[1])
    assert far[1] / far[0] == pytest.approx(far[2] / far[1])


def test_a_single_slow_run_does_not_squeeze_the_others_into_one_bin() -> None:
    samples = np.append(np.linspace(100_000, 120_000, 999), 700_000).astype(np.int64)
    count, _ = latency_histogram(samples)
    assert np.count_nonzero(count) >= 8, "of 80 even bins the others would take three"


def test_percentile_markers_are_in_their_bins(report: Callable[..., Report]) -> None:
    samples = np.append(np.linspace(100_000, 120_000, 999), 700_000).astype(np.int64)
    built_report = report({1: samples})
    option: Any = histogram_chart(samples, built_report.points[0])
    (series,) = option["series"]
    assert option["xAxis"]["type"] == "log"
    for mark in series["markLine"]["data"]:
        below = sum(y for x, y in series["data"] if x < mark["xAxis"])
        up_to = sum(y for x, y in series["data"] if x <= mark["xAxis"])
        share = float(mark["name"][1:]) / 100 * len(samples)
        inside = max(y for x, y in series["data"] if x <= mark["xAxis"])
        assert below - inside <= share <= up_to + 1, mark


def test_the_histogram_marks_the_trusted_percentiles(real_job: dict[str, Report]) -> None:
    report = real_job["ort-cpu-1t"]
    option: Any = histogram_chart(read_latencies(report, report.points[0]), report.points[0])
    marks = {m["name"]: m["xAxis"] for m in option["series"][0]["markLine"]["data"]}
    assert marks == {"p50": 159_400, "p90": 176_500, "p95": 218_600, "p99": 4_209_600}


@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=3000))
def test_stretches_hold_every_run_once(samples: list[int]) -> None:
    latencies = np.array(samples, np.int64)
    start, least, middle, most = run_intervals(latencies)
    assert len(start) <= 600
    assert (least.min(), most.max(), start[0]) == (latencies.min(), latencies.max(), 0)
    assert ((least <= middle) & (middle <= most)).all()


def test_drift_shows_over_time() -> None:
    samples = np.concatenate((np.full(5000, 100_000), np.full(5000, 130_000)))
    option: Any = latency_chart(samples, 2 * int(samples.sum()))
    middle = next(s["data"] for s in option["series"] if s["name"] == "@t:evaluation.median")
    assert (middle[0][1], middle[-1][1]) == (100_000, 130_000)
    jump = next(x for x, y in middle if y > 100_000)
    assert jump == pytest.approx(2 * 5000 * 100_000, rel=0.01)


def test_the_machine_is_shown_for_the_time_of_the_point(tmp_path: Path, report: Callable[..., Report]) -> None:
    write_monitor(tmp_path)
    monitor = read_trace(tmp_path / "monitor.jsonl")
    built_report = report({1: FAST})
    window = measurement_window(built_report.points[0])
    assert window
    assert window == (T0 + SECOND, T0 + 3 * SECOND)
    shown: Any = machine_charts(monitor, *window)
    lines = {s["name"]: s["data"] for s in shown["monitor"]["series"]}
    assert lines["CPU"] == [[(i - 2) * SECOND // 2, pytest.approx(i / 100)] for i in range(2, 7)]
    assert lines["cuda:0 utilization"][0] == [0, 0.5]
    clocks = {s["name"]: s["data"] for s in shown["clocks"]["series"]}
    assert clocks["cuda:0 SM clock"] == [[(i - 2) * SECOND // 2, 1000.0 + i] for i in range(2, 7)]


def test_the_real_jobs_points_have_the_time_of_their_monitors_phase(real_job: dict[str, Report]) -> None:
    report = real_job["ov-cpu-1t-f32"]
    monitor = trace_of(REAL_JOB / "ov-cpu-1t-f32" / "monitor.jsonl")
    start, end = measurement_window(report.points[0]) or (0, 0)
    lines = [json.loads(line) for line in (REAL_JOB / "ov-cpu-1t-f32" / "monitor.jsonl").read_text().splitlines()]
    t_ns = [line["t_ns"] for line in lines if line.get("batch") == 1]
    assert start == t_ns[0] == monitor.steps.ts[0]
    assert end > t_ns[-1]


def test_a_cpu_runtimes_work_is_its_operators_by_type() -> None:
    path = REAL_JOB / "ort-cpu-1t" / "timeline.json"
    kind, table = work_columns(trace_of(path))
    events = [e for e in json.loads(path.read_text()) if e["cat"] == "Node"]
    values_by_name: dict[str, int] = {}
    for event in events:
        values_by_name[event["args"]["op_name"]] = values_by_name.get(event["args"]["op_name"], 0) + event["dur"] * 1000
    assert kind == "type"
    assert table is not None
    found = dict(zip(table.name, map(int, table.total_ns), strict=True))
    assert found == values_by_name


def test_a_gpus_work_is_its_kernels_and_api_calls() -> None:
    trace = trace_of(FIXTURES.parents[1] / "visualprof" / "samples" / "pytorch-h200" / "cnn.pt.trace.json.gz")
    kind, table = work_columns(trace)
    calls = api_call_columns(trace)
    assert kind == "kernel"
    assert table is not None
    assert calls is not None
    assert "cudaLaunchKernel" in calls.name
    assert list(columns_of(table)) == list(columns_of(calls)) == ["name", "calls", "total_ns"]


def test_no_samples_draw_nothing() -> None:
    nothing = np.zeros(0, np.int64)
    assert (histogram_chart(nothing, Point(1, 1)), latency_chart(nothing, None)) == ({}, {})
