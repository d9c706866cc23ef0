"""How a resource of the API declares its routes: once, as methods; parsing, answers and OpenAPI come from that.

    class Runs(Resource):
        @get("/status")
        def status(self) -> Status: ...

        @get("/timeline/event", refuses=SPAN)
        def event(self, query: EventQuery) -> Event: ...

A parameter named `query` is the question's parameters, one named `body` its JSON, others are parts of the path. What a
method returns is encoded; a Response (bytes, CSV) goes out as it is. The first line of its docstring describes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, TypeVar, cast, get_origin, get_type_hints

import msgspec
from flask import Blueprint, Response, request
from msgspec import NODEFAULT, Meta

from visualprof.errors import BadParameter, WrongType
from visualprof.messages import msg
from visualprof.remote.queue.errors import PayloadTooLarge
from visualprof.server.answers import answer
from visualprof.server.identity import Needs

ROOT = "/api/v1"
JSON = "application/json"
MAX_BODY = 1 << 20

# Refusals that several resources share: status and meaning.
SPAN: Mapping[int, str] = {
    400: "a parameter has a wrong name or value",
    404: "there is no such run, worker, span or view",
    409: "the view needs data that this file does not have",
    422: "the file cannot be read",
    503: "the file is being parsed; `Retry-After` says when to ask again",
}
READ_ONLY: Mapping[int, str] = {403: msg("server.server_read_only", "the server is read-only")}

T = TypeVar("T")
QueryT = TypeVar("QueryT", bound="Query")
Handler = TypeVar("Handler", bound=Callable[..., Any])


class Query(msgspec.Struct, kw_only=True):
    """Parameters of a request, by name. Without a default it must be there; `others` takes the other names."""

    hint: ClassVar[str] = msg("server.ids_listed_api_v1_runs", "ids are listed by /api/v1/runs")


class SpanQuery(Query):
    """The span that is asked for."""

    run: Annotated[str, Meta(description="id of a run")]
    worker: Annotated[str, Meta(description="id of a worker; the first one when absent")] = ""
    span: Annotated[str, Meta(description="id of a span; the first one when absent")] = ""


@dataclass(frozen=True)
class Route:
    """What a method is declared to answer.

    path: below root, with its parts as `<name>`. status: of success. media: of the answer, JSON by default. content:
    type of an uploaded body that is no JSON. refuses: statuses of refusals with their meaning. needs: who may ask.
    """

    method: str
    path: str
    root: str = ROOT
    status: int = 200
    media: tuple[str, ...] = (JSON,)
    content: str = ""
    refuses: Mapping[int, str] | None = None
    needs: Needs = "viewer"

    def declared(self, handler: Callable[..., Any]) -> tuple[type[Query] | None, Any, Any]:
        """The types of the query, of the body and of the answer."""
        hints = get_type_hints(handler, include_extras=True)
        return hints.get("query"), hints.get("body"), hints["return"]


def get(
    path: str, *, root: str = ROOT, media: tuple[str, ...] = (JSON,), refuses: Mapping[int, str] | None = None,
    needs: Needs = "viewer",
) -> Callable[[Handler], Handler]:  # fmt: skip
    """Declares a question."""
    return _declare(Route("GET", path, root, media=media, refuses=refuses, needs=needs))


def change(
    method: str, path: str, *, status: int = 200, content: str = "", refuses: Mapping[int, str] | None = None,
    needs: Needs = "member",
) -> Callable[[Handler], Handler]:  # fmt: skip
    """Declares what changes something, or a question that is too long for an address."""
    return _declare(Route(method, path, status=status, content=content, refuses=refuses, needs=needs))


def _declare(route: Route) -> Callable[[Handler], Handler]:
    def mark(handler: Handler) -> Handler:
        cast("Any", handler).route = route
        return handler

    return mark


class Resource:
    """Routes over some state."""

    @classmethod
    def routes(cls) -> Iterator[tuple[Route, Callable[..., Any]]]:
        """Every declared route with its method."""
        for handler in vars(cls).values():
            if hasattr(handler, "route"):
                yield handler.route, handler

    def blueprint(self) -> Blueprint:
        """The routes for an application."""
        made = Blueprint(type(self).__name__.lower(), __name__)
        for route, handler in self.routes():
            made.add_url_rule(
                f"{route.root}{route.path}",
                handler.__name__,
                _responder(route, getattr(self, handler.__name__)),
                methods=[route.method],
            )
        return made


def _responder(route: Route, method: Callable[..., Any]) -> Callable[..., Response]:
    query, body, _ = route.declared(method)
    # Bytes, annotated with their type, are decoded by the method itself. Made once: see `reader.trace.codec`.
    decoder = None if body is None or get_origin(body) is Annotated else msgspec.json.Decoder(body)

    def respond(**path: Any) -> Response:
        if query is not None:
            path["query"] = parse(request.args.to_dict(), query)
        if body is not None:
            _expect_json()
            path["body"] = decoded(decoder) if decoder else read(MAX_BODY)
        made = method(**path)
        if route.status == 204:
            return Response(status=204)
        return made if isinstance(made, Response) else answer(made, route.status)

    respond.needs = route.needs  # pyright: ignore[reportFunctionMemberAccess]
    return respond


def _expect_json() -> None:
    """Raises: WrongType: the body does not say that it is JSON; any page may send a form or plain text."""
    if request.mimetype != JSON:
        content_type = request.mimetype[:100] or msg("server.no_type", "of no type")
        raise WrongType(
            msg("server.body", f"the body is {content_type}"),
            msg("server.send_content_type", f"send Content-Type: {JSON}"),
        )


def read(limit: int) -> bytes:
    """The body of the request.

    Raises: PayloadTooLarge.
    """
    if (request.content_length or 0) > limit:
        raise PayloadTooLarge(msg("server.body_over_kib", f"the body is over {limit >> 10:,} KiB"))
    data = request.stream.read(limit + 1)  # a length may be missing
    if len(data) > limit:
        raise PayloadTooLarge(msg("server.body_over_kib", f"the body is over {limit >> 10:,} KiB"))
    return data


def decoded(decoder: msgspec.json.Decoder[T]) -> T:
    """The body's JSON as a value of the decoder's type.

    Raises: BadParameter, PayloadTooLarge.
    """
    try:
        return decoder.decode(read(MAX_BODY))
    except (ValueError, RecursionError) as error:
        raise BadParameter(
            msg("server.body_not_what_expected", f"the body is not what is expected here: {error}"),
            msg("server.docs_remote_md_describes_2", "docs/remote.md describes it"),
        ) from error


_fields = lru_cache(msgspec.structs.fields)


def parse(texts: Mapping[str, str], kind: type[QueryT]) -> QueryT:
    """The parameters of a request as a struct; empty ones count as absent, unknown ones are left out.

    Raises: BadParameter: one is missing, or of a wrong value.
    """
    values: dict[str, Any] = {}
    known = _fields(kind)
    for field in known:
        text = texts.get(field.name, "")
        if field.name == "others":
            names = {parameter.name for parameter in known}
            values["others"] = {name: value for name, value in texts.items() if name not in names}
        elif text:
            values[field.name] = _value(field.name, text, field.type)
        elif field.default is NODEFAULT and field.default_factory is NODEFAULT:
            raise BadParameter(msg("server.parameter_missing", f"the parameter {field.name!r} is missing"), kind.hint)
    return kind(**values)


def schemas(kind: type[Query]) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """The parameters of a request but `others`: name, JSON schema with default and description, and is it required?"""
    for field in _fields(kind):
        if field.name != "others":
            yield field.name, _schema(field), field.required


def _schema(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    schema = msgspec.json.schema(field.type)
    while "anyOf" in schema:
        schema = schema["anyOf"][0]
    if field.default not in (NODEFAULT, None, ""):
        schema["default"] = field.default
    return schema


def _value(name: str, text: str, kind: Any) -> Any:
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        schema = msgspec.json.schema(kind)
        raise BadParameter(msg("server.not", f"{name}={text[:40]!r} is not {_expected(schema)}")) from error


def _expected(schema: dict[str, Any]) -> str:
    """What a schema takes, in words."""
    if "anyOf" in schema:
        members: list[dict[str, Any]] = schema["anyOf"]
        return " or ".join(_expected(member) for member in members if member.get("type") != "null")
    if "enum" in schema:
        choices: list[str] = schema["enum"]
        return msg("server.one", f"one of {', '.join(filter(None, choices))}")
    if schema.get("type") == "integer":
        bounds = [str(schema[key]) for key in ("minimum", "maximum") if key in schema]
        return msg("server.whole_number", f"a whole number{' from ' if bounds else ''}{' to '.join(bounds)}")
    return {"number": "a number", "boolean": msg("server.true_false", "true or false")}.get(
        schema.get("type", ""), "a text"
    )
