"""Exceptions that end an agent or a task, and the outcome of a task."""

from __future__ import annotations

import errno
import sys
import traceback
from typing import TypedDict

from visualprof.messages import msg
from visualprof.remote.protocol import TaskFailure

_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)


class AgentError(Exception):
    """The agent cannot start or continue."""

    def __init__(self, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.hint = hint


class RunsAsRoot(AgentError):
    """The agent would run as root without permission."""


class LeaseLost(Exception):
    """The server no longer knows the lease: another agent has the task, or the task has ended."""


class StopRequested(Exception):
    """The work must stop: it was canceled, its lease is lost, or the agent is shutting down."""


class Outcome(TypedDict):
    """How a task ended, as sent with `finish` and written to status.json."""

    state: str
    reason: str | None
    error: str | None
    hint: str | None


SUCCEEDED = Outcome(state="succeeded", reason=None, error=None, hint=None)
CANCELLED = Outcome(state="cancelled", reason=None, error=None, hint=None)


def failed_outcome(error: Exception) -> Outcome:
    """Return the outcome of a task that ended with this exception."""
    failure = to_task_failure(error)
    return Outcome(state="failed", reason=failure.reason, error=failure.error, hint=failure.hint or None)


def to_task_failure(error: Exception) -> TaskFailure:
    """Convert an exception to a failure of the task.

    An unexpected exception becomes an `agent_error`; its stack trace goes to stderr.
    """
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
