"""Comparison of two servers, as load generators measured them, by load.

Runs of a report with the same concurrency and request rate are repeats, and are compared by their means.

Source: docs/diff.md#evaluation
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from visualprof.reader.results.benchmark_run import BenchmarkRun
from visualprof.reader.results.report import Report
from visualprof.views.diff.answer import DiffNote
from visualprof.views.measure.reports.significance import SIGNIFICANCE_LEVEL, p_value

RATES = ("achieved_per_s", "output_tokens_per_s", "total_tokens_per_s")
LATENCIES = ("ttft", "tpot", "itl", "request")
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
MAX_INPUT_CHANGE = 0.03

Load = tuple[int | None, float | None]


def compare_loads(base: Report, new: Report) -> Iterator[tuple[Any, ...]]:
    """Yield a row per load and metric that a side has.

    Each row has name, concurrency, requests sent per second, metric, base value, new value, relative change and
    whether the repeats differ significantly.
    """
    then, now = _by_load(base), _by_load(new)
    for load in dict.fromkeys((*then, *now)):
        a, b = (_metrics(side.get(load, [])) for side in (then, now))
        for metric in a:
            before, after = (_mean(values) for values in (a[metric], b[metric]))
            if before is None and after is None:
                continue
            ratio = after / before - 1 if before and after is not None else None
            likely = p_value(a[metric], b[metric])
            yield new.spec, *load, metric, before, after, ratio, None if likely is None else likely < SIGNIFICANCE_LEVEL


def unlike_inputs(base: Report, new: Report) -> DiffNote | None:
    """Return a note if requests of a common load have prompts or answers of another length, otherwise `None`."""
    then, now = _by_load(base), _by_load(new)
    for load in then.keys() & now.keys():
        a, b = (_tokens_per_request(side[load]) for side in (then, now))
        if a and b and any(abs(y - x) > MAX_INPUT_CHANGE * x for x, y in zip(a, b, strict=True)):
            before, after = (f"{prompt:.0f} + {answer:.0f} tokens" for prompt, answer in (a, b))
            return DiffNote("inputs", before, after)
    return None


def _by_load(report: Report) -> dict[Load, list[BenchmarkRun]]:
    loads: dict[Load, list[BenchmarkRun]] = {}
    for run in report.serving:
        loads.setdefault((run.concurrency, run.offered_per_s), []).append(run)
    return loads


def _metrics(runs: Sequence[BenchmarkRun]) -> dict[str, list[float]]:
    """Return the known values of each metric, one per run."""
    latencies = {
        f"{latency}_{statistic}": [getattr(getattr(run, latency), f"{statistic}_ns") for run in runs]
        for latency in LATENCIES
        for statistic in STATISTICS
    }
    values = {rate: [getattr(run, rate) for run in runs] for rate in RATES} | latencies
    return {name: [value for value in of_runs if value is not None] for name, of_runs in values.items()}


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean; a single value stays an integer if it is one."""
    return fmean(values) if len(values) > 1 else next(iter(values), None)


def _tokens_per_request(runs: Sequence[BenchmarkRun]) -> tuple[float, float] | None:
    """Return the mean length of prompts and answers, or `None` if it is unknown."""
    lengths = [
        (run.input_tokens, run.output_tokens, run.n)
        for run in runs
        if run.input_tokens is not None and run.output_tokens is not None and run.n
    ]
    if not lengths:
        return None
    prompts, answers, requests = map(sum, zip(*lengths, strict=True))
    return prompts / requests, answers / requests
