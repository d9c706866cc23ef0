"""Tables of events: slice, kernel, op, copy, range, module and python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from visualprof.query import origins
from visualprof.query.tables.columns import Builder, Values, event_ids, words
from visualprof.reader.trace import Category, Ids, Ints, Mask, Rows, Trace, TrackKind
from visualprof.views.measure.launches.launch import (
    OperatorTimes,
    is_first_of_launch,
    is_kernel,
    is_operator,
    launch_delays,
    launches,
    operator_times,
)
from visualprof.views.measure.names.operand_shapes import shapes_argument
from visualprof.views.measure.operators.call_paths import CallPaths, path_labels, path_texts
from visualprof.views.measure.operators.stacks import CallStacks

CATEGORY_NAMES = tuple(category.name.lower() for category in Category)


class EventTable:
    """A table of some events of a trace. Subclasses add columns."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @cached_property
    def rows(self) -> Rows:
        """Return the rows of the events."""
        raise NotImplementedError

    def take(self, column: Rows) -> Rows:
        """Return the values of a column of all events at the rows of the table."""
        return column[self.rows]

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        events = self.trace.events
        return {
            "id": lambda: event_ids(self.rows.astype(np.int32)),
            "ts": lambda: Values(self.take(events.ts), "time"),
            "dur": lambda: Values(self._durations()),
            "name": lambda: Values(self.take(events.name), "text"),
            "category": lambda: words(self.take(events.category), CATEGORY_NAMES),
            "track_id": lambda: Values(self.take(events.track), "track"),
            "depth": lambda: Values(self.take(events.depth)),
            "parent_id": lambda: event_ids(self.take(events.parent)),
            "step_id": lambda: Values(self.take(events.step), "step", -1),
            "step": lambda: Values(step_names(self.trace)[self.take(events.step)], "text"),
            "device": lambda: Values(self._of_track([track.device for track in self.trace.tracks]), missing=-1),
            "stream": lambda: Values(self._of_track([track.stream for track in self.trace.tracks]), missing=-1),
            "launch_id": lambda: event_ids(self.take(origins.launch_calls(self.trace))),
            **self._origin_builders(),
        }

    def _origin_builders(self) -> dict[str, Builder]:
        trace = self.trace

        def module(texts: Callable[[CallPaths, Sequence[str]], list[str]]) -> Values:
            paths = origins.module_paths(trace)
            return words(self.take(origins.module_path_ids(trace)), texts(paths, trace.strings))

        return {
            "op_id": lambda: event_ids(self.take(origins.operators(trace))),
            "op": lambda: Values(names_of(trace, self.take(origins.operators(trace))), "text"),
            "module_id": lambda: event_ids(self.take(origins.modules(trace))),
            "module": lambda: module(path_labels),
            "module_path": lambda: module(path_texts),
            "backward": lambda: Values(self._is_backward()),
            "range_id": lambda: event_ids(self.take(origins.user_ranges(trace))),
            "range": lambda: Values(names_of(trace, self.take(origins.user_ranges(trace))), "text"),
        }

    def argument(self, name: str) -> Builder:
        """Return a builder of a numeric argument."""

        def build() -> Values | None:
            column = self.trace.args.get(name)
            return None if column is None or column.text else Values(column.values_at(self.rows, np.nan))

        return build

    def text_argument(self, name: str) -> Builder:
        """Return a builder of an argument that is a text."""

        def build() -> Values | None:
            column = self.trace.args.get(name)
            return Values(column.values_at(self.rows, -1), "text") if column is not None and column.text else None

        return build

    def _durations(self) -> Ints:
        return np.maximum(self.take(self.trace.events.dur), 0)

    def _is_backward(self) -> Mask:
        return self.take(origins.backward_sites(self.trace)) >= 0

    def _of_track(self, values: list[int]) -> Ints:
        return np.array(values or [0], np.int64)[self.take(self.trace.events.track)]


class SliceTable(EventTable):
    """All events. Columns of the trace are used as they are, without a copy."""

    @cached_property
    def rows(self) -> Rows:
        """Return all rows."""
        return np.arange(len(self.trace.events), dtype=np.int32)

    def take(self, column: Rows) -> Rows:
        """Return the column itself."""
        return column

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        return {
            **super().builders(),
            "arg_set_id": lambda: event_ids(self.rows),
            "correlation": lambda: Values(self.trace.events.corr, missing=0),
        }

    def _durations(self) -> Ints:
        durations = self.trace.events.dur
        return durations if not len(durations) or int(durations.min()) >= 0 else np.maximum(durations, 0)


class KernelTable(EventTable):
    """Kernels."""

    @cached_property
    def rows(self) -> Rows:
        """Return the rows of kernels on devices."""
        return np.flatnonzero(is_kernel(self.trace))

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        return {
            **super().builders(),
            "launch_delay": self._launch_delays,
            **{name: self.text_argument(name) for name in ("grid", "block")},
            **{
                name: self.argument(name)
                for name in ("registers", "shared_memory", "blocks_per_sm", "occupancy", "bytes", "flops")
            },
        }

    def _launch_delays(self) -> Values:
        trace = self.trace
        launched = launches(trace)
        delays = np.full(len(trace.events), np.nan)
        measured = launch_delays(trace, launched.call, launched.work)
        delays[launched.work] = np.where(is_first_of_launch(trace), measured, np.nan)
        return Values(delays[self.rows])


class CopyTable(EventTable):
    """Copies and fills."""

    @cached_property
    def rows(self) -> Rows:
        """Return the rows of copies and fills on devices."""
        events = self.trace.events
        is_copy = events.category_mask(Category.MEMCPY, Category.MEMSET) & self.trace.track_mask(TrackKind.STREAM)
        return np.flatnonzero(is_copy & (events.dur >= 0))

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        return {**super().builders(), "bytes": self.argument("bytes"), "bandwidth": self._bandwidths}

    def _bandwidths(self) -> Values | None:
        size = self.argument("bytes")()
        if size is None:
            return None
        duration = self._durations().astype(np.float64)
        return Values(np.where(duration > 0, size.array / np.maximum(duration, 1) * 1e9, np.nan))


class OperatorTable(EventTable):
    """Operators."""

    @cached_property
    def rows(self) -> Rows:
        """Return the rows of operators."""
        return np.flatnonzero(is_operator(self.trace))

    @cached_property
    def times(self) -> OperatorTimes:
        """Return the times of the operators, in the order of `rows`."""
        return operator_times(self.trace, launches(self.trace))

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        return {
            **super().builders(),
            "parent_id": lambda: event_ids(np.append(self.times.rows, np.int32(-1))[self.times.parent]),
            "outermost": lambda: Values(self.times.parent < 0),
            "self_dur": lambda: Values(self.times.host_self),
            "device_dur": lambda: Values(self.times.device_total),
            "device_self_dur": lambda: Values(self.times.device_self),
            "input_shapes": self.text_argument(shapes_argument(self.trace)),
            **{name: self.text_argument(name) for name in ("input_types", "output_shapes")},
            **{name: self.argument(name) for name in ("bytes", "flops")},
            "stack": lambda: stack_values(self.trace, self.rows.astype(np.int32)),
        }


class PythonTable(EventTable):
    """Calls of Python functions."""

    @cached_property
    def rows(self) -> Rows:
        """Return the rows of Python calls."""
        events = self.trace.events
        return np.flatnonzero(events.category_mask(Category.PYTHON) & (events.dur >= 0))


class NestedTable(EventTable):
    """Modules or user ranges, with the device work that was launched inside."""

    is_member: Callable[[Trace], Mask]
    innermost: Callable[[Trace], Ids]
    paths: Callable[[Trace], CallPaths]

    @cached_property
    def rows(self) -> Rows:
        """Return the rows of the members."""
        return np.flatnonzero(type(self).is_member(self.trace))

    @cached_property
    def spans(self) -> tuple[Ints, Ints, Ints]:
        """Return start, end and covered time of the device work inside each member."""
        return origins.device_spans(self.trace, type(self).is_member(self.trace), self.rows)

    def builders(self) -> dict[str, Builder]:
        """Return the functions that build the columns, by name."""
        return {
            **super().builders(),
            "parent_id": self._parents,
            "path": lambda: words(self._paths.path_ids[self.rows], path_texts(self._paths, self.trace.strings)),
            "device_start": lambda: Values(self.spans[0], "time", origins.NO_TIME),
            "device_end": lambda: Values(self.spans[1], "time", origins.NO_TIME),
            "device_dur": lambda: Values(self.spans[2]),
        }

    @property
    def _paths(self) -> CallPaths:
        return type(self).paths(self.trace)

    def _parents(self) -> Values:
        parent = self.trace.events.parent[self.rows]
        return event_ids(np.append(type(self).innermost(self.trace), np.int32(-1))[parent])


class ModuleTable(NestedTable):
    """Calls of modules."""

    is_member = staticmethod(origins.is_module)
    innermost = staticmethod(origins.modules)
    paths = staticmethod(origins.module_paths)


class RangeTable(NestedTable):
    """User ranges."""

    is_member = staticmethod(origins.is_range)
    innermost = staticmethod(origins.user_ranges)
    paths = staticmethod(origins.range_paths)


def names_of(trace: Trace, rows: Rows) -> Rows:
    """Return the string ids of the names of events, -1 for row -1."""
    return np.where(rows >= 0, trace.events.name[rows], np.int32(-1)) if len(trace.events) else rows


def step_names(trace: Trace) -> Ids:
    """Return the string id of the name of each step; the last entry, for events outside of steps, is -1."""
    return np.append(trace.steps.name, np.int32(-1)).astype(np.int32)


def stack_values(trace: Trace, rows: Ids) -> Values:
    """Return the call stacks of operators."""
    stacks = CallStacks(trace)
    numbers = stacks.source_ids(rows)
    distinct, index = np.unique(numbers, return_inverse=True)
    has_stack = distinct >= 0
    texts = [stacks.stack_text(number) for number in distinct[has_stack].tolist()]
    return words(index - int((~has_stack).sum()), texts)
