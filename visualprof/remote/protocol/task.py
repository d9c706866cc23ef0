"""A task that is leased: where it stands, what it needs, and why it failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from visualprof.remote.protocol.job import Request, Spec

State = Literal["initiated", "waiting", "running", "succeeded", "failed", "cancelled"]
Phase = Literal["preparing", "settling", "converting", "measuring", "profiling", "searching", "uploading"]
# Phases that are not the task's own time: files on their way, other specs' turns, a host that is not quiet yet.
UNTIMED_PHASES: tuple[Phase, ...] = ("preparing", "settling", "uploading")
FINAL: tuple[State, ...] = ("succeeded", "failed", "cancelled")

# Why a task failed. Only `agent_lost` is tried again by itself: everything else would fail in the same way.
Reason = Literal[
    "model_error",  # the runtime refused the model or raised while running it
    "input_error",  # inputs do not fit the model
    "crashed",  # the child ended by a signal
    "out_of_memory",
    "timeout",  # beyond timeout_s
    "no_runtime",  # the agent lost the runtime that the spec wants
    "disk_full",
    "upload_failed",  # the result did not arrive whole
    "rejected",  # the result arrived and is not what it should be
    "agent_lost",  # no heartbeat, and no attempt left
    "expired",  # nobody took it in time, or its upload was never completed
    "agent_error",  # a fault of the agent itself
]


@dataclass(frozen=True)
class Intervals:
    """Intervals of leases and requests; the server sets them for all agents."""

    lease_s: float = 30.0
    heartbeat_s: float = 10.0
    poll_s: float = 20.0


@dataclass(frozen=True)
class File:
    """A file that a task needs: role `model`, `input` or `data` (of the input with that name), `part` (its path)."""

    role: Literal["model", "input", "part", "data"]
    name: str
    url: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A task that an agent works on. run: folder of the result below the log directory.

    warnings: of the result, whatever comes of it: why the task begins again.
    """

    task: str
    job: str
    run: str
    attempt: int
    lease: str
    spec: Spec
    request: Request
    files: list[File]
    warnings: list[str] = field(default_factory=list[str])

    def path(self, what: str) -> str:
        """The address of a request about the task, below the agent's API."""
        return f"tasks/{self.task}/{what}?lease={self.lease}"


class TaskFailure(Exception):
    """A task cannot be done; it is reported as failed with this reason."""

    def __init__(self, reason: Reason, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.reason: Reason = reason
        self.error = error
        self.hint = hint
