"""Declare the API's routes as methods. Request parsing, responses and the OpenAPI document follow from them.

    class Runs(Resource):
        @get("/status")
        def status(self) -> Status: ...

        @get("/timeline/event", errors=SPAN_ERRORS)
        def event(self, query: EventQuery) -> Event: ...

A method parameter named `query` receives the query string, `body` the JSON body, and the others receive parts of the
path. The returned value is encoded as JSON; a Flask Response (bytes, CSV) is sent unchanged. The first line of the
method's docstring becomes the summary in the OpenAPI document. `visualprof.server.api.all_resources` finds the classes:
the application, the OpenAPI document, the reference of the HTTP API and the tests of permissions use this list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, cast, get_origin, get_type_hints

import msgspec
from flask import Blueprint, Response, request
from msgspec import NODEFAULT, Meta

from visualprof.errors import BadParameter, WrongType
from visualprof.messages import msg
from visualprof.remote.queue.errors import PayloadTooLarge
from visualprof.server.identity import RequiredRole
from visualprof.server.responses import json_response

if TYPE_CHECKING:
    from visualprof.accounts.service import Accounts
    from visualprof.server.services import Services

ROOT = "/api/v1"
JSON = "application/json"
MAX_BODY_BYTES = 1 << 20

# Error responses that several resources share: status and meaning.
SPAN_ERRORS: Mapping[int, str] = {
    400: "a parameter has a wrong name or value",
    404: "there is no such run, worker, span or view",
    409: "the view needs data that this file does not have",
    422: "the file cannot be read",
    503: "the file is being parsed; `Retry-After` says when to ask again",
}
READ_ONLY_ERROR: Mapping[int, str] = {403: msg("server.server_read_only", "the server is read-only")}

T = TypeVar("T")
QueryT = TypeVar("QueryT", bound="Query")
Handler = TypeVar("Handler", bound=Callable[..., Any])


class Query(msgspec.Struct, kw_only=True):
    """The query parameters of a request. A field without a default is required; `others` collects unknown names."""

    hint: ClassVar[str] = msg("server.ids_listed_api_v1_runs", "ids are listed by /api/v1/runs")


# Which ranges are steps, see docs/views/overview.md#step-ranges.
StepRange = Annotated[
    str, Meta(description="pattern of the names of ranges to use as steps, such as train_*; the file's own if absent")
]


class SpanQuery(Query):
    """A span of a worker of a run, and which of its ranges are steps."""

    run: Annotated[str, Meta(description="id of a run")]
    worker: Annotated[str, Meta(description="id of a worker; the first one when absent")] = ""
    span: Annotated[str, Meta(description="id of a span; the first one when absent")] = ""
    step_range: StepRange = ""


@dataclass(frozen=True)
class Route:
    """The declaration of a route.

    Attributes:
        method: HTTP method.
        path: Path below `root`, with variable parts as `<name>`.
        root: Prefix of the path.
        status: HTTP status of a successful response.
        media: Content types of the response.
        content: Content type of an uploaded body that is not JSON, or "".
        errors: HTTP statuses of error responses with their meanings.
        needs: Role that a request needs.
    """

    method: str
    path: str
    root: str = ROOT
    status: int = 200
    media: tuple[str, ...] = (JSON,)
    content: str = ""
    errors: Mapping[int, str] | None = None
    needs: RequiredRole = "viewer"

    def parameter_types(self, handler: Callable[..., Any]) -> tuple[type[Query] | None, Any, Any]:
        """Return the types of a handler's query, body and answer."""
        hints = get_type_hints(handler, include_extras=True)
        return hints.get("query"), hints.get("body"), hints["return"]


def get(
    path: str,
    *,
    root: str = ROOT,
    media: tuple[str, ...] = (JSON,),
    errors: Mapping[int, str] | None = None,
    needs: RequiredRole = "viewer",
) -> Callable[[Handler], Handler]:
    """Declare a GET route."""
    return _declare_route(Route("GET", path, root, media=media, errors=errors, needs=needs))


def mutation(
    method: str,
    path: str,
    *,
    status: int = 200,
    content: str = "",
    errors: Mapping[int, str] | None = None,
    needs: RequiredRole = "member",
) -> Callable[[Handler], Handler]:
    """Declare a route that changes data, or a query that is too long for a URL."""
    return _declare_route(Route(method, path, status=status, content=content, errors=errors, needs=needs))


def _declare_route(route: Route) -> Callable[[Handler], Handler]:
    def mark(handler: Handler) -> Handler:
        cast("Any", handler).route = route
        return handler

    return mark


class Resource:
    """A group of routes with a common subject, in a file of `visualprof.server.api`.

    Attributes:
        documented: Whether the OpenAPI document has the routes.
    """

    documented: ClassVar[bool] = True

    def __init__(self, services: Services) -> None:
        self._services, self._settings, self._logdir = services, services.settings, services.logdir
        self._job_service, self._visible = services.job_service, services.visible

    @property
    def _accounts(self) -> Accounts:
        return self._services.require_accounts()

    @classmethod
    def routes(cls) -> Iterator[tuple[Route, Callable[..., Any]]]:
        """Yield each declared route with its method."""
        for handler in vars(cls).values():
            if hasattr(handler, "route"):
                yield handler.route, handler

    def blueprint(self) -> Blueprint:
        """Return the routes as a Flask blueprint."""
        blueprint = Blueprint(type(self).__name__.lower(), __name__)
        for route, handler in self.routes():
            blueprint.add_url_rule(
                f"{route.root}{route.path}",
                handler.__name__,
                _make_endpoint(route, getattr(self, handler.__name__)),
                methods=[route.method],
            )
        return blueprint


def _make_endpoint(route: Route, method: Callable[..., Any]) -> Callable[..., Response]:
    query, body, _ = route.parameter_types(method)
    # The method itself decodes a body of annotated bytes. One decoder per route: see `reader.trace.codec`.
    decoder = None if body is None or get_origin(body) is Annotated else msgspec.json.Decoder(body)

    def respond(**path: Any) -> Response:
        if query is not None:
            path["query"] = parse_query(request.args.to_dict(), query)
        if body is not None:
            _require_json()
            path["body"] = decode_body(decoder) if decoder else read_body(MAX_BODY_BYTES)
        result = method(**path)
        if route.status == 204:
            return Response(status=204)
        return result if isinstance(result, Response) else json_response(result, route.status)

    respond.needs = route.needs  # pyright: ignore[reportFunctionMemberAccess]
    return respond


def _require_json() -> None:
    """Check the content type of the body.

    Raises:
        WrongType: The body is not declared as JSON. Any website can make a browser send a form or plain text.
    """
    if request.mimetype != JSON:
        content_type = request.mimetype[:100] or msg("server.no_type", "of no type")
        raise WrongType(
            msg("server.body", f"the body is {content_type}"),
            msg("server.send_content_type", f"send Content-Type: {JSON}"),
        )


def read_body(limit: int) -> bytes:
    """Return the body of the request.

    Raises:
        PayloadTooLarge: The body has more than `limit` bytes.
    """
    if (request.content_length or 0) > limit:
        raise PayloadTooLarge(msg("server.body_over_kib", f"the body is over {limit >> 10:,} KiB"))
    data = request.stream.read(limit + 1)  # Content-Length may be missing
    if len(data) > limit:
        raise PayloadTooLarge(msg("server.body_over_kib", f"the body is over {limit >> 10:,} KiB"))
    return data


def decode_body(decoder: msgspec.json.Decoder[T]) -> T:
    """Decode the JSON body of the request.

    Raises:
        BadParameter: The body is not valid JSON of the decoder's type.
        PayloadTooLarge: The body has more than `MAX_BODY_BYTES`.
    """
    try:
        return decoder.decode(read_body(MAX_BODY_BYTES))
    except (ValueError, RecursionError) as error:
        raise BadParameter(
            msg("server.body_not_what_expected", f"the body has an unexpected form: {error}"),
            msg("server.docs_remote_md_describes_2", "docs/agent-protocol.md describes it"),
        ) from error


_fields = lru_cache(msgspec.structs.fields)


def parse_query(texts: Mapping[str, str], kind: type[QueryT]) -> QueryT:
    """Parse query parameters into a struct. Empty parameters count as absent, unknown ones are ignored.

    Raises:
        BadParameter: A parameter is missing or has a wrong value.
    """
    values: dict[str, Any] = {}
    fields = _fields(kind)
    for field in fields:
        text = texts.get(field.name, "")
        if field.name == "others":
            names = {parameter.name for parameter in fields}
            values["others"] = {name: value for name, value in texts.items() if name not in names}
        elif text:
            values[field.name] = _convert_value(field.name, text, field.type)
        elif field.default is NODEFAULT and field.default_factory is NODEFAULT:
            raise BadParameter(msg("server.parameter_missing", f"the parameter {field.name!r} is missing"), kind.hint)
    return kind(**values)


def query_schemas(kind: type[Query]) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield name, JSON schema and whether it is required of each query parameter except `others`."""
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


def _convert_value(name: str, text: str, kind: Any) -> Any:
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        schema = msgspec.json.schema(kind)
        raise BadParameter(msg("server.not", f"{name}={text[:40]!r} is not {_describe_schema(schema)}")) from error


def _describe_schema(schema: dict[str, Any]) -> str:
    """Return a description of the values that a schema accepts."""
    if "anyOf" in schema:
        members: list[dict[str, Any]] = schema["anyOf"]
        return " or ".join(_describe_schema(member) for member in members if member.get("type") != "null")
    if "enum" in schema:
        choices: list[str] = schema["enum"]
        return msg("server.one", f"one of {', '.join(filter(None, choices))}")
    if schema.get("type") == "integer":
        bounds = [str(schema[key]) for key in ("minimum", "maximum") if key in schema]
        return msg("server.whole_number", f"a whole number{' from ' if bounds else ''}{' to '.join(bounds)}")
    return {"number": "a number", "boolean": msg("server.true_false", "true or false")}.get(
        schema.get("type", ""), "a text"
    )
