"""Pieces of the OpenAPI document: operations, parameters, references to types."""

from __future__ import annotations

from typing import Any

from visualprof.server.api import schema

Json = dict[str, Any]

ERRORS = {
    400: "a parameter has a wrong name or value",
    404: "there is no such run, worker, span or view",
    409: "the view needs data that this file does not have",
    422: "the file cannot be read",
    503: "the file is being parsed; `Retry-After` says when to ask again",
}


def get(summary: str, kind: type[Any], given: list[Json] | None = None) -> Json:
    """A question whose answer is of that type."""
    return operation(summary, ref(kind), given, ERRORS if given else None)


def operation(
    summary: str,
    body: Json,
    given: list[Json] | None = None,
    errors: dict[int, str] | None = None,
    csv: bool = False,
) -> Json:
    """A question; csv: it is also answered as text/csv."""
    content: Json = {"application/json": {"schema": body}}
    if csv:
        content["text/csv"] = {"schema": {"type": "string"}}
        errors = errors or ERRORS
    answers: Json = {"200": {"description": summary, "content": content}, "304": {"description": "nothing changed"}}
    for status, meaning in (errors or {}).items():
        answers[str(status)] = error(meaning)
    return {"summary": summary, "parameters": given or [], "responses": answers}


def error(meaning: str) -> Json:
    """A refusal."""
    return {"description": meaning, "content": {"application/json": {"schema": ref(schema.ErrorBody)}}}


def ref(kind: type[Any]) -> Json:
    """A type of the components by its name."""
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def parameter(name: str, value: Json, place: str, meaning: str, required: bool | None = None) -> Json:
    """A parameter; one in the path is always needed."""
    needed = place == "path" if required is None else required
    return {"name": name, "in": place, "required": needed, "schema": value, "description": meaning}
