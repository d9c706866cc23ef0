"""Pieces of Markdown for generated pages."""

from __future__ import annotations

import inspect
import re
import textwrap


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table; "" without rows."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n" if rows else ""


def cell(text: str) -> str:
    """Return `text` as one cell of a table."""
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|").replace("<", "&lt;")


def paragraphs(docstring: str) -> str:
    """Return a docstring as Markdown: indented lines become code."""
    blocks = re.split(r"((?:^ {2,}.*\n?)+)", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return "\n".join(_code(b) if b.startswith("  ") else b.replace("<", "&lt;").strip() for b in blocks if b.strip())


def attributes(docstring: str) -> tuple[str, dict[str, str]]:
    """Return a docstring without its `Attributes:` list, and the text of each attribute."""
    text, _, listed = inspect.cleandoc(docstring).partition("\nAttributes:\n")
    entries = re.findall(r"^ {4}([\w, ]+): (.+(?:\n {8}.+)*)", listed, re.MULTILINE)
    return text.strip(), {name.strip(): cell(entry) for names, entry in entries for name in names.split(",")}


def _code(block: str) -> str:
    return f"\n```text\n{textwrap.dedent(block).strip()}\n```\n"
