"""Numbers of names, in the order in which the names first appear."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from visualprof.reader.chrome.values import natural
from visualprof.reader.native.scanner import compiled, renumber
from visualprof.reader.trace.types import Ids, Ints, Values

Name = TypeVar("Name", bound=Hashable)


def named(columns: Sequence[Values], names: Iterable[Name], known: int = 0) -> tuple[list[Ids], list[Name]]:
    """As `renumbered`, with equal names as one; returns the columns and the names."""
    numbers: dict[Name, int] = {}
    same = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int32)
    if len(numbers) < len(same):
        columns = [same[column] for column in columns]
    ids, order = renumbered(columns, len(numbers), known)
    distinct = list(numbers)
    return ids, [distinct[i] for i in order.tolist()]


def ids_of(columns: Values, labels: Sequence[str]) -> tuple[Ints, list[str]]:
    """Ids of arrows as a `Document` has them, and the names. columns: (n,) indices of the distinct labels."""
    names: list[str] = []
    numbers = np.array([natural(label) for label in labels], np.int64)
    for i, (label, number) in enumerate(zip(labels, numbers.tolist(), strict=True)):
        if number < 0 or str(number) != label:
            names.append(label)
            numbers[i] = -len(names)
    return numbers[columns], names


def renumbered(columns: Sequence[Values], names: int, known: int = 0) -> tuple[list[Ids], Ids]:
    """Numbers of names in the order of their first appearance, column by column.

    Args: columns: numbers of names below `names`. known: so many of the first names keep their number.

    Returns: the columns, and the names by their new number: only those that appear.
    """
    number, order = np.full(names, -1, np.int32), np.zeros(names, np.int32)
    number[:known] = order[:known] = np.arange(known)
    out: list[Ids] = []
    for column in columns:
        ids = np.array(column, np.int32)
        known = renumber(ids, number, order, known) if compiled() else _renumber(ids, number, order, known)
        out.append(ids)
    return out, order[:known]


def _renumber(ids: Ids, number: Ids, order: Ids, known: int) -> int:
    first = np.full(len(number), -1, np.int64)
    first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)  # of equal places the last one written stays
    fresh = np.flatnonzero((first >= 0) & (number < 0))
    fresh = fresh[np.argsort(first[fresh])]
    order[known : known + len(fresh)] = fresh
    number[fresh] = np.arange(known, known + len(fresh))
    ids[:] = number[ids]
    return known + len(fresh)
