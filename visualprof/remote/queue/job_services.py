"""The queue once it is open: its database and folder, and all who work on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the API names it before it is opened, and opening it loads the libraries of the database
    from visualprof.remote.queue.store.agents import Agents
    from visualprof.remote.queue.store.blobs import Blobs
    from visualprof.remote.queue.store.database import Database
    from visualprof.remote.queue.store.files import ReadChunk, Store
    from visualprof.remote.queue.store.pending_uploads import PendingUploads
    from visualprof.remote.queue.store.quotas import Quotas
    from visualprof.remote.queue.store.registry import Registry
    from visualprof.remote.queue.store.signing import Signer
    from visualprof.remote.queue.tasks.job_deleter import JobDeleter
    from visualprof.remote.queue.tasks.jobs import Jobs
    from visualprof.remote.queue.tasks.leases import Leases
    from visualprof.remote.queue.tasks.logs import Logs
    from visualprof.remote.queue.tasks.maintenance import MaintenanceThread
    from visualprof.remote.queue.tasks.mirror import Mirror
    from visualprof.remote.queue.tasks.notifier import Notifier
    from visualprof.remote.queue.tasks.notify_bridge import PgNotifyBridge
    from visualprof.remote.queue.tasks.results import Results
    from visualprof.remote.queue.tasks.retention import Retention
    from visualprof.remote.queue.tasks.task_finalizer import TaskFinalizer


@dataclass(frozen=True)
class JobServices:
    """Everything. number: of the database's file, None for a URL. upkeep: None where nothing is changed.

    relay: None where no other server can tell of work. mirror: None without a bucket.
    """

    database: Database
    file_id: tuple[int, int] | None
    store: Store
    signer: Signer
    notifier: Notifier
    blobs: Blobs
    jobs: Jobs
    agents: Agents
    leases: Leases
    logs: Logs
    results: Results
    finalizer: TaskFinalizer
    deleter: JobDeleter
    retention: Retention
    quotas: Quotas
    pending_uploads: PendingUploads
    registry: Registry
    maintenance: MaintenanceThread | None = None
    notify_bridge: PgNotifyBridge | None = None
    mirror: Mirror | None = None

    def save_upload(self, name: str, read: ReadChunk) -> tuple[str, int]:
        """Store an uploaded file, for which jobs may wait; its sha256 and size.

        Raises: VisualprofError: it is too large, the disk is full.
        """
        sha256, size = self.blobs.put(name, read)
        self.jobs.file_arrived(sha256)
        return sha256, size

    def add_upload(self, sha256: str, name: str, size: int) -> None:
        """Note a file that is in the store, for which jobs may wait."""
        self.blobs.add(sha256, name, size)
        self.jobs.file_arrived(sha256)

    def close(self) -> None:
        """End its threads and its connections."""
        if self.mirror:
            self.mirror.close()
        if self.notify_bridge:
            self.notify_bridge.close()
        if self.maintenance:
            self.maintenance.close()
        self.database.close()
