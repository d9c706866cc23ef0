"""Project vectors to two or three dimensions, and find nearest neighbors.

t-SNE is exact: every pair of points attracts and repels, so its time grows with the square of the points.
Source: van der Maaten and Hinton, Visualizing Data using t-SNE (2008).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.trace import Floats, Ints

Method = Literal["pca", "tsne", "umap"]
Metric = Literal["cosine", "euclidean"]
Reals = NDArray[np.float32]
MAX_TSNE_POINTS = 3000
ITERATIONS = 500
_EXAGGERATION, _EXAGGERATED_ITERATIONS = 12.0, 125
_MAX_PCA_VALUES = 50  # dimensions that t-SNE sees, as in the projector of TensorBoard
_BISECTIONS = 50
_MIN_RATE = 10.0


class ProjectionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a projection.

    Attributes:
        vectors: (n, d) vectors.
        method: The method.
        dimensions: 2 or 3.
        perplexity: Number of neighbors that t-SNE tries to keep.
        seed: Seed of random numbers.
    """

    vectors: Any
    method: Method
    dimensions: int
    perplexity: float = 30.0
    seed: int = 0


class Projection(NamedTuple):
    """Positions of points.

    Attributes:
        position: (n, dimensions) positions, NaN for points that are left out.
        explained: Share of the variance per dimension; empty unless the method is PCA.
    """

    position: Reals
    explained: list[float]


def available_methods() -> list[Method]:
    """Return the methods; UMAP needs the package umap-learn."""
    return ["pca", "tsne", "umap"] if find_spec("umap") else ["pca", "tsne"]


def project(request: ProjectionRequest, progress: Callable[[float], None]) -> Projection:
    """Return the positions of points. Vectors with values that are not finite are left out."""
    vectors = np.asarray(request.vectors, np.float32)
    rows = np.flatnonzero(np.isfinite(vectors).all(axis=1))
    if request.method == "tsne" and len(rows) > MAX_TSNE_POINTS:
        rows = rows[np.linspace(0, len(rows) - 1, MAX_TSNE_POINTS).round().astype(np.int64)]
    position = np.full((len(vectors), request.dimensions), np.nan, np.float32)
    explained: list[float] = []
    if request.method == "pca":
        position[rows], explained = pca(vectors[rows], request.dimensions)
    elif request.method == "tsne":
        position[rows] = tsne(vectors[rows], request, progress)
    else:
        position[rows] = _umap(vectors[rows], request)
    return Projection(position, explained)


def pca(vectors: Reals, dimensions: int) -> tuple[Reals, list[float]]:
    """Return the positions on the main axes, (n, dimensions), and the share of the variance of each axis.

    An axis points so that its largest component is positive. Positions in dimensions without an axis are 0.
    """
    centered: Floats = vectors.astype(np.float64)
    centered -= centered.mean(axis=0) if len(centered) else 0.0
    transposed: Floats = np.transpose(centered)
    position: Floats = np.zeros((len(vectors), dimensions))
    if min(centered.shape) == 0:
        return position.astype(np.float32), [0.0] * dimensions
    is_wide = centered.shape[0] < centered.shape[1]  # the smaller product has the same eigenvalues
    products: Floats = np.matmul(centered, transposed) if is_wide else np.matmul(transposed, centered)
    values, axes = (np.asarray(part, np.float64) for part in np.linalg.eigh(products))
    if is_wide:
        axes = np.matmul(transposed, axes) / np.sqrt(np.maximum(values, 1e-30))
    order = np.argsort(values)[::-1][:dimensions]
    chosen: Floats = axes[:, order]
    chosen = chosen * np.where(chosen[np.abs(chosen).argmax(axis=0), np.arange(len(order))] < 0, -1, 1)
    position[:, : len(order)] = np.matmul(centered, chosen)
    total = float(np.maximum(values, 0).sum())
    shares = [float(max(values[i], 0)) / total if total > 0 else 0.0 for i in order.tolist()]
    return position.astype(np.float32), shares + [0.0] * (dimensions - len(shares))


def tsne(vectors: Reals, request: ProjectionRequest, progress: Callable[[float], None]) -> Reals:
    """Return the positions that minimize the divergence of the neighborhoods, (n, dimensions)."""
    count, dimensions = len(vectors), request.dimensions
    if count < 3:
        return pca(vectors, dimensions)[0]
    reduced = pca(vectors, min(_MAX_PCA_VALUES, vectors.shape[1]))[0]
    affinity = joint_affinities(_square_distances(reduced), min(request.perplexity, (count - 1) / 3))
    position = np.random.default_rng(request.seed).normal(0, 1e-4, (count, dimensions)).astype(np.float32)
    position += pca(vectors, dimensions)[0] / max(float(np.abs(reduced).max()), 1e-12) * 1e-4
    speed, gain = np.zeros_like(position), np.ones_like(position)
    rate = max(count / _EXAGGERATION / 4, _MIN_RATE)
    for iteration in range(ITERATIONS):
        is_early = iteration < _EXAGGERATED_ITERATIONS
        gradient = _gradient(position, affinity, _EXAGGERATION if is_early else 1.0)
        same = gradient * speed > 0
        gain = np.maximum(np.where(same, gain * 0.8, gain + 0.2), 0.01).astype(np.float32)
        speed = (0.5 if is_early else 0.8) * speed - rate * gain * gradient
        position = position + speed
        position -= position.mean(axis=0)
        progress((iteration + 1) / ITERATIONS)
    return position


def _gradient(position: Reals, affinity: Reals, exaggeration: float) -> Reals:
    weight = _square_distances(position)
    weight += 1
    np.reciprocal(weight, out=weight)
    np.fill_diagonal(weight, 0)
    force = affinity * np.float32(exaggeration)
    force -= weight / weight.sum()
    force *= weight
    return 4 * (force.sum(axis=1)[:, None] * position - np.matmul(force, position))


def _square_distances(points: Reals) -> Reals:
    norm = (points * points).sum(axis=1)
    distance: Reals = norm[:, None] + norm - 2 * np.matmul(points, np.transpose(points))
    return np.maximum(distance, 0, out=distance)


def joint_affinities(distance: Reals, perplexity: float) -> Reals:
    """Return the symmetric affinities of points, (n, n), which sum to 1.

    The width of each point's neighborhood is found by bisection, for all points at once.
    """
    count = len(distance)
    beta, low, high = np.ones((count, 1)), np.zeros((count, 1)), np.full((count, 1), np.inf)
    scale = float(distance.mean()) or 1.0
    scaled = (distance / scale).astype(np.float64)
    np.fill_diagonal(scaled, np.inf)
    nearest = scaled.min(axis=1, keepdims=True)
    weight = scaled
    for _ in range(_BISECTIONS):
        weight = np.exp(-(scaled - nearest) * beta)
        total = weight.sum(axis=1, keepdims=True)
        finite = np.where(np.isfinite(scaled), scaled - nearest, 0)
        entropy = np.log(total) + beta * (weight * finite).sum(axis=1, keepdims=True) / total
        is_wide = entropy > np.log(perplexity)
        low, high = np.where(is_wide, beta, low), np.where(is_wide, high, beta)
        beta = np.where(np.isinf(high), beta * 2, (low + high) / 2)
    conditional = weight / weight.sum(axis=1, keepdims=True)
    joint = (conditional + conditional.T) / (2 * count)
    return np.maximum(joint, 1e-12).astype(np.float32)


def _umap(vectors: Reals, request: ProjectionRequest) -> Reals:
    umap: Any = import_module("umap")  # an optional package of the user
    reducer = umap.UMAP(n_components=request.dimensions, random_state=request.seed)
    return np.asarray(reducer.fit_transform(vectors), np.float32)


def nearest(vectors: Reals, point: int, count: int, metric: Metric) -> tuple[Ints, Floats]:
    """Return the nearest points of a point, without itself, and their distances, ascending.

    The cosine distance is 1 - cos; that of a vector of zeros is NaN, and sorted last.
    """
    values = vectors.astype(np.float64)
    center = values[point]
    if metric == "euclidean":
        distance = np.sqrt(((values - center) ** 2).sum(axis=1))
    else:
        norm = np.sqrt((values * values).sum(axis=1) * (center @ center))
        distance = 1 - np.divide(values @ center, norm, out=np.full(len(values), np.nan), where=norm > 0)
    order = np.argsort(distance, kind="stable")
    order = order[order != point][:count]
    return order, distance[order]
