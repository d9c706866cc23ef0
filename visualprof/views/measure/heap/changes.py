"""Memory by group at two moments: growth, new blocks, and released blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from visualprof.reader.trace import Ints, Trace
from visualprof.views.answers import kinds
from visualprof.views.answers.table import Columns
from visualprof.views.measure.heap.choice import heap_of
from visualprof.views.measure.heap.labels import GroupBy, block_labels


class MomentChangeColumns(Columns):
    """Groups with different memory at two moments, the largest change first.

    Attributes:
        base_bytes: Requested bytes at the first moment.
        bytes: Requested bytes at the second moment.
        delta_bytes: Increase.
        base_blocks: Number of blocks at the first moment.
        blocks: Number of blocks at the second moment.
        new_bytes: Requested bytes of blocks that were allocated in between and are alive at the second moment.
    """

    name: kinds.NameColumn
    base_bytes: kinds.SizeColumn
    bytes: kinds.SizeColumn
    delta_bytes: kinds.SizeColumn
    base_blocks: kinds.CountColumn
    blocks: kinds.CountColumn
    new_bytes: kinds.SizeColumn


class _Sums(NamedTuple):
    """Sums of some blocks by label, (n,)."""

    bytes: Ints
    blocks: Ints


def moment_changes(trace: Trace, base: Ints, new: Ints, by: GroupBy) -> MomentChangeColumns:
    """Return the change of each group between two selections of blocks.

    Args:
        trace: A memory snapshot.
        base: Rows of the blocks that are alive at the first moment.
        new: Rows of the blocks that are alive at the second moment.
        by: The labels.
    """
    names = block_labels(trace, by).names
    before, after = _sums(trace, base, by), _sums(trace, new, by)
    added = _sums(trace, np.setdiff1d(new, base, assume_unique=True), by)
    change = after.bytes - before.bytes
    changed = np.flatnonzero((change != 0) | (after.blocks != before.blocks))
    order: Ints = changed[np.lexsort((-after.bytes[changed], -np.abs(change[changed])))]
    return MomentChangeColumns(
        name=[names[row] for row in map(int, order)],
        base_bytes=before.bytes[order],
        bytes=after.bytes[order],
        delta_bytes=change[order],
        base_blocks=before.blocks[order],
        blocks=after.blocks[order],
        new_bytes=added.bytes[order],
    )


def _sums(trace: Trace, rows: Ints, by: GroupBy) -> _Sums:
    labels, requested = block_labels(trace, by), heap_of(trace).blocks.requested
    count = len(labels.names)
    return _Sums(
        np.bincount(labels.label[rows], requested[rows], count).astype(np.int64),
        np.bincount(labels.label[rows], minlength=count),
    )
