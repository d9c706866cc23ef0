"""Join files of one run by the ranks that they state, if their names contain no rank.

`alpha.json` and `beta.json` of one folder are one run if they state different ranks of the same number of ranks. Two
files that state the same rank are different recordings. Then it is unknown which other files belong to which of them,
so that each file is a run of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from visualprof.reader.logdir.listing import Span
    from visualprof.reader.logdir.scan import Root

_Key = tuple["Root", str, int]  # log directory, folder, number of ranks


class _Group(msgspec.Struct):
    """Files of one folder that state a rank of the same number of ranks.

    Attributes:
        spans: The spans by file.
        is_run: Whether the files are one run.
    """

    spans: dict[str, Span]
    is_run: bool = False

    def changes(self) -> bool:
        """Return whether the files now form a run and did not before, or the reverse."""
        before, ranks = self.is_run, {span.stated.rank for span in self.spans.values()}
        self.is_run = len(self.spans) > 1 and len(ranks) == len(self.spans)
        return self.is_run != before

    def shown(self, span: Span) -> Span:
        """Return the span in the run of its folder if the files are one run, otherwise in a run of its own."""
        if not self.is_run:
            return span
        return replace(span, run_path=replace(span.run_path, run=span.log_file.folder or "."))


class RankFiles:
    """Files that state a rank which their names do not contain."""

    def __init__(self) -> None:
        self._groups: dict[_Key, _Group] = {}
        self._keys: dict[str, _Key] = {}

    def update(self, file: str, span: Span | None) -> list[Span]:
        """Add, change or remove a file. Return the spans to show: of the file, and of files that move to another run.

        Args:
            file: Unique name of the file.
            span: The span of the file; `None` if it was removed.
        """
        key, earlier_key = span and _group_key(span), self._keys.get(file)
        shown = self._remove(file, earlier_key) if earlier_key and earlier_key != key else []
        if span is None:
            return shown
        return [*shown, *(self._add(file, key, span) if key else [span])]

    def _add(self, file: str, key: _Key, span: Span) -> list[Span]:
        group = self._groups.setdefault(key, _Group({}))
        earlier, group.spans[file], self._keys[file] = group.spans.get(file), span, key
        if (earlier is None or earlier.stated != span.stated) and group.changes():
            return [group.shown(member) for member in group.spans.values()]
        return [group.shown(span)]

    def _remove(self, file: str, key: _Key) -> list[Span]:
        group = self._groups[key]
        del group.spans[file], self._keys[file]
        if not group.spans:
            del self._groups[key]
        return [group.shown(member) for member in group.spans.values()] if group.changes() else []


def _group_key(span: Span) -> _Key | None:
    """Return the group of a file, `None` if it states no rank or if its name puts it into a run with other files."""
    if not span.stated or span.run_path.run.rpartition("/")[2] != span.run_path.worker:
        return None
    return span.log_file.root, span.log_file.folder, span.stated.world_size
