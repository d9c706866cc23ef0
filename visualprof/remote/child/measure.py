"""The timed loop around a session, and what its samples say: percentiles, spread, stability.

Nothing of ours is allocated or freed between two readings of the clock, and Python's garbage collector is off from
the first run to the last.
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

SAMPLE_BLOCK, MAX_FIRST_BLOCK = 1 << 16, 1 << 20  # samples that the array grows by, and has at most before the first
MEDIAN_TOLERANCE = 0.10  # two windows agree when their medians differ by at most this share
P99_TOLERANCE = 0.50  # p99 of a third is of few samples, so it is given more room
MAX_WARM_UP_WINDOWS = 10
MIN_WINDOW_RUNS = 3
TRANSFER_LOOP_S = 0.5
MIN_TRANSFER_RUNS = 3
# Percentile in tenths of a percent: samples that give 99 % confidence with one sample over it allowed.
MIN_SAMPLES = {500: 11, 900: 64, 950: 130, 990: 662, 999: 6636}
PARTS = 3
MAX_SAMPLE_NS = 0xFFFFFFFF  # ns that a kept sample can tell, 4.29 s

Infer = Callable[[Any], Any]
Clock = Callable[[], int]
CLOCK: Clock = time.perf_counter_ns


@dataclass(frozen=True)
class TimedRuns:
    """Runs of a loop. samples: (n,) int64 ns of each. duration_ns: of the whole loop. unserved: that never began."""

    samples: Any
    duration_ns: int
    unserved: int = 0


@dataclass(frozen=True)
class MeasuredLoop:
    """A timed loop, and the machine meanwhile. start_ns, end_ns: epoch, of the loop alone."""

    timed: TimedRuns
    load: HostLoad
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class PointMeasurement(MeasuredLoop):
    """One point.

    whole_per_s: runs a second with inputs brought in and outputs fetched. device_bytes: peak of the device in the
    timed loop, None unknown.
    """

    first_ns: int
    warmup_n: int
    whole_per_s: float
    device_bytes: int | None


def measure_point(
    session: Session,
    feeds: Feeds,
    how: Measure,
    clock: Clock = CLOCK,
    loop: Callable[[Any], MeasuredLoop] | None = None,
) -> PointMeasurement:
    """Measure a session at one point: first run, warm-up, the timed loop, and a loop that moves data too.

    loop: the timed one, of prepared inputs; None: one run after another.
    """
    prepared = session.prepare(feeds)
    infer = session.infer
    with no_garbage_collection():
        begin = clock()
        outputs = infer(prepared)
        first_ns = clock() - begin
        session.fetch(outputs)
        del outputs
        warmup_n = 1 + warm_up(infer, prepared, how, clock)
        stretch = loop(prepared) if loop else run_sequentially(infer, prepared, how, clock)
        device_bytes = session.memory_bytes()
        whole_per_s = _whole_per_s(session, feeds, min(TRANSFER_LOOP_S, how.min_s), clock)
    place = stretch.timed, stretch.load, stretch.start_ns, stretch.end_ns
    return PointMeasurement(*place, first_ns, warmup_n, whole_per_s, device_bytes)


def run_sequentially(infer: Infer, prepared: Any, how: Measure, clock: Clock) -> MeasuredLoop:
    """The timed loop of one run after another."""
    meter = LoadMeter()
    return finish_loop(time_runs(infer, prepared, how.min_s, how.max_s, how.min_n, clock), meter)


def finish_loop(timed: TimedRuns, meter: LoadMeter) -> MeasuredLoop:
    """A loop that has just ended, and the machine since the meter was made."""
    end_ns, load = time.time_ns(), meter.load()
    return MeasuredLoop(timed, load, end_ns - timed.duration_ns, end_ns)


def warm_up(infer: Infer, prepared: Any, how: Measure, clock: Clock = CLOCK) -> int:
    """Run until the medians of two windows agree; returns the number of runs.

    A window is half of `warmup_s` and at least three runs. It ends after ten windows, or after `max_s`, in any case.
    """
    end = clock() + how.max_s * 1e9
    runs, before = 0, 0.0
    for window in range(MAX_WARM_UP_WINDOWS):
        timed = time_runs(infer, prepared, how.warmup_s / 2, how.max_s, MIN_WINDOW_RUNS, clock)
        runs += len(timed.samples)
        median = float(np.median(timed.samples))
        if (window and medians_agree(median, before)) or clock() > end:
            break
        before = median
    return runs


def medians_agree(a: float, b: float) -> bool:
    """Whether two medians lie within a tenth of the smaller one."""
    return max(a, b) <= (1 + MEDIAN_TOLERANCE) * min(a, b)


def time_runs(infer: Infer, prepared: Any, min_s: float, max_s: float, min_n: int, clock: Clock = CLOCK) -> TimedRuns:
    """Times runs until min_s and min_n are both reached, at most max_s; one run at least.

    Outputs are released outside of the timed stretch.
    """
    samples = array("q", bytes(8 * max(SAMPLE_BLOCK, min(min_n, MAX_FIRST_BLOCK))))
    room, n = len(samples), 0
    with no_garbage_collection():
        start = clock()
        enough, limit = start + int(min_s * 1e9), start + int(max_s * 1e9)
        while True:
            begin = clock()
            outputs = infer(prepared)
            end = clock()
            samples[n] = end - begin
            n += 1
            if (end >= enough and n >= min_n) or end >= limit:
                break
            del outputs
            if n == room:
                samples.frombytes(bytes(8 * SAMPLE_BLOCK))
                room += SAMPLE_BLOCK
    return TimedRuns(np.frombuffer(samples, np.int64, n), end - start)


@contextmanager
def no_garbage_collection() -> Generator[None]:
    """Switches Python's garbage collector off; does nothing inside another such block."""
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


def _whole_per_s(session: Session, feeds: Feeds, least_s: float, clock: Clock) -> float:
    """Run a second when each brings its inputs to the device and its outputs back."""

    def whole(values: Feeds) -> Any:
        return session.fetch(session.infer(session.prepare(values)))

    timed = time_runs(whole, feeds, least_s, max(least_s, 10 * TRANSFER_LOOP_S), MIN_TRANSFER_RUNS, clock)
    return len(timed.samples) * 1e9 / max(1, timed.duration_ns)


def point_row(
    point: SweepPoint, measured: PointMeasurement, load_ns: int, rss_bytes: int, offset: int
) -> dict[str, Any]:
    """A line of `points.jsonl`.

    energy_j_per_sample and throttled stay null: whoever watches the device fills them.

    Args:
        rss_bytes: peak of this process.
        offset: of the point's samples in `latencies.bin`.
    """
    samples, duration_ns = measured.timed.samples, max(1, measured.timed.duration_ns)
    n = len(samples)
    per_s = n * 1e9 / duration_ns
    return {
        "batch": point.batch,
        "n": n,
        "duration_ns": duration_ns,
        "load_ns": load_ns,
        "first_ns": measured.first_ns,
        "warmup_n": measured.warmup_n,
        "qps": per_s,
        "samples_per_s": per_s * point.samples,
        "whole_samples_per_s": measured.whole_per_s * point.samples,
        **latency_statistics(samples, measured.timed.unserved),
        "involuntary_switches": measured.load.switches,
        "pressure": measured.load.pressure,
        "host_busy": measured.load.busy,
        "rss_bytes": rss_bytes,
        "gpu_memory_bytes": measured.device_bytes,
        "energy_j_per_sample": None,
        "throttled": None,
        "start_ns": measured.start_ns,
        "end_ns": measured.end_ns,
        "latencies": [offset, n],
    }


def pack_samples(samples: Any) -> bytes:
    """Samples as they stand in `latencies.bin`: little-endian uint32 ns, saturating."""
    return np.minimum(samples, MAX_SAMPLE_NS).astype("<u4").tobytes()


def latency_statistics(samples: Any, unserved: int = 0) -> dict[str, Any]:
    """Percentiles (nearest rank; null where there are too few samples), spread, and how the three thirds differ.

    Runs that were never served took longer than all others: what falls among them is null.

    stable: their medians and means (so the throughput) agree within a tenth, their p99 within a half where n suffices.

    Args: samples: (n,) ns in the order of the runs, n >= 1.
    """
    ordered = np.sort(samples)
    n = len(ordered) + unserved
    shown = {_key(p): nearest_rank_of_all(ordered, p, n) if n >= least else None for p, least in MIN_SAMPLES.items()}
    thirds = [np.sort(part) for part in np.array_split(samples, PARTS) if len(part)]
    medians, tails = ([nearest_rank(part, p) for part in thirds] for p in (500, 990))
    means = [round(float(part.mean())) for part in thirds]
    steady = medians_agree(max(medians), min(medians)) and medians_agree(max(means), min(means))
    return {
        "mean_ns": None if unserved else round(float(ordered.mean())),
        "min_ns": int(ordered[0]),
        "max_ns": None if unserved else int(ordered[-1]),
        **shown,
        "trusted": [p / 10 if p % 10 else p // 10 for p, least in MIN_SAMPLES.items() if n >= least],
        "iqr_ns": nearest_rank(ordered, 750) - nearest_rank(ordered, 250),
        "window_p50_ns": medians,
        "window_mean_ns": means,
        "window_p99_ns": tails,
        "stable": len(thirds) == PARTS
        and steady
        and (n < MIN_SAMPLES[990] or max(tails) <= (1 + P99_TOLERANCE) * min(tails)),
    }


def _key(tenths: int) -> str:
    return f"p{tenths // 10 if tenths % 10 == 0 else tenths}_ns"


def nearest_rank(ordered: Any, tenths: int) -> int:
    """The smallest sample that has this share of samples at or below it. tenths: of a percent."""
    return int(ordered[_rank(tenths, len(ordered))])


def nearest_rank_of_all(ordered: Any, tenths: int, n: int) -> int | None:
    """The same of n samples, of which those that are missing are larger than all others: None where it is of these."""
    place = _rank(tenths, n)
    return int(ordered[place]) if place < len(ordered) else None


def _rank(tenths: int, n: int) -> int:
    return max(0, -(-tenths * n // 1000) - 1)
