"""A DuckDB connection over the columns of some traces, which answers one SELECT statement at a time.

The columns are registered without a copy; only texts are copied once. Views with the declared names and types are
defined per statement, over the columns that it mentions.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from visualprof.messages import msg
from visualprof.query.cursor import Cursor
from visualprof.query.errors import DuckDbMissing, QueryError, QueryStopped, perfetto_hint, query_error
from visualprof.query.macros import macro_statements
from visualprof.query.mentions import mentioned_columns, without_comments
from visualprof.query.schema import TABLES, Column
from visualprof.query.tables import Source, Values
from visualprof.query.tables.numbering import id_offsets, time_origins

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

MAX_SQL_CHARS = 64_000
INTERRUPT_INTERVAL_S = 0.1
MEMORY_LIMIT_MB, MEMORY_PER_TRACE_MB = 512, 8  # for one trace, and for each further one: its joins reserve memory
# Settings of a connection. `lock_configuration` follows when everything is set.
SETTINGS: Mapping[str, str | int] = {
    "temp_directory": "",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "enable_external_access": "false",
}
_EXPLAIN = re.compile(r"\s*explain\s+(?:analyze\s+)?", re.IGNORECASE)


def import_duckdb() -> Any:
    """Return the module `duckdb`.

    Raises:
        DuckDbMissing: DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise DuckDbMissing from error
    return duckdb


class Engine:
    """A connection over some traces. Only one thread may use it, except for `interrupt`.

    Args:
        sources: The traces.
        output: File that `write_parquet` may write, "" for none.
        unrestricted: Allow files, the network and settings: for users who could run any program anyway.
        threads: Threads of DuckDB.
        before_threads: Called after DuckDB has read its files and before it starts threads: Landlock binds only
            threads that start later.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        output: str = "",
        unrestricted: bool = False,
        threads: int = 2,
        before_threads: Callable[[], None] | None = None,
    ) -> None:
        self._duckdb = import_duckdb()
        self.sources = sources
        self._memory_mb = MEMORY_LIMIT_MB + MEMORY_PER_TRACE_MB * max(0, len(sources) - 1)
        self._connection: DuckDBPyConnection = self._duckdb.connect(":memory:", config={"threads": 1})
        self._registered: dict[str, frozenset[str]] = {}
        self._stored_texts: set[str] = set()
        self._output = str(Path(output).absolute()) if output else ""
        self._execute(macro_statements(self._duckdb.__version__, ()))
        if before_threads:
            before_threads()
        self._restrict(unrestricted, threads)
        self._offsets = id_offsets(sources)
        self.origins = time_origins(sources)

    def _restrict(self, unrestricted: bool, threads: int) -> None:
        """Apply the settings and lock them."""
        self._execute([f"SET threads = {threads}"])
        if unrestricted:
            return
        if self._output:
            self._execute([f"SET allowed_paths = [{_literal(self._output)}]"])
        self._execute([f"SET memory_limit = '{self._memory_mb}MB'"])
        self._execute([f"SET {name} = {_literal(value)}" for name, value in SETTINGS.items()])
        self._execute(["SET lock_configuration = true"])

    def _execute(self, statements: Iterable[str]) -> None:
        for statement in statements:
            self._connection.execute(statement)

    def check(self, sql: str) -> str:
        """Return the statement without surrounding space.

        Raises:
            QueryError: The text is not one SELECT statement, or EXPLAIN of one, or is too long.
        """
        if len(sql) > MAX_SQL_CHARS:
            raise QueryError(msg("query.too_long", f"the query has more than {MAX_SQL_CHARS:,} characters"))
        if "\0" in sql:
            raise QueryError(msg("query.null_character", "the query contains a null character"))
        try:
            statements = self._connection.extract_statements(sql)
        except self._duckdb.Error as error:
            raise query_error(sql, str(error)) from error
        if not statements:
            raise QueryError(msg("query.empty", "the query is empty"), msg("query.example", "SELECT name FROM kernel"))
        kinds = [str(statement.type).rpartition(".")[2] for statement in statements]
        if kinds == ["SELECT"] and without_comments(sql).lstrip().lower().startswith("pragma"):
            kinds = ["PRAGMA"]  # old versions of DuckDB rewrite some to SELECT
        if kinds == ["EXPLAIN"] and _EXPLAIN.match(sql):
            self.check(_EXPLAIN.sub("", sql, count=1))
        elif kinds != ["SELECT"]:
            raise QueryError(_not_one_select(kinds), perfetto_hint(sql) or _statement_hint(kinds))
        return sql.strip()

    def run(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Cursor:
        """Run a statement and return a cursor over its rows.

        Raises:
            QueryError: DuckDB rejects the statement.
            QueryStopped: It needs too much memory, or was interrupted.
        """
        sql = self.check(sql)
        self.prepare(sql)
        try:
            self._connection.execute("BEGIN TRANSACTION READ ONLY")
            try:
                self._connection.execute(sql, dict(parameters) if parameters else None)
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
        except BaseException as error:
            raise self.converted(sql, error) from error
        return Cursor(self._connection, lambda error: self.converted(sql, error))

    def relation(self, sql: str, parameters: Mapping[str, Any] | None = None) -> DuckDBPyRelation:
        """Return a statement as a relation, which DuckDB converts to frames."""
        sql = self.check(sql)
        self.prepare(sql)
        try:
            return self._connection.sql(sql, params=dict(parameters) if parameters else None)
        except BaseException as error:
            raise self.converted(sql, error) from error

    def write_parquet(
        self, sql: str, path: str, max_rows: int | None = None, parameters: Mapping[str, Any] | None = None
    ) -> None:
        """Write the rows of a statement to a Parquet file, which must be the `output` of a restricted connection."""
        sql = self.check(sql)
        self.prepare(sql)
        limit = "" if max_rows is None else f" LIMIT {max_rows}"
        target = _literal(str(Path(path).absolute()))
        rows = f"SELECT * FROM ({sql.rstrip(';').rstrip()}\n){limit}"
        copy = f"COPY ({rows}) TO {target} (FORMAT parquet, USE_TMP_FILE false)"
        try:
            self._connection.execute(copy, dict(parameters) if parameters else None)
        except BaseException as error:
            raise self.converted(sql, error) from error

    def interrupt(self) -> None:
        """Stop the running statement. Any thread may call this."""
        self._connection.interrupt()

    @contextmanager
    def time_limit(self, seconds: float) -> Generator[None]:
        """Interrupt the statements of the block after some time.

        DuckDB forgets an interrupt that precedes the start of its statement, so the interrupt is repeated.
        """
        ended = threading.Event()

        def interrupt() -> None:
            delay = seconds
            while not ended.wait(delay):
                self.interrupt()
                delay = INTERRUPT_INTERVAL_S

        thread = threading.Thread(target=interrupt, name="query time limit", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def converted(self, sql: str, error: BaseException) -> BaseException:
        """Return the error to raise for an error of DuckDB."""
        if isinstance(error, self._duckdb.InterruptException):
            return QueryStopped(
                msg("query.interrupted", "the query was stopped because it took too long"),
                msg("query.narrow", "filter earlier, join on ids instead of time ranges, or ask for fewer rows"),
            )
        if isinstance(error, MemoryError | self._duckdb.OutOfMemoryException):
            return QueryStopped(
                msg("query.out_of_memory", f"the query needs more than {self._memory_mb} MB of memory"),
                msg("query.narrow", "filter earlier, join on ids instead of time ranges, or ask for fewer rows"),
            )
        return query_error(sql, str(error)) if isinstance(error, self._duckdb.Error) else error

    def prepare(self, sql: str) -> None:
        """Define the tables that a statement mentions."""
        for table, columns in mentioned_columns(sql).items():
            self._execute([f'CREATE OR REPLACE TEMP VIEW "{table}" AS {self._select(table, columns)}'])
        self._execute(macro_statements(self._duckdb.__version__, tuple(mentioned_columns(sql))))

    def _select(self, table: str, columns: frozenset[str]) -> str:
        declared = TABLES[table].columns
        if table == "trace":
            return self._trace_rows()
        parts: list[str] = []
        for number in range(len(self.sources)):
            if table == "args":
                parts += self._argument_selects(number)
            else:
                parts.append(self._select_from(table, number, columns))
        if not parts:
            nulls = ", ".join(f'NULL::{column.type} AS "{column.name}"' for column in declared.values())
            return f"SELECT {nulls} WHERE false"
        return " UNION ALL ".join(parts)

    def _select_from(self, table: str, number: int, columns: frozenset[str]) -> str:
        """Return the SELECT over one table of one trace. Columns that are not wanted are NULL."""
        source, raw = self.sources[number], f"raw_{table}_{number}"
        declared = TABLES[table].columns
        anchor = next(iter(declared))  # always registered, because a relation needs a column
        values = {name: source.column(table, name) for name in declared if name in columns or name == anchor}
        arrays = {name: value.array for name, value in values.items() if value is not None}
        if self._registered.get(raw, frozenset()) != frozenset(arrays):
            self._connection.register(raw, arrays)
            self._registered[raw] = frozenset(arrays)
        joins: list[str] = []
        expressions = [
            self._expression(column, number, values.get(name), joins, raw) for name, column in declared.items()
        ]
        return f"SELECT {', '.join(expressions)} FROM {raw} r {' '.join(joins)}"

    def _expression(self, column: Column, number: int, value: Values | None, joins: list[str], raw: str) -> str:
        if column.name in ("rank", "trace"):
            constant = self.sources[number].rank if column.name == "rank" else number
            return f'{"NULL" if constant is None else constant}::BIGINT AS "{column.name}"'
        if value is None:
            return f'NULL::{column.type} AS "{column.name}"'
        expression = f'r."{column.name}"'
        if value.role == "text":
            texts = self._texts(number, raw, column.name, value)
            alias = f"t{len(joins)}"
            joins.append(f"LEFT JOIN {texts} {alias} ON {alias}.id = {expression}")
            expression = f"{alias}.text"
        else:
            if value.missing is not None:
                expression = f"nullif({expression}, {value.missing})"
            if value.array.dtype.kind == "f":
                expression = f"nullif({expression}, 'nan'::DOUBLE)"
            if value.role == "time":
                expression = f"{expression} - {self.origins[number]}"
            elif value.role != "plain" and self._offsets[number][value.role]:
                expression = f"{expression} + {self._offsets[number][value.role]}"
        return f'({expression})::{column.type} AS "{column.name}"'

    def _texts(self, number: int, raw: str, column: str, value: Values) -> str:
        """Return the table with the texts of a column, created when it is first needed."""
        name = f"raw_string_{number}" if value.texts is None else f"{raw}_{column}"
        if name not in self._stored_texts:
            texts = self.sources[number].trace.strings if value.texts is None else value.texts
            array = np.empty(len(texts), object)
            array[:] = [_storable(text) for text in texts]
            self._connection.register("raw_new_texts", {"id": np.arange(len(texts), dtype=np.int32), "text": array})
            self._execute([f"CREATE TABLE {name} AS SELECT id, text::VARCHAR AS text FROM raw_new_texts"])
            self._connection.unregister("raw_new_texts")
            self._stored_texts.add(name)
        return name

    def _argument_selects(self, number: int) -> Iterator[str]:
        """Yield the SELECT over each argument of one trace."""
        source, offset = self.sources[number], self._offsets[number]["event"]
        rank = "NULL" if source.rank is None else source.rank
        for i, (key, argument) in enumerate(source.trace.args.items()):
            raw = f"raw_args_{number}_{i}"
            if raw not in self._registered:
                self._connection.register(raw, {"event": argument.events, "value": argument.values})
                self._registered[raw] = frozenset(("event", "value"))
            is_real = argument.values.dtype.kind == "f"
            integer = "NULL" if argument.text or is_real else "r.value"
            real = "r.value" if is_real and not argument.text else "NULL"
            text, join = "NULL", ""
            if argument.text:
                texts = self._texts(number, raw, "value", Values(argument.values, "text"))
                text, join = "t.text", f"LEFT JOIN {texts} t ON t.id = r.value"
            display = text if argument.text else "r.value"
            yield (
                f"SELECT (r.event + {offset})::BIGINT AS arg_set_id, {_literal(_storable(key))} AS key, "
                f"{integer}::BIGINT AS int_value, {real}::DOUBLE AS real_value, {text}::VARCHAR AS string_value, "
                f'{display}::VARCHAR AS display_value, {rank}::BIGINT AS "rank", {number}::BIGINT AS "trace" '
                f"FROM {raw} r {join}"
            )

    def _trace_rows(self) -> str:
        rows = ", ".join(
            f"({i}, {_literal(_storable(source.name))}, {len(source.trace.events)}, {self._offsets[i]['event']}, "
            f"{self.origins[i]}, {'NULL' if source.rank is None else source.rank}::BIGINT, {i})"
            for i, source in enumerate(self.sources)
        )
        types = ", ".join(
            f'"{column.name}"::{column.type} AS "{column.name}"' for column in TABLES["trace"].columns.values()
        )
        names = ", ".join(f'"{name}"' for name in TABLES["trace"].columns)
        return f"SELECT {types} FROM (VALUES {rows}) v({names})"

    def row_counts(self) -> dict[str, int]:
        """Return the number of rows of each table, without running a query per table."""
        counts: dict[str, int] = {}
        for name in TABLES:
            if name == "trace":
                counts[name] = len(self.sources)
            elif name == "args":
                counts[name] = sum(len(a.events) for source in self.sources for a in source.trace.args.values())
            else:
                anchor = next(iter(TABLES[name].columns))
                columns = [source.column(name, anchor) for source in self.sources]
                counts[name] = sum(len(column.array) for column in columns if column)
        return counts


def _not_one_select(kinds: Sequence[str]) -> str:
    if len(kinds) > 1:
        return msg("query.several_statements", f"the text contains {len(kinds)} statements")
    return msg("query.not_select", f"{kinds[0]} statements are not allowed")


def _statement_hint(kinds: Sequence[str]) -> str:
    if "MULTI" in kinds:
        return msg("query.pivot", "use sum(x) FILTER (WHERE ...) or UNPIVOT in place of PIVOT")
    return msg("query.only_select", "a query is one SELECT statement; WITH and subqueries are allowed")


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def _storable(text: str) -> str:
    """Return a text that UTF-8 can encode: half of a surrogate pair becomes "?"."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
