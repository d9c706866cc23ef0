"""Steps of servers by phase: prefill and decode do different work, so only steps of the same phase are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from visualprof.errors import BadParameter, MissingData
from visualprof.messages import msg
from visualprof.reader.trace import Floats, Ints
from visualprof.views.answers.table import Table, columns_of, from_rows, take_rows
from visualprof.views.diff.answer import DiffPhases
from visualprof.views.diff.confidence import MIN_CHANGE_RATIO, step_change
from visualprof.views.diff.side import Side

ON_DEVICE = ("kernel_ns", "memcpy_ns", "memset_ns", "communication_ns")
UNKNOWN_PHASE = "unknown"  # phase of a step without a known phase


def step_phases(side: Side) -> list[str]:
    """Return the phase of each step."""
    return [str(phase or UNKNOWN_PHASE) for phase in side.steps.columns.phase or [UNKNOWN_PHASE] * len(side.steps)]


def has_phases(side: Side) -> bool:
    """Whether the side is a recording of a server."""
    return side.steps.columns.phase is not None


def choose_phase(base: tuple[str, Side], new: tuple[str, Side], phase: str) -> str:
    """Return the phase to compare: the requested one, or the common phase with the most time.

    Args:
        base: Path and side.
        new: Path and side.
        phase: The requested phase, or "".

    Raises:
        BadParameter: Not both have steps of the requested phase.
        MissingData: They have no phase in common.
    """
    spent: list[dict[str, float]] = [{}, {}]
    for by_phase, (_, side) in zip(spent, (base, new), strict=True):
        for name, ns in zip(step_phases(side), _floats(side, "total_ns").tolist(), strict=True):
            by_phase[name] = by_phase.get(name, 0.0) + ns
    both = [name for name in spent[0] if name in spent[1]]
    if phase and phase not in both:
        raise BadParameter(
            msg("views.not_both_steps_phase", f"not both have steps of the phase {phase!r}"),
            msg("views.phases_both", f"phases of both: {', '.join(both) or 'none'}"),
        )
    if not both:
        raise MissingData(
            msg(
                "views.steps_none_alike",
                f"{base[0]} has steps of {', '.join(spent[0])}, {new[0]} of {', '.join(spent[1])}: none alike",
            ),
            msg("views.compare_recordings_steps_one", "compare recordings, or steps, of one phase"),
        )
    return phase or max(both, key=lambda name: spent[0][name] + spent[1][name])


def filter_phase(side: Side, phase: str) -> Side:
    """Return a side with only the steps of one phase."""
    steps = np.flatnonzero(np.array([step_phase == phase for step_phase in step_phases(side)], bool))
    place = np.full(len(side.steps), -1)
    place[steps] = np.arange(len(steps))
    cells = side.cells.columns
    cell_rows = np.flatnonzero(place[np.asarray(cells.step, np.int64)] >= 0)
    used, piece = np.unique(np.asarray(cells.piece, np.int64)[cell_rows], return_inverse=True)
    inside = replace(_at(cells, cell_rows), step=place[np.asarray(cells.step, np.int64)[cell_rows]], piece=piece)
    memory = side.memory
    if memory is not None:
        selected = [memory_phase is None or memory_phase == phase for memory_phase in memory.columns.phase]
        memory = Table(columns=_at(memory.columns, np.flatnonzero(selected)))
    return replace(
        side,
        steps=Table(columns=_at(side.steps.columns, steps)),
        pieces=Table(columns=_at(side.pieces.columns, used)),
        cells=Table(columns=inside),
        memory=memory,
    )


def compare_phases(base: Side, new: Side) -> Table[DiffPhases]:
    """Return the steps of each phase of either side, those with the most time first."""
    names = dict.fromkeys((*step_phases(base), *step_phases(new)))
    rows = [_row(name, [_phase_columns(side, name) for side in (base, new)]) for name in names]
    rows.sort(key=lambda row: -(row[1] * (row[6] or 0) + row[2] * (row[7] or 0)))
    return Table(columns=from_rows(DiffPhases, rows))


def _phase_columns(side: Side, phase: str) -> tuple[Floats, Floats, Floats, Floats]:
    """Return (requests, tokens, ns, device ns) of the steps of a phase."""
    selected = np.array([step_phase == phase for step_phase in step_phases(side)], bool)
    device = sum((_floats(side, part) for part in ON_DEVICE), np.zeros(len(selected)))
    columns = (_floats(side, "requests"), _floats(side, "tokens"), _floats(side, "total_ns"), device)
    requests, tokens, spent, on_device = (column[selected] for column in columns)
    return requests, tokens, spent, on_device


def _row(phase: str, sides: list[tuple[Floats, Floats, Floats, Floats]]) -> tuple[Any, ...]:
    counts = [len(spent) for *_, spent, _ in sides]
    means = [_mean(side[i]) for i in range(4) for side in sides]
    before, after = means[4:6]
    delta = after - before if before is not None and after is not None else None
    ratio = delta / before if delta is not None and before else None
    sure = step_change(sides[0][2], sides[1][2])
    large = ratio is not None and abs(ratio) > MIN_CHANGE_RATIO
    status = "removed" if not counts[1] else "added" if not counts[0] else "changed" if large else "same"
    return (phase, *counts, *means[:4], before, after, delta, ratio, *means[6:], status, sure and sure.significant)


def _mean(values: Floats) -> float | None:
    known_values = values[~np.isnan(values)]
    return float(known_values.mean()) if len(known_values) else None


def _floats(side: Side, name: str) -> Floats:
    column: Any = getattr(side.steps.columns, name)
    values = [None] * len(side.steps) if column is None else column
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _at(columns: Any, rows: Ints) -> Any:
    return type(columns)(**{name: take_rows(column, rows) for name, column in columns_of(columns).items()})
