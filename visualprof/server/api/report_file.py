"""Export a run as a report file. One report is built at a time, and the build stops if the client disconnects."""

from __future__ import annotations

import re
import threading
from functools import partial
from typing import Annotated

from flask import Response, request
from msgspec import Meta

from visualprof import __version__
from visualprof.errors import BadParameter, NotReady
from visualprof.messages import msg
from visualprof.server.api.diff import Diffs
from visualprof.server.api.headlines import Headlines
from visualprof.server.api.live import Live
from visualprof.server.api.runs import Runs
from visualprof.server.api.snapshot import Snapshot
from visualprof.server.api.spans import require_summary
from visualprof.server.api.timeline import Timeline
from visualprof.server.api.views import Views
from visualprof.server.report import ReportTooLarge, SpanRef, build_report
from visualprof.server.responses import bytes_response
from visualprof.server.routes import SPAN_ERRORS, Resource, SpanQuery, get, parse_query
from visualprof.server.services import Services
from visualprof.views.answers.encoding import encode


class ClientDisconnected(NotReady):
    """The client no longer waits for the report."""


class ReportQuery(SpanQuery, kw_only=True):
    """A run, and optionally a base run to compare it with."""

    base: Annotated[str, Meta(description="id of the base run; no comparison when absent")] = ""
    base_worker: Annotated[str, Meta(description="id of a worker of the base run")] = ""
    base_span: Annotated[str, Meta(description="id of a span of the base run")] = ""


_REPORTED_RESOURCES = (Runs, Headlines, Live, Views, Diffs, Timeline, Snapshot)


class ReportFile(Resource):
    """The route of the report file. It calls other routes with the permissions of the current user."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._build_lock = threading.Lock()
        self._methods = {
            route.path.strip("/"): (getattr(resource, handler.__name__), route.parameter_types(handler)[0])
            for resource in map(services.get, _REPORTED_RESOURCES)
            for route, handler in resource.routes()
            if route.method == "GET"
        }

    @get(
        "/report",
        media=("text/html",),
        errors={**SPAN_ERRORS, ReportTooLarge.status: "the report would be too large"},
        needs="link",
    )
    def report(self, query: ReportQuery) -> Response:
        """Return a run as a single file that needs no server."""
        span = SpanRef(query.run, query.worker, query.span)
        base = SpanRef(query.base, query.base_worker, query.base_span) if query.base else None
        if base and base.run == span.run:
            raise BadParameter(
                msg("server.report_compares_two_runs", "a report compares two runs"),
                msg("server.name_another_one_base", "name another run as base"),
            )
        for span_ref in filter(None, (span, base)):
            require_summary(self._logdir, self._visible.listing().find(*span_ref))
        if not self._build_lock.acquire(
            blocking=False
        ):  # a second build would slow down both and occupy another thread
            raise NotReady(
                msg("server.another_report_being_made", "another report is being made"),
                msg("server.ask_again_moment", "ask again in a moment"),
            )
        try:
            ask = partial(self._ask, step_range=query.step_range)
            page = build_report(ask, span, base, self._settings.web.dist, __version__, query.step_range)
        finally:
            self._build_lock.release()
        response = bytes_response(page, "text/html")
        name = re.sub(r"[^A-Za-z0-9._-]", "_", query.run)[-100:] or "report"
        response.headers["Content-Disposition"] = f'attachment; filename="{name}.html"'
        return response

    def _ask(self, route: str, **query: object) -> bytes:
        """Return the answer that the current user would get from a route.

        Raises:
            ClientDisconnected: The client no longer waits for the report.
        """
        is_disconnected = request.environ.get("waitress.client_disconnected")
        if is_disconnected and is_disconnected():
            raise ClientDisconnected(
                msg("server.whoever_asked_report_gone", "the client that requested the report has disconnected"),
                msg("server.ask_again", "ask again"),
            )
        head, _, name = route.partition("/")
        method, query_type = self._methods[route if route in self._methods else f"{head}/<name>"]
        path: dict[str, object] = {} if route in self._methods else {"name": name}
        if query_type is not None:
            path["query"] = parse_query({key: str(value) for key, value in query.items()}, query_type)
        answer = method(**path)
        return answer.get_data() if isinstance(answer, Response) else encode(answer)
