"""Measure a call alone, by the clock and in a profiler.

Uses only the standard library, because this file is part of every script.
"""

import argparse
import contextlib
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from visualprof.messages import msg
from visualprof.remote.operators.comparison import comparison_lines

WARM_UP_S, MIN_CALLS, MAX_CALLS, TIMED_S = 0.2, 10, 1000, 1.0
MAX_PROFILED_CALLS = 200  # about half a second
INDEX = ("ind", "target", "offset")  # parts of the names of arguments that index others


class OperatorRejected(Exception):
    """The operator cannot run here; the message says why."""


class RunnableOperator(Protocol):
    """An operator with its inputs on a device.

    Attributes:
        overload: The full name.
        device_name: Name of the device.
        runtime: Name and version of the framework.
        threads: Number of threads.
        assumed: Values that the profile does not contain.
        max_prepared_calls: Number of calls whose inputs fit into memory.
    """

    overload: str
    device_name: str
    runtime: str
    threads: int
    assumed: list[str]
    max_prepared_calls: int

    def prepare_call(self) -> Callable[[], Any]:
        """Return one call."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has finished."""
        ...

    def check_run(self) -> None:
        """Run the operator once.

        Raises:
            OperatorRejected: It does not run here.
        """
        ...

    def time_calls(self, count: int) -> tuple[list[float], list[float]]:
        """Return times in ns of a number of calls, and of calls that do nothing."""
        ...

    def profile(self, count: int) -> tuple[float | None, float | None]:
        """Return the median ns in the framework's profiler, on the host and on the device; `None` if unknown."""
        ...


def measure_operator(operator: RunnableOperator, repeats: int = 0) -> dict[str, Any]:
    """Return the times of a call in ns: medians and extremes.

    `clock_ns` is the time of an empty call, which `median_ns` includes. `profiled_*_ns` are the times in the
    framework's profiler, as in the recorded run.

    Args:
        operator: The operator.
        repeats: Number of timed calls; 0 for about a second of calls, between 10 and 1000.
    """
    operator.check_run()
    count = repeats or min(max(int(TIMED_S / max(_warm_up(operator), 1e-9)), MIN_CALLS), MAX_CALLS)
    times, clock = operator.time_calls(count)
    host, device = operator.profile(min((count + 1) // 2, MAX_PROFILED_CALLS, operator.max_prepared_calls))
    return {
        "overload": operator.overload,
        "device": operator.device_name,
        "runtime": operator.runtime,
        "threads": operator.threads,
        "repeats": count,
        "median_ns": round(statistics.median(times)),
        "min_ns": round(min(times)),
        "max_ns": round(max(times)),
        "clock_ns": round(statistics.median(clock)),
        "profiled_host_ns": None if host is None else round(host),
        "profiled_device_ns": None if device is None else round(device),
        "assumed": operator.assumed,
    }


def _warm_up(operator: RunnableOperator) -> float:
    """Return the seconds of the fastest of some calls."""
    end, best, count = time.perf_counter() + WARM_UP_S, math.inf, 0
    while count < MIN_CALLS // 2 or time.perf_counter() < end:
        call = operator.prepare_call()
        start = time.perf_counter()
        call()
        operator.synchronize()
        best, count = min(best, time.perf_counter() - start), count + 1
        if best > TIMED_S:
            break
    return best


def time_on_host(prepared: Callable[[], Callable[[], Any]], count: int, wait: Callable[[], None]) -> list[float]:
    """Return times by the host's clock, ns."""
    times = list[float]()
    for _ in range(count):
        call = prepared()
        start = time.perf_counter_ns()
        call()
        wait()
        times.append(time.perf_counter_ns() - start)
    return times


def do_nothing() -> None:
    """Do nothing."""
    return


def median_or_none(times: Sequence[float]) -> float | None:
    """Return the median; `None` without times or if all are 0."""
    return statistics.median(times) if any(times) else None


def check_memory(needed: int, free: int) -> None:
    """Check that inputs fit into the free memory.

    Raises:
        OperatorRejected: They do not fit.
    """
    if needed > free // 3:  # copies while they are created, and outputs, also need memory
        raise OperatorRejected(
            msg(
                "remote.inputs_take_gib_gib",
                f"the inputs take {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free",
            )
        )


def available_bytes() -> int:
    """Return the free memory of the host; if unknown, the largest address."""
    with contextlib.suppress(OSError, StopIteration, ValueError), open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    return sys.maxsize


def first_sentence(error: BaseException) -> str:
    """Return the first sentence of an error."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].partition(". ")[0][:300]


def main(
    operator: Callable[[dict[str, Any], str, int], RunnableOperator],
    device: str,
    call: dict[str, Any],
    recorded: dict[str, Any],
) -> int:
    """Run the script. The last line of the output is the result as JSON.

    Args:
        operator: Creates the operator from a call, a device and a number of threads.
        device: The default device.
        call: The call.
        recorded: Values of the recorded run.
    """
    name = call["operator"]
    parser = argparse.ArgumentParser(description=f"Measure {name} alone.")
    parser.add_argument("--device", default=device, help="device to run on (default: %(default)s)")
    parser.add_argument(
        "--repeats", type=int, default=0, help="number of timed calls (default: about a second of calls)"
    )
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: the framework chooses)")
    options = parser.parse_args()
    try:
        result = measure_operator(operator(call, options.device, max(options.threads, 0)), max(options.repeats, 0))
    except OperatorRejected as refusal:
        print(json.dumps({"operator": name, "error": str(refusal)}), flush=True)
        return 1
    print("\n".join(comparison_lines(result, recorded)))
    print(json.dumps({"operator": name, **result, "recorded": recorded}), flush=True)
    return 0
