"""Look up what numbers mean: units from column kinds, definitions from the web UI's texts and from docstrings."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct

from visualprof.views.answers.kinds import Kind
from visualprof.views.answers.table import Table

_TEXTS = Path(__file__).parents[1] / "frontend" / "src" / "locales" / "en"
_UNITS: dict[Kind, str] = {
    "id": "id",
    "flag": "true or false",
    "count": "number",
    "ratio": "share, 0 to 1",
    "ns": "ns",
    "bytes": "bytes",
    "rate": "bytes/s",
    "flo": "operations",
    "flop_rate": "operations/s",
    "joule": "J",
    "moment": "ns since 1970 UTC",
}
_BY_ENDING = {"_ns": "ns", "_bytes": "bytes", "_ratio": _UNITS["ratio"], "_per_s": "per second"}
_SCOPES = {
    "average_step": "steps",
    "average_step_by_device": "steps",
    "by_device": "rank_steps",
    "distributed": "rank_steps",
}  # sections of tables and views with texts under another name
_FIELD_NAMES = re.compile(r"(?:^|(?<=[.;] ))(\w+(?:, \w+)*): ")
_FACT = re.compile(r"[{%](\w+)[}%]")
_OPTIONAL = re.compile(r"\[([^\]]*)\]")  # included only if its facts are known

Definitions = dict[tuple[str, str], str]  # by table ("" is the answer itself) and column


@cache
def texts() -> dict[str, Any]:
    """Return the English texts of the web UI by section."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(_TEXTS.glob("*.json"))]
    return {section: words for file in files for section, words in file.items()}


def explain(scope: str, word: str, facts: Mapping[str, Any]) -> str:
    """Return the web UI's text for an identifier: of a finding, a verdict, a lever, a note, or a missing forecast.

    Return "" for other identifiers.

    Args:
        scope: As for `define`.
        word: The identifier.
        facts: Values next to the identifier, which are filled into the text.
    """
    page = texts()
    facts = {"the_step": page["overview"]["the_step"], **facts}
    titled = page["lever"].get(word) if scope == "plan" else page["finding"].get(word) or page["verdict"].get(word)
    notes = page["compare" if scope == "diff" else "idle"]["note"]
    if isinstance(titled, str):
        text = titled
    elif isinstance(titled, dict):
        text = f"{titled['title']}. {titled.get(facts.get('variant') or 'text') or titled['text']}"
    else:
        text = notes.get(word) or page["idle"]["obstacle"].get(word) or page["distributed"].get(f"note_{word}") or ""
    known_facts = {name for name in _FACT.findall(text) if _fact(name, facts) is not None}
    text = _OPTIONAL.sub(lambda part: part[1] if known_facts.issuperset(_FACT.findall(part[1])) else "", text)
    return _FACT.sub(lambda fact: _quantity(fact[1], _fact(fact[1], facts)), text).strip()


def _fact(name: str, facts: Mapping[str, Any]) -> Any:
    return facts.get(name, facts.get(f"{name}_ratio"))


def _quantity(name: str, value: Any) -> str:
    """Return a number as in a sentence."""
    if not isinstance(value, int | float):
        return "unknown" if value is None else str(value)
    if name.endswith("_ns"):
        return f"{value / 1e6:.4g} ms"
    if name.endswith("_bytes"):
        return f"{value / 2**20:.4g} MiB"
    return f"{value:.1%}" if name in ("error", "unexplained") or name.endswith("ratio") else f"{value:.4g}"


def unit(name: str, kind: Kind | None) -> str:
    """Return the unit of a column or value; "" for texts."""
    return _UNITS.get(kind, "") if kind else next((u for end, u in _BY_ENDING.items() if name.endswith(end)), "")


def define(scope: str, table: str, name: str, kind: Kind | None, declared: Definitions) -> str:
    """Return the web UI's definition of a column, or the declaration's definition; "" if neither exists.

    Args:
        scope: Name of the view or other subject.
        table: Name of the table.
        name: Name of the column or value.
        kind: Kind of the column; `None` if it is not a column of numbers or names.
        declared: Definitions of the declaration, from `field_definitions`.
    """
    metrics, inner = texts()["metric"], table.rpartition(".")[2]
    scopes = (f"{scope}_{inner}", inner, _SCOPES.get(inner or scope, ""), scope)
    for place in scopes:
        if isinstance(text := metrics.get(f"in_{place}", {}).get(name), str):
            return text
    text = declared.get((table, name)) or (metrics.get(name) if kind else None)
    return text if isinstance(text, str) else ""


@cache
def field_definitions(kind: Any) -> Definitions:
    """Return the definitions of an answer's fields from the docstrings of its structs, by table and field."""
    return dict(_nested_definitions(kind, "", ()))


def _nested_definitions(hint: Any, path: str, parents: tuple[Any, ...]) -> Iterator[tuple[tuple[str, str], str]]:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    kind = get_origin(hint) or hint
    if not (isinstance(kind, type) and issubclass(kind, Struct)):
        for inner in get_args(hint):
            yield from _nested_definitions(inner, path, parents)
        return
    if kind in parents:
        return
    documented = dict(_documented_fields(kind))
    for name, inner in get_type_hints(kind, include_extras=True).items():
        if name in documented:
            yield (path, name), documented[name]
        below = path if isinstance(inner, TypeVar) else f"{path}.{name}".lstrip(".")
        yield from _nested_definitions(
            _columns_type(hint) if isinstance(inner, TypeVar) else inner, below, (*parents, kind)
        )


def _columns_type(table: Any) -> Any:
    """Return the type of a table's columns."""
    if args := get_args(table):
        return args[0]
    return next(
        args[0]
        for kind in table.__mro__
        for base in kind.__dict__.get("__orig_bases__", ())
        if get_origin(base) is Table and (args := get_args(base))
    )


def _documented_fields(kind: type[Struct]) -> Iterator[tuple[str, str]]:
    """Yield the documented fields of a docstring with their texts, such as `calls: Number of calls`."""
    text = " ".join((inspect.getdoc(kind) or "").replace("Attributes:", "").split())
    fields = set(kind.__struct_fields__)
    starts = [match for match in _FIELD_NAMES.finditer(text) if fields.issuperset(match[1].split(", "))]
    for match, following in zip_longest(starts, starts[1:]):
        for name in match[1].split(", "):
            yield name, text[match.end() : following.start() if following else None].strip()
