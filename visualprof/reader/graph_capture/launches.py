"""Launches of captured graphs in a recording: the kernels of each launch, and launches of the same graph."""

from __future__ import annotations

from ctypes import c_int64

import msgspec
import numpy as np

from visualprof.reader.graph_capture.graphs import kernel_token
from visualprof.reader.native import INT32, INT64, function
from visualprof.reader.trace import Category, Ids, Ints, LinkKind, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.reader.trace.serving import parse_serving_step

WORK_CATEGORIES = (Category.KERNEL, Category.COMM, Category.MEMCPY, Category.MEMSET)
GRAPH_LAUNCH = "GraphLaunch"


class GraphLaunches(msgspec.Struct, frozen=True):
    """Launches in order of time.

    Attributes:
        call: (l,) rows of the launch calls.
        work: (w,) rows of the launched device work, by launch and start.
        first: (l + 1,) slice of each launch in `work`.
        batch: (l, 2) tokens and requests of the step around each launch, -1 if unknown.
        kind: (l,) kind of each launch, 0 to kinds - 1. Launches of one kind launched the same names in the same order,
            in steps of the same batch.
        kinds: The number of kinds.
    """

    call: Ids
    work: Ids
    first: Ints
    batch: Ints
    kind: Ints
    kinds: int

    def tokens(self, trace: Trace, launch: int) -> tuple[str, ...]:
        """Return the `kernel_token` of each piece of work of a launch."""
        rows = self.work[self.first[launch] : self.first[launch + 1]]
        names: list[int] = trace.events.name[rows].tolist()
        categories: list[int] = trace.events.category[rows].tolist()
        return tuple(kernel_token(trace.strings[n], c) for n, c in zip(names, categories, strict=True))


def graph_launches(trace: Trace) -> GraphLaunches | None:
    """Return the graph launches with known kernels, or `None` without such launches."""
    events = trace.events
    named = np.array([GRAPH_LAUNCH in name for name in trace.strings], bool)
    if not named.any():
        return None
    links = trace.links
    calls = (events.category == Category.RUNTIME) & named[events.name]
    is_work = events.category_mask(*WORK_CATEGORIES) & trace.track_mask(TrackKind.STREAM) & (events.dur >= 0)
    is_graph_work = (links.kind == LinkKind.LAUNCH) & calls[links.src] & is_work[links.dst]
    if not is_graph_work.any():
        return None
    work, launch_number = (
        (links.dst, links.src) if is_graph_work.all() else (links.dst[is_graph_work], links.src[is_graph_work])
    )
    rows = np.flatnonzero(calls)
    rows = rows[np.argsort(events.ts[rows], kind="stable")].astype(np.int32)
    launch_index = np.empty(len(events), np.int32)
    launch_index[rows] = np.arange(len(rows), dtype=np.int32)
    launch_number = launch_index[launch_number]
    work, launch_number = _sort_work(events.ts, work, launch_number)
    first_work = np.flatnonzero(np.diff(launch_number, prepend=np.int32(-1)))
    first, call = np.append(first_work, len(work)), rows[launch_number[first_work]]
    batch = _batches(trace, call)
    launch_hash = _launch_hashes(events.name, work, first)
    _, kind = np.unique(np.column_stack((launch_hash, batch)), axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    return GraphLaunches(call, work, first, batch, kind, int(kind.max()) + 1)


def launches_without_work(trace: Trace) -> int:
    """Return the number of graph launches without a recorded kernel.

    A driver call inside the runtime call is the same launch.
    """
    events, links = trace.events, trace.links
    named = np.array([GRAPH_LAUNCH in name for name in trace.strings], bool)
    calls = np.append((events.category == Category.RUNTIME) & named[events.name], False)
    worked = np.zeros(len(events) + 1, bool)
    worked[links.src[links.kind == LinkKind.LAUNCH]] = True
    rows = np.flatnonzero(calls)
    outer = rows[~calls[events.parent[rows]]]
    inner = rows[calls[events.parent[rows]]]
    worked[events.parent[inner[worked[inner]]]] = True
    return int(np.count_nonzero(~worked[outer]))


def _sort_work(ts: Ints, work: Ids, call: Ids) -> tuple[Ids, Ids]:
    """Return work and its calls by call and start, which is nearly always their order already."""
    start = ts[work]
    late = (call[1:] < call[:-1]) | ((call[1:] == call[:-1]) & (start[1:] < start[:-1]))
    if not late.any():
        return work, call
    order = np.lexsort((start, call))
    return work[order], call[order]


def _batches(trace: Trace, calls: Ids) -> Ints:
    """Return (l, 2) tokens and requests of the innermost step annotation around each call, -1 if unknown.

    If a text has no tokens, as most of SGLang's, its requests are used for both.
    """
    events = trace.events
    sizes = np.full((len(trace.strings), 2), -1, np.int64)
    for i, name in enumerate(trace.strings):
        if serving := parse_serving_step(name):
            size = serving.tokens if serving.engine == "vllm" else serving.batch
            sizes[i] = [-1 if number is None else min(number, 10**9) for number in (size, serving.batch)]
    has_batch = (sizes[events.name] >= 0).any(axis=1) & events.category_mask(Category.ANNOTATION, Category.STEP)
    step = nearest_ancestor(events.parent, has_batch, calls)
    return np.where(step[:, None] >= 0, sizes[events.name[step]], -1)


def _launch_hashes(name: Ids, work: Ids, first: Ints) -> Ints:
    """Return a 64-bit hash per launch of its names in order; two different launches collide with probability 2^-64."""
    native = function("vp_launch_hashes", None, INT32, INT32, INT64, c_int64, INT64)
    if native:
        hashes = np.empty(len(first) - 1, np.int64)
        native(name, work, first, len(hashes), hashes)
        return hashes
    position = np.arange(len(work)) - np.repeat(first[:-1], np.diff(first))
    mixed = name[work].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= position.astype(np.uint64) * np.uint64(0xD6E8FEB86659FD93)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return np.add.reduceat(mixed, first[:-1]).view(np.int64)
