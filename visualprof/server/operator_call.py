"""A call of an operator that can be run alone, of what the view `calls` shows of a profile."""

from __future__ import annotations

import math

from visualprof.errors import MissingData, NotFound
from visualprof.remote.operators import RECORDED, Call, kineto_call
from visualprof.views.calls import CallsAnswer


def call_of(answer: CallsAnswer, operator: str, number: int) -> Call:
    """The call of that operator that is its `number`th, the longest first.

    Args: answer: of the view, for that operator.
    Raises: NotFound: there is none. MissingData: it cannot be run alone; the message says why.
    """
    columns = answer.columns
    if not 0 <= number < len(columns.name):
        count = len(columns.name)
        there = f"it has {count} that differ, from 0" if count else "the view calls lists the operators"
        raise NotFound(f"the profile has no call {number} of {operator[:100]!r}", there)
    texts = columns.input_shapes, columns.input_strides, columns.input_types, columns.input_values
    shapes, strides, types, values = (str(text[number] or "") for text in texts)
    recorded: dict[str, object] = {name: _known(getattr(columns, name)[number]) for name in RECORDED}
    try:
        return kineto_call(operator, shapes, strides, types, values, {**recorded, "device": answer.device or ""})
    except ValueError as error:
        raise MissingData(str(error), "docs/replay.md says what can be run alone") from None


def _known(value: float | None) -> int | None:
    """A whole number of ns or calls; None where it is unknown."""
    return None if value is None or math.isnan(value) else round(value)
