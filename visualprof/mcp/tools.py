"""Define tools over routes of the API. Declarations of routes define the arguments of tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from visualprof.errors import BadParameter
from visualprof.mcp.answers import DEFAULT_ROWS, MAX_ROWS
from visualprof.server.api.table_rows import ROW_FILTERS
from visualprof.server.routes import Query, Route, query_schemas
from visualprof.views import view

Json = dict[str, Any]
_MAX_ARGUMENT_CHARS = 4000  # per argument
_MAX_API_ROWS = 10_000  # maximum of the API; answers are counted and cut here
_LIMIT: Json = {
    "type": "integer",
    "minimum": 1,
    "maximum": MAX_ROWS,
    "default": DEFAULT_ROWS,
    "description": "maximum number of rows per table",
}


class ApiRequest(NamedTuple):
    """A request to the API.

    Attributes:
        path: Path below the API's root.
        query: Query parameters.
        kind: Type of the answer.
        scope: As in `Tool`.
        page: As in `Tool`.
        limit: Maximum number of rows per table.
    """

    path: str
    query: dict[str, str]
    kind: Any
    scope: str
    page: str
    limit: int


@dataclass(frozen=True)
class Tool:
    """A tool over a route.

    Attributes:
        name: Name of the tool.
        title: Title of the tool.
        description: Description, from which language models choose a tool.
        handler: Method of a resource that handles the route.
        hidden: Parameters of the route that are useless for a language model.
        further: Arguments that the route does not have, as JSON schemas.
        required: Required arguments in addition to those that the route requires.
        scope: Section of the web UI's texts.
        page: Page that shows the same, "" for none.
        listing: Converts the answer for display, using the arguments in `further`.
    """

    name: str
    title: str
    description: str
    handler: Callable[..., Any]
    hidden: Sequence[str] = ("format",)
    further: Mapping[str, Json] = field(default_factory=dict[str, Json])
    required: Sequence[str] = ()
    scope: str = ""
    page: str = ""
    listing: Callable[[Json, Mapping[str, str]], Json] | None = None

    @property
    def route(self) -> Route:
        """Return the route of the tool."""
        return cast("Any", self.handler).route

    def schema(self) -> Json:
        """Return the JSON schema of the arguments."""
        query = self.route.parameter_types(self.handler)[0]
        parameters = {name: (schema, needed) for name, schema, needed in (query_schemas(query) if query else ())}
        shown = {name: schema for name, (schema, _) in parameters.items() if name not in self.hidden}
        return {
            "type": "object",
            "properties": {**self.further, **shown, "limit": _LIMIT},
            "required": [*self.required, *(name for name in shown if parameters[name][1])],
            "additionalProperties": False,
        }

    def question(self, arguments: Mapping[str, Any]) -> tuple[ApiRequest, dict[str, str]]:
        """Return the API request, and the arguments for the listing.

        Raises:
            BadParameter: An argument is unknown or missing, or has a wrong type.
        """
        schema = self.schema()
        properties = schema["properties"]
        for name in arguments:
            if name not in properties:
                raise BadParameter(
                    f"{self.name} takes no argument {name[:100]!r}", f"arguments: {', '.join(properties)}"
                )
        present = {name: value for name, value in arguments.items() if value is not None}
        if lacking := [name for name in schema["required"] if present.get(name, "") == ""]:
            raise BadParameter(f"{self.name} needs the argument {lacking[0]!r}", _argument_hint(lacking[0]))
        limit = _limit(present.pop("limit", DEFAULT_ROWS))
        return self._question(present, limit)

    def _question(self, arguments: Mapping[str, Any], limit: int) -> tuple[ApiRequest, dict[str, str]]:
        texts = {name: argument_text(name, value) for name, value in arguments.items()}
        further = {name: texts.pop(name) for name in list(texts) if name in self.further}
        query, _, kind = self.route.parameter_types(self.handler)
        texts |= _row_limit(query)
        answered = None if self.listing else _answer_type(kind)
        return ApiRequest(self.route.path, texts, answered, self.scope, self.page, limit), further


@dataclass(frozen=True)
class ViewTool(Tool):
    """A tool over views; `view` is the name of the view, or "" if an argument names it."""

    view: str = ""

    def _question(self, arguments: Mapping[str, Any], limit: int) -> tuple[ApiRequest, dict[str, str]]:
        rest = dict(arguments)
        name = self.view or argument_text("view", rest.pop("view"))
        changes = rest.pop("changes", [])
        parameters, filters = (_object(part, rest.pop(part, {})) for part in ("parameters", "filters"))
        if changes:
            parameters["change"] = _join_changes(changes)
            name = "ranks" if "rank[" in parameters["change"] else name
        chosen = view(name)
        chosen.parse(parameters)
        for filtered in filters:
            if not filtered.startswith(ROW_FILTERS):
                hint = "is.COLUMN, none.COLUMN, search.COLUMN; min.COLUMN, max.COLUMN in the column's unit"
                raise BadParameter(f"unknown filter {filtered[:100]!r}", hint)
        texts = {key: argument_text(key, value) for key, value in rest.items()}
        query = {**texts, **filters, **parameters, "limit": str(_MAX_API_ROWS)}
        return ApiRequest(f"/view/{name}", query, chosen.answer_type, name, name, limit), {}


def argument_text(name: str, value: Any) -> str:
    """Return an argument as in a URL.

    Raises:
        BadParameter: The argument is not a single value, or is too long.
    """
    try:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, str | int | float) and len(text := str(value)) <= _MAX_ARGUMENT_CHARS:
            return text
    except ValueError:  # a number with more digits than Python converts
        pass
    problem = f"a {type(value).__name__}" if not isinstance(value, str | int | float) else "too long"
    raise BadParameter(
        f"the argument {name[:100]!r} is {problem}", f"a text or number of at most {_MAX_ARGUMENT_CHARS:,} characters"
    )


def _object(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadParameter(f"the argument {name!r} is not an object", 'for example {"group": "shape"}')
    members = cast("dict[str, Any]", value)
    return {key: argument_text(f"{name}.{key}", member) for key, member in members.items() if member is not None}


def _join_changes(changes: Any) -> str:
    listed = cast("list[Any]", changes) if isinstance(changes, list) else [changes]
    return argument_text("changes", "; ".join(argument_text("changes", change) for change in listed))


def _limit(value: Any) -> int:
    text = argument_text("limit", value)
    if not text.isdecimal() or not 1 <= int(text[:20]) <= MAX_ROWS:
        raise BadParameter(f"limit={text[:40]!r} is not a whole number from 1 to {MAX_ROWS}")
    return int(text)


def _row_limit(query: type[Query] | None) -> dict[str, str]:
    """Return a limit that requests all rows of a route, if the route has a limit."""
    names = [name for name, *_ in query_schemas(query)] if query else []
    return {"limit": str(_MAX_API_ROWS)} if "limit" in names else {}


def _answer_type(kind: Any) -> Any:
    """Return the struct type of an answer; other members of a union are plain responses."""
    return next((part for part in getattr(kind, "__args__", (kind,)) if hasattr(part, "__struct_fields__")), kind)


def _argument_hint(name: str) -> str:
    listed = {"model": "list_models", "reports": "list_evaluations", "view": "list_views", "changes": "findings"}
    return f"{listed.get(name, 'list_runs')} lists possible values" if name not in ("text", "event") else ""
