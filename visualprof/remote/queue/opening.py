"""Open the services of a queue. Importing this module loads the database's libraries, which takes 0.2 s."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from visualprof.clock import SYSTEM_CLOCK, Clock
from visualprof.reader.logdir.scan import Root
from visualprof.remote.queue.job_services import JobServices
from visualprof.remote.queue.settings import QueueSettings
from visualprof.remote.queue.store.agents import Agents
from visualprof.remote.queue.store.blobs import Blobs
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.files import DATABASE_FILE, Store, file_id
from visualprof.remote.queue.store.pending_uploads import PendingUploads
from visualprof.remote.queue.store.postgresql import open_database
from visualprof.remote.queue.store.quotas import Quotas
from visualprof.remote.queue.store.registry import Registry
from visualprof.remote.queue.store.s3 import Bucket
from visualprof.remote.queue.store.saved_queries import SavedQueries
from visualprof.remote.queue.store.signing import Signer
from visualprof.remote.queue.tasks.job_deleter import JobDeleter
from visualprof.remote.queue.tasks.jobs import Jobs
from visualprof.remote.queue.tasks.leases import Leases
from visualprof.remote.queue.tasks.logs import Logs
from visualprof.remote.queue.tasks.maintenance import MaintenanceThread, remove_leftovers
from visualprof.remote.queue.tasks.mirror import Mirror
from visualprof.remote.queue.tasks.notifier import Notifier
from visualprof.remote.queue.tasks.notify_bridge import PgNotifyBridge
from visualprof.remote.queue.tasks.report_batcher import ReportBatcher
from visualprof.remote.queue.tasks.results import Results
from visualprof.remote.queue.tasks.retention import Retention
from visualprof.remote.queue.tasks.task_finalizer import TaskFinalizer


def open_services(
    folder: Path,
    root: Root,
    settings: QueueSettings,
    *,
    secret: str,
    notifier: Notifier,
    read_only: bool = False,
    busy_paths: Callable[[], set[str]] = set,
    clock: Clock = SYSTEM_CLOCK,
) -> JobServices:
    """Open the services of a queue, and start to requeue lost tasks unless `read_only`.

    Args:
        folder: Folder of the queue's data.
        root: The log directory.
        settings: Where data is stored, and the lease.
        secret: Key for signed URLs.
        notifier: Wakes waiting agents.
        read_only: Whether nothing may be changed.
        busy_paths: Returns the paths of files that are being read for a long time.
        clock: Times leases and clean-ups, unless the database has a clock of its own.

    Raises:
        VisualprofError: The database or the bucket cannot be used.
    """
    signer = Signer(secret.encode())
    bucket = Bucket(folder / "copies", signer, settings.store, settings.cache_bytes) if settings.store else None
    services = _build_services(
        folder,
        root,
        database=open_database(settings.database, folder / DATABASE_FILE, clock),
        database_file_id=None if settings.database else file_id(folder / DATABASE_FILE),
        bucket=bucket,
        signer=signer,
        notifier=notifier,
        lease_s=settings.lease_s,
        read_only=read_only,
        store_runs=settings.store_runs,
        busy_paths=busy_paths,
    )
    maintenance = None if read_only else _start_maintenance(services, settings.lease_s)
    notify_bridge = PgNotifyBridge(services.database, notifier) if settings.database else None
    if notify_bridge:
        notify_bridge.start()
    if services.mirror:
        services.mirror.start()
    return replace(services, maintenance=maintenance, notify_bridge=notify_bridge)


def _build_services(
    folder: Path,
    root: Root,
    *,
    database: Database,
    database_file_id: tuple[int, int] | None,
    bucket: Bucket | None,
    signer: Signer,
    notifier: Notifier,
    lease_s: float,
    read_only: bool,
    store_runs: bool,
    busy_paths: Callable[[], set[str]],
) -> JobServices:
    """Return the services without those that run in threads, except an unstarted mirror."""
    store = bucket or Store(folder, signer)
    jobs = Jobs(database, notifier, lease_s)
    reports = ReportBatcher(database)
    leases = Leases(database, store, notifier, lease_s, reports)
    results = Results(database, store, root.path, bucket if store_runs else None)
    mirror = Mirror(database, bucket, root, results.partial_folder, busy_paths) if bucket and not read_only else None
    blobs, agents, logs = Blobs(database, store), Agents(database, lease_s), Logs(folder / "logs", reports)
    deleter = JobDeleter(database, jobs, results, store, folder, root.path)
    return JobServices(
        database=database,
        file_id=database_file_id,
        store=store,
        signer=signer,
        notifier=notifier,
        blobs=blobs,
        jobs=jobs,
        agents=agents,
        leases=leases,
        logs=logs,
        results=results,
        finalizer=TaskFinalizer(
            database=database,
            jobs=jobs,
            leases=leases,
            results=results,
            agents=agents,
            blobs=blobs,
            logs=logs,
            mirror=mirror,
        ),
        deleter=deleter,
        retention=Retention(database, deleter),
        quotas=Quotas(database),
        pending_uploads=PendingUploads(database),
        registry=Registry(database, store),
        saved_queries=SavedQueries(database),
        mirror=mirror,
    )


def _start_maintenance(services: JobServices, lease_s: float) -> MaintenanceThread:
    """Recover what an earlier server left unfinished, and start the maintenance thread."""

    def clean_up() -> None:
        """Remove leftovers and recover unfinished results; runs at start and every hour."""
        remove_leftovers(services.database, services.store, services.results.partial_folder)
        services.finalizer.recover_all()

    services.leases.extend_running()
    clean_up()
    maintenance = MaintenanceThread(
        services.database,
        services.notifier,
        lease_s,
        on_ended=services.finalizer.recover,
        clean_up=clean_up,
        extend_running=services.leases.extend_running,
        apply_retention=services.retention.apply,
    )
    maintenance.start()
    return maintenance
