"""Functions for queries, as DuckDB macros."""

from __future__ import annotations

from collections.abc import Collection

_FIRST_VERSION_WITH_LAMBDA = (1, 3)  # `lambda p: ...` in place of `p -> ...`, which 2.0 removed


def macro_statements(version: str, tables: Collection[str]) -> list[str]:
    """Return the statements that define the functions over some tables; with (), the functions that need no table.

    Args:
        version: Version of DuckDB.
        tables: Names of tables that exist.
    """
    if not tables:
        return [_covered(version)]
    statements: list[str] = []
    if "args" in tables:
        statements.append(
            "CREATE OR REPLACE TEMP MACRO extract_arg(event, name) AS "
            "(SELECT any_value(display_value) FROM args WHERE arg_set_id = event AND key = name)"
        )
    if "slice" in tables:
        statements += [_ANCESTORS, _DESCENDANTS]
    return statements


def _covered(version: str) -> str:
    """Return the definition of `covered`: the extent minus the gaps.

    Before a gap, as many intervals have ended as have started, so the gaps are those between the sorted ends and the
    sorted starts that follow them.
    """
    major, minor = (int(part) for part in version.split(".")[:2])
    head = "lambda p:" if (major, minor) >= _FIRST_VERSION_WITH_LAMBDA else "p ->"

    def length(start: str, end: str, starts: str, ends: str) -> str:
        gaps = f"list_transform(list_zip({starts}[2:], {ends}[:-2]), {head} greatest(0, p[1] - p[2]))"
        return f"{end} - {start} - coalesce(list_sum({gaps}), 0)"

    starts, ends = (f"list_sort(list_transform(spans, {head} p[{i}]))" for i in (1, 2))
    of_list = length(f"list_min({starts})", f"list_max({ends})", starts, ends)
    of_columns = length("min(ts)", "max(ts + dur)", "list_sort(list(ts))", "list_sort(list(ts + dur))")
    return f"CREATE OR REPLACE MACRO covered(spans) AS ({of_list})::BIGINT, (ts, dur) AS ({of_columns})::BIGINT"


_ANCESTORS = """
CREATE OR REPLACE TEMP MACRO ancestor_slice(start_id) AS TABLE
WITH RECURSIVE up(id) AS (
  SELECT parent_id FROM slice WHERE id = start_id AND parent_id IS NOT NULL
  UNION
  SELECT s.parent_id FROM slice s JOIN up ON s.id = up.id WHERE s.parent_id IS NOT NULL
)
SELECT s.* FROM slice s JOIN up ON s.id = up.id
"""
_DESCENDANTS = """
CREATE OR REPLACE TEMP MACRO descendant_slice(start_id) AS TABLE
WITH RECURSIVE down(id) AS (
  SELECT id FROM slice WHERE parent_id = start_id
  UNION
  SELECT s.id FROM slice s JOIN down ON s.parent_id = down.id
)
SELECT s.* FROM slice s JOIN down ON s.id = down.id
"""
