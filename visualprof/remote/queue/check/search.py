"""Validation of a job's search: the settings exist in its runtimes, and the constraints are valid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from visualprof.messages import msg
from visualprof.remote.backends import Backend, all_backends
from visualprof.remote.child.search.space import NO_CONVERSION, search_space
from visualprof.remote.constraints import parse_constraint
from visualprof.remote.converters import all_converters
from visualprof.remote.protocol import Request
from visualprof.remote.queue.check.inspect import InspectedModel
from visualprof.remote.queue.check.limits import MAX_NAME, MAX_VALUES
from visualprof.remote.queue.check.load_limits import MAX_LANES
from visualprof.remote.queue.check.request_json import FieldError, suggest

MAX_AXES = 16
MAX_SETTINGS = 1_000_000
MAX_WHERE = 16
MAX_THREADS = 1024


def search_errors(request: Request, model: InspectedModel | None) -> Iterator[FieldError]:
    """Yield errors of a job's search."""
    search = request.search
    if not search.objective:
        return
    if len(search.over) > MAX_AXES or len(search.where) > MAX_WHERE:
        yield FieldError(
            "search", msg("queue.over_settings_constraints", f"has over {MAX_AXES} settings or constraints")
        )
        return
    for i, text in enumerate(search.where):
        try:
            parse_constraint(text)
        except ValueError as error:  # noqa: PERF203 - each alone
            yield FieldError(f"search.where[{i}]", *error.args)
    backends_by_name = {backend.name: backend for backend in all_backends()}
    backends = [
        backends_by_name[name]
        for name in dict.fromkeys(spec.backend for spec in request.specs)
        if name in backends_by_name
    ]
    wrong = list(chain.from_iterable(_axis(name, values, backends, model) for name, values in search.over.items()))
    yield from wrong
    if search.objective == "size" and "conversion" not in search.over:
        error = msg("queue.size_differs_conversions_alone", "the size differs by conversions alone")
        yield FieldError(
            "search.objective",
            error,
            msg("queue.search_over_some_conversion", "search over some: conversion=none, onnx_fp16"),
        )
    if not wrong:
        yield from _grid(request)


def _axis(
    name: str, values: Sequence[str], backends: Sequence[Backend], model: InspectedModel | None
) -> Iterator[FieldError]:
    """Yield errors of one setting and its values."""
    path = f"search.over.{name[:MAX_NAME]}"
    if not 1 <= len(values) <= MAX_VALUES or len(set(values)) < len(values):
        yield FieldError(
            path,
            msg("queue.values", f"has {len(values)} values"),
            msg("queue.allowed_1_different_ones", f"allowed: 1 to {MAX_VALUES} different ones"),
        )
        return
    for backend in backends:
        yield from _value_errors(backend, path, name, values, model)


def _value_errors(
    backend: Backend, path: str, name: str, values: Sequence[str], model: InspectedModel | None
) -> Iterator[FieldError]:
    if name in ("threads", "streams"):
        most = MAX_THREADS if name == "threads" else MAX_LANES if backend.concurrent_sessions else 1
        if bad := next((v for v in values if not (v.isascii() and v.isdecimal() and 1 <= int(v[:9]) <= most)), None):
            yield FieldError(
                path, msg("queue.none_can", f"{bad[:40]!r} is not a valid value for {backend.name}"), f"1 to {most}"
            )
        return
    allowed: Sequence[str] | None = backend.options.get(name)
    if name == "precision":
        allowed = backend.precisions
    elif name == "conversion":
        usable = (
            converter
            for converter in all_converters()
            if converter.makes in backend.formats and not converter.calibrates
        )
        fitting = (converter for converter in usable if model is None or converter.takes == model.format)
        allowed = [
            NO_CONVERSION,
            *(converter.name for converter in fitting if backend.name in (converter.runtimes or (backend.name,))),
        ]
    elif allowed is None:
        settings = ["threads", "streams", "precision", "conversion", *backend.options]
        yield FieldError(
            path, msg("queue.no_such_setting", f"{backend.name} has no such setting"), suggest(name, settings)
        )
        return
    if allowed and (bad := next((value for value in values if value not in allowed), None)) is not None:
        yield FieldError(
            path,
            msg("queue.none_can", f"{bad[:80]!r} is not a valid value for {backend.name}"),
            msg("queue.one", f"choose from {', '.join(allowed)}"),
        )
    elif any(len(value) > MAX_NAME or not value.isprintable() for value in values):
        yield FieldError(
            path,
            msg(
                "queue.must_most_characters_none",
                f"must have at most {MAX_NAME} characters, and none that cannot be shown",
            ),
        )


def _grid(request: Request) -> Iterator[FieldError]:
    """Yield an error if there are too many settings, or only one."""
    size = search_space(request.search, request.sweep.values).size
    if size > MAX_SETTINGS:
        yield FieldError(
            "search.over",
            msg("queue.settings", f"has {size:,} settings"),
            msg("queue.most", f"at most {MAX_SETTINGS:,}"),
        )
    elif size == 1:
        yield FieldError(
            "search.over",
            msg("queue.one_setting_alone", "has one setting alone"),
            msg("queue.give_several_sizes_threads", "give several sizes, threads=1:4 or another setting"),
        )
