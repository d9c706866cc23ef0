"""Load generators: concurrent streams, runs that arrive at random, and the search for the rate that meets a limit.

A stream takes the next unclaimed run, waits until the run is due and executes it (first come, first served). In a
closed loop, a run is due when its stream is free; in an open loop, when it arrives. Latency counts from the due time,
so a late run also delays the runs behind it (no coordinated omission).
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
RATE_TOLERANCE = 0.05  # the search ends when the passing and the failing rate differ by at most this share
MULTISTREAM_SAMPLES = 8  # samples per query of MLPerf MultiStream
MAX_ARRIVALS = 1 << 20
WARM_UP_RUNS = 3  # runs per stream before the common start
SLEEP_OVERRUN_NS = 100_000  # a sleep may last this much longer, so the rest is busy waiting

WaitForStart = Callable[[], Any]
StreamLoop = Callable[[WaitForStart], None]


class Scheduler(Protocol):
    """A clock, and a way to run streams concurrently. Tests simulate it."""

    def clock(self) -> int:
        """Return the current time, ns."""
        ...

    def wait(self, until_ns: int) -> None:
        """Return at the given time, immediately if it is past."""
        ...

    def run_concurrently(self, streams: Sequence[StreamLoop], on_start: Callable[[], None]) -> None:
        """Run the streams concurrently to their ends.

        Args:
            streams: Each calls its argument once, which returns when all streams have called it.
            on_start: Called once when all streams are ready.
        """
        ...


class ThreadScheduler:
    """The clock of the machine, and one thread per stream."""

    def clock(self) -> int:
        """Return the current time, ns."""
        return time.perf_counter_ns()

    def wait(self, until_ns: int) -> None:
        """Sleep until shortly before the time, then only yield to other threads, because sleeps are not exact."""
        while (remaining_ns := until_ns - time.perf_counter_ns()) > 0:
            time.sleep(max(0, remaining_ns - SLEEP_OVERRUN_NS) / 1e9)

    def run_concurrently(self, streams: Sequence[StreamLoop], on_start: Callable[[], None]) -> None:
        """Run the streams, a single one in this thread. The first error is raised after all have ended."""
        if len(streams) == 1:
            streams[0](on_start)
            return
        barrier, errors = threading.Barrier(len(streams), on_start), list[BaseException]()

        def run_stream(stream_loop: StreamLoop) -> None:
            try:
                stream_loop(barrier.wait)
            except threading.BrokenBarrierError:
                return
            except BaseException as error:  # noqa: BLE001 (raised again below)
                errors.append(error)
                barrier.abort()

        threads = [threading.Thread(target=run_stream, args=(stream_loop,)) for stream_loop in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


@dataclass(frozen=True)
class LoadStep(MeasuredLoop):
    """One loop of a load.

    Attributes:
        concurrency: Number of streams.
        offered_per_s: Arrivals per second; `None` in a closed loop.
        decision: Whether the step meets the latency limit; `None` without a limit.
    """

    concurrency: int
    offered_per_s: float | None = None
    decision: Decision | None = None

    @property
    def runs_per_s(self) -> float:
        """Return the completed runs per second."""
        return len(self.timed.samples) * 1e9 / max(1, self.timed.duration_ns)


class Loader:
    """The load of one point.

    Attributes:
        steps: The steps measured so far, in order.
    """

    def __init__(
        self, session: Session, feeds: Feeds, options: Measure, samples: int, scheduler: Scheduler | None = None
    ) -> None:
        """Prepare the load of a session.

        Args:
            session: The loaded model.
            feeds: Inputs of the point.
            options: How long and how often to measure, and the load.
            samples: Samples per run.
            scheduler: The clock and the threads; those of the machine by default.
        """
        self.steps: list[LoadStep] = []
        self._session, self._feeds, self._options, self._load = session, feeds, options, options.load
        self._scheduler: Scheduler = scheduler or ThreadScheduler()
        self._samples = samples
        self._runs = -(-MULTISTREAM_SAMPLES // samples) if self._load.mlperf == "MultiStream" else 1  # per query

    def run(self, prepared: Any) -> LoadStep:
        """Measure every step and return the one that represents the point.

        Args:
            prepared: Inputs prepared by the session.
        """
        load = self._load
        with no_garbage_collection():
            for streams in load.concurrency or [self._default_streams()]:
                if load.searches_rate:
                    self._search(prepared, streams)
                elif load.rates:
                    self.steps += [self._open(streams, rate) for rate in load.rates]
                else:
                    self.steps.append(self._closed(prepared, streams))
        return best_step(self.steps)

    def load_fields(self) -> dict[str, Any]:
        """Return the fields of a line in `points.jsonl` that describe the load.

        `verdict` says whether any step meets the limit.
        """
        step, load, decisions = best_step(self.steps), self._load, {step.decision for step in self.steps}
        precedence: tuple[Decision, ...] = ("PASS", "INCONCLUSIVE", "FAIL")
        steps = [self._row(step) for step in self.steps] if load != Load() else []
        description = {
            "scenario": load.scenario,
            "percentile": load.tail_percentile,
            "limit_ns": self._limit_ns or None,
            "verdict": next((decision for decision in precedence if decision in decisions), None),
            "step": self._row(step),
            "steps": steps,
        }
        return {"samples_per_s": step.runs_per_s * self._samples * self._runs, "load": description}

    def _row(self, step: LoadStep) -> dict[str, Any]:
        """Return a step as stored.

        `tail_ns` is the latency at the percentile, and `tail_bound_ns` its upper confidence bound.
        """
        n, sorted_samples = len(step.timed.samples) + step.timed.unserved, np.sort(step.timed.samples)
        max_over = max_over_limit(n, self._load.tail_percentile)
        bound = (
            None if max_over is None or n - max_over > len(sorted_samples) else int(sorted_samples[n - 1 - max_over])
        )
        return {
            "concurrency": step.concurrency,
            "offered_per_s": step.offered_per_s,
            "achieved_per_s": step.runs_per_s,
            "n": len(sorted_samples),
            "unserved": step.timed.unserved,
            "p50_ns": nearest_rank_of_all(sorted_samples, 500, n),
            "tail_ns": nearest_rank_of_all(sorted_samples, round(self._load.tail_percentile * 10), n),
            "tail_bound_ns": bound,
            "verdict": step.decision,
        }

    @property
    def _limit_ns(self) -> int:
        return round(self._load.limit_ms * 1e6)

    def _default_streams(self) -> int:
        sequential = self._load.scenario in ("closed", "SingleStream", "MultiStream")
        return 1 if sequential else max(1, self._session.best_concurrency())

    def _with_decision(self, step: LoadStep) -> LoadStep:
        if not self._limit_ns:
            return step
        timed = step.timed
        over = int(np.count_nonzero(timed.samples > self._limit_ns)) + timed.unserved
        return replace(
            step, decision=decide_limit(over, len(timed.samples) + timed.unserved, self._load.tail_percentile)
        )

    def _search(self, prepared: Any, streams: int) -> None:
        """Bisect the rates between 0 and the throughput of a closed loop."""
        capacity = self._closed(prepared, streams)
        self.steps.append(replace(capacity, decision=None))
        low, high = 0.0, capacity.runs_per_s
        for _ in range(SEARCH_STEPS):
            step = self._open(streams, (low + high) / 2)
            self.steps.append(step)
            if step.decision == "PASS":
                low = step.offered_per_s or 0.0
            else:
                high = step.offered_per_s or 0.0
            if high - low <= RATE_TOLERANCE * high:
                return

    def _closed(self, prepared: Any, streams: int) -> LoadStep:
        options, scheduler = self._options, self._scheduler
        if streams == 1:
            measured_loop = run_sequentially(self._query(self._session.infer), prepared, options, scheduler.clock)
            return self._with_decision(LoadStep(**vars(measured_loop), concurrency=streams))
        run_numbers = itertools.count()
        min_ns, max_ns = options.min_s * 1e9, options.max_s * 1e9

        def due(start: int) -> Iterator[int]:
            while (now := scheduler.clock()) < start + max_ns and (
                next(run_numbers) < options.min_n or now < start + min_ns
            ):
                yield now

        return self._with_decision(self._run_streams(streams, due))

    def _open(self, streams: int, rate: float) -> LoadStep:
        """Run an open loop at a rate. Runs that have not started some time after the last arrival count as unserved."""
        scheduler, offsets = self._scheduler, arrival_times(rate, self._options)
        patience_ns = max(round(self._options.min_s * 1e9), self._limit_ns)
        run_numbers = itertools.count()

        def due(start: int) -> Iterator[int]:
            while (i := next(run_numbers)) < len(offsets) and scheduler.clock() <= start + offsets[-1] + patience_ns:
                yield start + offsets[i]

        step = self._run_streams(streams, due)
        timed = replace(step.timed, unserved=len(offsets) - len(step.timed.samples))
        return self._with_decision(replace(step, timed=timed, offered_per_s=rate))

    def _run_streams(self, count: int, due: Callable[[int], Iterator[int]]) -> LoadStep:
        """Run streams concurrently.

        Args:
            count: Number of streams.
            due: Called with the start time once per stream; yields the due time of each run of the stream.
        """
        starts: list[tuple[int, LoadMeter]] = []
        time_pairs = [(array("q"), array("q")) for _ in range(count)]

        def stream_loop(
            session: Session, due_times: array[int], end_times: array[int], wait_for_start: WaitForStart
        ) -> None:
            prepared, infer = session.prepare(self._feeds), session.infer
            clock, wait = self._scheduler.clock, self._scheduler.wait
            try:
                for _ in range(WARM_UP_RUNS):
                    infer(prepared)
                wait_for_start()
                for due_time in due(starts[0][0]):
                    wait(due_time)
                    outputs = infer(prepared)
                    end_times.append(clock())
                    due_times.append(due_time)
                    del outputs
            finally:
                session.close()

        pairs = zip(self._session.concurrent_sessions(count), time_pairs, strict=True)
        streams = [_bind_arguments(stream_loop, session, *arrays) for session, arrays in pairs]
        self._scheduler.run_concurrently(streams, lambda: starts.append((self._scheduler.clock(), LoadMeter())))
        due_times, end_times = (
            np.concatenate([np.frombuffer(pair[i], np.int64) for pair in time_pairs]) for i in (0, 1)
        )
        order = np.argsort(due_times, kind="stable")
        start, meter = starts[0]
        timed = TimedRuns((end_times - due_times)[order], int(end_times.max()) - start)
        return LoadStep(**vars(finish_loop(timed, meter)), concurrency=count)

    def _query(self, infer: Infer) -> Infer:
        """Return a query as one run: for MultiStream, consecutive runs until all samples of the query are done."""
        if self._runs == 1:
            return infer

        def query(prepared: Any) -> Any:
            for _ in range(self._runs - 1):
                infer(prepared)
            return infer(prepared)

        return query


def _bind_arguments(
    stream_loop: Callable[..., None], session: Session, due_times: array[int], end_times: array[int]
) -> StreamLoop:
    return lambda wait_for_start: stream_loop(session, due_times, end_times, wait_for_start)


def best_step(steps: Sequence[LoadStep]) -> LoadStep:
    """Return the step that represents a point.

    That is the step with the most runs per second among the passing steps, or among all steps if there is no limit. If
    all
    steps fail, it is the slowest one.
    """
    passing = [step for step in steps if step.decision == "PASS"]
    decided = [step for step in steps if step.decision]
    if decided and not passing:
        return min(decided, key=lambda step: step.runs_per_s)
    return max(passing or steps, key=lambda step: step.runs_per_s)


def arrival_times(rate: float, options: Measure) -> list[int]:
    """Return arrival times in ns since the start, the same on every call.

    They extend until min_s and min_n are both reached, up to max_s.
    """
    max_arrivals = min(
        MAX_ARRIVALS, math.ceil(rate * options.min_s + 10 * math.sqrt(rate * options.min_s)) + options.min_n
    )
    times = np.cumsum(np.random.default_rng(RANDOM_SEED).exponential(1e9 / rate, max_arrivals))
    n = min(max_arrivals, max(int(np.searchsorted(times, options.min_s * 1e9)), options.min_n))
    return times[: max(1, min(n, int(np.searchsorted(times, options.max_s * 1e9))))].astype(np.int64).tolist()


def decide_limit(over: int, n: int, percentile: float) -> Decision:
    """Decide with 99 % confidence whether at least `percentile` of all runs meet a limit that `over` of n runs exceed.

    By the binomial distribution: PASS if this few exceedances are unlikely for a share that just misses the percentile.
    FAIL if this many are unlikely for a share that just meets the percentile. Source: docs/measuring.md#load.
    """
    share = 1 - percentile / 100
    if binomial_cdf(over, n, share) <= 1 - CONFIDENCE:
        return "PASS"
    return "FAIL" if over and 1 - binomial_cdf(over - 1, n, share) <= 1 - CONFIDENCE else "INCONCLUSIVE"


def max_over_limit(n: int, percentile: float) -> int | None:
    """Return how many of n runs may exceed a limit that still passes; `None` if n is too small."""
    low, high = -1, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if decide_limit(middle, n, percentile) == "PASS" else (low, middle)
    return low if low >= 0 else None


def binomial_cdf(k: int, n: int, share: float) -> float:
    """Return P(X <= k) of the binomial distribution, summed from its largest term."""
    if k >= n:
        return 1.0
    upper = k > n * share  # sum the side with fewer significant terms
    i, total = (k + 1, 0.0) if upper else (k, 0.0)
    term = math.exp(
        math.lgamma(n + 1)
        - math.lgamma(i + 1)
        - math.lgamma(n - i + 1)
        + i * math.log(share)
        + (n - i) * math.log1p(-share)
    )
    while 0 <= i <= n and term > total * 1e-17:
        total += term
        term *= (n - i) / (i + 1) * share / (1 - share) if upper else i / (n - i + 1) * (1 - share) / share
        i += 1 if upper else -1
    return 1 - total if upper else total
