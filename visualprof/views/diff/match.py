"""Matching of the rows of two runs. docs/diff.md#matching, ADR 52."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from visualprof.reader.trace import Ints
from visualprof.views.diff.side import Side
from visualprof.views.measure.names.families import kernel_family, operator_family

FEWER_CALLS_RATIO = 0.99  # ratio of calls below which a side has fewer, beyond rounding of averages
MAX_NAMES = 3  # names in the name of a row


class Row(NamedTuple):
    """A row of the comparison.

    Attributes:
        base: Name in the base run, if it differs from the name of the row.
        new: Name in the new run, if it differs from the name of the row.
    """

    part: str
    name: str
    base: str | None = None
    new: str | None = None
    replaced: bool = False

    @property
    def key(self) -> str:
        """A stable id of the row, the same in every comparison."""
        return "/".join(filter(None, (self.part, "replaced" * self.replaced, self.name)))


class _Piece(NamedTuple):
    """A row of one side.

    Attributes:
        part: Part of the step.
        under: The operator that launched a kernel, else the family of the name.
    """

    part: str
    under: str
    name: str


class Matched(NamedTuple):
    """Matched rows.

    Attributes:
        base: Row of each piece of the base run.
        new: Row of each piece of the new run.
    """

    rows: list[Row]
    base: Ints
    new: Ints
    on_device: list[bool]


def match(base: Side, new: Side) -> Matched:
    """Match the pieces of two runs.

    In one framework, pieces match by name. If an operator launched fewer of some kernels and more of others, it chose
    other kernels for the same work: these are one row, `replaced`. Pieces without an operator, and host pieces, are
    replaced by pieces of their family if each is on one side only. Across frameworks, pieces match by family.
    """
    sides = base, new
    across = base.facts.framework != new.facts.framework or base.facts.device_work != new.facts.device_work
    pieces = [_pieces(side, across) for side in sides]
    calls = [_calls_per_step(side, side_pieces) for side, side_pieces in zip(sides, pieces, strict=True)]
    named = {} if across else _replaced(*calls)
    return distinct_rows(
        sides, [[named.get(piece, Row(piece.part, piece.name)) for piece in side_pieces] for side_pieces in pieces]
    )


def distinct_rows(sides: Sequence[Side], rows: Sequence[Sequence[Row]]) -> Matched:
    """Return the distinct rows of the pieces of both sides."""
    places: dict[Row, int] = {}
    on_device: dict[int, bool] = {}
    row_of_piece: list[Ints] = []
    for side, side_rows in zip(sides, rows, strict=True):
        row_of_piece.append(np.array([places.setdefault(row, len(places)) for row in side_rows], np.int64))
        on_device |= zip(row_of_piece[-1].tolist(), side.pieces.columns.on_device, strict=True)
    return Matched(list(places), row_of_piece[0], row_of_piece[1], [on_device[i] for i in range(len(places))])


def _pieces(side: Side, across: bool) -> list[_Piece]:
    """Return the pieces of a side; across frameworks, they are named by family."""
    columns = side.pieces.columns
    pieces: list[_Piece] = []
    for part, name, under, on_device in zip(columns.part, columns.name, columns.under, columns.on_device, strict=True):
        family = (on_device and kernel_family(name)) or operator_family(name)
        pieces.append(_Piece(part, "", family or name) if across else _Piece(part, under or f"?{family}", name))
    return pieces


def _calls_per_step(side: Side, pieces: Sequence[_Piece]) -> dict[_Piece, float]:
    """Return the calls per step of each piece."""
    cells = side.cells.columns
    count = np.bincount(np.asarray(cells.piece, np.int64), np.asarray(cells.calls, np.float64), len(side.pieces))
    calls: dict[_Piece, float] = {}
    for piece, called in zip(pieces, (count / len(side.steps)).tolist(), strict=True):
        calls[piece] = calls.get(piece, 0.0) + called
    return calls


def _replaced(base: dict[_Piece, float], new: dict[_Piece, float]) -> dict[_Piece, Row]:
    """Return the rows of pieces that replace, or were replaced by, others."""
    gone, come = dict[tuple[str, str], list[_Piece]](), dict[tuple[str, str], list[_Piece]]()
    for piece in base.keys() | new.keys():
        before, after = base.get(piece, 0.0), new.get(piece, 0.0)
        if piece.under == "?" or (piece.under.startswith("?") and before and after):
            continue  # unknown family, or present on both sides
        moved = gone if after < FEWER_CALLS_RATIO * before else come if before < FEWER_CALLS_RATIO * after else None
        if moved is not None:
            moved.setdefault((piece.part, piece.under), []).append(piece)
    rows: dict[_Piece, Row] = {}
    for place in gone.keys() & come.keys():
        part, under = place
        row = Row(part, under.removeprefix("?"), _names(gone[place], base.get), _names(come[place], new.get), True)
        rows |= dict.fromkeys((*gone[place], *come[place]), row)
    return rows


def _names(pieces: list[_Piece], calls: Callable[[_Piece, float], float]) -> str:
    """Return the names of some pieces, those with the most calls first."""
    names = [piece.name for piece in sorted(pieces, key=lambda piece: (-calls(piece, 0.0), piece.name))]
    return " + ".join(names[:MAX_NAMES]) + (f" + {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")
