"""Concurrent streams, arrivals and the search for a rate: queues with known waiting times, in simulated time."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from visualprof.remote.backends import Feeds, Session
from visualprof.remote.child.inputs import SweepPoint
from visualprof.remote.child.load import (
    Loader,
    StreamLoop,
    ThreadScheduler,
    arrival_times,
    best_step,
    binomial_cdf,
    decide_limit,
    max_over_limit,
)
from visualprof.remote.child.measure import latency_statistics, measure_point, point_row
from visualprof.remote.protocol import Load, Measure

MS = 1_000_000


class Counted:
    """Simulated time that advances when every stream waits, to the first wake-up."""

    def __init__(self) -> None:
        self.now = 1_000 * MS
        self._lanes = 0
        self._sleeping: list[int] = []
        self._turn = threading.Condition()

    def clock(self) -> int:
        return self.now

    def wait(self, until_ns: int) -> None:
        with self._turn:
            if until_ns <= self.now:
                return
            if self._lanes < 2:
                self.now = until_ns
                return
            heapq.heappush(self._sleeping, until_ns)
            self._go_on()
            self._turn.wait_for(lambda: self.now >= until_ns)

    def _go_on(self) -> None:
        if self._sleeping and len(self._sleeping) == self._lanes:
            self.now = self._sleeping[0]
            while self._sleeping and self._sleeping[0] <= self.now:
                heapq.heappop(self._sleeping)
            self._turn.notify_all()

    def run_concurrently(self, streams: Sequence[StreamLoop], on_start: Callable[[], None]) -> None:
        def start() -> None:
            on_start()
            self._lanes = len(streams)

        def counted(lane: StreamLoop) -> StreamLoop:
            def run(meet: Callable[[], Any]) -> None:
                lane(meet)
                with self._turn:
                    self._lanes -= 1
                    self._go_on()

            return run

        ThreadScheduler().run_concurrently([counted(lane) for lane in streams], start)
        self._lanes = 0


class Served(Session):
    """A session whose runs take known times, one after the other and then anew."""

    def __init__(self, world: Counted, *service_ms: float) -> None:
        self._world, self._times, self._runs = world, [round(ms * MS) for ms in service_ms], 0

    def infer(self, prepared: Any) -> Any:
        took = self._times[self._runs % len(self._times)]
        self._runs += 1
        self._world.wait(self._world.now + took)
        return prepared


def measure(load: Load, seconds: float = 10.0, least: int = 1, most_s: float = 3600.0) -> Measure:
    return Measure(warmup_s=0.0, min_s=seconds, max_s=most_s, min_n=least, load=load)


def loader(how: Measure, *service_ms: float, samples: int = 1) -> Loader:
    world = Counted()
    return Loader(Served(world, *service_ms), {}, how, samples, world)


def queue(dues: Sequence[int], service: int, lanes: int) -> list[int]:
    """First come, first served: each run begins when it is due and the first lane is free (Kiefer and Wolfowitz)."""
    free, latencies = [0] * lanes, list[int]()
    for due in dues:
        end = max(due, heapq.heappop(free)) + service
        heapq.heappush(free, end)
        latencies.append(end - due)
    return latencies


@pytest.mark.long
def test_a_single_stream_waits_like_an_m_d_1_queue() -> None:
    """Load 0.8 and service 10 ms: the mean wait is 0.8 * 10 ms / (2 * (1 - 0.8)) = 20 ms."""
    how = measure(Load([1], [80.0]), seconds=2500.0)
    step = loader(how, 10.0).run({})
    assert step.timed.samples.tolist() == queue(arrival_times(80.0, how), 10 * MS, 1)
    assert step.timed.samples.mean() - 10 * MS == pytest.approx(20 * MS, rel=0.05)
    assert step.runs_per_s == pytest.approx(80.0, rel=0.01)


@pytest.mark.long
@pytest.mark.parametrize("lanes", [2, 3])
def test_streams_share_a_queue(lanes: int) -> None:
    how = measure(Load([lanes], [90.0 * lanes]), seconds=4.0)
    step = loader(how, 10.0).run({})
    assert step.timed.samples.tolist() == queue(arrival_times(90.0 * lanes, how), 10 * MS, lanes)
    assert (step.concurrency, step.offered_per_s, step.timed.unserved) == (lanes, 90.0 * lanes, 0)


def test_latency_counts_from_the_arrival_also_behind_a_slow_run() -> None:
    """One run of 1 s among such of 1 ms at 100 a second: about 100 runs wait for it, 0.5 s in the mean."""
    how = measure(Load([1], [100.0]), seconds=10.0)
    served = loader(how, *([1.0] * 500 + [1000.0] + [1.0] * 100_000)).run({}).timed.samples
    late = served[served > 20 * MS]
    assert 80 <= len(late) <= 130
    assert late.mean() == pytest.approx(500 * MS, rel=0.2)


def test_closed_lanes_have_a_run_each_under_way() -> None:
    """Four lanes of 10 ms: 400 runs a second of 10 ms each; concurrency alone makes the latency no longer."""
    point = loader(measure(Load([1, 2, 4]), seconds=2.0), 10.0)
    step = point.run({})
    assert [round(item.runs_per_s) for item in point.steps] == [100, 200, 400]
    assert step is point.steps[2]
    assert set(step.timed.samples.tolist()) == {10 * MS}


@pytest.mark.long
def test_closed_lanes_reach_the_number_of_runs_together_and_keep_to_the_time() -> None:
    assert len(loader(measure(Load([4]), seconds=0.01, least=100), 10.0).run({}).timed.samples) == 100
    assert loader(measure(Load([4]), seconds=9.0, least=10**6, most_s=9.0), 10.0).run({}).timed.duration_ns <= 9010 * MS


@pytest.mark.long
def test_overload_leaves_runs_unserved_which_are_later_than_all() -> None:
    """20 a second of which 10 can be served: in 10 s 200 come, 100 and those of 10 s more are served."""
    point = loader(measure(Load([1], [20.0]), seconds=10.0), 100.0)
    timed = point.run({}).timed
    came = len(arrival_times(20.0, measure(Load(), seconds=10.0)))
    assert timed.unserved == came - len(timed.samples)
    half = loader(measure(Load([1], [100.0]), seconds=10.0), 100.0)
    step = half.run({})
    statistics = latency_statistics(step.timed.samples, step.timed.unserved)
    assert len(step.timed.samples) < 0.25 * (len(step.timed.samples) + step.timed.unserved)
    assert statistics["p50_ns"] is None
    assert statistics["mean_ns"] is None
    assert statistics["max_ns"] is None
    assert half.load_fields()["load"]["step"]["p50_ns"] is None


def test_an_error_of_one_stream_ends_all() -> None:
    class Broken(Session):
        def prepare(self, feeds: Feeds) -> Any:
            raise ValueError("no")

        def infer(self, prepared: Any) -> Any:
            raise AssertionError

    with pytest.raises(ValueError, match="no"):
        Loader(Broken(), {}, measure(Load([3]), seconds=0.01), 1).run({})


def test_arrivals_are_a_poisson_process_and_the_same_each_time() -> None:
    """Of 1,000 a second for 100 s: gaps of 1 ms in the mean and in deviation; 100,000 give or take 3 sigma."""
    how = measure(Load(), seconds=100.0)
    times = np.array(arrival_times(1000.0, how))
    gaps = np.diff(times) / MS
    assert abs(len(times) - 100_000) < 3 * 316
    assert gaps.mean() == pytest.approx(1.0, rel=0.02)
    assert gaps.std() == pytest.approx(1.0, rel=0.02)
    assert arrival_times(1000.0, how) == times.tolist()
    assert len(arrival_times(10.0, measure(Load(), seconds=1.0, least=662))) == 662
    assert times[-1] < 100_000 * MS
    assert arrival_times(1.0, measure(Load(), seconds=1.0, least=662, most_s=20.0))[-1] < 20_000 * MS


def test_the_binomial_distribution_by_hand() -> None:
    """Four tosses of a coin: 1, 5, 11, 15 and 16 of 16."""
    assert [round(16 * binomial_cdf(k, 4, 0.5), 9) for k in range(5)] == [1, 5, 11, 15, 16]
    assert binomial_cdf(0, 459, 0.01) == pytest.approx(0.99**459)
    assert binomial_cdf(1, 662, 0.01) == pytest.approx(0.99**662 + 662 * 0.01 * 0.99**661)
    assert binomial_cdf(11_000, 1_000_000, 0.01) == pytest.approx(1.0)
    assert binomial_cdf(10_000, 1_000_000, 0.01) == pytest.approx(0.5026, abs=2e-4)  # 0.5 + 2/3 pmf of the mode, 0.004


def test_decisions_need_as_many_runs_as_loadgen_asks_for() -> None:
    """p99 with none over: 459, for 0.99**459 = 0.0099; with one over 662, at p90 44 and 64."""
    assert (decide_limit(0, 458, 99), decide_limit(0, 459, 99)) == ("INCONCLUSIVE", "PASS")
    assert (decide_limit(1, 661, 99), decide_limit(1, 662, 99)) == ("INCONCLUSIVE", "PASS")
    assert (decide_limit(0, 43, 90), decide_limit(0, 44, 90)) == ("INCONCLUSIVE", "PASS")
    assert (decide_limit(1, 63, 90), decide_limit(1, 64, 90)) == ("INCONCLUSIVE", "PASS")
    # Of 1,000 at p99: 10 are expected; 19 or more come by chance in 0.7 % of cases, 18 in 1.4 %; 2 or less in 0.3 %.
    assert [decide_limit(k, 1000, 99) for k in (2, 3, 4, 10, 18, 19, 20)] == [
        "PASS",
        "INCONCLUSIVE",
        "INCONCLUSIVE",
        "INCONCLUSIVE",
        "INCONCLUSIVE",
        "FAIL",
        "FAIL",
    ]
    assert decide_limit(0, 1, 99) == "INCONCLUSIVE"
    assert decide_limit(5, 5, 99) == "FAIL"
    assert (max_over_limit(458, 99), max_over_limit(459, 99), max_over_limit(662, 99), max_over_limit(1000, 99)) == (
        None,
        0,
        1,
        2,
    )


@pytest.mark.long
def test_the_search_finds_the_rate_at_which_the_tail_meets_the_limit() -> None:
    """M/D/1 with service 10 ms and 100 a second at most: p99 is 50 ms at about 68 a second (from the recursion)."""
    how = measure(Load([1], limit_ms=50.0), seconds=300.0)
    point = loader(how, 10.0)
    step = point.run({})
    load = point.load_fields()["load"]
    assert (load["scenario"], load["verdict"], step.decision) == ("search", "PASS", "PASS")
    assert load["step"]["tail_ns"] <= load["step"]["tail_bound_ns"] <= 50 * MS
    rate = step.offered_per_s
    assert rate is not None
    more = np.sort(queue(arrival_times(rate * 1.1, how), 10 * MS, 1))
    assert more[int(0.99 * len(more))] > 50 * MS, "a tenth more would be too much"
    assert [row["offered_per_s"] for row in load["steps"][:3]] == [None, pytest.approx(50.0), pytest.approx(75.0)]
    assert len(load["steps"]) <= how.load.step_count


def test_a_limit_below_the_service_fails_at_every_rate() -> None:
    point = loader(measure(Load([1], limit_ms=9.0), seconds=20.0), 10.0)
    point.run({})
    assert point.load_fields()["load"]["verdict"] == "FAIL"
    assert point.load_fields()["load"]["step"]["offered_per_s"] == pytest.approx(100 / 2**8)


def test_too_few_runs_give_no_verdict() -> None:
    point = loader(measure(Load([1], [10.0], limit_ms=50.0), seconds=2.0), 10.0)
    point.run({})
    load = point.load_fields()["load"]
    assert (load["verdict"], load["step"]["tail_bound_ns"]) == ("INCONCLUSIVE", None)
    assert load["step"]["n"] < 459


@pytest.mark.slow
def test_mlperf_sets_percentile_lanes_and_queries() -> None:
    single = loader(measure(Load(mlperf="SingleStream"), seconds=1.0), 10.0)
    assert single.run({}).concurrency == 1
    load = single.load_fields()["load"]
    assert (load["percentile"], load["step"]["tail_ns"], load["verdict"]) == (90.0, 10 * MS, None)
    several = loader(measure(Load(mlperf="MultiStream"), seconds=10.0), 10.0, samples=4)
    assert set(several.run({}).timed.samples.tolist()) == {20 * MS}, "a query of 8 samples is two runs of 4"
    assert several.load_fields()["load"]["step"]["achieved_per_s"] == pytest.approx(50.0)
    assert several.load_fields()["samples_per_s"] == pytest.approx(400.0)
    assert measure(Load(mlperf="Server", limit_ms=5)).load.searches_rate
    assert not measure(Load([1], [5.0], mlperf="Server", limit_ms=5)).load.searches_rate


def test_offline_takes_as_many_lanes_as_the_runtime_finds_best() -> None:
    class Wide(Served):
        def best_concurrency(self) -> int:
            return 3

    world = Counted()
    point = Loader(Wide(world, 10.0), {}, measure(Load(mlperf="Offline"), seconds=1.0), 2, world)
    assert point.run({}).concurrency == 3
    assert point.load_fields()["samples_per_s"] == pytest.approx(600.0)


@pytest.mark.long
def test_the_best_step_is_the_fastest_that_passes() -> None:
    how = measure(Load([1], [20.0, 50.0, 99.0], limit_ms=60.0), seconds=200.0)
    point = loader(how, 10.0)
    step = point.run({})
    assert [item.decision for item in point.steps] == ["PASS", "PASS", "FAIL"]
    assert step is point.steps[1] is best_step(point.steps)


@pytest.mark.slow
def test_a_point_describes_its_load() -> None:
    world = Counted()
    session, how = Served(world, 10.0), measure(Load([2]), seconds=1.0)
    load = Loader(session, {}, how, 4, world)
    measured = measure_point(session, {}, how, world.clock, load.run)
    line = point_row(SweepPoint(4, 4, {}), measured, 1, 1, 0) | load.load_fields()
    load_row = line["load"]
    assert (load_row["scenario"], load_row["step"]["concurrency"], load_row["verdict"]) == ("closed", 2, None)
    assert (line["qps"], line["samples_per_s"]) == (pytest.approx(200.0), pytest.approx(800.0))
    assert [row["concurrency"] for row in load_row["steps"]] == [2]
    plain = Loader(session, {}, measure(Load(), seconds=1.0), 4, world)
    plain.run({})
    assert plain.load_fields()["load"]["steps"] == [], "nothing but what the point says itself"
