"""The optimizer of a recorded training loop, by the name of its annotated ranges."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from visualprof.reader.trace import Category, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.columns.groups import distinct
from visualprof.views.measure.launches.launch import is_operator
from visualprof.views.measure.names.tensor_core import match_names

WITH_FUSED = re.compile(r"^Optimizer\.step#(?:Adam|AdamW|SGD|Adagrad)\.step$")  # optimizers of torch that take fused


class UnfusedOptimizer(NamedTuple):
    """Optimizer steps of PyTorch that could use the fused implementation and do not.

    Attributes:
        ranges: Annotated ranges of the steps.
        operators: Operators inside the ranges.
        range_names: Names of the ranges.
    """

    ranges: Rows
    operators: Rows
    range_names: list[str]

    @property
    def name(self) -> str:
        """Return the class of the first optimizer, such as `SGD`."""
        return self.range_names[0].removeprefix("Optimizer.step#").removesuffix(".step")

    @property
    def fused_code(self) -> str:
        """Return the code that creates the same optimizer with the fused implementation."""
        return f"torch.optim.{self.name}(parameters, fused=True)"


def unfused_optimizer(trace: Trace) -> UnfusedOptimizer | None:
    """Return the optimizer steps that could be fused; `None` without such steps, or if they are fused already."""
    events = trace.events
    is_range = (events.category == Category.OPTIMIZER) & trace.track_mask(TrackKind.THREAD)
    is_range &= match_names(trace, events.name, lambda name: WITH_FUSED.match(name) is not None)
    ranges = np.flatnonzero(is_range)
    if not len(ranges):
        return None
    operators = np.flatnonzero(is_operator(trace)).astype(np.int32)
    operators = operators[nearest_ancestor(events.parent, is_range, operators) >= 0]
    if not len(operators) or match_names(trace, events.name[operators], lambda name: "_fused_" in name).any():
        return None
    return UnfusedOptimizer(ranges, operators, [trace.strings[int(i)] for i in distinct(events.name[ranges])])
