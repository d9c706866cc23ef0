"""Answer the questions with SQLite: `python -m benchmarks.asked.in_sqlite TABLES.pickle`.

SQLite has no quantiles and no union of intervals, so it leaves out the questions that need them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.asked.answering import Data, answer_all
from benchmarks.asked.questions import LIMIT_NS, LOADING, ONCE, PYTHON, SERVER, TRAINING

Rows = list[tuple[Any, ...]]
_STATEMENTS: dict[str, tuple[str, str]] = {
    "layer_kernels": (
        TRAINING,
        """
SELECT module_path, backward, name, count(*), sum(dur)
FROM kernel
WHERE instr(module_path, 'Linear_1')
GROUP BY 1, 2, 3
""",
    ),
    "range_kernels": (
        TRAINING,
        """
WITH RECURSIVE inside(id, top) AS (SELECT id, name
FROM range WHERE instr(name, 'optimizer')
UNION SELECT r.id, i.top FROM range r JOIN inside i ON r.parent_id = i.id)
SELECT i.top, k.name, count(*), sum(k.dur)
FROM kernel k JOIN inside i ON k.range_id = i.id
GROUP BY 1, 2
""",
    ),
    "source_lines": (
        PYTHON,
        """
SELECT line, name, count(*), sum(self_dur)
FROM op WHERE line IS NOT NULL
GROUP BY 1, 2
""",
    ),
    "launches": (
        TRAINING,
        """
SELECT dur, name, op, call
FROM kernel ORDER BY ts
""",
    ),
    "argument": (
        TRAINING,
        """
SELECT name, grid, count(*), sum(dur)
FROM kernel
GROUP BY 1, 2
""",
    ),
    "chosen_steps": (
        TRAINING,
        """
SELECT step, name, count(*), sum(dur)
FROM kernel
WHERE instr(step, '3')
GROUP BY 1, 2
""",
    ),
    "phases": (
        SERVER,
        """
SELECT phase, name, count(*), sum(dur)
FROM kernel
GROUP BY 1, 2
""",
    ),
    "peak_allocations": (
        ONCE,
        """
WITH last AS (SELECT address, op, bytes, max(rowid)
FROM allocation WHERE ts <= (SELECT ts
FROM allocation ORDER BY total DESC, ts LIMIT 1) GROUP BY address)
SELECT op, count(*), sum(bytes) FROM last WHERE bytes > 0
GROUP BY 1
""",
    ),
    "module_memory": (
        ONCE,
        """
SELECT module, count(*), sum(bytes), max(bytes)
FROM allocation WHERE bytes > 0
GROUP BY 1
""",
    ),
    "outermost_operators": (
        TRAINING,
        """
SELECT name, dur
FROM op WHERE outermost ORDER BY ts
""",
    ),
    "kernel_pairs": (
        TRAINING,
        f"""
WITH pairs AS (SELECT name, dur, lead(name) OVER s AS next, lead(dur) OVER s AS next_dur,
  max(0, lead(ts) OVER s - ts - dur) AS gap
FROM kernel
WINDOW s AS (PARTITION BY stream ORDER BY ts))
SELECT name, next, count(*), sum(dur + next_dur), sum(gap) FROM pairs
WHERE next IS NOT NULL AND dur < {LIMIT_NS} AND next_dur < {LIMIT_NS}
GROUP BY 1, 2
""",
    ),
}
_TOTALS = "SELECT name, sum(dur), count(*) FROM kernel GROUP BY 1"


def database(tables: dict[str, Any]) -> sqlite3.Connection:
    """Return the tables of one recording as a database in memory."""
    base = sqlite3.connect(":memory:")
    for name, rows in tables.items():
        if rows:
            columns = list(rows[0])
            base.execute(f'CREATE TABLE "{name}" ({", ".join(map(_quoted, columns))})')
            marks = ", ".join("?" * len(columns))
            base.executemany(f'INSERT INTO "{name}" VALUES ({marks})', (tuple(row.values()) for row in rows))
    if tables["kernel"]:
        base.execute("CREATE INDEX by_range ON kernel(range_id)")
    return base


def _quoted(name: str) -> str:
    return f'"{name}"'


def answers(data: Data) -> dict[str, Callable[[], Rows]]:
    """Return the functions that answer, by question."""

    def ask(name: str, sql: str) -> Rows:
        return data[name][0].execute(sql).fetchall()

    def compare() -> Rows:
        base, new = ({row[0]: row[1:] for row in ask(name, _TOTALS)} for name in (LOADING, TRAINING))
        sides = ((name, base.get(name, (None, 0)), new.get(name, (None, 0))) for name in base | new)
        return [(name, a[0], b[0], a[1], b[1]) for name, a, b in sides]

    functions = {name: partial(ask, *statement) for name, statement in _STATEMENTS.items()}
    return {**functions, "compare_traces": compare}


if __name__ == "__main__":
    answer_all(database, answers, list)
