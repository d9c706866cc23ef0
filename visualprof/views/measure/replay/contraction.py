"""Contract a wait graph to some of its nodes: their times stay the same, with a hundredth of the edges."""

from __future__ import annotations

from ctypes import c_int64

import msgspec
import numpy as np

from visualprof.reader.native import FLOAT64, INT32, INT64, UINT8, function
from visualprof.reader.trace import Bytes, Floats, Ids
from visualprof.views.measure.replay.graph import Dependencies

MAX_INCOMING = 3  # shortcuts to a contracted node; nodes with more are retained


class Shortcuts(msgspec.Struct, frozen=True):
    """The longest paths from retained nodes to the next retained ones, (m,) sorted by `dst`.

    Attributes:
        src: (m,) index among all nodes.
        dst: (m,) index among all nodes.
        delay_ns: (m,) time from the end of the work of `src` to `dst`.
        breakdown_ns: (m, parts) time by part.
    """

    src: Ids
    dst: Ids
    delay_ns: Floats
    breakdown_ns: Floats


class Contraction(msgspec.Struct, frozen=True):
    """The retained nodes of a graph, and the computation of edges between them.

    Attributes:
        edges: All edges.
        work_part: (n,) part that a node's device work belongs to, -1 for none. The part of an edge
            is its kind.
        part_count: Number of parts.
        is_retained: (n,) 1 for retained nodes.
        shortcut_count: Number of shortcuts.
    """

    edges: Dependencies
    work_part: Ids
    part_count: int
    is_retained: Bytes
    shortcut_count: int

    def shortcuts(self, dur: Floats, delay_ns: Floats, with_breakdown: bool = False) -> Shortcuts:
        """Return the shortcuts for some durations of device work and delays, always in the same order."""
        return _contract(
            self,
            np.array(self.is_retained),
            self.shortcut_count,
            dur,
            delay_ns,
            self.part_count if with_breakdown else 0,
        )[1]


def contract(edges: Dependencies, work_part: Ids, part_count: int, is_retained: Bytes) -> Contraction:
    """Retain some nodes and those with more than `MAX_INCOMING` shortcuts, so that shortcuts are few."""
    is_retained = np.array(is_retained)
    unlimited = Contraction(edges, work_part, part_count, is_retained, 0)
    count, _ = _contract(unlimited, is_retained, 0, np.zeros(len(work_part)), edges.delay_ns, 0)
    return Contraction(edges, work_part, part_count, is_retained, count)


def _contract(
    contraction: Contraction, is_retained: Bytes, capacity: int, dur: Floats, delay_ns: Floats, part_count: int
) -> tuple[int, Shortcuts]:
    """Return the number of shortcuts, and those for which there is room.

    Args:
        contraction: The contraction.
        is_retained: (n,) retained nodes; is extended.
        capacity: Capacity for shortcuts.
        dur: (n,) ns of device work.
        delay_ns: (e,) ns of the edges.
        part_count: Number of parts of the breakdown.
    """
    edges, node_count = contraction.edges, len(contraction.work_part)
    shortcuts = Shortcuts(
        np.zeros(capacity, np.int32), np.zeros(capacity, np.int32), np.zeros(capacity), np.zeros((capacity, part_count))
    )
    columns = (INT64, INT32, FLOAT64, FLOAT64, INT32, INT32)
    native = function(
        "vp_contract", c_int64, *columns, c_int64, c_int64, c_int64, UINT8, c_int64, INT32, INT32, FLOAT64, FLOAT64
    )
    if not native:
        return _contract_fallback(contraction, is_retained, shortcuts, dur, delay_ns, part_count)
    delay_ns, dur = np.ascontiguousarray(delay_ns), np.ascontiguousarray(dur)
    arguments = (
        edges.first_edges(node_count),
        edges.src,
        delay_ns,
        dur,
        edges.kind,
        contraction.work_part,
        node_count,
        part_count,
        MAX_INCOMING,
        is_retained,
        capacity,
    )
    count = native(*arguments, shortcuts.src, shortcuts.dst, shortcuts.delay_ns, shortcuts.breakdown_ns)
    if count < 0:
        raise MemoryError
    return count, shortcuts


def _contract_fallback(
    contraction: Contraction, is_retained: Bytes, shortcuts: Shortcuts, dur: Floats, delay_ns: Floats, part_count: int
) -> tuple[int, Shortcuts]:
    """Return the result of `_contract` without native code."""
    edges, count = contraction.edges, 0
    first, src, kind, work = (
        column.tolist()
        for column in (edges.first_edges(len(is_retained)), edges.src, edges.kind, contraction.work_part)
    )
    delays, lengths, retained = delay_ns.tolist(), dur.tolist(), [bool(flag) for flag in is_retained]
    zero_breakdown: Floats = np.zeros(part_count)
    paths_to: list[dict[int, tuple[float, Floats]]] = []
    for node in range(len(work)):
        paths: dict[int, tuple[float, Floats]] = {}
        for edge in range(first[node], first[node + 1]):
            source: int = src[edge]
            source_paths = {source: (0.0, zero_breakdown)} if retained[source] else paths_to[source]
            for origin, (path_ns, breakdown) in source_paths.items():
                total_ns = (0 if retained[source] else lengths[source]) + path_ns + delays[edge]
                if origin in paths and not total_ns > paths[origin][0]:
                    continue
                new_breakdown = np.array(breakdown)
                if part_count:
                    new_breakdown[kind[edge]] += delays[edge]
                    if not retained[source] and work[source] >= 0:
                        new_breakdown[work[source]] += lengths[source]
                paths[origin] = (total_ns, new_breakdown)
        paths_to.append(paths)
        retained[node] = retained[node] or len(paths) > MAX_INCOMING
        if retained[node]:
            for origin, (total_ns, breakdown) in paths.items():
                if count < len(shortcuts.src):
                    (
                        shortcuts.src[count],
                        shortcuts.dst[count],
                        shortcuts.delay_ns[count],
                        shortcuts.breakdown_ns[count],
                    ) = (
                        origin,
                        node,
                        total_ns,
                        breakdown,
                    )
                count += 1
    is_retained[:] = retained
    return count, shortcuts
