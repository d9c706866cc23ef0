"""Status, runs and reload."""

from __future__ import annotations

from flask import Blueprint, Response

from visualprof import __version__
from visualprof.errors import Forbidden
from visualprof.reader.logdir import listing
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.server.answers import answer, raw
from visualprof.server.api import schema
from visualprof.server.encoding import encode


def blueprint(logdir: LogDirectory, language: str, read_only: bool) -> Blueprint:
    """The routes over one log directory."""
    routes = Blueprint("runs", __name__, url_prefix="/api/v1")
    latest: tuple[int, bytes] = (-1, b"")

    @routes.get("/status")
    def status() -> Response:
        roots = [str(root.path) for root in logdir.roots]
        watching = "events" if logdir.watching == "events" else "polling"
        return answer(schema.Status(__version__, language or None, read_only, roots, watching))

    @routes.get("/runs")
    def runs() -> Response:
        nonlocal latest
        if latest[0] != logdir.revision:  # polled by every open page, changed seldom
            now = logdir.listing()
            latest = now.revision, encode(runs_answer(now))
        return raw(latest[1], "application/json")

    @routes.post("/reload")
    def reload() -> Response:
        if read_only:
            raise Forbidden("the server is read-only", "start it without --read-only")
        logdir.rescan()
        return Response(status=204)

    return routes


def runs_answer(now: listing.Listing) -> schema.RunsAnswer:
    """The listing in the words of the API."""
    skipped = [schema.SkippedFile(each.file, each.error, each.hint or None) for each in now.skipped]
    return schema.RunsAnswer(now.revision, [_run(run) for run in now.runs], skipped)


def _run(run: listing.Run) -> schema.Run:
    workers = [
        schema.Worker(each.id, each.id, each.rank if each.rank >= 0 else None, [_span(span) for span in each.spans])
        for each in run.workers
    ]
    frameworks = {span.framework for worker in workers for span in worker.spans if span.framework}
    return schema.Run(run.id, run.name, sorted(frameworks), run.modified_ns, workers)


def _span(span: listing.Span) -> schema.Span:
    known, failure = span.summary, span.failure
    return schema.Span(
        id=span.id,
        name=span.id,
        file=span.found.file,
        size_bytes=span.version.size,
        modified_ns=span.version.mtime_ns,
        state=span.state,
        progress=round(span.progress, 3),
        format=span.format or None,
        framework=known.framework if known else None,
        events=known.events if known else None,
        duration_ns=known.duration_ns if known else None,
        steps=list(known.steps) if known else [],
        views=list(known.views) if known else [],
        warnings=list(known.warnings) if known else [],
        error=failure.error if failure else None,
        hint=(failure.hint or None) if failure else None,
    )
