"""Input shapes of operators, by whatever name the recording has for them."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Ids, Ints, Trace

SHAPE_NAMES = ("input_shapes", "operand_shapes")  # MegEngine's timelines have operands: inputs and weights


def shapes_argument(trace: Trace) -> str:
    """Return the name of the trace's argument with the input shapes of operators."""
    return next((name for name in SHAPE_NAMES if name in trace.args), SHAPE_NAMES[0])


def input_shape_ids(trace: Trace, rows: Ids) -> Ints:
    """Return the string ids of the input shapes of operators, (n,); 0 where they are unknown."""
    return trace.arg(shapes_argument(trace), rows, 0).astype(np.int64)
