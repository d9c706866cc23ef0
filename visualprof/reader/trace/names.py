"""Test the names of many events with one call per distinct name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from visualprof.reader.trace.types import Mask, Rows


def check_names(texts: Sequence[str], ids: Rows, check: Callable[[str], bool]) -> Mask:
    """Return (n,) the result of a check of the text of each string id. Each distinct text is checked once.

    Args:
        texts: The string table.
        ids: (n,) string ids, >= 0.
        check: The check.
    """
    holds = np.zeros(len(texts), bool)
    holds[ids] = True
    distinct_ids: list[int] = np.flatnonzero(holds).tolist()
    for i in distinct_ids:
        holds[i] = check(texts[i])
    return holds[ids] if holds.any() else np.zeros(len(ids), bool)
