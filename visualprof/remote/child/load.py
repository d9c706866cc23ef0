"""The loops of a load: lanes that run at once, runs that arrive at random, the search for the rate that keeps a limit.

A lane takes the next run that no other has taken, waits until it is due and runs it: first come, first served. In a
closed loop a run is due when its lane is free, else when it arrives: its latency counts from there, so that a run that
comes late delays what is behind it (no coordinated omission).
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from visualprof.remote.backends import Feeds, Session
from visualprof.remote.child.host import LoadMeter
from visualprof.remote.child.inputs import RANDOM_SEED
from visualprof.remote.child.measure import (
    Infer,
    MeasuredLoop,
    TimedRuns,
    finish_loop,
    nearest_rank_of_all,
    no_garbage_collection,
    run_sequentially,
)
from visualprof.remote.protocol import SEARCH_STEPS, Load, Measure

Decision = Literal["PASS", "FAIL", "INCONCLUSIVE"]
CONFIDENCE = 0.99
RATE_TOLERANCE = 0.05  # the search ends when the rates that pass and fail differ by no more
MULTISTREAM_SAMPLES = 8  # samples of a query of MultiStream
MAX_ARRIVALS = 1 << 20
WARM_UP_RUNS = 3  # runs of each lane before they begin together
SLEEP_OVERRUN_NS = 100_000  # a sleep may last so much longer: the rest is waited for without sleeping

WaitForStart = Callable[[], Any]
StreamLoop = Callable[[WaitForStart], None]


class Scheduler(Protocol):
    """Time, and lanes that run in it."""

    def clock(self) -> int:
        """Now, ns."""
        ...

    def wait(self, until_ns: int) -> None:
        """Returns at that time; at once where it is past."""
        ...

    def run_concurrently(self, lanes: Sequence[StreamLoop], begin: Callable[[], None]) -> None:
        """Run the lanes at once to their ends. Each meets the others once; `begin` is called when all have come."""
        ...


class ThreadScheduler:
    """The machine's clock, and a thread a lane."""

    def clock(self) -> int:
        """Now, ns."""
        return time.perf_counter_ns()

    def wait(self, until_ns: int) -> None:
        """Sleeps; in the last moments it only lets others run, for no sleep ends exactly."""
        while (left := until_ns - time.perf_counter_ns()) > 0:
            time.sleep(max(0, left - SLEEP_OVERRUN_NS) / 1e9)

    def run_concurrently(self, lanes: Sequence[StreamLoop], begin: Callable[[], None]) -> None:
        """Run the lanes; one alone in this thread. The first error of any is raised when all have ended."""
        if len(lanes) == 1:
            lanes[0](begin)
            return
        barrier, errors = threading.Barrier(len(lanes), begin), list[BaseException]()

        def work(lane: StreamLoop) -> None:
            try:
                lane(barrier.wait)
            except threading.BrokenBarrierError:
                return
            except BaseException as error:  # noqa: BLE001 (raised again below)
                errors.append(error)
                barrier.abort()

        threads = [threading.Thread(target=work, args=(lane,)) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


@dataclass(frozen=True)
class LoadStep(MeasuredLoop):
    """One loop of a load. offered_per_s: runs that arrive a second, None in a closed loop. decision: on the limit."""

    concurrency: int
    offered_per_s: float | None = None
    decision: Decision | None = None

    @property
    def runs_per_s(self) -> float:
        """Run that ended, a second."""
        return len(self.timed.samples) * 1e9 / max(1, self.timed.duration_ns)


class Loader:
    """The load of one point. samples: of a run. steps: what was measured so far, in its order."""

    def __init__(
        self, session: Session, feeds: Feeds, how: Measure, samples: int, world: Scheduler | None = None
    ) -> None:
        self.steps: list[LoadStep] = []
        self._session, self._feeds, self._how, self._load = session, feeds, how, how.load
        self._world: Scheduler = world or ThreadScheduler()
        self._samples = samples
        self._runs = -(-MULTISTREAM_SAMPLES // samples) if self._load.mlperf == "MultiStream" else 1  # of a query

    def run(self, prepared: Any) -> LoadStep:
        """Measure every step; the one that stands for the point is the answer. prepared: inputs of the session."""
        load = self._load
        with no_garbage_collection():
            for lanes in load.concurrency or [self._usual_lanes()]:
                if load.searches_rate:
                    self._search(prepared, lanes)
                elif load.rates:
                    self.steps += [self._open(lanes, rate) for rate in load.rates]
                else:
                    self.steps.append(self._closed(prepared, lanes))
        return best_step(self.steps)

    def load_fields(self) -> dict[str, Any]:
        """What a line of `points.jsonl` says of the load. verdict: whether any step keeps the limit."""
        step, load, decisions = best_step(self.steps), self._load, {one.decision for one in self.steps}
        order: tuple[Decision, ...] = ("PASS", "INCONCLUSIVE", "FAIL")
        steps = [self._row(one) for one in self.steps] if load != Load() else []
        told = {
            "scenario": load.scenario,
            "percentile": load.tail_percentile,
            "limit_ns": self._limit_ns or None,
            "verdict": next((decision for decision in order if decision in decisions), None),
            "step": self._row(step),
            "steps": steps,
        }
        return {"samples_per_s": step.runs_per_s * self._samples * self._runs, "load": told}

    def _row(self, step: LoadStep) -> dict[str, Any]:
        """A step as it is kept. tail_ns: at the percentile; tail_bound_ns: where that is with confidence."""
        n, ordered = len(step.timed.samples) + step.timed.unserved, np.sort(step.timed.samples)
        allowed = max_over_limit(n, self._load.tail_percentile)
        bound = None if allowed is None or n - allowed > len(ordered) else int(ordered[n - 1 - allowed])
        return {
            "concurrency": step.concurrent_sessions,
            "offered_per_s": step.offered_per_s,
            "achieved_per_s": step.runs_per_s,
            "n": len(ordered),
            "unserved": step.timed.unserved,
            "p50_ns": nearest_rank_of_all(ordered, 500, n),
            "tail_ns": nearest_rank_of_all(ordered, round(self._load.tail_percentile * 10), n),
            "tail_bound_ns": bound,
            "verdict": step.decision,
        }

    @property
    def _limit_ns(self) -> int:
        return round(self._load.limit_ms * 1e6)

    def _usual_lanes(self) -> int:
        one = self._load.scenario in ("closed", "SingleStream", "MultiStream")
        return 1 if one else max(1, self._session.best_concurrency())

    def _decided(self, step: LoadStep) -> LoadStep:
        if not self._limit_ns:
            return step
        timed = step.timed
        over = int(np.count_nonzero(timed.samples > self._limit_ns)) + timed.unserved
        return replace(
            step, decision=decide_limit(over, len(timed.samples) + timed.unserved, self._load.tail_percentile)
        )

    def _search(self, prepared: Any, lanes: int) -> None:
        """Halve the rates between none and what the lanes can do in a closed loop."""
        capacity = self._closed(prepared, lanes)
        self.steps.append(replace(capacity, decision=None))
        low, high = 0.0, capacity.runs_per_s
        for _ in range(SEARCH_STEPS):
            step = self._open(lanes, (low + high) / 2)
            self.steps.append(step)
            if step.decision == "PASS":
                low = step.offered_per_s or 0.0
            else:
                high = step.offered_per_s or 0.0
            if high - low <= RATE_TOLERANCE * high:
                return

    def _closed(self, prepared: Any, lanes: int) -> LoadStep:
        how, world = self._how, self._world
        if lanes == 1:
            stretch = run_sequentially(self._query(self._session.infer), prepared, how, world.clock)
            return self._decided(LoadStep(**vars(stretch), concurrency=lanes))
        taken = itertools.count()
        enough, limit = how.min_s * 1e9, how.max_s * 1e9

        def due(start: int) -> Iterator[int]:
            while (now := world.clock()) < start + limit and (next(taken) < how.min_n or now < start + enough):
                yield now

        return self._decided(self._together(lanes, due))

    def _open(self, lanes: int, rate: float) -> LoadStep:
        """Run that arrive at a rate. What has not begun some time after the last arrival is left out: unserved."""
        world, offsets = self._world, arrival_times(rate, self._how)
        patience = max(round(self._how.min_s * 1e9), self._limit_ns)
        taken = itertools.count()

        def due(start: int) -> Iterator[int]:
            while (i := next(taken)) < len(offsets) and world.clock() <= start + offsets[-1] + patience:
                yield start + offsets[i]

        step = self._together(lanes, due)
        timed = replace(step.timed, unserved=len(offsets) - len(step.timed.samples))
        return self._decided(replace(step, timed=timed, offered_per_s=rate))

    def _together(self, count: int, due: Callable[[int], Iterator[int]]) -> LoadStep:
        """Lanes that run at once. due: from the start, when each run of a lane is, for each lane."""
        started: list[tuple[int, LoadMeter]] = []
        kept = [(array("q"), array("q")) for _ in range(count)]

        def lane(session: Session, dues: array[int], ends: array[int], meet: WaitForStart) -> None:
            prepared, infer = session.prepare(self._feeds), session.infer
            clock, wait = self._world.clock, self._world.wait
            try:
                for _ in range(WARM_UP_RUNS):
                    infer(prepared)
                meet()
                for at in due(started[0][0]):
                    wait(at)
                    outputs = infer(prepared)
                    ends.append(clock())
                    dues.append(at)
                    del outputs
            finally:
                session.close()

        pairs = zip(self._session.concurrent_sessions(count), kept, strict=True)
        lanes = [_bound(lane, session, *arrays) for session, arrays in pairs]
        self._world.run_concurrently(lanes, lambda: started.append((self._world.clock(), LoadMeter())))
        dues, ends = (np.concatenate([np.frombuffer(pair[i], np.int64) for pair in kept]) for i in (0, 1))
        order = np.argsort(dues, kind="stable")
        start, meter = started[0]
        timed = TimedRuns((ends - dues)[order], int(ends.max()) - start)
        return LoadStep(**vars(finish_loop(timed, meter)), concurrency=count)

    def _query(self, infer: Infer) -> Infer:
        """A query as one run: of MultiStream, runs one after another until all its samples are done."""
        if self._runs == 1:
            return infer

        def query(prepared: Any) -> Any:
            for _ in range(self._runs - 1):
                infer(prepared)
            return infer(prepared)

        return query


def _bound(lane: Callable[..., None], session: Session, dues: array[int], ends: array[int]) -> StreamLoop:
    return lambda meet: lane(session, dues, ends, meet)


def best_step(steps: Sequence[LoadStep]) -> LoadStep:
    """The step that stands for a point: the largest rate that passes, else the least tried; most runs a second."""
    passed = [step for step in steps if step.decision == "PASS"]
    judged = [step for step in steps if step.decision]
    if judged and not passed:
        return min(judged, key=lambda step: step.runs_per_s)
    return max(passed or steps, key=lambda step: step.runs_per_s)


def arrival_times(rate: float, how: Measure) -> list[int]:
    """Times of arrival in ns since the start, until min_s and min_n are reached, to max_s; the same each time."""
    most = min(MAX_ARRIVALS, math.ceil(rate * how.min_s + 10 * math.sqrt(rate * how.min_s)) + how.min_n)
    times = np.cumsum(np.random.default_rng(RANDOM_SEED).exponential(1e9 / rate, most))
    n = min(most, max(int(np.searchsorted(times, how.min_s * 1e9)), how.min_n))
    return times[: max(1, min(n, int(np.searchsorted(times, how.max_s * 1e9))))].astype(np.int64).tolist()


def decide_limit(over: int, n: int, percentile: float) -> Decision:
    """Whether at least `percentile` of all runs keep a limit that `over` of n did not, with 99 % confidence.

    By the binomial distribution: PASS where so few would be over by chance if the share were just missed, FAIL where
    so many would be if it were just kept. Source: docs/remote.md#load.
    """
    share = 1 - percentile / 100
    if binomial_cdf(over, n, share) <= 1 - CONFIDENCE:
        return "PASS"
    return "FAIL" if over and 1 - binomial_cdf(over - 1, n, share) <= 1 - CONFIDENCE else "INCONCLUSIVE"


def max_over_limit(n: int, percentile: float) -> int | None:
    """The most of n runs that may be over a limit which passes all the same; None: n is too small for any."""
    low, high = -1, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if decide_limit(middle, n, percentile) == "PASS" else (low, middle)
    return low if low >= 0 else None


def binomial_cdf(k: int, n: int, share: float) -> float:
    """P(X <= k) of the binomial distribution, summed from its largest term on."""
    if k >= n:
        return 1.0
    upper = k > n * share  # the shorter sum is that of the smaller terms
    i, total = (k + 1, 0.0) if upper else (k, 0.0)
    term = math.exp(
        math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1)
        + i * math.log(share) + (n - i) * math.log1p(-share)
    )  # fmt: skip
    while 0 <= i <= n and term > total * 1e-17:
        total += term
        term *= (n - i) / (i + 1) * share / (1 - share) if upper else i / (n - i + 1) * (1 - share) / share
        i += 1 if upper else -1
    return 1 - total if upper else total
