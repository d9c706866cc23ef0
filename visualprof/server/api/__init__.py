"""The HTTP API. Each file of this folder declares the routes of a subject; they are found by listing the folder."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from visualprof.server.routes import Resource, Route


@cache
def all_resources() -> tuple[type[Resource], ...]:
    """Return the resources of this folder by module, in the order of their declaration."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return tuple(
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Resource) and kind.__module__ == module.__name__
    )


def all_routes() -> Iterator[tuple[Route, Callable[..., Any]]]:
    """Yield each documented route with its method."""
    for resource in all_resources():
        if resource.documented:
            yield from resource.routes()
