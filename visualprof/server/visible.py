"""Restrict log directories and the queue to the data that the current request may see; without accounts, all data."""

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

_MAX_VIEWERS = 256

PathFilter = Callable[[str], bool]
T = TypeVar("T")


class RevisionTracker:
    """The revision that each viewer last received, and the revision up to which the viewer sees no change.

    Viewers receive no newer revision before a visible change, so other users' activity does not show in the number.
    """

    def __init__(self) -> None:
        self._of = _PerViewer[tuple[int, int]]()

    def start_revision(self, viewer: str | None, since: int) -> int:
        """Return the revision from which changes must be examined for a viewer who has the revision `since`."""
        revision, until = self._of.get(viewer) or (since, since)
        return until if revision == since else since

    def revision(self, viewer: str | None, since: int | None, now: int, changed: bool) -> int:
        """Return the revision that a viewer receives when the list is at the revision `now`.

        Args:
            viewer: The viewer, `None` if everything is visible.
            since: The revision that the viewer has, `None` for none.
            now: The current revision.
            changed: Whether something visible to the viewer has changed.
        """
        revision = now if changed or since is None or viewer is None else since
        self._of.keep(viewer, (revision, now))
        return revision


class ListSnapshot:
    """The list that each viewer last received, with its revision. The revision stays the same while the list does."""

    def __init__(self) -> None:
        self._of = _PerViewer[tuple[Sequence[object], int]]()

    def revision(self, viewer: str | None, things: Sequence[object], now: int) -> int:
        """Return the revision that a viewer receives for a list, which is at the revision `now`."""
        before = self._of.get(viewer)
        if before is None or before[0] != things:
            before = things, now
        self._of.keep(viewer, before)
        return before[1]


class _PerViewer(Generic[T]):
    """A value per recent viewer. Nothing is stored for viewers who see everything."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: OrderedDict[str, T] = OrderedDict()

    def get(self, viewer: str | None) -> T | None:
        return None if viewer is None else self._of.get(viewer)

    def keep(self, viewer: str | None, value: T) -> None:
        if viewer is not None:
            with self._lock:
                self._of[viewer] = value
                self._of.move_to_end(viewer)
                if len(self._of) > _MAX_VIEWERS:
                    self._of.popitem(last=False)


class Visible:
    """The data that the current request may see. `accounts` is `None` on a server without accounts."""

    def __init__(self, logdir: LogDirectory, job_service: JobService, accounts: Accounts | None) -> None:
        self._logdir, self._job_service, self.accounts = logdir, job_service, accounts
        self._filters = lru_cache(_MAX_VIEWERS)(self._filter_for)
        self._listings = lru_cache(_MAX_VIEWERS)(self._listing_for)
        self._revisions, self._snapshots = RevisionTracker(), ListSnapshot()
        self._shared = (-1, -1)  # latest revision of sharing, and the log directories' revision at that time

    @property
    def version(self) -> tuple[str | None, int]:
        """Return the viewer and the revision of sharing. Requests with the same version see the same data."""
        viewer = current_principal().viewer
        return viewer, 0 if viewer is None or self.accounts is None else self.accounts.sharing.revision()

    def listing(self) -> Listing:
        """Return the visible runs. Skipped files belong to no run, so only administrators see them."""
        viewer, shared = self.version
        return self._logdir.listing() if viewer is None else self._listings(self._logdir.revision, viewer, shared)

    def changes(self, since: int | None) -> Changes:
        """Return the changes since a revision, or everything if visibility has changed since then."""
        viewer, revision = self.version
        if viewer is None:
            return self._logdir.changes(since)
        if self._shared[0] != revision:
            self._shared = revision, self._logdir.bump_revision()
        since = None if since is None or since < self._shared[1] else since
        now = self._logdir.changes(since if since is None else self._revisions.start_revision(viewer, since))
        since = since if now.since is not None else None
        rule = self.can_see  # after the runs, because sharing of a run is stored before the run appears
        runs = tuple(run for run in now.runs if rule(run.id))
        removed = tuple(run for run in now.removed if rule(run))
        shown_revision = self._revisions.revision(viewer, since, now.revision, bool(runs or removed))
        return Changes(shown_revision, since, runs, removed, None if since is not None else ())

    @property
    def queue(self) -> JobServices:
        """Return the queue of the first log directory.

        Raises:
            VisualprofError: The queue cannot be opened.
        """
        return self._job_service.open()

    @property
    def can_see(self) -> PathFilter:
        """Return a predicate that decides whether the current viewer may see a run or a file, by its public path.

        A link to a run shows the files in its folder as part of the run, not under their own paths.
        """
        viewer, shared = self.version
        return (lambda _: True) if viewer is None else self._filters(viewer, shared)

    def sharing_key(self, path: str) -> str:
        """Return the key under which the sharing of a run is stored.

        The key stays valid when other log directories are added.
        """
        home = self._logdir.home
        for root in self._logdir.roots:
            if root != home and (path == root.prefix or path.startswith(f"{root.prefix}/")):
                return f"{root.address or root.path}/{path.removeprefix(root.prefix)}"
        return path.removeprefix(home.prefix).lstrip("/") or "." if home.prefix else path

    def job(self, queue: JobServices, job: str) -> Job:
        """Return a job.

        Raises:
            NotFound: There is no such job, or it belongs to another user.
        """
        return queue.jobs.get(job, current_principal().viewer)

    def changeable_job(self, queue: JobServices, job: str) -> str:
        """Return the id of a job that the current user may change.

        Raises:
            NotFound: There is no such job, or the user cannot see it.
            Forbidden: The user can see the job, but it belongs to another user.
        """
        principal = current_principal()
        if principal.viewer is not None and self.job(queue, job).owner != principal.user:
            raise Forbidden(
                msg(
                    "server.only_whoever_submitted_job",
                    "only the user who submitted a job and administrators can change it",
                )
            )
        return job

    def has_upload(self, sha256: str) -> bool:
        """Whether the current user uploaded this file. Knowing its SHA-256 gives no access."""
        return current_principal().viewer is None or self.upload_name(sha256) is not None

    def upload_name(self, sha256: str) -> str | None:
        """Return the name under which the current user uploaded a file; `None` if the user did not."""
        queue = self._job_service.open_existing()
        return queue.blobs.names([sha256], current_principal().viewer).get(sha256) if queue else None

    def check_upload_quota(self, more: int) -> None:
        """Check that the current user may upload a file.

        Args:
            more: Bytes of the file and of the user's other uploads that the queue does not know yet.

        Raises:
            QuotaExceeded: The upload exceeds the user's quota.
        """
        user = current_principal().user
        if user is not None:
            self._job_service.open().quotas.check_upload(user, more)

    def _filter_for(self, viewer: str, shared: int) -> PathFilter:
        """Return the path filter of the current viewer; `viewer` and `shared` are the viewer's version."""
        del shared
        scope = current_principal().scope
        if scope is not None:
            return lambda path: self.sharing_key(path) == scope
        assert self.accounts  # without accounts every viewer sees everything
        key_filter = self.accounts.sharing.visibility_filter(viewer)
        return lambda path: key_filter(self.sharing_key(path))

    def _listing_for(self, revision: int, viewer: str, shared: int) -> Listing:
        """Return the list for the current viewer at this revision, or at a later one if runs were added meanwhile."""
        del revision, shared
        now = self._logdir.listing()
        rule = self.can_see  # see `changes`
        runs = tuple(run for run in now.runs if rule(run.id))
        return Listing(self._snapshots.revision(viewer, runs, now.revision), runs, ())


class ScopedQueueView:
    """The files and machines that the current user may name in a job. Implements `check.job.Known`."""

    def __init__(self, job_service: JobService, visible: Visible) -> None:
        self._job_service, self._visible = job_service, visible

    def inspection(self, sha256: str) -> dict[str, Any] | None:
        """Return the inspection of a file, under the user's name for it; `None` if another user uploaded the file."""
        if current_principal().viewer is None:
            return self._job_service.inspection(sha256)
        name = self._visible.upload_name(sha256)
        inspection = self._job_service.inspection(sha256) if name else None
        return inspection and {**inspection, "name": name}

    def agents(self) -> list[Agent]:
        """Return the machines. Administrators also see private machines of others, which do not run their jobs."""
        return self._job_service.agents(current_principal().user)

    @property
    def urgent(self) -> bool:
        """Whether the user may raise priorities; only administrators decide which work is more urgent."""
        return current_principal().may("admin")

    @property
    def intervals(self) -> Intervals:
        """Return the intervals of agents. An agent without a heartbeat for the length of a lease counts as offline."""
        return self._job_service.intervals
