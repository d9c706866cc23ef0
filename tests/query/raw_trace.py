"""Facts about a Kineto trace, read from its JSON with plain Python: independent of the reader and of the views."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

HOST = ("cpu_op", "cuda_runtime", "cuda_driver", "user_annotation", "python_function")
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver")
Span = tuple[int, int]  # start and end in ns


@dataclass(eq=False)
class RawEvent:
    """An event with a duration.

    Attributes:
        name: Name.
        category: `cat` of the file.
        thread: Process and thread.
        start: Start in ns.
        end: End in ns.
        args: Arguments.
        parent: Event around it on the same thread, for host events.
        children: Number of events directly inside it, for host events.
    """

    name: str
    category: str
    thread: tuple[Any, Any]
    start: int
    end: int
    args: dict[str, Any] = field(default_factory=dict[str, Any])
    parent: RawEvent | None = None
    children: int = 0

    @property
    def duration(self) -> int:
        """Return the duration in ns."""
        return self.end - self.start

    def around(self) -> Iterator[RawEvent]:
        """Yield the events around it, the innermost first."""
        event = self.parent
        while event:
            yield event
            event = event.parent


class RawTrace:
    """The events of a file.

    Attributes:
        host: Events of threads, with their parents.
        device: Kernels, copies and fills.
        instants: Memory events: time in ns, thread and arguments.
    """

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        records = json.loads(text, parse_float=Decimal)["traceEvents"]
        events = [_event(record) for record in records if record.get("ph") == "X"]
        self.host = _nested([event for event in events if event.category in HOST])
        self.device = sorted((e for e in events if e.category in DEVICE), key=lambda e: e.start)
        self.instants = [
            (_ns(record["ts"]), (record["pid"], record["tid"]), record["args"])
            for record in records
            if record.get("name") == "[memory]"
        ]
        self._calls = {
            e.args["correlation"]: e for e in self.host if e.category in LAUNCHES and "correlation" in e.args
        }
        self._forward = {
            e.args["Sequence number"]: e
            for e in self.host
            if e.category == "cpu_op" and "Sequence number" in e.args and not e.args.get("Fwd thread id")
        }

    @property
    def kernels(self) -> list[RawEvent]:
        """Return the kernels in the order of time."""
        return [event for event in self.device if event.category == "kernel"]

    def named(self, text: str) -> list[RawEvent]:
        """Return the user annotations whose name contains a text."""
        return [e for e in self.host if e.category == "user_annotation" and text in e.name]

    def call(self, work: RawEvent) -> RawEvent | None:
        """Return the call that launched device work."""
        return self._calls.get(work.args.get("correlation"))

    def surroundings(self, work: RawEvent) -> list[RawEvent]:
        """Return the host events around the launch of device work, the innermost first."""
        call = self.call(work)
        return list(call.around()) if call else []

    def operator(self, work: RawEvent) -> RawEvent | None:
        """Return the innermost operator around the launch."""
        return next((event for event in self.surroundings(work) if event.category == "cpu_op"), None)

    def step(self, ns: int) -> RawEvent | None:
        """Return the step during which something happened on the host."""
        return next((step for step in self.named("ProfilerStep#") if step.start <= ns < step.end), None)

    def forward(self, around: Iterable[RawEvent]) -> RawEvent | None:
        """Return the forward operator of events around backward work, `None` for forward work."""
        for event in around:
            if "Sequence number" in event.args and event.args.get("Fwd thread id"):
                return self._forward.get(event.args["Sequence number"])
        return None

    def modules(self, around: Sequence[RawEvent]) -> tuple[list[str], bool]:
        """Return the modules around events, the outermost first, and whether the events are backward work."""
        forward = None if any(is_module(event) for event in around) else self.forward(around)
        events = [forward, *forward.around()] if forward else around
        return [e.name.removeprefix("nn.Module: ") for e in events if is_module(e)][::-1], forward is not None

    def at(self, ns: int, thread: tuple[Any, Any]) -> list[RawEvent]:
        """Return the events of a thread at a time, the innermost first."""
        inside = [e for e in self.host if e.thread == thread and e.start <= ns < e.end]
        return sorted(inside, key=lambda e: sum(1 for _ in e.around()), reverse=True)


def is_module(event: RawEvent) -> bool:
    """Return whether an event is a call of a module."""
    return event.name.startswith("nn.Module: ")


def union(spans: Iterable[Span]) -> int:
    """Return the time that spans cover, counted one span after the other."""
    total, end = 0, -(10**30)
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total


def percentile(values: Sequence[int], share: float) -> float:
    """Return a percentile with linear interpolation."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _ns(microseconds: Decimal | int) -> int:
    return int((Decimal(microseconds) * 1000).to_integral_value())


def _event(record: dict[str, Any]) -> RawEvent:
    start = _ns(record["ts"])
    end = start + _ns(record["dur"])
    thread = record["pid"], record["tid"]
    return RawEvent(record["name"], record.get("cat", ""), thread, start, end, record.get("args", {}))


def _nested(events: list[RawEvent]) -> list[RawEvent]:
    """Return events in the order of time, with their parents."""
    ordered = sorted(events, key=lambda e: (e.start, -e.end))
    open_events: dict[tuple[Any, Any], list[RawEvent]] = {}
    for event in ordered:
        stack = open_events.setdefault(event.thread, [])
        while stack and stack[-1].end <= event.start and stack[-1].duration:
            stack.pop()
        around = stack[-1] if stack else None
        while around and around.end < event.end:  # overlaps without containing it
            around = around.parent
        if around:
            event.parent = around
            around.children += 1
        stack.append(event)
    return ordered
