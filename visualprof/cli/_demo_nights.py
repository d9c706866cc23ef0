"""Nightly runs for the demo: two recordings of one script, shifted to one per day, so that the page Trends has data."""

from __future__ import annotations

import datetime
import gzip
import json
from pathlib import Path
from typing import Any

_DAY_NS = 86_400 * 10**9
# From the oldest night on: the recording, and the factor of its durations.
_NIGHTS = (
    ("two-workers", 1.0),
    ("two-workers", 1.012),
    ("two-workers", 0.991),
    ("two-workers", 1.006),
    ("no-workers", 1.0),
    ("no-workers", 0.988),
    ("no-workers", 1.009),
)


def write_nights(loader: Path, folder: Path) -> None:
    """Write one run per night, in which the last nights load data without workers.

    Args:
        loader: Folder with the recordings without and with workers of the data loader.
        folder: The new runs are `NAME-DATE` in this folder.
    """
    traces = {name: _read(loader / f"{name}.pt.trace.json.gz") for name in dict(_NIGHTS)}
    newest_ns = max(_start_ns(trace) for trace in traces.values())
    for night, (name, factor) in enumerate(_NIGHTS):
        trace = traces[name]
        at_ns = newest_ns - (len(_NIGHTS) - 1 - night) * _DAY_NS
        date = datetime.datetime.fromtimestamp(at_ns // 10**9, datetime.timezone.utc).date()
        run = folder / f"loader-{date}"
        run.mkdir(parents=True)
        data = json.dumps(_shift(trace, at_ns, factor), separators=(",", ":")).encode()
        (run / "rank0.pt.trace.json.gz").write_bytes(gzip.compress(data, 1, mtime=0))


def _read(path: Path) -> dict[str, Any]:
    return json.loads(gzip.decompress(path.read_bytes()))


def _first_us(trace: dict[str, Any]) -> float:
    return min(event["ts"] for event in trace["traceEvents"] if event["ph"] == "X")


def _start_ns(trace: dict[str, Any]) -> int:
    return trace["baseTimeNanoseconds"] + int(_first_us(trace) * 1000)


def _shift(trace: dict[str, Any], at_ns: int, factor: float) -> dict[str, Any]:
    """Return a copy of a trace that starts at another time, with all durations multiplied by a factor."""
    first_us = _first_us(trace)
    events = [
        event
        | {"ts": first_us + (event["ts"] - first_us) * factor}
        | ({"dur": event["dur"] * factor} if "dur" in event else {})
        for event in trace["traceEvents"]
        if "ts" in event
    ]
    unchanged = [event for event in trace["traceEvents"] if "ts" not in event]
    base_ns = trace["baseTimeNanoseconds"] + at_ns - _start_ns(trace)
    return trace | {"baseTimeNanoseconds": base_ns, "traceEvents": unchanged + events}
