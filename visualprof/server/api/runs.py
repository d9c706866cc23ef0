"""Status, runs and reload."""

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
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.models import ModelReader
from visualprof.reader.logdir.scan import Problem
from visualprof.server.api.session import CurrentUser, current_user
from visualprof.server.identity import current_principal
from visualprof.server.responses import VersionedResponse
from visualprof.server.routes import READ_ONLY_ERROR, Query, Resource, get, mutation
from visualprof.server.visible import Visible
from visualprof.views.answers.encoding import encode

# What is known of a file once it is parsed, with what is said of it before.
_UNPARSED_DEFAULTS: dict[str, Any] = {
    "framework": None, "events": None, "duration_ns": None, "steps": (), "views": (), "warnings": (),
}  # fmt: skip


class Status(msgspec.Struct, kw_only=True):
    """The server itself.

    native_reader: is it in use? `yes (x86_64)`, or `no: ` and why. private: reading needs the session's token, too.
    logdirs: not told to who came by a link. person: who is logged in; null where there are no accounts.
    link_ends_ns: when the link is over by which one run is seen; null without one.
    """

    version: str
    native_reader: str
    language: str | None
    read_only: bool
    private: bool
    logdirs: list[str]
    watching: Literal["events", "polling"]
    person: CurrentUser | None
    link_ends_ns: int | None


class Span(msgspec.Struct):
    """One file. Unknown before it is parsed: null, or an empty list."""

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
    """What ran together. workers: none while nothing is recorded.

    live: processes of it listen, or did (`/live` says which). series: it has times of steps (`/live/steps`).
    """

    id: str
    name: str
    frameworks: list[str]
    modified_ns: int
    live: bool
    series: bool
    workers: list[Worker]


class SkippedFile(msgspec.Struct):
    """A file that looks like a profile or a model and is none, or cannot be read."""

    file: str
    error: str
    hint: str | None


class RunsAnswer(msgspec.Struct):
    """Everything in the log directories."""

    revision: int
    runs: list[Run]
    skipped: list[SkippedFile]


class ChangesQuery(Query):
    """What the page knows, and what it shows."""

    since: Annotated[int, Meta(ge=0, le=2**53, description="revision of an earlier answer")] | None = None
    shown: Annotated[str, Meta(description="id of the run that the page shows: its files are read first")] = ""


class ChangesAnswer(msgspec.Struct):
    """What changed since a revision.

    since: null when this is everything: no revision was given, or it is not known any more. runs: new and changed ones.
    removed: ids of those that are gone. skipped: null when they are the same.
    """

    revision: int
    since: int | None
    runs: list[Run]
    removed: list[str]
    skipped: list[SkippedFile] | None


class Runs(Resource):
    """The routes over one log directory."""

    def __init__(
        self,
        logdir: LogDirectory,
        visible: Visible,
        reader: ModelReader,
        language: str,
        read_only: bool,
        private: bool,
    ) -> None:
        self._logdir, self._visible, self._reader = logdir, visible, reader
        self._language, self._read_only, self._private = language, read_only, private
        self._latest = VersionedResponse()
        self._encoded: dict[str, tuple[listing.Run, msgspec.Raw]] = {}

    @get("/status", needs="link")
    def status(self) -> Status:
        """The server itself."""
        me = current_principal()
        roots = [] if me.scope is not None else [root.address or str(root.path) for root in self._logdir.roots]
        watching = "events" if self._logdir.watching == "events" else "polling"
        return Status(
            version=__version__,
            native_reader=native.describe_state(),
            language=self._language or None,
            read_only=self._read_only,
            private=self._private,
            logdirs=roots,
            watching=watching,
            person=current_user(me),
            link_ends_ns=me.ends_ns,
        )

    @get("/runs", needs="link")
    def runs(self) -> RunsAnswer | Response:
        """Every run, worker and span."""
        now = self._visible.listing()
        return self._latest.answer(
            (now.revision, self._visible.version),
            lambda: RunsAnswer(now.revision, self._all(now), _skipped(now.skipped)),
        )

    @get("/runs/changes", needs="link")
    def changes(self, query: ChangesQuery) -> ChangesAnswer:
        """What changed of the runs since a revision; the files of the shown one are read first."""
        if query.shown and self._visible.can_see(query.shown):
            self._logdir.set_active_run(query.shown)
        now = self._visible.changes(query.since)
        runs = self._all(now) if now.since is None else self._rows(now.runs)
        skipped = None if now.skipped is None else _skipped(now.skipped)
        return ChangesAnswer(now.revision, now.since, runs, list(now.removed), skipped)

    @mutation("POST", "/reload", status=204, errors=READ_ONLY_ERROR)
    def reload(self) -> None:
        """Read the log directories again."""
        if self._read_only:
            raise Forbidden(
                msg("server.server_read_only", "the server is read-only"),
                msg("server.start_without_read_only", "start it without --read-only"),
            )
        self._reader.forget_failures()
        self._logdir.retry_failed()
        self._logdir.rescan()

    def _all(self, now: listing.Listing | listing.Changes) -> list[Run]:
        """Every run; what is kept of others is freed."""
        rows = self._rows(now.runs)
        known = self._encoded
        if len(known) > len(now.runs):
            self._encoded = {run.id: known[run.id] for run in now.runs if run.id in known}
        return rows

    def _rows(self, runs: Iterable[listing.Run]) -> list[Run]:
        """Run as they are answered, each encoded once."""
        rows: list[msgspec.Raw] = []
        for run in runs:
            kept = self._encoded.get(run.id)
            if kept is None or kept[0] is not run:
                kept = self._encoded[run.id] = run, msgspec.Raw(encode(_run_row(run)))
            rows.append(kept[1])
        return cast("list[Run]", rows)


def _skipped(problems: Iterable[Problem]) -> list[SkippedFile]:
    return [SkippedFile(problem.file, problem.error, problem.hint or None) for problem in problems]


def _run_row(run: listing.Run) -> Run:
    workers = [
        Worker(worker.id, worker.id, worker.rank if worker.rank >= 0 else None, [_span_row(s) for s in worker.spans])
        for worker in run.workers
    ]
    frameworks = {span.framework for worker in workers for span in worker.spans if span.framework}
    beside = run.extras
    live, series = bool(beside and beside.live), bool(beside and beside.series)
    return Run(
        id=run.id,
        name=run.name,
        frameworks=sorted(frameworks),
        modified_ns=run.modified_ns,
        live=live,
        series=series,
        workers=workers,
    )


def _span_row(span: listing.Span) -> Span:
    failure = span.failure
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
        **{name: getattr(span.summary, name, unknown) for name, unknown in _UNPARSED_DEFAULTS.items()},
    )
