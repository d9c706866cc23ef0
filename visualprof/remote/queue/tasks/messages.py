"""What agents tell of tasks. It needs no database: the API is described by it before one is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from msgspec import Meta

from visualprof.remote.protocol import Phase, Reason, State

MAX_POINT_BYTES = 64 << 10


@dataclass(frozen=True)
class TaskHeartbeat:
    """What an agent says of a task that it has. phase, progress: as they were where it does not say."""

    task: str
    lease: str
    phase: Phase | None = None
    progress: float | None = None
    warnings: list[str] | None = None


@dataclass(frozen=True)
class TaskReport:
    """How a task ended, by its agent. files: names of those that it uploaded."""

    state: State
    reason: Reason | None = None
    error: str | None = None
    hint: str | None = None
    warnings: list[str] = field(default_factory=list[str])
    files: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class AnnouncedFile:
    """A file that an agent is going to upload."""

    name: str
    size_bytes: int
    sha256: str


class RepeatHead(msgspec.Struct):
    """What the server reads of a repeat of a point."""

    samples_per_s: float | None = None
    p50_ns: int | None = None
    p99_ns: int | None = None


class StepHead(msgspec.Struct):
    """What the server reads of the step that stands for a point. tail_ns: latency at the load's percentile."""

    concurrency: int | None = None
    offered_per_s: float | None = None
    tail_ns: int | None = None


class LoadHead(msgspec.Struct):
    """What the server reads of a point's load. verdict: PASS, FAIL or INCONCLUSIVE, null without a limit."""

    scenario: str = ""
    percentile: float | None = None
    limit_ns: int | None = None
    verdict: str | None = None
    step: StepHead = msgspec.field(default_factory=StepHead)


class PointHead(msgspec.Struct):
    """What the server reads of a point; null where it is not known, or n is too small for it."""

    batch: Annotated[int, Meta(ge=0, lt=1 << 62)]
    qps: float
    p50_ns: int | None
    stable: bool
    samples_per_s: float | None = None
    mean_ns: int | None = None
    p90_ns: int | None = None
    p95_ns: int | None = None
    p99_ns: int | None = None
    host_busy: bool | None = None
    throttled: bool | None = None
    repeats: list[RepeatHead] | None = None
    load: LoadHead | None = None


_HEAD = msgspec.json.Decoder(PointHead)


def parse_batch(text: bytes) -> int:
    """The size of a point.

    Raises: ValueError, RecursionError: it is none.
    """
    return _HEAD.decode(text).batch
