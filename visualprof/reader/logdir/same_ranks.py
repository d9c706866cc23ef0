"""Separate recordings of one folder that have the same rank in their names: they are of different experiments.

`cnn_worker0.1623143089861.pt.trace.json` and `bert_worker0.1623213129365.pt.trace.json` cannot be processes of one run,
because both have rank 0. Then the other words of the name (`cnn`, `bert`) name the runs of such files in the folder.
Without such a conflict, the words may be hosts (`node7_rank0`, `node8_rank1`), and all files are one run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from visualprof.reader.logdir.listing import Span
    from visualprof.reader.logdir.scan import Root

_Key = tuple["Root", str]  # log directory, folder


class _Folder(msgspec.Struct):
    """Files of one folder with a rank and other words in their names.

    Attributes:
        spans: The spans by file.
        workers: Number of files by worker, by rank.
        conflicts: Number of ranks with several workers.
    """

    spans: dict[str, Span] = {}
    workers: dict[int, dict[str, int]] = {}
    conflicts: int = 0

    def count(self, span: Span, files: int) -> None:
        """Add or remove files of the worker of a span."""
        rank, worker = span.run_path.rank, span.run_path.worker
        workers = self.workers.setdefault(rank, {})
        self.conflicts -= len(workers) > 1
        workers[worker] = workers.get(worker, 0) + files
        if not workers[worker]:
            del workers[worker]
        self.conflicts += len(workers) > 1

    def shown(self, span: Span) -> Span:
        """Return the span in the run that its name gives if ranks conflict, otherwise in the run of the folder."""
        if not self.conflicts:
            return span
        run = "/".join(filter(None, (span.log_file.folder, span.run_path.words)))
        return replace(span, run_path=replace(span.run_path, run=run))


class SameRanks:
    """Files with a rank and other words in their names."""

    def __init__(self) -> None:
        self._folders: dict[_Key, _Folder] = {}
        self._keys: dict[str, _Key] = {}

    def update(self, file: str, span: Span | None) -> list[Span]:
        """Add, change or remove a file. Return the spans to show: of the file, and of files that move to another run.

        Args:
            file: Unique name of the file.
            span: The span of the file; `None` if it was removed.
        """
        key = (span.log_file.root, span.log_file.folder) if span and span.run_path.words else None
        earlier = self._keys.get(file)
        if span is not None and key is not None and earlier in (None, key):
            return self._set(file, key, span)
        moved = self._set(file, earlier, None) if earlier else []
        if span is None:
            return moved
        return [*moved, *(self._set(file, key, span) if key else [span])]

    def _set(self, file: str, key: _Key, span: Span | None) -> list[Span]:
        """Set the span of a file in its folder, `None` to remove it; return the spans to show."""
        folder = self._folders.setdefault(key, _Folder())
        were_separate = folder.conflicts > 0
        if earlier := folder.spans.pop(file, None):
            folder.count(earlier, -1)
            del self._keys[file]
        if span is not None:
            folder.spans[file], self._keys[file] = span, key
            folder.count(span, 1)
        if not folder.spans:
            del self._folders[key]
        if (folder.conflicts > 0) != were_separate:
            return [folder.shown(member) for member in folder.spans.values()]
        return [] if span is None else [folder.shown(span)]
