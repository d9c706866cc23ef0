"""All services of an open queue: its database and folder, and the objects that work on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the API imports this module before the database opens; these modules load the database's libraries
    from visualprof.remote.queue.store.agents import Agents
    from visualprof.remote.queue.store.blobs import Blobs
    from visualprof.remote.queue.store.database import Database
    from visualprof.remote.queue.store.files import ReadChunk, Store
    from visualprof.remote.queue.store.pending_uploads import PendingUploads
    from visualprof.remote.queue.store.quotas import Quotas
    from visualprof.remote.queue.store.registry import Registry
    from visualprof.remote.queue.store.saved_queries import SavedQueries
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


@dataclass(frozen=True, kw_only=True)
class JobServices:
    """All services of an open queue.

    Attributes:
        file_id: Device and inode of the database's file; None if the database has a URL.
        maintenance: None on a read-only server.
        notify_bridge: None if no other server can share the database.
        mirror: None without a bucket, and on a read-only server.
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
    saved_queries: SavedQueries
    maintenance: MaintenanceThread | None = None
    notify_bridge: PgNotifyBridge | None = None
    mirror: Mirror | None = None

    def save_upload(self, name: str, read: ReadChunk) -> tuple[str, int]:
        """Store an uploaded file and queue the jobs that waited for it.

        Returns:
            The file's sha256 and size.

        Raises:
            VisualprofError: The file is too large, or the disk is full.
        """
        sha256, size = self.blobs.put(name, read)
        self.jobs.file_arrived(sha256)
        return sha256, size

    def add_upload(self, sha256: str, name: str, size: int) -> None:
        """Add a row for a file that is in the store, and queue the jobs that waited for it."""
        self.blobs.add(sha256, name, size)
        self.jobs.file_arrived(sha256)

    def close(self) -> None:
        """Stop all threads and close all connections."""
        if self.mirror:
            self.mirror.close()
        if self.notify_bridge:
            self.notify_bridge.close()
        if self.maintenance:
            self.maintenance.close()
        self.database.close()
