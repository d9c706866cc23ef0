"""Errors of the queue, with their HTTP status.

VisualprofError
├── Conflict              409  the key belongs to another job, or the state does not allow the request
├── LeaseExpired          409  the task has another lease, or none
├── UploadOffsetMismatch  409  the offset is not the stored size; the error contains the stored size
├── Unauthenticated       401  missing or unknown token
├── InvalidSignature      403  the URL was not signed by this server, or has expired
├── AgentRevoked          403  the agent is blocked
├── PayloadTooLarge       413  more bytes than announced or allowed
├── InvalidResult         422  result files are missing, differ or have invalid names
├── ServerBusy            503  too many agents wait, or the database is busy
├── DatabaseUnavailable   503  the database is corrupt or missing
├── StoreUnavailable      503  the bucket does not answer
├── QuotaExceeded         429  the user has reached a quota
├── TooManyAttempts       429  too many attempts within a minute
└── DiskFull              507  the server's disk is full or read-only
"""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager

from visualprof.errors import VisualprofError
from visualprof.messages import msg


class Conflict(VisualprofError):
    """A request that contradicts the stored state."""

    status = 409


class LeaseExpired(VisualprofError):
    """A lease that is no longer valid. The agent that held it must end its child."""

    status = 409

    def __init__(self, task: str) -> None:
        super().__init__(
            msg("queue.lease_task_over", f"the lease of task {task[:40]} is over"),
            msg("queue.end_child_another_lease", "end its child; another lease may run"),
        )


class UploadOffsetMismatch(VisualprofError):
    """An upload offset that does not match the stored size.

    Attributes:
        size: Stored size in bytes.
    """

    status = 409

    def __init__(self, size: int) -> None:
        super().__init__(
            msg("queue.bytes_here", f"{size} bytes are here"), msg("queue.continue_there", "continue there")
        )
        self.size = size


class Unauthenticated(VisualprofError):
    """A missing or unknown token."""

    status = 401
    docs_page = "access-control"


class InvalidSignature(VisualprofError):
    """A URL that this server did not sign, or that has expired."""

    status = 403


class AgentRevoked(VisualprofError):
    """A blocked agent, which must exit."""

    status = 403
    docs_page = "remote"


class PayloadTooLarge(VisualprofError):
    """More bytes than announced or allowed."""

    status = 413
    docs_page = "operating"


class InvalidResult(VisualprofError):
    """A result that differs from its announcement, or that is not a valid result."""

    status = 422
    docs_page = "result-folder"


class ServerBusy(VisualprofError):
    """A server without capacity for the request. Clients retry after `Retry-After`."""

    status = 503
    docs_page = "operating"


class DatabaseUnavailable(VisualprofError):
    """A corrupt or missing database."""

    status = 503
    docs_page = "operating"


class StoreUnavailable(VisualprofError):
    """A bucket that does not answer or rejects a request.

    Attributes:
        refused: Whether the service answered and rejected the request.
    """

    status = 503
    docs_page = "storage"

    def __init__(self, error: str, *, refused: bool = False) -> None:
        super().__init__(error, msg("queue.try_again_moment_what", "try again in a moment; stored data is not lost"))
        self.refused = refused


class QuotaExceeded(VisualprofError):
    """A user who has reached a quota."""

    status = 429
    docs_page = "access-control"


class TooManyAttempts(VisualprofError):
    """Too many attempts in a short time."""

    status = 429


class DiskFull(VisualprofError):
    """A disk that is full, over its quota or read-only."""

    status = 507
    docs_page = "operating"


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
