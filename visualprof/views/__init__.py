"""Views: functions from a trace to columns. Each file of this folder is a view; they are found by listing it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, get_type_hints

import msgspec

from visualprof.errors import BadParameter, NotFound
from visualprof.messages import msg
from visualprof.reader.trace import Trace
from visualprof.views.answers.charts import Option
from visualprof.views.answers.table import Answer

Subject = Literal["trace", "run", "model", "reports", "data"]
LoadParts = Callable[[], Sequence[tuple[str, Any]]]  # workers with their parts; empty if the view has no data


@dataclass(frozen=True)
class Params:
    """Parameters of every view.

    Attributes:
        step: Name of a step; "" for all steps.
    """

    step: str = ""


class View(msgspec.Struct, frozen=True):
    """Definition of a view of a trace, a model, reports or run data. `RunView` is a view of all workers of a run.

    Attributes:
        name: Id in addresses, on the command line and in the locales of the web UI.
        order: Position among the tabs.
        needs: Return whether a trace has the data for the view.
        params: A frozen dataclass. Its fields are the view's parameters.
        compute: Return the answer for (subject, params). The return annotation declares the type of the answer. No IO,
            no formatting, no language.
        charts: Return ECharts options by chart name for (answer, params, top).
        subject: Input of `compute`.
        run_view: Name of the view of runs whose input `join` takes.
        join: Complete the answer for a trace by facts about the other ranks, for (answer, input of `run_view`, worker,
            function that loads the parts of `replay_view`).
        replay_view: Name of the view of runs whose parts `join` may load, which takes longer than for `run_view`.
    """

    name: str
    order: int
    needs: Callable[[Trace], bool]
    params: type[Any]
    compute: Callable[[Any, Any], Answer]
    charts: Callable[[Any, Any, int], dict[str, Option]] | None = None
    subject: Subject = "trace"
    run_view: str = ""
    join: Callable[[Any, Any, str, LoadParts], Answer] | None = None
    replay_view: str = ""

    def __post_init__(self) -> None:
        """Prepare the type of the parameters, for the reason given in `reader.trace.codec`."""
        msgspec.json.Decoder(self.params)

    @property
    def answer_type(self) -> type[Answer]:
        """The return type of `compute`."""
        return get_type_hints(self.compute)["return"]

    def answer(self, subject: Any, params: Any) -> Answer:
        """Return the answer for a subject: compute it, and add the short names of kernels."""
        from visualprof.views.measure.launches.answer_names import add_short_names

        return add_short_names(self.compute(subject, params), subject)

    def parse(self, texts: Mapping[str, str]) -> Any:
        """Return the parameters as the view's dataclass.

        Raises:
            BadParameter: A name is unknown, or a value has the wrong type.
        """
        names = [f.name for f in fields(self.params)]
        for name in texts:
            if name not in names:
                raise BadParameter(
                    msg("views.no_parameter", f"{self.name} has no parameter {name!r}"),
                    msg("views.parameters", f"parameters: {', '.join(names)}"),
                )
        try:
            return msgspec.convert(dict(texts), self.params, strict=False)
        except msgspec.ValidationError as error:
            raise BadParameter(
                f"{self.name}: {error}", msg("views.parameters", f"parameters: {', '.join(names)}")
            ) from error


class RunView(View, frozen=True, kw_only=True):
    """Definition of a view of a run: map-reduce over its workers.

    `map` turns each worker's trace into a small part, `reduce` combines the parts, and `compute` makes the answer.
    Parts are cached, so a thousand ranks are never in memory at once.

    Attributes:
        map: Return the part of one worker's trace, a struct that is cached. With `part_key`, it also takes the key.
        has_data: Return whether a part has the data for the view.
        has_run_data: Return whether workers of these names have the data for the view together, whatever their parts.
        part_key: Return the parameters that the parts depend on, as a string; "" for none.
        reduce: Combine the parts of all workers into the input of `compute`, otherwise a list of (worker name, part).
            The result depends on no parameter and takes a few bytes per rank and step, so the server caches it for all
            parameters.
        empty_hint: The hint for a run without data for the view.
    """

    subject: Subject = "run"
    map: Callable[..., msgspec.Struct]
    has_data: Callable[[Any], bool] = bool
    has_run_data: Callable[[Iterable[str]], bool] | None = None
    part_key: Callable[[Any], str] | None = None
    reduce: Callable[[Sequence[tuple[str, Any]]], msgspec.Struct] | None = None
    empty_hint: str = ""

    def compute_from_traces(self, ranks: Sequence[tuple[str, Trace]], params: Any) -> Answer:
        """Return the answer for the traces of all workers: map, reduce and compute."""
        key = self.part_key_for(params)
        return self.compute_from_parts([(name, self.map_worker(trace, key)) for name, trace in ranks], params)

    def compute_from_parts(self, parts: Sequence[tuple[str, Any]], params: Any) -> Answer:
        """Return the answer for the parts of all workers: reduce and compute."""
        return self.answer(self.reduce(parts) if self.reduce else parts, params)

    def map_worker(self, trace: Trace, key: str = "") -> msgspec.Struct:
        """Return the part of one worker.

        Args:
            trace: The worker's trace.
            key: Result of `part_key_for`.
        """
        return self.map(trace, key) if self.part_key else self.map(trace)

    def is_in_run(self, workers: Iterable[str], has_data: bool) -> bool:
        """Return whether a run has the data for the view.

        Args:
            workers: Names of the workers.
            has_data: Whether any worker has the data.
        """
        return has_data or (self.has_run_data is not None and self.has_run_data(workers))

    def part_key_for(self, params: Any) -> str:
        """Return the parameters that the parts of the workers depend on, as a string."""
        return self.part_key(params) if self.part_key else ""


@cache
def _names() -> tuple[str, ...]:
    return tuple(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)


@cache
def all_views() -> tuple[View, ...]:
    """Return the views of this folder in the order of the tabs."""
    return tuple(sorted(map(view, _names()), key=lambda v: (v.order, v.name)))


def view(name: str) -> View:
    """Return the view with this name. The name is that of its module, so only this module is imported.

    Raises:
        NotFound: There is no such view.
    """
    if name not in _names():
        raise NotFound(
            msg("views.there_no_view", f"there is no view {name!r}"),
            msg("views.views", f"views: {', '.join(v.name for v in all_views())}"),
        )
    return importlib.import_module(f"{__name__}.{name}").VIEW


def run_view(name: str) -> RunView:
    """Return the view of runs with this name."""
    chosen = view(name)
    assert isinstance(chosen, RunView)
    return chosen
