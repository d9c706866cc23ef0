"""The files that processes of a run leave that listen, made by hand."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from visualprof.capture.live import Ack, Heartbeat, Request

HEAD = {"visualprof_steps": 1, "step": 0, "t_ns": 1_790_000_000 * 10**9}


def heartbeat(run: Path, rank: int, ago_s: float = 0.0, **facts: Any) -> Heartbeat:
    """Rank `rank` of two on host node7, in its step 1234, heard of so many seconds ago."""
    now_ns = time.time_ns() - round(ago_s * 1e9)
    beat = Heartbeat(
        f"rank{rank}_node7_{40 + rank}",
        rank,
        2,
        "node7",
        40 + rank,
        "",
        None,
        "torch",
        ["memory", "shapes"],
        "",
        1234,
        48_000_000,
        47_000_000,
        now_ns,
        True,
        "listening",
        now_ns,
        1,
    )
    beat = dataclasses.replace(beat, **facts)
    _write(run, f"{beat.worker}.json", dataclasses.asdict(beat))
    return beat


def acknowledge(run: Path, asked: str, rank: int, state: str, **facts: Any) -> None:
    """Return the answer of that rank to a request."""
    _write(run, f"ack.rank{rank}_node7_{40 + rank}.json", dataclasses.asdict(Ack(asked, state, 1300, **facts)))


def request(run: Path) -> Request:
    """Return the last request."""
    return Request(**json.loads((run / ".live" / "request.json").read_text()))


def series(run: Path, rank: int, numbers: list[int], first: int = 0) -> Path:
    """Times of that rank's steps."""
    run.mkdir(parents=True, exist_ok=True)
    path = run / f"rank{rank}_node7_{40 + rank}.steps.bin"
    head = json.dumps(HEAD | {"step": first}).encode() + b"\n"
    path.write_bytes(head + np.array(numbers, "<i8").tobytes())
    return path


def _write(run: Path, name: str, content: dict[str, Any]) -> None:
    (run / ".live").mkdir(parents=True, exist_ok=True)
    part = run / ".live" / f".{name}.part"
    part.write_text(json.dumps(content))
    part.replace(run / ".live" / name)
