"""Rows of the database as values."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal

import msgspec

from visualprof.remote.protocol import FINAL, Capabilities, Phase, Reason, Request, Spec, State

# Decoders are built once, at import: see `reader.trace.codec`.
REQUEST = msgspec.json.Decoder(Request)
SPEC = msgspec.json.Decoder(Spec)
_decode_capabilities = lru_cache(128)(
    msgspec.json.Decoder(Capabilities).decode
)  # they rarely change and are read often
_WARNINGS = msgspec.json.Decoder(list[str])

AnyRow = Any  # a row of the database; SQLAlchemy 2.0 and 2.1 do not agree on its type


# Data that retention rules remove by age.
RetentionKind = Literal["jobs", "uploads", "notices", "audit"]

# A `drained` agent gets no new tasks. An agent that is `out` is blocked until it is allowed again.
Standing = Literal["works", "drained", "out"]


@dataclass(frozen=True)
class RetentionRule:
    """After how many days data is removed.

    Attributes:
        kind: Kind of data.
        project: The rule applies to jobs shared with this project; "" is all data without another rule.
        days: Number of days; None is never.
    """

    kind: RetentionKind
    project: str
    days: int | None


# Why a task waits:
# - files: its files have not arrived.
# - machine: no online agent can run it.
# - drained, maintenance, reserved: the agents that can run it accept no tasks, or no tasks of its owner.
# - hours, jobs: its owner has used up a quota.
# - turn: other tasks are before it.
WaitReason = Literal["files", "machine", "drained", "maintenance", "reserved", "hours", "jobs", "turn"]


@dataclass(frozen=True)
class Wait:
    """Why a task waits.

    Attributes:
        reason: The reason.
        machine: Name of the agent that accepts no tasks.
        until_ns: Until when that agent is reserved or under maintenance; for a turn, the estimated start, `None` if
            nothing is known about it.
        n: Used amount of a quota, in ns for hours; for a turn, the job's position among its owner's waiting jobs.
        of: Limit of the quota, in ns for hours; for a turn, the number of the owner's waiting jobs.
    """

    reason: WaitReason
    machine: str | None = None
    until_ns: int | None = None
    n: int | None = None
    of: int | None = None


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A registered agent."""

    id: str
    owner: str | None
    name: str
    public: bool
    local: bool
    address: str
    capabilities: Capabilities
    registered_ns: int
    seen_ns: int
    standing: Standing = "works"

    def online(self, lease_s: float) -> bool:
        """Return whether the agent was seen within a lease. The clock may have been set back in the meantime."""
        return abs(time.time_ns() - self.seen_ns) <= lease_s * 1e9


@dataclass(frozen=True)
class Task:
    """One spec of a job, and its state. The fields are columns of `tables.tasks`."""

    id: str
    job: str
    spec: Spec
    state: State
    phase: Phase | None
    progress: float
    attempt: int
    tries: int
    updated_ns: int
    started_ns: int | None
    agent: str | None
    on_device: str | None
    on_version: str | None
    cancel: bool
    reason: Reason | None
    error: str | None
    hint: str | None
    warnings: list[str]
    run: str | None
    log_bytes: int
    log_cut: int

    @property
    def attempt_name(self) -> str:
        """Name of the folder and the log of this attempt."""
        return f"{self.id}-{self.attempt}"


@dataclass(frozen=True)
class Job:
    """A job with its tasks, in the order of the specs."""

    id: str
    owner: str | None
    request: Request
    folder: str
    submitted_ns: int
    revision: int
    kept: bool
    tasks: list[Task]

    def task(self, task_id: str) -> Task:
        """Return the task of an id."""
        return next(task for task in self.tasks if task.id == task_id)

    @property
    def state(self) -> State:
        """State of all tasks: running if any is running, else waiting if any waits, else the worst final state."""
        states = {task.state for task in self.tasks}
        order: tuple[State, ...] = ("running", "waiting", "initiated", "failed", "cancelled")
        for state in order:
            if state in states:
                return state
        return "succeeded"

    @property
    def progress(self) -> float:
        """Mean progress of the tasks; ended tasks count as 1."""
        progress = [1.0 if task.state in FINAL else task.progress for task in self.tasks]
        return sum(progress) / len(progress) if progress else 1.0

    @property
    def updated_ns(self) -> int:
        """Time of the last change of a task."""
        return max((task.updated_ns for task in self.tasks), default=self.submitted_ns)


def agent_from_row(row: AnyRow, ahead_ns: int) -> Agent:
    """Return the agent of a row of `agents`.

    Args:
        row: The row.
        ahead_ns: `Database.clock_offset_ns`, to convert `seen_ns` to this machine's clock.
    """
    seen_ns = row.seen_ns - ahead_ns
    return Agent(
        **_column_values(_AGENT_COLUMNS, row), seen_ns=seen_ns, capabilities=_decode_capabilities(row.capabilities)
    )


def task_from_row(row: AnyRow) -> Task:
    """Return the task of a row of `tasks`."""
    return Task(
        **_column_values(_TASK_COLUMNS, row), spec=SPEC.decode(row.spec), warnings=_WARNINGS.decode(row.warnings)
    )


def job_from_row(row: AnyRow, tasks: Sequence[AnyRow]) -> Job:
    """Return the job of a row of `jobs` and the rows of its tasks."""
    return Job(
        **_column_values(_JOB_COLUMNS, row),
        request=REQUEST.decode(row.request),
        tasks=[task_from_row(task) for task in tasks],
    )


def _column_values(names: Sequence[str], row: AnyRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def _column_names(record_type: type[Any], *decoded: str) -> list[str]:
    """Return the fields that are plain columns, without those that are decoded or come from another table."""
    return [field.name for field in fields(record_type) if field.name not in decoded]


_AGENT_COLUMNS = _column_names(Agent, "seen_ns", "capabilities")
_TASK_COLUMNS = _column_names(Task, "spec", "warnings")
_JOB_COLUMNS = _column_names(Job, "request", "tasks")
