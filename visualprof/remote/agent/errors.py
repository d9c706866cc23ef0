"""What ends an agent or a task, with a sentence for whoever reads it."""

from __future__ import annotations

import errno
import sys
import traceback
from typing import TypedDict

from visualprof.messages import msg
from visualprof.remote.protocol import TaskFailure

_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)


class AgentError(Exception):
    """The agent cannot start or go on."""

    def __init__(self, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.hint = hint


class LeaseLost(Exception):
    """The server does not know the lease any more: somebody else has the task, or it is over."""


class StopRequested(Exception):
    """The work is to end: it was cancelled, its lease is lost, or the agent leaves."""


class Outcome(TypedDict):
    """How a task ended, as `finish` and status.json say it."""

    state: str
    reason: str | None
    error: str | None
    hint: str | None


SUCCEEDED = Outcome(state="succeeded", reason=None, error=None, hint=None)
CANCELLED = Outcome(state="cancelled", reason=None, error=None, hint=None)


def failed_outcome(error: Exception) -> Outcome:
    """The outcome of a task that ended with this exception."""
    failure = to_task_failure(error)
    return Outcome(state="failed", reason=failure.reason, error=failure.error, hint=failure.hint or None)


def to_task_failure(error: Exception) -> TaskFailure:
    """An exception as a failure of the task. An unexpected one is an `agent_error`; its stack goes to stderr."""
    if isinstance(error, TaskFailure):
        return error
    if isinstance(error, OSError) and error.errno in _DISK_FULL_ERRNOS:
        hint = msg("agent.free_space_agents_state", "free space in the agent's --state folder")
        return TaskFailure("disk_full", msg("agent.agents_disk_full", f"the agent's disk is full: {error}"), hint)
    if isinstance(error, OSError):
        return TaskFailure(
            "agent_error", msg("agent.agent_could_not_use", f"the agent could not use its files: {error}")
        )
    traceback.print_exception(error, file=sys.stderr)
    return TaskFailure("agent_error", msg("agent.agent_failed", f"the agent failed: {type(error).__name__}: {error}"))
