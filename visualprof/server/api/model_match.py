"""Find the model of a run: the model with the node names that the run measured."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from visualprof.errors import NotReady, VisualprofError
from visualprof.messages import msg
from visualprof.reader.trace import Trace
from visualprof.server.api.model_graphs import recorded_id
from visualprof.server.api.models import Entry, Models
from visualprof.server.api.spans import load_trace
from visualprof.server.routes import SPAN_ERRORS, Resource, SpanQuery, get
from visualprof.server.services import Services
from visualprof.views.measure.graphs.join import join_times
from visualprof.views.measure.graphs.recorded_modules import records_modules

MIN_MATCH_RATIO = 0.5  # of the measured time; below, common names such as Conv_0 match by chance
CERTAIN_MATCH_RATIO = 0.99  # no other model can match clearly better, so models that are being read do not matter
RIVAL_MARGIN = 0.05  # models with a smaller difference match about as well
MAX_MODELS = 200  # compared models: those in the run's folder, then the newest
MAX_CACHED_RESULTS = 10_000
MAX_COMPUTE_S = 0.3  # time limit of an answer; the remaining models count as "reading"


class ModelMatch(msgspec.Struct):
    """How well a model matches a run.

    Attributes:
        model: Id of the model.
        matched_ratio: Share of the measured time that matches a node, or null if no time was measured.
        covered_ratio: Share of the model's operators that have a measured time.
        beside: Whether the model is in the folder of the run.
    """

    model: str
    matched_ratio: float | None
    covered_ratio: float
    beside: bool


class MatchesAnswer(msgspec.Struct):
    """The models that match a run, the best first.

    Attributes:
        matches: The compared models.
        best: Id of the run's model, or null if no model matches or the best match is not known yet.
        rivals: Ids of other models that match about as well.
        reading: Number of models that are still being read.
        unread: Number of models that cannot be read, or that exceed the maximum number of compared models.
        recorded: Id of the modules that the run called, as a model; null if none were recorded.
    """

    matches: list[ModelMatch]
    best: str | None
    rivals: list[str]
    reading: int
    unread: int
    recorded: str | None


class Matches(Resource):
    """The route that matches models with runs. Results are cached per version of a model and a profile."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._models = services.get(Models)
        self._cached: OrderedDict[object, tuple[float | None, float]] = OrderedDict()
        self._lock = threading.Lock()

    @get("/models/match", errors=SPAN_ERRORS, needs="link")
    def match(self, query: SpanQuery) -> MatchesAnswer:
        """Rank models by the share of a run's time that matches their nodes.

        Repeat the request while `reading` is above 0.
        """
        span = self._visible.listing().find(query.run, query.worker, query.span)
        trace = load_trace(self._logdir, span)
        fingerprint = span.summary.fingerprint if span.summary else ""
        entries = sorted(self._models.listing()[0], key=lambda e: (e[0].run != query.run, -e[0].modified_ns))
        matches: list[ModelMatch] = []
        reading, unread = 0, max(0, len(entries) - MAX_MODELS)
        deadline = time.monotonic() + MAX_COMPUTE_S
        for entry in entries[:MAX_MODELS]:
            model = entry[0]
            try:
                matched, covered = self._match(entry, trace, fingerprint, deadline)
                matches.append(ModelMatch(model.id, matched, covered, model.run == query.run))
            except NotReady:
                reading += 1
            except VisualprofError:
                unread += 1
        changed = {model.id: model.modified_ns for model, _ in entries}
        matches.sort(key=lambda m: (*_fitness(m), -changed[m.model]))
        best, rivals = select_best(matches)
        if reading and not (best and (best.matched_ratio or 0) >= CERTAIN_MATCH_RATIO):
            best, rivals = None, []
        return MatchesAnswer(
            matches,
            best.model if best else None,
            [m.model for m in rivals],
            reading,
            unread,
            recorded_id(query) if records_modules(trace) else None,
        )

    def _match(self, entry: Entry, trace: Trace, fingerprint: str, deadline: float) -> tuple[float | None, float]:
        """Return the share of the time that matches a node, and the share of operators that have a time.

        Raises:
            NotReady: The model is being read, or the answer takes too long.
            VisualprofError: The model cannot be read.
        """
        model, path = entry
        key = (path, model.modified_ns, model.size_bytes, fingerprint)
        with self._lock:
            if key in self._cached:
                self._cached.move_to_end(key)
                return self._cached[key]
        graph = self._models.read(entry, 0)
        if time.monotonic() > deadline:
            raise NotReady(
                msg("server.not_compared_yet", f"{model.name} is not compared yet"),
                msg("server.ask_again", "ask again"),
            )
        joined_times = join_times(graph, trace)
        has_time = [
            event >= 0 for event, node in zip(joined_times.event, graph.nodes, strict=True) if node.kind == "operator"
        ]
        matched = joined_times.matched_ns / joined_times.total_ns if joined_times.total_ns else None
        with self._lock:
            self._cached[key] = matched, sum(has_time) / max(1, len(has_time))
            while len(self._cached) > MAX_CACHED_RESULTS:
                self._cached.popitem(last=False)
            return self._cached[key]


def select_best(matches: Sequence[ModelMatch]) -> tuple[ModelMatch | None, list[ModelMatch]]:
    """Return the run's model and the models that match about as well. `matches` is sorted, the best first.

    A model in the run's folder takes precedence over other models that match equally well. If no model matches, the
    only model in that folder is returned.
    """
    fitting = [m for m in matches if m.matched_ratio is not None and m.matched_ratio >= MIN_MATCH_RATIO]
    if not fitting:
        in_folder = [m for m in matches if m.beside]
        return (in_folder[0], []) if len(in_folder) == 1 else (None, [])
    best = fitting[0]
    min_ratio = (best.matched_ratio or 0) - RIVAL_MARGIN
    return best, [m for m in fitting[1:] if (m.matched_ratio or 0) >= min_ratio and m.beside == best.beside]


def _fitness(match: ModelMatch) -> tuple[float, bool, float]:
    """Return the sort key of a match, in whole percent: a difference below 1 % does not outweigh the run's folder."""
    return -round(match.matched_ratio or 0, 2), not match.beside, -round(match.covered_ratio, 2)
