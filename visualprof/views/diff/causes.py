"""Rows that explain a significant change of the step, with the uncertainty of each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace import Floats
from visualprof.views.diff.answer import DiffCause, DiffStep
from visualprof.views.diff.confidence import MIN_CHANGE_RATIO, MIN_STEP_SHARE, RowChanges, mean_change
from visualprof.views.diff.match import Matched

Matrix = NDArray[np.float64]
MIN_CAUSE_SHARE = 0.25  # share of the step's change that a row must explain
MAX_CAUSES = 3


def find_causes(
    matched: Matched, base: Matrix, new: Matrix, step: DiffStep, changes: RowChanges | None
) -> Iterator[DiffCause]:
    """Yield the causes of a significant change, the largest first.

    With few steps, or steps of two kinds, no row may be significant although the step is. Its largest change in the
    same direction is still the likely cause.

    Args:
        matched: The rows.
        base: (r, n) ns of each row in each step.
        new: (r, m) ns of each row in each step.
        step: The change of the step.
        changes: The significance of the rows.
    """
    if not step.significant or not step.delta_ns or changes is None:
        return
    before, after = base.mean(axis=1), new.mean(axis=1)
    share = (after - before) / step.delta_ns
    large = np.abs(after - before) > MIN_CHANGE_RATIO * before
    large &= np.maximum(before, after) >= MIN_STEP_SHARE * max(step.base_ns, step.new_ns)
    candidates = np.flatnonzero(large & (share >= MIN_CAUSE_SHARE))
    order: list[int] = candidates[np.argsort(-share[candidates], kind="stable")][:MAX_CAUSES].tolist()
    for i in order:
        yield _cause(matched, i, base[i], new[i], step, bool(changes.significant[i]))


def _cause(matched: Matched, i: int, base: Floats, new: Floats, step: DiffStep, significant: bool) -> DiffCause:
    before, after = round(float(base.mean())), round(float(new.mean()))
    low, high = mean_change(base, new)
    return DiffCause(
        name=matched.rows[i].name,
        part=matched.rows[i].part or None,
        base_ns=before,
        new_ns=after,
        delta_ns=after - before,
        delta_ratio=after / before - 1 if before else None,
        base_share_ratio=before / max(step.base_ns, 1),
        new_share_ratio=after / max(step.new_ns, 1),
        share_of_change=(after - before) / step.delta_ns,
        low_ns=round(low),
        high_ns=round(high),
        certainty="significant" if significant else "likely",
    )
