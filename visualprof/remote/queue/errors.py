"""What the queue refuses, with the status that HTTP gives it.

VisualprofError
├── Conflict    409  the same key with another job, or a state that does not allow it
├── Stale       409  a lease that is no longer the task's
├── Elsewhere   409  bytes that do not continue what is there; says what is
├── Untrusted   401  no token, or none that is known
├── BadSignature 403 an address that was not signed here, or whose time is over
├── PutOut      403  an agent that somebody put out
├── Oversize    413  more bytes than announced or allowed
├── Unfit       422  result files that are missing, differ or have impossible names
├── Crowded     503  too many agents wait at once, or the database is busy
├── Damaged     503  the database cannot be used
├── StoreDown   503  the bucket in which files are kept does not answer
├── OverQuota   429  a user has as much as they may
├── TooMany     429  attempts within a minute
└── DiskFull    507  the server's disk is full or read-only
"""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager

from visualprof.errors import VisualprofError
from visualprof.messages import msg


class Conflict(VisualprofError):
    """The request contradicts what is there."""

    status = 409


class LeaseExpired(VisualprofError):
    """The lease is over: whoever held it must end the child."""

    status = 409

    def __init__(self, task: str) -> None:
        super().__init__(
            msg("queue.lease_task_over", f"the lease of task {task[:40]} is over"),
            msg("queue.end_child_another_lease", "end its child; another lease may run"),
        )


class UploadOffsetMismatch(VisualprofError):
    """Bytes for another place than the end of what is there. size: of what is there."""

    status = 409

    def __init__(self, size: int) -> None:
        super().__init__(
            msg("queue.bytes_here", f"{size} bytes are here"), msg("queue.continue_there", "continue there")
        )
        self.size = size


class Unauthenticated(VisualprofError):
    """No token, or one that is not known."""

    status = 401


class InvalidSignature(VisualprofError):
    """An address that was not made here, or that is too old."""

    status = 403


class AgentRevoked(VisualprofError):
    """An agent that somebody put out; it ends."""

    status = 403


class PayloadTooLarge(VisualprofError):
    """More than was announced or is allowed."""

    status = 413


class InvalidResult(VisualprofError):
    """A result that is not what was announced, or not what a result is."""

    status = 422


class ServerBusy(VisualprofError):
    """No place to wait; ask again after `Retry-After`."""

    status = 503


class DatabaseUnavailable(VisualprofError):
    """The database is no database any more, or was taken away."""

    status = 503


class StoreUnavailable(VisualprofError):
    """The service that keeps files does not answer. refused: it does, and refuses what it was asked."""

    status = 503

    def __init__(self, error: str, *, refused: bool = False) -> None:
        super().__init__(error, msg("queue.try_again_moment_what", "try again in a moment; what was kept is not lost"))
        self.refused = refused


class QuotaExceeded(VisualprofError):
    """Somebody has as much as they may."""

    status = 429


class TooManyAttempts(VisualprofError):
    """Too many attempts in a short time."""

    status = 429


class DiskFull(VisualprofError):
    """The disk is full, over quota or read-only."""

    status = 507


_FULL = {
    errno.ENOSPC: msg("queue.full", "is full"),
    errno.EDQUOT: msg("queue.over_quota", "is over its quota"),
    errno.EROFS: msg("queue.read_only", "is read-only"),
    errno.EACCES: msg("queue.may_not_written", "may not be written"),
    errno.EPERM: msg("queue.may_not_written", "may not be written"),
}


@contextmanager
def disk_errors(where: str) -> Generator[None]:
    """Name the disk's troubles instead of calling them unexpected.

    Raises: DiskFull.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFull(
                f"{where} {_FULL[error.errno]}",
                msg("queue.free_some_space_there", "free some space there, or start with --data DIR"),
            ) from error
        raise
