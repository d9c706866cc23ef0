"""Answers of views about the files of a part."""

from __future__ import annotations

from typing import Any

from visualprof.reader.trace import Trace
from visualprof.views import view


def answer(trace: Trace, name: str, **params: str) -> Any:
    """Return the answer of a view. Its type depends on the name."""
    chosen = view(name)
    return chosen.answer(trace, chosen.parse(params))
