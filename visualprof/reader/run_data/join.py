"""Join the scalars of a tag from several files of a folder.

A file continues the previous file, in the order of their names, if its first point is later than the last point of the
previous file, or if its writer recorded a restart. From its first step on, its points replace earlier points. Files
that overlap in time come from parallel writers: each is a separate line.

Within a line, points are sorted by step, and the last point of a step counts. Replaced points are returned as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from visualprof.reader.run_data.rows import UNKNOWN_NS, RestartMark
from visualprof.reader.run_data.series import Points, join_chunks
from visualprof.reader.trace.types import Ints, Mask


class WriterPoints(NamedTuple):
    """The scalars of a tag in one file.

    Attributes:
        file: Name of the file.
        points: The scalars.
        restarts: Restarts that the writer recorded.
    """

    file: str
    points: Points
    restarts: Sequence[RestartMark]


class JoinedPoints(NamedTuple):
    """A line: the scalars of one writer and its restarts.

    Attributes:
        file: Name of the first file.
        points: The scalars, sorted by step, one per step.
        superseded: Replaced scalars, sorted by step.
    """

    file: str
    points: Points
    superseded: Points


def join_points(writers: Sequence[WriterPoints]) -> list[JoinedPoints]:
    """Return the lines of a tag; `writers` are in the order of their file names."""
    chains: list[list[WriterPoints]] = []
    for writer in writers:
        if not len(writer.points.step):
            continue
        chain = next((chain for chain in reversed(chains) if _continues(chain[-1], writer)), None)
        if chain is None:
            chains.append([writer])
        else:
            chain.append(writer)
    return [_join_chain(chain) for chain in chains]


def _continues(earlier: WriterPoints, later: WriterPoints) -> bool:
    first_ns = int(later.points.wall_ns[0])
    return bool(later.restarts) or first_ns > int(earlier.points.wall_ns.max()) > UNKNOWN_NS


def _join_chain(chain: Sequence[WriterPoints]) -> JoinedPoints:
    if len(chain) == 1 and (np.diff(chain[0].points.step) > 0).all():  # the usual case, without a copy
        return JoinedPoints(chain[0].file, chain[0].points, chain[0].points.select(slice(0)))
    points = join_chunks([writer.points for writer in chain])
    is_replaced = np.zeros(len(points.step), bool)
    end = 0
    for writer in chain:
        if end:
            first_step = min([int(writer.points.step[0]), *(mark.step for mark in writer.restarts)])
            is_replaced[:end] |= points.step[:end] >= first_step
        end += len(writer.points.step)
    order = np.argsort(points.step, kind="stable")
    step, replaced = points.step[order], is_replaced[order]
    replaced |= _has_later(step, replaced)
    return JoinedPoints(chain[0].file, points.select(order[~replaced]), points.select(order[replaced]))


def _has_later(step: Ints, replaced: Mask) -> Mask:
    """Return which points of sorted steps have a later point at the same step that is not replaced."""
    valid = np.flatnonzero(~replaced)
    has_later = np.zeros(len(step), bool)
    has_later[valid[:-1]] = step[valid[:-1]] == step[valid[1:]]
    return has_later
