"""Attach the short names of kernels to answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import msgspec
import numpy as np

from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Trace
from visualprof.views.answers.kinds import kinds_of
from visualprof.views.answers.table import Answer, LazyTextColumn
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.launch import is_kernel
from visualprof.views.measure.names.kernel_names import short_names

MIN_CHARS = 20  # shorter names stay as they are, if no name is longer
KERNEL_OF_CHANGE = pattern(r"(?:^|; )kernel\[(?!name~)([^;]+)\][*=]")


@cached_on_trace
def trace_short_names(trace: Trace) -> dict[str, str]:
    """Return the short names of the kernels of a trace, unique among them. Names that stay as they are are left out."""
    if trace.meta.device_work != "kernel":
        return {}
    return short_names(trace.strings[int(i)] for i in distinct(trace.events.name[is_kernel(trace)]))


def add_short_names(answer: Answer, subject: object) -> Answer:
    """Add the short names of the kernels in the columns of an answer, unique in their trace or in the answer.

    Args:
        answer: An answer. Its texts keep the full names.
        subject: The trace of the answer; another subject if the names come from several traces.
    """
    changed_kernels = {kernel for text in _changes(answer) for kernel in KERNEL_OF_CHANGE.findall(text)}
    names = set(_long_names(answer)) | changed_kernels
    if names:
        short = trace_short_names(subject) if isinstance(subject, Trace) else short_names(names)
        answer.short_names = {name: short[name] for name in sorted(names) if name in short}
        answer.short_names |= _short_changes(names, short)
    return answer


def _short_changes(texts: Iterable[str], short: Mapping[str, str]) -> dict[str, str]:
    """Return the changes of a kernel, `kernel[NAME]*0.5`, with its short name, by their texts."""
    kernels = {text: text.removeprefix("kernel[").rpartition("]")[0] for text in sorted(texts)}
    return {
        text: f"kernel[{short[name]}]{text.rpartition(']')[2]}"
        for text, name in kernels.items()
        if text.startswith("kernel[") and name in short
    }


def _changes(answer: Answer) -> Iterator[str]:
    """Yield the changes of a replay that an answer proposes: of its rows, of its findings, and of all of them."""
    for table in answer.tables().values():
        yield from (str(text) for text in table.columns_by_name().get("change", ()) if text)
    for field in answer.__struct_fields__:
        value: object = getattr(answer, field)
        if field == "change" and isinstance(value, str):
            yield value
        for row in cast("list[object]", value) if isinstance(value, list) else [value]:
            yield from (text for text in [getattr(row, "change", None)] if isinstance(text, str))


def _long_names(answer: Answer) -> Iterator[str]:
    for table in answer.tables().values():
        for name, column in table.columns_by_name().items():
            is_name = table.kinds.get(name) == "name" or name.endswith("_name")
            if is_name and not isinstance(column, (LazyTextColumn, np.ndarray)):
                yield from _texts(column)

    for field in answer.__struct_fields__:
        yield from _row_names(getattr(answer, field))


def _row_names(rows: object) -> Iterator[str]:
    """Yield the names in a list of structures, such as the stragglers of a run."""
    for row in cast("list[object]", rows) if isinstance(rows, list) else ():
        if isinstance(row, msgspec.Struct):
            kinds = kinds_of(type(row))
            yield from _texts(getattr(row, name) for name in row.__struct_fields__ if kinds.get(name) == "name")


def _texts(values: Iterable[object]) -> Iterator[str]:
    return (value for value in values if isinstance(value, str) and len(value) >= MIN_CHARS)
