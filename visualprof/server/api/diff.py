"""Two runs compared."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from flask import Response
from msgspec import Meta

from visualprof.errors import MissingData
from visualprof.messages import msg
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.server.api.evaluation import Reports
from visualprof.server.api.spans import load_trace, require_summary
from visualprof.server.api.views import TSV_TYPE, ResultCache, RowsQuery, row_selection, table_response
from visualprof.server.routes import SPAN_ERRORS, Resource, get
from visualprof.server.visible import Visible
from visualprof.views.answers.disk_cache import CachedAnswer
from visualprof.views.answers.table import Answer
from visualprof.views.diff.answer import DiffAnswer
from visualprof.views.diff.compare import Named, compare
from visualprof.views.diff.evaluation import compare_reports
from visualprof.views.diff.side import SIDE, Side, Viewed, compute


class DiffQuery(RowsQuery, kw_only=True):
    """The run that is looked at, the one it is compared with, and how."""

    run: Annotated[str, Meta(description="id of a run, the new one")]
    worker: Annotated[str, Meta(description="id of a worker; the first one when absent")] = ""
    span: Annotated[str, Meta(description="id of a span; the first one when absent")] = ""
    base: Annotated[str, Meta(description="id of the run that it is compared with")]
    base_worker: Annotated[str, Meta(description="id of a worker of that")] = ""
    base_span: Annotated[str, Meta(description="id of a span of that")] = ""
    view: Annotated[
        Viewed | Literal["evaluation"], Meta(description="whose rows; of an evaluation the ids are those of reports")
    ] = "overview"
    step: Annotated[str, Meta(description="one step, by name; all when absent")] = ""
    base_step: Annotated[str, Meta(description="of the base; of the same name, else of the same place when absent")] = (
        ""
    )
    phase: Annotated[str, Meta(description="of a server's steps; that with most of the time when absent")] = ""
    group: Annotated[Literal["name", "shape"], Meta(description="operators by name, or name and input shapes")] = "name"


class Diffs(Resource):
    """The route over what the log directories hold. The sides are kept, pairs take milliseconds."""

    def __init__(self, logdir: LogDirectory, visible: Visible, reports: Reports) -> None:
        self._logdir, self._visible, self._reports, self._sides = logdir, visible, reports, ResultCache[Any]()

    @get("/diff", media=("application/json", "text/csv", TSV_TYPE), errors=SPAN_ERRORS, needs="link")
    def diff(self, query: DiffQuery) -> DiffAnswer | Response:
        """A run compared with another."""
        rows = row_selection(query)
        if query.view == "evaluation":
            base_report, new_report = self._reports.find(query.base), self._reports.find(query.run)
            points = compare_reports(query.base, [base_report], query.run, [new_report])
            return cast("DiffAnswer | Response", table_response("diff", points, query, rows))
        base = self._side(
            query, query.base, query.base_worker, query.base_span, query.base_step or self._matching_step(query)
        )
        new = self._side(query, query.run, query.worker, query.span, query.step)
        return cast(
            "DiffAnswer | Response", table_response("diff", compare(query.view, base, new, query.phase), query, rows)
        )

    def _matching_step(self, query: DiffQuery) -> str:
        """Return the step of the base that corresponds to the requested step: by name, otherwise by position."""
        listing = self._visible.listing()
        own = listing.find(query.run, query.worker, query.span).summary
        far = listing.find(query.base, query.base_worker, query.base_span).summary
        if not own or not far or query.step in far.steps or query.step not in own.steps:
            return query.step
        return (far.steps[: own.steps.index(query.step) + 1] or ("",))[-1]

    def _side(self, query: DiffQuery, run: str, worker: str, span_id: str, step: str) -> Named:
        """One of the two.

        Raises: NotFound: there is no such run for whoever asks. Parsing. Unreadable. MissingData: it has nothing.
        """
        span = self._visible.listing().find(run, worker, span_id)
        summary = require_summary(self._logdir, span)
        params = SIDE.parse({"view": query.view, "step": step, "group": query.group})
        if "overview" not in summary.views:
            raise MissingData(
                msg("server.nothing_could_compared", f"{span.log_file.name} has nothing that could be compared"),
                msg("server.compare_another_run", "compare another run"),
            )

        def worked_out() -> Answer:
            place = CachedAnswer(self._logdir.cache, SIDE, params, (summary.fingerprint,))
            return place.load_or_compute(lambda: compute(load_trace(self._logdir, span), params))

        return Named(
            span.log_file.file,
            cast("Side", self._sides.get((summary.fingerprint, params), worked_out)),
            summary.fingerprint,
        )
