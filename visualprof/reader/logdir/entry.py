"""What is known of one file of the log directories, whatever it turned out to be, and whether it is at rest."""

from __future__ import annotations

import time

import msgspec

from visualprof.reader.logdir.listing import Span
from visualprof.reader.logdir.scan import LogFile

# No event tells of growth. A file that ends in the middle and has not changed for so long was cut.
_GROWTH_WINDOW_S = 60


class Entry(msgspec.Struct):
    """What this process knows of one file.

    span: None for a file that is not shown. job: of the parse under way, 0 for none.
    restless_since: monotonic time of the last change; 0 once it has come to rest.
    changed: monotonic time at which it was last seen to have changed.
    misses: how often in a row the cache did not have what was just parsed.
    deaths: how often in a row the process that parsed it ended.
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
        """Of its parse under way, towards the parser."""
        return f"{self.job}:{self.file.file}"

    def is_settled(self, settle_s: float) -> bool:
        """Has it been unchanged for long enough? What takes long to parse must rest longer between two parses."""
        settle = max(settle_s, 2 * self.parse_s)
        return self._age_s() > settle or time.monotonic() - self.last_change >= settle

    def changed_recently(self) -> bool:
        """Did it change of late?"""
        return min(self._age_s(), time.monotonic() - self.changed) < _GROWTH_WINDOW_S

    def may_grow(self) -> bool:
        """Is more of it expected?"""
        return self.span is not None and self.span.state == "growing" and self.changed_recently()

    def _age_s(self) -> float:
        return time.time() - self.file.version.mtime_ns / 1e9
