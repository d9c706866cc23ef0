"""Whether the server is well, for administrators and for monitoring."""

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
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.server.api.agents import LOST_AFTER_LEASES
from visualprof.server.job_service import JobService, JobServices
from visualprof.server.latency import LatencyMeter
from visualprof.server.responses import build_row
from visualprof.server.routes import Resource, get
from visualprof.server.throttled_cache import ThrottledCache

if TYPE_CHECKING:
    from psutil import Process

MAX_CLOCK_SKEW_NS = 5 * 10**9
SLOW_RESPONSE_NS = 10**9
OLD_BACKUP_DAYS = 7
MIN_FREE_BYTES, MIN_FREE_RATIO = 2 << 30, 0.05  # free, on a disk
MAX_LOAD_PER_CORE = 2  # processes that want a processor, for each there is
_MAX_AGE_S, _SIZES_MAX_AGE_S = 5.0, 60.0  # how old the answer and the sizes of folders may be
_MAX_WALK_S = 0.5  # of adding up files; a folder that takes longer is of unknown size
_DAY_NS = 24 * 3600 * 10**9

DiskRole = Literal["logs", "store", "cache"]


class DatabaseHealth(msgspec.Struct):
    """size_bytes: null where it is not told. schema: what it has, and known: what this program would make."""

    kind: str
    size_bytes: int | None
    schema: str
    known: str
    round_trip_ns: int


class DiskHealth(msgspec.Struct):
    """A folder of the server's. used_bytes: by files below it, null where they are too many to add up."""

    place: DiskRole
    path: str
    used_bytes: int | None
    free_bytes: int
    total_bytes: int


class QueueHealth(msgspec.Struct):
    """Jobs. oldest_ns: when the one that waits the longest was submitted, null without one."""

    waiting: int
    running: int
    oldest_ns: int | None


class SkewedMachine(msgspec.Struct):
    """A machine whose clock differs. ahead_ns: of the server's; the way of the message makes it a little less."""

    name: str
    ahead_ns: int


class MachinesHealth(msgspec.Struct):
    """Machines that are registered, there, and not heard of for ten leases; and those whose clocks differ."""

    registered: int
    online: int
    lost: int
    skewed: list[SkewedMachine]


class ProcessHealth(msgspec.Struct, kw_only=True):
    """server_bytes: resident memory of this process; of those that it started: children, children_bytes.

    reading, unread: files that are being read, and that wait for it. load: processes that wanted a processor in the
    last minute, null where the system does not tell; cores: processors.
    """

    server_bytes: int
    children: int
    children_bytes: int
    reading: int
    unread: int
    load: float | None
    cores: int


class ResponseHealth(msgspec.Struct):
    """Answers of this process to people in the last minutes. failed: with an error of the server's own."""

    window_s: int
    count: int
    p95_ns: int | None
    failed: int


class HealthWarning(msgspec.Struct):
    """What is wrong, and what to do."""

    error: str
    hint: str


class HealthAnswer(msgspec.Struct, kw_only=True):
    """Of the server that answers; behind a proxy others may be, too. database, queue: null before anything was kept.

    backup_ns: the last that `visualprof admin backup` made, null when none is known.
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
    """The route over everything that may go wrong. What takes time is asked seldom, however many want to know."""

    def __init__(self, logdir: LogDirectory, job_service: JobService, meter: LatencyMeter) -> None:
        self._logdir, self._job_service, self._meter = logdir, job_service, meter
        self._started_ns = time.time_ns()
        folders: list[tuple[DiskRole, Path]] = [("logs", root.path) for root in logdir.roots if not root.address]
        folders.append(("store", job_service.folder))
        folders.append(("cache", logdir.cache.folder))
        self._places: list[tuple[DiskRole, Path]] = folders
        self._sizes = ThrottledCache(_folder_sizes, _SIZES_MAX_AGE_S)
        self._lately = ThrottledCache(Health._health, _MAX_AGE_S)

    @get("/health", needs="admin")
    def health(self) -> HealthAnswer:
        """Whether the server is well."""
        return self._lately.get(self)

    def _health(self) -> HealthAnswer:
        queue = self._job_service.open_existing()
        found = HealthAnswer(
            version=__version__,
            started_ns=self._started_ns,
            asked_ns=time.time_ns(),
            database=_database_health(queue) if queue else None,
            disks=self._disks(),
            queue=_queue_health(queue) if queue else None,
            machines=self._machines(queue),
            processes=self._processes(),
            answers=build_row(ResponseHealth, self._meter.stats()),
            backup_ns=_last_backup(queue) if queue else None,
            warnings=[],
        )
        problem = None if self._job_service.read_only else self._job_service.problem
        found.warnings = [
            *([HealthWarning(*problem)] if problem else []),
            *_machine_warnings(found),
            *_team_warnings(found),
        ]
        return found

    def _disks(self) -> list[DiskHealth]:
        used = self._sizes.get(self._places)
        return [_disk_health(place, path, used.get(path)) for place, path in self._places if path.exists()]

    def _machines(self, queue: JobServices | None) -> MachinesHealth:
        lease_s, ahead = self._job_service.intervals.lease_s, queue.agents.clock_offsets_ns if queue else {}
        known = queue.agents.list_visible() if queue else []
        online = [agent for agent in known if agent.online(lease_s)]
        lost = sum(not agent.online(LOST_AFTER_LEASES * lease_s) for agent in known if agent.standing == "works")
        skewed = [SkewedMachine(a.name, ahead[a.id]) for a in online if abs(ahead.get(a.id, 0)) > MAX_CLOCK_SKEW_NS]
        return MachinesHealth(len(known), len(online), lost, skewed)

    def _processes(self) -> ProcessHealth:
        states = [span.state for run in self._logdir.listing().runs for worker in run.workers for span in worker.spans]
        from psutil import Process  # by the first who asks, not by every start

        me = Process()
        children = [size for child in me.children(recursive=True) if (size := _resident_bytes(child)) is not None]
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        return ProcessHealth(
            server_bytes=_resident_bytes(me) or 0,
            children=len(children),
            children_bytes=sum(children),
            reading=states.count("parsing"),
            unread=states.count("waiting"),
            load=load,
            cores=os.cpu_count() or 1,
        )


def _disk_health(place: DiskRole, path: Path, used_bytes: int | None) -> DiskHealth:
    disk = shutil.disk_usage(path)
    return DiskHealth(place, str(path), used_bytes, disk.free, disk.total)


def _database_health(queue: JobServices) -> DatabaseHealth:
    begun = time.perf_counter_ns()
    size_bytes, schema, known = queue.database.status()
    return DatabaseHealth(queue.database.kind, size_bytes, schema, known, time.perf_counter_ns() - begun)


def _queue_health(queue: JobServices) -> QueueHealth:
    return QueueHealth(*queue.jobs.totals())


def _last_backup(queue: JobServices) -> int | None:
    return queue.database.last_backup_ns()


def _resident_bytes(process: Process) -> int | None:
    """Bytes of a process; None for one that has ended meanwhile."""
    from psutil import Error

    with contextlib.suppress(Error):
        return int(process.memory_info().rss)
    return None


def _folder_sizes(places: Sequence[tuple[DiskRole, Path]]) -> dict[Path, int]:
    """Bytes of the files below folders, as far as they can be added up in a moment."""
    end, sizes = time.monotonic() + _MAX_WALK_S, dict[Path, int]()
    for _, path in places:
        size = _folder_size(path, end)
        if size is not None:
            sizes[path] = size
    return sizes


def _folder_size(path: Path, end: float) -> int | None:
    """None when the time is over before. What the server keeps in a log directory is not of that."""
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


def _machine_warnings(found: HealthAnswer) -> Iterator[HealthWarning]:
    """What is wrong with the machine that the server runs on."""
    for disk in found.disks:
        least = max(MIN_FREE_RATIO * disk.total_bytes, min(MIN_FREE_BYTES, disk.total_bytes / 2))
        if disk.free_bytes < least:
            left = msg("server.gb", f"{disk.free_bytes / 1e9:,.1f} of {disk.total_bytes / 1e9:,.1f} GB")
            hint = msg(
                "server.free_some_space_there", "free some space there, or remove jobs sooner (rules of retention)"
            )
            yield HealthWarning(
                msg("server.disk_nearly_full_left", f"the disk of {disk.path} is nearly full: {left} are left"), hint
            )
    load, cores = found.processes.load, found.processes.cores
    if load is not None and load > MAX_LOAD_PER_CORE * cores:
        hint = msg(
            "server.end_other_programs_there", "end other programs there, or give the server a machine of its own"
        )
        yield HealthWarning(
            msg(
                "server.servers_machine_busy_processes",
                f"the server's machine is busy: {load:.1f} processes want its {cores} processors",
            ),
            hint,
        )
    database = found.database
    if database and database.schema != database.known:
        hint = msg("server.start_all_servers_database", "start all servers of this database with the same version")
        yield HealthWarning(
            msg(
                "server.database_schema_server_knows",
                f"the database has schema {database.schema}, and this server knows {database.known}",
            ),
            hint,
        )


def _team_warnings(found: HealthAnswer) -> Iterator[HealthWarning]:
    """What is wrong with the machines that measure, and with what people get."""
    for machine in found.machines.skewed:
        ahead = f"{machine.ahead_ns / 1e9:+,.0f} s"
        yield HealthWarning(
            msg("server.clock_differs", f"the clock of {machine.name} differs: {ahead}"),
            msg("server.follow_time_server_ntp", "have it follow a time server (NTP)"),
        )
    if found.machines.lost:
        hint = msg(
            "server.see_machines_page_start", "see the Machines page: start their agents again, or remove them there"
        )
        yield HealthWarning(
            msg("server.machines_probably_lost", f"machines that are probably lost: {found.machines.lost}"), hint
        )
    answers = found.answers
    if answers.p95_ns is not None and answers.p95_ns > SLOW_RESPONSE_NS:
        hint = msg("server.see_how_busy_machine", "see how busy the machine, its disk and the database are")
        yield HealthWarning(
            msg(
                "server.answers_slow_one_twenty",
                f"answers are slow: one in twenty takes {answers.p95_ns / 1e9:.1f} s or more",
            ),
            hint,
        )
    if answers.failed:
        yield HealthWarning(
            msg(
                "server.answers_failed_minutes",
                f"answers that failed in {answers.window_s // 60} minutes: {answers.failed}",
            ),
            msg("server.see_servers_log", "see the server's log"),
        )
    if found.backup_ns is not None and (days := (found.asked_ns - found.backup_ns) // _DAY_NS) >= OLD_BACKUP_DAYS:
        yield HealthWarning(
            msg("server.last_backup_known_days", f"the last backup that is known is {days} days old"),
            msg("server.visualprof_admin_backup_file", "visualprof admin backup FILE, once a day"),
        )
