"""The work of a call: operations, bytes and the family of its operator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

from visualprof.views.measure.launches.operator_call import OperatorCall, Tensor

Family = Literal[
    "product",
    "convolution",
    "attention",
    "recurrent",
    "normalization",
    "softmax",
    "elementwise",
    "reduction",
    "lookup",
    "copy",
    "recorded",
    "unknown",
]
MODEL_FAMILIES: tuple[Family, ...] = (
    "product",
    "convolution",
    "attention",
    "recurrent",
    "recorded",
)  # counted as model FLOPs


class CallWork(NamedTuple):
    """Work of a call.

    Attributes:
        family: Family of the operator.
        flops: Operations, NaN where unknown.
        bytes: Bytes, NaN where unknown.
        type: Element type of the operands.
    """

    family: Family
    flops: float
    bytes: float
    type: str


UNKNOWN_WORK = CallWork("unknown", math.nan, math.nan, "")
Formula = Callable[[OperatorCall], CallWork]


def total_bytes(*tensors: Tensor) -> float:
    """Return the bytes of some tensors; NaN if the type of one is unknown."""
    return float(sum(tensor.bytes for tensor in tensors))
