"""Runs of one name over time: what belongs together, where a level changes, what is series_chart of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.results import write_result
from visualprof.cli import main
from visualprof.errors import BadParameter
from visualprof.reader import read_trace
from visualprof.views.measure.reports.change_points import find_change_points, level_band
from visualprof.views.trend.figures import VIEW, Figures
from visualprof.views.trend.series import Measured, in_order, series_chart, series_of, trend

DAY_NS = 86_400 * 10**9


@pytest.mark.parametrize(
    ("run", "series"),
    [
        ("nightly/resnet50-2026-11-20", "nightly/resnet50-*"),
        ("nightly/2026-11-20", "nightly/*"),
        ("train_20261120T031500Z", "train_*"),
        ("build123/bert", "*/bert"),
        ("a1b2c3d/x", "*/x"),
        ("runs/42", "runs/*"),
        ("resnet50", "resnet50"),
        ("bert_b16_v2", "bert_b16_v2"),
        ("pytorch-v100", "pytorch-v100"),
        (".", "."),
    ],
)
def test_separate_numbers_distinguish_runs_of_the_same_name(run: str, series: str) -> None:
    assert series_of(run) == series


def test_levels_of_a_series_worked_out_by_hand() -> None:
    """Neighbors lie 1 % apart, which is the noise; a change costs 2 ln 8 = 4.16 and spares about 4 x 20."""
    assert find_change_points([100, 101, 100, 101, 121, 122, 121, 122]) == [4]
    assert find_change_points([100, 101, 100, 101, 100, 101, 100, 101]) == []
    assert find_change_points([100, 101, 100, 150, 101, 100, 101, 100]) == [], "one outlier is no level"
    assert find_change_points([100, 100, 100, 100, 105, 105, 105, 105]) == [4], "without noise 0.1 % is taken for it"
    assert find_change_points([100, 100, 200, 200]) == [], "two are no level"
    assert find_change_points([0, 0, 0, 5, 5, 5]) == [3]
    assert find_change_points([]) == []


def test_runs_of_about_the_same_time_are_ordered_by_the_dates_in_their_names() -> None:
    """All files were copied within a second, in another order; the last one was written a day later."""
    dates = ["2026-11-9", "2026-11-10", "2026-11-11", "2026-10-30"]
    copied = [Measured("nightly/*", f"nightly/{date}", i * 10**8, {"step.total": 1.0}) for i, date in enumerate(dates)]
    late = Measured("nightly/*", "nightly/2026-01-01", DAY_NS, {"step.total": 1.0})
    expected = [f"nightly/{date}" for date in ("2026-10-30", "2026-11-9", "2026-11-10", "2026-11-11", "2026-01-01")]
    assert [row.run for row in in_order([late, *reversed(copied)])] == expected
    assert trend([late, *copied]).measurements.columns.run == expected


def test_a_level_has_a_middle_and_three_standard_deviations() -> None:
    assert level_band([98, 100, 102, 104]) == (101, 101 - 3 * 1.4826 * 2, 101 + 3 * 1.4826 * 2)


def noisy(random: Random, n: int, late: int | None = None) -> list[float]:
    """2 % of noise, one in twenty up to 30 % slower; 10 % slower from a place on."""
    spike = [1 + 0.3 * random.random() * (random.random() < 0.05) for _ in range(n)]
    return [100 * random.gauss(1, 0.02) * spike[i] * (1.1 if late is not None and i >= late else 1) for i in range(n)]


def test_noise_is_not_a_change_and_ten_percent_are() -> None:
    random = Random(1)
    false = sum(bool(find_change_points(noisy(random, 60))) for _ in range(100))
    seen = sum(find_change_points(noisy(random, 40, 36)) != [] for _ in range(100))
    assert false <= 3, f"{false} of 100 without a change"
    assert seen >= 90, f"{seen} of 100 four measurements after it"


def runs(values: list[float], name: str = "n") -> list[Measured]:
    return [Measured(name, f"{name}{i}", i * DAY_NS, {"step.total": value}) for i, value in enumerate(values)]


def test_regressions_come_first_with_the_runs_on_both_sides() -> None:
    slower, faster = [100.0, 101, 100, 101, 120, 121, 120], [100.0, 101, 100, 101, 80, 81, 80]
    answer = trend([*runs(faster, "f"), *runs(slower, "s"), *runs([1.0], "alone"), *runs([100.0] * 5, "steady")])
    rows = answer.series.columns
    assert (rows.series, rows.change) == (["s", "steady", "f"], ["worse", "none", "better"])
    assert (rows.changed_run[0], rows.before_run[0], rows.changed_at_ns[0]) == ("s4", "s3", 4 * DAY_NS)
    assert rows.change_ratio[0] == pytest.approx(120 / 100.5 - 1)
    assert rows.level == [120, 100, 80]
    assert (answer.metric, answer.metrics, answer.alone) == ("step.total", ["step.total"], 1)
    assert answer.series.kinds["level"] == "ns"


def test_more_queries_are_better() -> None:
    fewer = [Measured("q", f"r{i}", i, {"evaluation.qps": v}) for i, v in enumerate([100.0] * 4 + [80.0] * 4)]
    assert trend(fewer, "evaluation.qps").series.columns.change == ["worse"]


def test_a_doubtful_measurement_does_not_change_the_level() -> None:
    members = runs([100.0, 101, 100, 150, 151, 150, 100, 101])
    doubtful = [Measured(m.series, m.run, m.at_ns, m.figures, doubtful=i in (3, 4, 5)) for i, m in enumerate(members)]
    answer = trend(doubtful)
    assert answer.series.columns.change == ["none"]
    assert trend(members).series.columns.change != ["none"]
    named = {row["name"]: len(row["data"]) for row in series_chart(answer, "n")["series"]}
    assert named == {"@t:trend.measured": 5, "@t:trend.doubtful": 3, "@t:trend.level": 8}


def test_an_unknown_figure_is_refused_and_nothing_is_an_empty_answer() -> None:
    with pytest.raises(BadParameter, match="no figure 'x'"):
        trend([], "x")
    assert (len(trend([]).series), series_chart(trend([]), "n")) == (0, {})


def test_only_the_newest_of_a_long_series_are_followed() -> None:
    answer = trend(runs([100.0] * 600))
    assert answer.series.columns.measurements == [500]
    assert answer.measurements.columns.run[0] == "n100"


def recording(path: Path, step_us: float, at_s: int) -> None:
    """Three steps, each with an operator of seven tenths and a memory event."""
    path.parent.mkdir(parents=True)
    events: list[dict[str, Any]] = []
    for i in range(3):
        at = 1000 + i * step_us
        mark: dict[str, Any] = {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"ProfilerStep#{i}",
            "ts": at,
            "dur": step_us,
        }
        work: dict[str, Any] = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": at + 1, "dur": 0.7 * step_us}
        memory = {"Device Type": 0, "Device Id": -1, "Addr": i, "Bytes": 512, "Total Allocated": 512 * (i + 1)}
        held: dict[str, Any] = {
            "ph": "i",
            "s": "t",
            "cat": "cpu_instant_event",
            "name": "[memory]",
            "ts": at + 2,
            "args": memory,
        }
        events += [one | {"pid": 1, "tid": 1} for one in (mark, work, held)]
    path.write_text(json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": at_s * 10**9, "traceEvents": events}))


def test_the_figures_of_a_recording_by_hand(tmp_path: Path) -> None:
    recording(tmp_path / "r" / "rank0.pt.trace.json", 1000, 1_793_000_000)
    trace = read_trace(tmp_path / "r" / "rank0.pt.trace.json")
    answer = VIEW.compute(trace, VIEW.parse({}))
    assert isinstance(answer, Figures)
    expected = {"step.total": 1e6, "step.cpu": 0.7e6, "step.other": 0.3e6, "memory.peak": 1536.0}
    assert answer.figures == pytest.approx(expected)
    assert answer.at_ns == 1_793_000_000 * 10**9 + 1_000_000


@pytest.fixture
def nightly(tmp_path: Path) -> Path:
    """Eight nights, 20 % slower from the fifth on; a report a night whose latency stays."""
    for night in range(8):
        slow = 1.2 if night >= 4 else 1
        place = tmp_path / "nightly" / f"net-2026-11-{night + 1:02d}"
        recording(place / "rank0.pt.trace.json", (1000 + night % 2) * slow, 1_793_000_000 + night * 86_400)
        write_result(tmp_path / "jobs" / f"j{night}" / "ort", {1: [100_000 + night % 2] * 100})
    return tmp_path


@pytest.mark.slow
def test_the_command_reports_changes_with_their_start(nightly: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trend", str(nightly), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    rows = answer["series"]["columns"]
    assert (rows["series"], rows["change"]) == (["nightly/net-*"], ["worse"])
    assert rows["changed_run"] == ["nightly/net-2026-11-05"]
    assert rows["before_run"] == ["nightly/net-2026-11-04"]
    assert len(answer["measurements"]["columns"]["run"]) == 8
    assert main(["trend", str(nightly), "--metric", "evaluation.p50"]) == 0
    out = capsys.readouterr().out
    assert "evaluation.p50 (there are: step.total," in out
    assert "batch=1" in out
    assert main(["trend", str(nightly), "--format", "csv", "--table", "measurements"]) == 0
    assert capsys.readouterr().out.count("nightly/net-2026-11-0") == 8


@pytest.mark.slow
def test_the_command_reports_what_it_cannot_follow(
    nightly: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trend", str(nightly), "--series", "weekly/*"]) == 2
    assert "was measured twice" in capsys.readouterr().err
    assert main(["trend", str(tmp_path_factory.mktemp("none"))]) == 2
    assert main(["trend", str(nightly), "--metric", "step.nothing"]) == 2
    broken = nightly / "nightly" / "net-2026-11-01" / "rank0.pt.trace.json"
    broken.write_text('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur"')
    capsys.readouterr()
    done = subprocess.run(
        [sys.executable, "-m", "visualprof", "trend", str(nightly)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "nightly/net-*" in done.stdout
