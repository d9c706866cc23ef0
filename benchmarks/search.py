"""Searches against trying everything: how often a fifth of the trials reaches 95 % of the best.

The search chooses on tables of costs that stand: recorded ones (`search_tables.json`) and made-up ones, with the
scatter of a trial on top of each cost. The three best are measured again with less of it, as the search does, and what
is best then is judged by the costs as they are.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from benchmarks.rows import Row
from benchmarks.search_spaces import Table, accelerator, rough, serving, tables
from benchmarks.search_tables import FILE
from visualprof.remote.child.search.sampler import next_setting
from visualprof.remote.child.search.space import TRIAL_SHARE, Space
from visualprof.remote.child.search.stage import CONFIRM_ROUNDS, FINALISTS, TRIAL_ROUNDS

REACHED = 0.95
SCATTER = 0.05  # of the cost of a trial, as a share
SEEDS = 20  # of each recorded table; of each made-up one 4
LEAST, MOST = 40, 400  # settings


def recorded() -> list[Table]:
    """Return the tables of the file."""
    found: list[Table] = []
    for name, table in json.loads(FILE.read_text()).items():
        space = Space(table["axes"])
        axes = tuple(len(values) for values in space.axes.values())
        found.append(Table(name, axes, tuple(space.ordinal()), np.array(table["costs_ns"], float)))
    return found


def best_share(table: Table, seed: int) -> float:
    """The best cost as a share of that of what a search in a fifth of the trials says is best."""
    rng, tried = np.random.default_rng(seed), list[dict[str, object]]()
    seen: dict[int, float] = {}
    for _ in range(math.ceil(len(table.costs) / TRIAL_SHARE)):
        at = next_setting(table.axes, table.ordinal, seed, tried)
        seen[at] = table.costs[at] * math.exp(SCATTER * rng.standard_normal())
        tried.append({"at": at, "cost": seen[at], "excess": []})
    less = SCATTER * math.sqrt(TRIAL_ROUNDS / CONFIRM_ROUNDS)
    finalists = sorted(seen, key=lambda at: seen[at])[:FINALISTS]
    again = {at: table.costs[at] * math.exp(less * rng.standard_normal()) for at in finalists}
    return float(table.costs.min() / table.costs[min(again, key=lambda at: again[at])])


def line(what: str, found: Iterable[Table], seeds: int) -> Row:
    """The searches of some tables as a line."""
    reached = sorted(best_share(table, seed) for table in found for seed in range(seeds))
    enough = sum(ratio >= REACHED for ratio in reached)
    middle, tenth = statistics.median(reached), reached[len(reached) // 10]
    figure = f"{enough} of {len(reached)} searches reach 95 %; median {middle:.1%} of the best, worst tenth {tenth:.1%}"
    bar = "at most 20 % of the trials for 95 % of the best, in nine of ten searches"
    return Row(f"search: {what}", figure, bar, enough >= 0.9 * len(reached))


def search() -> Iterator[Row]:
    """Lines of the report. With the first seeds and the first three recordings in view the sampler was made."""
    for at, table in enumerate(recorded()):
        spread = table.costs.max() / table.costs.min()
        label = f"{table.name}, {len(table.costs)} settings recorded, {spread:.0f} x from best to worst"
        yield line(label + " (held out)" * (at > 2), [table], SEEDS)
    families: Sequence[tuple[str, list[Table]]] = (
        ("synthetic serving", tables(serving, 0, 30, LEAST, MOST)),
        ("synthetic rough tables", tables(rough, 0, 24, LEAST, MOST)),
        ("synthetic serving (held out)", tables(serving, 100, 30, LEAST, MOST)),
        ("synthetic rough tables (held out)", tables(rough, 100, 24, LEAST, MOST)),
        ("synthetic accelerators (held out)", tables(accelerator, 0, 20, LEAST, MOST)),
    )
    for label, rows in families:
        yield line(f"{len(rows)} {label}", rows, 4)


if __name__ == "__main__":
    for row in search():
        print(row.line(), flush=True)
