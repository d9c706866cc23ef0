"""Split the names of C++ functions: `void a::f<int, g<4> >(float*)` is `a::f` with the arguments `int` and `g<4>`."""

from __future__ import annotations

import re
from typing import NamedTuple

from visualprof.reader.patterns import pattern

_CLOSING = {"<": ">", "(": ")", "[": "]", "{": "}"}
_OPERATOR = pattern(r"operator ?(?:<<|>>|<=|>=|->\*?|<|>)")
_UNNAMED = pattern(r"(?:\(anonymous namespace\)|<unnamed>|\{unnamed\}|\(anonymous class\))(?:::)?")
_BRACKETS = pattern(r"[<>()\[\]{}]")
_CAST = pattern(r"^\([\w:]+\)(?=-?\w)")


class CppName(NamedTuple):
    """A C++ name: its path without template arguments, and the arguments of its last part as texts."""

    path: str
    arguments: tuple[str, ...] = ()

    @property
    def last(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("::")[2]


def parse_cpp_name(text: str) -> CppName:
    """Split a function or a type. Return type and function parameters are left out; a truncated name is accepted.

    The arguments belong to the last part of the path that has arguments.
    """
    text = _CAST.sub("", _UNNAMED.sub("", _OPERATOR.sub("operator", text)).strip())
    path, arguments, at = "", "", 0
    for start, end in _bracket_pairs(text):
        path += text[at:start]
        at = end
        if text[start] == "<":
            arguments = text[start + 1 : end - 1]
        elif text[start] == "(" and not path.endswith("operator"):
            break
    else:
        path += text[at:]
    path = path.removesuffix(" const").strip().rpartition(" ")[2]
    return CppName(path, tuple(split_arguments(arguments)))


def split_arguments(text: str) -> list[str]:
    """Split a list at its commas outside of brackets."""
    parts: list[str] = []
    at = start = 0
    pairs = _bracket_pairs(text)
    for open_at, close_at in [*pairs, (len(text), len(text))]:
        for comma in re.finditer(",", text[at:open_at]):
            parts.append(text[start : at + comma.start()].strip())
            start = at + comma.end()
        at = close_at
    return [part for part in [*parts, text[start:].strip()] if part]


def _bracket_pairs(text: str) -> list[tuple[int, int]]:
    """Return the outermost brackets of a text as (start, end). A bracket that is not closed ends with the text."""
    pairs: list[tuple[int, int]] = []
    expected: list[str] = []
    first = 0
    for match in _BRACKETS.finditer(text):
        bracket, at = match.group(), match.start()
        if bracket in _CLOSING:
            first = first if expected else at
            expected.append(_CLOSING[bracket])
        elif expected and bracket == expected[-1] and text[at - 1 : at + 1] != "->":
            expected.pop()
            if not expected:
                pairs.append((first, at + 1))
    if expected:
        pairs.append((first, len(text) + 1))
    return pairs
