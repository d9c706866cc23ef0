"""The objects that the API's resources share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from visualprof.errors import NotFound
from visualprof.messages import msg

if TYPE_CHECKING:
    from visualprof.accounts.service import Accounts
    from visualprof.reader.logdir.directory import LogDirectory
    from visualprof.reader.logdir.models import ModelReader
    from visualprof.server.job_service import JobService
    from visualprof.server.latency import LatencyMeter
    from visualprof.server.settings import Settings
    from visualprof.server.visible import Visible

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Services:
    """The objects that the API's resources share.

    Attributes:
        settings: Settings of the server.
        logdir: The log directories.
        job_service: The job queue.
        reader: Reader of model files.
        accounts: The accounts; `None` on a server without accounts.
        visible: The data that the current request may see.
        meter: Recent response times.
    """

    settings: Settings
    logdir: LogDirectory
    job_service: JobService
    reader: ModelReader
    accounts: Accounts | None
    visible: Visible
    meter: LatencyMeter
    _objects: dict[Any, Any] = field(default_factory=dict[Any, Any])

    def get(self, kind: Callable[[Services], T]) -> T:
        """Return the only object of a class, created from these services at the first call."""
        if kind not in self._objects:
            self._objects[kind] = kind(self)
        return self._objects[kind]

    def require_accounts(self) -> Accounts:
        """Return the accounts.

        Raises:
            NotFound: The server has no accounts.
        """
        if self.accounts is None:
            raise NotFound(
                msg("server.server_no_accounts", "this server has no accounts"),
                msg("server.start_accounts", "start it with --accounts"),
            )
        return self.accounts
