"""What the program offers is documented: formats, views, command-line flags, columns of the trace."""

from __future__ import annotations

import argparse
import importlib
import json
import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from docs.site.build import english_pages, heading_anchor, headings, source_hashes, write_sources
from docs.site.build import main as build
from docs.site.http_reference import routes_page
from docs.site.languages import LANGUAGES, UNTRANSLATED, Language
from docs.site.reference import cli_page, metrics_page
from tests.conftest import ROOT
from visualprof.capture.options import CaptureError
from visualprof.cli import commands
from visualprof.errors import BadParameter, EmptyFile, FormatError, VisualprofError
from visualprof.reader.child import Failure, ReadFailed
from visualprof.reader.registry import all_formats
from visualprof.reader.trace import SCHEMA_VERSION, Allocs, Category, Events, Steps, Track
from visualprof.remote.cases import all_vendors
from visualprof.remote.cases.folder import shipped_cases
from visualprof.remote.converters import Converter, all_converters
from visualprof.server.api.openapi import build_document
from visualprof.views import View, all_views


@cache
def routes_reference() -> str:
    """The generated reference of the routes, in English."""
    return routes_page("")


@cache
def documents() -> str:
    """All documents and the generated reference of the command line."""
    return "\n".join((cli_page(), *(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))))


@cache
def documented_flags() -> set[str]:
    return set(re.findall(r"--[a-z][a-z-]+", documents()))


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [f.name for f in all_formats()])
def test_every_format_has_a_row(name: str) -> None:
    assert f"\n| `{name}` |" in text("docs/formats.md")


@pytest.mark.parametrize("kind", all_converters(), ids=lambda c: c.name)
def test_every_converter_has_a_row_with_its_options(kind: Converter) -> None:
    row = next(line for line in text("docs/convert.md").splitlines() if f"`{kind.name}`" in line.partition(" | ")[0])
    assert [option for option in kind.options if f"`{option}=" not in row] == []


def test_every_case_and_every_vendor_with_its_compilers_has_a_row() -> None:
    rows = [line for line in text("docs/case-library.md").splitlines() if line.startswith("| `")]
    named = {row.split("`")[1]: row for row in rows}
    assert set(named) == {*shipped_cases(), *all_vendors()}
    lacking = [(v.name, c) for v in all_vendors().values() for c in v.engines if f"`{c}`" not in named[v.name]]
    assert lacking == []


@pytest.mark.parametrize("name", [v.name for v in all_views()])
def test_every_view_has_a_page(name: str) -> None:
    assert text(f"docs/views/{name}.md").startswith(f"# {name}\n")


@pytest.mark.parametrize("view", all_views(), ids=lambda v: v.name)
def test_every_parameter_of_a_view_is_in_the_reference_of_its_route(view: View) -> None:
    entry = routes_reference().partition(f"### GET /view/{view.name}\n")[2].partition("###")[0]
    assert [f.name for f in fields(view.params) if f"| `{f.name}` |" not in entry] == []


@pytest.mark.parametrize("command", commands())
def test_every_flag_is_in_the_documentation(command: str) -> None:
    parser = argparse.ArgumentParser()
    importlib.import_module(f"visualprof.cli.{command.replace('-', '_')}").add_arguments(parser)
    flags = {f for f in re.findall(r"--[a-z][a-z-]+", parser.format_help()) if f != "--help"}
    assert flags - documented_flags() == set()
    assert f"visualprof {command}" in documents() or command == "serve"


@pytest.mark.parametrize("table", [Events, Track, Allocs, Steps], ids=lambda t: t.__name__)
def test_every_column_of_the_trace_is_in_its_document(table: type[Any]) -> None:
    document = text("docs/trace-model.md")
    assert [name for name in table.__struct_fields__ if f"`{name}`" not in document] == []


def test_categories_and_schema_changes_are_in_the_trace_models_document() -> None:
    document = text("docs/trace-model.md")
    assert [c.name.lower() for c in Category if not re.search(rf"\b{c.name.lower()}\b", document)] == []
    assert f"\n- {SCHEMA_VERSION}: " in document


def test_the_table_of_contents_lists_every_page_once() -> None:
    links = re.findall(r"\]\(([^)#]+\.md)\)", text("docs/README.md"))
    listed = [link for link in links if (ROOT / "docs" / link).exists() and not link.startswith("../")]
    pages = [page for page in english_pages() if page != "README.md" and not re.match(r"adr/\d", page)]
    assert sorted(listed) == pages


@pytest.mark.parametrize("name", ["README.md", "README_zh.md"])
def test_the_readme_is_short(name: str) -> None:
    assert len(text(name).splitlines()) <= 120


def test_the_pages_are_short_enough_to_be_read() -> None:
    """Decision records and the generated reference of SQL tables do not count. Code and tables do."""
    pages = [page for page in english_pages() if not page.startswith("adr/") and page != "query-schema.md"]
    assert sum(len(text(f"docs/{page}").split()) for page in pages) < 63_000


def test_relative_links_lead_to_files_of_the_repository() -> None:
    pages = [ROOT / "README.md", ROOT / "README_zh.md", *(ROOT / "docs").rglob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\((?!\w+:)([^)#\s]+)", page.read_text("utf-8"))]
    assert [f"{page.relative_to(ROOT)}: {link}" for page, link in links if not (page.parent / link).exists()] == []


def test_links_out_of_the_pages_become_paths_of_the_repository(tmp_path: Path) -> None:
    write_sources(tmp_path, "en")
    for page in tmp_path.rglob("*.md"):
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / link).exists(), f"{page.relative_to(tmp_path)}: {link}"


def test_pages_without_a_translation_say_so_in_chinese(tmp_path: Path) -> None:
    write_sources(tmp_path, "zh")
    untranslated = [page for page in english_pages() if not (ROOT / "docs" / "zh" / page).exists()]
    pages = [tmp_path / ("index.md" if page == "README.md" else page) for page in untranslated]
    assert [page for page in pages if UNTRANSLATED not in page.read_text("utf-8")] == []


@pytest.mark.parametrize("guide", sorted(page.stem for page in (ROOT / "docs").glob("adding-a-*.md")))
def test_the_files_that_a_guide_names_exist(guide: str) -> None:
    prose = re.sub(r"^```.*?^```$", "", text(f"docs/{guide}.md"), flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`((?:visualprof|tests|docs|changes)/[\w./-]+)`", prose))
    example = re.search(r"visualprof/[a-z/]+/[a-z_]+\.py", text(f"docs/{guide}.md"))
    missing = {name for name in named if "NAME" not in name and not (ROOT / name).exists()}
    assert missing <= {example[0] if example else ""}


def test_every_news_file_has_a_known_kind() -> None:
    kinds = re.findall(
        r'^directory = "([a-z]+)"', text("pyproject.toml").partition("[[tool.towncrier.type]]")[2], re.MULTILINE
    )
    files = [path.name for path in (ROOT / "changes").iterdir() if path.name != "README.md"]
    assert [name for name in files if not re.fullmatch(rf"[\w-]+\.({'|'.join(kinds)})\.md", name)] == []


def test_every_environment_variable_is_documented() -> None:
    sources = [*(ROOT / "visualprof").rglob("*.py"), *ROOT.glob("*.py"), ROOT / "Makefile"]
    names = {name for path in sources for name in re.findall(r"VISUALPROF_[A-Z_]*[A-Z]", path.read_text("utf-8"))}
    assert [name for name in sorted(names) if f"`{name}`" not in text("docs/environment.md")] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_column_of_every_view_has_a_definition(language: Language) -> None:
    rows = [line for line in metrics_page(language).splitlines() if line.startswith("| `")]
    assert len(rows) > 700
    assert sorted({row.split("`")[1] for row in rows if row.endswith("|  |")}) == []


#: Modules with errors that the tests of this file do not import otherwise.
ERROR_MODULES = (
    "accounts.issuer",
    "engines",
    "query.errors",
    "query.process",
    "query.service",
    "remote.queue.errors",
    "server.api.models",
    "server.report",
)


def all_errors() -> list[type[VisualprofError]]:
    """Return the error classes of the imported modules."""
    assert issubclass(CaptureError, VisualprofError)
    for module in ERROR_MODULES:
        importlib.import_module(f"visualprof.{module}")
    errors: list[type[VisualprofError]] = [VisualprofError]
    for error in errors:
        errors += error.__subclasses__()
    return errors


def error_pages() -> set[str]:
    """Return the pages that errors name."""
    return {error.docs_page for error in all_errors()} - {""}


def test_the_pages_and_headings_that_errors_name_exist() -> None:
    pages = [address.partition("#") for address in error_pages()]
    known = {page: {"", *map(heading_anchor, headings(ROOT / "docs" / f"{page}.md"))} for page, _, _ in pages}
    assert [(page, heading) for page, _, heading in pages if heading not in known[page]] == []
    assert len(pages) > 15


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_web_ui_explains_every_error_that_has_a_page(language: Language) -> None:
    texts = json.loads(text(f"visualprof/frontend/src/locales/{language}/definitions.json"))["about"]["page"]
    assert set(texts) == error_pages()


def test_an_error_has_the_page_of_its_kind() -> None:
    assert EmptyFile("empty").docs_page == "capture#files"
    assert FormatError("damaged").docs_page == "formats#damaged-files"
    assert BadParameter("wrong").docs_page == ""
    assert ReadFailed(Failure("empty", "", kind="EmptyFile")).docs_page == "capture#files"
    assert ReadFailed(Failure("too slow", "", kind="timeout")).docs_page == ""


def test_every_status_of_an_error_is_in_the_reference_of_the_api() -> None:
    rows = re.findall(r"^\| ([45]\d\d(?:, \d+)*) \|", text("docs/http-api.md"), re.MULTILINE)
    documented = {int(status) for row in rows for status in row.split(", ")}
    assert {error.status for error in all_errors()} - documented == set()


def test_every_exit_code_of_a_command_is_documented() -> None:
    table = text("docs/environment.md").partition("## Exit codes")[2]
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    sources = (ROOT / "visualprof" / "cli").glob("*.py")
    codes = {int(code) for p in sources for code in re.findall(r"\breturn (\d)$", p.read_text("utf-8"), re.MULTILINE)}
    assert codes - documented == set()


def test_every_route_is_in_the_generated_reference() -> None:
    page = routes_reference()
    paths = [(path.removeprefix("/api/v1"), methods) for path, methods in build_document()["paths"].items()]
    routes = [
        (method, path)
        for path, methods in paths
        for method in methods
        if method != "parameters" and (not path.startswith("/charts/") or "{" in path)  # as the view of that name
    ]
    assert len(routes) > 100
    missing = [(m, p) for m, p in routes if f"### {m.upper()} {p}\n" not in page]
    assert missing == []


def test_translations_belong_to_the_present_english_pages() -> None:
    """After an update of the translations: `python -m docs.site.build --translated`."""
    translated = json.loads(text("docs/zh/sources.json"))
    assert [page for page, digest in source_hashes().items() if translated.get(page) != digest] == []


@pytest.mark.parametrize("page", [page for page in source_hashes() if page != "README.md"])
def test_a_translation_has_the_headings_of_its_english_page(page: str) -> None:
    levels = [
        re.findall(r"^#+(?= )", re.sub(r"^```.*?^```$", "", text(path), flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
        for path in (f"docs/{page}", f"docs/zh/{page}")
    ]
    assert levels[0] == levels[1]


def test_every_option_of_every_command_is_in_the_generated_reference() -> None:
    page = cli_page()
    for command in commands():
        parser = argparse.ArgumentParser()
        importlib.import_module(f"visualprof.cli.{command.replace('-', '_')}").add_arguments(parser)
        assert [f for f in re.findall(r"--[a-z][a-z-]+", parser.format_usage()) if f"`{f}" not in page] == []


@pytest.mark.long
def test_the_site_builds_without_a_warning_or_a_request_to_another_host(tmp_path: Path) -> None:
    assert build(["--output", str(tmp_path)]) == 0
    pages = list((tmp_path / "html").rglob("*.html"))
    assert len(pages) > 2 * len(english_pages())
    loaded = [re.findall(r'(?:src|rel="stylesheet"[^>]*href)="(https?:[^"]+)"', p.read_text("utf-8")) for p in pages]
    assert [address for addresses in loaded for address in addresses] == []
