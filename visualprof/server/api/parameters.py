"""The parameters of a view, read off its dataclass."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from visualprof.server.api.schema import Parameter
from visualprof.views import View

_TYPES: dict[Any, Literal["text", "integer", "number", "boolean"]] = {int: "integer", float: "number", bool: "boolean"}


def parameters(view: View) -> list[Parameter]:
    """In the order of the dataclass's fields."""
    hints = get_type_hints(view.params)
    out: list[Parameter] = []
    for each in fields(view.params):
        hint = hints[each.name]
        default = None if each.default is MISSING else each.default
        if get_origin(hint) is Literal:
            out.append(Parameter(each.name, "choice", default, [str(choice) for choice in get_args(hint)]))
        else:
            out.append(Parameter(each.name, _TYPES.get(hint, "text"), default, None))
    return out
