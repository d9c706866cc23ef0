"""Profiles for the speed measurements that our generator did not make: real ones, repeated until they are large."""

from __future__ import annotations

import functools
import gzip
import json
import re
from decimal import Decimal
from pathlib import Path

from benchmarks.rows import ROOT

SHARED = ROOT / ".recordings" / "traces"
# What differs between the copies of a recording: times, numbers that link events, numbers of steps.
MOVING = re.compile(
    r'("ts"\s*:\s*|"(?:start|end)_time"\s*:\s*"|Profiler?Step#'
    r'|"(?:correlation|External id|Ev Idx|Fwd thread id|Sequence number|id|__id__)"\s*:\s*)'
    r"(-?\d+(?:\.\d+)?)"
)


def repeated(source: Path, out: Path, events: int) -> None:
    """Write a recording again and again, one after the other in time, until it has this many events.

    The text stays as its writer laid it out; only times, links and the numbers of steps move on.
    """
    data = source.read_bytes()
    text = (gzip.decompress(data) if source.suffix == ".gz" else data).decode()
    listed = text.startswith("[")
    start = text.index("[", 0 if listed else text.index('"traceEvents"'))
    rows, end = json.JSONDecoder().raw_decode(text, start)
    timed = [(float(row["ts"]), float(row.get("dur", 0))) for row in rows if row.get("ph") != "M" and "ts" in row]
    span = 1000 + int(max(ts + dur for ts, dur in timed) - min(ts for ts, _ in timed))
    body = text[start + 1 : end - 1].rstrip()
    last = re.search(r",\s*\{\s*\}$", body)  # Paddle's lists end with an empty event
    body, tail = (body[: last.start()], last.group()) if last else (body, "")
    with out.open("w") as file:
        file.write(text[: start + 1])
        for copy in range(-(-events // len(rows))):
            file.write(("," if copy else "") + MOVING.sub(functools.partial(_moved, copy, copy * span), body))
        file.write(tail + text[end - 1 :])


def _moved(copy: int, by_us: int, found: re.Match[str]) -> str:
    key, number = found.groups()
    if key.startswith(('"ts"', '"start_time"', '"end_time"')):
        return f"{key}{Decimal(number) + by_us}"
    if key.endswith("#"):
        return f"{key}{int(number) + 1000 * copy}"
    return f"{key}{int(number) + (copy << 32 if int(number) > 0 else 0)}"
