"""Messages of agents about tasks. The API's description imports this module, which needs no database."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from msgspec import Meta

from visualprof.remote.protocol import Phase, Reason, State

MAX_POINT_BYTES = 64 << 10


@dataclass(frozen=True)
class TaskHeartbeat:
    """An agent's heartbeat for a task.

    Attributes:
        task: Id of the task.
        lease: Token of the lease.
        phase: Current phase; None is unchanged.
        progress: Current progress, 0 to 1; None is unchanged.
        warnings: All warnings so far; None is unchanged.
    """

    task: str
    lease: str
    phase: Phase | None = None
    progress: float | None = None
    warnings: list[str] | None = None


@dataclass(frozen=True)
class TaskReport:
    """An agent's report of how a task ended.

    Attributes:
        state: Final state.
        reason: Reason of a failure.
        error: What went wrong.
        hint: What to do about it.
        warnings: Warnings of the result.
        files: Names of the uploaded files.
    """

    state: State
    reason: Reason | None = None
    error: str | None = None
    hint: str | None = None
    warnings: list[str] = field(default_factory=list[str])
    files: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class AnnouncedFile:
    """A file that an agent is about to upload."""

    name: str
    size_bytes: int
    sha256: str


class RepeatHead(msgspec.Struct):
    """The fields of a point's repeat that the server reads."""

    samples_per_s: float | None = None
    p50_ns: int | None = None
    p99_ns: int | None = None


class StepHead(msgspec.Struct):
    """The fields of the load step that represents a point.

    Attributes:
        concurrency: Concurrent lanes.
        offered_per_s: Offered rate.
        tail_ns: Latency at the load's percentile.
    """

    concurrency: int | None = None
    offered_per_s: float | None = None
    tail_ns: int | None = None


class LoadHead(msgspec.Struct):
    """The fields of a point's load that the server reads.

    Attributes:
        scenario: Scenario of the load.
        percentile: Percentile of the limit.
        limit_ns: Latency limit.
        verdict: PASS, FAIL or INCONCLUSIVE; null without a limit.
        step: The step that represents the point.
    """

    scenario: str = ""
    percentile: float | None = None
    limit_ns: int | None = None
    verdict: str | None = None
    step: StepHead = msgspec.field(default_factory=StepHead)


class PointHead(msgspec.Struct):
    """The fields of a point that the server reads; null if unknown, or if there are too few samples."""

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
    """Return the size of a point.

    Raises:
        ValueError: The point is invalid.
        RecursionError: The point is nested too deeply.
    """
    return _HEAD.decode(text).batch
