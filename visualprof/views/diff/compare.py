"""Comparison of two sides."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visualprof.errors import MissingData
from visualprof.messages import msg
from visualprof.reader.trace import Floats, Ints, Mask
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Table, from_rows, take_rows
from visualprof.views.diff.answer import DiffAnswer, DiffParts, DiffRows, DiffRun, DiffStep
from visualprof.views.diff.causes import find_causes
from visualprof.views.diff.confidence import (
    MIN_CHANGE_RATIO,
    MIN_STEP_SHARE,
    RowChanges,
    explained_by_load,
    row_changes,
    step_change,
)
from visualprof.views.diff.match import Matched, match
from visualprof.views.diff.modules import match_modules
from visualprof.views.diff.notes import notes
from visualprof.views.diff.phases import choose_phase, compare_phases, filter_phase, has_phases
from visualprof.views.diff.side import Side
from visualprof.views.diff.sizes import compare_sizes, row_status
from visualprof.views.measure.launches.answer_names import add_short_names
from visualprof.views.measure.steps.parts import STEP_PARTS

MIN_EXPLAINED_RATIO = 0.8  # share of the step's change that rows must explain to attribute it to load


class Named(NamedTuple):
    """A side with its names.

    Attributes:
        path: Path of its file.
        fingerprint: Fingerprint of the content of the file.
    """

    path: str
    side: Side
    fingerprint: str = ""


class _Times(NamedTuple):
    """Calls and times by row and step of a side, (rows, steps)."""

    calls: NDArray[np.float64]
    ns: NDArray[np.float64]


def compare(view: str, base: Named, new: Named, phase: str = "") -> DiffAnswer:
    """Return what changed from one run to the other, per step; for servers, per step of one phase.

    Args:
        view: The view whose rows are compared.
        base: The base run.
        new: The new run.
        phase: Phase to compare; "" for the common phase with the most time.

    Raises:
        MissingData: Only one run has annotated steps, the runs have no phase in common, or neither has data for the
            view.
        BadParameter: Not both runs have steps of this phase.
    """
    _same_kind(base, new)
    phases = None
    if phase or has_phases(base.side) or has_phases(new.side):
        phase, phases = choose_phase(base[:2], new[:2], phase), compare_phases(base.side, new.side)
        base, new = (named._replace(side=filter_phase(named.side, phase)) for named in (base, new))
    memory = compare_sizes(base.side, new.side)
    if memory is None:
        _require_pieces(view, base, new)
    parts = _parts(base.side, new.side)
    step = _step(base.side, new.side, parts)
    matched = (match_modules if view == "modules" else match)(base.side, new.side)
    before, after = (
        _times(side, row_of_piece, len(matched.rows))
        for side, row_of_piece in ((base.side, matched.base), (new.side, matched.new))
    )
    on_device = np.array(matched.on_device, bool)
    changes = row_changes(before.ns, after.ns, max(step.base_ns, step.new_ns), on_device)
    rows = _rows(matched, before, after, step, changes)
    left = step.delta_ns - int(np.asarray(rows.delta_ns).sum())
    explained = max(0.0, 1 - abs(left / step.delta_ns)) if step.delta_ns and not memory else None
    if step.significant and changes and not memory:
        common = _common_ratio(changes, before.ns, on_device, step.base_ns)
        is_alike = (explained or 0.0) >= MIN_EXPLAINED_RATIO and not changes.significant.any()
        totals = _column(base.side, "total"), _column(new.side, "total")
        step.attributed_to_load = explained_by_load(*totals, common, is_alike)
        step.significant = not step.attributed_to_load
    same = base.fingerprint == new.fingerprint != ""
    answer = DiffAnswer(
        view=view,
        base=_run(base),
        new=_run(new),
        step=step,
        parts=Table(columns=parts),
        rows=Table(columns=rows),
        explained_ratio=explained,
        not_explained_ns=None if memory else left,
        detectable_ratio=changes.detectable if changes else None,
        notes=list(notes(base.side, new.side, same, step, changes)),
        causes=list(find_causes(matched, before.ns, after.ns, step, changes)),
        memory=memory,
        phase=phase or None,
        phases=phases,
    )
    if _are_snapshots(base, new):
        _leave_out_times(answer)
    add_short_names(answer, None)
    return answer


def _are_snapshots(base: Named, new: Named) -> bool:
    return all(named.side.facts.format == "torch-snapshot" for named in (base, new))


def _leave_out_times(answer: DiffAnswer) -> None:
    """Remove step times, which memory snapshots do not have."""
    answer.step, answer.detectable_ratio = None, None
    answer.parts = Table(columns=from_rows(DiffParts, []))
    answer.notes = [note for note in answer.notes if note.id not in ("no_steps", "few_steps")]


def _require_pieces(view: str, base: Named, new: Named) -> None:
    """Raise `MissingData` if neither run has data for the view."""
    if not len(base.side.pieces) + len(new.side.pieces):
        raise MissingData(
            msg("views.neither_nor_data_view", f"neither {base.path} nor {new.path} has data for the view {view!r}"),
            msg("views.compare_memory_view", "memory snapshots have the view 'memory'; compare that view")
            if _are_snapshots(base, new)
            else msg("views.compare_another_view", "compare another view"),
        )


def _common_ratio(changes: RowChanges, base: NDArray[np.float64], on_device: Mask, step_ns: int) -> float:
    """Return the change of the step if host and device only had their common changes, new / base - 1.

    Time in no row counts as host time.

    Args:
        changes: The common changes.
        base: (r, n) ns of each row in each step of the base run.
        on_device: (r,) whether the row is device work.
        step_ns: Mean step of the base run.
    """
    device_ns = min(float(base[on_device].mean(axis=1).sum()), step_ns)
    total_ns = device_ns * (changes.drift or 0.0) + (step_ns - device_ns) * (changes.pace or 0.0)
    return total_ns / max(step_ns, 1)


def _same_kind(base: Named, new: Named) -> None:
    """Check that both runs have steps, or neither: a mean step does not compare with a whole recording.

    Raises:
        MissingData: Only one of them has steps.
    """
    for side, other in ((base, new), (new, base)):
        if other.side.facts.marked and not side.side.facts.marked:
            raise MissingData(
                msg("views.no_steps", f"{side.path} has no steps, {other.path} has"),
                msg("views.mark_steps_both_compare", "mark the steps of both, or compare recordings without"),
            )


def _run(named: Named) -> DiffRun:
    facts = named.side.facts
    steps = len(named.side.steps) if facts.marked else 0
    return DiffRun(named.path, facts.framework, facts.version, facts.device, steps)


def _column(side: Side, name: str) -> Floats:
    return np.asarray(getattr(side.steps.columns, f"{name}_ns"), np.float64)


def _average(side: Side) -> Ints:
    """Return the parts of the mean step, (p,) ns, rounded so that they add up to the rounded total."""
    means = [float(np.mean(_column(side, part))) for part in STEP_PARTS]
    return np.diff(np.rint(np.cumsum([0.0, *means]))).astype(np.int64)


def _parts(base: Side, new: Side) -> DiffParts:
    before, after = _average(base), _average(new)
    old_times, times = (np.array([_column(side, part) for part in STEP_PARTS]) for side in (base, new))
    on_device = np.isin(STEP_PARTS, ("kernel", "memcpy", "memset"))
    changes = row_changes(old_times, times, float(max(before.sum(), after.sum())), on_device)
    return DiffParts(
        part=list(STEP_PARTS),
        base_ns=before,
        base_share_ratio=before / max(before.sum(), 1),
        new_ns=after,
        new_share_ratio=after / max(after.sum(), 1),
        delta_ns=after - before,
        significant=changes.significant.tolist() if changes else [None] * len(STEP_PARTS),
    )


def _step_time_ns(side: Side) -> int:
    """Return the step time, the median of the typical steps; of all compared steps if none is typical."""
    total_ns, is_typical = _column(side, "total"), np.asarray(side.steps.columns.typical, bool)
    return round(float(np.median(total_ns[is_typical] if is_typical.any() else total_ns)))


def _step(base: Side, new: Side, parts: DiffParts) -> DiffStep:
    before, after = int(np.asarray(parts.base_ns).sum()), int(np.asarray(parts.new_ns).sum())
    sure = step_change(_column(base, "total"), _column(new, "total"))
    old_median, median = _step_time_ns(base), _step_time_ns(new)
    return DiffStep(
        base_median_ns=old_median,
        new_median_ns=median,
        median_delta_ns=median - old_median,
        median_delta_ratio=median / old_median - 1 if old_median else None,
        base_ns=before,
        new_ns=after,
        delta_ns=after - before,
        delta_ratio=after / before - 1 if before else None,
        low_ns=round(sure.low * old_median) if sure else None,
        high_ns=round(sure.high * old_median) if sure else None,
        significant=sure.significant if sure else None,
        detectable_ratio=sure.detectable if sure else None,
    )


def _times(side: Side, row_of_piece: Ints, rows: int) -> _Times:
    """Return the times of the rows of a side.

    Args:
        row_of_piece: (p,) row of each piece.
        rows: Number of rows.
    """
    cells, steps = side.cells.columns, len(side.steps)
    place = row_of_piece[np.asarray(cells.piece, np.int64)] * steps + np.asarray(cells.step, np.int64)
    summed = (
        np.bincount(place, np.asarray(column, np.float64), rows * steps).astype(np.float64).reshape(rows, steps)
        for column in (cells.calls, cells.spent_ns)
    )
    return _Times(*summed)


def _rows(matched: Matched, base: _Times, new: _Times, step: DiffStep, changes: RowChanges | None) -> DiffRows:
    """Return the rows, the largest change first."""
    rows = matched.rows
    before, after = (np.rint(times.ns.mean(axis=1)).astype(np.int64) for times in (base, new))
    calls = [times.calls.mean(axis=1) for times in (base, new)]
    delta = after - before
    ratio: Floats = np.where(before > 0, delta / np.maximum(before, 1), np.nan)
    least = MIN_STEP_SHARE * max(step.base_ns, step.new_ns)
    large = (np.maximum(before, after) >= least) & ~(np.abs(ratio) <= MIN_CHANGE_RATIO)
    status = [row_status(row.replaced, *values) for row, *values in zip(rows, *calls, large.tolist(), strict=True)]
    order = np.argsort(-np.abs(delta), kind="stable")
    columns: dict[str, Column] = {"name": [row.name for row in rows], "key": [row.key for row in rows]}
    if any(row.part for row in rows):
        columns["part"] = [row.part for row in rows]
    if any(row.base for row in rows):
        columns |= {"base_name": [row.base for row in rows], "new_name": [row.new for row in rows]}
    columns |= {
        "base_calls": calls[0],
        "new_calls": calls[1],
        "base_ns": before,
        "base_share_ratio": before / max(step.base_ns, 1),
        "new_ns": after,
        "new_share_ratio": after / max(step.new_ns, 1),
        "delta_ns": delta,
        "delta_ratio": ratio,
        "share_of_change": delta / step.delta_ns if step.delta_ns else np.full(len(rows), np.nan),
        "status": status,
        "significant": changes.significant.tolist() if changes else [None] * len(rows),
    }
    return DiffRows(**{name: take_rows(column, order) for name, column in columns.items()})
