"""The API as an OpenAPI 3.1 document, made from the answers' types and the views' parameters.

`python -m visualprof.server.api.openapi [FILE]` writes it, by default to visualprof/frontend/openapi.json,
from which the page's types are generated.
"""

from __future__ import annotations

import sys
from inspect import cleandoc
from pathlib import Path

import msgspec
from flask import Blueprint, Response

from visualprof import __version__
from visualprof.server.answers import answer
from visualprof.server.api import job_openapi, schema
from visualprof.server.api.operations import ERRORS, Json, error, get, operation, parameter, ref
from visualprof.server.api.parameters import parameters
from visualprof.views import View, all_views

_SCHEMA_TYPES = {"text": "string", "integer": "integer", "number": "number", "boolean": "boolean", "choice": "string"}
_EXPORT = Path(__file__).parents[2] / "frontend" / "openapi.json"


def blueprint() -> Blueprint:
    """The route of the document."""
    routes = Blueprint("openapi", __name__, url_prefix="/api/v1")

    @routes.get("/openapi.json")
    def openapi() -> Response:
        return answer(document())

    return routes


def document() -> Json:
    """The whole API. Each view also stands under its own address, with its own parameters and answer."""
    paths: Json = {
        "/api/v1/status": {"get": get("The server itself", schema.Status)},
        "/api/v1/runs": {"get": get("Every run, worker and span", schema.RunsAnswer)},
        "/api/v1/views": {"get": get("Every view, in the order of the tabs", schema.ViewsAnswer)},
        "/api/v1/openapi.json": {"get": operation("This document", {"type": "object"})},
        "/api/v1/reload": {"post": _reload()},
    }
    for view in all_views():
        paths |= _view_paths(view)
    any_name = parameter("name", {"type": "string"}, "path", "a view's name")
    any_answer = {"type": "object"}
    paths["/api/v1/view/{name}"] = {
        "get": operation(
            "A view of a span", any_answer, [any_name, *_span_parameters(), *_table_parameters()], csv=True
        )
    }
    paths |= _timeline_paths() | _graph_paths() | job_openapi.paths()
    paths["/api/v1/charts/{name}"] = {
        "get": get("The charts of a view", schema.ChartsAnswer, [any_name, *_span_parameters(), _top()])
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "visualprof",
            "version": __version__,
            "description": "Times are integer ns, sizes bytes, ratios 0..1.",
        },
        "paths": paths,
        "components": {"schemas": _schemas()},
    }


def _timeline_paths() -> Json:
    """The timeline: JSON about it, binary tiles of it."""
    text: Json = {"type": "string"}
    whole: Json = {"type": "integer"}
    span = _span_parameters()[:3]
    tile = [
        parameter("level", whole, "query", "buckets of 2**level ns", required=True),
        parameter("index", whole, "query", "tiles since time 0", required=True),
    ]
    version = parameter("v", text, "query", "the meta's version; makes the answer immutable")
    window = [
        parameter("start_ns", whole, "query", "since the first event"),
        parameter("end_ns", whole, "query", "since the first event"),
        parameter("tracks", text, "query", "ids, comma-separated; all when absent"),
    ]
    limit = parameter("limit", whole, "query", "rows at most")
    sorting = [
        parameter("sort", text, "query", "column"),
        parameter("order", {"type": "string", "enum": ["asc", "desc"]}, "query", "direction"),
    ]
    minimap = parameter("minimap", text, "query", "0: without the profile of the whole trace")
    needle = [
        parameter("text", text, "query", "part of a name", required=True),
        parameter("exact", text, "query", "1: the whole name"),
        limit,
    ]
    event = [
        parameter("event", whole, "query", "row of an event", required=True),
        parameter("arguments", text, "query", "0: without the raw arguments, which are read from the file"),
    ]
    longest = [
        parameter("name", text, "query", "an event's name; this or a category"),
        parameter("category", text, "query", "one of the meta's categories"),
        parameter("where", {"type": "string", "enum": ["host", "device"]}, "query", "anywhere when absent"),
    ]
    paging = [parameter("offset", whole, "query", "first"), parameter("limit", whole, "query", "at most")]
    answers: dict[str, tuple[str, type[msgspec.Struct], list[Json]]] = {
        "meta": ("What is on the timeline", schema.TimelineMeta, [*span, minimap]),
        "strings": ("The dictionary that tiles number", schema.TimelineStrings, [*span, *paging]),
        "event": ("Everything about one event", schema.TimelineEvent, [*span, *event]),
        "search": ("Events by name", schema.TimelineHits, [*span, *needle]),
        "longest": ("The longest event of a name or a category", schema.Place, [*span, *longest]),
        "window": ("What ran in a window", schema.TimelineWindow, [*span, *window, *sorting, limit]),
        "alignment": ("Clock offsets of the workers of a run", schema.AlignmentAnswer, span[:1]),
    }
    paths = {f"/api/v1/timeline/{key}": {"get": get(*value)} for key, value in answers.items()}
    group = parameter("group", whole, "query", "of tracks")
    track = parameter("track", whole, "query", "of a counter", required=True)
    paths["/api/v1/timeline/tile"] = {"get": _binary("A tile of a group of tracks", [*span, version, group, *tile])}
    paths["/api/v1/timeline/counter"] = {"get": _binary("A tile of a counter", [*span, version, track, *tile])}
    paths["/api/v1/timeline/export"] = {
        "get": operation("A window as Chrome JSON", {"type": "object"}, [*span, *window], ERRORS)
    }
    return paths


def _graph_paths() -> Json:
    """Models and their graphs."""
    text: Json = {"type": "string"}
    model = parameter("model", text, "query", "id of a model", required=True)
    other = parameter("other", text, "query", "id of the model to compare with", required=True)
    node = parameter("node", {"type": "integer"}, "query", "number of a node", required=True)
    name = parameter("name", text, "query", "of the file", required=True)
    upload = operation(
        "Keep an uploaded model",
        ref(schema.ModelEntry),
        [name],
        {403: "the server is read-only", 413: "too large", 422: ERRORS[422]},
    )
    upload["responses"]["201"] = upload["responses"].pop("200")
    upload["responses"].pop("304")
    upload["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    return {
        "/api/v1/models": {"get": get("Every model", schema.ModelsAnswer), "post": upload},
        "/api/v1/graph": {"get": get("A model as a graph", schema.GraphAnswer, [model])},
        "/api/v1/graph/node": {"get": get("One node", schema.GraphNode, [model, node])},
        "/api/v1/graph/profile": {
            "get": get("Measured time on the nodes", schema.GraphProfile, [model, *_span_parameters()[:3]])
        },
        "/api/v1/graph/compare": {"get": get("Two models compared", schema.GraphComparison, [model, other])},
    }


def _binary(summary: str, given: list[Json]) -> Json:
    """An answer of typed arrays; docs/http-api.md has its layout."""
    made = operation(summary, {}, given, ERRORS)
    made["responses"]["200"]["content"] = {"application/octet-stream": {}}
    return made


def _view_paths(view: View) -> Json:
    own = [
        parameter(each.name, _value_schema(each), "query", f"parameter of {view.name}")
        for each in parameters(view)
        if each.name != "step"
    ]
    # A view with a `top` of its own has no other for its charts.
    slices = [] if any(each["name"] == "top" for each in own) else [_top()]
    kind = schema.ANSWERS.get(view.name, schema.Table)
    what = f"The view {view.name}"
    return {
        f"/api/v1/view/{view.name}": {
            "get": operation(what, ref(kind), [*_span_parameters(), *own, *_table_parameters()], ERRORS, csv=True)
        },
        f"/api/v1/charts/{view.name}": {
            "get": operation(f"{what}: charts", ref(schema.ChartsAnswer), [*_span_parameters(), *own, *slices], ERRORS)
        },
    }


def _value_schema(each: schema.Parameter) -> Json:
    value: Json = {"type": _SCHEMA_TYPES[each.type]}
    if each.choices is not None:
        value["enum"] = each.choices
    if each.default is not None:
        value["default"] = each.default
    return value


def _schemas() -> Json:
    kinds = [
        schema.Status,
        schema.RunsAnswer,
        schema.ViewsAnswer,
        schema.Table,
        schema.ChartsAnswer,
        schema.ErrorBody,
        *schema.ANSWERS.values(),
        schema.TimelineMeta,
        schema.TimelineStrings,
        schema.TimelineEvent,
        schema.TimelineHits,
        schema.TimelineWindow,
        schema.AlignmentAnswer,
        schema.Place,
        schema.ModelsAnswer,
        schema.GraphAnswer,
        schema.GraphNode,
        schema.GraphProfile,
        schema.GraphComparison,
        *job_openapi.KINDS,
    ]
    schemas: Json = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")[1]
    for each in schemas.values():
        each["description"] = cleandoc(each["description"])  # Python 3.13 has done so already, older ones have not
    return schemas


def _reload() -> Json:
    answers = {"204": {"description": "done"}, "403": error("the server is read-only")}
    return {"summary": "Read the log directories again", "responses": answers}


def _span_parameters() -> list[Json]:
    text = {"type": "string"}
    return [
        parameter("run", text, "query", "id of a run", required=True),
        parameter("worker", text, "query", "id of a worker; the first one when absent"),
        parameter("span", text, "query", "id of a span; the first one when absent"),
        parameter("step", text, "query", "name of a step; all when absent"),
    ]


def _table_parameters() -> list[Json]:
    text: Json = {"type": "string"}
    number: Json = {"type": "integer", "minimum": 0}
    return [
        parameter("table", text, "query", "one of the tables of a view that has several"),
        parameter("sort", text, "query", "column; the view's own order when absent"),
        parameter("order", {"type": "string", "enum": ["asc", "desc"], "default": "desc"}, "query", "direction"),
        parameter(
            "search",
            text,
            "query",
            "part of the name, any case; search.COLUMN, is.COLUMN, min.COLUMN, max.COLUMN filter by others",
        ),
        parameter("offset", number | {"default": 0}, "query", "rows to skip"),
        parameter("limit", number | {"default": 200, "maximum": 10_000}, "query", "rows at most; CSV: all when absent"),
        parameter("format", {"type": "string", "enum": ["json", "csv"], "default": "json"}, "query", "of the answer"),
    ]


def _top() -> Json:
    value: Json = {"type": "integer", "default": 10, "minimum": 1, "maximum": 1000}
    return parameter("top", value, "query", "slices of a pie")


def export(path: Path) -> None:
    """Writes the document."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document()), indent=2) + b"\n")


if __name__ == "__main__":
    export(Path(sys.argv[1]) if len(sys.argv) > 1 else _EXPORT)
