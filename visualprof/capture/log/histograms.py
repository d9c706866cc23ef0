"""Histograms of arrays."""

from __future__ import annotations

from functools import cache
from typing import Any

from visualprof.capture.log.arrays import as_array, numpy
from visualprof.capture.log.fields import content, double, doubles

_SMALLEST, _LARGEST, _GROWTH = 1e-12, 1e20, 1.1


@cache
def _exponential_edges() -> Any:
    """Return the edges that TensorBoard's writers use: 1.1 to integer powers, on both sides of 0."""
    np = numpy()
    edges: list[float] = []
    edge = _SMALLEST
    while edge < _LARGEST:
        edges.append(edge)
        edge *= _GROWTH
    return np.array([-edge for edge in reversed(edges)] + [0.0] + edges)


def histogram(tag: str, values: Any, bins: Any, max_bins: int | None) -> bytes:
    """Return the value of a histogram. Values that are not finite are left out.

    Args:
        tag: Name of the series.
        values: The values.
        bins: `tensorflow` for exponential buckets, else as for `numpy.histogram`.
        max_bins: Largest number of buckets; neighbors are combined.

    Raises:
        ValueError: There are no finite values.
    """
    np = numpy()
    flat = as_array(values).astype(np.float64).reshape(-1)
    flat = flat[np.isfinite(flat)]
    if not len(flat):
        raise ValueError("a histogram needs finite values")
    counts, edges = np.histogram(flat, _exponential_edges() if isinstance(bins, str) and bins == "tensorflow" else bins)
    if max_bins and len(counts) > max_bins:
        starts = np.arange(0, len(counts), -(-len(counts) // max_bins))
        counts, edges = np.add.reduceat(counts, starts), np.append(edges[starts], edges[-1])
    return content(1, tag) + content(5, _message(flat, counts, edges))


def raw_histogram(tag: str, edges: Any, counts: Any) -> bytes:
    """Return the value of a histogram of which only edges, (n + 1,), and counts, (n,), are known."""
    np = numpy()
    counts, edges = np.asarray(counts, np.float64), np.asarray(edges, np.float64)
    return content(1, tag) + content(5, _message(np.repeat(edges[:-1], 0), counts, edges))


def _message(values: Any, counts: Any, edges: Any) -> bytes:
    """Return a `HistogramProto`. Its first bucket is empty, because the message has only right edges."""
    np = numpy()
    filled = np.flatnonzero(counts)
    first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (0, len(counts) - 1)
    counts, edges = counts[first : last + 1], edges[first : last + 2]
    middle = (edges[1:] + edges[:-1]) / 2
    is_known = len(values) > 0
    low, high = (values.min(), values.max()) if is_known else (edges[0], edges[-1])
    total = values.sum() if is_known else (middle * counts).sum()
    squares = values.dot(values) if is_known else (middle**2 * counts).sum()
    numbers = (low, high, counts.sum(), total, squares)
    head = b"".join(double(field, float(number)) for field, number in enumerate(numbers, 1))
    return head + doubles(6, edges.tolist()) + doubles(7, [0.0, *counts.tolist()])
