"""Opens the queue of a folder. Who imports this imports the libraries of the database: 0.2 s."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from visualprof.reader.logdir.scan import Root
from visualprof.remote.queue.job_services import JobServices
from visualprof.remote.queue.store.agents import Agents
from visualprof.remote.queue.store.blobs import Blobs
from visualprof.remote.queue.store.bucket_url import BucketLocation
from visualprof.remote.queue.store.files import DATABASE_FILE, Store, file_id
from visualprof.remote.queue.store.pending_uploads import PendingUploads
from visualprof.remote.queue.store.postgresql import open_database
from visualprof.remote.queue.store.quotas import Quotas
from visualprof.remote.queue.store.registry import Registry
from visualprof.remote.queue.store.s3 import Bucket
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
    secret: str,
    notifier: Notifier,
    lease_s: float,
    url: str = "",
    read_only: bool = False,
    place: BucketLocation | None = None,
    cache_bytes: int = 0,
    runs_too: bool = False,
    busy: Callable[[], set[str]] = set,
) -> JobServices:
    """The queue of a folder; from now on lost tasks are taken back.

    Args:
        folder: where it is kept.
        root: the log directory.
        secret: signs addresses.
        notifier: wakes agents that wait.
        lease_s: how long an agent may be silent.
        url: of the database; "" is a file of SQLite in the folder.
        read_only: nothing is changed.
        place: the bucket in which files are kept; None keeps them in the folder. cache_bytes: of copies of it there.
        runs_too: it keeps the files of runs, too. busy: paths of files that are being read for longer than a moment.

    Raises: VisualprofError: the database or the bucket cannot be used.
    """
    signer = Signer(secret.encode())
    store = Bucket(folder / "copies", signer, place, cache_bytes) if place else Store(folder, signer)
    database = open_database(url, folder / DATABASE_FILE)
    number = None if url else file_id(folder / DATABASE_FILE)
    jobs = Jobs(database, notifier, lease_s)
    reports = ReportBatcher(database)
    leases = Leases(database, store, notifier, lease_s, reports)
    bucket = store if isinstance(store, Bucket) else None
    results = Results(database, store, root.path, bucket if runs_too else None)
    mirror = Mirror(database, bucket, root, results.partial, busy) if bucket and not read_only else None
    blobs, agents, logs = Blobs(database, store), Agents(database, lease_s), Logs(folder / "logs", reports)
    removal = JobDeleter(database, jobs, results, store, folder, root.path)
    finisher = TaskFinalizer(database, jobs, leases, results, agents, blobs, logs, mirror)
    retention = Retention(database, removal)
    upkeep = None
    if not read_only:

        def tidy() -> None:
            """At the start and every hour."""
            remove_leftovers(database, store, results.partial)
            finisher.recover_all()

        leases.extend_running()
        tidy()
        upkeep = MaintenanceThread(
            database, notifier, lease_s, finisher.recover, tidy, leases.extend_running, retention.apply
        )
        upkeep.start()
    relay = PgNotifyBridge(database, notifier) if url else None
    if relay:
        relay.start()
    if mirror:
        mirror.start()
    return JobServices(
        database, number, store, signer, notifier, blobs, jobs, agents, leases, logs, results, finisher, removal,
        retention, Quotas(database), PendingUploads(database), Registry(database, store), upkeep, relay, mirror,
    )  # fmt: skip
