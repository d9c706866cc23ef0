"""Compare two runs."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from flask import Response
from msgspec import Meta

from visualprof.errors import MissingData
from visualprof.messages import msg
from visualprof.server.api.evaluation import Reports
from visualprof.server.api.result_cache import ResultCache
from visualprof.server.api.spans import require_summary
from visualprof.server.api.stepped_traces import SteppedTraces
from visualprof.server.api.table_rows import RowsQuery, row_selection, table_response
from visualprof.server.api.trace_requests import is_costly, load_or_compute_answer
from visualprof.server.api.views import TSV_TYPE
from visualprof.server.routes import SPAN_ERRORS, Resource, StepRange, get
from visualprof.server.services import Services
from visualprof.views.diff.answer import DiffAnswer
from visualprof.views.diff.compare import Named, compare
from visualprof.views.diff.evaluation import compare_reports
from visualprof.views.diff.side import SIDE, Side, Viewed


class DiffQuery(RowsQuery, kw_only=True):
    """The new run, the base run, and how to compare them."""

    run: Annotated[str, Meta(description="id of the new run")]
    worker: Annotated[str, Meta(description="id of a worker; the first one when absent")] = ""
    span: Annotated[str, Meta(description="id of a span; the first one when absent")] = ""
    base: Annotated[str, Meta(description="id of the base run")]
    base_worker: Annotated[str, Meta(description="id of a worker of the base run")] = ""
    base_span: Annotated[str, Meta(description="id of a span of the base run")] = ""
    view: Annotated[
        Viewed | Literal["evaluation"],
        Meta(description="view to compare; for `evaluation`, `run` and `base` are ids of reports"),
    ] = "overview"
    step: Annotated[str, Meta(description="name of a step; all steps when absent")] = ""
    base_step: Annotated[str, Meta(description="step of the base run; the same name or position when absent")] = ""
    phase: Annotated[str, Meta(description="phase of a server's steps; the phase with most time when absent")] = ""
    group: Annotated[
        Literal["name", "shape", "type"],
        Meta(description="group operators by name, by name and input shapes, or by type"),
    ] = "name"
    step_range: StepRange = ""


class Diffs(Resource):
    """The route that compares runs. The sides are cached, because comparing cached sides takes milliseconds."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._traces = services.get(SteppedTraces)
        self._reports = services.get(Reports)
        self._sides = ResultCache[Side]()

    @get("/diff", media=("application/json", "text/csv", TSV_TYPE), errors=SPAN_ERRORS, needs="link")
    def diff(self, query: DiffQuery) -> DiffAnswer | Response:
        """Compare a run with a base run."""
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
        """Return the base's step that matches the requested step: the same name, or else the same position."""
        if not query.step:
            return ""
        listing = self._visible.listing()
        new = listing.find(query.run, query.worker, query.span)
        base = listing.find(query.base, query.base_worker, query.base_span)
        new_steps, base_steps = (self._traces.step_names(span, query.step_range) for span in (new, base))
        if query.step in base_steps or query.step not in new_steps:
            return query.step
        return (base_steps[: new_steps.index(query.step) + 1] or ("",))[-1]

    def _side(self, query: DiffQuery, run: str, worker: str, span_id: str, step: str) -> Named:
        """Return one side of the comparison.

        Raises:
            NotFound: The run does not exist or is not visible to the current user.
            StillParsing: The file is not parsed yet.
            UnreadableFile: The file cannot be parsed.
            MissingData: The file has no data to compare.
        """
        span = self._visible.listing().find(run, worker, span_id)
        summary = require_summary(self._logdir, span)
        params = SIDE.parse({"view": query.view, "step": step, "group": query.group})
        if not {"overview", "snapshot"} & set(summary.views):
            raise MissingData(
                msg("server.nothing_could_compared", f"{span.log_file.name} has nothing that could be compared"),
                msg("server.compare_another_run", "compare another run"),
            )

        version = self._traces.version(span, query.step_range)
        side = self._sides.get(
            (version, params),
            lambda: load_or_compute_answer(self._traces, span, SIDE, params, (version,), query.step_range),
            exclusive=not is_costly(span),
        )
        return Named(span.log_file.file, side, summary.fingerprint)
