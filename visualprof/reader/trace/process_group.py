"""Process groups of a profile: which ranks take part in the collectives of which group."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
import numpy as np

from visualprof.reader.trace.types import Ints

MAX_RANKS = 1 << 16  # per group
MAX_RANK_RUNS = 1 << 16  # of all groups of a file
_LIST = re.compile(r"[\[(]?\s*\d{1,9}(\s*,\s*\d{1,9})*\s*,?\s*[\])]?")

Runs = tuple[tuple[int, int, int], ...]


class ProcessGroup(msgspec.Struct, frozen=True):
    """A group of ranks that communicate.

    Attributes:
        name: The name that collectives use.
        description: The purpose that the program gives, "" if unknown.
        runs: Global ranks in the order of their ranks in the group, as (first, stride, count); () if unknown.
    """

    name: str
    description: str = ""
    runs: Runs = ()


def encode_ranks(ranks: Iterable[int]) -> Runs:
    """Return ranks as runs of equal stride: 0, 8, 16 are (0, 8, 3).

    Return () if a rank is negative or there are too many.
    """
    runs: list[tuple[int, int, int]] = []
    for count_so_far, rank in enumerate(ranks):
        if rank < 0 or rank >= 1 << 31 or count_so_far >= MAX_RANKS:
            return ()
        first, stride, count = runs[-1] if runs else (0, 0, 0)
        if count and (count == 1 or rank == first + stride * count):
            runs[-1] = (first, rank - first if count == 1 else stride, count + 1)
        else:
            runs.append((rank, 1, 1))
    return tuple(runs)


def strided_run(first: int, stride: int, count: int) -> Runs:
    """Return the run of a group given by first rank, stride and size, or () if they are impossible."""
    possible = 0 <= first < 1 << 31 and 0 < count <= MAX_RANKS and (0 < stride < 1 << 31 or count == 1)
    return ((first, stride if count > 1 else 1, count),) if possible else ()


def parse_rank_list(text: str) -> Runs:
    """Return the ranks of a text like `[0, 8, 16]`, or () if it is truncated (torch truncates after 30) or no list."""
    return (
        encode_ranks(map(int, re.findall(r"\d+", text)))
        if len(text) < 1 << 20 and _LIST.fullmatch(text.strip())
        else ()
    )


def decode_ranks(runs: Runs) -> Ints:
    """Return (n,) the global ranks of runs, in the order of their ranks in the group."""
    return np.concatenate(
        [np.zeros(0, np.int64), *(first + stride * np.arange(count) for first, stride, count in runs)]
    )
