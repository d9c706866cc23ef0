"""Views: a trace in, columns out. One file a view, found by listing this folder."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import msgspec

from visualprof.errors import BadParameter, NotFound
from visualprof.reader.trace import Trace
from visualprof.views.table import Result


@dataclass(frozen=True)
class Params:
    """What every view can be asked: one step by name, or all."""

    step: str = ""


@dataclass(frozen=True)
class View:
    """One way to look at a trace.

    Args:
        name: id in addresses, on the command line and in the page's locales.
        order: place among the tabs.
        needs: says whether a trace has the data for it.
        params: a frozen dataclass, subclass of Params; its fields are the view's parameters.
        compute: (trace, params) -> result. No IO, formatting or language.
        charts: (result, params, top) -> ECharts options by chart name.
        whole_run: `compute` takes all workers of a run, as (worker's name, trace), instead of one trace.
    """

    name: str
    order: int
    needs: Callable[[Trace], bool]
    params: type[Params]
    compute: Callable[[Any, Any], Result]
    charts: Callable[[Result, Any, int], dict[str, dict[str, object]]] | None = None
    whole_run: bool = False

    def __post_init__(self) -> None:
        """Prepares the type of the parameters, for the reason given in `reader.codec`."""
        msgspec.json.Decoder(self.params)

    def parse(self, given: Mapping[str, str]) -> Params:
        """The parameters as the view's own dataclass.

        Raises: BadParameter: an unknown name or a value of the wrong kind.
        """
        known = [f.name for f in fields(self.params)]
        for name in given:
            if name not in known:
                raise BadParameter(f"{self.name} has no parameter {name!r}", f"parameters: {', '.join(known)}")
        try:
            return msgspec.convert(dict(given), self.params, strict=False)
        except msgspec.ValidationError as error:
            raise BadParameter(f"{self.name}: {error}", f"parameters: {', '.join(known)}") from error


@cache
def all_views() -> tuple[View, ...]:
    """Every view of the folder, in the order of the tabs."""
    modules = (importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__))
    return tuple(sorted((m.VIEW for m in modules if hasattr(m, "VIEW")), key=lambda v: (v.order, v.name)))


def view(name: str) -> View:
    """The view of that name.

    Raises: NotFound.
    """
    for each in all_views():
        if each.name == name:
            return each
    raise NotFound(f"there is no view {name!r}", f"views: {', '.join(v.name for v in all_views())}")
