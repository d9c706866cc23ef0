"""One file a model format that converters take or make, of its name; found by listing this folder.

Each has `check(path)`, which loads the model as its runtime would and raises what that raises, and `content(path)`,
which says what is in it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Protocol, cast


@dataclass(frozen=True)
class Content:
    """What is in a model, whatever things are called in it.

    operators: how often it has each. digest: of operators with their attributes, of weights and of types, without what
    is connected with what: a conversion that changes nothing else changes nothing.
    """

    digest: str
    operators: dict[str, int] = field(default_factory=dict[str, int])


class FormatTools(Protocol):
    """A module of this folder."""

    def check(self, path: Path) -> object:
        """Load a model. Raises: whatever the runtime raises."""
        ...

    def content(self, path: Path) -> Content:
        """What is in it."""
        ...


def names() -> set[str]:
    """The formats that this folder knows."""
    return {module.name for module in pkgutil.iter_modules(__path__)}


def format_tools(name: str) -> FormatTools:
    """The module of a format. Raises: ImportError: there is none."""
    return cast("FormatTools", importlib.import_module(f"{__name__}.{name}"))


def content(parts: Iterable[object], operators: Mapping[str, int]) -> Content:
    """A content of parts in any order."""
    digest = sha256()
    for part in sorted(map(repr, parts)):
        digest.update(part.encode("utf-8", "replace") + b"\n")
    return Content(digest.hexdigest(), dict(sorted(operators.items())))
