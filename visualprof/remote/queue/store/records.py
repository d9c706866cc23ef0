"""Rows of the database as values."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal

import msgspec

from visualprof.remote.protocol import FINAL, Capabilities, Phase, Reason, Request, Spec, State

# Made once, while the module is imported: see `reader.trace.codec`.
REQUEST = msgspec.json.Decoder(Request)
SPEC = msgspec.json.Decoder(Spec)
_capabilities = lru_cache(128)(msgspec.json.Decoder(Capabilities).decode)  # they seldom change, and are read often
_WARNINGS = msgspec.json.Decoder(list[str])

AnyRow = Any  # a row of the database; SQLAlchemy 2.0 and 2.1 do not agree on its type


# What rules remove by its age.
RetentionKind = Literal["jobs", "uploads", "notices", "audit"]

# `drained` gets no further task, `out` is refused until it is let in again.
Standing = Literal["works", "drained", "out"]


@dataclass(frozen=True)
class RetentionRule:
    """After how many days something is removed; None is never. project: "" is of all that no other rule is for."""

    kind: RetentionKind
    project: str
    days: int | None


# files: they are not here yet. machine: none that is there can run it. drained, maintenance, reserved: those that can
# are given no task, or none of its owner's. hours, jobs: its owner's quota is used up. turn: others are before it.
WaitReason = Literal["files", "machine", "drained", "maintenance", "reserved", "hours", "jobs", "turn"]


@dataclass(frozen=True)
class Wait:
    """Why a task waits.

    machine: the name of that which is kept, and until_ns for how long. n, of: what is used of a quota, in ns for hours;
    of a turn which of its owner's waiting jobs it is.
    """

    reason: WaitReason
    machine: str | None = None
    until_ns: int | None = None
    n: int | None = None
    of: int | None = None


@dataclass(frozen=True)
class Agent:
    """A registered machine."""

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
        """Was it heard of within a lease? A clock may go back."""
        return abs(time.time_ns() - self.seen_ns) <= lease_s * 1e9


@dataclass(frozen=True)
class Task:
    """One spec of a job, and where it is. Fields as the columns of `tables.tasks`."""

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
        """Name the folder and log of this attempt."""
        return f"{self.id}-{self.attempt}"


@dataclass(frozen=True)
class Job:
    """A job with its tasks in the order of the specs."""

    id: str
    owner: str | None
    request: Request
    folder: str
    submitted_ns: int
    revision: int
    kept: bool
    tasks: list[Task]

    def task(self, name: str) -> Task:
        """Its task of that id."""
        return next(task for task in self.tasks if task.id == name)

    @property
    def state(self) -> State:
        """That of its tasks together: running if any runs, else waiting if any waits, else the worst end."""
        states = {task.state for task in self.tasks}
        order: tuple[State, ...] = ("running", "waiting", "initiated", "failed", "cancelled")
        for state in order:
            if state in states:
                return state
        return "succeeded"

    @property
    def progress(self) -> float:
        """Mean of its tasks; one that has ended counts as done."""
        done = [1.0 if task.state in FINAL else task.progress for task in self.tasks]
        return sum(done) / len(done) if done else 1.0

    @property
    def updated_ns(self) -> int:
        """The last change of a task."""
        return max((task.updated_ns for task in self.tasks), default=self.submitted_ns)


def agent_from_row(row: AnyRow, ahead_ns: int) -> Agent:
    """From a row of `agents`. ahead_ns: see `Database`; `seen_ns` becomes a time of this machine."""
    seen = row.seen_ns - ahead_ns
    return Agent(**_columns(_AGENT, row), seen_ns=seen, capabilities=_capabilities(row.capabilities))


def task_from_row(row: AnyRow) -> Task:
    """From a row of `tasks`."""
    return Task(**_columns(_TASK, row), spec=SPEC.decode(row.spec), warnings=_WARNINGS.decode(row.warnings))


def job_from_row(row: AnyRow, tasks: Sequence[AnyRow]) -> Job:
    """From a row of `jobs` and those of its tasks."""
    return Job(
        **_columns(_JOB, row), request=REQUEST.decode(row.request), tasks=[task_from_row(task) for task in tasks]
    )


def _columns(names: Sequence[str], row: AnyRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def _plain(kind: type[Any], *decoded: str) -> list[str]:
    """The fields that are columns as they are; the others are made of them, or of another table."""
    return [field.name for field in fields(kind) if field.name not in decoded]


_AGENT = _plain(Agent, "seen_ns", "capabilities")
_TASK = _plain(Task, "spec", "warnings")
_JOB = _plain(Job, "request", "tasks")
