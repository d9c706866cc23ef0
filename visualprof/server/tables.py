"""The tables of a view's answer, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from visualprof.errors import BadParameter
from visualprof.views.table import Column, Result, Table


def named_tables(result: Result) -> dict[str, Table]:
    """Every table; the main one is "". Lists by key, as the steps of the overview are, count as one."""
    columnar = {
        name: Table(cast("Mapping[str, Column]", value)) for name, value in result.fields.items() if _columnar(value)
    }
    return {**result.tables(), **columnar}


def named_table(result: Result, name: str) -> Table:
    """One of them.

    Raises: BadParameter: the view has no table of that name.
    """
    tables = named_tables(result)
    if name in tables:
        return tables[name]
    what = f"there is no table {name!r} in this view" if name else "this view has several tables"
    raise BadParameter(what, f"tables: {', '.join(filter(None, tables))}")


def _columnar(value: Any) -> bool:
    columns: list[Any] = list(cast("Mapping[str, Any]", value).values()) if isinstance(value, Mapping) else []
    return bool(columns) and all(
        hasattr(c, "__len__") and not isinstance(c, (str, bytes, Mapping)) and len(c) == len(columns[0])
        for c in columns
    )
