"""Energy and throttling of a point, by the monitor's samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visualprof.remote.agent.work.monitor_samples import DeviceHistory, complete_points

S = 1_000_000_000


def history(*rows: tuple[float, float | None]) -> DeviceHistory:
    """Seconds and watts."""
    return DeviceHistory([round(t * S) for t, _ in rows], [p for _, p in rows], [None] * len(rows))


def test_constant_power_is_power_times_time() -> None:
    steady = history(*((t / 10, 100.0) for t in range(51)))
    assert steady.energy_j(S, 3 * S) == pytest.approx(200)


def test_between_samples_power_is_a_line() -> None:
    ramp = history((0, 0.0), (10, 100.0))
    assert ramp.energy_j(0, 10 * S) == pytest.approx(500)
    assert ramp.energy_j(4 * S, 6 * S) == pytest.approx(100)


def test_energy_of_uneven_samples_is_that_of_the_trapezoids() -> None:
    uneven = history((0, 100.0), (1, 200.0), (3, 200.0), (4, 0.0))
    # 0.5 s at 175 W, 2 s at 200 W, 0.5 s at 150 W
    assert uneven.energy_j(S // 2, 3 * S + S // 2) == pytest.approx(87.5 + 400 + 75)
    assert uneven.energy_j(S + S // 2, 2 * S) == pytest.approx(100), "between two samples"


def test_a_sample_missing_at_one_end_does_not_change_the_other() -> None:
    # 1 s at the first sample's 100 W, 1 s at 150 W, 1 s of the fall from 200 W to 100 W
    assert history((1, 100.0), (2, 200.0), (4, 0.0)).energy_j(0, 3 * S) == pytest.approx(100 + 150 + 150)


def test_the_nearest_sample_replaces_missing_ones_at_an_end() -> None:
    assert history((1, 50.0), (2, 50.0)).energy_j(0, 4 * S) == pytest.approx(200)
    assert history((1, 50.0)).energy_j(0, 2 * S) == pytest.approx(100)


def test_energy_is_unknown_without_a_sample_in_the_span() -> None:
    assert history((0, 50.0), (1, 50.0)).energy_j(5 * S, 6 * S) is None
    assert history((0, None), (1, None)).energy_j(0, S) is None
    assert DeviceHistory().energy_j(0, S) is None


@given(
    st.lists(st.floats(0, 700), min_size=3, max_size=20),
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_energy_of_two_parts_is_that_of_the_whole(power: list[float], a: int, b: int, c: int) -> None:
    device_history = DeviceHistory([i * S for i in range(len(power))], list(power), [None] * len(power))
    last = (len(power) - 1) * S
    start, middle, end = sorted(last * x // 100 for x in (a, b, c))
    parts = [device_history.energy_j(start, middle), device_history.energy_j(middle, end)]
    whole = device_history.energy_j(start, end)
    if None not in (*parts, whole):
        assert sum(parts) == pytest.approx(whole, abs=1e-6)  # type: ignore[arg-type]


def monitor(folder: Path, rows: list[tuple[float, float | None, list[str] | None]]) -> Path:
    lines = [{"schema": "visualprof.monitor/1"}]
    lines += [{"t_ns": round(t * S), "gpus": [{"power_w": p, "throttle": reasons}]} for t, p, reasons in rows]
    path = folder / "monitor.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def completed(folder: Path, rows: list[tuple[float, float | None, list[str] | None]], text: str) -> list[Any]:
    points = folder / "points.jsonl"
    points.write_text(text)
    complete_points(points, monitor(folder, rows))
    return points.read_text().splitlines()


POINT = {
    "batch": 64,
    "n": 25,
    "qps": 12.5,
    "samples_per_s": 50.0,
    "start_ns": S,
    "end_ns": 3 * S,
    "energy_j_per_sample": None,
    "throttled": None,
}


def test_a_point_gets_energy_a_sample_and_its_throttling(tmp_path: Path) -> None:
    rows: Any = [(t / 2, 100.0, ["power cap"] if t == 4 else []) for t in range(10)]
    document = json.loads(completed(tmp_path, rows, json.dumps(POINT) + "\n")[0])
    assert document["energy_j_per_sample"] == pytest.approx(2.0)
    assert document["throttled"] is True
    assert {**document, "energy_j_per_sample": None, "throttled": None} == POINT


def test_throttling_outside_of_a_point_does_not_count(tmp_path: Path) -> None:
    rows: Any = [(0.5, 100.0, ["power cap"]), (2, 100.0, []), (3.5, 100.0, ["power cap"])]
    assert json.loads(completed(tmp_path, rows, json.dumps(POINT) + "\n")[0])["throttled"] is False


@pytest.mark.parametrize(("at_s", "told"), [(0.99, False), (1.0, True), (2.0, True), (3.0, True), (3.01, False)])
def test_throttling_counts_from_the_first_to_the_last_moment_of_a_point(
    tmp_path: Path, at_s: float, told: bool
) -> None:
    rows: list[tuple[float, float | None, list[str] | None]] = [(1.5, 100.0, []), (at_s, 100.0, ["hw thermal"])]
    rows.sort()
    assert json.loads(completed(tmp_path, rows, json.dumps(POINT) + "\n")[0])["throttled"] is told


def test_unknown_values_stay_null(tmp_path: Path) -> None:
    document = json.loads(completed(tmp_path, [(2, None, None)], json.dumps(POINT) + "\n")[0])
    assert (document["energy_j_per_sample"], document["throttled"]) == (None, None)


def test_lines_that_are_not_points_are_unchanged(tmp_path: Path) -> None:
    text = '{"batch": 1}\nnonsense\n[1]\n' + json.dumps(POINT) + '\n{"half'
    lines = completed(tmp_path, [(2, 100.0, [])], text)
    assert lines[:3] == ['{"batch": 1}', "nonsense", "[1]"]
    assert lines[4] == '{"half'


def test_a_point_without_a_rate_is_unchanged(tmp_path: Path) -> None:
    point = {**POINT, "qps": 0}
    assert json.loads(completed(tmp_path, [(2, 100.0, [])], json.dumps(point) + "\n")[0]) == point


def test_without_a_gpu_the_file_is_not_touched(tmp_path: Path) -> None:
    points = tmp_path / "points.jsonl"
    points.write_text('{"batch":1}\n')
    before = points.stat().st_mtime_ns
    head = tmp_path / "monitor.jsonl"
    head.write_text('{"schema": "visualprof.monitor/1"}\n{"t_ns": 1, "gpus": []}\n')
    complete_points(points, head)
    assert points.stat().st_mtime_ns == before
