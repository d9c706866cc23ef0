"""Limits of a load: request rates, concurrent sessions and their steps."""

from __future__ import annotations

from collections.abc import Iterator

from visualprof.messages import msg
from visualprof.remote.protocol import Load
from visualprof.remote.queue.check.request_json import FieldError

MAX_LANES = 256
MAX_RATE = 1e6
MAX_STEPS = 16  # values of concurrency or rates


def load_errors(load: Load, path: str = "measure.load") -> Iterator[FieldError]:
    """Yield errors for a load, including options that a scenario of MLPerf does not have."""
    for name, values, low, high in (
        ("concurrency", load.concurrency, 1, MAX_LANES),
        ("rates", load.rates, 0.001, MAX_RATE),
    ):
        if len(values) > MAX_STEPS:
            yield FieldError(
                f"{path}.{name}",
                msg("queue.values", f"has {len(values)} values"),
                msg("queue.most", f"at most {MAX_STEPS}"),
            )
        for i, value in enumerate(values[:MAX_STEPS]):
            yield from check_range(f"{path}.{name}[{i}]", value, low, high)
            if value in values[:i]:
                yield FieldError(f"{path}.{name}[{i}]", msg("queue.there_twice", f"{value:g} is there twice"))
    if load.percentile:
        yield from check_range(f"{path}.percentile", load.percentile, 50, 99.9)
    yield from check_range(f"{path}.limit_ms", load.limit_ms, 0, 3_600_000)
    if load.mlperf == "Server" and not load.limit_ms:
        yield FieldError(
            f"{path}.limit_ms",
            msg("queue.server_limit_latency", "Server has a limit of its latency"),
            msg("queue.example_p99_50ms", "for example: p99<=50ms"),
        )
    if load.mlperf not in ("", "Server") and load.rates:
        yield FieldError(
            f"{path}.rates",
            msg("queue.no_rate", f"{load.mlperf} has no rate"),
            msg("queue.server_one", "Server has one"),
        )
    if load.mlperf in ("SingleStream", "MultiStream") and load.concurrency not in ([], [1]):
        yield FieldError(
            f"{path}.concurrency",
            msg("queue.one_query_after_another", f"{load.mlperf} has one query after another"),
            msg("queue.leave_out", "leave it out"),
        )
    if load.mlperf == "Offline" and load.limit_ms:
        yield FieldError(
            f"{path}.limit_ms",
            msg("queue.offline_no_limit_latency", "Offline has no limit of its latency"),
            msg("queue.leave_out", "leave it out"),
        )


def check_range(field: str, value: float, low: float, high: float) -> Iterator[FieldError]:
    """Yield an error for a value outside of a range."""
    if not low <= value <= high:  # also a NaN
        shown = f"{value:g}" if isinstance(value, float) else str(value)[:20]
        yield FieldError(field, f"is {shown}", msg("queue.allowed", f"allowed: {low:,} to {high:,}"))
