"""Remedies of a failed allocation, with the bytes that each could make available, and what holds the memory.

All sizes are upper bounds: a remedy may free fewer bytes, and the request also needs one piece.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from visualprof.reader.trace import Ints, Trace
from visualprof.reader.trace.heap import is_at
from visualprof.views.measure.heap.choice import heap_of
from visualprof.views.measure.heap.growth import find_growth, step_entries
from visualprof.views.measure.heap.labels import block_labels
from visualprof.views.measure.heap.out_of_memory import Failure

RemedyKind = Literal[
    "expandable_segments",
    "fix_growth",
    "checkpoint_activations",
    "smaller_batch",
    "smaller_optimizer",
    "release_streams",
    "release_pools",
    "raise_limit",
]
BATCH_ROLES = ("activation", "input", "temporary")  # their memory grows with the batch
MAX_HOLDERS = 10


class Remedy(NamedTuple):
    """A remedy.

    Attributes:
        kind: The remedy.
        bytes: Bytes that it makes available at most.
        may_fit: Whether these are as many as are missing.
        name: Line of the program, "" for none.
        batch_ratio: Share of the batch that would fit; `None` for other remedies.
    """

    kind: RemedyKind
    bytes: int
    may_fit: bool
    name: str = ""
    batch_ratio: float | None = None


class FailureHolder(NamedTuple):
    """A line that holds memory when an allocation fails.

    Attributes:
        name: The line.
        bytes: Its requested bytes.
        blocks: Number of its blocks.
        change_bytes: Requested bytes that it holds more than before the last step; `None` without steps.
    """

    name: str
    bytes: int
    blocks: int
    change_bytes: int | None


def missing_bytes(failure: Failure) -> int:
    """Return the bytes that the device lacks for the segment of a request; 0 if it has enough."""
    return max(failure.segment - failure.device_free, 0)


def find_remedies(trace: Trace, device: int, failure: Failure) -> list[Remedy]:
    """Return the remedies of a failure, sufficient ones first, then by bytes."""
    heap = heap_of(trace)
    missing, steps = missing_bytes(failure), step_entries(trace, heap, device)
    roles = _role_bytes(trace, device, failure.entry)
    batch = sum(roles.get(role, 0) for role in BATCH_ROLES)
    activations = roles.get("activation", 0) - _largest_activation(trace, device, failure.entry)
    amounts: list[tuple[RemedyKind, int, str]] = [
        ("checkpoint_activations", activations, ""),
        ("smaller_optimizer", roles.get("optimizer_state", 0), ""),
        ("release_streams", failure.pending, ""),
        ("release_pools", failure.elsewhere if failure.cause == "other_pool" else 0, ""),
        ("raise_limit", failure.device_free if failure.cause == "not_allocator" else 0, ""),
    ]
    labels, names = block_labels(trace, "line")
    for row in find_growth(heap, device, steps, labels):
        amounts.append(("fix_growth", sum(row.step_bytes), names[row.label]))  # noqa: PERF401 - typed as its kind
    if failure.cause == "fragmentation" and heap.tables.settings[1] != 1:
        amounts.append(("expandable_segments", failure.usable, ""))
    remedies = [Remedy(kind, size, size >= missing, name) for kind, size, name in amounts if size > 0]
    if batch > 0:
        ratio = 1 - missing / batch
        remedies.append(Remedy("smaller_batch", batch, batch >= missing, batch_ratio=ratio if ratio > 0 else None))
    return sorted(remedies, key=lambda remedy: (not remedy.may_fit, -remedy.bytes))


def failure_holders(trace: Trace, device: int, failure: Failure) -> list[FailureHolder]:
    """Return the lines that hold the most memory at a failure, and how much more than before the last step."""
    heap, labels = heap_of(trace), block_labels(trace, "line")
    started = [first for first, _ in step_entries(trace, heap, device) if first <= failure.entry]
    alive = _alive(trace, device, failure.entry)
    count = len(labels.names)
    held, blocks = _sum(trace, alive, count), np.bincount(labels.label[alive], minlength=count)
    before = _sum(trace, _alive(trace, device, started[-1] - 1), count) if started else None
    order = np.argsort(-held, kind="stable")[:MAX_HOLDERS]
    return [
        FailureHolder(
            labels.names[row],
            int(held[row]),
            int(blocks[row]),
            None if before is None else int(held[row] - before[row]),
        )
        for row in order.tolist()
        if held[row]
    ]


def _alive(trace: Trace, device: int, entry: int) -> Ints:
    blocks = heap_of(trace).blocks
    return np.flatnonzero((blocks.device == device) & is_at(blocks.born, blocks.died, entry))


def _sum(trace: Trace, rows: Ints, count: int) -> Ints:
    """Return the requested bytes of blocks by line."""
    labels = block_labels(trace, "line").label
    return np.bincount(labels[rows], heap_of(trace).blocks.requested[rows], count).astype(np.int64)


def _role_bytes(trace: Trace, device: int, entry: int) -> dict[str, int]:
    """Return the requested bytes of live blocks by role."""
    labels, rows = block_labels(trace, "category"), _alive(trace, device, entry)
    sums = np.bincount(labels.label[rows], heap_of(trace).blocks.requested[rows], len(labels.names))
    return dict(zip(labels.names, map(int, sums.tolist()), strict=True))


def _largest_activation(trace: Trace, device: int, entry: int) -> int:
    """Return the requested bytes of the largest live activation, which a checkpoint has to compute again."""
    labels, rows = block_labels(trace, "category"), _alive(trace, device, entry)
    is_activation = np.array([name == "activation" for name in labels.names], bool)[labels.label[rows]]
    return int(heap_of(trace).blocks.requested[rows[is_activation]].max(initial=0))
