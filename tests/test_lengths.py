"""Files and functions are short enough to read. Split along subjects, not at a line number."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

FILE_LINES, TEST_FILE_LINES, FUNCTION_LINES = 400, 700, 60
SOURCES = ("visualprof", "benchmarks", "docs", "tests")
SUFFIXES = {".py", ".vue", ".ts", ".c", ".h"}
NOT_WRITTEN_BY_HAND = {"node_modules", "dist", "types.ts", "build"}
START = re.compile(r"( *)(def |async def |class |@)").match
# Files that may be longer, with their limit. Lower a limit when a file gets shorter.
LONGER = {
    "visualprof/reader/native/heap.c": 520,
    "visualprof/reader/native/snapshot.c": 790,
    "visualprof/reader/logdir/scan.py": 410,
}


def sources() -> Iterator[tuple[str, str]]:
    """Yield the path and text of each source file."""
    paths = list(ROOT.glob("*.py"))
    for source in SOURCES:
        for folder, folders, names in os.walk(ROOT / source):
            folders[:] = [name for name in folders if name not in NOT_WRITTEN_BY_HAND]
            paths += [Path(folder, name) for name in names if name not in NOT_WRITTEN_BY_HAND]
    for path in sorted(paths):
        if path.suffix in SUFFIXES:
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def limit(path: str) -> int:
    return LONGER.get(path, TEST_FILE_LINES if path.startswith("tests/") else FILE_LINES)


def may_have_long_functions(text: str) -> bool:
    """Return whether definitions are far apart: parsing all files would take seconds."""
    lines = text.splitlines()
    starts = [(number, len(found[1]), found[2] != "@") for number, line in enumerate(lines) if (found := START(line))]
    for index, (number, indent, is_definition) in enumerate(starts):
        later = (other for other, other_indent, _ in starts[index + 1 :] if other_indent <= indent)
        if is_definition and next(later, len(lines)) - number > FUNCTION_LINES:
            return True
    return False


def long_functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield functions over the limit with their lines, without the docstring."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0]
            is_documented = ast.get_docstring(node, clean=False) is not None
            docstring = (first.end_lineno or 0) - first.lineno + 1 if is_documented else 0
            lines = (node.end_lineno or 0) - node.lineno + 1 - docstring
            if lines > FUNCTION_LINES:
                yield node.name, lines


def test_files_are_short() -> None:
    lengths = {path: len(text.splitlines()) for path, text in sources()}
    assert len(lengths) > 1000, "the folders are read"
    assert {path: count for path, count in lengths.items() if count > limit(path)} == {}


def test_functions_are_short() -> None:
    python = [(path, text) for path, text in sources() if path.endswith(".py") and may_have_long_functions(text)]
    assert [(path, *found) for path, text in python for found in long_functions(text)] == []


def test_a_docstring_does_not_make_a_function_long() -> None:
    body = "    pass\n"
    documented = 'def f():\n    """' + "text\n" * 80 + '"""\n'
    assert [*long_functions(documented + body)] == []
    long = "def f():\n" + body * 60
    assert [*long_functions(long)] == [("f", 61)]
    assert may_have_long_functions(long)
    assert not may_have_long_functions(long.replace(body, "", 1))
