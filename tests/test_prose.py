"""The writing rules: first words of docstrings, names, calls, documents, texts of the web UI, spelling.

`python -m tests.prose NAME` prints the places that a limit counts. A limit may only fall: when a count is lower, the
test asks for the new limit.
"""

from __future__ import annotations

import pytest

from tests import prose

#: The highest accepted count of each kind of place.
LIMITS = {
    "docstrings that start with a wrong word": 0,
    "docstrings with 'is none'": 0,
    "docstrings with a riddle": 342,
    "functions with a vague name": 1,
    "variables with a vague name": 95,
    "calls with many positional arguments": 3,
    "texts of the web UI with a riddle": 7,
    "messages of the server with a riddle": 3,
    "lines of documents that are too long": 0,
    "British spellings": 5,
}
#: How far a count may be below its limit before the limit has to follow.
SLACK = 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", prose.COUNTS)
def test_places_that_break_a_rule_do_not_grow(kind: str) -> None:
    places = prose.COUNTS[kind]()
    assert len(places) <= LIMITS[kind], "\n".join(places[:50])
    assert len(places) >= LIMITS[kind] - SLACK, f"set the limit of {kind!r} to {len(places)}"


@pytest.mark.parametrize(("pattern", "limit"), [(name, limit) for name, _, limit in prose.PATTERNS])
def test_documents_use_plain_constructions(pattern: str, limit: float) -> None:
    assert prose.rates()[pattern] <= limit


def test_every_kind_of_construction_is_detected() -> None:
    """The patterns match the constructions that they are written for, and leave plain sentences alone."""
    for text in ("those that wait", "the file beside it", "it is none", "what it takes", "as nobody knows", "goes on"):
        assert prose.RIDDLES.search(text), text
    for text in ("Return the rows per step.", "What does the step cost?", "The agent continues.", "Show the version."):
        assert not prose.RIDDLES.search(text), text
    assert prose.BRITISH.search("the colour")
    assert not prose.BRITISH.search("the color of a canceled job")
