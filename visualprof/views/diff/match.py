"""Rows of two runs that a person would call the same. docs/diff.md#matching, ADR 52."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from visualprof.reader.trace import Ints
from visualprof.views.diff.side import Side
from visualprof.views.measure.families import kernel_family, operator_family

FEWER = 0.99  # of the calls: less is less, and not an average that came out a little differently
SHOWN = 3  # names of a row that has several


class Row(NamedTuple):
    """What is called the same. base, new: the names on each side where they are not the row's."""

    part: str
    name: str
    base: str | None = None
    new: str | None = None
    replaced: bool = False

    @property
    def key(self) -> str:
        """The same text for the same row, whatever the pair."""
        return "/".join(filter(None, (self.part, "replaced" * self.replaced, self.name)))


class _Piece(NamedTuple):
    """part: of the step. under: the operator that launched a kernel, else the family of the name."""

    part: str
    under: str
    name: str


class Matched(NamedTuple):
    """The rows, and the row of each piece of either side."""

    rows: list[Row]
    base: Ints
    new: Ints
    on_device: list[bool]


def match(base: Side, new: Side) -> Matched:
    """Pieces of two runs by rows.

    Of one framework: by name, unless an operator launched fewer of some kernels and more of others: then it chose
    others for the same work, which is one row, `replaced`. What no operator launched, and what runs on the host, is
    replaced by what is of its family where each is on one side only. Of different frameworks: by family.
    """
    sides = base, new
    across = base.facts.framework != new.facts.framework or base.facts.device_work != new.facts.device_work
    pieces = [_pieces(side, across) for side in sides]
    calls = [_by_piece(side, own) for side, own in zip(sides, pieces, strict=True)]
    named = {} if across else _replaced(*calls)
    return placed(sides, [[named.get(piece, Row(piece.part, piece.name)) for piece in own] for own in pieces])


def placed(sides: Sequence[Side], rows: Sequence[Sequence[Row]]) -> Matched:
    """The distinct ones of the rows of the pieces of either side."""
    places: dict[Row, int] = {}
    on_device: dict[int, bool] = {}
    of: list[Ints] = []
    for side, own in zip(sides, rows, strict=True):
        of.append(np.array([places.setdefault(row, len(places)) for row in own], np.int64))
        on_device |= zip(of[-1].tolist(), side.pieces.columns.on_device, strict=True)
    return Matched(list(places), of[0], of[1], [on_device[i] for i in range(len(places))])


def _pieces(side: Side, across: bool) -> list[_Piece]:
    """The pieces of a side; across frameworks they have the name of their family."""
    columns = side.pieces.columns
    pieces: list[_Piece] = []
    for part, name, under, on_device in zip(columns.part, columns.name, columns.under, columns.on_device, strict=True):
        family = (on_device and kernel_family(name)) or operator_family(name)
        pieces.append(_Piece(part, "", family or name) if across else _Piece(part, under or f"?{family}", name))
    return pieces


def _by_piece(side: Side, pieces: Sequence[_Piece]) -> dict[_Piece, float]:
    """Calls of each piece in a step."""
    cells = side.cells.columns
    count = np.bincount(np.asarray(cells.piece, np.int64), np.asarray(cells.calls, np.float64), len(side.pieces))
    calls: dict[_Piece, float] = {}
    for piece, called in zip(pieces, (count / len(side.steps)).tolist(), strict=True):
        calls[piece] = calls.get(piece, 0.0) + called
    return calls


def _replaced(base: dict[_Piece, float], new: dict[_Piece, float]) -> dict[_Piece, Row]:
    """The rows of pieces that others took the place of, or that took the place of others."""
    gone, come = dict[tuple[str, str], list[_Piece]](), dict[tuple[str, str], list[_Piece]]()
    for piece in base.keys() | new.keys():
        before, after = base.get(piece, 0.0), new.get(piece, 0.0)
        if piece.under == "?" or (piece.under.startswith("?") and before and after):
            continue  # a name that tells nothing, or is still there
        moved = gone if after < FEWER * before else come if before < FEWER * after else None
        if moved is not None:
            moved.setdefault((piece.part, piece.under), []).append(piece)
    rows: dict[_Piece, Row] = {}
    for place in gone.keys() & come.keys():
        part, under = place
        row = Row(part, under.removeprefix("?"), _names(gone[place], base.get), _names(come[place], new.get), True)
        rows |= dict.fromkeys((*gone[place], *come[place]), row)
    return rows


def _names(pieces: list[_Piece], calls: Callable[[_Piece, float], float]) -> str:
    """The names of some pieces, those with most calls first."""
    names = [piece.name for piece in sorted(pieces, key=lambda piece: (-calls(piece, 0.0), piece.name))]
    return " + ".join(names[:SHOWN]) + (f" + {len(names) - SHOWN} more" if len(names) > SHOWN else "")
