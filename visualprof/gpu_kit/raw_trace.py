"""Times of operators from the events of a file, computed without visualprof's reader and views."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

# Arguments of an event that identify a call, and the columns of the view `calls` with the same texts.
ARGUMENTS = {
    "Input Dims": "input_shapes",
    "Input Strides": "input_strides",
    "Input type": "input_types",
    "Concrete Inputs": "input_values",
}
LAUNCHES, WORK = ("cuda_runtime", "cuda_driver"), ("kernel", "gpu_memcpy", "gpu_memset")


def call_times_ms(
    path: Path, call: dict[str, str], statistic: Callable[[list[float]], float] = median
) -> tuple[float, float]:
    """Return the typical time of equal calls on the host, and of the device work that they launched.

    Args:
        path: A compressed recording of PyTorch.
        call: Name and arguments of the call, as a row of the view `calls` has them.
        statistic: Function of the times of all calls.
    """
    events = _events(path)
    launches: dict[object, list[dict[str, Any]]] = defaultdict(list)
    work_us: dict[int, float] = defaultdict(float)
    calls: list[dict[str, Any]] = []
    for event in events:
        category, arguments = event.get("cat"), event.get("args", {})
        if category in WORK:
            work_us[arguments.get("correlation", 0)] += event["dur"]
        elif category in LAUNCHES:
            launches[event["tid"]].append(event)
        elif category == "cpu_op" and event["name"] == call["name"] and _is_equal(arguments, call):
            calls.append(event)
    host_us = [event["dur"] for event in calls]
    device_us = [
        sum(work_us[launch["args"].get("correlation", 0)] for launch in launches[event["tid"]] if _is_in(launch, event))
        for event in calls
    ]
    return statistic(host_us) / 1e3, statistic(device_us) / 1e3


@lru_cache(maxsize=1)
def _events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a file, which is read once for all its calls."""
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def _is_equal(arguments: dict[str, Any], call: dict[str, str]) -> bool:
    return all(key not in arguments or arguments[key] == json.loads(call[column]) for key, column in ARGUMENTS.items())


def _is_in(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    return outer["ts"] <= inner["ts"] < outer["ts"] + outer["dur"]
