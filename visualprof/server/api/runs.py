"""The status of the server, the runs in the log directories, and their changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, cast

import msgspec
from flask import Response
from msgspec import Meta

from visualprof import __version__
from visualprof.errors import Forbidden
from visualprof.messages import msg
from visualprof.reader import native
from visualprof.reader.logdir import listing
from visualprof.reader.logdir.scan import Problem
from visualprof.server.api.session import CurrentUser, current_user
from visualprof.server.identity import current_principal
from visualprof.server.responses import VersionedResponse
from visualprof.server.routes import READ_ONLY_ERROR, Query, Resource, get, mutation
from visualprof.server.services import Services
from visualprof.views import RunView, all_views
from visualprof.views.answers.encoding import encode

# Fields of a span that are known after parsing, with their values before.
_UNPARSED_DEFAULTS: dict[str, Any] = {
    "framework": None,
    "events": None,
    "duration_ns": None,
    "steps": (),
    "views": (),
    "warnings": (),
}


class Status(msgspec.Struct, kw_only=True):
    """Status of the server.

    Attributes:
        version: Version of visualprof.
        native_reader: `yes (x86_64)` if the native reader is in use, or `no: ` and the reason.
        language: Language of the web UI, or null if the browser decides.
        read_only: Whether the server rejects changes.
        private: Whether reading also needs the session's token.
        demo: Whether the server shows the samples of `visualprof demo`.
        logdirs: Log directories. Empty for requests with a share link.
        watching: How changes of files are detected.
        person: Current user, or null without accounts or login.
        link_ends_ns: Time at which the request's share link expires, or null without a link.
    """

    version: str
    native_reader: str
    language: str | None
    read_only: bool
    private: bool
    demo: bool
    logdirs: list[str]
    watching: Literal["events", "polling"]
    person: CurrentUser | None
    link_ends_ns: int | None


class Span(msgspec.Struct):
    """One file. Values that are unknown before parsing are null or an empty list."""

    id: str
    name: str
    file: str
    size_bytes: int
    modified_ns: int
    state: listing.State
    progress: float
    format: str | None
    framework: str | None
    events: int | None
    duration_ns: int | None
    steps: list[str]
    views: list[str]
    warnings: list[str]
    error: str | None
    hint: str | None


class Worker(msgspec.Struct):
    """One process of a run."""

    id: str
    name: str
    rank: int | None
    spans: list[Span]


class Run(msgspec.Struct, kw_only=True):
    """The recordings of processes that ran together.

    Attributes:
        id: Id of the run.
        name: Name of the run.
        frameworks: Frameworks of the recordings.
        modified_ns: Time of the last change.
        live: Whether processes of the run listen or listened (see `/live`).
        series: Whether the run has step durations (see `/live/steps`).
        data: Whether the run has run data (see `/data/tags`).
        workers: Processes with recordings, empty before the first recording.
    """

    id: str
    name: str
    frameworks: list[str]
    modified_ns: int
    live: bool
    series: bool
    data: bool
    workers: list[Worker]


class SkippedFile(msgspec.Struct):
    """A file that looks like a profile or a model, but has another format or cannot be read."""

    file: str
    error: str
    hint: str | None


class RunsAnswer(msgspec.Struct):
    """The contents of the log directories."""

    revision: int
    runs: list[Run]
    skipped: list[SkippedFile]


class ChangesQuery(Query):
    """The revision that the client already has, and the run that it shows."""

    since: Annotated[int, Meta(ge=0, le=2**53, description="revision of an earlier answer")] | None = None
    shown: Annotated[str, Meta(description="id of the run that the client shows; its files are read first")] = ""


class ChangesAnswer(msgspec.Struct):
    """The changes since a revision.

    Attributes:
        revision: The current revision.
        since: Revision to which the changes apply. Null if `runs` holds all runs: no revision was given, or the
            revision is too old.
        runs: New and changed runs.
        removed: Ids of removed runs.
        skipped: Skipped files, or null if they did not change.
    """

    revision: int
    since: int | None
    runs: list[Run]
    removed: list[str]
    skipped: list[SkippedFile] | None


class Runs(Resource):
    """The routes for the server's status and the runs."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._latest = VersionedResponse()
        self._encoded: dict[str, tuple[listing.Run, msgspec.Raw]] = {}

    @get("/status", needs="link")
    def status(self) -> Status:
        """Return the status of the server."""
        principal = current_principal()
        roots = [] if principal.scope is not None else [root.address or str(root.path) for root in self._logdir.roots]
        watching = "events" if self._logdir.watching == "events" else "polling"
        return Status(
            version=__version__,
            native_reader=native.describe_state(),
            language=self._settings.web.language or None,
            read_only=self._settings.access.read_only,
            private=self._settings.access.private,
            demo=self._settings.web.demo,
            logdirs=roots,
            watching=watching,
            person=current_user(principal),
            link_ends_ns=principal.ends_ns,
        )

    @get("/runs", needs="link")
    def runs(self) -> RunsAnswer | Response:
        """List every run, worker and span."""
        listing = self._visible.listing()
        return self._latest.answer(
            (listing.revision, self._visible.version),
            lambda: RunsAnswer(listing.revision, self._all(listing), _skipped(listing.skipped)),
        )

    @get("/runs/changes", needs="link")
    def changes(self, query: ChangesQuery) -> ChangesAnswer:
        """Return the changes of the runs since a revision. The files of the `shown` run are read first."""
        if query.shown and self._visible.can_see(query.shown):
            self._logdir.set_active_run(query.shown)
        changes = self._visible.changes(query.since)
        runs = self._all(changes) if changes.since is None else self._rows(changes.runs)
        skipped = None if changes.skipped is None else _skipped(changes.skipped)
        return ChangesAnswer(changes.revision, changes.since, runs, list(changes.removed), skipped)

    @mutation("POST", "/reload", status=204, errors=READ_ONLY_ERROR)
    def reload(self) -> None:
        """Scan the log directories again."""
        if self._settings.access.read_only:
            raise Forbidden(
                msg("server.server_read_only", "the server is read-only"),
                msg("server.start_without_read_only", "start it without --read-only"),
            )
        self._services.reader.forget_failures()
        self._logdir.retry_failed()
        self._logdir.rescan()

    def _all(self, listing_or_changes: listing.Listing | listing.Changes) -> list[Run]:
        """Return all runs as rows, and drop the cached rows of removed runs."""
        rows = self._rows(listing_or_changes.runs)
        cached = self._encoded
        if len(cached) > len(listing_or_changes.runs):
            self._encoded = {run.id: cached[run.id] for run in listing_or_changes.runs if run.id in cached}
        return rows

    def _rows(self, runs: Iterable[listing.Run]) -> list[Run]:
        """Return runs as rows. Each run is encoded once."""
        rows: list[msgspec.Raw] = []
        for run in runs:
            cached = self._encoded.get(run.id)
            if cached is None or cached[0] is not run:
                cached = self._encoded[run.id] = run, msgspec.Raw(encode(_run_row(run)))
            rows.append(cached[1])
        return cast("list[Run]", rows)


def _skipped(problems: Iterable[Problem]) -> list[SkippedFile]:
    return [SkippedFile(problem.file, problem.error, problem.hint or None) for problem in problems]


def _run_row(run: listing.Run) -> Run:
    names = [worker.id for worker in run.workers]
    run_views = tuple(v.name for v in all_views() if isinstance(v, RunView) and v.is_in_run(names, has_data=False))
    workers = [
        Worker(
            worker.id,
            worker.id,
            worker.rank if worker.rank >= 0 else None,
            [_span_row(span, run_views) for span in worker.spans],
        )
        for worker in run.workers
    ]
    frameworks = {span.framework for worker in workers for span in worker.spans if span.framework}
    extras = run.extras
    return Run(
        id=run.id,
        name=run.name,
        frameworks=sorted(frameworks),
        modified_ns=run.modified_ns,
        live=bool(extras and extras.live),
        series=bool(extras and extras.series),
        data=bool(extras and extras.data),
        workers=workers,
    )


def _span_row(span: listing.Span, run_views: tuple[str, ...]) -> Span:
    """Return a span as a row; `run_views` are views for which the run has data whatever its recordings contain."""
    failure = span.failure
    fields = {name: getattr(span.summary, name, unknown) for name, unknown in _UNPARSED_DEFAULTS.items()}
    if fields["views"]:
        fields["views"] = tuple(dict.fromkeys((*fields["views"], *run_views)))
    return Span(
        id=span.id,
        name=span.id,
        file=span.log_file.file,
        size_bytes=span.version.size,
        modified_ns=span.version.mtime_ns,
        state=span.state,
        progress=round(span.progress, 3),
        format=span.format or None,
        error=failure.error if failure else None,
        hint=(failure.hint or None) if failure else None,
        **fields,
    )
