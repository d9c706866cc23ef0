"""Answers of a view for many recordings, computed in the background."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from visualprof.errors import NotReady, VisualprofError
from visualprof.reader.logdir.listing import Span
from visualprof.server.api.stepped_traces import SteppedTraces
from visualprof.server.api.trace_requests import load_or_compute_answer
from visualprof.supervised_thread import SupervisedThread
from visualprof.views import View

T = TypeVar("T")

_log = logging.getLogger(__name__)
_RETRY_S = 0.2  # after a trace that is not ready


def _unchanged(answer: Any) -> Any:
    return answer


class BackgroundAnswers(Generic[T]):
    """A thread that computes a view of recordings one after another, as long as requests ask for them.

    Args:
        traces: The traces of the log directory.
        view: The view, with its default parameters.
        fallback: Result for a recording whose answer cannot be computed.
        extract: Return the part of an answer that stays in memory.
    """

    def __init__(
        self, traces: SteppedTraces, view: View, fallback: T, extract: Callable[[Any], T] = _unchanged
    ) -> None:
        self._traces, self._view = traces, view
        self._fallback, self._extract = fallback, extract
        self._computed: dict[str, T] = {}
        self._requested: dict[str, Span] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def get(self, spans: Iterable[Span]) -> dict[str, T]:
        """Return the results so far of parsed spans, by fingerprint, and queue the other spans.

        Spans that an earlier call queued, but that this call does not request, are no longer queued.
        """
        requested = {span.summary.fingerprint: span for span in spans if span.summary}
        with self._lock:
            computed = {name: self._computed[name] for name in requested if name in self._computed}
            self._requested = {name: span for name, span in requested.items() if name not in computed}
            if self._requested and self._thread is None:
                self._thread = SupervisedThread(self._work, self._view.name, lambda: False)
                self._thread.start()
        return computed

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._requested:
                    self._thread = None
                    return
                fingerprint = next(iter(self._requested))
                span = self._requested.pop(fingerprint)
            try:
                result = self._compute(fingerprint, span)
            except NotReady:  # it is parsed again
                time.sleep(_RETRY_S)
                continue
            with self._lock:
                self._computed[fingerprint] = result

    def _compute(self, fingerprint: str, span: Span) -> T:
        view = self._view
        try:
            answer = load_or_compute_answer(self._traces, span, view, view.parse({}), (fingerprint,))
        except NotReady:
            raise
        except VisualprofError as error:
            _log.warning("no %s of %s: %s", view.name, span.log_file.file, error)
            return self._fallback
        return self._extract(answer)
