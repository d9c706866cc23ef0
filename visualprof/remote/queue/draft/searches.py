"""Text formats of a search: `threads=1:4`, `precision=f32, bf16`, `p99<5ms, memory<2GiB`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from visualprof.messages import msg
from visualprof.remote.child.search.space import BATCH
from visualprof.remote.protocol import Search
from visualprof.remote.queue.draft.forms import DraftError, DraftSearch
from visualprof.remote.queue.draft.grammar import EXAMPLES, SEPARATORS, parse_sizes, sizes_text

NUMBERS = ("threads", "streams")
_CONSTRAINT_SEPARATORS = re.compile(r"[,，;；\n]+|\s+and\s+|&&")
_TEXTS: dict[str, type] = {"trials": int, "trial_s": float, "budget_s": float, "seed": int}
_NUMBER = re.compile(r"\d{1,9}(\.\d{0,9})?")


def parse_search(draft: DraftSearch, swept: str) -> tuple[Search, list[DraftError]]:
    """Return the search of a draft, and errors. The sizes of the dimension `swept` are part of the sweep."""
    if not draft.objective:
        return Search(), []
    errors = list[DraftError]()
    values = {name: _values(name, text, errors) for name, text in draft.over.items() if text.strip() and name != swept}
    values.pop(BATCH, None)
    constraints = [part.strip() for part in _CONSTRAINT_SEPARATORS.split(draft.where) if part.strip()]
    return Search(draft.objective, values, constraints, **dict(_numbers(draft, errors))), errors


def batch_text(draft: DraftSearch, swept: str) -> str | None:
    """Return the sizes of the swept dimension, if the search includes them."""
    return (draft.over.get(BATCH) or draft.over.get(swept)) if draft.objective else None


def search_draft(search: Search) -> DraftSearch:
    """Return the draft that parses to a search."""
    usual = Search()
    texts = {name: f"{getattr(search, name):g}" for name in _TEXTS if getattr(search, name) != getattr(usual, name)}
    values = {name: _text(name, values) for name, values in search.over.items()}
    return DraftSearch(search.objective, values, ", ".join(search.where), **texts)


def _text(name: str, values: list[str]) -> str:
    return sizes_text([int(value) for value in values]) if name in NUMBERS else ", ".join(values)


def _values(name: str, text: str, errors: list[DraftError]) -> list[str]:
    if name not in NUMBERS:
        return list(dict.fromkeys(filter(None, SEPARATORS.split(text))))
    try:
        return [str(size) for size in parse_sizes(text)]
    except ValueError as error:
        errors.append(DraftError(f"search.over.{name}", str(error), EXAMPLES))
        return ["1"]


def _numbers(draft: DraftSearch, errors: list[DraftError]) -> Iterator[tuple[str, Any]]:
    texts: Mapping[str, str] = {name: getattr(draft, name).strip() for name in _TEXTS}
    for name, text in texts.items():
        if text and not _NUMBER.fullmatch(text):
            errors.append(
                DraftError(f"search.{name}", msg("queue.no_number", f"{text[:40]!r} is no number"), code="number")
            )
        elif text and _TEXTS[name] is int and "." in text:
            errors.append(
                DraftError(f"search.{name}", msg("queue.no_number", f"{text[:40]!r} is no number"), code="whole")
            )
        elif text:
            yield name, _TEXTS[name](text)
