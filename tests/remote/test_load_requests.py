"""Loads: parsing, validation, display in the terminal, and cost and energy per sample."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from visualprof.cli import _fail_on, _watch, submit
from visualprof.remote.agent.work.monitor_samples import complete_points
from visualprof.remote.child.rapl import Rapl
from visualprof.remote.protocol import Load, Measure, ModelRef, Request, Spec, build
from visualprof.remote.queue.check.load_limits import load_errors
from visualprof.remote.queue.check.machines import lane_errors
from visualprof.remote.queue.draft.compose import measure_texts
from visualprof.remote.queue.draft.loads import load_texts, parse_load


def typed(**texts: str) -> Load:
    load, errors = parse_load(texts)
    assert not errors, errors
    return load


def wrong(**texts: str) -> list[tuple[str, str]]:
    return [(error.field, error.error) for error in parse_load(texts)[1]]


def test_a_load_is_parsed_from_its_text() -> None:
    load = typed(concurrency="1:4", rate="100, 200.5", slo="p99.9 <= 1.5s")
    assert load == Load([1, 2, 4], [100.0, 200.5], 99.9, 1500.0)
    assert load_texts(load) == {"concurrency": "1:4", "rate": "100, 200.5", "slo": "p99.9<=1500ms", "mlperf": ""}
    assert typed(**load_texts(load)) == load
    assert typed(slo="p90<250us").limit_ms == 0.25
    assert typed(mlperf="Server", slo="p99<=5ms").scenario == "Server"
    assert typed() == Load()
    assert load_texts(Load()) == dict.fromkeys(("concurrency", "rate", "slo", "mlperf"), "")


@pytest.mark.parametrize(
    ("name", "text", "field"),
    [
        ("concurrency", "many", "concurrency"),
        ("concurrency", "0", "concurrency"),
        ("rate", "10,fast", "rates"),
        ("rate", "-1", "rates"),
        ("slo", "99<=5ms", "limit_ms"),
        ("slo", "p99<=5", "limit_ms"),
        ("slo", "p99<=0ms", "limit_ms"),
        ("mlperf", "server", "mlperf"),
    ],
)
def test_an_invalid_load_names_its_field(name: str, text: str, field: str) -> None:
    assert [found for found, _ in wrong(**{name: text})] == [f"measure.load.{field}"]


def test_the_scenario_follows_from_the_request() -> None:
    asked = [Load(), Load([4]), Load([], [5.0]), Load(limit_ms=5), Load([], [5.0], 99, 5), Load(mlperf="Offline")]
    assert [item.scenario for item in asked] == ["closed", "closed", "poisson", "search", "poisson", "Offline"]
    assert [item.step_count for item in (Load(), Load([1, 2], [1.0, 2.0, 3.0]), Load([1, 2], limit_ms=5))] == [1, 6, 18]
    assert [Load(mlperf=name).tail_percentile for name in ("SingleStream", "MultiStream")] == [90.0, 99.0]


def refused(load: Load) -> list[str]:
    return [error.field.removeprefix("measure.load.") for error in load_errors(load)]


def test_loads_are_limited() -> None:
    assert refused(Load([1, 256], [0.5, 1e6], 99.9, 3.6e6)) == []
    assert refused(Load([0, 257, 1, 1])) == ["concurrency[0]", "concurrency[1]", "concurrency[3]"]
    assert refused(Load(rates=[0.0, 2e6, float("nan")])) == ["rates[0]", "rates[1]", "rates[2]"]
    assert refused(Load(percentile=49, limit_ms=-1)) == ["percentile", "limit_ms"]
    assert refused(Load(list(range(1, 18)))) == ["concurrency"]


def test_scenarios_of_mlperf_have_their_own_fields() -> None:
    assert refused(Load(mlperf="Server")) == ["limit_ms"]
    assert refused(Load(rates=[5.0], mlperf="Offline")) == ["rates"]
    assert refused(Load([2], mlperf="SingleStream")) == ["concurrency"]
    assert refused(Load([1], [], 90, 5, "SingleStream")) == []
    assert refused(Load(limit_ms=5, mlperf="Offline")) == ["limit_ms"]


def test_a_runtime_without_concurrency_has_no_streams() -> None:
    specs = [Spec("a", "onnxruntime"), Spec("b", "megengine")]
    assert [error.field for error in lane_errors(specs, 2)] == ["specs[1].backend"]
    assert list(lane_errors(specs, 1)) == []


def test_jobs_are_encoded_with_and_without_a_load() -> None:
    job = Request("k", ModelRef("b", "m"), [], measure=Measure(load=Load([2], [5.0], 99, 5)), price_per_hour=1.5)
    from dataclasses import asdict

    assert build(Request, json.loads(json.dumps(asdict(job)))) == job
    old = asdict(job)
    del old["measure"]["load"], old["price_per_hour"]
    assert build(Request, old) == replace(job, measure=Measure(), price_per_hour=None)
    texts = measure_texts(job)
    assert (texts["price_per_hour"], texts["slo"], texts["rate"]) == ("1.5", "p99<=5ms", "5")
    assert measure_texts(replace(job, price_per_hour=None))["price_per_hour"] == ""


def test_every_draft_field_has_an_option() -> None:
    parser = argparse.ArgumentParser()
    submit.add_arguments(parser)
    arguments = ["m.onnx", "--concurrency", "1:8", "--rate", "100", "--slo", "p99<=50ms", "--mlperf", "Server"]
    args = parser.parse_args([*arguments, "--price-per-hour", "0.4"])
    texts = {name: getattr(args, name) for name in load_texts(Load())}
    assert typed(**texts) == Load([1, 2, 4, 8], [100.0], 99.0, 50.0, "Server")
    assert args.price_per_hour == 0.4


POINT: dict[str, Any] = {
    "p50_margin_ns": None,
    "spec": "s",
    "batch": 4,
    "qps": 199.5,
    "p50_ns": 2_000_000,
    "p99_ns": None,
    "stable": True,
    "host_busy": False,
    "throttled": None,
    "load": {
        "scenario": "search",
        "percentile": 99.0,
        "limit_ns": 50_000_000,
        "verdict": "FAIL",
        "step": {"concurrency": 2, "offered_per_s": 200.0, "tail_ns": 61_000_000},
    },
}


def test_the_terminal_shows_the_load_of_a_point() -> None:
    told = _watch._point(POINT)
    load = "search, 2 at once, 200.0/s offered, p99 61.000 ms of 50 ms: FAIL"
    assert told == f"batch 4: 199.5 runs/s, p50 2.000 ms, {load}"
    plain = POINT | {"load": {"scenario": "closed", "step": {"concurrency": 1}, "verdict": None}}
    assert _watch._point(plain) == _watch._point(POINT | {"load": None}) == "batch 4: 199.5 runs/s, p50 2.000 ms"


def test_a_limit_that_is_not_kept_can_fail_a_job() -> None:
    answer: dict[str, Any] = {"points": [POINT], "results": []}
    assert _fail_on.met(_fail_on.parse("over_limit|undecided"), answer) == ["s, batch 4: over_limit"]
    passed = POINT | {"load": POINT["load"] | {"verdict": "PASS"}}
    assert _fail_on.met(_fail_on.parse("over_limit|undecided"), {"points": [passed], "results": []}) == []
    assert _fail_on.met(_fail_on.parse("over_limit"), {"points": [POINT | {"load": None}], "results": []}) == []


def package(folder: Path, number: int, name: str, energy_uj: int) -> None:
    zone = folder / f"intel-rapl:{number}"
    zone.mkdir(exist_ok=True)
    (zone / "name").write_text(f"{name}\n")
    (zone / "energy_uj").write_text(f"{energy_uj}\n")
    (zone / "max_energy_range_uj").write_text("9999999\n")


def test_energy_is_that_of_all_packages_also_when_a_counter_begins_anew(tmp_path: Path) -> None:
    """1 J and 2 J; then the first goes on to its end of 10 J and 0.5 J beyond: from 9.5 J that is 1 J."""
    rapl = Rapl(tmp_path)
    assert rapl.used_j() is None, "there are no counters"
    package(tmp_path, 0, "package-0", 8_500_000)
    package(tmp_path, 1, "package-1", 0)
    package(tmp_path, 2, "psys", 0)
    assert rapl.used_j() is None, "nothing came before"
    package(tmp_path, 0, "package-0", 9_500_000)
    package(tmp_path, 1, "package-1", 2_000_000)
    package(tmp_path, 2, "psys", 5_000_000)
    assert rapl.used_j() == pytest.approx(3.0)
    package(tmp_path, 0, "package-0", 500_000)
    assert rapl.used_j() == pytest.approx(1.0)
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    assert rapl.used_j() is None, "one of them keeps silent"


def test_a_point_on_a_cpu_gets_the_energy_of_its_processors(tmp_path: Path) -> None:
    """20 W for 2 s over 100 runs of 4 samples: 0.1 J each."""
    points, monitor = tmp_path / "points.jsonl", tmp_path / "monitor.jsonl"
    point = {"batch": 4, "n": 100, "qps": 50.0, "samples_per_s": 200.0, "start_ns": 10**9, "end_ns": 3 * 10**9}
    points.write_text(json.dumps(point) + "\n")
    samples = [{"t_ns": t * 10**9, "cpu_power_w": 20.0, "gpus": []} for t in range(5)]
    monitor.write_text("{}\n" + "".join(json.dumps(sample) + "\n" for sample in samples))
    complete_points(points, monitor)
    assert json.loads(points.read_text())["energy_j_per_sample"] == pytest.approx(0.1)
    monitor.write_text("{}\n" + "".join(json.dumps(s | {"cpu_power_w": None}) + "\n" for s in samples))
    points.write_text(json.dumps(point) + "\n")
    complete_points(points, monitor)
    assert "energy_j_per_sample" not in json.loads(points.read_text())
