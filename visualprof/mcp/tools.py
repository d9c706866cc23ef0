"""What may be asked: tools over routes of the API, from whose declarations their arguments come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from visualprof.errors import BadParameter
from visualprof.mcp.answers import DEFAULT_ROWS, MAX_ROWS
from visualprof.server.api.views import ROW_FILTERS
from visualprof.server.routes import Query, Route, query_schemas
from visualprof.views import view

Json = dict[str, Any]
_MAX_ARGUMENT_CHARS = 4000  # of a text of an argument
_MAX_API_ROWS = 10_000  # rows of a table, the most that the API answers: they are counted and cut here
_LIMIT: Json = {
    "type": "integer", "minimum": 1, "maximum": MAX_ROWS, "default": DEFAULT_ROWS, "description": "rows of a table",
}  # fmt: skip


class ApiRequest(NamedTuple):
    """What the API is asked. path: below its root. kind: type of the answer. scope, page: as in `Tool`. limit: rows."""

    path: str
    query: dict[str, str]
    kind: Any
    scope: str
    page: str
    limit: int


@dataclass(frozen=True)
class Tool:
    """A tool over a route.

    Args:
        handler: of the route, a method of a resource.
        hidden: parameters of the route that an assistant has no use for.
        further: arguments that are none of the route, as JSON schemas.
        required: arguments that must be there besides those that the route requires.
        scope: of the page's texts.
        page: that shows the same, "" for none.
        listing: makes of the answer, and of the arguments that `further` names, what is shown.
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
        """The route that it asks."""
        return cast("Any", self.handler).route

    def schema(self) -> Json:
        """Its arguments as JSON schema."""
        query = self.route.parameter_types(self.handler)[0]
        own = {name: (schema, needed) for name, schema, needed in (query_schemas(query) if query else ())}
        shown = {name: schema for name, (schema, _) in own.items() if name not in self.hidden}
        return {
            "type": "object",
            "properties": {**self.further, **shown, "limit": _LIMIT},
            "required": [*self.required, *(name for name in shown if own[name][1])],
            "additionalProperties": False,
        }

    def question(self, arguments: Mapping[str, Any]) -> tuple[ApiRequest, dict[str, str]]:
        """What the API is asked, and the arguments that are for the listing.

        Raises: BadParameter: an unknown argument, a missing one, or one of the wrong type.
        """
        schema = self.schema()
        known = schema["properties"]
        for name in arguments:
            if name not in known:
                raise BadParameter(f"{self.name} takes no argument {name[:100]!r}", f"arguments: {', '.join(known)}")
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
    """A tool over views. view: the one that it shows; "" has an argument name it."""

    view: str = ""

    def _question(self, arguments: Mapping[str, Any], limit: int) -> tuple[ApiRequest, dict[str, str]]:
        rest = dict(arguments)
        name = self.view or argument_text("view", rest.pop("view"))
        changes = rest.pop("changes", [])
        own, filters = (_object(part, rest.pop(part, {})) for part in ("parameters", "filters"))
        if changes:
            own["change"] = _join_changes(changes)
            name = "ranks" if "rank[" in own["change"] else name
        chosen = view(name)
        chosen.parse(own)
        for filtered in filters:
            if not filtered.startswith(ROW_FILTERS):
                hint = "is.COLUMN, search.COLUMN, min.COLUMN, max.COLUMN; min. and max. in the column's unit"
                raise BadParameter(f"the filter {filtered[:100]!r} is none", hint)
        texts = {key: argument_text(key, value) for key, value in rest.items()}
        query = {**texts, **filters, **own, "limit": str(_MAX_API_ROWS)}
        return ApiRequest(f"/view/{name}", query, chosen.answer_type, name, name, limit), {}


def argument_text(name: str, value: Any) -> str:
    """An argument as it stands in an address.

    Raises: BadParameter: it is no single value, or a very long one.
    """
    try:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, str | int | float) and len(text := str(value)) <= _MAX_ARGUMENT_CHARS:
            return text
    except ValueError:  # a number of more digits than Python writes
        pass
    what = f"a {type(value).__name__}" if not isinstance(value, str | int | float) else "too long"
    raise BadParameter(
        f"the argument {name[:100]!r} is {what}", f"a text or number of at most {_MAX_ARGUMENT_CHARS:,} characters"
    )


def _object(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadParameter(f"the argument {name!r} is no object", 'for example {"group": "shape"}')
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
    """All rows of a route that would answer fewer."""
    names = [name for name, *_ in query_schemas(query)] if query else []
    return {"limit": str(_MAX_API_ROWS)} if "limit" in names else {}


def _answer_type(kind: Any) -> Any:
    """The type of an answer beside that of a plain response."""
    return next((part for part in getattr(kind, "__args__", (kind,)) if hasattr(part, "__struct_fields__")), kind)


def _argument_hint(name: str) -> str:
    listed = {"model": "list_models", "reports": "list_evaluations", "view": "list_views", "changes": "findings"}
    return f"{listed.get(name, 'list_runs')} names some" if name not in ("text", "event") else ""
