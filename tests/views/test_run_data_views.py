"""Views of run data other than scalars, and their arithmetic."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from visualprof.errors import MissingData
from visualprof.reader.run_data.curves import CurveCounts
from visualprof.reader.run_data.folders import DataFile, is_data_name
from visualprof.reader.run_data.histograms import Histogram
from visualprof.reader.run_data.run import RunData
from visualprof.views import view
from visualprof.views.measure.run_data import projection
from visualprof.views.measure.run_data.bins import common_edges, quantiles, rebin
from visualprof.views.measure.run_data.correlation import Effect, effect_of, rank
from visualprof.views.measure.run_data.projection import ProjectionRequest, joint_affinities, nearest, pca, project
from visualprof.views.measure.run_data.rates import areas_of, rates_of

SAMPLES = Path(__file__).parents[1] / "fixtures" / "run_data"
EXPECTED = {name: json.loads((SAMPLES / name / "expected.json").read_text()) for name in ("tensorboard", "visualdl")}


def answer(name: str, sample: str, **params: str) -> Any:
    folder, data, chosen = SAMPLES / sample, RunData(), view(name)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and is_data_name(path.name)]
    data.update([DataFile(str(path.parent.relative_to(folder)).removeprefix("."), str(path)) for path in paths])
    shown: Any = chosen.answer(data, chosen.parse(params))
    return shown.columns


def test_samples_are_described() -> None:
    columns = answer("samples", "visualdl/kinds", tag="^(note|picture|tone)$")
    rows = list(zip(columns.tag, columns.kind, columns.step, columns.width, columns.frames, strict=True))
    assert rows == [
        ("note", "text", 2, None, None),
        ("picture", "image", 0, 6, None),
        ("picture", "image", 5, 6, None),
        ("picture", "image", 10, 6, None),
        ("tone", "audio", 3, None, 800),
    ]
    assert columns.text[0] == EXPECTED["visualdl"]["kinds"]["text"]["note"]["text"]
    assert columns.wall_time_s[0] == 1_800_000_000.5


def test_quantiles_of_histograms_are_those_of_the_values() -> None:
    columns = answer("distributions", "tensorboard/torch", tag="weights/w1")
    normal = EXPECTED["tensorboard"]["torch"]["histogram"]["weights/w1"]
    assert (columns.count, columns.step) == ([normal["num"]], [3])
    assert columns.min[0] == pytest.approx(normal["min"], abs=0.1)
    assert columns.max[0] == pytest.approx(normal["max"], abs=0.1)
    assert columns.median[0] == pytest.approx(normal["sum"] / normal["num"], abs=0.1)  # a normal distribution
    assert columns.p95[0] == pytest.approx(1.645, abs=0.15)


def test_areas_are_computed_from_counts() -> None:
    columns = answer("curves", "visualdl/kinds")
    roc = EXPECTED["visualdl"]["kinds"]["roc_curve"]["roc"]
    x, y = [0.0, *roc["true_fpr"][::-1], 1.0], [0.0, *roc["true_tpr"][::-1], 1.0]
    area = sum((x[i + 1] - x[i]) * (y[i + 1] + y[i]) / 2 for i in range(len(x) - 1))
    pr = EXPECTED["visualdl"]["kinds"]["pr_curve"]["pr"]
    recall = [*pr["recall"], 0.0]
    average = sum((recall[i] - recall[i + 1]) * pr["precision"][i] for i in range(10))
    assert columns.tag == ["pr", "roc"]
    assert columns.roc_area_ratio == [pytest.approx(area)] * 2
    assert columns.average_precision_ratio == [pytest.approx(average)] * 2
    assert (columns.positives, columns.negatives) == ([97, 97], [103, 103])


def counts(*columns: list[float]) -> CurveCounts:
    return CurveCounts(np.linspace(0, 1, len(columns[0])), *(np.array(column, float) for column in columns))


def test_a_perfect_classifier_has_an_area_of_one() -> None:
    rates = rates_of(counts([2, 2, 0], [3, 0, 0], [0, 3, 3], [0, 0, 2]))
    assert rates.recall.tolist() == [1, 1, 0]
    np.testing.assert_array_equal(rates.precision, [0.4, 1, math.nan])
    assert areas_of(rates) == (1.0, 1.0)


def test_rates_without_examples_are_unknown() -> None:
    assert areas_of(rates_of(counts([0, 0], [1, 0], [0, 1], [0, 0]))) == (None, None)
    assert areas_of(rates_of(counts([], [], [], []))) == (None, None)


def test_bins_keep_the_counts() -> None:
    first = Histogram(np.array([0.0, 1.0, 2.0]), np.array([2.0, 4.0]))
    point = Histogram(np.array([3.0, 3.0]), np.array([5.0]))
    edges = common_edges([first, point, Histogram(np.zeros(1), np.zeros(0))], 6)
    assert edges.tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3]
    assert rebin(first, edges).tolist() == [1, 1, 2, 2, 0, 0]
    assert rebin(point, edges).sum() == 5
    assert common_edges([point], 2).tolist() == pytest.approx([2.97, 3, 3.03])
    assert len(common_edges([], 5)) == 0
    assert quantiles(first, (0, 1 / 3, 1)).tolist() == [0, 1, 2]
    assert np.isnan(quantiles(Histogram(np.array([0.0, 1.0]), np.array([0.0])), (0.5,))).all()


def test_trials_are_rows_of_values() -> None:
    columns = answer("trials", "tensorboard/hparams")
    rows = {
        (run, name): value if value is not None else text
        for run, name, text, value in zip(columns.run, columns.name, columns.text, columns.value, strict=True)
    }
    assert rows["session0", "lr"] == 0.1
    assert rows["session1", "amp"] == "false"
    assert rows["session1", "valid/accuracy"] == pytest.approx(0.8)
    assert set(answer("trials", "tensorboard/hparams", kind="metric").kind) == {"metric"}


def test_rank_correlation_and_importance() -> None:
    assert rank(np.array([3.0, 1.0, 3.0])).tolist() == [1.5, 0, 1.5]
    assert effect_of([1.0, 2.0, 3.0], [10.0, 20.0, 40.0]) == Effect(3, 1.0, 1.0)
    assert effect_of([1.0, 2.0, None, 3.0], [3.0, 2.0, 9.0, 1.0]) == pytest.approx((3, -1.0, 1.0))
    # sgd has the ranks 0 and 1, adam 2 and 3: between the groups is 4 of the sum of squares of 5.
    assert effect_of(["sgd", "sgd", "adam", "adam"], [1.0, 2.0, 3.0, 4.0])[::2] == pytest.approx((4, 0.8))
    assert effect_of([1.0, 2.0], [1.0, 2.0]) == Effect(2, None, None)
    assert effect_of([1.0, 1.0, 1.0], [1.0, 1.0, 1.0]) == Effect(3, None, None)


def test_embeddings_are_listed_with_their_sizes() -> None:
    columns = answer("embeddings", "tensorboard/torch")
    assert (columns.tag, columns.step, columns.points, columns.dimensions) == (["space"], [7], [6], [4])
    assert columns.labels == ["name, class"]


@pytest.mark.parametrize("name", ["samples", "distributions", "curves", "trials", "embeddings"])
def test_runs_without_such_data_are_errors(name: str) -> None:
    with pytest.raises(MissingData, match=r"matching|there"):
        answer(name, "tensorboard/restart")


def request(vectors: Any, method: Any = "pca", dimensions: int = 2, perplexity: float = 5.0) -> ProjectionRequest:
    return ProjectionRequest(vectors=vectors, method=method, dimensions=dimensions, perplexity=perplexity)


@pytest.mark.parametrize("shape", [(40, 5), (5, 40)])
def test_pca_has_the_variances_of_a_singular_value_decomposition(shape: tuple[int, int]) -> None:
    vectors = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    position, explained = pca(vectors, 3)
    singular = np.linalg.svd(vectors - vectors.mean(axis=0), compute_uv=False)
    assert explained == pytest.approx((singular**2 / (singular**2).sum())[:3].tolist(), rel=1e-4)
    assert np.abs(position).max() > 0
    np.testing.assert_allclose((position**2).sum(axis=0), singular[:3] ** 2, rtol=1e-3)


def test_pca_of_few_dimensions_and_no_points() -> None:
    position, explained = pca(np.array([[0.0], [2.0]], np.float32), 3)
    assert position.tolist() == [[-1, 0, 0], [1, 0, 0]]
    assert explained == [1, 0, 0]
    assert pca(np.zeros((0, 4), np.float32), 2)[0].shape == (0, 2)


def test_vectors_that_are_not_finite_are_left_out() -> None:
    vectors = [[0.0, 1.0], [math.nan, 0.0], [2.0, 1.0]]
    position = project(request(vectors), lambda _: None).position
    assert np.isnan(position[1]).all()
    assert np.isfinite(position[[0, 2]]).all()


def test_affinities_have_the_perplexity() -> None:
    points = np.random.default_rng(2).normal(size=(60, 3)).astype(np.float32)
    distance = ((points[:, None] - points) ** 2).sum(axis=2)
    joint = joint_affinities(distance, 10.0)
    assert joint.sum() == pytest.approx(1, rel=1e-4)
    np.testing.assert_allclose(joint, joint.T)
    conditional = joint / joint.sum(axis=1, keepdims=True)
    entropy = -(conditional * np.log(conditional)).sum(axis=1)
    assert np.exp(entropy).mean() == pytest.approx(10, rel=0.2)


def test_tsne_separates_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "ITERATIONS", 200)
    monkeypatch.setattr(projection, "MAX_TSNE_POINTS", 50)
    random, reports = np.random.default_rng(3), list[float]()
    vectors = np.concatenate([random.normal(center, 0.1, (30, 8)) for center in (0.0, 5.0)]).astype(np.float32)
    position = project(request(vectors, "tsne"), reports.append).position
    shown = np.isfinite(position[:, 0])
    assert (shown.sum(), reports[-1]) == (50, 1.0)
    group = np.arange(60) // 30
    distance = np.linalg.norm(position[shown][:, None] - position[shown], axis=2)
    closest = np.argsort(distance, axis=1)[:, 1:11]
    assert (group[shown][closest] == group[shown][:, None]).mean() > 0.99


def test_umap_is_offered_only_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "find_spec", lambda _name: None)
    assert projection.available_methods() == ["pca", "tsne"]
    module = ModuleType("umap")

    class Reducer:
        def __init__(self, n_components: int, random_state: int) -> None:
            self.shape = n_components, random_state

        def fit_transform(self, vectors: Any) -> Any:
            return vectors[:, : self.shape[0]] * 2

    module.UMAP = Reducer  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "umap", module)
    assert project(request([[1.0, 2.0, 3.0]], "umap"), lambda _: None).position.tolist() == [[2, 4]]


def test_nearest_neighbors() -> None:
    vectors = np.array([[1, 0], [2, 0.1], [0, 1], [0, 0], [1, 0.5]], np.float32)
    point, distance = nearest(vectors, 0, 3, "cosine")
    assert point.tolist() == [1, 4, 2]
    assert distance.tolist() == pytest.approx([1 - 2 / math.hypot(2, 0.1), 1 - 1 / math.hypot(1, 0.5), 1])
    point, distance = nearest(vectors, 0, 2, "euclidean")
    assert (point.tolist(), distance.tolist()) == ([4, 3], [0.5, 1])
