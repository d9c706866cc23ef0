"""State of one file in the log directories, and whether it is still changing."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from visualprof.clock import Clock
from visualprof.messages import msg
from visualprof.reader.logdir.listing import Span
from visualprof.reader.logdir.scan import LogFile
from visualprof.reader.logdir.summary import Failure, Outcome, Summary

# Growth causes no file events. A truncated file that has not changed for this long is considered cut.
_GROWTH_WINDOW_S = 60
_ABANDONED_HINT = msg(
    "logdir.nobody_writes_any_more",
    "it is no longer being written, so it is incomplete or recorded nothing; it opens automatically once complete",
)


class Entry(msgspec.Struct):
    """State of one file.

    Attributes:
        file: The file.
        span: `None` if the file is not shown.
        job: Number of the current parse, 0 for none.
        last_change: Monotonic time of the last change, 0 once the file has settled.
        changed: Monotonic time at which the file was last seen to have changed.
        parse_s: Duration of the last parse.
        submitted: Monotonic time at which the current parse was submitted or started.
        cache_misses: How often in a row the cache did not have the trace that was just parsed.
        process_deaths: How often in a row the process that parsed the file died.
    """

    file: LogFile
    span: Span | None = None
    job: int = 0
    last_change: float = 0.0
    changed: float = float("-inf")
    parse_s: float = 0.0
    submitted: float = 0.0
    cache_misses: int = 0
    process_deaths: int = 0

    @property
    def key(self) -> str:
        """Key of the current parse for the parser."""
        return f"{self.job}:{self.file.file}"

    @property
    def awaits_request(self) -> bool:
        """Whether this is a remote file that is downloaded once it is requested."""
        span = self.span
        return span is not None and self.file.verdict is not None and span.state == "waiting" and span.summary is None

    def is_settled(self, settle_s: float, clock: Clock) -> bool:
        """Return whether the file has been unchanged for long enough.

        Slow parses require a longer pause between them.
        """
        settle = max(settle_s, 2 * self.parse_s)
        return self._age_s(clock) > settle or clock.monotonic() - self.last_change >= settle

    def changed_recently(self, clock: Clock) -> bool:
        """Return whether the file changed recently."""
        return min(self._age_s(clock), clock.monotonic() - self.changed) < _GROWTH_WINDOW_S

    def may_grow(self, clock: Clock) -> bool:
        """Return whether more content is expected."""
        return self.span is not None and self.span.state == "growing" and self.changed_recently(clock)

    def parsed(self, span: Span, outcome: Outcome, clock: Clock) -> Span:
        """Return the span of the file with the outcome of a parse."""
        if isinstance(outcome, Summary):
            state = "growing" if outcome.truncated and self.changed_recently(clock) else "ready"
            return replace(span, state=state, progress=1.0, summary=outcome, format=outcome.format)
        state = "growing" if outcome.kind == "EmptyFile" else "failed"
        return replace(span, state=state, progress=0.0, summary=None, failure=outcome)

    def abandoned(self, clock: Clock) -> Span | None:
        """Return the span of a truncated file that no longer changes and is accepted as complete, else `None`."""
        span = self.span
        if span is None or span.state != "growing" or self.changed_recently(clock):
            return None
        if span.summary:
            return replace(span, state="ready")
        failure = span.failure and replace(span.failure, hint=_ABANDONED_HINT)
        return replace(span, state="failed", failure=failure) if failure else None

    def uncacheable(self, span: Span) -> Span:
        """Return the span of the file as failed, because the cache cannot hold its columns."""
        problem = msg("logdir.columns_cannot_kept", f"{self.file.name}: its columns cannot be kept")
        hint = msg("logdir.disk_cache_folder_full", "is the disk of the cache folder full?")
        return replace(span, state="failed", summary=None, failure=Failure(problem, hint, 500))

    def _age_s(self, clock: Clock) -> float:
        return (clock.time_ns() - self.file.version.mtime_ns) / 1e9
