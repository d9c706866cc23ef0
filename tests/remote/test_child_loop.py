"""The timed loop and what its samples say, with sessions and samples that are known."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT
from visualprof.remote.backends import Feeds, Session
from visualprof.remote.child.host import HostLoad, LoadMeter
from visualprof.remote.child.inputs import SweepPoint
from visualprof.remote.child.measure import (
    MIN_SAMPLES,
    SAMPLE_BLOCK,
    latency_statistics,
    measure_point,
    nearest_rank,
    pack_samples,
    point_row,
    time_runs,
    warm_up,
)
from visualprof.remote.protocol import Measure

pytestmark = pytest.mark.slow


class Hands:
    """A clock that only moves when someone sleeps, so that load on the machine does not change measurements."""

    def __init__(self) -> None:
        self.now = 1_000_000_000

    def __call__(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


class Sleeper(Session):
    """A session whose parts take known times of a clock."""

    def __init__(self, clock: Hands, prepare_s: float, infer_s: float, fetch_s: float) -> None:
        self.clock = clock
        self.time_calls = prepare_s, infer_s, fetch_s
        self.runs = 0
        self.peak = 0

    def prepare(self, feeds: Feeds) -> Any:
        self.clock.sleep(self.time_calls[0])
        self.peak = 0
        return feeds

    def infer(self, prepared: Any) -> Any:
        self.runs += 1
        self.peak += 1
        self.clock.sleep(self.time_calls[1])

    def fetch(self, outputs: Any) -> list[Any]:
        self.clock.sleep(self.time_calls[2])
        return []

    def effective(self) -> dict[str, str]:
        return {}

    def memory_bytes(self) -> int | None:
        return self.peak

    def close(self) -> None: ...


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.mark.long
def test_a_loop_runs_until_both_the_time_and_the_number_are_reached(clock: Hands) -> None:
    by_number = time_runs(lambda _: clock.sleep(0.001), 1, 0.0, 10.0, 50, clock)
    assert (by_number.samples == 1_000_000).all()
    assert (len(by_number.samples), by_number.duration_ns) == (50, 50_000_000)
    by_time = time_runs(lambda _: clock.sleep(0.001), 1, 0.05, 10.0, 2, clock)
    assert (len(by_time.samples), by_time.duration_ns) == (50, 50_000_000)


def test_the_longest_time_wins_over_the_wanted_number(clock: Hands) -> None:
    assert len(time_runs(lambda _: clock.sleep(0.01), 1, 0.01, 0.05, 1_000_000, clock).samples) == 5


def test_at_least_one_run_is_measured_beyond_the_time_limit(clock: Hands) -> None:
    assert len(time_runs(lambda _: clock.sleep(0.01), 1, 0.0, 0.0, 100, clock).samples) == 1


def test_the_clock_of_a_measurement_is_fine_and_never_set_back() -> None:
    clock_info = time.get_clock_info("perf_counter")
    assert clock_info.monotonic
    assert clock_info.resolution <= 1e-6
    timed = time_runs(lambda _: None, 1, 0.0, 10.0, 1000)
    assert (timed.samples >= 0).all()
    assert timed.samples.sum() <= timed.duration_ns


@pytest.mark.long
def test_more_samples_than_room_are_all_kept(clock: Hands) -> None:
    took = itertools.cycle(range(1, 100))

    def infer(_: Any) -> None:
        clock.now += next(took)

    samples = time_runs(infer, 1, 0.0, 60.0, 2 * SAMPLE_BLOCK + 5, clock).samples
    assert len(time_runs(infer, 1, 0.001, 60.0, 1, clock).samples) > 0
    assert samples.tolist() == list(itertools.islice(itertools.cycle(range(1, 100)), 2 * SAMPLE_BLOCK + 5))


def test_the_buffer_grows_with_unexpected_runs(clock: Hands) -> None:
    def infer(_: Any) -> None:
        clock.now += 10

    timed = time_runs(infer, 1, (SAMPLE_BLOCK + 7) * 10 / 1e9, 60.0, 1, clock)
    assert len(timed.samples) == SAMPLE_BLOCK + 7
    assert (timed.samples == 10).all()


def test_the_garbage_collector_rests_while_runs_are_timed_and_only_then() -> None:
    seen: set[bool] = set()
    time_runs(lambda _: seen.add(gc.isenabled()), 1, 0.0, 1.0, 3)
    assert seen == {False}
    assert gc.isenabled()


def test_the_garbage_collector_is_asked_once_a_point(clock: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    measure_point(Sleeper(clock, 0, 0.001, 0), {}, Measure(0.01, 0.02, 5, 5), clock)
    assert collected == [1], "not between warm-up and measurement: it would cool the caches"
    assert gc.isenabled()


def test_the_garbage_collector_works_again_after_a_run_raised() -> None:
    def fails(_: Any) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        time_runs(fails, 1, 0.0, 1.0, 3)
    assert gc.isenabled()


def test_releasing_outputs_is_not_part_of_a_sample_but_of_the_rate(clock: Hands) -> None:
    class Slow:
        def __del__(self) -> None:
            clock.sleep(0.01)

    timed = time_runs(lambda _: Slow(), 1, 0.0, 5.0, 5, clock)
    assert timed.samples.max() == 0
    assert timed.duration_ns == 4 * 10_000_000, "the last outputs are released after the loop"


@pytest.mark.long
def test_warm_up_ends_when_two_windows_agree(clock: Hands) -> None:
    how = Measure(warmup_s=0.04, max_s=10.0)
    assert warm_up(lambda _: clock.sleep(0.005), 1, how, clock) == 2 * 4


@pytest.mark.long
def test_warm_up_continues_while_runs_get_faster(clock: Hands) -> None:
    took = iter([0.06 * 0.8**i for i in range(9)] + [0.01] * 100)
    assert warm_up(lambda _: clock.sleep(next(took)), 1, Measure(warmup_s=0.0, max_s=10.0), clock) == 5 * 3


@pytest.mark.long
def test_warm_up_of_runs_that_never_settle_ends_after_ten_windows(clock: Hands) -> None:
    took = iter([0.0005 * 1.2**i for i in range(1000)])
    assert warm_up(lambda _: clock.sleep(next(took)), 1, Measure(warmup_s=0.0, max_s=10.0), clock) == 30


def test_warm_up_ends_after_the_longest_time(clock: Hands) -> None:
    took = iter([2.0**i for i in range(1000)])
    assert warm_up(lambda _: clock.sleep(next(took)), 1, Measure(warmup_s=0.0, max_s=10.0), clock) == 4 + 1


def test_latency_has_neither_the_way_in_nor_the_way_out_and_the_whole_rate_has_both(clock: Hands) -> None:
    session = Sleeper(clock, 0.01, 0.002, 0.01)
    measured = measure_point(session, {}, Measure(warmup_s=0.01, min_s=0.1, max_s=5, min_n=5), clock)
    assert set(measured.timed.samples.tolist()) == {2_000_000}
    assert measured.first_ns == 2_000_000
    assert measured.transfers_per_s == pytest.approx(1 / 0.022)
    assert measured.end_ns - measured.start_ns == measured.timed.duration_ns == 100_000_000
    assert measured.start_ns > 1_700_000_000 * 10**9


def test_the_devices_peak_is_that_of_the_timed_loop_and_not_of_the_way_in_and_out(clock: Hands) -> None:
    session = Sleeper(clock, 0.0, 0.001, 0.0)
    measured = measure_point(session, {}, Measure(warmup_s=0.01, min_s=0.02, max_s=5, min_n=5), clock)
    assert measured.device_bytes == measured.warmup_n + len(measured.timed.samples)
    assert session.peak == 1, "it is forgotten when inputs are brought in anew"


def test_every_run_before_the_measured_ones_counts_as_warm_up(clock: Hands) -> None:
    session = Sleeper(clock, 0, 0.001, 0)
    measured = measure_point(session, {}, Measure(warmup_s=0.01, min_s=0.02, max_s=5, min_n=5), clock)
    whole = 20
    assert (measured.warmup_n, len(measured.timed.samples)) == (1 + 2 * 5, 20)
    assert session.runs == measured.warmup_n + 20 + whole


@pytest.mark.parametrize(("tenths", "expected"), [(500, 5), (900, 9), (950, 10), (990, 10), (1, 1), (1000, 10)])
def test_a_percentile_is_the_nearest_rank(tenths: int, expected: int) -> None:
    assert nearest_rank(np.arange(1, 11), tenths) == expected


@pytest.mark.parametrize("least", MIN_SAMPLES.values())
def test_a_percentile_is_shown_from_its_number_of_samples_on(least: int) -> None:
    tenths = next(p for p, n in MIN_SAMPLES.items() if n == least)
    key = {500: "p50_ns", 900: "p90_ns", 950: "p95_ns", 990: "p99_ns", 999: "p999_ns"}[tenths]
    below, reached = latency_statistics(np.arange(least - 1)), latency_statistics(np.arange(least))
    assert below[key] is None
    assert reached[key] == -(-tenths * least // 1000) - 1
    assert tenths / 10 not in below["trusted"]
    assert tenths / 10 in reached["trusted"]


def test_spread_and_thirds_come_from_the_samples_in_their_order() -> None:
    statistics = latency_statistics(np.array([100] * 4 + [108] * 4 + [104] * 4))
    assert statistics["window_p50_ns"] == [100, 108, 104]
    assert statistics["stable"]
    assert (statistics["min_ns"], statistics["max_ns"], statistics["mean_ns"], statistics["iqr_ns"]) == (
        100,
        108,
        104,
        8,
    )


def test_a_drift_of_more_than_a_tenth_is_not_stable() -> None:
    assert not latency_statistics(np.array([100] * 4 + [100] * 4 + [112] * 4))["stable"]


def test_a_throughput_that_moves_is_not_stable_whatever_the_median() -> None:
    """The last third is interrupted ten times: its median is 100 as that of the others, its mean 120."""
    quiet, disturbed = [100] * 100, [100] * 90 + [300] * 10
    statistics = latency_statistics(np.array(quiet + quiet + disturbed))
    assert (statistics["window_p50_ns"], statistics["window_mean_ns"]) == ([100, 100, 100], [100, 100, 120])
    assert not statistics["stable"]
    assert latency_statistics(np.array(disturbed * 3))["stable"], "it is the same throughout"


@pytest.mark.parametrize(("tail", "stable"), [(145, True), (155, False)])
def test_a_tail_that_moves_by_more_than_a_half_is_not_stable(tail: int, stable: bool) -> None:
    """1.5 % of the last third take so long: p99 is theirs, the mean moves by less than 1 %."""
    third = [100] * 985 + [100] * 15
    statistics = latency_statistics(np.array(third + third + [100] * 985 + [tail] * 15))
    assert statistics["window_p99_ns"] == [100, 100, tail]
    assert statistics["stable"] is stable
    few = latency_statistics(np.array([100] * 400 + [100] * 195 + [tail] * 5))
    assert few["stable"], "too few samples for p99"


def test_too_few_samples_for_thirds_are_not_called_stable() -> None:
    statistics = latency_statistics(np.array([100, 100]))
    assert not statistics["stable"]
    assert statistics["window_p50_ns"] == [100, 100]
    assert statistics["trusted"] == []


def test_a_sample_beyond_four_seconds_saturates_in_the_file_but_not_in_the_figures() -> None:
    samples = np.array([5_000_000_000, 7], np.int64)
    assert np.frombuffer(pack_samples(samples), "<u4").tolist() == [4294967295, 7]
    assert latency_statistics(samples)["max_ns"] == 5_000_000_000


def test_a_point_has_rates_of_runs_and_samples(clock: Hands) -> None:
    session = Sleeper(clock, 0.001, 0.001, 0.002)
    measured = measure_point(session, {}, Measure(warmup_s=0.01, min_s=0.05, max_s=5, min_n=5), clock)
    row = point_row(SweepPoint(64, 4, {}), measured, 77, 1000, 16)
    assert (row["batch"], row["n"], row["duration_ns"]) == (64, 50, 50_000_000)
    assert (row["qps"], row["samples_per_s"]) == (pytest.approx(1000), pytest.approx(4000))
    assert row["whole_samples_per_s"] == pytest.approx(4 * 250)
    assert row["latencies"] == [16, 50]
    assert (row["load_ns"], row["rss_bytes"]) == (77, 1000)
    assert row["energy_j_per_sample"] is row["throttled"] is None


def test_a_busy_host_is_detected_by_involuntary_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    from visualprof.remote.child import host

    switches = iter([100, 100 + 1_000_000])
    monkeypatch.setattr(host, "_switches", lambda: next(switches))
    monkeypatch.setattr(host, "cpu_wait_us", lambda: None)
    assert LoadMeter().load() == HostLoad(1_000_000, None, True)


@pytest.mark.parametrize(("cpu_s", "busy"), [(0.0, True), (1.0, True), (2.0, False), (16.0, False)])
def test_a_runtime_on_many_cores_may_be_interrupted_on_each(
    monkeypatch: pytest.MonkeyPatch, cpu_s: float, busy: bool
) -> None:
    from visualprof.remote.child import host

    switches, worked, wall = iter([0, 30]), iter([5.0, 5.0 + cpu_s]), iter([0, 10**9])
    monkeypatch.setattr(host, "_switches", lambda: next(switches))
    monkeypatch.setattr(host, "cpu_wait_us", lambda: None)
    monkeypatch.setattr(host.time, "process_time", lambda: next(worked))
    monkeypatch.setattr(host.time, "perf_counter_ns", lambda: next(wall))
    assert LoadMeter().load() == HostLoad(30, None, busy)


@pytest.mark.parametrize(("waited_us", "busy"), [(99_000, False), (101_000, True)])
def test_a_busy_host_is_seen_by_its_pressure(monkeypatch: pytest.MonkeyPatch, waited_us: int, busy: bool) -> None:
    from visualprof.remote.child import host

    waited, wall = iter([7, 7 + waited_us]), iter([0, 10**9])
    monkeypatch.setattr(host, "_switches", lambda: 0)
    monkeypatch.setattr(host, "cpu_wait_us", lambda: next(waited))
    monkeypatch.setattr(host.time, "perf_counter_ns", lambda: next(wall))
    assert LoadMeter().load() == HostLoad(0, waited_us / 1e6, busy)


PEAKS = """
import numpy as np
from visualprof.remote.child.host import reset_peak_rss, peak_rss_bytes
reset_peak_rss()
before = peak_rss_bytes()
block = np.ones(40_000_000, np.uint8)
grown = peak_rss_bytes()
del block
reset_peak_rss()
print(before, grown, peak_rss_bytes())
"""


def test_the_peak_of_memory_counts_from_the_last_reset() -> None:
    """In a process of its own: nobody else's memory comes and goes in it."""
    stdout = subprocess.run([sys.executable, "-c", PEAKS], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    before, grown, after = map(int, stdout.split())
    assert grown - before > 30_000_000
    assert after < grown - 20_000_000
