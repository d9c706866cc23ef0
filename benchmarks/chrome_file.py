"""Write a plain Chrome trace: begin and end events, asynchronous spans, arrows, instants and counters."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

NAMES = ("FunctionCall", "ParseHTML", "UpdateLayoutTree", "Layout", "Paint", "RunTask", "MajorGC", "EvaluateScript")
PROCESSES, THREADS, DEPTH = 3, 4, 4


def write(path: Path, count: int) -> None:
    """Write about `count` events: nested pairs, asynchronous spans, arrows, counters, instants."""
    rng = random.Random(56)
    with path.open("w", encoding="utf-8") as file:
        file.write('{"traceEvents":[')
        file.write('{"args":{"name":"CrBrowserMain"},"cat":"__metadata","name":"thread_name","ph":"M","pid":1,"tid":1}')
        for task in range(max(1, count // (2 * DEPTH + 6))):
            place: dict[str, Any] = {
                "cat": "devtools.timeline",
                "pid": task % PROCESSES + 1,
                "tid": task // PROCESSES % THREADS + 1,
            }
            start = 5_000_000_000 + task * 25 + rng.randrange(5)
            frames = [{**place, "name": NAMES[(task + depth) % len(NAMES)]} for depth in range(DEPTH)]
            rows: list[dict[str, Any]] = [
                {
                    **frame,
                    "ph": "B",
                    "ts": start + 10 * depth,
                    "args": {"data": {"frame": f"{task % 97:X}", "depth": depth}},
                }
                for depth, frame in enumerate(frames)
            ]
            rows.append({**place, "name": "requestStart", "ph": "b", "id": hex(task), "ts": start + 31, "args": {}})
            rows.append({**place, "name": "posted", "ph": "s", "id": task, "ts": start + 32})
            rows.append({**place, "name": "heap", "ph": "C", "ts": start + 33, "args": {"used": rng.randrange(9**9)}})
            rows.append({**place, "name": "mark", "ph": "I", "s": "t", "ts": start + 34})
            rows += [{**frame, "ph": "E", "ts": start + 90 - 5 * depth} for depth, frame in enumerate(frames)][::-1]
            rows.append({**place, "name": "posted", "ph": "f", "bp": "e", "id": task, "ts": start + 72})
            rows.append({**place, "name": "requestStart", "ph": "e", "id": hex(task), "ts": start + 95})
            for row in rows:
                file.write("," + json.dumps(row, separators=(",", ":")))
        file.write('],"metadata":{"source":"benchmark"}}')
