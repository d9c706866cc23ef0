"""The timed loop and what its samples say, with sessions and samples that are known."""

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np
import pytest

from visualprof.remote.backends import Feeds
from visualprof.remote.child.host import Load, Watch, forget_peak, peak_rss_bytes
from visualprof.remote.child.measure import ROOM, measure_point, time_runs, warm_up
from visualprof.remote.child.point import ENOUGH, describe, distribution, kept, nearest_rank
from visualprof.remote.child.shapes import Point
from visualprof.remote.protocol import Measure


class Sleeper:
    """A session whose parts take known times."""

    def __init__(self, prepare_s: float, infer_s: float, fetch_s: float) -> None:
        self.times = prepare_s, infer_s, fetch_s
        self.runs = 0

    def prepare(self, feeds: Feeds) -> Any:
        time.sleep(self.times[0])
        return feeds

    def infer(self, prepared: Any) -> Any:
        self.runs += 1
        time.sleep(self.times[1])

    def fetch(self, outputs: Any) -> list[Any]:
        time.sleep(self.times[2])
        return []

    def effective(self) -> dict[str, str]:
        return {}

    def memory_bytes(self) -> int | None:
        return None

    def close(self) -> None: ...


def test_a_loop_runs_until_both_the_time_and_the_number_are_reached() -> None:
    calls: list[int] = []
    by_number = time_runs(calls.append, 1, 0.0, 10.0, 50)
    assert len(by_number.samples) == len(calls) == 50
    by_time = time_runs(lambda _: time.sleep(0.001), 1, 0.05, 10.0, 2)
    assert len(by_time.samples) > 2
    assert by_time.duration_ns >= 50_000_000


def test_the_longest_time_wins_over_the_wanted_number() -> None:
    timed = time_runs(lambda _: time.sleep(0.01), 1, 0.01, 0.05, 1_000_000)
    assert 1 <= len(timed.samples) <= 6


def test_one_run_is_measured_even_beyond_the_longest_time() -> None:
    assert len(time_runs(lambda _: time.sleep(0.01), 1, 0.0, 0.0, 100).samples) == 1


def test_more_samples_than_room_are_all_kept() -> None:
    timed = time_runs(lambda _: None, 1, 0.15, 60.0, 1)
    assert len(timed.samples) > ROOM
    assert (timed.samples >= 0).all()
    assert timed.samples.sum() <= timed.duration_ns


def test_the_garbage_collector_rests_while_runs_are_timed_and_only_then() -> None:
    seen: set[bool] = set()
    time_runs(lambda _: seen.add(gc.isenabled()), 1, 0.0, 1.0, 3)
    assert seen == {False}
    assert gc.isenabled()


def test_the_garbage_collector_works_again_after_a_run_raised() -> None:
    def fails(_: Any) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        time_runs(fails, 1, 0.0, 1.0, 3)
    assert gc.isenabled()


def test_releasing_outputs_is_not_part_of_a_sample() -> None:
    class Slow:
        def __del__(self) -> None:
            time.sleep(0.01)

    timed = time_runs(lambda _: Slow(), 1, 0.0, 5.0, 5)
    assert timed.samples.max() < 5_000_000
    assert timed.duration_ns > 40_000_000


def test_warm_up_ends_when_two_windows_agree() -> None:
    how = Measure(warmup_s=0.04, max_s=10.0)
    runs = warm_up(lambda _: time.sleep(0.005), 1, how)
    assert 6 <= runs <= 20


def test_warm_up_goes_on_while_runs_get_faster_but_not_for_ever() -> None:
    took = [0.06]

    def faster(_: Any) -> None:
        time.sleep(took[0])
        took[0] *= 0.8

    assert warm_up(faster, 1, Measure(warmup_s=0.0, max_s=10.0)) >= 12
    growing = [0.0005]

    def slower(_: Any) -> None:
        time.sleep(growing[0])
        growing[0] *= 1.2

    assert warm_up(slower, 1, Measure(warmup_s=0.0, max_s=10.0)) == 30


def test_latency_has_neither_the_way_in_nor_the_way_out_and_the_whole_rate_has_both() -> None:
    session = Sleeper(0.01, 0.002, 0.01)
    measured = measure_point(session, {}, Measure(warmup_s=0.01, min_s=0.1, max_s=5, min_n=5))
    assert 2_000_000 <= np.median(measured.timed.samples) < 9_000_000
    assert 2_000_000 <= measured.first_ns < 9_000_000
    assert 20 < measured.whole_per_s < 1 / 0.022
    assert measured.end_ns > measured.start_ns > 1_700_000_000 * 10**9


def test_every_run_before_the_measured_ones_counts_as_warm_up() -> None:
    session = Sleeper(0, 0.001, 0)
    session_runs = measure_point(session, {}, Measure(warmup_s=0.01, min_s=0.02, max_s=5, min_n=5))
    whole_at_most = 0.02 / 0.001 + 3
    assert 0 < session.runs - session_runs.warmup_n - len(session_runs.timed.samples) <= whole_at_most


@pytest.mark.parametrize(("tenths", "expected"), [(500, 5), (900, 9), (950, 10), (990, 10), (1, 1), (1000, 10)])
def test_a_percentile_is_the_nearest_rank(tenths: int, expected: int) -> None:
    assert nearest_rank(np.arange(1, 11), tenths) == expected


@pytest.mark.parametrize("least", ENOUGH.values())
def test_a_percentile_is_shown_from_its_number_of_samples_on(least: int) -> None:
    tenths = next(p for p, n in ENOUGH.items() if n == least)
    key = {500: "p50_ns", 900: "p90_ns", 950: "p95_ns", 990: "p99_ns", 999: "p999_ns"}[tenths]
    below, reached = distribution(np.arange(least - 1)), distribution(np.arange(least))
    assert below[key] is None
    assert reached[key] == -(-tenths * least // 1000) - 1
    assert tenths / 10 not in below["trusted"]
    assert tenths / 10 in reached["trusted"]


def test_spread_and_thirds_come_from_the_samples_in_their_order() -> None:
    told = distribution(np.array([100] * 4 + [108] * 4 + [104] * 4))
    assert told["window_p50_ns"] == [100, 108, 104]
    assert told["stable"]
    assert (told["min_ns"], told["max_ns"], told["mean_ns"], told["iqr_ns"]) == (100, 108, 104, 8)


def test_a_drift_of_more_than_a_tenth_is_not_stable() -> None:
    assert not distribution(np.array([100] * 4 + [100] * 4 + [112] * 4))["stable"]


def test_too_few_samples_for_thirds_are_not_called_stable() -> None:
    told = distribution(np.array([100, 100]))
    assert not told["stable"]
    assert told["window_p50_ns"] == [100, 100]
    assert told["trusted"] == []


def test_a_sample_beyond_four_seconds_saturates_in_the_file_but_not_in_the_figures() -> None:
    samples = np.array([5_000_000_000, 7], np.int64)
    assert np.frombuffer(kept(samples), "<u4").tolist() == [4294967295, 7]
    assert distribution(samples)["max_ns"] == 5_000_000_000


def test_a_point_tells_rates_of_runs_and_of_samples() -> None:
    session = Sleeper(0, 0.001, 0)
    measured = measure_point(session, {}, Measure(warmup_s=0.01, min_s=0.05, max_s=5, min_n=5))
    told = describe(Point(64, 4, {}), measured, 77, (1000, None), 16)
    assert told["batch"] == 64
    assert told["qps"] == pytest.approx(told["n"] / told["duration_ns"] * 1e9)
    assert told["samples_per_s"] == pytest.approx(4 * told["qps"])
    assert told["latencies"] == [16, told["n"]]
    assert told["load_ns"] == 77
    assert told["energy_j_per_sample"] is told["throttled"] is told["gpu_memory_bytes"] is None


def test_a_busy_host_is_seen_by_the_switches_it_forces(monkeypatch: pytest.MonkeyPatch) -> None:
    from visualprof.remote.child import host

    switches = iter([100, 100 + 1_000_000])
    monkeypatch.setattr(host, "_switches", lambda: next(switches))
    monkeypatch.setattr(host, "_waited_us", lambda: None)
    assert Watch().load() == Load(1_000_000, None, True)


def test_a_busy_host_is_seen_by_its_pressure(monkeypatch: pytest.MonkeyPatch) -> None:
    from visualprof.remote.child import host

    waited = iter([0, 10_000])
    monkeypatch.setattr(host, "_switches", lambda: 0)
    monkeypatch.setattr(host, "_waited_us", lambda: next(waited))
    watch = Watch()
    time.sleep(0.02)
    load = watch.load()
    assert load.busy
    assert load.pressure is not None
    assert 0.1 < load.pressure <= 0.5


def test_the_peak_of_memory_is_that_since_it_was_forgotten() -> None:
    forget_peak()
    before = peak_rss_bytes()
    block = np.ones(40_000_000, np.uint8)
    grown = peak_rss_bytes()
    assert grown - before > 30_000_000
    del block
    forget_peak()
    assert peak_rss_bytes() < grown - 20_000_000
