"""Create the WSGI application: one blueprint per area, one error handler, and one way to send responses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flask import Flask, Response
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Rule

from visualprof.errors import VisualprofError
from visualprof.messages import msg
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.models import ModelReader, open_model_reader
from visualprof.server import guard, heap, spa
from visualprof.server.api import all_resources
from visualprof.server.api.agent_link import refuse_agents
from visualprof.server.api.jobs import Jobs
from visualprof.server.identity import create_identifier
from visualprof.server.job_service import JobService
from visualprof.server.latency import LatencyMeter
from visualprof.server.login_providers import open_proxy_login
from visualprof.server.responses import ErrorBody, finish_response, json_response
from visualprof.server.services import Services
from visualprof.server.settings import Settings
from visualprof.server.visible import Visible

if TYPE_CHECKING:
    from visualprof.accounts.service import Accounts

# Keys of the application's extensions: the functions that identify senders and prepare lists early.
IDENTIFY_KEY, PREPARE_KEY = "visualprof.identify", "visualprof.prepare"
_log = logging.getLogger(__name__)


class _Rule(Rule):
    """A route that compiles its builders of URLs on first use. No page needs them; all take 50 ms."""

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        def build(rule: _Rule, **values: Any) -> tuple[str, str]:
            return super()._compile_builder(append_unknown)(rule, **values)

        return build


class _App(Flask):
    url_rule_class = _Rule


def create_app(
    logdir: LogDirectory,
    settings: Settings | None = None,
    job_service: JobService | None = None,
    reader: ModelReader | None = None,
) -> Flask:
    """Return the WSGI application of a log directory, its models and its job queue. The caller closes these."""
    settings = settings or Settings()
    job_service = job_service or JobService(logdir.home, settings.queue, read_only=settings.access.read_only)
    reader = reader or open_model_reader(Cache.default())
    app = _App("visualprof", static_folder=None)
    accounts = _open_accounts(settings, job_service) if settings.access.accounts else None
    services = Services(
        settings=settings,
        logdir=logdir,
        job_service=job_service,
        reader=reader,
        accounts=accounts,
        visible=Visible(logdir, job_service, accounts),
        meter=LatencyMeter(),
    )
    for kind in all_resources():
        app.register_blueprint(services.get(kind).blueprint())
    app.extensions[PREPARE_KEY] = services.get(Jobs).prepare
    app.register_blueprint(spa.blueprint(settings.web.dist))
    proxied = open_proxy_login(settings, job_service) if accounts and settings.access.user_header else None
    app.extensions[IDENTIFY_KEY] = identify = create_identifier(settings, accounts, proxied)
    services.meter.install(app)
    heap.install(app)
    guard.install(app, settings, identify)
    app.before_request(refuse_agents)
    app.register_error_handler(Exception, _error_response)
    app.after_request(finish_response)
    return app


def _open_accounts(settings: Settings, job_service: JobService) -> Accounts:
    from visualprof.accounts.service import Accounts  # a server without accounts opens no database at start

    return Accounts(job_service.open().database, settings.access.registration)


def _error_response(error: Exception) -> Response:
    if isinstance(error, VisualprofError):
        state, progress = getattr(error, "state", None), getattr(error, "progress", None)
        body = ErrorBody(error.error, error.hint or None, state, progress, error.docs_page or None)
        response = json_response(body, error.status)
        if error.status == 503:
            response.headers["Retry-After"] = "1"
        return response
    if isinstance(error, HTTPException):
        response = json_response(ErrorBody(f"{error.code} {error.name}"), error.code or 500)
        for name, value in error.get_headers():
            if name == "Allow":
                response.headers[name] = value
        return response
    _log.exception("a request failed")
    return json_response(
        ErrorBody(
            msg("server.server_met_unexpected_error", "the server met an unexpected error"),
            msg("server.log_says_more", "its log says more"),
        ),
        500,
    )
