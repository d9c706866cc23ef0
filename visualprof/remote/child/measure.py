"""The timed loop around a session, and statistics of its latencies: percentiles, spread, stability.

This module allocates and frees nothing between two clock readings. Python's garbage collector is off from the first
to the last run.
"""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from visualprof.remote.backends import Feeds, Session
from visualprof.remote.child.host import HostLoad, LoadMeter
from visualprof.remote.child.inputs import SweepPoint
from visualprof.remote.protocol import Measure

SAMPLE_BLOCK, MAX_FIRST_BLOCK = 1 << 16, 1 << 20  # samples: growth step of the array, and its largest initial size
MEDIAN_TOLERANCE = 0.10  # two windows agree if their medians differ by at most this share
P99_TOLERANCE = 0.50  # larger, because the p99 of a third rests on few samples
MAX_WARM_UP_WINDOWS = 10
MIN_WINDOW_RUNS = 3
TRANSFER_LOOP_S = 0.5
MIN_TRANSFER_RUNS = 3
# Percentile in tenths of a percent: samples for 99 % confidence when one sample may exceed the percentile.
MIN_SAMPLES = {500: 11, 900: 64, 950: 130, 990: 662, 999: 6636}
PARTS = 3
MAX_SAMPLE_NS = 0xFFFFFFFF  # the largest stored sample, 4.29 s

Infer = Callable[[Any], Any]
Clock = Callable[[], int]
CLOCK: Clock = time.perf_counter_ns


@dataclass(frozen=True)
class TimedRuns:
    """The runs of a loop.

    Attributes:
        samples: (n,) int64 ns, the latency of each run.
        duration_ns: Duration of the whole loop.
        unserved: Runs that arrived but never started.
    """

    samples: Any
    duration_ns: int
    unserved: int = 0


@dataclass(frozen=True)
class MeasuredLoop:
    """A timed loop, and the load of the machine during the loop.

    Attributes:
        timed: The runs.
        load: The load of the machine.
        start_ns: Start of the loop, ns since the epoch.
        end_ns: End of the loop, ns since the epoch.
    """

    timed: TimedRuns
    load: HostLoad
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class PointMeasurement(MeasuredLoop):
    """The measurement of one point.

    Attributes:
        first_ns: Latency of the first run.
        warmup_n: Runs before the timed loop.
        transfers_per_s: Runs per second including the transfer of inputs to the device and of outputs back.
        device_bytes: Peak memory of the device in the timed loop; `None` if unknown.
    """

    first_ns: int
    warmup_n: int
    transfers_per_s: float
    device_bytes: int | None


def measure_point(
    session: Session,
    feeds: Feeds,
    options: Measure,
    clock: Clock = CLOCK,
    loop: Callable[[Any], MeasuredLoop] | None = None,
) -> PointMeasurement:
    """Measure a session at one point: first run, warm-up, the timed loop, and a loop that includes the data transfers.

    Args:
        session: The loaded model.
        feeds: Inputs of the point.
        options: How long and how often to measure.
        clock: The clock in ns.
        loop: The timed loop, called with prepared inputs; `None` for one run after another.
    """
    prepared = session.prepare(feeds)
    infer = session.infer
    with no_garbage_collection():
        start = clock()
        outputs = infer(prepared)
        first_ns = clock() - start
        session.fetch(outputs)
        del outputs
        warmup_n = 1 + warm_up(infer, prepared, options, clock)
        measured_loop = loop(prepared) if loop else run_sequentially(infer, prepared, options, clock)
        device_bytes = session.memory_bytes()
        transfers_per_s = _transfers_per_s(session, feeds, min(TRANSFER_LOOP_S, options.min_s), clock)
    interval = measured_loop.timed, measured_loop.load, measured_loop.start_ns, measured_loop.end_ns
    return PointMeasurement(*interval, first_ns, warmup_n, transfers_per_s, device_bytes)


def run_sequentially(infer: Infer, prepared: Any, options: Measure, clock: Clock) -> MeasuredLoop:
    """Run the timed loop, one run after another."""
    meter = LoadMeter()
    return finish_loop(time_runs(infer, prepared, options.min_s, options.max_s, options.min_n, clock), meter)


def finish_loop(timed: TimedRuns, meter: LoadMeter) -> MeasuredLoop:
    """Return a loop that has just ended, with the load of the machine since the creation of the meter."""
    end_ns, load = time.time_ns(), meter.load()
    return MeasuredLoop(timed, load, end_ns - timed.duration_ns, end_ns)


def warm_up(infer: Infer, prepared: Any, options: Measure, clock: Clock = CLOCK) -> int:
    """Run until the medians of two consecutive windows agree, and return the number of runs.

    A window takes half of `warmup_s` and at least three runs. The warm-up ends after ten windows or `max_s` at the
    latest.
    """
    deadline = clock() + options.max_s * 1e9
    runs, last_median = 0, 0.0
    for window in range(MAX_WARM_UP_WINDOWS):
        timed = time_runs(infer, prepared, options.warmup_s / 2, options.max_s, MIN_WINDOW_RUNS, clock)
        runs += len(timed.samples)
        median = float(np.median(timed.samples))
        if (window and medians_agree(median, last_median)) or clock() > deadline:
            break
        last_median = median
    return runs


def medians_agree(a: float, b: float) -> bool:
    """Whether two medians differ by at most a tenth of the smaller one."""
    return max(a, b) <= (1 + MEDIAN_TOLERANCE) * min(a, b)


def time_runs(infer: Infer, prepared: Any, min_s: float, max_s: float, min_n: int, clock: Clock = CLOCK) -> TimedRuns:
    """Time runs until min_s and min_n are both reached, for at most max_s and at least one run.

    Outputs are released outside of the timed interval.
    """
    samples = array("q", bytes(8 * max(SAMPLE_BLOCK, min(min_n, MAX_FIRST_BLOCK))))
    capacity, n = len(samples), 0
    with no_garbage_collection():
        loop_start = clock()
        min_end, max_end = loop_start + int(min_s * 1e9), loop_start + int(max_s * 1e9)
        while True:
            run_start = clock()
            outputs = infer(prepared)
            run_end = clock()
            samples[n] = run_end - run_start
            n += 1
            if (run_end >= min_end and n >= min_n) or run_end >= max_end:
                break
            del outputs
            if n == capacity:
                samples.frombytes(bytes(8 * SAMPLE_BLOCK))
                capacity += SAMPLE_BLOCK
    return TimedRuns(np.frombuffer(samples, np.int64, n), run_end - loop_start)


@contextmanager
def no_garbage_collection() -> Generator[None]:
    """Switch Python's garbage collector off. Do nothing inside another such block."""
    if not gc.isenabled():
        yield
        return
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def _transfers_per_s(session: Session, feeds: Feeds, min_s: float, clock: Clock) -> float:
    """Return the runs per second when each run transfers its inputs to the device and its outputs back."""

    def run_with_transfers(values: Feeds) -> Any:
        return session.fetch(session.infer(session.prepare(values)))

    timed = time_runs(run_with_transfers, feeds, min_s, max(min_s, 10 * TRANSFER_LOOP_S), MIN_TRANSFER_RUNS, clock)
    return len(timed.samples) * 1e9 / max(1, timed.duration_ns)


def point_row(
    point: SweepPoint, measurement: PointMeasurement, load_ns: int, rss_bytes: int, offset: int
) -> dict[str, Any]:
    """Return a line of `points.jsonl`.

    energy_j_per_sample and throttled stay null: the agent, which monitors the device, fills them in.

    Args:
        point: The point.
        measurement: Its measurement.
        load_ns: Duration of loading the model.
        rss_bytes: Peak resident memory of this process.
        offset: Byte offset of the point's samples in `latencies.bin`.
    """
    samples, duration_ns = measurement.timed.samples, max(1, measurement.timed.duration_ns)
    n = len(samples)
    runs_per_s = n * 1e9 / duration_ns
    return {
        "batch": point.batch,
        "n": n,
        "duration_ns": duration_ns,
        "load_ns": load_ns,
        "first_ns": measurement.first_ns,
        "warmup_n": measurement.warmup_n,
        "qps": runs_per_s,
        "samples_per_s": runs_per_s * point.samples,
        "whole_samples_per_s": measurement.transfers_per_s * point.samples,
        **latency_statistics(samples, measurement.timed.unserved),
        "involuntary_switches": measurement.load.switches,
        "pressure": measurement.load.pressure,
        "host_busy": measurement.load.busy,
        "rss_bytes": rss_bytes,
        "gpu_memory_bytes": measurement.device_bytes,
        "energy_j_per_sample": None,
        "throttled": None,
        "start_ns": measurement.start_ns,
        "end_ns": measurement.end_ns,
        "latencies": [offset, n],
    }


def pack_samples(samples: Any) -> bytes:
    """Return samples as stored in `latencies.bin`: little-endian uint32 ns, saturating."""
    return np.minimum(samples, MAX_SAMPLE_NS).astype("<u4").tobytes()


def latency_statistics(samples: Any, unserved: int = 0) -> dict[str, Any]:
    """Return percentiles, spread, and statistics of the three thirds of a measurement.

    Percentiles are nearest ranks, null with too few samples. Unserved runs count as slower than all others, so a
    percentile that falls on them is null. `stable`: medians and means (thus throughput) of the thirds agree within a
    tenth, and their p99 within a half if n suffices.

    Args:
        samples: (n,) ns in the order of the runs, n >= 1.
        unserved: Runs that never started.
    """
    sorted_samples = np.sort(samples)
    n = len(sorted_samples) + unserved
    percentiles = {
        _key(p): nearest_rank_of_all(sorted_samples, p, n) if n >= min_n else None for p, min_n in MIN_SAMPLES.items()
    }
    thirds = [np.sort(third) for third in np.array_split(samples, PARTS) if len(third)]
    medians, tails = ([nearest_rank(third, p) for third in thirds] for p in (500, 990))
    means = [round(float(third.mean())) for third in thirds]
    medians_and_means_agree = medians_agree(max(medians), min(medians)) and medians_agree(max(means), min(means))
    return {
        "mean_ns": None if unserved else round(float(sorted_samples.mean())),
        "min_ns": int(sorted_samples[0]),
        "max_ns": None if unserved else int(sorted_samples[-1]),
        **percentiles,
        "trusted": [p / 10 if p % 10 else p // 10 for p, min_n in MIN_SAMPLES.items() if n >= min_n],
        "iqr_ns": nearest_rank(sorted_samples, 750) - nearest_rank(sorted_samples, 250),
        "window_p50_ns": medians,
        "window_mean_ns": means,
        "window_p99_ns": tails,
        "stable": len(thirds) == PARTS
        and medians_and_means_agree
        and (n < MIN_SAMPLES[990] or max(tails) <= (1 + P99_TOLERANCE) * min(tails)),
    }


def _key(tenths: int) -> str:
    return f"p{tenths // 10 if tenths % 10 == 0 else tenths}_ns"


def nearest_rank(sorted_samples: Any, tenths: int) -> int:
    """Return the smallest sample for which the given share of samples is not larger.

    Args:
        sorted_samples: Samples in ascending order.
        tenths: The percentile in tenths of a percent.
    """
    return int(sorted_samples[_rank(tenths, len(sorted_samples))])


def nearest_rank_of_all(sorted_samples: Any, tenths: int, n: int) -> int | None:
    """Return the nearest rank of n samples of which only the smallest are given; `None` if it is one of the others.

    Args:
        sorted_samples: Samples in ascending order; the missing ones are larger than all of them.
        tenths: The percentile in tenths of a percent.
        n: Number of all samples.
    """
    rank = _rank(tenths, n)
    return int(sorted_samples[rank]) if rank < len(sorted_samples) else None


def _rank(tenths: int, n: int) -> int:
    return max(0, -(-tenths * n // 1000) - 1)
