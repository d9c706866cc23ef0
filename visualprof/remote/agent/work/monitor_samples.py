"""Merges the monitor's samples into the child's files: energy and throttling into points, counters into profiles.

Profiles can have gigabytes. A list gets its events in place, before its last bracket.
An object is copied once, with the events at the start of `traceEvents`.
"""

from __future__ import annotations

import json
import re
import shutil
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO

from visualprof.messages import msg
from visualprof.remote.agent.child_files import is_regular, remove_path
from visualprof.remote.agent.work.child_events import is_object

MAX_POINTS_BYTES = 64 << 20
# (key, name, factor), with the names that the reader of monitor.jsonl uses.
HOST_COUNTERS = (
    ("cpu", "CPU %", 100.0),
    ("child_cpu", "child CPU %", 100.0),
    ("pressure", "CPU pressure %", 100.0),
    ("cpu_power_w", "CPU power W", 1.0),
    ("rss_bytes", "RSS bytes", 1.0),
)
GPU_COUNTERS = (
    ("util", "utilization %", 100.0),
    ("mem_util", "mem utilization %", 100.0),
    ("sm_mhz", "SM clock MHz", 1.0),
    ("mem_mhz", "mem clock MHz", 1.0),
    ("memory_bytes", "memory bytes", 1.0),
    ("power_w", "power W", 1.0),
    ("temperature_c", "temperature C", 1.0),
)
COUNTER_TRACK = "monitor"
MARGIN_NS = 100_000_000
TAIL_BYTES = 4096
COPY_BLOCK_BYTES = 1 << 20
MAX_SCANNED_BYTES = 256 << 20  # takes about a second
_TIMESTAMP = re.compile(rb'"ts"\s*:\s*"?(\d+(?:\.\d+)?)')
_EVENTS = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[\s*')


def read_samples(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the samples of a monitor's file, in order."""
    if path.exists():
        with path.open(encoding="utf-8") as file:
            next(file, "")
            yield from (json.loads(line) for line in file if line.endswith("\n"))


def read_header(path: Path) -> dict[str, Any]:
    """Return the first line of a monitor's file; empty if it is missing."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8") as file:
        line = next(file, "")
    return json.loads(line) if line.endswith("\n") else {}


@dataclass(frozen=True)
class DeviceHistory:
    """Samples of the measured GPU, or of the processors without a GPU, in order of time; `None` where unknown.

    Attributes:
        t_ns: Time of each sample, in ns since the epoch.
        power_w: Power of each sample.
        throttled: Whether the device was throttled.
    """

    t_ns: list[int] = field(default_factory=list[int])
    power_w: list[float | None] = field(default_factory=list["float | None"])
    throttled: list[bool | None] = field(default_factory=list["bool | None"])

    def energy_j(self, start_ns: int, end_ns: int) -> float | None:
        """Return the power integrated over an interval, linear between samples; `None` without samples."""
        samples = [(t, p) for t, p in zip(self.t_ns, self.power_w, strict=True) if p is not None]
        first, last = bisect_left(samples, (start_ns, -1.0)), bisect_right(samples, (end_ns, float("inf")))
        if first == last and not 0 < first < len(samples):
            return None
        corners = [(start_ns, _power_at(samples, start_ns)), *samples[first:last], (end_ns, _power_at(samples, end_ns))]
        return sum((b - a) * (p + q) / 2 for (a, p), (b, q) in pairwise(corners)) / 1e9

    def was_throttled(self, start_ns: int, end_ns: int) -> bool | None:
        """Return whether any sample of an interval was throttled; `None` if that is unknown."""
        span = slice(bisect_left(self.t_ns, start_ns), bisect_right(self.t_ns, end_ns))
        readings = [throttled for throttled in self.throttled[span] if throttled is not None]
        return any(readings) if readings else None


def _power_at(samples: list[tuple[int, float]], t_ns: int) -> float:
    """Return the power at a time: interpolated between two samples; outside of them that of the nearest."""
    i = bisect_left(samples, (t_ns, -1.0))
    (a, p), (b, q) = samples[max(0, i - 1)], samples[min(i, len(samples) - 1)]
    return p + (q - p) * (t_ns - a) / (b - a) if b > a else p


def read_history(path: Path) -> DeviceHistory:
    """Return the samples of the first GPU in a monitor's file, or of the processors without a GPU."""
    device = DeviceHistory()
    for sample in read_samples(path):
        gpus: list[dict[str, Any]] = sample.get("gpus") or []
        power_w = gpus[0].get("power_w") if gpus else sample.get("cpu_power_w")
        if gpus or power_w is not None:
            reasons = gpus[0].get("throttle") if gpus else None
            device.t_ns.append(sample["t_ns"])
            device.power_w.append(power_w)
            device.throttled.append(None if reasons is None else bool(reasons))
    return device


def complete_points(points: Path, monitor: Path) -> None:
    """Add `energy_j_per_sample` and `throttled` to the points of a file, where they are known."""
    device = read_history(monitor)
    if not device.t_ns or not is_regular(points) or points.stat().st_size > MAX_POINTS_BYTES:
        return
    part = points.with_name(points.name + ".part")
    remove_path(part)
    with points.open("rb") as old, part.open("wb") as new:
        new.writelines(_complete_point(line, device) for line in old)
    part.replace(points)


def _complete_point(line: bytes, device: DeviceHistory) -> bytes:
    try:
        point = json.loads(line)
        start, end = int(point["start_ns"]), int(point["end_ns"])
        # The swept size may differ from the batch size, so the rates determine the samples per run.
        samples = int(point["n"]) * round(float(point["samples_per_s"]) / float(point["qps"]))
    except (ValueError, KeyError, TypeError, RecursionError, ZeroDivisionError):
        return line
    if not is_object(point) or end <= start or samples <= 0:
        return line
    if (energy_j := device.energy_j(start, end)) is not None:
        point["energy_j_per_sample"] = energy_j / samples
    if (throttled := device.was_throttled(start, end)) is not None:
        point["throttled"] = throttled
    return json.dumps(point).encode() + b"\n"


@dataclass(frozen=True)
class ProfileTrace:
    """A profile and its time base.

    Attributes:
        file: The profile.
        kind: "chrome_list" or "chrome_object".
        origin_ns: Time 0 of its timestamps (µs), in ns since the epoch.
        begin_ns: Start of its pass.
        end_ns: End of its pass.
        pid: Process under which the counters are shown.
    """

    file: Path
    kind: str
    origin_ns: int
    begin_ns: int
    end_ns: int
    pid: int


def add_counters(profile: ProfileTrace, monitor: Path) -> int:
    """Add the monitor's samples of a profile's time to the profile; return the number of added events.

    Raises:
        ValueError: The file is not of the given kind. It stays unchanged.
        OSError: The file cannot be written.
    """
    events = list(_counters(profile, monitor))
    if not events:
        return 0
    name = {"ph": "M", "pid": profile.pid, "tid": 0, "name": "process_name", "args": {"name": COUNTER_TRACK}}
    events.insert(0, json.dumps(name).encode())
    {"chrome_list": _append_events, "chrome_object": _insert_events}[profile.kind](profile.file, b",\n".join(events))
    return len(events) - 1


def _counters(profile: ProfileTrace, monitor: Path) -> Iterator[bytes]:
    first = max(profile.begin_ns, profile.origin_ns + round(_first_timestamp_us(profile.file) * 1000) - MARGIN_NS)
    for sample in read_samples(monitor):
        if max(first, profile.origin_ns) <= sample["t_ns"] <= profile.end_ns + MARGIN_NS:
            yield from _events(sample, (sample["t_ns"] - profile.origin_ns) / 1000, profile.pid)


def _first_timestamp_us(file: Path) -> float:
    """Return the earliest timestamp of a file, in µs; 0 for a file that is too large to scan."""
    if not 0 < file.stat().st_size <= MAX_SCANNED_BYTES:
        return 0.0
    with file.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
        return min((float(match[1]) for match in _TIMESTAMP.finditer(content)), default=0.0)


def _events(sample: dict[str, Any], ts: float, pid: int) -> Iterator[bytes]:
    values = [(name, sample.get(key), factor) for key, name, factor in HOST_COUNTERS]
    for i, gpu in enumerate(sample.get("gpus") or ()):
        values += [(f"GPU{i} {name}", gpu.get(key), factor) for key, name, factor in GPU_COUNTERS]
    for name, value, factor in values:
        if value is not None:
            args = {"value": round(value * factor, 3)}
            yield json.dumps({"ph": "C", "pid": pid, "tid": 0, "ts": ts, "name": name, "args": args}).encode()


def _append_events(file: Path, events: bytes) -> None:
    with file.open("r+b") as out:
        size = out.seek(0, 2)
        offset = out.seek(max(0, size - TAIL_BYTES))
        tail = out.read()
        body = tail.rstrip()
        if not body.endswith(b"]"):
            raise ValueError(msg("agent.not_end_list_complete", f"{file.name} does not end as a list; is it complete?"))
        body = body[:-1].rstrip()
        comma = b"" if body.endswith((b"[", b",")) else b","
        try:
            replace_tail(out, offset + len(body), comma + b"\n" + events + b"\n]\n")
        except OSError:
            replace_tail(out, offset, tail)  # fits, because it was there before
            raise


def replace_tail(out: BinaryIO, offset: int, data: bytes) -> None:
    """Replace the end of a file, from `offset` on."""
    out.seek(offset)
    out.truncate()
    out.write(data)
    out.flush()


def _insert_events(file: Path, events: bytes) -> None:
    part = file.with_name(file.name + ".part")
    remove_path(part)
    try:
        with file.open("rb") as old, part.open("wb") as new:
            with mmap(old.fileno(), 0, access=ACCESS_READ) as content:
                match = _EVENTS.search(content)
                if not match:
                    raise ValueError(msg("agent.no_traceevents", f"{file.name} has no traceEvents"))
                offset = match.end()
                comma = b"" if content[offset : offset + 1] == b"]" else b",\n"
            _copy_bytes(old, new, offset)
            new.write(events + comma)
            shutil.copyfileobj(old, new, COPY_BLOCK_BYTES)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _copy_bytes(old: BinaryIO, new: BinaryIO, size: int) -> None:
    while size and (block := old.read(min(COPY_BLOCK_BYTES, size))):
        new.write(block)
        size -= len(block)
