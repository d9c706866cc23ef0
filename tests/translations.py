"""Catalogs of the server's messages: extract the English texts, and name translations that need a look.

    python -m tests.translations               update en.json from the sources, list what the other languages lack
    python -m tests.translations --reviewed    mark all translations as reviewed; with ids, only these

A translation is reviewed against one English text, whose hash `reviewed/LANGUAGE.json` holds. When the English text
changes, the check in tests/test_translations.py names the id until somebody has looked at the translation again.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.conftest import ROOT

PACKAGE = ROOT / "visualprof"
LOCALES = PACKAGE / "frontend" / "src" / "locales"
CATALOGS = LOCALES / "server"
#: Folders without sources of our own; agents run the case library elsewhere.
SKIPPED = ("frontend/", "samples/", "remote/cases/library/")


@dataclass(frozen=True)
class Call:
    """A call of `msg`.

    Attributes:
        id: The first argument, "" unless it is a literal.
        text: The English text with `{0}`, `{1}`, ... as placeholders, "" unless it is a literal or an f-string.
        place: `file:line` below the package.
    """

    id: str
    text: str
    place: str


def numbered(text: str) -> str:
    """Return `text` with its bare `{}` numbered from 0."""
    count = itertools.count()
    return re.sub(r"\{\}", lambda _: f"{{{next(count)}}}", text)


def placeholders(text: str) -> list[str]:
    """Return the placeholders of a text, sorted."""
    return sorted(re.findall(r"\{\w*\}|%\w+%", text))


def template(node: ast.AST) -> str:
    """Return the text of a literal or an f-string with numbered placeholders, "" for anything else."""
    if isinstance(node, ast.JoinedStr):
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    else:
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    # The web UI splits sentences at these, so they are no part of a message.
    return numbered(text.strip(" ;:\n"))


def calls_in(source: str, place: str) -> Iterator[Call]:
    """Yield the calls of `msg` in a source text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "msg":
            id, text = (*node.args, None, None)[:2]
            literal = id.value if isinstance(id, ast.Constant) and isinstance(id.value, str) else ""
            yield Call(literal, template(text) if text else "", f"{place}:{node.lineno}")


@cache
def calls() -> list[Call]:
    """Return all calls of `msg` in the package, by file and line."""
    files = sorted(PACKAGE.rglob("*.py"))
    places = [(path, path.relative_to(PACKAGE).as_posix()) for path in files]
    return [
        call
        for path, place in places
        if not place.startswith(SKIPPED)
        for call in calls_in(path.read_text("utf-8"), place)
    ]


def english() -> dict[str, str]:
    """Return the English text of each id, as the sources have it."""
    return {call.id: call.text for call in sorted(calls(), key=lambda call: call.id)}


def fingerprint(text: str) -> str:
    """Return a short hash of an English text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def read(path: Path) -> dict[str, str]:
    """Return a flat JSON object of texts; empty if there is no such file."""
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def write(path: Path, texts: dict[str, str]) -> None:
    """Write a flat JSON object, one id per line, sorted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dict(sorted(texts.items())), ensure_ascii=False, indent=2) + "\n", "utf-8")


def languages() -> list[str]:
    """Return the languages other than English that have a catalog."""
    return sorted(path.stem for path in CATALOGS.glob("*.json") if path.stem != "en")


def reviewed_file(language: str) -> Path:
    """Return the file with the fingerprints of the English texts that a language was reviewed against."""
    return CATALOGS / "reviewed" / f"{language}.json"


def changed_since_review(language: str) -> list[str]:
    """Return the ids whose English text changed since the translation was reviewed."""
    reviewed = read(reviewed_file(language))
    return [id for id, text in english().items() if reviewed.get(id) != fingerprint(text)]


def mark_reviewed(ids: list[str]) -> None:
    """Record that the translations of `ids`, or of all messages, fit the present English texts."""
    texts = english()
    for language in languages():
        reviewed = {id: value for id, value in read(reviewed_file(language)).items() if id in texts}
        reviewed |= {id: fingerprint(text) for id, text in texts.items() if id in ids or not ids}
        write(reviewed_file(language), reviewed)


def main(arguments: list[str]) -> None:
    """Update en.json and list what translations lack, or mark translations as reviewed."""
    if arguments[:1] == ["--reviewed"]:
        mark_reviewed(arguments[1:])
        return
    texts = english()
    write(CATALOGS / "en.json", texts)
    for language in languages():
        words = read(CATALOGS / f"{language}.json")
        for id in sorted(texts.keys() - words.keys()):
            print(f"{language}.json lacks {id}: {texts[id]}")
        for id in sorted(words.keys() - texts.keys()):
            print(f"{language}.json has {id}, which no source has")
        for id in changed_since_review(language):
            if id in words:
                print(f"review {language} {id}: {texts[id]} -> {words[id]}")


if __name__ == "__main__":
    main(sys.argv[1:])
