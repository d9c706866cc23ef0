"""The health of the server, for administrators and monitoring."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from visualprof import __version__
from visualprof.messages import msg
from visualprof.server.api.agents import LOST_AFTER_LEASES
from visualprof.server.job_service import JobServices
from visualprof.server.responses import build_row
from visualprof.server.routes import Resource, get
from visualprof.server.services import Services
from visualprof.server.throttled_cache import ThrottledCache

if TYPE_CHECKING:
    from psutil import Process

MAX_CLOCK_SKEW_NS = 5 * 10**9
SLOW_RESPONSE_NS = 10**9
OLD_BACKUP_DAYS = 7
MIN_FREE_BYTES, MIN_FREE_RATIO = 2 << 30, 0.05  # free space on a disk
MAX_LOAD_PER_CORE = 2  # load average per processor
_MAX_AGE_S, _SIZES_MAX_AGE_S = 5.0, 60.0  # maximum age of the answer and of folder sizes
_MAX_WALK_S = 0.5  # time limit for adding up file sizes; the remaining sizes are unknown
_DAY_NS = 24 * 3600 * 10**9

DiskRole = Literal["logs", "store", "cache"]


class DatabaseHealth(msgspec.Struct):
    """State of the database.

    Attributes:
        kind: Kind of database.
        size_bytes: Size, or null if the database does not report it.
        schema: Schema version of the database.
        known: Schema version that this server expects.
        round_trip_ns: Duration of a query.
    """

    kind: str
    size_bytes: int | None
    schema: str
    known: str
    round_trip_ns: int


class DiskHealth(msgspec.Struct):
    """A folder of the server and its disk.

    Attributes:
        place: Purpose of the folder.
        path: Path of the folder.
        used_bytes: Size of the files in the folder, or null if there are too many to add up.
        free_bytes: Free space on the disk.
        total_bytes: Size of the disk.
    """

    place: DiskRole
    path: str
    used_bytes: int | None
    free_bytes: int
    total_bytes: int


class QueueHealth(msgspec.Struct):
    """State of the job queue.

    Attributes:
        waiting: Number of waiting jobs.
        running: Number of running jobs.
        oldest_ns: Submission time of the job that waits longest, or null if none waits.
    """

    waiting: int
    running: int
    oldest_ns: int | None


class SkewedMachine(msgspec.Struct):
    """A machine with a wrong clock.

    Attributes:
        name: Name of the machine.
        ahead_ns: How far the clock is ahead of the server's clock. Network latency makes the value a little too small.
    """

    name: str
    ahead_ns: int


class MachinesHealth(msgspec.Struct):
    """State of the machines.

    Attributes:
        registered: Number of registered machines.
        online: Number of machines that are online.
        lost: Number of machines without a heartbeat for ten leases.
        skewed: Machines with clocks that differ from the server's clock.
    """

    registered: int
    online: int
    lost: int
    skewed: list[SkewedMachine]


class ProcessHealth(msgspec.Struct, kw_only=True):
    """State of the server's processes and of its machine.

    Attributes:
        server_bytes: Resident memory of this process.
        children: Number of child processes.
        children_bytes: Resident memory of the child processes.
        reading: Number of files that are being parsed.
        unread: Number of files that wait for parsing.
        load: Load average of the last minute, or null if the system does not report it.
        cores: Number of processors.
    """

    server_bytes: int
    children: int
    children_bytes: int
    reading: int
    unread: int
    load: float | None
    cores: int


class ResponseHealth(msgspec.Struct):
    """Responses of this process to users in the last minutes.

    Attributes:
        window_s: Length of the time window.
        count: Number of responses.
        p95_ns: 95th percentile of the response time, or null if there were no responses.
        failed: Number of responses with a server error.
    """

    window_s: int
    count: int
    p95_ns: int | None
    failed: int


class HealthWarning(msgspec.Struct):
    """A problem and how to solve it."""

    error: str
    hint: str


class HealthAnswer(msgspec.Struct, kw_only=True):
    """Health of the server that answers. Behind a proxy there may be further servers.

    Attributes:
        version: Version of visualprof.
        started_ns: Start time of the server.
        asked_ns: Time at which the values were collected.
        database: The database, or null before anything was stored.
        disks: Folders and their disks.
        queue: The job queue, or null before anything was stored.
        machines: The machines that measure.
        processes: Processes of the server.
        answers: Responses of this process.
        backup_ns: Time of the last `visualprof admin backup`, or null if unknown.
        warnings: Current problems.
    """

    version: str
    started_ns: int
    asked_ns: int
    database: DatabaseHealth | None
    disks: list[DiskHealth]
    queue: QueueHealth | None
    machines: MachinesHealth
    processes: ProcessHealth
    answers: ResponseHealth
    backup_ns: int | None
    warnings: list[HealthWarning]


class Health(Resource):
    """The route for the server's health. Expensive values are cached, however many clients ask."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        logdir, job_service = self._logdir, self._job_service
        self._started_ns = time.time_ns()
        folders: list[tuple[DiskRole, Path]] = [("logs", root.path) for root in logdir.roots if not root.address]
        folders.append(("store", job_service.folder))
        folders.append(("cache", logdir.cache.folder))
        self._folders: list[tuple[DiskRole, Path]] = folders
        self._sizes = ThrottledCache(_folder_sizes, _SIZES_MAX_AGE_S)
        self._cached = ThrottledCache(Health._health, _MAX_AGE_S)

    @get("/health", needs="admin")
    def health(self) -> HealthAnswer:
        """Return the health of the server."""
        return self._cached.get(self)

    def _health(self) -> HealthAnswer:
        queue = self._job_service.open_existing()
        health = HealthAnswer(
            version=__version__,
            started_ns=self._started_ns,
            asked_ns=time.time_ns(),
            database=_database_health(queue) if queue else None,
            disks=self._disks(),
            queue=_queue_health(queue) if queue else None,
            machines=self._machines(queue),
            processes=self._processes(),
            answers=build_row(ResponseHealth, self._services.meter.stats()),
            backup_ns=_last_backup(queue) if queue else None,
            warnings=[],
        )
        problem = None if self._job_service.read_only else self._job_service.problem
        health.warnings = [
            *([HealthWarning(*problem)] if problem else []),
            *_machine_warnings(health),
            *_team_warnings(health),
        ]
        return health

    def _disks(self) -> list[DiskHealth]:
        used = self._sizes.get(self._folders)
        return [_disk_health(role, path, used.get(path)) for role, path in self._folders if path.exists()]

    def _machines(self, queue: JobServices | None) -> MachinesHealth:
        lease_s, offsets_ns = self._job_service.intervals.lease_s, queue.agents.clock_offsets_ns if queue else {}
        agents = queue.agents.list_visible() if queue else []
        online = [agent for agent in agents if agent.online(lease_s)]
        lost = sum(not agent.online(LOST_AFTER_LEASES * lease_s) for agent in agents if agent.standing == "works")
        skewed = [
            SkewedMachine(a.name, offsets_ns[a.id]) for a in online if abs(offsets_ns.get(a.id, 0)) > MAX_CLOCK_SKEW_NS
        ]
        return MachinesHealth(len(agents), len(online), lost, skewed)

    def _processes(self) -> ProcessHealth:
        states = [span.state for run in self._logdir.listing().runs for worker in run.workers for span in worker.spans]
        from psutil import Process  # imported by the first request, to start faster

        process = Process()
        children = [size for child in process.children(recursive=True) if (size := _resident_bytes(child)) is not None]
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        return ProcessHealth(
            server_bytes=_resident_bytes(process) or 0,
            children=len(children),
            children_bytes=sum(children),
            reading=states.count("parsing"),
            unread=states.count("waiting"),
            load=load,
            cores=os.cpu_count() or 1,
        )


def _disk_health(role: DiskRole, path: Path, used_bytes: int | None) -> DiskHealth:
    disk = shutil.disk_usage(path)
    return DiskHealth(role, str(path), used_bytes, disk.free, disk.total)


def _database_health(queue: JobServices) -> DatabaseHealth:
    start_ns = time.perf_counter_ns()
    size_bytes, schema, expected = queue.database.status()
    return DatabaseHealth(queue.database.kind, size_bytes, schema, expected, time.perf_counter_ns() - start_ns)


def _queue_health(queue: JobServices) -> QueueHealth:
    return QueueHealth(*queue.jobs.totals())


def _last_backup(queue: JobServices) -> int | None:
    return queue.database.last_backup_ns()


def _resident_bytes(process: Process) -> int | None:
    """Return the resident memory of a process, or `None` if the process has ended."""
    from psutil import Error

    with contextlib.suppress(Error):
        return int(process.memory_info().rss)
    return None


def _folder_sizes(folders: Sequence[tuple[DiskRole, Path]]) -> dict[Path, int]:
    """Return the total file sizes of folders. Folders that take too long are left out."""
    end, sizes = time.monotonic() + _MAX_WALK_S, dict[Path, int]()
    for _, path in folders:
        size = _folder_size(path, end)
        if size is not None:
            sizes[path] = size
    return sizes


def _folder_size(path: Path, end: float) -> int | None:
    """Return the total file size of a folder without the server's own files, or `None` after the time limit."""
    total, folders = 0, [os.fspath(path)]
    while folders:
        if time.monotonic() > end:
            return None
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders += [] if entry.name == ".visualprof" else [entry.path]
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def _machine_warnings(health: HealthAnswer) -> Iterator[HealthWarning]:
    """Yield warnings about the server's own machine and database."""
    for disk in health.disks:
        min_bytes = max(MIN_FREE_RATIO * disk.total_bytes, min(MIN_FREE_BYTES, disk.total_bytes / 2))
        if disk.free_bytes < min_bytes:
            free_space = msg("server.gb", f"{disk.free_bytes / 1e9:,.1f} of {disk.total_bytes / 1e9:,.1f} GB")
            hint = msg(
                "server.free_some_space_there", "free some space there, or delete jobs earlier (retention rules)"
            )
            yield HealthWarning(
                msg("server.disk_nearly_full_left", f"the disk of {disk.path} is nearly full: {free_space} are left"),
                hint,
            )
    load, cores = health.processes.load, health.processes.cores
    if load is not None and load > MAX_LOAD_PER_CORE * cores:
        hint = msg(
            "server.end_other_programs_there", "stop other programs there, or run the server on a separate machine"
        )
        yield HealthWarning(
            msg(
                "server.servers_machine_busy_processes",
                f"the server's machine is busy: load {load:.1f} on {cores} processors",
            ),
            hint,
        )
    database = health.database
    if database and database.schema != database.known:
        hint = msg("server.start_all_servers_database", "start all servers of this database with the same version")
        yield HealthWarning(
            msg(
                "server.database_schema_server_knows",
                f"the database has schema {database.schema}, but this server expects {database.known}",
            ),
            hint,
        )


def _team_warnings(health: HealthAnswer) -> Iterator[HealthWarning]:
    """Yield warnings about the machines that measure, the responses and the backups."""
    for machine in health.machines.skewed:
        offset = f"{machine.ahead_ns / 1e9:+,.0f} s"
        yield HealthWarning(
            msg("server.clock_differs", f"the clock of {machine.name} differs by {offset}"),
            msg("server.follow_time_server_ntp", "synchronize it with a time server (NTP)"),
        )
    if health.machines.lost:
        hint = msg(
            "server.see_machines_page_start", "restart their agents, or delete the machines on the Machines page"
        )
        yield HealthWarning(
            msg("server.machines_probably_lost", f"machines that are probably lost: {health.machines.lost}"), hint
        )
    answers = health.answers
    if answers.p95_ns is not None and answers.p95_ns > SLOW_RESPONSE_NS:
        hint = msg("server.see_how_busy_machine", "check the load of the machine, its disk and the database")
        yield HealthWarning(
            msg(
                "server.answers_slow_one_twenty",
                f"responses are slow: one in twenty takes {answers.p95_ns / 1e9:.1f} s or more",
            ),
            hint,
        )
    if answers.failed:
        yield HealthWarning(
            msg(
                "server.answers_failed_minutes",
                f"responses that failed in the last {answers.window_s // 60} minutes: {answers.failed}",
            ),
            msg("server.see_servers_log", "see the server's log"),
        )
    if health.backup_ns is not None and (days := (health.asked_ns - health.backup_ns) // _DAY_NS) >= OLD_BACKUP_DAYS:
        yield HealthWarning(
            msg("server.last_backup_known_days", f"the last known backup is {days} days old"),
            msg("server.visualprof_admin_backup_file", "run visualprof admin backup FILE once a day"),
        )
