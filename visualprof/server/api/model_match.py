"""Which model a run is of: the one whose nodes have the names that the run measured."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from visualprof.errors import NotReady, VisualprofError
from visualprof.messages import msg
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.trace import Trace
from visualprof.server.api.models import Entry, Models
from visualprof.server.api.spans import load_trace
from visualprof.server.routes import SPAN_ERRORS, Resource, SpanQuery, get
from visualprof.server.visible import Visible
from visualprof.views.measure.graph_join import join_times

MIN_MATCH_RATIO = 0.5  # of the measured time: names such as Conv_0, which many models have, match less by chance
CERTAIN_MATCH_RATIO = 0.99  # better than this none can be: the models that are still being read need not be waited for
RIVAL_MARGIN = 0.05  # models that differ by less fit about as well
MAX_MODELS = 200  # models at most, those beside the run and the newest
MAX_CACHED_RESULTS = 10_000
MAX_COMPUTE_S = 0.3  # of computing an answer may take; what is left is "reading"


class ModelMatch(msgspec.Struct):
    """How well a model fits. matched_ratio: of the measured time, null where none was; covered_ratio: of its operators.

    beside: it lies in the folder of the run.
    """

    model: str
    matched_ratio: float | None
    covered_ratio: float
    beside: bool


class MatchesAnswer(msgspec.Struct):
    """Models that fit a run, the best first.

    best: id of the run's model, null when none fits or the best is not known yet. rivals: those that fit about as well.
    reading: models that are still to be read. unread: that cannot be, or are beyond the number that is compared.
    """

    matches: list[ModelMatch]
    best: str | None
    rivals: list[str]
    reading: int
    unread: int


class Matches(Resource):
    """The route over one log directory. What was found is kept for each version of a model and a profile."""

    def __init__(self, logdir: LogDirectory, visible: Visible, models: Models) -> None:
        self._logdir, self._visible, self._models = logdir, visible, models
        self._known: OrderedDict[object, tuple[float | None, float]] = OrderedDict()
        self._lock = threading.Lock()

    @get("/models/match", errors=SPAN_ERRORS, needs="link")
    def match(self, query: SpanQuery) -> MatchesAnswer:
        """Models by how much of a run's time finds its node in them; ask again while some are still being read."""
        span = self._visible.listing().find(query.run, query.worker, query.span)
        trace = load_trace(self._logdir, span)
        fingerprint = span.summary.fingerprint if span.summary else ""
        entries = sorted(self._models.listing()[0], key=lambda e: (e[0].run != query.run, -e[0].modified_ns))
        matches: list[ModelMatch] = []
        reading, unread = 0, max(0, len(entries) - MAX_MODELS)
        until = time.monotonic() + MAX_COMPUTE_S
        for entry in entries[:MAX_MODELS]:
            model = entry[0]
            try:
                matched, covered = self._match(entry, trace, fingerprint, until)
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
        return MatchesAnswer(matches, best.model if best else None, [m.model for m in rivals], reading, unread)

    def _match(self, entry: Entry, trace: Trace, fingerprint: str, until: float) -> tuple[float | None, float]:
        """Return the shares of the time that matches a node, and of the operators that have time.

        Raises:
            NotReady: The model is being read, or the answer takes long.
            Failed: The model cannot be read.
        """
        model, path = entry
        key = (path, model.modified_ns, model.size_bytes, fingerprint)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        graph = self._models.read(entry, 0)
        if time.monotonic() > until:
            raise NotReady(
                msg("server.not_compared_yet", f"{model.name} is not compared yet"),
                msg("server.ask_again", "ask again"),
            )
        joined = join_times(graph, trace)
        timed = [event >= 0 for event, node in zip(joined.event, graph.nodes, strict=True) if node.kind == "operator"]
        matched = joined.matched_ns / joined.total_ns if joined.total_ns else None
        with self._lock:
            self._known[key] = matched, sum(timed) / max(1, len(timed))
            while len(self._known) > MAX_CACHED_RESULTS:
                self._known.popitem(last=False)
            return self._known[key]


def select_best(matches: Sequence[ModelMatch]) -> tuple[ModelMatch | None, list[ModelMatch]]:
    """The run's model and those that fit about as well, of matches the best first.

    A model in the run's folder is preferred to others that fit alike. Where none fits, it is the one in that folder.
    """
    fitting = [m for m in matches if m.matched_ratio is not None and m.matched_ratio >= MIN_MATCH_RATIO]
    if not fitting:
        beside = [m for m in matches if m.beside]
        return (beside[0], []) if len(beside) == 1 else (None, [])
    best = fitting[0]
    least = (best.matched_ratio or 0) - RIVAL_MARGIN
    return best, [m for m in fitting[1:] if (m.matched_ratio or 0) >= least and m.beside == best.beside]


def _fitness(match: ModelMatch) -> tuple[float, bool, float]:
    """In whole percent: a hundredth more of the time says nothing against the folder."""
    return -round(match.matched_ratio or 0, 2), not match.beside, -round(match.covered_ratio, 2)
