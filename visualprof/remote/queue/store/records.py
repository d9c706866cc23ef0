"""Rows of the database as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from visualprof.remote.protocol import FINAL, Capabilities, Phase, Reason, Request, Spec, State

AnyRow = Any  # a row of the database; SQLAlchemy 2.0 and 2.1 do not agree on its type


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
    def place(self) -> str:
        """Names the folder and log of this attempt."""
        return f"{self.id}-{self.attempt}"


@dataclass(frozen=True)
class Job:
    """A job with its tasks in the order of the specs."""

    id: str
    request: Request
    folder: str
    submitted_ns: int
    revision: int
    tasks: list[Task]

    @property
    def state(self) -> State:
        """That of its tasks together: running if any runs, else waiting if any waits, else the worst end."""
        states = {task.state for task in self.tasks}
        order: tuple[State, ...] = ("running", "waiting", "initiated", "failed", "cancelled")
        found: list[State] = [each for each in order if each in states]
        return found[0] if found else "succeeded"

    @property
    def progress(self) -> float:
        """Mean of its tasks; one that has ended counts as done."""
        done = [1.0 if task.state in FINAL else task.progress for task in self.tasks]
        return sum(done) / len(done) if done else 1.0

    @property
    def updated_ns(self) -> int:
        """The last change of a task."""
        return max((task.updated_ns for task in self.tasks), default=self.submitted_ns)


def agent_of(row: AnyRow) -> Agent:
    """From a row of `agents`."""
    return Agent(
        row.id,
        row.owner,
        row.name,
        row.public,
        row.local,
        row.address,
        msgspec.json.decode(row.capabilities, type=Capabilities),
        row.registered_ns,
        row.seen_ns,
    )


def task_of(row: AnyRow) -> Task:
    """From a row of `tasks`."""
    return Task(
        row.id,
        row.job,
        msgspec.json.decode(row.spec, type=Spec),
        row.state,
        row.phase,
        row.progress,
        row.attempt,
        row.tries,
        row.updated_ns,
        row.started_ns,
        row.agent,
        row.on_device,
        row.on_version,
        row.cancel,
        row.reason,
        row.error,
        row.hint,
        msgspec.json.decode(row.warnings, type=list[str]),
        row.run,
        row.log_bytes,
        row.log_cut,
    )


def job_of(row: AnyRow, tasks: Sequence[AnyRow]) -> Job:
    """From a row of `jobs` and those of its tasks."""
    request = msgspec.json.decode(row.request, type=Request)
    return Job(row.id, request, row.folder, row.submitted_ns, row.revision, [task_of(each) for each in tasks])
