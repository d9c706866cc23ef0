"""Patterns that are compiled when they are used."""

from __future__ import annotations

import re

from visualprof.reader.patterns import pattern


def test_a_pattern_equals_the_one_compiled_by_re() -> None:
    later, now = pattern(r"(a)b", re.IGNORECASE), re.compile(r"(a)b", re.IGNORECASE)
    for text in ("xAB", "ba"):
        assert bool(later.search(text)) == bool(now.search(text))
    assert (later.sub("", "abc"), later.pattern, later.groups) == ("c", now.pattern, 1)
    assert pattern(rb"\d+").findall(b"1 22") == [b"1", b"22"]


def test_a_pattern_is_compiled_once() -> None:
    later = pattern("a+")
    assert later.search is later.search
    assert {"search"} < vars(later).keys()
