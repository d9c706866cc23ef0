"""Small recordings of captured graphs, and the traces of their captures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from visualprof.reader.cache import Cache, open_trace
from visualprof.reader.trace import Trace

Event = dict[str, Any]
# What one layer launches: operator, kernel.
LAYER = (("aten::mm", "gemm"), ("attention", "flash"), ("aten::add", "add"))


def span(cat: str, name: str, ts: float, dur: float, **args: object) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def kernel(name: str, ts: float, dur: float, correlation: int, stream: int = 7) -> Event:
    args = {"correlation": correlation, "device": 0, "stream": stream}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": args}


def replay(names: Sequence[str], at: float = 100, correlation: int = 1, batch: int = 0) -> list[Event]:
    """A launch of 5 us and 10 us later its kernels of 4 us, 1 us apart; in a step of so many requests."""
    begin = at + 15
    work = [kernel(name, begin + 5 * i, 4, correlation) for i, name in enumerate(names)]
    label = f"execute_{batch}_context_0(sq0sk0sqsq0sqsk0)_generation_{batch}(sq{batch}sk9sqsq{batch}sqsk9)"
    steps = [span("user_annotation", label, at - 5, 20)] if batch else []
    return [*steps, span("cuda_runtime", "hipGraphLaunch", at, 5, correlation=correlation), *work]


def capture(
    layers: int, batch: int = 0, named: bool = True, at: float = 0, layer: Sequence[Sequence[str]] = LAYER
) -> list[Event]:
    """A capture of a model of such layers: each a module in which operators launch, within Python's `forward`."""
    events = [span("cuda_runtime", "hipStreamBeginCapture", at + 1, 1)]
    now = at + 10.0
    for number in range(layers):
        begin = now
        for operator, ran in layer:
            args: dict[str, object] = {"kernel": ran} if named else {}
            events += [
                span("cpu_op", operator, now + 2, 6, **{"Input Dims": [[batch, number]], "External id": number + 1}),
                span("cuda_runtime", "hipLaunchKernel", now + 4, 1, correlation=int(1000 + now), **args),
            ]
            now += 10
        events.append(span("python_function", f"nn.Module: Layer_{number}", begin, now - begin))
    events += [
        span("python_function", "model.py(7): forward", at + 9, now - at - 8),
        span("cuda_runtime", "hipStreamEndCapture", now + 5, 1),
    ]
    return [span("user_annotation", f"capture_{batch}_FULL", at, now + 10 - at), *events] if batch else events


def names_of(layers: int, layer: Sequence[Sequence[str]] = LAYER) -> list[str]:
    return [ran for _ in range(layers) for _, ran in layer]


def put(path: Path, events: Iterable[Event]) -> Path:
    """Writes a trace of these events."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}))
    return path


def joined(folder: Path, recording: Iterable[Event], captures: Mapping[str, Iterable[Event]]) -> Trace:
    """The trace of a recording with these captures beside it."""
    for name, events in captures.items():
        put(folder / "capture_traces" / name, events)
    return open_trace(put(folder / "run.json", recording), cache=Cache(folder / ".cache"))
