"""Histograms, precision-recall and ROC curves, and trials of runs."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from visualprof.errors import FormatError
from visualprof.reader.run_data.curves import CurveCounts, parse_curve
from visualprof.reader.run_data.histograms import Histogram, parse_histogram
from visualprof.reader.run_data.kinds import SampleKind
from visualprof.reader.run_data.samples import SampleSeries
from visualprof.reader.run_data.trials import Setting, list_trials
from visualprof.reader.trace import Ints
from visualprof.server.routes import Resource, get
from visualprof.server.run_data_store import RUN_DATA_ERRORS, RunDataStore, RunsQuery
from visualprof.server.services import Services
from visualprof.views.answers.kinds import CountColumn
from visualprof.views.measure.run_data.bins import common_edges, quantiles, rebin
from visualprof.views.measure.run_data.correlation import effect_of
from visualprof.views.measure.run_data.lines import line_name
from visualprof.views.measure.run_data.rates import Areas, areas_of, rates_of

_MAX_CURVES = 500  # of which the areas are computed, per line
Tag = Annotated[str, Meta(description="name of a tag", max_length=1024)]


class HistogramsQuery(RunsQuery, kw_only=True):
    """A tag with histograms."""

    tag: Tag
    bins: Annotated[int, Meta(ge=2, le=500, description="number of bins")] = 40
    steps: Annotated[int, Meta(ge=2, le=500, description="maximum number of steps per line, evenly chosen")] = 60


class CurvesQuery(RunsQuery, kw_only=True):
    """A tag with curves, and the step."""

    tag: Tag
    step: Annotated[int, Meta(description="the last curve at or before this step; the last one when absent")] | None = (
        None
    )


class HistogramLine(msgspec.Struct):
    """Histograms of a line.

    Attributes:
        run: Id of the run.
        line: Name of the line within the run.
        total: Number of histograms, of which some may be left out.
        step: The steps.
        counts: Counts per step and bin.
        quantiles: Values per step at 0, 6.68, 15.87, 30.85, 50, 69.15, 84.13, 93.32 and 100 % of the counts, or null.
    """

    run: str
    line: str
    total: int
    step: CountColumn
    counts: list[list[float]]
    quantiles: list[list[float | None]]


class HistogramsAnswer(msgspec.Struct):
    """Histograms of a tag in equal bins.

    Attributes:
        edges: Edges of the bins.
        lines: The lines.
    """

    edges: CountColumn
    lines: list[HistogramLine]


class CurveLine(msgspec.Struct):
    """Curves of a line: the areas of all steps, and the curve of one step by threshold.

    Attributes:
        run: Id of the run.
        line: Name of the line within the run.
        steps: The steps.
        average_precision: Area under the precision-recall curve per step, or null if unknown.
        roc_area: Area under the ROC curve per step, or null if unknown.
        step: Step of the curve.
        threshold: Smallest score that counts as positive.
        true_positive: Positive examples with at least this score.
        false_positive: Negative examples with at least this score.
        true_negative: Negative examples below it.
        false_negative: Positive examples below it.
        precision: Share of positive examples among those with at least this score, or null.
        recall: Share of positive examples with at least this score, or null.
        false_positive_rate: Share of negative examples with at least this score, or null.
    """

    run: str
    line: str
    steps: CountColumn
    average_precision: list[float | None]
    roc_area: list[float | None]
    step: int
    threshold: CountColumn
    true_positive: CountColumn
    false_positive: CountColumn
    true_negative: CountColumn
    false_negative: CountColumn
    precision: CountColumn
    recall: CountColumn
    false_positive_rate: CountColumn


class CurvesLines(msgspec.Struct):
    """Curves of a tag."""

    lines: list[CurveLine]


class TrialRow(msgspec.Struct):
    """A trial.

    Attributes:
        run: Id of the run.
        line: Folder of the trial within the run.
        status: `success`, `failure`, `running`, `ended`, or null if unknown.
        settings: Value of each hyper-parameter, or null.
        metrics: Last value of each metric, or null.
    """

    run: str
    line: str
    status: str | None
    settings: list[Setting | None]
    metrics: list[float | None]


class EffectRow(msgspec.Struct):
    """Relation of a hyper-parameter to a metric.

    Attributes:
        parameter: Name of the hyper-parameter.
        metric: Name of the metric.
        trials: Number of trials with both.
        correlation: Rank correlation, or null for texts and too few trials.
        importance: Share of the variance of the metric's ranks that the hyper-parameter explains, or null.
    """

    parameter: str
    metric: str
    trials: int
    correlation: float | None
    importance: float | None


class TrialsList(msgspec.Struct):
    """Trials of runs.

    Attributes:
        complete: Whether all files were read; if not, ask again.
        parameters: Names of the hyper-parameters.
        metrics: Names of the metrics.
        trials: The trials.
        effects: Relations of each hyper-parameter to each metric.
        warnings: Skipped parts of the files.
    """

    complete: bool
    parameters: list[str]
    metrics: list[str]
    trials: list[TrialRow]
    effects: list[EffectRow]
    warnings: list[str]


class RunCharts(Resource):
    """The routes for histograms, curves and trials."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._store = services.get(RunDataStore)

    def _series(self, query: HistogramsQuery | CurvesQuery, *kinds: SampleKind) -> list[tuple[str, SampleSeries]]:
        runs, _ = self._store.load_all(query.runs)
        listed = [(run, series) for run, data in runs.items() for series in data.samples(kinds)]
        return [(run, series) for run, series in listed if series.tag == query.tag]

    @get("/data/histograms", errors=RUN_DATA_ERRORS | {422: "a value is damaged"}, needs="link")
    def histograms(self, query: HistogramsQuery) -> HistogramsAnswer:
        """Return the histograms of a tag in equal bins."""
        parsed: list[tuple[str, SampleSeries, Ints, list[Histogram]]] = []
        for run, series in self._series(query, "histogram"):
            rows = _chosen_rows(len(series.step), query.steps)
            parsed.append((run, series, rows, [series.decode(row, parse_histogram) for row in rows.tolist()]))
        edges = common_edges([histogram for *_, histograms in parsed for histogram in histograms], query.bins)
        lines = [
            HistogramLine(
                run=run,
                line=line_name(series.line, series.writer),
                total=len(series.step),
                step=series.step[rows],
                counts=[np.round(rebin(histogram, edges), 4).tolist() for histogram in histograms],
                quantiles=[_finite_or_none(quantiles(histogram).tolist()) for histogram in histograms],
            )
            for run, series, rows, histograms in parsed
        ]
        return HistogramsAnswer(edges, lines)

    @get("/data/curves", errors=RUN_DATA_ERRORS | {422: "a value is damaged"}, needs="link")
    def curves(self, query: CurvesQuery) -> CurvesLines:
        """Return the curves of a tag at a step, and the areas under the curves of all steps."""
        return CurvesLines(
            [_curve_line(run, series, query.step) for run, series in self._series(query, "pr_curve", "roc_curve")]
        )

    @get("/data/trials", errors=RUN_DATA_ERRORS | {422: "a value is damaged"}, needs="link")
    def trials(self, query: RunsQuery) -> TrialsList:
        """Return the trials of runs, and the relations of hyper-parameters to metrics."""
        runs, is_complete = self._store.load_all(query.runs)
        listed = [(run, trial) for run, data in runs.items() for trial in list_trials(data)]
        parameters = list(dict.fromkeys(name for _, trial in listed for name in trial.settings))
        metrics = list(dict.fromkeys(name for _, trial in listed for name in trial.metrics))
        rows = [
            TrialRow(
                run=run,
                line=line_name(trial.line, ""),
                status=trial.status or None,
                settings=[trial.settings.get(name) for name in parameters],
                metrics=[trial.metrics.get(name) for name in metrics],
            )
            for run, trial in listed
        ]
        effects = [
            EffectRow(name, metric, *effect_of([row.settings[i] for row in rows], [row.metrics[k] for row in rows]))
            for k, metric in enumerate(metrics)
            for i, name in enumerate(parameters)
        ]
        warnings = [text for data in runs.values() for text in data.warnings()]
        return TrialsList(is_complete, parameters, metrics, rows, effects, warnings)


def _chosen_rows(count: int, limit: int) -> Ints:
    """Return at most `limit` rows, evenly spaced, with the first and the last one."""
    if count <= limit:
        return np.arange(count)
    return np.rint(np.linspace(0, count - 1, limit)).astype(np.int64)


def _finite_or_none(values: list[float]) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values]


def _curve_line(run: str, series: SampleSeries, step: int | None) -> CurveLine:
    chosen = series.row_at(step)
    rows = _chosen_rows(len(series.step), _MAX_CURVES)
    areas = [_areas(series, row) for row in rows.tolist()]
    counts = series.decode(chosen, parse_curve)
    return CurveLine(
        run=run,
        line=line_name(series.line, series.writer),
        steps=series.step[rows],
        average_precision=[area.pr for area in areas],
        roc_area=[area.roc for area in areas],
        step=int(series.step[chosen]),
        **counts._asdict(),
        **rates_of(counts)._asdict(),
    )


def _areas(series: SampleSeries, row: int) -> Areas:
    """Return the areas under a curve; a damaged curve has none."""
    try:
        counts: CurveCounts = series.decode(row, parse_curve)
    except FormatError:
        return Areas(None, None)
    return areas_of(rates_of(counts))
