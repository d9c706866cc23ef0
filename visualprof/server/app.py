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
from visualprof.server import guard, spa
from visualprof.server.api.advice import Advices
from visualprof.server.api.agent_link import AgentFiles, AgentLink, refuse_agents
from visualprof.server.api.agent_runs import AgentRuns
from visualprof.server.api.agents import Agents
from visualprof.server.api.case_jobs import CaseSubmissions
from visualprof.server.api.cases import Cases
from visualprof.server.api.diff import Diffs
from visualprof.server.api.evaluation import Evaluation, Reports
from visualprof.server.api.headlines import Headlines
from visualprof.server.api.health import Health
from visualprof.server.api.jobs import Jobs
from visualprof.server.api.links import Links
from visualprof.server.api.live import Live
from visualprof.server.api.model_match import Matches
from visualprof.server.api.models import Graphs, Models
from visualprof.server.api.notices import Notices
from visualprof.server.api.openapi import OpenApi
from visualprof.server.api.quotas import QuotaRoutes
from visualprof.server.api.registry import Registry
from visualprof.server.api.replay import Replays
from visualprof.server.api.report_file import ReportFile
from visualprof.server.api.retention import Retention
from visualprof.server.api.runs import Runs
from visualprof.server.api.session import Session
from visualprof.server.api.stepped_traces import SteppedTraces
from visualprof.server.api.teams import Teams
from visualprof.server.api.timeline import Timeline
from visualprof.server.api.trend import Trends
from visualprof.server.api.uploads import Uploads
from visualprof.server.api.users import Users
from visualprof.server.api.views import Views
from visualprof.server.identity import create_identifier
from visualprof.server.job_service import JobService, open_job_service
from visualprof.server.latency import LatencyMeter
from visualprof.server.responses import ErrorBody, finish_response, json_response
from visualprof.server.settings import Settings
from visualprof.server.visible import Visible

if TYPE_CHECKING:
    from visualprof.accounts.external_login import OidcLogin
    from visualprof.accounts.mail_links import AccountLinkMailer
    from visualprof.accounts.notifications.mail import Mailer
    from visualprof.accounts.proxy_login import ProxyAuth
    from visualprof.accounts.service import Accounts

# Keys of the application's extensions: the functions that identify senders and prepare lists early.
IDENTIFY_KEY, PREPARE_KEY = "visualprof.identify", "visualprof.prepare"
_log = logging.getLogger(__name__)


class _Rule(Rule):
    """A route whose functions that build URLs are compiled on first use. No page needs them; all take 50 ms."""

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        def build(rule: _Rule, **values: Any) -> tuple[str, str]:
            return super(_Rule, rule)._compile_builder(append_unknown)(rule, **values)

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
    job_service = job_service or open_job_service(
        logdir.home, settings.data, read_only=settings.read_only, database=settings.database,
        store=settings.store, cache_bytes=settings.cache_bytes, store_runs=settings.store_runs,
    )  # fmt: skip
    reader = reader or open_model_reader(Cache.default())
    app = _App("visualprof", static_folder=None)
    accounts = _open_accounts(settings, job_service) if settings.accounts else None
    visible = Visible(logdir, job_service, accounts)
    meter = LatencyMeter()
    models, reports = Models(logdir, visible, reader), Reports(logdir, visible, job_service)
    jobs = Jobs(job_service, visible)
    app.extensions[PREPARE_KEY] = jobs.prepare
    traces = SteppedTraces(logdir)
    views = Views(logdir, visible, traces, models, reports)
    shown = (
        Runs(logdir, visible, reader, settings),
        Headlines(visible, traces),
        Live(visible, settings.read_only),
        views,
        Diffs(logdir, visible, traces, reports),
        Timeline(logdir, visible, traces),
    )
    resources = (
        *shown,
        ReportFile(settings.dist, logdir, visible, *shown),
        Graphs(logdir, visible, models, settings.read_only),
        Matches(logdir, visible, models),
        Uploads(job_service, visible, models),
        Registry(job_service, visible, reports),
        Advices(logdir, job_service, visible, reports),
        jobs,
        Agents(job_service, accounts, settings.base_url),
        Session(settings, accounts, *_login_providers(settings, accounts)),
        Users(settings, accounts),
        QuotaRoutes(accounts),
        Retention(job_service, accounts),
        Health(logdir, job_service, meter),
        Teams(visible, reports),
        Links(visible, reports),
        Notices(settings, accounts),
        Evaluation(logdir, visible, reports),
        Trends(visible, traces, reports),
        Cases(logdir, visible, reports),
        CaseSubmissions(job_service, visible),
        Replays(views, reports, models),
        OpenApi(),
        AgentLink(job_service, accounts),
        AgentFiles(job_service),
        AgentRuns(job_service, logdir.home),
    )
    for resource in resources:
        app.register_blueprint(resource.blueprint())
    app.register_blueprint(spa.blueprint(settings.dist))
    proxied = _proxy_auth(settings, job_service) if accounts and settings.user_header else None
    app.extensions[IDENTIFY_KEY] = identify = create_identifier(settings, accounts, proxied)
    meter.install(app)
    guard.install(app, settings, identify)
    app.before_request(refuse_agents)
    app.register_error_handler(Exception, _error_response)
    app.after_request(finish_response)
    return app


def _open_accounts(settings: Settings, job_service: JobService) -> Accounts:
    from visualprof.accounts.service import Accounts  # a server without accounts opens no database at start

    return Accounts(job_service.open().database, settings.registration)


def _proxy_auth(settings: Settings, job_service: JobService) -> ProxyAuth:
    from visualprof.accounts.proxy_login import ProxyAuth

    queue = job_service.open()
    return ProxyAuth(queue.database, settings.registration, queue.signer)


def _login_providers(
    settings: Settings, accounts: Accounts | None
) -> tuple[OidcLogin | None, AccountLinkMailer | None]:
    """Return the log-in methods in addition to passwords: an OpenID issuer, and links by e-mail."""
    if accounts is None:
        return None, None
    from visualprof.accounts.external_login import OidcLogin
    from visualprof.accounts.issuer import Issuer
    from visualprof.accounts.mail_links import AccountLinkMailer

    issued, mail = None, create_mailer(settings)
    if settings.oidc:
        back = f"{settings.base_url}/"
        issuer = Issuer(settings.oidc, settings.oidc_client, settings.oidc_secret, back, settings.oidc_admin_group)
        issued = OidcLogin(accounts.database, accounts.registration, issuer, accounts.users)
    # A client chooses the address by which it reaches the server, so links need the configured address.
    return issued, AccountLinkMailer(accounts.database, mail, settings.base_url) if mail and settings.base_url else None


def create_mailer(settings: Settings) -> Mailer | None:
    """Return the sender of e-mail, `None` if no mail server is configured.

    Raises:
        BadParameter: E-mail would have no sender.
    """
    from visualprof.accounts.notifications.mail import Mailer

    return Mailer(settings.smtp, settings.smtp_password, settings.mail_from) if settings.smtp else None


def _error_response(error: Exception) -> Response:
    if isinstance(error, VisualprofError):
        state, progress = getattr(error, "state", None), getattr(error, "progress", None)
        body = ErrorBody(error.error, error.hint or None, state, progress)
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
