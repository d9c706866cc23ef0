"""State of one file in the log directories, and whether it is still changing."""

from __future__ import annotations

import msgspec

from visualprof.clock import Clock
from visualprof.reader.logdir.listing import Span
from visualprof.reader.logdir.scan import LogFile

# Growth causes no file events. A truncated file that has not changed for this long is considered cut.
_GROWTH_WINDOW_S = 60


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

    def _age_s(self, clock: Clock) -> float:
        return (clock.time_ns() - self.file.version.mtime_ns) / 1e9
