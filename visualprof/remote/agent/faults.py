"""What ends an agent or a task, with a sentence for whoever reads it."""

from __future__ import annotations

import errno
from typing import TypedDict, get_args

from visualprof.remote.protocol import Reason

REASONS: tuple[str, ...] = get_args(Reason)
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Outcome(TypedDict):
    """How a task ended, as `finish` and status.json say it."""

    state: str
    reason: str | None
    error: str | None
    hint: str | None


class AgentError(Exception):
    """The agent cannot start or go on."""

    def __init__(self, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.hint = hint


class Failure(Exception):
    """A task cannot go on; it is reported as failed with this reason."""

    def __init__(self, reason: Reason, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.reason: Reason = reason
        self.error = error
        self.hint = hint

    def outcome(self) -> Outcome:
        """The end of the task."""
        return Outcome(state="failed", reason=self.reason, error=self.error, hint=self.hint or None)


class Stale(Exception):
    """The server does not know the lease any more: somebody else has the task, or it is over."""


class Given(Exception):
    """Somebody wants the work to end: "cancelled" by its owner, "stale" by the server, "abandoned" by the agent."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


def of_system(error: OSError) -> Failure:
    """The failure that an error of this machine's files is."""
    if error.errno in _FULL:
        return Failure("disk_full", f"the agent's disk is full: {error}", "free space in the agent's --state folder")
    return Failure("agent_error", f"the agent could not use its files: {error}")
