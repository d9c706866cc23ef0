"""The exponential moving average with which TensorBoard smooths scalars, over all points of a line."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Floats, Values

MAX_SMOOTHING = 0.999
_BLOCK = 64


def smooth(values: Values, weight: float) -> Floats:
    """Return the debiased exponential moving average, (n,).

    A line with equal values stays as it is. Values that are not finite stay as they are and do not enter the average.

    Args:
        values: (n,) values in the order of their steps.
        weight: Weight of the previous average, 0 to `MAX_SMOOTHING`.

    Source: tensorboard/webapp/widgets/line_chart_v2, data_transformer.ts; docs/views/scalars.md
    """
    smoothed: Floats = values.astype(np.float64)
    rows = np.flatnonzero(np.isfinite(smoothed))
    if weight <= 0 or not len(rows) or (smoothed == smoothed[0]).all():
        return smoothed
    average = _recursion(smoothed[rows], weight)
    smoothed[rows] = average / (1 - np.power(weight, np.arange(1, len(rows) + 1)))
    return smoothed


def _recursion(values: Floats, weight: float) -> Floats:
    """Return l[i] = weight * l[i - 1] + (1 - weight) * values[i] with l[-1] = 0, (n,).

    Blocks of values are multiplied by the matrix of the weights, so Python loops over blocks only.
    """
    padded = np.zeros((-(-len(values) // _BLOCK), _BLOCK))
    padded.flat[: len(values)] = values
    distance = np.arange(_BLOCK)[:, None] - np.arange(_BLOCK)
    decay_at: Floats = np.array([weight**i for i in range(_BLOCK)])
    weights: Floats = np.zeros((_BLOCK, _BLOCK))
    weights[distance >= 0] = (1 - weight) * decay_at[distance[distance >= 0]]
    result: Floats = np.einsum("ij,kj->ik", padded, weights)
    carry, decay = 0.0, np.power(weight, np.arange(1, _BLOCK + 1))
    for row in range(len(result)):
        result[row] += carry * decay
        carry = float(result[row, -1])
    return result.ravel()[: len(values)]
