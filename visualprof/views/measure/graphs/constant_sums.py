"""Sums over the constants of a model."""

from __future__ import annotations

from collections.abc import Sequence

from visualprof.reader.graph import ModelGraph
from visualprof.views.measure.graphs.hierarchy import Hierarchy


def constant_amounts(model: ModelGraph) -> tuple[list[int], list[int], list[int]]:
    """Return elements and bytes of each value, 0 where unknown, and 1 where either is unknown."""
    return (
        [max(0, v.parameters) for v in model.values],
        [max(0, v.bytes) for v in model.values],
        [int(not v.has_known_size) for v in model.values],
    )


def known_sums(sums: Sequence[list[int]]) -> dict[str, list[int | None]]:
    """Return the columns of sums over constants; a sum of which no part is known is null."""
    elements, size, unknown = sums

    def known(amounts: list[int]) -> list[int | None]:
        return [None if not amount and missing else amount for amount, missing in zip(amounts, unknown, strict=True)]

    return {"parameters": known(elements), "parameter_bytes": known(size), "unknown_constants": list(unknown)}


def group_sums(
    tree: Hierarchy, held_constants: Sequence[set[int]], weights: list[int], amounts: Sequence[list[int]]
) -> list[list[int]]:
    """Return sums over the constants in each group and its nested groups. Shared constants count once.

    The model itself includes constants that no operator reads.
    """
    sums = [[0] * len(tree.groups) for _ in amounts]
    counted: set[tuple[int, int]] = set()
    for node, held in enumerate(held_constants):
        for value in held:
            at = tree.group[node]
            # A constant that is counted here is also counted in the outer groups.
            while at > 0 and (at, value) not in counted:
                counted.add((at, value))
                for total, amount in zip(sums, amounts, strict=True):
                    total[at] += amount[value]
                at = tree.groups[at].parent
    for total, amount in zip(sums, amounts, strict=True):
        total[0] = sum(amount[v] for v in weights)
    return sums
