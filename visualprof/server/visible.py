"""What the log directories and the queue hold, as far as whoever asks may see it; without accounts all of it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from visualprof.errors import Forbidden
from visualprof.messages import msg
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.listing import Changes, Listing
from visualprof.remote.protocol import Intervals
from visualprof.remote.queue.service import JobService
from visualprof.remote.queue.store.records import Agent, Job
from visualprof.server.identity import current_principal
from visualprof.server.job_service import JobServices

if TYPE_CHECKING:
    from visualprof.accounts.service import Accounts

_MAX_VIEWERS = 256  # people

PathFilter = Callable[[str], bool]
T = TypeVar("T")


class RevisionTracker:
    """Which revision each person was told last, and how far nothing that they may see has changed since.

    They are told no other one before that: the work of others does not show in a number.
    """

    def __init__(self) -> None:
        self._of = _PerViewer[tuple[int, int]]()

    def start_revision(self, viewer: str | None, since: int) -> int:
        """From which revision on changes are to be looked at for whoever knows that one."""
        told, until = self._of.get(viewer) or (since, since)
        return until if told == since else since

    def revision(self, viewer: str | None, since: int | None, now: int, changed: bool) -> int:
        """What they are told at the revision `now`. changed: something is new for them."""
        told = now if changed or since is None or viewer is None else since
        self._of.keep(viewer, (told, now))
        return told


class ListSnapshot:
    """The list that each person saw last, with the revision which they were told: it stays while the list does."""

    def __init__(self) -> None:
        self._of = _PerViewer[tuple[Sequence[object], int]]()

    def revision(self, viewer: str | None, things: Sequence[object], now: int) -> int:
        """What somebody is told of a list as it is at the revision `now`."""
        before = self._of.get(viewer)
        if before is None or before[0] != things:
            before = things, now
        self._of.keep(viewer, before)
        return before[1]


class _PerViewer(Generic[T]):
    """Something of each of those who asked lately; of who sees everything nothing is kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: OrderedDict[str, T] = OrderedDict()

    def get(self, viewer: str | None) -> T | None:
        return None if viewer is None else self._of.get(viewer)

    def keep(self, viewer: str | None, what: T) -> None:
        if viewer is not None:
            with self._lock:
                self._of[viewer] = what
                self._of.move_to_end(viewer)
                if len(self._of) > _MAX_VIEWERS:
                    self._of.popitem(last=False)


class Visible:
    """What the present request may see.

    accounts: None where there are none.
    """

    def __init__(self, logdir: LogDirectory, job_service: JobService, accounts: Accounts | None) -> None:
        self._logdir, self._job_service, self.accounts = logdir, job_service, accounts
        self._filters = lru_cache(_MAX_VIEWERS)(self._filter_for)
        self._listings = lru_cache(_MAX_VIEWERS)(self._listing_for)
        self._revisions, self._snapshots = RevisionTracker(), ListSnapshot()
        self._shared = (-1, -1)  # the latest revision of what is shared, and that of the log directories it came with

    @property
    def version(self) -> tuple[str | None, int]:
        """Differs between people who may see different things, and when that changes."""
        viewer = current_principal().viewer
        return viewer, 0 if viewer is None or self.accounts is None else self.accounts.sharing.revision()

    def listing(self) -> Listing:
        """The runs. Files that are skipped are nobody's run, and shown to administrators."""
        viewer, shared = self.version
        return self._logdir.listing() if viewer is None else self._listings(self._logdir.revision, viewer, shared)

    def changes(self, since: int | None) -> Changes:
        """What changed since a revision: everything, where it changed who may see what."""
        viewer, revision = self.version
        if viewer is None:
            return self._logdir.changes(since)
        if self._shared[0] != revision:
            self._shared = revision, self._logdir.bump_revision()
        since = None if since is None or since < self._shared[1] else since
        now = self._logdir.changes(since if since is None else self._revisions.start_revision(viewer, since))
        since = since if now.since is not None else None
        rule = self.can_see  # asked for after the runs: what says who may see one is there before it
        runs = tuple(run for run in now.runs if rule(run.id))
        removed = tuple(run for run in now.removed if rule(run))
        told = self._revisions.revision(viewer, since, now.revision, bool(runs or removed))
        return Changes(told, since, runs, removed, None if since is not None else ())

    @property
    def queue(self) -> JobServices:
        """That of the first log directory.

        Raises: VisualprofError: it cannot be opened.
        """
        return self._job_service.open()

    @property
    def can_see(self) -> PathFilter:
        """Tell whether whoever asks may see a run, or a file of the log directories, as they are called towards users.

        By a link to a run the files in its folder are not seen by their own names, but as the run's.
        """
        viewer, shared = self.version
        return (lambda _: True) if viewer is None else self._filters(viewer, shared)

    def sharing_key(self, path: str) -> str:
        """What a run is called where its sharing is kept: that outlives other log directories beside its own."""
        home = self._logdir.home
        for root in self._logdir.roots:
            if root != home and (path == root.prefix or path.startswith(f"{root.prefix}/")):
                return f"{root.address or root.path}/{path.removeprefix(root.prefix)}"
        return path.removeprefix(home.prefix).lstrip("/") or "." if home.prefix else path

    def job(self, queue: JobServices, job: str) -> Job:
        """A job.

        Raises: NotFound: also when it is another's.
        """
        return queue.jobs.get(job, current_principal().viewer)

    def changeable_job(self, queue: JobServices, job: str) -> str:
        """A job that whoever asks may change; its id.

        Raises: NotFound. Forbidden: it is another's, which they may see.
        """
        principal = current_principal()
        if principal.viewer is not None and self.job(queue, job).owner != principal.user:
            raise Forbidden(
                msg("server.only_whoever_submitted_job", "only whoever submitted a job and administrators change it")
            )
        return job

    def has_upload(self, sha256: str) -> bool:
        """Did whoever asks upload this file? Knowing its sha256 opens nothing."""
        return current_principal().viewer is None or self.upload_name(sha256) is not None

    def upload_name(self, sha256: str) -> str | None:
        """By which whoever asks uploaded a file; None where they did not."""
        queue = self._job_service.open_existing()
        return queue.blobs.names([sha256], current_principal().viewer).get(sha256) if queue else None

    def check_upload_quota(self, more: int) -> None:
        """Before an upload. more: its bytes, and others of whoever asks that the queue does not know.

        Raises: QuotaExceeded: they may not have so many.
        """
        user = current_principal().user
        if user is not None:
            self._job_service.open().quotas.check_upload(user, more)

    def _filter_for(self, viewer: str, shared: int) -> PathFilter:
        """Of whoever asks now. viewer, shared: their version."""
        del shared
        scope = current_principal().scope
        if scope is not None:
            return lambda path: self.sharing_key(path) == scope
        assert self.accounts  # without them everybody sees all
        of_keys = self.accounts.sharing.visibility_filter(viewer)
        return lambda path: of_keys(self.sharing_key(path))

    def _listing_for(self, revision: int, viewer: str, shared: int) -> Listing:
        """Of whoever asks now, at that revision or, where it has grown meanwhile, at a later one."""
        del revision, shared
        now = self._logdir.listing()
        rule = self.can_see  # see `changes`
        runs = tuple(run for run in now.runs if rule(run.id))
        return Listing(self._snapshots.revision(viewer, runs, now.revision), runs, ())


class ScopedQueueView:
    """The files and machines that whoever asks may name in a job. Has the shape of `check.job.Known`."""

    def __init__(self, job_service: JobService, visible: Visible) -> None:
        self._job_service, self._visible = job_service, visible

    def inspection(self, sha256: str) -> dict[str, Any] | None:
        """What inspection found in a file, under the name of whoever asks; None also for another's."""
        if current_principal().viewer is None:
            return self._job_service.inspection(sha256)
        name = self._visible.upload_name(sha256)
        found = self._job_service.inspection(sha256) if name else None
        return found and {**found, "name": name}

    def agents(self) -> list[Agent]:
        """The machines. An administrator sees others' private ones, but they do not work for them."""
        return self._job_service.agents(current_principal().user)

    @property
    def urgent(self) -> bool:
        """Administrators decide what is more urgent than the work of others."""
        return current_principal().may("admin")

    @property
    def intervals(self) -> Intervals:
        """Who was not heard of for a lease is not there."""
        return self._job_service.intervals
