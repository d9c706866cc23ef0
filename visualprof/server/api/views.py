"""The views of a span: as JSON, as one page of a table, as CSV, as charts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from flask import Blueprint, Response, request

from visualprof.errors import BadParameter, MissingData
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.server.answers import answer, csv_file
from visualprof.server.api import schema
from visualprof.server.api.parameters import parameters
from visualprof.server.api.spans import columns_of, number, required, whole_run
from visualprof.server.results import Results
from visualprof.server.tables import named_table
from visualprof.views import Params, View, all_views, view
from visualprof.views.table import Query, Result, Table, page

_DEFAULT_LIMIT = 200
_MAX_LIMIT = 10_000
_MAX_TOP = 1000
_ROW_FILTERS = ("search.", "is.", "min.", "max.")
# Of the request, not of the view.
_OURS = {"run", "worker", "span", "sort", "order", "search", "offset", "limit", "format", "table", "top"}


def blueprint(logdir: LogDirectory, results: Results) -> Blueprint:
    """The routes over one log directory."""
    routes = Blueprint("views", __name__, url_prefix="/api/v1")

    def compute(chosen: View) -> tuple[Params, Result]:
        params = chosen.parse(_view_parameters(request.args, {f.name for f in fields(chosen.params)}))
        run, worker, span_id = required("run"), request.args.get("worker", ""), request.args.get("span", "")
        if chosen.whole_run:
            spans = whole_run(logdir, run, span_id)
            key = tuple(span.summary.fingerprint for _, span, _ in spans if span.summary)
            ranks = [(name, trace) for name, _, trace in spans]
            if not any(chosen.needs(trace) for _, trace in ranks):
                raise MissingData(
                    f"the run {run!r} has no data for the view {chosen.name!r}", "it needs communication between ranks"
                )
            return params, results.get((key, chosen.name, params), lambda: chosen.compute(ranks, params))
        span = logdir.listing().find(run, worker, span_id)
        trace = columns_of(logdir, span)
        if not chosen.needs(trace):
            raise MissingData(
                f"{span.found.name} has no data for the view {chosen.name!r}",
                "it has data for: " + ", ".join(span.summary.views if span.summary else ()),
            )
        fingerprint = span.summary.fingerprint if span.summary else ""
        return params, results.get((fingerprint, chosen.name, params), lambda: chosen.compute(trace, params))

    @routes.get("/views")
    def views() -> Response:
        infos = [schema.ViewInfo(each.name, parameters(each), each.charts is not None) for each in all_views()]
        return answer(schema.ViewsAnswer(infos))

    @routes.get("/view/<name>")
    def one_view(name: str) -> Response:
        chosen = view(name)
        kind = request.args.get("format", "json")
        if kind not in ("json", "csv"):
            raise BadParameter(f"there is no format {kind!r}", "formats: json, csv")
        wanted = query(request.args, limited=kind == "json")
        result = compute(chosen)[1]
        table_name = request.args.get("table", "")
        if kind == "csv":
            text = page(named_table(result, table_name), wanted).to_csv()
            return csv_file(text, f"{name}-{table_name}" if table_name else name)
        if table_name:
            return answer(page(named_table(result, table_name), wanted).to_json())
        if result.table is not None:
            result = replace(result, table=page(result.table, wanted))
        return answer(_cut(result, (wanted.limit if "limit" in request.args else None) or _MAX_LIMIT).to_json())

    @routes.get("/charts/<name>")
    def charts(name: str) -> Response:
        chosen = view(name)
        own_top = any(f.name == "top" for f in fields(chosen.params))
        top = 10 if own_top else number("top", request.args.get("top", "10"), 1, _MAX_TOP)
        params, result = compute(chosen)
        return answer(schema.ChartsAnswer(chosen.charts(result, params, top) if chosen.charts else {}))

    return routes


def _cut(result: Result, limit: int) -> Result:
    """The tables beside the main one with at most so many rows; `table=` has the rest."""
    beside = {k: v for k, v in result.fields.items() if isinstance(v, Table) and len(v) > limit}
    if not beside:
        return result
    return replace(result, fields={**result.fields, **{k: page(v, Query(limit=limit)) for k, v in beside.items()}})


def query(given: Mapping[str, str], limited: bool) -> Query:
    """Which rows a request asks for.

    Args:
        given: the request's parameters.
        limited: without a limit of its own it gets 200 rows.
    """
    order = given.get("order", "desc")
    if order not in ("asc", "desc"):
        raise BadParameter(f"there is no order {order!r}", "orders: asc, desc")
    search = {key.removeprefix("search."): text for key, text in given.items() if key.startswith("search.") and text}
    if given.get("search"):
        search.setdefault("name", given["search"])
    limit = given.get("limit") or (str(_DEFAULT_LIMIT) if limited else "")
    return Query(
        sort=given.get("sort", ""),
        descending=order == "desc",
        search=search,
        equal={key.removeprefix("is."): text for key, text in given.items() if key.startswith("is.")},
        least={key.removeprefix("min."): _bound(key, text) for key, text in given.items() if key.startswith("min.")},
        most={key.removeprefix("max."): _bound(key, text) for key, text in given.items() if key.startswith("max.")},
        offset=number("offset", given.get("offset") or "0", 0, 2**53),
        limit=number("limit", limit, 0, _MAX_LIMIT) if limit else None,
    )


def _view_parameters(given: Mapping[str, str], known: set[str]) -> dict[str, str]:
    """Those of the view; `top` belongs to the charts, except of a view that has a `top` of its own."""
    return {
        key: text
        for key, text in given.items()
        if text and (key in known or key not in _OURS) and not key.startswith(_ROW_FILTERS)
    }


def _bound(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise BadParameter(f"{key}: {text!r} is no number", "in the unit of the column's name") from error
