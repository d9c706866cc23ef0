"""How long a call takes alone, by the clock and in a profiler; of the standard library, part of every script."""

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

WARM_UP_S, LEAST, MOST, FOR_S = 0.2, 10, 1000, 1.0  # runs before the clock, and with it
PROFILED = 200  # calls at most, in about half a second
INDEX = ("ind", "target", "offset")  # parts of the names of arguments that point into others


class OperatorRejected(Exception):
    """The operator cannot be run here; the message says why."""


class RunnableOperator(Protocol):
    """An operator with its inputs on a device.

    Attributes: overload: the whole name. device_name, runtime, threads: what runs it. assumed: what the profile does
        not say. at_once: calls that fit into memory.
    """

    overload: str
    device_name: str
    runtime: str
    threads: int
    assumed: list[str]
    max_prepared_calls: int

    def prepare_call(self) -> Callable[[], Any]:
        """One call."""
        ...

    def synchronize(self) -> None:
        """Until the device has done everything."""
        ...

    def check_run(self) -> None:
        """Run it once. Raises: Refused: it does not run here."""
        ...

    def time_calls(self, count: int) -> tuple[list[float], list[float]]:
        """Times in ns of so many calls by the clock, and of calls that do nothing."""
        ...

    def profile(self, count: int) -> tuple[float | None, float | None]:
        """Median ns in the framework's profiler: on the host, and of the work on the device; None where it has none."""
        ...


def measure_operator(operator: RunnableOperator, repeats: int = 0) -> dict[str, Any]:
    """What a call takes, in ns: medians and extremes. repeats: 0 as many as take about a second, 10 to 1000.

    clock_ns: what the clock says of a call that does nothing, which is in `median_ns`, too. profiled: of the same call
    under the framework's profiler, as the run was.
    """
    operator.check_run()
    count = repeats or min(max(int(FOR_S / max(_warm_up(operator), 1e-9)), LEAST), MOST)
    times, clock = operator.time_calls(count)
    host, device = operator.profile(min((count + 1) // 2, PROFILED, operator.max_prepared_calls))
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
    """Seconds of the fastest of some calls."""
    end, best, count = time.perf_counter() + WARM_UP_S, math.inf, 0
    while count < LEAST // 2 or time.perf_counter() < end:
        call = operator.prepare_call()
        begin = time.perf_counter()
        call()
        operator.synchronize()
        best, count = min(best, time.perf_counter() - begin), count + 1
        if best > FOR_S:
            break
    return best


def time_on_host(prepared: Callable[[], Callable[[], Any]], count: int, wait: Callable[[], None]) -> list[float]:
    """Times by the host's clock, ns."""
    times = list[float]()
    for _ in range(count):
        call = prepared()
        begin = time.perf_counter_ns()
        call()
        wait()
        times.append(time.perf_counter_ns() - begin)
    return times


def do_nothing() -> None:
    """A call of nothing."""
    return


def median_or_none(times: Sequence[float]) -> float | None:
    """None of none, or where all are 0."""
    return statistics.median(times) if any(times) else None


def check_memory(needed: int, free: int) -> None:
    """Raises: Refused: inputs of so many bytes do not fit into the memory that is free."""
    if needed > free // 3:  # once more while they are made, and for what comes out
        raise OperatorRejected(
            msg(
                "remote.inputs_take_gib_gib",
                f"the inputs take {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free",
            )
        )


def available_bytes() -> int:
    """Memory of the host that is free; where that is unknown, what this process may address."""
    with contextlib.suppress(OSError, StopIteration, ValueError), open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    return sys.maxsize


def first_sentence(error: BaseException) -> str:
    """What an error says first."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].partition(". ")[0][:300]


def main(
    operator: Callable[[dict[str, Any], str, int], RunnableOperator],
    device: str,
    call: dict[str, Any],
    recorded: dict[str, Any],
) -> int:
    """Run the script; the last line is the result as JSON.

    Args: operator: makes it of a call, a device and a number of threads. device: by default.
    """
    name = call["operator"]
    parser = argparse.ArgumentParser(description=f"Measures {name} alone.")
    parser.add_argument("--device", default=device, help="default %(default)s")
    parser.add_argument("--repeats", type=int, default=0, help="timed calls (default: about a second of them)")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU (default: the framework's own choice)")
    chosen = parser.parse_args()
    try:
        result = measure_operator(operator(call, chosen.device, max(chosen.threads, 0)), max(chosen.repeats, 0))
    except OperatorRejected as refusal:
        print(json.dumps({"operator": name, "error": str(refusal)}), flush=True)
        return 1
    print("\n".join(comparison_lines(result, recorded)))
    print(json.dumps({"operator": name, **result, "recorded": recorded}), flush=True)
    return 0
