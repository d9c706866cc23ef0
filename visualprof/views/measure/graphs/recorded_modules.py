"""The modules that a recording called, as a model graph for recordings without a model file."""

from __future__ import annotations

import re

from visualprof.reader.graph import ModelBuilder, ModelGraph, Node, Scope, Value
from visualprof.reader.trace import Category, Trace
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.operators.call_paths import call_paths, is_scope

_PREFIX = "nn.Module: "
_INSTANCE = re.compile(r"_\d+$")


def records_modules(trace: Trace) -> bool:
    """Return whether the recording has calls of modules."""
    return bool(((trace.events.category == Category.MODULE) & is_scope(trace)).any())


@cached_on_trace
def recorded_modules(trace: Trace) -> ModelGraph:
    """Return the modules of a recording. Modules that call no others are nodes, the others are groups.

    A file records no data flow, so an edge leads from each module to the next call. A module that is
    called in several places is where it is called first.
    """
    tree = call_paths(trace, (trace.events.category == Category.MODULE) & is_scope(trace))
    names = [trace.strings[int(name)] for name in tree.name]
    first_path: dict[str, int] = {}
    for path, name in enumerate(names):
        first_path.setdefault(name, path)
    first_paths = set(first_path.values())
    parents: list[int] = tree.parent.tolist()
    callers = {parents[path] for path in first_paths}
    labels = [name.removeprefix(_PREFIX) for name in names]
    scopes: list[tuple[Scope, ...]] = []
    builder = ModelBuilder("modules", "modules")
    last_value: int | None = None
    for path, label in enumerate(labels):
        scope = (*scopes[parents[path]], Scope(labels[parents[path]])) if parents[path] >= 0 else ()
        scopes.append(scope)
        if path not in first_paths or path in callers:
            continue
        value = builder.value(Value(label))
        full_name = "/".join((*(level.name for level in scope), label))
        builder.node(
            Node(
                full_name,
                _INSTANCE.sub("", label),
                scope,
                inputs=() if last_value is None else (last_value,),
                outputs=(value,),
                attributes={"profile_name": names[path]},
            )
        )
        last_value = value
    return builder.build()
