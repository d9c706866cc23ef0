"""Decoding of dataclasses from JSON objects."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints


def build(kind: Any, value: Any) -> Any:
    """Build a dataclass of the protocol from JSON objects. Unknown names are ignored, so that either side may be newer.

    Raises:
        TypeError: A field has the wrong form.
        KeyError: A field is missing.
    """
    if is_dataclass(kind):
        hints = _hints(kind)
        values = {f.name: build(hints[f.name], value[f.name]) for f in fields(kind) if f.name in value}
        for f in fields(kind):
            if f.name not in values and f.default is MISSING and f.default_factory is MISSING:
                raise KeyError(f.name)
        return kind(**values)  # type: ignore[operator]
    if get_origin(kind) is list:
        return [build(get_args(kind)[0], item) for item in value]
    return value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
