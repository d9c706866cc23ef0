"""Reference pages that are generated from the program: commands, HTTP API, metrics, settings and the Python API."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

import msgspec

import visualprof
from docs.site.http_reference import routes_page, types_page
from docs.site.languages import UNTRANSLATED, Language
from docs.site.markdown import cell, paragraphs, table
from visualprof.cli import commands
from visualprof.server.settings import GROUPS
from visualprof.setting_options import add_options, declared_options
from visualprof.views import View, all_views
from visualprof.views.answers.table import Columns

LOCALES = Path(visualprof.__file__).parent / "frontend" / "src" / "locales"
UNITS = {
    "ns": "ns",
    "bytes": "B",
    "rate": "B/s",
    "flo": "FLO",
    "flop_rate": "FLO/s",
    "joule": "J",
    "moment": "ns (Unix)",
    "ratio": "0..1",
}


def generated_pages(language: Language) -> dict[str, str]:
    """Return the generated pages: path on the site -> Markdown."""
    note = f"> {UNTRANSLATED}\n\n" if language == "zh" else ""
    return {
        "reference/cli.md": cli_page(note),
        "reference/http-routes.md": routes_page(note),
        "reference/http-types.md": types_page(note),
        "reference/metrics.md": metrics_page(language),
        "reference/settings.md": settings_page(note),
        "reference/python-api.md": python_page(note),
    }


def cli_page(note: str = "") -> str:
    """Return the page of all commands with their options, from their parsers."""
    parts = [f"# Commands\n\n{note}`visualprof COMMAND --help` prints the same text.\n"]
    for name in commands():
        module = importlib.import_module(f"visualprof.cli.{name.replace('-', '_')}")
        parser = argparse.ArgumentParser(prog="visualprof" if name == "serve" else f"visualprof {name}")
        module.add_arguments(parser)
        parts.append(f"## {parser.prog}\n\n{paragraphs(module.__doc__ or '')}\n")
        parts += _options(parser, level=3)
    return "\n".join(parts)


def _options(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    """Yield the usage and the options of a parser, and those of its subcommands."""
    usage = re.sub(r"^usage: ", "", parser.format_usage())
    yield f"```text\n{usage.strip()}\n```\n"
    actions = [a for a in parser._actions if a.help is not argparse.SUPPRESS]  # noqa: SLF001  # argparse has no public list
    rows = [(_option_names(a), cell((a.help or "") % _help_values(a, parser))) for a in actions if not _is_group(a)]
    if rows:
        yield table(("Option", "Description"), rows)
    for action in filter(_is_group, actions):
        for child in cast("dict[str, argparse.ArgumentParser]", action.choices).values():
            yield f"{'#' * level} {child.prog}\n"
            if child.description:
                yield f"{paragraphs(child.description)}\n"
            yield from _options(child, level + 1)


def _is_group(action: argparse.Action) -> bool:
    """Whether an action holds subcommands."""
    return isinstance(action.choices, dict)


def _option_names(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else _value_name(action)
    if not action.option_strings:
        return f"`{_value_name(action)}`"
    return ", ".join(f"`{f'{name} {value}'.strip()}`" for name in action.option_strings)


def _value_name(action: argparse.Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is not None:
        return action.metavar
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper() if action.option_strings else action.dest


def _help_values(action: argparse.Action, parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Return the values that a help text may contain, as argparse fills them in."""
    values = {**vars(action), "prog": parser.prog}
    return {name: value for name, value in values.items() if value is not argparse.SUPPRESS}


def metrics_page(language: Language) -> str:
    """Return the page of all metrics: per view and table, each column with its unit and definition."""
    texts = _texts(language)
    heading, intro, source, columns = {
        "en": (
            "Metrics",
            "All columns, defined as in the web UI. Unknown values are `null` in JSON and “–” in the web UI.",
            "Source",
            ("Column", "Label", "Unit", "Definition"),
        ),
        "zh": (
            "指标",
            "各视图的每一列。定义与网页列标题的提示相同。未知值在 JSON 中为 `null`，在网页中显示为“–”。",
            "来源",
            ("列", "名称", "单位", "定义"),
        ),
    }[language]
    parts = [f"# {heading}\n\n{intro}\n"]
    for view in all_views():
        tables = [(name, kinds) for name, kinds in tables_of(view) if kinds]
        if not tables:
            continue
        parts.append(f"## {view.name}\n\n{source}: [`visualprof view {view.name}`](../views/{view.name}.md)\n")
        for name, kinds in tables:
            places = _places(view.name, name)
            rows = [
                (
                    f"`{c}`",
                    _text(texts["column"], places, c),
                    UNITS.get(kind, ""),
                    _text(texts["metric"], places, c),
                )
                for c, kind in kinds.items()
            ]
            parts += [f"### {view.name}: `{name}`\n" if name else "", table(columns, rows)]
    return "\n".join(parts)


def tables_of(view: View) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the tables of a view's answer: name ("" for the main table), and the kind of each column."""
    yield from _tables_in(view.answer_type, "")


def _tables_in(hint: Any, name: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the tables in a type. `Table[X]` and a field of type `X`, a subclass of `Columns`, are tables."""
    base = get_origin(hint) or hint
    if base in (Annotated, Union, UnionType):
        for inner in get_args(hint):
            yield from _tables_in(inner, name)
    elif not isinstance(base, type) or not issubclass(base, msgspec.Struct):
        return
    elif issubclass(base, Columns):
        yield name, _column_kinds(base)
    else:
        for generic in (hint, *getattr(base, "__orig_bases__", ())):  # X of Table[X]
            for columns in get_args(generic):
                yield from _tables_in(columns, name)
        for field, inner in get_type_hints(base, include_extras=True).items():
            yield from _tables_in(inner, f"{name}.{field}".lstrip("."))


def _column_kinds(columns: type[Columns]) -> dict[str, str]:
    """Return the kind of each column, such as `ns`."""
    kinds: dict[str, str] = {}
    for name, hint in get_type_hints(columns, include_extras=True).items():
        metas = [m for part in (hint, *get_args(hint)) for m in getattr(part, "__metadata__", ())]
        kinds.update((name, m.extra["kind"]) for m in metas if isinstance(m, msgspec.Meta) and m.extra)
    return kinds


def _texts(language: Language) -> dict[str, Any]:
    """Return the labels (`column`) and definitions (`metric`) of the web UI."""
    texts: dict[str, Any] = {}
    for file in sorted((LOCALES / language).glob("*.json")):
        for name, group in json.loads(file.read_text("utf-8")).items():
            texts.setdefault(name, {}).update(group)
    return texts


def _places(view: str, table: str) -> list[str]:
    """Return the names below which the web UI has texts for columns of this table only, the closest first."""
    return [f"in_{view}_{table}", f"in_{table}", f"in_{view}"]


def _text(texts: dict[str, Any], places: list[str], column: str) -> str:
    """Return the text of a column as a cell; "" if there is no text."""
    groups = [texts[place] for place in places if isinstance(texts.get(place), dict)]
    return cell(next((text for group in (*groups, texts) if isinstance(text := group.get(column), str)), ""))


def settings_page(note: str = "") -> str:
    """Return the page of the server's settings, from their declaration."""
    intro = (
        "Each setting is an option of [`visualprof`](cli.md#visualprof) and a key of `visualprof.toml` (`--config`)."
        " Passwords are no options, because other users could read them."
    )
    parts = [f"# Settings of the server\n\n{note}{intro}\n"]
    for group in GROUPS.values():
        parser, rows = argparse.ArgumentParser(), list[tuple[str, ...]]()
        add_options(parser, group)
        helps = {a.dest: (a.help or "") % _help_values(a, parser) for a in parser._actions}  # noqa: SLF001  # as in _options
        for setting, declared in declared_options(group):
            key = declared.flag.removeprefix("--") or setting.name.replace("_", "-")
            names = (f"`{name}`" if name else "" for name in (declared.flag, key, declared.variable))
            rows.append((*names, cell(helps.get(setting.name, declared.text))))
        title = (inspect.getdoc(group) or "").partition(".")[0]
        parts.append(f"## {title}\n\n{table(('Option', 'Key', 'Variable', 'Meaning'), rows)}")
    return "\n".join(parts)


def python_page(note: str = "") -> str:
    """Return the page of the Python API, which Sphinx fills from the docstrings."""
    parts = [f"# Python API\n\n{note}"]
    for module in ("visualprof", "visualprof.api", "visualprof.capture"):
        names = sorted(importlib.import_module(module).__all__)
        parts.append(f"## {module}\n")
        for name in names:
            value = getattr(importlib.import_module(module), name)
            if inspect.isclass(value) or callable(value):
                directive = "autoclass" if inspect.isclass(value) else "autofunction"
                parts.append(f"```{{eval-rst}}\n.. {directive}:: {module}.{name}\n```\n")
    return "\n".join(parts)
