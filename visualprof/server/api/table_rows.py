"""Select rows of an answer's tables, as JSON pages or CSV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

import msgspec
from flask import Response
from msgspec import Meta
from msgspec.structs import replace

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.server.responses import TSV_TYPE, bytes_response, csv_response
from visualprof.server.routes import Query, StepRange
from visualprof.views.answers.table import Answer, Selection, Table, named_table, select_rows

DEFAULT_LIMIT = 200
MAX_LIMIT = 10_000
ROW_FILTERS = ("search.", "is.", "none.", "min.", "max.")
# Query parameters that select rows of a table.
TableName = Annotated[str, Meta(description="name of a table, for views with several tables")]
Sort = Annotated[
    str,
    Meta(description="columns, comma-separated, the most significant one first; the view's own order when absent"),
]
Order = Annotated[
    str,
    Meta(pattern="^(asc|desc)(,(asc|desc))*$", description="direction of all columns, or one per column: asc or desc"),
]
Search = Annotated[
    str,
    Meta(
        description="part of the name, in any case; search.COLUMN, is.COLUMN, min.COLUMN, max.COLUMN filter by a column"
    ),
]
Offset = Annotated[int, Meta(ge=0, le=2**53, description="rows to skip")]
Limit = Annotated[int, Meta(ge=0, le=MAX_LIMIT, description="maximum number of rows; 200 when absent (CSV: all)")]
Format = Annotated[Literal["json", "csv", "tsv"], Meta(description="format of the answer")]


class SubjectQuery(Query):
    """The subject of a view, and the view's own parameters (`others`)."""

    run: Annotated[str, Meta(description="id of a run")] = ""
    worker: Annotated[str, Meta(description="id of a worker; the first one when absent")] = ""
    span: Annotated[str, Meta(description="id of a span; the first one when absent")] = ""
    model: Annotated[str, Meta(description="id of a model, for views of models")] = ""
    reports: Annotated[str, Meta(description="ids of reports, comma-separated, for views of reports")] = ""
    step_range: StepRange = ""
    top: Annotated[int, Meta(ge=0, description="maximum number of slices of a pie chart")] | None = None
    others: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])


class ViewQuery(SubjectQuery):
    """The subject of a view, and the table and rows of the answer."""

    table: TableName = ""
    sort: Sort = ""
    order: Order = "desc"
    search: Search = ""
    offset: Offset = 0
    limit: Limit | None = None
    format: Format = "json"


class RowsQuery(Query):
    """The table and rows of an answer that does not come from a view."""

    table: TableName = ""
    sort: Sort = ""
    order: Order = "desc"
    search: Search = ""
    offset: Offset = 0
    limit: Limit | None = None
    format: Format = "json"
    others: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])


def table_response(
    name: str, result: Answer, query: ViewQuery | RowsQuery, rows: Selection, max_other_rows: int = MAX_LIMIT
) -> Answer | Response:
    """Return an answer, or the requested rows of one of its tables.

    Args:
        name: Name of the view, for the file name of CSV.
        result: The answer.
        query: The requested table and format.
        rows: The requested rows.
        max_other_rows: Maximum number of rows of the other tables.
    """
    if query.format == "tsv":
        text = select_rows(named_table(result, query.table), rows).to_csv("\t")
        return bytes_response(text.encode("utf-8", "replace"), TSV_TYPE)
    if query.format == "csv":
        text = select_rows(named_table(result, query.table), rows).to_csv()
        return csv_response(text, f"{name}-{query.table}" if query.table else name)
    if query.table:
        return select_rows(named_table(result, query.table), rows)
    limited = select_rows(cast("Table[Any]", result), rows) if isinstance(result, Table) else result
    return _limit_tables(limited, query.limit or max_other_rows)


def row_selection(query: ViewQuery | RowsQuery) -> Selection:
    """Return the rows of a table that a request asks for."""
    filters: dict[str, dict[str, str]] = {prefix: {} for prefix in ROW_FILTERS}
    for name, text in query.others.items():
        for prefix in ROW_FILTERS:
            if name.startswith(prefix):
                filters[prefix][name.removeprefix(prefix)] = text
    search = {column: text for column, text in filters["search."].items() if text}
    if query.search:
        search.setdefault("name", query.search)
    limited = query.format == "json"
    return Selection(
        sort=sort_order(query.sort, query.order),
        search=search,
        equal=filters["is."],
        empty=tuple(column for column, text in filters["none."].items() if text),
        least=_bounds("min.", filters),
        most=_bounds("max.", filters),
        offset=query.offset,
        limit=DEFAULT_LIMIT if query.limit is None and limited else query.limit,
    )


def sort_order(sort: str, order: str) -> tuple[tuple[str, bool], ...]:
    """Return the columns to sort by, and whether each is descending.

    Raises:
        BadParameter: There are several directions, but not one per column.
    """
    columns, directions = [*filter(None, sort.split(","))], order.split(",")
    if len(directions) not in (1, len(columns)):
        raise BadParameter(
            msg("server.order_directions", f"order has {len(directions)} directions for {len(columns)} columns"),
            msg("server.order_one_or_each", "give one direction for all columns, or one per column"),
        )
    if len(directions) == 1:
        directions *= len(columns)
    return tuple((column, direction == "desc") for column, direction in zip(columns, directions, strict=True))


def _bounds(prefix: str, filters: Mapping[str, Mapping[str, str]]) -> dict[str, float]:
    return {column: _bound(prefix + column, text) for column, text in filters[prefix].items()}


def _bound(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise BadParameter(
            msg("server.no_number", f"{name}: {text!r} is no number"),
            msg("server.unit_columns_name", "in the unit of the column's name"),
        ) from error


def _limit_tables(result: Answer, limit: int) -> Answer:
    """Return the answer with at most `limit` rows in each of its other tables.

    The parameter `table` gives access to the remaining rows of a table.
    """
    tables: dict[str, Table[Any]] = {
        name: cast("Table[Any]", value)
        for name in result.__struct_fields__
        if isinstance(value := getattr(result, name), Table)
    }
    limited = {name: select_rows(table, Selection(limit=limit)) for name, table in tables.items() if len(table) > limit}
    return replace(result, **limited)
