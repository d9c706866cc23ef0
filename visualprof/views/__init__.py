"""Views: a trace in, columns out. One file a view, found by listing this folder."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, get_type_hints

import msgspec

from visualprof.errors import BadParameter, NotFound
from visualprof.messages import msg
from visualprof.reader.trace import Trace
from visualprof.views.answers.charts import Option
from visualprof.views.answers.table import Answer

Subject = Literal["trace", "run", "model", "reports"]


@dataclass(frozen=True)
class Params:
    """What every view can be asked: one step by name, or all."""

    step: str = ""


class View(msgspec.Struct, frozen=True):
    """One way to look at something.

    Args:
        name: id in addresses, on the command line and in the page's locales.
        order: place among the tabs.
        needs: says whether a trace has the data for it.
        params: a frozen dataclass; its fields are the view's parameters.
        compute: (subject, params) -> answer, of the type that it is annotated with. No IO, formatting or language.
        charts: (answer, params, top) -> ECharts options by chart name.
        subject: what `compute` takes: one trace, parts of all workers of a run as (worker's name, part), a model, or
            reports.
        part: of a view of a run, what `compute` takes of a worker's trace: a struct, which is kept, so that a thousand
            ranks are never in memory at once. With `asked` it is made for that, too.
        shows: says whether a part has the data for it.
        asked: what of the parameters a part depends on; "" for none.
        merge: of a view of a run, what `compute` takes in place of the parts of all workers: what no parameter changes,
            a few bytes a rank and step, which a server keeps while its user moves about.
        lacks: of a view of a run, a hint for one without data for it.
    """

    name: str
    order: int
    needs: Callable[[Trace], bool]
    params: type[Any]
    compute: Callable[[Any, Any], Answer]
    charts: Callable[[Any, Any, int], dict[str, Option]] | None = None
    subject: Subject = "trace"
    part: Callable[..., msgspec.Struct] | None = None
    shows: Callable[[Any], bool] = bool
    asked: Callable[[Any], str] | None = None
    merge: Callable[[Sequence[tuple[str, Any]]], msgspec.Struct] | None = None
    lacks: str = ""

    def __post_init__(self) -> None:
        """Prepare the type of the parameters, for the reason given in `reader.trace.codec`."""
        msgspec.json.Decoder(self.params)

    @property
    def answer(self) -> type[Answer]:
        """The type of what `compute` gives."""
        return get_type_hints(self.compute)["return"]

    def of_run(self, ranks: Sequence[tuple[str, Trace]], params: Any) -> Answer:
        """The answer of all workers of a run."""
        asked = self.asks(params)
        return self.of_parts([(name, self.of_worker(trace, asked)) for name, trace in ranks], params)

    def of_parts(self, parts: Sequence[tuple[str, Any]], params: Any) -> Answer:
        """The answer of the parts of all workers."""
        return self.compute(self.merge(parts) if self.merge else parts, params)

    def of_worker(self, trace: Trace, asked: str = "") -> msgspec.Struct:
        """The part of a worker. asked: as `asks`."""
        assert self.part
        return self.part(trace, asked) if self.asked else self.part(trace)

    def asks(self, params: Any) -> str:
        """What of the parameters the parts of workers depend on."""
        return self.asked(params) if self.asked else ""

    def parse(self, texts: Mapping[str, str]) -> Any:
        """The parameters as the view's own dataclass.

        Raises: BadParameter: an unknown name or a value of the wrong kind.
        """
        known = [f.name for f in fields(self.params)]
        for name in texts:
            if name not in known:
                raise BadParameter(
                    msg("views.no_parameter", f"{self.name} has no parameter {name!r}"),
                    msg("views.parameters", f"parameters: {', '.join(known)}"),
                )
        try:
            return msgspec.convert(dict(texts), self.params, strict=False)
        except msgspec.ValidationError as error:
            raise BadParameter(
                f"{self.name}: {error}", msg("views.parameters", f"parameters: {', '.join(known)}")
            ) from error


@cache
def _names() -> tuple[str, ...]:
    return tuple(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)


@cache
def all_views() -> tuple[View, ...]:
    """Every view of the folder, in the order of the tabs."""
    return tuple(sorted(map(view, _names()), key=lambda v: (v.order, v.name)))


def view(name: str) -> View:
    """The view of that name, which is that of its file: no other one is imported.

    Raises: NotFound.
    """
    if name not in _names():
        raise NotFound(
            msg("views.there_no_view", f"there is no view {name!r}"),
            msg("views.views", f"views: {', '.join(v.name for v in all_views())}"),
        )
    return importlib.import_module(f"{__name__}.{name}").VIEW
