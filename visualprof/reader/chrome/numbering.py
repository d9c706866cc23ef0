"""Number names in order of first appearance."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from visualprof.reader.chrome.values import natural
from visualprof.reader.native.scanner import compiled, renumber
from visualprof.reader.trace.types import Ids, Ints, Values

Name = TypeVar("Name", bound=Hashable)


def merge_equal_names(columns: Sequence[Values], names: Iterable[Name], fixed: int = 0) -> tuple[list[Ids], list[Name]]:
    """Renumber like `renumber_by_appearance`, with equal names merged; return the columns and the names."""
    numbers: dict[Name, int] = {}
    same = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int32)
    if len(numbers) < len(same):
        columns = [same[column] for column in columns]
    ids, order = renumber_by_appearance(columns, len(numbers), fixed)
    distinct = list(numbers)
    return ids, [distinct[i] for i in order.tolist()]


def number_flow_ids(columns: Values, labels: Sequence[str]) -> tuple[Ints, list[str]]:
    """Return flow ids as in `Document`, and their names; `columns` is (n,) indices of the distinct labels."""
    names: list[str] = []
    numbers = np.array([natural(label) for label in labels], np.int64)
    for i, (label, number) in enumerate(zip(labels, numbers.tolist(), strict=True)):
        if number < 0 or str(number) != label:
            names.append(label)
            numbers[i] = -len(names)
    return numbers[columns], names


def renumber_by_appearance(columns: Sequence[Values], names: int, known_count: int = 0) -> tuple[list[Ids], Ids]:
    """Renumber names in order of their first appearance, column by column.

    Args:
        columns: Numbers of names.
        names: The number of names.
        known: This many leading names keep their numbers.

    Returns:
        The columns, and the names by new number. Names that do not appear are left out.
    """
    number, order = np.full(names, -1, np.int32), np.zeros(names, np.int32)
    number[:known_count] = order[:known_count] = np.arange(known_count)
    renumbered: list[Ids] = []
    for column in columns:
        ids = np.array(column, np.int32)
        known_count = (
            renumber(ids, number, order, known_count) if compiled() else _renumber(ids, number, order, known_count)
        )
        renumbered.append(ids)
    return renumbered, order[:known_count]


def _renumber(ids: Ids, number: Ids, order: Ids, known_count: int) -> int:
    first_index = np.full(len(number), -1, np.int64)
    first_index[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)  # the last assignment wins: that of the first appearance
    fresh = np.flatnonzero((first_index >= 0) & (number < 0))
    fresh = fresh[np.argsort(first_index[fresh])]
    order[known_count : known_count + len(fresh)] = fresh
    number[fresh] = np.arange(known_count, known_count + len(fresh))
    ids[:] = number[ids]
    return known_count + len(fresh)
