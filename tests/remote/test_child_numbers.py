"""Numbers of the child compared with numpy, the binomial distribution, psutil and the kernel."""

from __future__ import annotations

import threading
import time
from math import comb
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visualprof.reader.results.points import PERCENTILES
from visualprof.remote.child.host import LoadMeter, peak_rss_bytes, reset_peak_rss
from visualprof.remote.child.measure import MIN_SAMPLES, latency_statistics
from visualprof.views.measure.reports.verdicts import MIN_SAMPLES as SHOWN

pytestmark = pytest.mark.slow

SAMPLES = st.lists(st.integers(1, 10**11), min_size=1, max_size=800)


@given(SAMPLES)
def test_percentiles_are_numpys_nearest_ranks(given: list[int]) -> None:
    samples = np.array(given, np.int64)
    statistics = latency_statistics(samples)
    for name, percent in PERCENTILES:
        if statistics[name] is not None:
            assert statistics[name] == np.percentile(samples, percent, method="inverted_cdf")
    quarters = np.percentile(samples, [25, 75], method="inverted_cdf")
    assert statistics["iqr_ns"] == quarters[1] - quarters[0]
    assert (statistics["min_ns"], statistics["max_ns"]) == (min(given), max(given))
    assert statistics["mean_ns"] == pytest.approx(sum(given) / len(given), abs=1)


@given(SAMPLES)
def test_thirds_are_numpys_and_stable_when_within_a_tenth(given: list[int]) -> None:
    parts = [part for part in np.array_split(np.array(given, np.int64), 3) if len(part)]
    medians, tails = ([int(np.percentile(part, p, method="inverted_cdf")) for part in parts] for p in (50, 99))
    means = [round(float(part.mean())) for part in parts]
    statistics = latency_statistics(np.array(given, np.int64))
    assert (statistics["window_p50_ns"], statistics["window_mean_ns"], statistics["window_p99_ns"]) == (
        medians,
        means,
        tails,
    )
    rows = all(max(values) <= 1.1 * min(values) for values in (medians, means))
    assert statistics["stable"] is (len(medians) == 3 and rows)  # of these, none has enough for p99


def few_over(n: int, tenths: int) -> float:
    """Return the probability that at most one of n samples exceeds the percentile."""
    over = 1 - tenths / 1000
    return sum(comb(n, k) * over**k * (1 - over) ** (n - k) for k in (0, 1))


@pytest.mark.parametrize(("tenths", "least"), MIN_SAMPLES.items())
def test_the_least_number_of_samples_is_that_of_99_percent_confidence(tenths: int, least: int) -> None:
    assert few_over(least, tenths) <= 0.01 < few_over(least - 1, tenths)
    if tenths != 999:  # which no table shows
        assert SHOWN[tenths // 10] == least


def test_involuntary_switches_equal_those_of_psutil() -> None:
    me = psutil.Process()
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            sum(range(1000))

    spinning = threading.Thread(target=spin)  # switches of every thread count
    spinning.start()
    outer = of_all_threads(me)
    watch = LoadMeter()
    inner = of_all_threads(me)
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        sum(range(1000))
    inner = of_all_threads(me) - inner
    switches = watch.load().switches
    outer = of_all_threads(me) - outer
    stop.set()
    spinning.join()
    assert inner <= switches <= outer


def of_all_threads(process: psutil.Process) -> int:
    """psutil counts the first thread of a process alone; a thread is a process to it, too."""
    return sum(psutil.Process(thread.id).num_ctx_switches().involuntary for thread in process.threads())


def test_the_peak_is_at_least_the_memory_that_psutil_sees() -> None:
    reset_peak_rss()
    me = psutil.Process()
    seen: list[int] = []
    for size in (1, 30, 5):
        block = np.ones(size << 20, np.uint8)
        seen.append(me.memory_info().rss)
        del block
    peak = peak_rss_bytes()
    assert max(seen) <= peak + (2 << 20), "the kernel counts in batches of pages"
    assert peak - max(seen) < 20 << 20


def test_pressure_is_the_increase_of_the_kernel_total() -> None:
    file = Path("/proc/pressure/cpu")
    if not file.exists():
        pytest.skip("needs a kernel that tells its pressure")

    def total_us() -> int:
        some = next(line for line in file.read_text().splitlines() if line.startswith("some "))
        return int(dict(part.split("=") for part in some.split()[1:])["total"])

    outer_us, outer_ns = total_us(), time.monotonic_ns()
    watch = LoadMeter()
    inner_us, inner_ns = total_us(), time.monotonic_ns()
    time.sleep(0.2)
    inner_us, inner_ns = total_us() - inner_us, time.monotonic_ns() - inner_ns
    pressure = watch.load().pressure
    outer_us, outer_ns = total_us() - outer_us, time.monotonic_ns() - outer_ns
    assert pressure is not None
    assert min(1.0, inner_us * 1000 / outer_ns) <= pressure <= outer_us * 1000 / inner_ns
