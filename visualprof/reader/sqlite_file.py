"""SQLite databases of profilers: opened read-only, and read as integer columns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from visualprof.reader.patterns import pattern
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, Floats, Ids, Ints, Rows
from visualprof.reader.trace.builder import TraceBuilder

if TYPE_CHECKING:
    import sqlite3

MAGIC = b"SQLite format 3\x00"
_VERSIONED_TABLE = pattern(r"^([A-Za-z]\w*?)_[vV](\d{1,3})$")
_NO_VERSION = 1000  # before all versions
MISSING = -(2**62)  # a value that is NULL, and every value of a column that does not exist


@contextlib.contextmanager
def open_database(source: Source) -> Generator[sqlite3.Connection]:
    """Return a context with the open database, read-only; a packed one is unpacked into a temporary file."""
    import sqlite3  # with tempfile it takes 8 ms, which other files need not pay
    import tempfile

    with contextlib.ExitStack() as stack:
        path = source.path.absolute()
        if source.is_gzipped:
            file = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".sqlite"))
            file.writelines(source.chunks())
            file.flush()
            path = Path(file.name)
        connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)
        stack.callback(connection.close)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.text_factory = _decode_text
        yield connection


def _decode_text(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def current_tables(database: sqlite3.Connection) -> Generator[tuple[str, str, list[str]]]:
    """Yield each table's name without a version, the name to read, and those to leave out.

    A newer version of a table is called `NVTX_EVENTS_V2`. Of several versions that have rows, the plain name is read,
    else the newest. Views are never read, because they might not end.
    """
    kinds = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    versions: dict[str, list[tuple[int, str]]] = {}
    for name in sorted(str(name) for (name,) in kinds):
        versioned = _VERSIONED_TABLE.match(name)
        key, number = (versioned[1], -int(versioned[2])) if versioned else (name, -_NO_VERSION)
        versions.setdefault(key, []).append((number, name))
    for key, found in versions.items():
        names = [name for _, name in sorted(found)]
        filled = names if len(names) == 1 else [name for name in names if _has_rows(database, name)]
        yield key, (filled or names)[0], filled[1:]


def _has_rows(database: sqlite3.Connection, table: str) -> bool:
    return database.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() is not None


class Tables:
    """The tables of a database; views are never read, because they might not end."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._columns = {str(name): self._column_names(str(name)) for (name,) in names}

    def __contains__(self, table: str) -> bool:
        return table in self._columns

    def integers(self, table: str, *names: str, condition: str = "") -> dict[str, Ints]:
        """Return columns of a table: `MISSING` for NULL and missing columns; empty without the table.

        Numbers that are stored as text are converted.
        """
        existing = [name for name in names if name in self._columns.get(table, ())]
        if not existing:
            return {name: np.zeros(0, np.int64) for name in names}
        selected = ", ".join(f'CAST(COALESCE("{name}", {MISSING}) AS INTEGER)' for name in existing)
        cursor = self._database.execute(f'SELECT {selected} FROM "{table}" {condition}')
        values = np.fromiter(chain.from_iterable(cursor), np.int64).reshape(-1, len(existing))
        columns: dict[str, Ints] = {name: values[:, i].copy() for i, name in enumerate(existing)}
        return {name: columns.get(name, np.full(len(values), MISSING)) for name in names}

    def floats(self, table: str, name: str, condition: str = "") -> Floats:
        """Return a column of a table, NaN for NULL; empty without the column."""
        if name not in self._columns.get(table, ()):
            return np.zeros(0)
        cursor = self._database.execute(f'SELECT "{name}" FROM "{table}" {condition}')
        numbers = (value if isinstance(value, (int, float)) else np.nan for (value,) in cursor)
        return np.fromiter(numbers, np.float64)

    def strings(self, table: str, name: str, condition: str = "") -> list[str]:
        """Return a column of a table as texts, "" for NULL; empty without the column."""
        if name not in self._columns.get(table, ()):
            return []
        cursor = self._database.execute(f'SELECT CAST(COALESCE("{name}", \'\') AS TEXT) FROM "{table}" {condition}')
        return [value for (value,) in cursor]

    def texts(self, table: str, key: str, value: str) -> dict[int, str]:
        """Return texts by number, empty if the table or a column is missing."""
        if not {key, value} <= set(self._columns.get(table, ())):
            return {}
        cursor = self._database.execute(f'SELECT CAST("{key}" AS INTEGER), "{value}" FROM "{table}"')
        return {int(number): str(text) for number, text in cursor if number is not None and text is not None}

    def suffixes(self, name: str) -> list[str]:
        """Return the ends of the names of all tables that are called `name` and anything after it, in order."""
        return sorted(table.removeprefix(name) for table in self._columns if table.startswith(name))

    def _column_names(self, table: str) -> Sequence[str]:
        quoted = table.replace('"', '""')
        return [str(row[1]) for row in self._database.execute(f'PRAGMA table_info("{quoted}")')]


class EventWriter:
    """Adds events of tables to a trace, and numbers their rows.

    Attributes:
        rows: Number of events so far.
    """

    def __init__(self, builder: TraceBuilder) -> None:
        self._builder = builder
        self.rows = 0

    def add(
        self, start: Ints, end: Ints, *, name: Rows, category: Rows | Category, track: Rows, corr: Rows | None = None
    ) -> Ints:
        """Add events and return their rows. An end that is `MISSING` makes an instant.

        Args:
            start: (n,) ns.
            end: (n,) ns, or `MISSING`.
            name: (n,) string ids.
            category: Values of `Category`.
            track: (n,) numbers of tracks.
            corr: (n,) correlation ids, 0 for none.
        """
        rows = np.arange(self.rows, self.rows + len(start))
        self.rows += len(start)
        dur = np.where(end > MISSING, np.maximum(end - start, -2), -1)
        self._builder.events(ts=start, dur=dur, name=name, category=category, track=track, row=rows, corr=corr)
        return rows

    def texts(self, values: Ints, convert: Callable[[int], str]) -> Ids:
        """Return string ids (n,) of numbers, converting each distinct number once."""
        return map_distinct(values, lambda value: self._builder.string(convert(value)))


def length(columns: Mapping[str, Ints]) -> int:
    """Return the number of rows of columns."""
    return len(next(iter(columns.values()), ()))


def find_rows(ordered: Ints, wanted: Ints) -> Ints:
    """Return (n,) the position of each number in an ascending column, -1 if it is not there."""
    if not len(ordered):
        return np.full(len(wanted), -1)
    at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[at] == wanted, at, -1)


def map_distinct(values: Ints, convert: Callable[[int], int]) -> Ids:
    """Return (n,) the converted values, converting each distinct value once."""
    distinct, index = np.unique(values, return_inverse=True)
    numbers: Sequence[int] = [convert(value) for value in distinct.tolist()]
    return np.array(numbers, np.int32)[index] if len(distinct) else np.zeros(0, np.int32)
