"""One file per model format of converters, named after the format; found by listing this folder.

Each has `check(path)`, which loads the model as its runtime would and raises the runtime's errors, and `content(path)`,
which returns the content of the model.
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
    """The content of a model, regardless of names in it.

    Attributes:
        digest: Digest of the operators with their attributes, the weights and the types. Connections are not included:
            a
            conversion that changes only connections counts as no change.
        operators: Count of each operator.
    """

    digest: str
    operators: dict[str, int] = field(default_factory=dict[str, int])


class FormatTools(Protocol):
    """The interface of a module of this folder."""

    def check(self, path: Path) -> object:
        """Load a model.

        Raises:
            Exception: Any error of the runtime.
        """
        ...

    def content(self, path: Path) -> Content:
        """Return the content of a model."""
        ...


def names() -> set[str]:
    """Return the formats of this folder."""
    return {module.name for module in pkgutil.iter_modules(__path__)}


def format_tools(name: str) -> FormatTools:
    """Return the module of a format.

    Raises:
        ImportError: There is no such format.
    """
    return cast("FormatTools", importlib.import_module(f"{__name__}.{name}"))


def content(parts: Iterable[object], operators: Mapping[str, int]) -> Content:
    """Return a content of parts in any order."""
    digest = sha256()
    for part in sorted(map(repr, parts)):
        digest.update(part.encode("utf-8", "replace") + b"\n")
    return Content(digest.hexdigest(), dict(sorted(operators.items())))
