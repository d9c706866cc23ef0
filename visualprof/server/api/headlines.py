"""The main numbers of runs, for the list of runs."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.logdir.listing import Run, Span
from visualprof.server.api.background_answers import BackgroundAnswers
from visualprof.server.api.stepped_traces import SteppedTraces
from visualprof.server.routes import Query, Resource, get
from visualprof.server.services import Services
from visualprof.views.answers import kinds
from visualprof.views.overview import VIEW, OverviewAnswer

MAX_RUNS = 60


class HeadlinesQuery(Query):
    """The runs."""

    hint = msg("server.runs_listed_api", "runs are listed by /api/v1/runs")

    runs: Annotated[str, Meta(description=f"ids of at most {MAX_RUNS} runs, one per line")]


class RunHeadline(msgspec.Struct, frozen=True):
    """The main numbers of the first recording of a run, as on its overview.

    Attributes:
        step_median_ns: Median step time.
        utilization: Mean utilization of the devices.
        devices: Names of the devices, or the kind of device if the file has no names.
    """

    step_median_ns: kinds.Duration | None
    utilization: kinds.Ratio | None
    devices: list[str]


class HeadlinesAnswer(msgspec.Struct):
    """The main numbers of runs.

    Attributes:
        headlines: Numbers by id of the run, as far as they are known. Runs without an overview are missing.
        waiting: Number of runs whose numbers are still being computed. Ask again for them.
    """

    headlines: dict[str, RunHeadline]
    waiting: int


class Headlines(Resource):
    """The route for the main numbers of runs."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._answers = BackgroundAnswers(services.get(SteppedTraces), VIEW, RunHeadline(None, None, []), _headline)

    @get("/runs/headlines", errors={400: "too many runs"}, needs="link")
    def headlines(self, query: HeadlinesQuery) -> HeadlinesAnswer:
        """Return the main numbers of some runs, as far as they are known. The others are computed in the background."""
        names = set(filter(None, query.runs.split("\n")))
        if len(names) > MAX_RUNS:
            raise BadParameter(
                msg("server.too_many_runs", f"{len(names)} runs were requested; at most {MAX_RUNS} are allowed"),
                query.hint,
            )
        spans = {run.id: _shown_span(run) for run in self._visible.listing().runs if run.id in names}
        parsed = {name: span for name, span in spans.items() if span and span.summary}
        computed = self._answers.get(parsed.values())
        headlines = {
            name: computed[span.summary.fingerprint]
            for name, span in parsed.items()
            if span.summary and span.summary.fingerprint in computed
        }
        return HeadlinesAnswer(headlines, len(parsed) - len(headlines))


def _shown_span(run: Run) -> Span | None:
    """Return the recording that the overview of a run shows first, or None if it is not parsed or has no overview."""
    span = next((span for worker in run.workers[:1] for span in worker.spans), None)
    return span if span and span.summary and VIEW.name in span.summary.views else None


def _headline(overview: OverviewAnswer) -> RunHeadline:
    utilization = [device.utilization for device in overview.devices if device.utilization is not None]
    return RunHeadline(
        step_median_ns=overview.headline.step_median_ns,
        utilization=sum(utilization) / len(utilization) if utilization else None,
        devices=[device.name for device in overview.devices] or [overview.environment.device_type],
    )
