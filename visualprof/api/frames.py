"""Tables of traces as pandas frames that share the memory-mapped columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from visualprof.api.extras import require
from visualprof.query.schema import TABLES
from visualprof.query.tables import Source, Values

if TYPE_CHECKING:
    import pandas as pd  # pyright: ignore[reportMissingTypeStubs]

# Columns that take long or much memory, and are left out of frames unless named.
COSTLY_COLUMNS = frozenset(["stack"])


def table_frame(sources: Sequence[Source], origins: Sequence[int], table: str, columns: Sequence[str] = ()) -> Any:
    """Return a table as a pandas frame, with the columns, names and times of `OpenedProfile.sql`.

    Numbers share the memory of the trace if it stores them as they are, and are then read-only. Texts are categories.

    Args:
        sources: The traces.
        origins: Time 0 in the clock of each trace.
        table: Name of the table.
        columns: Names of columns (default: all but `stack`).
    """
    pandas = require("pandas")
    declared = list(TABLES[table].columns)
    wanted = list(columns) or [name for name in declared if name not in COSTLY_COLUMNS]
    frames: list[pd.DataFrame] = []
    first = 0
    for number, (source, origin) in enumerate(zip(sources, origins, strict=True)):
        offsets = {"event": first, "step": 0, "track": 0}
        series = {name: _column(pandas, source, table, name, origin, offsets) for name in wanted if name in declared}
        frame = pandas.DataFrame({name: s for name, s in series.items() if s is not None}, copy=False)
        for name, value in (("rank", source.rank), ("trace", number)):
            if name in wanted and len(sources) > 1:
                frame[name] = value
        frames.append(frame)
        first += len(source.trace.events)
    return frames[0] if len(frames) == 1 else pandas.concat(frames, ignore_index=True)


def _column(pandas: Any, source: Source, table: str, name: str, origin: int, offsets: dict[str, int]) -> Any:
    """Return a column as a pandas array, `None` if the trace has no such data."""
    value = source.column(table, name)
    if value is None:
        return None
    if value.role == "text":
        return _categories(pandas, source, value)
    if value.array.dtype == object:
        return pandas.array(value.array.tolist())
    array: Any = value.array
    mask: Any = array == value.missing if value.missing is not None else np.zeros(len(array), bool)
    if offset := offsets.get(value.role, 0):
        array = cast("Any", np.where(mask, array, array.astype(np.int64) + offset))
    if value.role == "time":
        array = cast("Any", np.where(mask, 0, array - origin))
    return pandas.arrays.IntegerArray(array, mask) if array.dtype.kind != "f" and mask.any() else array


def _categories(pandas: Any, source: Source, value: Values) -> Any:
    """Return texts as categories. Only used texts become categories, except in a table of all events."""
    texts = source.trace.strings if value.texts is None else value.texts
    used, codes = np.unique(value.array, return_inverse=True)
    names = [texts[int(number)] if number >= 0 else "" for number in used]
    places: dict[str, int] = {}
    numbers: list[int] = used.tolist()
    position = np.array(
        [-1 if n < 0 else places.setdefault(text, len(places)) for n, text in zip(numbers, names, strict=True)]
    )
    return pandas.Categorical.from_codes(position[codes] if len(position) else codes, categories=list(places))
