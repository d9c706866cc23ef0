"""Runs of one name over time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from visualprof.messages import msg
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.listing import Run, Span
from visualprof.server.api.evaluation import Reports
from visualprof.server.api.views import ResultCache
from visualprof.server.routes import Query, Resource, get
from visualprof.server.visible import Visible
from visualprof.views.answers import kinds
from visualprof.views.answers.charts import Option
from visualprof.views.answers.disk_cache import CachedAnswer
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
    """Which figure, and which series is drawn."""

    hint = msg("server.figures_series_listed_api", "figures and series are listed by /api/v1/trend")

    metric: Annotated[str, Meta(description="a figure, e.g. step.total; the first that is known when absent")] = ""
    series: Annotated[str, Meta(description="the one that is drawn; the first when absent")] = ""


class TrendAnswer(Trend):
    """A figure of runs over time. measurements: of the series that is drawn. waiting: recordings still to be looked at.

    charts: trend.
    """

    shown: str
    waiting: kinds.Count
    charts: dict[str, Option]


class FigureCollector:
    """Figures of recordings, worked out one after another by a thread while somebody asks for them."""

    def __init__(self, logdir: LogDirectory) -> None:
        self._logdir = logdir
        self._known: dict[str, Figures] = {}
        self._asked: dict[str, Span] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def get(self, spans: Iterable[Span]) -> dict[str, Figures]:
        """What is known by now of parsed spans, by fingerprint; the others are next."""
        asked = {span.summary.fingerprint: span for span in spans if span.summary}
        with self._lock:
            known = {name: self._known[name] for name in asked if name in self._known}
            self._asked = {name: span for name, span in asked.items() if name not in known}
            if self._asked and self._thread is None:
                self._thread = threading.Thread(target=self._work, name="trend", daemon=True)
                self._thread.start()
        return known

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._asked:
                    self._thread = None
                    return
                fingerprint, span = self._asked.popitem()
            figures = self._figures(fingerprint, span)
            if figures is not None:
                with self._lock:
                    self._known[fingerprint] = figures

    def _figures(self, fingerprint: str, span: Span) -> Figures | None:
        """Of one span; None where its columns are gone, which are read again then."""
        place = CachedAnswer(self._logdir.cache, VIEW, VIEW.parse({}), (fingerprint,))
        kept = place.load()
        if kept is None:
            trace = self._logdir.cache.load(fingerprint) or self._logdir.open(span)
            if trace is None:
                return None
            kept = place.compute_and_store(lambda: VIEW.compute(trace, VIEW.parse({})))
        assert isinstance(kept, Figures)
        return kept


class Trends(Resource):
    """The route over what the log directories hold."""

    def __init__(self, logdir: LogDirectory, visible: Visible, reports: Reports) -> None:
        self._visible, self._reports = visible, reports
        self._following, self._results = FigureCollector(logdir), ResultCache[TrendAnswer]()

    @get("/trend", errors={400: "there is no such figure"}, needs="link")
    def trend(self, query: TrendQuery) -> TrendAnswer:
        """A figure of everything that was measured more than once, what became worse first."""
        listing, (revision, reports) = self._visible.listing(), self._reports.current()
        recordings = _repeated_recordings(listing.runs)
        spans = [span for _, span in recordings]
        known = self._following.get(spans)
        waiting = sum(span.state in ("waiting", "parsing") for span in spans)
        waiting += sum(span.summary is not None and span.summary.fingerprint not in known for span in spans)

        def measured() -> Iterable[Measured]:
            for run, span in recordings:
                figures = known.get(span.summary.fingerprint) if span.summary else None
                if figures:
                    yield measure_recording(run, span, figures)
            for report in reports:
                yield from measure_report(report)

        def worked_out() -> TrendAnswer:
            whole = trend(measured(), query.metric)
            names = list(whole.series.columns.series)
            shown = query.series if query.series in names else next(iter(names), "")
            return TrendAnswer(
                metric=whole.metric,
                metrics=whole.metrics,
                alone=whole.alone
                + sum(bool(run.workers) for run in listing.runs)
                - len({run.id for run, _ in recordings}),
                series=whole.series,
                measurements=select_rows(whole.measurements, Selection(equal={"series": shown})),
                shown=shown,
                waiting=waiting,
                charts={"trend": option} if (option := series_chart(whole, shown)) else {},
            )

        key = (self._visible.version, listing.revision, revision, len(known), waiting, query.metric, query.series)
        return self._results.get(key, worked_out)


def _repeated_recordings(runs: Iterable[Run]) -> list[tuple[Run, Span]]:
    """The newest recordings of each name that more than one has, with their runs."""
    every = [(series_named(run), run, span) for run, span in followed_recordings(runs)]
    every.sort(key=lambda one: -one[2].version.mtime_ns)
    count, taken = Counter(name for name, _, _ in every), Counter[str]()
    out = list[tuple[Run, Span]]()
    for name, run, span in every:
        taken[name] += 1
        if count[name] > 1 and taken[name] <= MAX_MEASUREMENTS:
            out.append((run, span))
    return out
