"""What the monitor knows of a measured point: energy, and whether something held the clocks down."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from visualprof.remote.agent.files import clear, is_plain
from visualprof.remote.agent.work.events import is_object

POINTS_MAX = 64 << 20


def samples_of(path: Path) -> Iterator[dict[str, Any]]:
    """The samples of a monitor's file, in order."""
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        next(file, "")
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


@dataclass(frozen=True)
class GpuHistory:
    """Of the GPU that was measured, in order. power_w, throttled: None where it was not known."""

    t_ns: list[int] = field(default_factory=list[int])
    power_w: list[float | None] = field(default_factory=list["float | None"])
    throttled: list[bool | None] = field(default_factory=list["bool | None"])

    def energy_j(self, start_ns: int, end_ns: int) -> float | None:
        """The power integrated over a span; between two samples it is taken as a line. None: not sampled there."""
        known = [(t, p) for t, p in zip(self.t_ns, self.power_w, strict=True) if p is not None]
        first = bisect_left(known, (start_ns, -1.0))
        last = bisect_right(known, (end_ns, float("inf")))
        inside = known[max(0, first - 1) : last + 1]
        if first == last and (len(inside) < 2 or not inside[0][0] <= start_ns <= end_ns <= inside[1][0]):
            return None
        if inside[0][0] > start_ns:  # no neighbour on this side: the nearest sample stands for it
            inside.insert(0, (start_ns, inside[0][1]))
        if inside[-1][0] < end_ns:
            inside.append((end_ns, inside[-1][1]))
        return sum(_area(a, b, start_ns, end_ns) for a, b in pairwise(inside)) / 1e9

    def was_throttled(self, start_ns: int, end_ns: int) -> bool | None:
        """Whether any sample of a span says so; None: none of them knows."""
        span = slice(bisect_left(self.t_ns, start_ns), bisect_right(self.t_ns, end_ns))
        known = [each for each in self.throttled[span] if each is not None]
        return any(known) if known else None


def _area(a: tuple[int, float], b: tuple[int, float], start: int, end: int) -> float:
    """Watt-nanoseconds between two samples, as far as they lie in the span."""
    left, right = max(a[0], start), min(b[0], end)
    if right <= left:
        return 0.0
    slope = (b[1] - a[1]) / (b[0] - a[0]) if b[0] > a[0] else 0.0
    return (right - left) * (a[1] + slope * ((left + right) / 2 - a[0]))


def history(path: Path) -> GpuHistory:
    """The first GPU of a monitor's file."""
    found = GpuHistory()
    for sample in samples_of(path):
        gpus: Sequence[dict[str, Any]] = sample.get("gpus") or ()
        if gpus:
            reasons = gpus[0].get("throttle")
            found.t_ns.append(sample["t_ns"])
            found.power_w.append(gpus[0].get("power_w"))
            found.throttled.append(None if reasons is None else bool(reasons))
    return found


def complete(points: Path, monitor: Path) -> None:
    """Adds `energy_j_per_sample` and `throttled` to the points of a file, where they are known."""
    known = history(monitor)
    if not known.t_ns or not is_plain(points) or points.stat().st_size > POINTS_MAX:
        return
    part = points.with_name(points.name + ".part")
    clear(part)
    with points.open("rb") as old, part.open("wb") as new:
        new.writelines(_completed(line, known) for line in old)
    part.replace(points)


def _completed(line: bytes, known: GpuHistory) -> bytes:
    try:
        point = json.loads(line)
        start, end, samples = int(point["start_ns"]), int(point["end_ns"]), _samples(point)
    except (ValueError, KeyError, TypeError, RecursionError, ZeroDivisionError):
        return line
    if not is_object(point) or end <= start or samples <= 0:
        return line
    energy = known.energy_j(start, end)
    told = {
        "energy_j_per_sample": None if energy is None else energy / samples,
        "throttled": known.was_throttled(start, end),
    }
    return json.dumps(point | {name: value for name, value in told.items() if value is not None}).encode() + b"\n"


def _samples(point: dict[str, Any]) -> float:
    """How many samples were measured. The swept size need not be that of the batch: the rates say what a run has."""
    return int(point["n"]) * round(float(point["samples_per_s"]) / float(point["qps"]))
