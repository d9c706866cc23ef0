"""Results of SQL and views of a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from visualprof.api.extras import require
from visualprof.errors import NotFound
from visualprof.query.cursor import unique_names
from visualprof.query.results import to_csv

if TYPE_CHECKING:
    import pandas as pd  # pyright: ignore[reportMissingTypeStubs]
    import polars as pl
    from duckdb import DuckDBPyRelation

    from visualprof.api.view_chart import ViewChart
    from visualprof.query.engine import Engine
    from visualprof.views.answers.kinds import Kind
    from visualprof.views.answers.table import Answer, Table

SHOWN_ROWS = 20


class Result:
    """The result of a statement. Each conversion runs the statement again, except `rows`, which are kept.

    Args:
        engine: The connection.
        sql: The statement.
        parameters: Values of its parameters.
    """

    def __init__(self, engine: Engine, sql: str, parameters: Mapping[str, Any] | None = None) -> None:
        self._engine, self.sql, self._parameters = engine, sql, dict(parameters or {})
        with engine.run(sql, self._parameters) as cursor:
            self._columns, self._first = cursor.columns, cursor.fetch(SHOWN_ROWS + 1)
        self._rows: list[tuple[Any, ...]] | None = None if len(self._first) > SHOWN_ROWS else self._first

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns."""
        return self._columns

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Return all rows as tuples."""
        if self._rows is None:
            with self._engine.run(self.sql, self._parameters) as cursor:
                self._rows = []
                while chunk := cursor.fetch(10_000):
                    self._rows += chunk
        return self._rows

    def df(self) -> pd.DataFrame:
        """Return the result as a pandas frame."""
        require("pandas")
        return self._relation().df()

    def arrow(self) -> Any:
        """Return the result as a `pyarrow.Table`. Needs pyarrow."""
        require("pyarrow", "pip install pyarrow")
        relation: Any = self._relation()
        return relation.to_arrow_table()

    def polars(self) -> pl.DataFrame:
        """Return the result as a polars frame. Needs polars."""
        polars = require("polars", "pip install polars")
        return polars.DataFrame(self._relation())

    def csv(self) -> str:
        """Return the result as CSV with a header line."""
        return to_csv(self._columns, self.rows)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the result as an Arrow stream, for packages that take one."""
        relation: Any = self._relation()
        return relation.__arrow_c_stream__(requested_schema)

    def _relation(self) -> DuckDBPyRelation:
        """Return the statement as a relation. Sums of integers are 64 bits wide, because frames have no 128 bits."""
        relation = self._engine.relation(self.sql, self._parameters)
        is_wide = [str(column_type) == "HUGEINT" for column_type in relation.types]
        if not any(is_wide):
            return relation
        names = [name.replace('"', '""') for name in unique_names(relation.columns)]
        parts = [
            f'#{i}{"::BIGINT" if wide else ""} AS "{name}"'
            for i, (wide, name) in enumerate(zip(is_wide, names, strict=True), 1)
        ]
        return relation.project(", ".join(parts))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        lines = ["  ".join(self._columns), *("  ".join(map(str, row)) for row in self._first[:SHOWN_ROWS])]
        return "\n".join([*lines, *(["..."] if len(self._first) > SHOWN_ROWS else [])])

    def _repr_html_(self) -> str:
        return html_table(self._columns, self._first[:SHOWN_ROWS], more=len(self._first) > SHOWN_ROWS)


class ViewTable:
    """A table of a view.

    Args:
        table: The table.

    Attributes:
        kinds: Kind of each column, which gives its unit.
    """

    def __init__(self, table: Table[Any]) -> None:
        self._table = table
        self.kinds: dict[str, Kind] = {name: table.kinds[name] for name in self.columns if name in table.kinds}

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Return the columns by name. Unknown values are None."""
        from visualprof.views.answers.table import to_python

        return {name: to_python(column) for name, column in self._table.columns_by_name().items()}

    def df(self) -> pd.DataFrame:
        """Return the table as a pandas frame."""
        return require("pandas").DataFrame(self.columns)

    def __len__(self) -> int:
        return len(self._table)

    def _repr_html_(self) -> str:
        return self.html()

    def html(self) -> str:
        """Return the first rows as an HTML table."""
        columns = self.columns
        rows = list(zip(*columns.values(), strict=True))
        return html_table(list(columns), rows[:SHOWN_ROWS], more=len(rows) > SHOWN_ROWS)


class ViewResult:
    """The answer of a view.

    Args:
        answer: The answer.
        charts: Returns the chart of a name; `None` if there are no charts.

    Attributes:
        answer: The complete answer, with the fields that docs/views describes.
        tables: Its tables by name; "" is the main table.
        kinds: Kind of each single value, which gives its unit.
    """

    def __init__(self, answer: Answer, charts: Callable[[str], ViewChart] | None = None) -> None:
        self.answer, self._charts = answer, charts
        self.tables = {name: ViewTable(table) for name, table in answer.tables().items()}
        self.kinds = answer.kinds

    def df(self, name: str = "") -> pd.DataFrame:
        """Return a table as a pandas frame; by default the main table, or the only one."""
        if name not in self.tables and not name:
            name = next(iter(self.tables))
        return self.tables[name].df()

    def chart(self, name: str) -> ViewChart:
        """Return a chart of the view, as `OpenedProfile.chart` does.

        Raises:
            NotFound: There is no such chart.
            MissingData: pyecharts is not installed.
        """
        if self._charts is None:
            raise NotFound("a comparison has no charts", "open one path and use chart()")
        return self._charts(name)

    def _repr_html_(self) -> str:
        return "".join(f"<h4>{name}</h4>{table.html()}" for name, table in self.tables.items())


def html_table(columns: list[str], rows: list[tuple[Any, ...]], *, more: bool) -> str:
    """Return rows as an HTML table. Names come from files, so they are escaped."""
    import html

    def cells(values: list[Any] | tuple[Any, ...], tag: str) -> str:
        texts = ("" if value is None else html.escape(str(value)) for value in values)
        return "<tr>" + "".join(f"<{tag}>{text}</{tag}>" for text in texts) + "</tr>"

    body = "".join(cells(row, "td") for row in rows)
    note = "<p>more rows exist</p>" if more else ""
    return f"<table><thead>{cells(columns, 'th')}</thead><tbody>{body}</tbody></table>{note}"
