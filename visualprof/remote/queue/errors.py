"""Errors of the job queue, each with its HTTP status and its page of the documentation."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager

from visualprof.errors import VisualprofError
from visualprof.messages import msg


class Conflict(VisualprofError, status=409):
    """A request that contradicts the stored state."""


class LeaseExpired(VisualprofError, status=409):
    """A lease that is no longer valid. The agent that held it must end its child."""

    def __init__(self, task: str) -> None:
        super().__init__(
            msg("queue.lease_task_over", f"the lease of task {task[:40]} is over"),
            msg("queue.end_child_another_lease", "end its child; another lease may run"),
        )


class UploadOffsetMismatch(VisualprofError, status=409):
    """An upload offset that does not match the stored size.

    Attributes:
        size: Stored size in bytes.
    """

    def __init__(self, size: int) -> None:
        super().__init__(
            msg("queue.bytes_here", f"{size} bytes are here"), msg("queue.continue_there", "continue there")
        )
        self.size = size


class Unauthenticated(VisualprofError, status=401, docs_page="access-control"):
    """A missing or unknown token."""


class InvalidSignature(VisualprofError, status=403):
    """A URL that this server did not sign, or that has expired."""


class AgentRevoked(VisualprofError, status=403, docs_page="team#machines"):
    """A blocked agent, which must exit."""


class PayloadTooLarge(VisualprofError, status=413, docs_page="security#uploads"):
    """More bytes than announced or allowed."""


class InvalidResult(VisualprofError, status=422, docs_page="result-folder"):
    """A result that differs from its announcement, or that is not a valid result."""


class ServerBusy(VisualprofError, status=503, docs_page="operating#server-health"):
    """A server without capacity for the request. Clients retry after `Retry-After`."""


class DatabaseUnavailable(VisualprofError, status=503, docs_page="operating#backup"):
    """A corrupt or missing database."""


class StoreUnavailable(VisualprofError, status=503, docs_page="storage#a-store-for-files"):
    """A bucket that does not answer or rejects a request.

    Attributes:
        refused: Whether the service answered and rejected the request.
    """

    def __init__(self, error: str, *, refused: bool = False) -> None:
        super().__init__(error, msg("queue.try_again_moment_what", "try again in a moment; stored data is not lost"))
        self.refused = refused


class QuotaExceeded(VisualprofError, status=429, docs_page="team#quotas"):
    """A user who has reached a quota."""


class TooManyAttempts(VisualprofError, status=429, docs_page="security#accounts"):
    """Too many attempts in a short time."""


class DiskFull(VisualprofError, status=507, docs_page="jobs#deletion"):
    """A disk that is full, over its quota or read-only."""


_DISK_ERRORS = {
    errno.ENOSPC: msg("queue.full", "is full"),
    errno.EDQUOT: msg("queue.over_quota", "is over its quota"),
    errno.EROFS: msg("queue.read_only", "is read-only"),
    errno.EACCES: msg("queue.may_not_written", "may not be written"),
    errno.EPERM: msg("queue.may_not_written", "may not be written"),
}


@contextmanager
def disk_errors(path: str) -> Generator[None]:
    """Translate disk errors inside the block to `DiskFull`.

    Args:
        path: File or folder that the error message names.

    Raises:
        DiskFull: The disk is full, over its quota or read-only.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_ERRORS:
            raise DiskFull(
                f"{path} {_DISK_ERRORS[error.errno]}",
                msg("queue.free_some_space_there", "free some space there, or start with --data DIR"),
            ) from error
        raise
