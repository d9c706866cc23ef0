"""The monitor's samples as counters in a profile, so that one timeline shows both.

Profiles are up to gigabytes: a list gets its events before its last bracket, in place; an object is copied once,
with the events at the start of `traceEvents`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from visualprof.remote.agent.files import clear
from visualprof.remote.agent.work.points import samples_of

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
SCANNED_MAX = 256 << 20  # a second or so
_STAMP = re.compile(rb'"ts"\s*:\s*"?(\d+(?:\.\d+)?)')
_EVENTS = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[\s*')


@dataclass(frozen=True)
class Profile:
    """A file and its time. origin_ns: epoch of time 0 of its stamps, which are us. begin_ns, end_ns: of its pass.

    kind: "chrome_list" or "chrome_object". pid: the process that the counters are shown under.
    """

    file: Path
    kind: str
    origin_ns: int
    begin_ns: int
    end_ns: int
    pid: int


def add(profile: Profile, monitor: Path) -> int:
    """Adds the monitor's samples of a profile's time to it; returns how many events that were.

    Raises: ValueError: the file is not what `kind` says; it is left as it was. OSError.
    """
    events = list(_counters(profile, monitor))
    if not events:
        return 0
    name = {"ph": "M", "pid": profile.pid, "tid": 0, "name": "process_name", "args": {"name": NAME}}
    events.insert(0, json.dumps(name).encode())
    {"chrome_list": _append, "chrome_object": _insert}[profile.kind](profile.file, b",\n".join(events))
    return len(events) - 1


def _counters(profile: Profile, monitor: Path) -> Iterator[bytes]:
    first = max(profile.begin_ns, profile.origin_ns + round(_first_stamp(profile.file) * 1000) - MARGIN_NS)
    for sample in samples_of(monitor):
        if max(first, profile.origin_ns) <= sample["t_ns"] <= profile.end_ns + MARGIN_NS:
            yield from _events(sample, (sample["t_ns"] - profile.origin_ns) / 1000, profile.pid)


def _first_stamp(file: Path) -> float:
    """The least time stamp of a file, us; 0 for a file so large that it takes too long to find out."""
    least, rest = float("inf"), b""
    if file.stat().st_size > SCANNED_MAX:
        return 0.0
    with file.open("rb") as opened:
        while block := opened.read(BLOCK):
            window, comma, rest = (rest + block).rpartition(b",")
            least = min([least, *map(float, _STAMP.findall(window))])
            rest = comma + rest
    least = min([least, *map(float, _STAMP.findall(rest))])
    return least if least < float("inf") else 0.0


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
    """Makes a file end with `data`, from `at` on."""
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
