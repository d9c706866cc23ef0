"""Histograms of TensorBoard (both versions) and VisualDL as edges and counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from visualprof.reader.protobuf import ProtobufError
from visualprof.reader.run_data import events
from visualprof.reader.run_data.samples import StoredValue
from visualprof.reader.run_data.tensors import tensor_values
from visualprof.reader.trace import Floats

_MIN, _MAX, _LIMITS, _COUNTS = 1, 2, 6, 7  # fields of `HistogramProto`
_HIST, _EDGES = 1, 2  # fields of VisualDL's `Histogram`


class Histogram(NamedTuple):
    """A histogram.

    Attributes:
        edges: (n + 1,) ascending edges; equal edges enclose a bucket without width.
        counts: (n,) counts.
    """

    edges: Floats
    counts: Floats


def parse_histogram(value: StoredValue) -> Histogram:
    """Return the histogram of a value.

    Raises:
        ProtobufError: The value is not a histogram.
    """
    body = value.body
    if value.file_kind == "visualdl":
        edges, counts = np.array(list(body.reals(_EDGES, 8))), np.array(list(body.reals(_HIST, 8)))
    elif value.field == events.TENSOR:
        rows = tensor_values(body)
        if len(rows) % 3:
            raise ProtobufError("a histogram of a wrong shape")
        edges, counts = np.append(rows[:1], rows[1::3]), rows[2::3]
    else:
        # The first bucket is open to the left and the last one to the right, so the extremes are the outer edges.
        low, high = body.real(_MIN), body.real(_MAX)
        limits, counts = np.array(list(body.reals(_LIMITS, 8))), np.array(list(body.reals(_COUNTS, 8)))
        edges = np.append(low, limits)
        edges = np.clip(edges, low, high) if low <= high else edges
    return _checked(edges, counts)


def _checked(edges: Floats, counts: Floats) -> Histogram:
    if len(edges) != len(counts) + 1 and (len(edges) > 1 or len(counts)):
        raise ProtobufError(f"a histogram of {len(counts)} counts and {len(edges)} edges")
    if not (np.isfinite(edges).all() and np.isfinite(counts).all() and (counts >= 0).all()):
        raise ProtobufError("a histogram with values that are not finite")
    if (np.diff(edges) < 0).any():
        raise ProtobufError("a histogram with edges that are not ascending")
    return Histogram(edges, counts)
