"""The application: a blueprint per area, one error handler, one way to answer."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from visualprof.errors import VisualprofError
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.server import guard, spa
from visualprof.server.answers import answer, finish
from visualprof.server.api import (
    agent_link,
    agents,
    blobs,
    drafts,
    evaluation,
    jobs,
    models,
    openapi,
    runs,
    schema,
    timeline,
    uploads,
    views,
)
from visualprof.server.remote_service import Remote, open_remote
from visualprof.server.results import Results

_log = logging.getLogger(__name__)

DIST = Path(__file__).parents[1] / "frontend" / "dist"


@dataclass(frozen=True)
class Settings:
    """How the server behaves.

    language: of the page when the browser has not chosen; "" leaves it to the browser.
    read_only: refuse everything that is not a question. host: the address it is bound to.
    allowed_hosts: names besides localhost by which browsers may call it; "*" is any.
    dist: the built page. data: where jobs are kept instead of the first log directory's `.visualprof`.
    with_agent: run jobs on this machine. lease_s: how long an agent may be silent.
    """

    language: str = ""
    read_only: bool = False
    host: str = "127.0.0.1"
    allowed_hosts: tuple[str, ...] = ()
    dist: Path = field(default=DIST)
    data: Path | None = None
    with_agent: bool = False
    lease_s: float = 30.0


def create_app(logdir: LogDirectory, settings: Settings | None = None, remote: Remote | None = None) -> Flask:
    """The WSGI application over a log directory, and the queue of its jobs, that somebody else starts and closes."""
    settings = settings or Settings()
    remote = remote or open_remote(logdir.roots[0], settings.data, read_only=settings.read_only)
    app = Flask("visualprof", static_folder=None)
    app.register_blueprint(runs.blueprint(logdir, settings.language, settings.read_only))
    app.register_blueprint(views.blueprint(logdir, Results()))
    app.register_blueprint(timeline.blueprint(logdir))
    kept = models.Models(logdir)
    app.register_blueprint(models.blueprint(logdir, kept, settings.read_only))
    app.register_blueprint(uploads.blueprint(remote, kept))
    app.register_blueprint(jobs.blueprint(remote))
    app.register_blueprint(drafts.blueprint(remote))
    app.register_blueprint(agents.blueprint(remote))
    app.register_blueprint(agent_link.blueprint(remote))
    app.register_blueprint(blobs.blueprint(remote))
    app.register_blueprint(evaluation.blueprint(logdir))
    app.register_blueprint(openapi.blueprint())
    app.register_blueprint(spa.blueprint(settings.dist))
    guard.install(app, settings.host, settings.allowed_hosts)
    app.before_request(agent_link.refuse_agents)
    app.register_error_handler(Exception, _failure)
    app.after_request(finish)
    return app


def _failure(error: Exception) -> Response:
    if isinstance(error, VisualprofError):
        state, progress = getattr(error, "state", None), getattr(error, "progress", None)
        body = schema.ErrorBody(error.error, error.hint or None, state, progress)
        response = answer(body, error.status)
        if error.status == 503:
            response.headers["Retry-After"] = "1"
        return response
    if isinstance(error, HTTPException):
        response = answer(schema.ErrorBody(f"{error.code} {error.name}"), error.code or 500)
        for name, value in error.get_headers():
            if name == "Allow":
                response.headers[name] = value
        return response
    _log.exception("a request failed")
    return answer(schema.ErrorBody("the server met an unexpected error", "its log says more"), 500)
