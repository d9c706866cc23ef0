"""Load traces in which the ranges that a request names are the steps."""

from __future__ import annotations

from visualprof.reader.logdir.listing import Span
from visualprof.reader.trace import Trace
from visualprof.reader.trace.step_ranges import with_step_range
from visualprof.server.api.result_cache import ResultCache
from visualprof.server.api.spans import load_trace, require_summary
from visualprof.server.services import Services

# Traces with other steps than those of their files. Most of their columns are those of the cached trace.
MAX_STEPPED_TRACES = 4


class SteppedTraces:
    """Traces of spans, with the steps of the file or with the ranges of a pattern as steps.

    Args:
        logdir: The log directory, also an attribute.
    """

    def __init__(self, services: Services) -> None:
        self.logdir, self._traces = services.logdir, ResultCache[Trace](MAX_STEPPED_TRACES)

    def load(self, span: Span, step_range: str) -> Trace:
        """Return the trace of a span.

        Args:
            span: The span.
            step_range: Pattern of the ranges that are steps; "" for the file's own steps.

        Raises:
            BadParameter: No range has such a name.
            UnreadableFile: The file could not be parsed.
            StillParsing: The span is not parsed yet, or its columns are no longer in the cache.
        """
        if not step_range:
            return load_trace(self.logdir, span)
        version = self.version(span, step_range)
        return self._traces.get(version, lambda: with_step_range(load_trace(self.logdir, span), step_range))

    def step_names(self, span: Span, step_range: str) -> tuple[str, ...]:
        """Return the names of a span's steps in order, as `load` defines them."""
        if not step_range:
            return require_summary(self.logdir, span).steps
        trace = self.load(span, step_range)
        return tuple(dict.fromkeys(trace.strings[int(name)] for name in trace.steps.name))

    def version(self, span: Span, step_range: str) -> str:
        """Return a text that changes with the contents of the file and with the pattern."""
        fingerprint = require_summary(self.logdir, span).fingerprint
        return f"{fingerprint} {step_range}" if step_range else fingerprint
