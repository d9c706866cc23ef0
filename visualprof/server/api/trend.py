"""Trends: metrics of runs with the same name over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from visualprof.messages import msg
from visualprof.reader.logdir.listing import Run, Span
from visualprof.server.api.background_answers import BackgroundAnswers
from visualprof.server.api.evaluation import Reports
from visualprof.server.api.result_cache import ResultCache
from visualprof.server.api.stepped_traces import SteppedTraces
from visualprof.server.routes import Query, Resource, get
from visualprof.server.services import Services
from visualprof.views.answers import kinds
from visualprof.views.answers.charts import Option
from visualprof.views.answers.table import Selection, select_rows
from visualprof.views.trend.figures import VIEW, Figures
from visualprof.views.trend.series import (
    MAX_MEASUREMENTS,
    Measured,
    Trend,
    followed_recordings,
    measure_recording,
    measure_report,
    series_chart,
    series_named,
    trend,
)


class TrendQuery(Query):
    """The metric, and the series that the chart shows."""

    hint = msg("server.figures_series_listed_api", "metrics and series are listed by /api/v1/trend")

    metric: Annotated[str, Meta(description="metric, e.g. step.total; the first available one when absent")] = ""
    series: Annotated[str, Meta(description="series that the chart shows; the first one when absent")] = ""


class TrendAnswer(Trend):
    """A metric of runs over time.

    Attributes:
        measurements: Measurements of the series that the chart shows.
        shown: The series that the chart shows.
        waiting: Number of recordings with metrics that are still being computed.
        charts: `trend`.
    """

    shown: str
    waiting: kinds.Count
    charts: dict[str, Option]


class Trends(Resource):
    """The route for trends."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._reports = services.get(Reports)
        self._figures = BackgroundAnswers(services.get(SteppedTraces), VIEW, Figures(figures={}))
        self._results = ResultCache[TrendAnswer]()

    @get("/trend", errors={400: "there is no such metric"}, needs="link")
    def trend(self, query: TrendQuery) -> TrendAnswer:
        """Return a metric of everything that was measured more than once, the largest regression first."""
        listing, (revision, reports) = self._visible.listing(), self._reports.current()
        recordings = _repeated_recordings(listing.runs)
        spans = [span for _, span in recordings]
        computed = self._figures.get(spans)
        waiting = sum(span.state in ("waiting", "parsing") for span in spans)
        waiting += sum(span.summary is not None and span.summary.fingerprint not in computed for span in spans)

        def measured() -> Iterable[Measured]:
            for run, span in recordings:
                figures = computed.get(span.summary.fingerprint) if span.summary else None
                if figures:
                    yield measure_recording(run, span, figures)
            for report in reports:
                yield from measure_report(report)

        def compute_trend() -> TrendAnswer:
            result = trend(measured(), query.metric)
            names = list(result.series.columns.series)
            shown = query.series if query.series in names else next(iter(names), "")
            return TrendAnswer(
                metric=result.metric,
                metrics=result.metrics,
                alone=result.alone
                + sum(bool(run.workers) for run in listing.runs)
                - len({run.id for run, _ in recordings}),
                series=result.series,
                measurements=select_rows(result.measurements, Selection(equal={"series": shown})),
                shown=shown,
                waiting=waiting,
                charts={"trend": option} if (option := series_chart(result, shown)) else {},
            )

        key = (self._visible.version, listing.revision, revision, len(computed), waiting, query.metric, query.series)
        return self._results.get(key, compute_trend)


def _repeated_recordings(runs: Iterable[Run]) -> list[tuple[Run, Span]]:
    """Return the newest recordings of each name that occurs more than once, with their runs."""
    recordings = [(series_named(run), run, span) for run, span in followed_recordings(runs)]
    recordings.sort(key=lambda recording: -recording[2].version.mtime_ns)
    count, selected = Counter(name for name, _, _ in recordings), Counter[str]()
    repeated = list[tuple[Run, Span]]()
    for name, run, span in recordings:
        selected[name] += 1
        if count[name] > 1 and selected[name] <= MAX_MEASUREMENTS:
            repeated.append((run, span))
    return repeated
