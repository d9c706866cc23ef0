"""The reference of the HTTP API: its routes and types, from the OpenAPI document."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from docs.site.markdown import attributes, cell, paragraphs, table
from visualprof.server.api import all_routes
from visualprof.server.api.openapi import build_document, url_template
from visualprof.server.routes import ROOT

_METHODS = ("get", "post", "put", "patch", "delete")
_HEADER = ("Parameter", "Type", "Meaning")
_ROLES = {
    "anyone": "none",
    "link": "viewer, or a link to the run",
    "viewer": "viewer",
    "member": "member",
    "admin": "admin",
}
MIN_COMMON = 10  # routes with the same error
Json = dict[str, Any]


def routes_page(note: str) -> str:
    """Return the page of all routes, by the first word of their path. Errors of many routes are listed once."""
    paths = {path.removeprefix("/api/v1"): methods for path, methods in build_document()["paths"].items()}
    routes = [(p, m, methods[m]) for p, methods in paths.items() for m in _METHODS if m in methods]
    errors = Counter(error for _, _, route in routes for error in _errors(route))
    common = [error for error, count in errors.items() if count >= MIN_COMMON]
    groups: dict[str, list[str]] = {}
    for path, method, route in routes:
        if not path.startswith("/charts/") or "{" in path:  # the charts of a view have the parameters of the view
            groups.setdefault(path.strip("/").partition("/")[0], []).append(_route(path, method, route, common))
    intro = (
        "Paths are below `/api/v1`. The running server returns the same as an OpenAPI 3.1 document at"
        " `/api/v1/openapi.json`. [The HTTP API](../http-api.md) explains access, errors and tables."
    )
    parts = [f"# Routes of the HTTP API\n\n{note}{intro}\n\nErrors of many routes are only listed here:\n"]
    parts.append(table(("Status", "Meaning"), [(status, cell(text)) for status, text in sorted(common)]))
    for group in sorted(groups):
        parts += [f"## {group}\n", *groups[group]]
    return "\n".join(parts)


def _errors(route: Json) -> list[tuple[str, str]]:
    return [(status, answer["description"]) for status, answer in route["responses"].items() if status >= "300"]


def _route(path: str, method: str, route: Json, common: list[tuple[str, str]]) -> str:
    """Return the entry of a route: its text, role, body, answer, parameters and special errors."""
    roles = {(url_template(r), r.method.lower()): r.needs for r, _ in all_routes()}
    role = roles.get((f"{ROOT}{path}", method))  # `None`: one of the paths of a general route, such as of one view
    rows = [
        (f"`{p['name']}`", _type(p.get("schema", {})), cell(p.get("description", "")))
        for p in route.get("parameters", [])
        if "$ref" not in p
    ]
    answers = [f"{status} {_content(a)}".strip() for status, a in route["responses"].items() if status < "300"]
    body = _content(route.get("requestBody", {}))
    special = [f"{status}: {cell(text)}" for status, text in _errors(route) if (status, text) not in common]
    pieces = (
        f"### {method.upper()} {path}",
        paragraphs(route.get("description") or route.get("summary") or ""),
        f"- Role: {_ROLES[role]}" if role else "",
        f"- Body: {body}" if body else "",
        f"- Answer: {', '.join(answers)}",
        "".join(f"- Error {error}\n" for error in special).rstrip(),
    )
    return "\n".join(filter(None, pieces)).replace("\n- ", "\n\n- ", 1) + "\n\n" + table(_HEADER, rows)


def _content(body: Json) -> str:
    """Return the types of a body, such as a link to the type of a JSON answer."""
    kinds = body.get("content", {})
    return ", ".join(_type(c["schema"]) if kind == "application/json" else f"`{kind}`" for kind, c in kinds.items())


def types_page(note: str) -> str:
    """Return the page of all types of bodies and answers."""
    parts = [f"# Types of the HTTP API\n\n{note}The types of the bodies and answers of the [routes](http-routes.md).\n"]
    for name, schema in sorted(build_document()["components"]["schemas"].items()):
        text, meanings = attributes(schema.get("description", ""))
        rows = [
            (f"`{field}`", _type(kind), meanings.get(field, ""))
            for field, kind in schema.get("properties", {}).items()
            if field != "kinds"
        ]
        parts.append(f"## {name}\n\n{paragraphs(text)}\n\n{table(('Field', 'Type', 'Meaning'), rows)}")
    return "\n".join(parts)


def _type(schema: Json) -> str:
    """Return a JSON schema in one line."""
    if "$ref" in schema:
        name: str = schema["$ref"].rpartition("/")[2]
        return f"[{name}](http-types.md#{re.sub(r'[^a-z0-9_-]', '', name.lower())})"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if schema.get("type") == "array":
        return _list_type(schema.get("items"), schema.get("prefixItems", []))
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    kinds: str | list[str] = schema.get("type", "any")
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


def _list_type(items: Json | bool | None, first: list[Json]) -> str:
    """Return the type of a list with equal items, or with a fixed number of items of the types `first`."""
    if first:
        return f"list of {', '.join(map(_type, first))}"
    return f"list of {_type(items)}" if isinstance(items, dict) else "list"
