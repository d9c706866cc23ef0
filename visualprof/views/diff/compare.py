"""Two sides compared."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace import Floats, Ints
from visualprof.views.answers.table import Table
from visualprof.views.diff.answer import DiffAnswer, DiffNote, DiffParts, DiffRows, DiffRun, DiffStep
from visualprof.views.diff.side import Side
from visualprof.views.measure.steps import PARTS

LEAST_CHANGE = 0.03  # what clocks alone may do between two runs of one program is no change
LEAST_SHARE = 0.0005  # of the step


class Named(NamedTuple):
    """A side as it is called. path: of its file, or the run."""

    path: str
    side: Side


def compare(view: str, base: Named, new: Named) -> DiffAnswer:
    """What changed from one run to the other, per step."""
    sides = base.side, new.side
    parts = _parts(*sides)
    step = _step(*sides, parts)
    rows = _rows(*sides, step)
    left = step.delta_ns - int(np.asarray(rows.delta_ns).sum())
    return DiffAnswer(
        view=view,
        base=_run(base),
        new=_run(new),
        step=step,
        parts=Table(columns=parts),
        rows=Table(columns=rows),
        explained_ratio=max(0.0, 1 - abs(left / step.delta_ns)) if step.delta_ns else None,
        not_explained_ns=left,
        detectable_ratio=None,
        notes=list[DiffNote](),
    )


def _run(named: Named) -> DiffRun:
    facts = named.side.facts
    steps = len(named.side.steps) if facts.marked else 0
    return DiffRun(named.path, facts.framework, facts.version, facts.device, steps)


def _average(side: Side) -> Ints:
    """The parts of the mean step, (p,) ns: rounded so that they add up to the rounded whole."""
    means = [float(np.mean(np.asarray(getattr(side.steps.columns, f"{part}_ns")))) for part in PARTS]
    return np.diff(np.rint(np.cumsum([0.0, *means]))).astype(np.int64)


def _parts(base: Side, new: Side) -> DiffParts:
    before, after = _average(base), _average(new)
    return DiffParts(part=list(PARTS), base_ns=before, new_ns=after, delta_ns=after - before)


def _step(base: Side, new: Side, parts: DiffParts) -> DiffStep:
    before, after = int(np.asarray(parts.base_ns).sum()), int(np.asarray(parts.new_ns).sum())
    return DiffStep(
        base_ns=before,
        new_ns=after,
        delta_ns=after - before,
        delta_ratio=after / before - 1 if before else None,
        low_ns=None,
        high_ns=None,
        significant=None,
        detectable_ratio=None,
    )


def _matrix(side: Side, of: Ints, rows: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Calls and time of each row in each step, (rows, steps). of: (p,) row of each piece."""
    cells, steps = side.cells.columns, len(side.steps)
    at = of[np.asarray(cells.piece, np.int64)] * steps + np.asarray(cells.step, np.int64)
    size = rows * steps
    calls, spent = (
        np.bincount(at, np.asarray(column, np.float64), size).reshape(rows, steps)
        for column in (cells.calls, cells.spent_ns)
    )
    return calls, spent


def _rows(base: Side, new: Side, step: DiffStep) -> DiffRows:
    keys: dict[tuple[str, str], int] = {}
    of: list[Ints] = []
    for side in (base, new):
        pieces = side.pieces.columns
        places = [keys.setdefault(key, len(keys)) for key in zip(pieces.part, pieces.name, strict=True)]
        of.append(np.array(places, np.int64))
    (base_calls, base_ns), (new_calls, new_ns) = (
        _matrix(side, places, len(keys)) for side, places in zip((base, new), of, strict=True)
    )
    before, after = (np.rint(spent.mean(axis=1)).astype(np.int64) for spent in (base_ns, new_ns))
    delta = after - before
    ratio: Floats = np.where(before > 0, delta / np.maximum(before, 1), np.nan)
    order: list[int] = np.argsort(-np.abs(delta), kind="stable").tolist()
    names = list(keys)
    calls = base_calls.mean(axis=1), new_calls.mean(axis=1)
    large = (np.abs(delta) > LEAST_SHARE * max(step.base_ns, step.new_ns)) & ~(np.abs(ratio) <= LEAST_CHANGE)
    changed = [
        "added" if not calls[0][i] else "removed" if not calls[1][i] else "changed" if large[i] else "same"
        for i in order
    ]
    return DiffRows(
        name=[names[i][1] for i in order],
        key=["/".join(filter(None, names[i])) for i in order],
        part=[names[i][0] for i in order] if any(part for part, _ in names) else None,
        base_calls=calls[0][order],
        new_calls=calls[1][order],
        base_ns=before[order],
        new_ns=after[order],
        delta_ns=delta[order],
        delta_ratio=ratio[order],
        share_of_change=delta[order] / step.delta_ns if step.delta_ns else np.full(len(order), np.nan),
        status=changed,
        significant=[None] * len(order),
    )
