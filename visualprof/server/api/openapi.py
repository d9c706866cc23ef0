"""The API as an OpenAPI 3.1 document, derived from the routes, and from the parameters and answers of the views.

`python -m visualprof.server.api.openapi` prints only the types on stdout and their digest on stderr. The web UI's
types are generated from them.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from inspect import cleandoc, getdoc
from types import NoneType, UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

import msgspec
from flask import Response

from visualprof import __version__
from visualprof.server.api import all_routes
from visualprof.server.api.jobs import JobErrors
from visualprof.server.api.views import ChartsAnswer, Parameter, list_parameters
from visualprof.server.responses import ErrorBody
from visualprof.server.routes import Query, Resource, Route, get, query_schemas
from visualprof.views import View, all_views
from visualprof.views.answers.kinds import schema_of_column

Json = dict[str, Any]

_SUBJECTS = {
    "trace": "run",
    "run": "run",
    "model": "model",
    "reports": "reports",
    "data": "run",
}  # parameter that names the subject
_SCHEMA_TYPES = {"text": "string", "integer": "integer", "number": "number", "boolean": "boolean", "choice": "string"}


class OpenApi(Resource):
    """The route of the OpenAPI document."""

    @get("/openapi.json")
    def openapi(self) -> dict[str, Any]:
        """Return this document."""
        return build_document()


def build_document() -> Json:
    """Return the OpenAPI document. Each view also has a path of its own, with its own parameters and answer."""
    paths: Json = {}
    for route, handler in all_routes():
        paths.setdefault(url_template(route), {})[route.method.lower()] = _operation(route, handler)
    for view in all_views():
        paths |= _view_paths(view, paths)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "visualprof",
            "version": __version__,
            "description": "Times are integer ns, sizes bytes, ratios 0..1.",
        },
        "paths": paths,
        "components": build_components(),
    }


def build_components() -> Json:
    """Return the schema of every answer and body."""
    kinds = [ErrorBody, JobErrors, *(view.answer_type for view in all_views())]
    for route, handler in all_routes():
        _, body, answer = route.parameter_types(handler)
        kinds += [kind for kind in (*_answer_types(answer), _body_type(body)) if _is_struct(kind)]
    schemas = _components(dict.fromkeys(kinds))[1]
    for schema in schemas.values():
        schema["description"] = cleandoc(schema.get("description", ""))  # Python 3.13 already cleans docstrings
    return {"schemas": schemas}


def digest() -> str:
    """Return a hash that changes with every type."""
    return hashlib.blake2b(
        json.dumps(_without_descriptions(build_components()), sort_keys=True).encode(), digest_size=8
    ).hexdigest()


def url_template(route: Route) -> str:
    """Return the path of a route with its variable parts in braces."""
    return f"{route.root}{route.path}".replace("<", "{").replace(">", "}")


def _operation(route: Route, handler: Callable[..., Any]) -> Json:
    query, body, answer = route.parameter_types(handler)
    summary = (getdoc(handler) or "").partition("\n")[0].rstrip(".")
    in_path = [part.strip("<>") for part in route.path.split("/") if part.startswith("<")]
    path_parameters = [
        _parameter(name, {"type": "string"}, "path", f"id or name of a {name}", True) for name in in_path
    ]
    answers: Json = {str(route.status): {"description": summary, "content": _content(route, answer)}}
    if route.method == "GET":
        answers["304"] = {"description": "nothing changed"}
    for status, meaning in (route.errors or {}).items():
        answers[str(status)] = {"description": meaning, "content": _json_content(_reference(ErrorBody))}
    operation: Json = {"summary": summary, "parameters": [*path_parameters, *_query(query)], "responses": answers}
    if route.content:
        operation["requestBody"] = {"required": True, "content": {route.content: {}}}
    elif body is not None:
        operation["requestBody"] = {"required": True, "content": _json_content(_reference(_body_type(body)))}
    return operation


def _content(route: Route, answer: Any) -> Json:
    content: Json = {}
    for media in route.media:
        kinds = _answer_types(answer)
        content[media] = {"schema": _schema(kinds)} if media == "application/json" and route.status != 204 else {}
    return content if route.status != 204 else {}


def _schema(kinds: list[Any]) -> Json:
    return _reference(kinds[0]) if kinds and _is_struct(kinds[0]) else {"type": "object"}


def _query(query: type[Query] | None) -> Iterator[Json]:
    for name, schema, required in query_schemas(query) if query else ():
        description = schema.pop("description", "")
        yield _parameter(name, schema, "query", description, required)


def _view_paths(view: View, paths: Json) -> Json:
    view_parameters = [
        _parameter(parameter.name, parameter_schema(parameter), "query", f"parameter of {view.name}", False)
        for parameter in list_parameters(view)
    ]
    view_paths: Json = {}
    for kind, answer in (("view", view.answer_type), ("charts", ChartsAnswer)):
        general = paths[f"/api/v1/{kind}/{{name}}"]["get"]
        needed = _SUBJECTS[view.subject]
        hidden = {"name", "run", "model", "reports", *(q["name"] for q in view_parameters)} - {needed}
        shared = [{**p, "required": p["name"] == needed} for p in general["parameters"] if p["name"] not in hidden]
        success = {
            **general["responses"]["200"],
            "content": {**general["responses"]["200"]["content"], **_json_content(_reference(answer))},
        }
        view_paths[f"/api/v1/{kind}/{view.name}"] = {
            "get": {
                **general,
                "summary": f"The view {view.name}{': charts' if kind == 'charts' else ''}",
                "parameters": [*shared, *view_parameters],
                "responses": {**general["responses"], "200": success},
            }
        }
    return view_paths


def parameter_schema(parameter: Parameter) -> Json:
    """Return the JSON schema of a view's parameter."""
    value: Json = {"type": _SCHEMA_TYPES[parameter.type]}
    if parameter.choices is not None:
        value["enum"] = parameter.choices
    if parameter.default is not None:
        value["default"] = parameter.default
    return value


def _parameter(name: str, schema: Json, location: str, description: str, required: bool) -> Json:
    return {"name": name, "in": location, "required": required, "schema": schema, "description": description}


def _answer_types(answer: Any) -> list[Any]:
    """Return the types that a method may return, without plain responses."""
    kinds = get_args(answer) if get_origin(answer) in (Union, UnionType) else (answer,)
    return [kind for kind in kinds if kind not in (Response, NoneType, None)]


def _body_type(body: Any) -> Any:
    """Return the type of a body. The type of a `bytes` body is in its annotation."""
    return get_args(body)[1] if get_origin(body) is Annotated else body


def _is_struct(kind: Any) -> bool:
    kind = get_origin(kind) or kind
    return hasattr(kind, "__struct_fields__") or hasattr(kind, "__dataclass_fields__")


@cache
def _reference(kind: Any) -> Json:
    return dict(_components((kind,))[0][0])


def _components(kinds: Iterable[Any]) -> tuple[tuple[Json, ...], Json]:
    """Return references to the types, and the schemas of all their parts by name.

    All Python versions give the same names.
    """
    components = msgspec.json.schema_components(
        kinds, schema_hook=schema_of_column, ref_template="#/components/schemas/{name}"
    )
    references, schemas = json.loads(re.sub(r"Table_dict_[\w.]*", "Table_of_any_columns", json.dumps(components)))
    return tuple(references), schemas


def _json_content(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _without_descriptions(schema: Any, keys_are_names: bool = False) -> Any:
    """Return a schema without titles, descriptions and defaults.

    Args:
        schema: The schema.
        keys_are_names: Whether the keys of the schema are names of fields, which are never removed.
    """
    if isinstance(schema, dict):
        items = cast("Json", schema).items()
        words = () if keys_are_names else ("title", "description", "default")
        return {key: _without_descriptions(value, key == "properties") for key, value in items if key not in words}
    return [_without_descriptions(value) for value in cast("list[Any]", schema)] if isinstance(schema, list) else schema


if __name__ == "__main__":
    types = {"openapi": "3.1.0", "info": {"title": "visualprof", "version": "0"}, "paths": {}}
    print(json.dumps(types | {"components": _without_descriptions(build_components())}))  # noqa: T201
    print(digest(), file=sys.stderr)  # noqa: T201
