"""What the samples of a point say: percentiles, spread, stability."""

from __future__ import annotations

from typing import Any

import numpy as np

from visualprof.remote.child.measure import Measured, agree
from visualprof.remote.child.shapes import Point

# Percentile in tenths of a percent: samples that give 99 % confidence with one sample over it allowed.
ENOUGH = {500: 11, 900: 64, 950: 130, 990: 662, 999: 6636}
THIRDS = 3
LARGEST = 0xFFFFFFFF  # ns that a kept sample can tell, 4.29 s


def describe(point: Point, measured: Measured, load_ns: int, rss_bytes: int, offset: int) -> dict[str, Any]:
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
        **distribution(samples),
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


def kept(samples: Any) -> bytes:
    """Samples as they stand in `latencies.bin`: little-endian uint32 ns, saturating."""
    return np.minimum(samples, LARGEST).astype("<u4").tobytes()


def distribution(samples: Any) -> dict[str, Any]:
    """Percentiles (nearest rank; null where there are too few samples), spread, and the medians of three thirds.

    Args: samples: (n,) ns in the order of the runs, n >= 1.
    """
    ordered = np.sort(samples)
    n = len(ordered)
    shown = {_key(p): nearest_rank(ordered, p) if n >= least else None for p, least in ENOUGH.items()}
    thirds = [nearest_rank(np.sort(part), 500) for part in np.array_split(samples, THIRDS) if len(part)]
    return {
        "mean_ns": round(float(ordered.mean())),
        "min_ns": int(ordered[0]),
        "max_ns": int(ordered[-1]),
        **shown,
        "trusted": [p / 10 if p % 10 else p // 10 for p, least in ENOUGH.items() if n >= least],
        "iqr_ns": nearest_rank(ordered, 750) - nearest_rank(ordered, 250),
        "window_p50_ns": thirds,
        "stable": len(thirds) == THIRDS and agree(max(thirds), min(thirds)),
    }


def _key(tenths: int) -> str:
    return f"p{tenths // 10 if tenths % 10 == 0 else tenths}_ns"


def nearest_rank(ordered: Any, tenths: int) -> int:
    """The smallest sample that has this share of samples at or below it. tenths: of a percent."""
    return int(ordered[max(0, -(-tenths * len(ordered) // 1000) - 1)])
