"""Tables of traces as pandas frames that share the memory-mapped columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from visualprof.api.extras import require
from visualprof.query.schema import TABLES, SqlType
from visualprof.query.tables import Source, Values
from visualprof.query.tables.columns import Role
from visualprof.query.tables.numbering import id_offsets, time_origins
from visualprof.reader.trace import Mask

if TYPE_CHECKING:
    import pandas as pd  # pyright: ignore[reportMissingTypeStubs]

# Columns that take long or much memory, and are left out of frames unless named.
COSTLY_COLUMNS = frozenset(["stack"])


def table_frame(sources: Sequence[Source], table: str, columns: Sequence[str] = ()) -> pd.DataFrame:
    """Return a table as a pandas frame, with the columns, ids and times of `OpenedProfile.sql`.

    Numbers share the memory of the trace if it stores them as they are, and are then read-only. Texts are categories.

    Args:
        sources: The traces.
        table: Name of the table.
        columns: Names of columns (default: all but `stack`; `rank` and `trace` only with several traces).
    """
    pandas = require("pandas")
    declared = TABLES[table].columns
    left_out = COSTLY_COLUMNS if len(sources) > 1 else COSTLY_COLUMNS | {"rank", "trace"}
    names = list(columns) or [name for name in declared if name not in left_out]
    numbering = list(zip(sources, id_offsets(sources), time_origins(sources), strict=True))
    anchor = next(iter(declared))
    sizes = [_size(source, table, anchor) for source in sources]
    arrays: dict[str, list[Any]] = {name: [] for name in names}
    for number, (source, offsets, origin) in enumerate(numbering):
        for name in names:
            if name in ("rank", "trace"):
                value = number if name == "trace" else source.rank
                arrays[name].append(_constant(pandas, value, sizes[number]))
                continue
            value = source.column(table, name)
            sql_type = declared[name].type
            if value is None:
                arrays[name].append(_missing(pandas, sql_type, sizes[number]))
            else:
                arrays[name].append(_column(pandas, source, value, sql_type, {**offsets, "time": -origin}))
    return pandas.DataFrame({name: _joined(pandas, parts) for name, parts in arrays.items()}, copy=False)


def _size(source: Source, table: str, anchor: str) -> int:
    """Return the number of rows of a table of one trace. The anchor is a column that all traces have."""
    value = source.column(table, anchor)
    return 0 if value is None else len(value.array)


def _column(pandas: Any, source: Source, value: Values, sql_type: SqlType, offsets: Mapping[Role, int]) -> Any:
    """Return a column as an array that pandas takes without a copy."""
    if value.role == "text":
        return _categories(pandas, source.trace.strings if value.texts is None else value.texts, value.array)
    if value.array.dtype == object:
        values: list[Any] = value.array.tolist()
        return pandas.Categorical(values) if sql_type == "VARCHAR" else pandas.array(values, dtype=_NULLABLE[sql_type])
    array = value.array
    is_missing = _is_missing(value, sql_type)
    if array.dtype.kind == "f":
        if sql_type != "BIGINT":
            return array
        array = np.where(np.isnan(array), 0, array).astype(np.int64)
    if offset := offsets.get(value.role, 0):
        array = array.astype(np.int64) + offset
    return array if is_missing is None else pandas.arrays.IntegerArray(array, is_missing)


def _is_missing(value: Values, sql_type: SqlType) -> Mask | None:
    """Return, per row, whether the value is unknown; `None` if all values are known."""
    if value.array.dtype.kind == "f":
        is_missing = np.isnan(value.array) if sql_type == "BIGINT" else None
    else:
        is_missing = None if value.missing is None else value.array == value.missing
    return is_missing if is_missing is not None and is_missing.any() else None


_NULLABLE: Mapping[SqlType, str] = {"BIGINT": "Int64", "DOUBLE": "Float64", "BOOLEAN": "boolean"}


def _missing(pandas: Any, sql_type: SqlType, size: int) -> Any:
    """Return a column of unknown values."""
    if sql_type == "VARCHAR":
        return pandas.Categorical.from_codes(np.full(size, -1, np.int8), categories=[])
    return np.full(size, np.nan) if sql_type == "DOUBLE" else pandas.array([None] * size, dtype=_NULLABLE[sql_type])


def _constant(pandas: Any, value: int | None, size: int) -> Any:
    return _missing(pandas, "BIGINT", size) if value is None else np.full(size, value, np.int64)


def _categories(pandas: Any, texts: Sequence[str], numbers: NDArray[np.integer[Any]]) -> Any:
    """Return texts by number as categories. Only used texts become categories; negative numbers are unknown."""
    is_used = np.zeros(len(texts) + 1, bool)  # the last is for -1
    is_used[numbers] = True
    is_used[-1] = False
    places: dict[str, int] = {}
    code_of_number = np.full(len(texts) + 1, -1, np.min_scalar_type(-len(texts) - 1))
    for number in cast("list[int]", np.flatnonzero(is_used).tolist()):
        code_of_number[number] = places.setdefault(texts[number], len(places))
    return pandas.Categorical.from_codes(code_of_number[numbers], categories=list(places))


def _joined(pandas: Any, parts: Sequence[Any]) -> Any:
    """Return the columns of several traces as one."""
    parts = [part for part in parts if len(part)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, pandas.Categorical) for part in parts):
        filled = [part for part in parts if len(part.categories)]
        if not filled:
            return pandas.Categorical.from_codes(np.full(sum(map(len, parts)), -1, np.int8), categories=[])
        categories = filled[0].categories
        typed = [
            part if len(part.categories) else pandas.Categorical.from_codes(part.codes, categories=categories)
            for part in parts
        ]
        return pandas.api.types.union_categoricals(typed)
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    return pandas.concat([pandas.Series(part) for part in parts], ignore_index=True).array
