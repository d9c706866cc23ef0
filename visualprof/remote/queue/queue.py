"""The queue once it is open: its database and folder, and all who work on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the API names it before it is opened, and opening it loads the libraries of the database
    from visualprof.remote.queue.store.agents import Agents
    from visualprof.remote.queue.store.blobs import Blobs
    from visualprof.remote.queue.store.database import Database
    from visualprof.remote.queue.store.files import Read, Store
    from visualprof.remote.queue.store.pending_uploads import Arrivals
    from visualprof.remote.queue.store.quotas import Quotas
    from visualprof.remote.queue.store.registry import Registry
    from visualprof.remote.queue.store.signing import Signer
    from visualprof.remote.queue.tasks.finish import Finisher
    from visualprof.remote.queue.tasks.jobs import Jobs
    from visualprof.remote.queue.tasks.leases import Leases
    from visualprof.remote.queue.tasks.logs import Logs
    from visualprof.remote.queue.tasks.maintenance import Upkeep
    from visualprof.remote.queue.tasks.mirror import Mirror
    from visualprof.remote.queue.tasks.notifier import Notifier
    from visualprof.remote.queue.tasks.relay import Relay
    from visualprof.remote.queue.tasks.removal import Removal
    from visualprof.remote.queue.tasks.results import Results
    from visualprof.remote.queue.tasks.retention import Retention


@dataclass(frozen=True)
class Queue:
    """Everything. number: of the database's file, None for a URL. upkeep: None where nothing is changed.

    relay: None where no other server can tell of work. mirror: None without a bucket.
    """

    database: Database
    number: tuple[int, int] | None
    store: Store
    signer: Signer
    notifier: Notifier
    blobs: Blobs
    jobs: Jobs
    agents: Agents
    leases: Leases
    logs: Logs
    results: Results
    finisher: Finisher
    removal: Removal
    retention: Retention
    quotas: Quotas
    arrivals: Arrivals
    registry: Registry
    upkeep: Upkeep | None = None
    relay: Relay | None = None
    mirror: Mirror | None = None

    def keep(self, name: str, read: Read) -> tuple[str, int]:
        """Store an uploaded file, for which jobs may wait; its sha256 and size.

        Raises: VisualprofError: it is too large, the disk is full.
        """
        sha256, size = self.blobs.keep(name, read)
        self.jobs.arrived(sha256)
        return sha256, size

    def add(self, sha256: str, name: str, size: int) -> None:
        """Note a file that is in the store, for which jobs may wait."""
        self.blobs.add(sha256, name, size)
        self.jobs.arrived(sha256)

    def close(self) -> None:
        """End its threads and its connections."""
        if self.mirror:
            self.mirror.close()
        if self.relay:
            self.relay.close()
        if self.upkeep:
            self.upkeep.close()
        self.database.close()
