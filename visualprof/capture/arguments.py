"""Describe the arguments of a call: their names, nested values, plain values as text."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from visualprof.capture.framework import Framework

MAX_TEXT = 200  # characters of an attribute
ITEM_TYPES = (bool, int, float, str, type(None))


def named(forward: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    """Return arguments by the names that `forward` gives them."""
    try:
        bound = inspect.signature(forward).bind(*arguments, **keywords)
    except (TypeError, ValueError):  # the call itself raises the error
        return {**{f"input.{i}": a for i, a in enumerate(arguments)}, **keywords}
    out: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            out |= value
        else:
            out[name] = value
    return out


def children(item: Any) -> Iterator[tuple[str, Any]]:
    """Yield the items of a mapping, a sequence or a dataclass with their keys."""
    if isinstance(item, Mapping):
        yield from ((str(k), v) for k, v in item.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    elif isinstance(item, (tuple, list)):
        names = getattr(item, "_fields", None) or range(len(item))  # pyright: ignore[reportUnknownArgumentType]
        yield from ((str(n), v) for n, v in zip(names, item, strict=False))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    elif dataclasses.is_dataclass(item) and not isinstance(item, type):
        yield from ((f.name, getattr(item, f.name, None)) for f in dataclasses.fields(item))


def settings(arguments: Any, keywords: Mapping[str, Any], framework: Framework) -> dict[str, str]:
    """Return the arguments of an operator that are not tensors."""
    plain = [a for a in arguments if not framework.is_tensor(a) and is_plain(a)]
    out = {"arguments": text(", ".join(repr(a) for a in plain))} if plain else {}
    return out | {k: text(v) for k, v in keywords.items() if is_plain(v) and v is not None}


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a text or a short sequence of them."""
    if isinstance(value, (tuple, list)):
        return len(value) <= MAX_TEXT and all(isinstance(v, (*ITEM_TYPES, slice)) for v in value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return isinstance(value, (*ITEM_TYPES, slice))


def text(value: Any) -> str:
    """Return a value as text, shortened if it is too long."""
    whole = str(value)
    return whole if len(whole) <= MAX_TEXT else f"{whole[: MAX_TEXT - 1]}…"
