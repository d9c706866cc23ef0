"""Count the constructions that WRITING rules avoid, in docstrings, names, calls, documents and texts of the web UI.

    python -m tests.prose            print every count
    python -m tests.prose NAME       print the places of one count
    python -m tests.prose NAME PATH  print those whose place starts with PATH

`LIMITS` holds the highest count that tests/test_prose.py accepts. A limit may only fall.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from tests.conftest import ROOT

PACKAGE = ROOT / "visualprof"
LOCALES = PACKAGE / "frontend" / "src" / "locales"
SKIPPED = ("samples", "frontend", "library", "migrations")

#: The first word of a docstring. A function's docstring starts with a verb, a class's with a noun phrase.
FIRST_WORDS = re.compile(r"(What|Of|Where|Who|Whose|Whom|Those|By|As|Which|Its)\b")
#: Names of functions that do not say what the function does.
VAGUE_NAMES = frozenset(
    [
        "of",
        "one",
        "each",
        "own",
        "told",
        "kept",
        "made",
        "given",
        "found",
        "said",
        "known",
        "beside",
        "within",
        "over",
        "apart",
        "mine",
        "there",
        "here",
        "so",
        "such",
        "taken",
        "whose",
        "which",
        "what",
        "who",
        "where",
    ]
)
#: Positional arguments from which a swap is hard to see.
MANY_ARGUMENTS = 7
#: Callables whose signature is *args and which take no keywords: those of ctypes (`function` and `_call` take the types
#: of arguments, `native` is a C function), of SQLAlchemy, and itertools.chain.
VARARGS = frozenset(["function", "_call", "native", "Table", "select", "where", "chain"])
#: Per 10,000 words of documents: a name, a pattern and the highest accepted rate.
PATTERNS: tuple[tuple[str, str, float], ...] = (
    ("beside", r"\bbesides?\b", 2),
    ("stand", r"\bstands?\b", 2),
    ("tell", r"\b(told|tells?)\b", 2),
    ("whoever", r"\b(whoever|whose|whom)\b", 3),
    ("somebody", r"\b(somebody|nobody|everybody)\b", 2),
    ("what clause", r"\bwhat (is|was|it|they|has|had|takes|makes|comes|belongs|runs|no|a|the)\b(?![^.]{0,80}\?)", 6),
    ("one that", r"\b(one|those) (that|which|who|of)\b", 5),
    ("is none", r"(?-i:\bis none\b)", 0),
    ("goes on", r"\bgo(es)? on\b", 1),
    ("too", r", too\b", 1),
    ("by itself", r"\bby (itself|themselves)\b", 1),
    ("any more", r"\bany more\b", 1),
)
RIDDLES = re.compile(
    "|".join(f"(?:{pattern})" for _, pattern, _ in PATTERNS) + r"|\bso many\b|\bto mend\b|\b(less|more) a step\b",
    re.IGNORECASE,
)
#: British spellings; the project writes US English.
BRITISH = re.compile(
    r"\b(colours?|behaviours?|neighbours?|favours?|honours?|labelled|modelled|travelled|artefacts?|"
    r"optimis(e[sd]?|ing|ation|er)|normalis(e[sd]?|ing|ation)|synchronis(e[sd]?|ing|ation)|quantis(e[sd]?|ing|ation)|"
    r"initialis(e[sd]?|ing|ation)|serialis(e[sd]?|ing|ation)|recognis(e[sd]?|ing)|organis(e[sd]?|ing|ation)|"
    r"summaris(e[sd]?|ing)|minimis(e[sd]?|ing)|maximis(e[sd]?|ing)|prioritis(e[sd]?|ing)|utilis(e[sd]?|ing|ation)|"
    r"specialis(e[sd]?|ing)|customis(e[sd]?|ing)|analys(ed?|ing)|catalogues?|centres?|centred|grey|licence|judgement|"
    r"finalis(e[sd]?|ing)|memoris(e[sd]?|ing)|vectoris(e[sd]?|ing|ation)|parallelis(e[sd]?|ing|ation)|materialis(e[sd]?|ing))\b",
    re.IGNORECASE,
)
MAX_LINE = 100


@cache
def sources() -> dict[str, ast.Module]:
    """Return the syntax trees of the package's modules by path."""
    files = sorted(path for path in PACKAGE.rglob("*.py") if not set(SKIPPED) & set(path.relative_to(PACKAGE).parts))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in files}


Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings() -> Iterator[tuple[str, ast.AST, str]]:
    """Yield the place, the node and the text of each docstring."""
    for place, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, Documented) and (text := ast.get_docstring(node)):
                yield f"{place}:{getattr(node, 'lineno', 1)}", node, text


def first_words() -> list[str]:
    """Return the docstrings whose first word is not a verb or noun."""
    return [f"{place}: {text.splitlines()[0][:80]}" for place, _, text in docstrings() if FIRST_WORDS.match(text)]


def nones() -> list[str]:
    """Return the docstrings that say "is none"."""
    return [
        f"{place}: {text.splitlines()[0][:80]}"
        for place, _, text in docstrings()
        if re.search(r"\b(is|are) none\b", text)
    ]


def docstring_riddles() -> list[str]:
    """Return the docstrings that match the patterns."""
    return [f"{place}: {match.group()}" for place, _, text in docstrings() if (match := RIDDLES.search(text))]


def vague_names() -> list[str]:
    """Return the functions with a vague name."""
    return [
        f"{place}:{node.lineno}: {node.name}"
        for place, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.strip("_") in VAGUE_NAMES
    ]


def vague_variables() -> list[str]:
    """Return the bindings of locals, parameters and constants with a vague name."""
    places: list[str] = []
    for place, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            elif isinstance(node, ast.arg):
                name = node.arg
            else:
                continue
            if name.strip("_").lower() in VAGUE_NAMES:
                places.append(f"{place}:{node.lineno}: {name}")
    return places


def positional_calls() -> list[str]:
    """Return the calls with many positional arguments, except of `VARARGS`. A starred argument counts once."""
    return [
        f"{place}:{node.lineno}: {ast.unparse(node.func)}"
        for place, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and len(node.args) >= MANY_ARGUMENTS
        if ast.unparse(node.func).rpartition(".")[2] not in VARARGS
    ]


def leaves(node: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts of a nested JSON object with their dotted keys."""
    if isinstance(node, dict):
        for key, value in node.items():  # pyright: ignore[reportUnknownVariableType]
            yield from leaves(value, f"{path}.{key}" if path else str(key))  # pyright: ignore[reportUnknownArgumentType]
    else:
        yield path, str(node)


def ui_texts() -> Iterator[tuple[str, str]]:
    """Yield the English texts of the web UI and of the server's messages, with their keys."""
    files = [path for path in (LOCALES / "en.json", *sorted((LOCALES / "en").rglob("*.json"))) if path.exists()]
    for path in files:
        yield from leaves(json.loads(path.read_text("utf-8")))


def server_texts() -> Iterator[tuple[str, str]]:
    """Yield the English texts of the server's messages, with their ids."""
    yield from leaves(json.loads((LOCALES / "server" / "en.json").read_text("utf-8")))


def ui_riddles() -> list[str]:
    """Return the texts of the web UI that match the patterns."""
    return [f"{key}: {text}" for key, text in ui_texts() if RIDDLES.search(text)]


def message_riddles() -> list[str]:
    """Return the server's messages that match the patterns."""
    return [f"{key}: {text}" for key, text in server_texts() if RIDDLES.search(text)]


def documents() -> list[Path]:
    """Return the READMEs, the documents and the decision records in English."""
    pages = [path for path in sorted((ROOT / "docs").rglob("*.md")) if not path.is_relative_to(ROOT / "docs" / "zh")]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages]


def prose(path: Path) -> str:
    """Return the text of a document without code blocks, inline code and link targets."""
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?: {4}|\t).*$", "", text, flags=re.MULTILINE)
    return re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text)


@cache
def rates() -> dict[str, float]:
    """Return the rate of each pattern per 10,000 words of all documents."""
    text = "\n".join(prose(path) for path in documents())
    words = len(re.findall(r"[A-Za-z']+", text))
    return {name: len(re.findall(pattern, text, re.IGNORECASE)) / words * 10_000 for name, pattern, _ in PATTERNS}


def long_lines() -> list[str]:
    """Return the lines of documents over `MAX_LINE` characters, except tables, code, headings, images and links."""
    places: list[str] = []
    for path in documents():
        fenced = False
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            fenced ^= line.startswith("```")
            exempt = fenced or line.lstrip().startswith(("|", "#", "![", "<", "[")) or line.startswith("    ")
            without_links = re.sub(r"\]\([^)]*\)", "]", line)
            if len(without_links) > MAX_LINE and not exempt:
                places.append(f"{path.relative_to(ROOT)}:{number}: {len(line)}")
    return places


def british() -> list[str]:
    """Return the British spellings in sources, documents and texts of the web UI."""
    places: list[str] = []
    files = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    files += [ROOT / place for place in sources()]
    files += sorted((ROOT / "tests").rglob("*.py")) + sorted((ROOT / "benchmarks").rglob("*.py"))
    files += sorted((PACKAGE / "frontend" / "src").rglob("*.ts")) + sorted(
        (PACKAGE / "frontend" / "src").rglob("*.vue")
    )
    for path in files:
        if path.name in ("prose.py", "test_prose.py"):
            continue
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            places += [f"{path.relative_to(ROOT)}:{number}: {match.group()}" for match in BRITISH.finditer(line)]
    return places + [
        f"{key}: {m.group()}" for key, text in [*ui_texts(), *server_texts()] for m in BRITISH.finditer(text)
    ]


COUNTS: dict[str, Callable[[], list[str]]] = {
    "docstrings that start with a wrong word": first_words,
    "docstrings with 'is none'": nones,
    "docstrings with a riddle": docstring_riddles,
    "functions with a vague name": vague_names,
    "variables with a vague name": vague_variables,
    "calls with many positional arguments": positional_calls,
    "texts of the web UI with a riddle": ui_riddles,
    "messages of the server with a riddle": message_riddles,
    "lines of documents that are too long": long_lines,
    "British spellings": british,
}


def main(arguments: list[str]) -> None:
    """Print all counts and rates, or only the counts whose name contains the first argument, with their places."""
    wanted, start = (*arguments, "", "")[:2]
    for name, count in COUNTS.items():
        if wanted in name:
            places = [place for place in count() if place.startswith(start)]
            print("\n".join([*(places if wanted else []), f"{len(places):6} {name}"]))
    for name, rate in ({} if wanted else rates()).items():
        print(f"{rate:6.1f} per 10,000 words: {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
