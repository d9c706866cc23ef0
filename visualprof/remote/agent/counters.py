"""The monitor's samples as counters in a profile, so that one timeline shows both.

Profiles are up to gigabytes: a list gets its events before its last bracket, in place; an object is copied once,
with the events at the start of `traceEvents`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from visualprof.remote.agent.files import clear
from visualprof.remote.agent.points import samples_of

# (key, name, factor), the names that the reader of monitor.jsonl gives them.
HOST = (
    ("cpu", "CPU %", 100.0),
    ("child_cpu", "child CPU %", 100.0),
    ("pressure", "CPU pressure %", 100.0),
    ("rss_bytes", "RSS bytes", 1.0),
)
ON_GPU = (
    ("util", "utilization %", 100.0),
    ("mem_util", "mem utilization %", 100.0),
    ("sm_mhz", "SM clock MHz", 1.0),
    ("mem_mhz", "mem clock MHz", 1.0),
    ("memory_bytes", "memory bytes", 1.0),
    ("power_w", "power W", 1.0),
    ("temperature_c", "temperature C", 1.0),
)
NAME = "monitor"
MARGIN_NS = 100_000_000
TAIL = 4096
BLOCK = 1 << 20
OVERLAP = 64
_EVENTS = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[\s*')


def add(file: Path, kind: str, start_ns: int, end_ns: int, monitor: Path, pid: int) -> int:
    """Adds the samples of a span to a profile; returns how many events that were.

    Args:
        file: the profile, its time stamps in us since start_ns.
        kind: "chrome_list" or "chrome_object".
        start_ns, end_ns: epoch, when it began and ended.
        monitor: monitor.jsonl.
        pid: the process that the counters are shown under.
    Raises: ValueError: the file is not what `kind` says; it is left as it was. OSError.
    """
    events = list(_counters(monitor, start_ns, end_ns, pid))
    if not events:
        return 0
    events.insert(
        0, json.dumps({"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": NAME}}).encode()
    )
    {"chrome_list": _append, "chrome_object": _insert}[kind](file, b",\n".join(events))
    return len(events) - 1


def _counters(monitor: Path, start_ns: int, end_ns: int, pid: int) -> Iterator[bytes]:
    for sample in samples_of(monitor):
        if start_ns - MARGIN_NS <= sample["t_ns"] <= end_ns + MARGIN_NS:
            ts = (sample["t_ns"] - start_ns) / 1000
            if ts >= 0:  # readers take the least time stamp for the beginning
                yield from _events(sample, ts, pid)


def _events(sample: dict[str, Any], ts: float, pid: int) -> Iterator[bytes]:
    values = [(name, sample.get(key), factor) for key, name, factor in HOST]
    for i, gpu in enumerate(sample.get("gpus") or ()):
        values += [(f"GPU{i} {name}", gpu.get(key), factor) for key, name, factor in ON_GPU]
    for name, value, factor in values:
        if value is not None:
            args = {"value": round(value * factor, 3)}
            yield json.dumps({"ph": "C", "pid": pid, "tid": 0, "ts": ts, "name": name, "args": args}).encode()


def _append(file: Path, events: bytes) -> None:
    with file.open("r+b") as out:
        size = out.seek(0, 2)
        at = out.seek(max(0, size - TAIL))
        tail = out.read()
        body = tail.rstrip()
        if not body.endswith(b"]"):
            raise ValueError(f"{file.name} does not end as a list; is it complete?")
        body = body[:-1].rstrip()
        comma = b"" if body.endswith((b"[", b",")) else b","
        try:
            overwrite(out, at + len(body), comma + b"\n" + events + b"\n]\n")
        except OSError:
            overwrite(out, at, tail)  # fits: it was there before
            raise


def overwrite(out: BinaryIO, at: int, data: bytes) -> None:
    out.seek(at)
    out.truncate()
    out.write(data)
    out.flush()


def _insert(file: Path, events: bytes) -> None:
    part = file.with_name(file.name + ".part")
    clear(part)
    try:
        with file.open("rb") as old, part.open("wb") as new:
            at = _start_of_events(old)
            if at < 0:
                raise ValueError(f"{file.name} has no traceEvents")
            old.seek(at)
            empty = old.read(1) == b"]"
            old.seek(0)
            _copy(old, new, at)
            new.write(events + (b"" if empty else b",\n"))
            shutil.copyfileobj(old, new, BLOCK)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _start_of_events(file: BinaryIO) -> int:
    """Where the first event of `traceEvents` begins, -1 when there is none."""
    base, rest = 0, b""
    while block := file.read(BLOCK):
        window = rest + block
        if found := _EVENTS.search(window):
            if found.end() == len(window) and (more := file.read(OVERLAP)):  # the space after [ may go on
                found = _EVENTS.search(window + more) or found
            return base + found.end()
        rest = window[-OVERLAP:]
        base += len(window) - len(rest)
    return -1


def _copy(old: BinaryIO, new: BinaryIO, size: int) -> None:
    while size and (block := old.read(min(BLOCK, size))):
        new.write(block)
        size -= len(block)
