"""A leased task: its state, the files that it needs, and why it failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from visualprof.remote.protocol.job import Request, Spec

State = Literal["initiated", "waiting", "running", "succeeded", "failed", "cancelled"]
Phase = Literal["preparing", "settling", "converting", "measuring", "profiling", "searching", "uploading"]
# Phases that do not count toward the timeout: file transfers, other specs' turns, waiting for a quiet host.
UNTIMED_PHASES: tuple[Phase, ...] = ("preparing", "settling", "uploading")
FINAL: tuple[State, ...] = ("succeeded", "failed", "cancelled")

# Why a task failed. Only `agent_lost` is retried automatically; all other failures would repeat.
Reason = Literal[
    "model_error",  # the runtime rejected the model or failed while running it
    "input_error",  # inputs do not fit the model
    "crashed",  # the child was ended by a signal
    "out_of_memory",
    "timeout",  # beyond timeout_s
    "no_runtime",  # the agent no longer has the runtime of the spec
    "disk_full",
    "upload_failed",  # the result did not arrive completely
    "rejected",  # the result arrived and is invalid
    "agent_lost",  # no heartbeat, and no attempt left
    "expired",  # no agent claimed it in time, or its upload was never completed
    "agent_error",  # a fault of the agent itself
]


@dataclass(frozen=True)
class Intervals:
    """Intervals of leases and requests, which the server sets for all agents."""

    lease_s: float = 30.0
    heartbeat_s: float = 10.0
    poll_s: float = 20.0


@dataclass(frozen=True)
class File:
    """A file that a task needs.

    Attributes:
        role: Use of the file.
        name: Name of the file; for `part` its path, for `data` the name of the input.
        url: Where to download it.
        size_bytes: Size of the file.
        sha256: Digest of the file.
    """

    role: Literal["model", "input", "part", "data"]
    name: str
    url: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A task that an agent works on.

    Attributes:
        task: Id of the task.
        job: Id of the job.
        run: Folder of the result, relative to the log directory.
        attempt: Number of the attempt.
        lease: Token of the lease.
        spec: The spec.
        request: The request of the job.
        files: Files that the task needs.
        warnings: Warnings of the result regardless of its outcome, for example why the task starts again.
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

    def path(self, action: str) -> str:
        """Return the path of a request about the task, relative to the agents' API."""
        return f"tasks/{self.task}/{action}?lease={self.lease}"


class TaskFailure(Exception):
    """A task that fails with this reason."""

    def __init__(self, reason: Reason, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.reason: Reason = reason
        self.error = error
        self.hint = hint
