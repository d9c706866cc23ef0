"""Convert histograms to equal bins, and compute their quantiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visualprof.reader.run_data.histograms import Histogram
from visualprof.reader.trace import Floats

#: Shares of a normal distribution at -1.5 to 1.5 standard deviations, and the extremes, as in TensorBoard.
QUANTILES = (0.0, 0.0668, 0.1587, 0.3085, 0.5, 0.6915, 0.8413, 0.9332, 1.0)


def common_edges(histograms: Sequence[Histogram], bins: int) -> Floats:
    """Return equal bins that cover all histograms, (bins + 1,); (0,) if all are empty."""
    filled = [trim(histogram) for histogram in histograms if histogram.counts.sum() > 0]
    if not filled:
        return np.zeros(0)
    low, high = min(float(shape.edges[0]) for shape in filled), max(float(shape.edges[-1]) for shape in filled)
    if low == high:
        room = abs(low) * 0.01 or 0.5
        low, high = low - room, high + room
    return np.linspace(low, high, bins + 1)


def rebin(histogram: Histogram, edges: Floats) -> Floats:
    """Return the counts in other bins, (n,). Counts are spread evenly within a bucket, so their sum stays the same."""
    if not len(histogram.counts) or not len(edges):
        return np.zeros(max(len(edges) - 1, 0))
    cumulative: Floats = np.interp(edges, histogram.edges, _cumulative(histogram))
    return cumulative[1:] - cumulative[:-1]


def quantiles(histogram: Histogram, shares: Sequence[float] = QUANTILES) -> Floats:
    """Return the quantiles of a histogram at the given shares of its counts, NaN if the histogram is empty."""
    if histogram.counts.sum() <= 0:
        return np.full(len(shares), np.nan)
    trimmed = trim(histogram)
    cumulative = _cumulative(trimmed)
    counts: Floats = np.asarray(shares, np.float64) * cumulative[-1]
    values: Floats = np.interp(counts, cumulative, trimmed.edges)
    return values


def trim(histogram: Histogram) -> Histogram:
    """Return a histogram without its empty outer buckets."""
    filled = np.flatnonzero(histogram.counts)
    if not len(filled):
        return histogram
    first, end = int(filled[0]), int(filled[-1]) + 1
    return Histogram(histogram.edges[first : end + 1], histogram.counts[first:end])


def _cumulative(histogram: Histogram) -> Floats:
    return np.append(0.0, np.cumsum(histogram.counts))
