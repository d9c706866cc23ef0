"""Run data other than scalars over HTTP."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from sites import Site

from visualprof.server.api import run_samples

SAMPLES = Path(__file__).parents[1] / "fixtures" / "run_data"
EXPECTED = {name: json.loads((SAMPLES / name / "expected.json").read_text()) for name in ("tensorboard", "visualdl")}


@pytest.fixture
def logs(site: Site) -> Site:
    """A log directory with run data of both writers."""
    shutil.copytree(SAMPLES / "tensorboard" / "torch", site.folder / "torch")
    shutil.copytree(SAMPLES / "tensorboard" / "restart", site.folder / "restart")
    shutil.copytree(SAMPLES / "tensorboard" / "hparams", site.folder / "hparams")
    shutil.copytree(SAMPLES / "visualdl" / "kinds", site.folder / "kinds")
    site.logdir.rescan()
    return site


def ask(site: Site, path: str, **query: Any) -> Any:
    return site.client.get(f"/api/v1/data/{path}", query_string=query)


def runs(*names: str) -> str:
    return json.dumps(names)


def test_kinds_of_data_decide_on_the_pages(logs: Site) -> None:
    every = ["audio", "embedding", "histogram", "image", "pr_curve", "roc_curve", "scalar", "text", "trial"]
    kinds = {name: ask(logs, "kinds", runs=runs(name)).get_json()["kinds"] for name in ("kinds", "torch", "restart")}
    assert kinds["kinds"] == [kind for kind in every if kind != "trial"]
    assert kinds["torch"] == sorted({*every, "layout"} - {"roc_curve"})
    assert kinds["restart"] == ["scalar"]


def test_series_of_a_page(logs: Site) -> None:
    lines = ask(logs, "series", runs=runs("kinds", "torch"), page="samples").get_json()["lines"]
    assert ("kinds", ".", "picture", "image", [0, 5, 10]) in [
        (line["run"], line["line"], line["tag"], line["kind"], line["step"]) for line in lines
    ]
    assert {line["kind"] for line in lines} == {"image", "audio", "text"}
    curves = ask(logs, "series", runs=runs("kinds", "torch"), page="curves").get_json()["lines"]
    assert [(line["run"], line["tag"]) for line in curves] == [("kinds", "pr"), ("torch", "pr"), ("kinds", "roc")]


def test_an_image_is_described_and_served(logs: Site) -> None:
    place = {"run": "kinds", "line": ".", "tag": "picture"}
    sample = ask(logs, "sample", **place, step=7).get_json()
    assert (sample["step"], sample["wall_ns"]) == (5, 1_800_000_001_250_000_000)
    assert [(item["width"], item["height"], item["problem"]) for item in sample["items"]] == [(6, 4, None)]
    blob = ask(logs, "blob", **place, step=7)
    assert (blob.mimetype, blob.headers["X-Content-Type-Options"]) == ("image/png", "nosniff")
    assert blob.data.startswith(b"\x89PNG")
    assert ask(logs, "blob", **place, item=1).get_json()["error"] == "there is no such item (number of items: 1)"


def test_sound_has_a_waveform(logs: Site) -> None:
    place = {"run": "torch", "line": ".", "tag": "tone"}
    (item,) = ask(logs, "sample", **place).get_json()["items"]
    assert (item["rate_hz"], item["channels"], item["frames"], len(item["low"])) == (8000, 1, 800, 400)
    assert (min(item["low"]), max(item["high"])) == (pytest.approx(-0.5, abs=1e-3), pytest.approx(0.5, abs=1e-3))
    assert ask(logs, "blob", **place).mimetype == "audio/wav"


def test_texts_are_texts(logs: Site) -> None:
    sample = ask(logs, "sample", run="kinds", line=".", tag="note").get_json()
    assert sample["texts"] == [[EXPECTED["visualdl"]["kinds"]["text"]["note"]["text"]]]
    assert ask(logs, "blob", run="kinds", line=".", tag="note").status_code == 404


def test_large_images_are_not_served(logs: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_samples, "MAX_PIXELS", 23)
    place = {"run": "kinds", "line": ".", "tag": "picture"}
    error = "the image has 6 x 4 pixels, which is too large to show"
    assert ask(logs, "sample", **place).get_json()["items"][0]["problem"] == error
    answer = ask(logs, "blob", **place)
    assert (answer.status_code, answer.get_json()["error"]) == (422, error)


def test_other_media_are_not_served(logs: Site) -> None:
    path = next((logs.folder / "kinds").iterdir())
    content = path.read_bytes()
    path.write_bytes(content.replace(b"\x89PNG", b"<svg"))
    answer = ask(logs, "blob", run="kinds", line=".", tag="picture")
    assert answer.status_code == 422
    assert answer.get_json()["error"] == "the value is not a PNG, JPEG, GIF or WebP image"
    assert ask(logs, "sample", run="kinds", line=".", tag="picture").get_json()["items"][0]["problem"]


def test_histograms_share_their_bins(logs: Site) -> None:
    query = {"runs": runs("kinds", "torch"), "tag": "weights/w1"}
    body = ask(logs, "histograms", **query, bins=10).get_json()
    assert len(body["edges"]) == 11
    lines = {line["run"]: line for line in body["lines"]}
    assert (lines["kinds"]["step"], lines["kinds"]["total"]) == ([0, 10], 2)
    assert [sum(counts) for counts in lines["kinds"]["counts"]] == [pytest.approx(500)] * 2
    assert sum(lines["torch"]["counts"][0]) == pytest.approx(1000)
    edges = EXPECTED["visualdl"]["kinds"]["histogram"]["weights/w1"]["0"]["edges"]
    quantiles = lines["kinds"]["quantiles"][0]
    assert (quantiles[0], quantiles[-1]) == (pytest.approx(edges[0]), pytest.approx(edges[-1]))
    assert ask(logs, "histograms", runs=runs("kinds"), tag="none").get_json() == {"edges": [], "lines": []}


def test_curves_have_rates_from_counts(logs: Site) -> None:
    (line,) = ask(logs, "curves", runs=runs("kinds"), tag="roc", step=99).get_json()["lines"]
    expected = EXPECTED["visualdl"]["kinds"]["roc_curve"]["roc"]
    assert (line["step"], line["steps"]) == (4, [4])
    assert line["recall"] == pytest.approx(expected["true_tpr"])
    assert line["false_positive_rate"] == pytest.approx(expected["true_fpr"])
    assert line["true_positive"] == expected["tp"]
    assert line["precision"][-1] is None  # no example is positive
    assert 0.45 < line["roc_area"][0] < 0.55  # the predictions are random


def test_trials_of_several_runs(logs: Site) -> None:
    body = ask(logs, "trials", runs=runs("hparams", "torch")).get_json()
    assert set(body["parameters"]) == {"lr", "amp", "bs", "opt"}
    assert body["metrics"] == ["valid/accuracy", "metric/accuracy"]
    rows = {(row["run"], row["line"]): row for row in body["trials"]}
    assert rows["hparams", "session0"]["status"] == "failure"
    assert rows["hparams", "session1"]["metrics"] == [pytest.approx(0.8), None]
    assert rows["torch", "trial"]["settings"][body["parameters"].index("opt")] == "sgd"
    effect = next(row for row in body["effects"] if row["metric"] == "valid/accuracy" and row["parameter"] == "lr")
    assert (effect["trials"], effect["correlation"]) == (2, None)


def wait(site: Site, **query: Any) -> Any:
    """Return the answer of a projection that is no longer running."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        body = ask(site, "projection", **query).get_json()
        if body["state"] != "running":
            return body
        time.sleep(0.05)
    raise TimeoutError


def test_embeddings_are_projected_in_a_child(logs: Site) -> None:
    listed = ask(logs, "embeddings", runs=runs("torch", "kinds")).get_json()["embeddings"]
    assert listed == [
        {"run": "torch", "line": ".", "tag": "space", "step": 7},
        {"run": "kinds", "line": ".", "tag": "space", "step": 0},
    ]
    place = listed[0]
    about = ask(logs, "embedding", **place).get_json()
    assert (about["points"], about["dimensions"], about["header"]) == (6, 4, ["name", "class"])
    assert about["sprite"] == {"width": 4, "height": 4}
    assert ask(logs, "sprite", **place).mimetype == "image/png"
    assert ask(logs, "sprite", **listed[1]).status_code == 404
    body = wait(logs, **place, dimensions="3")
    assert (body["state"], len(body["axes"]), len(body["axes"][0])) == ("ready", 3, 6)
    assert sum(body["explained"]) <= 1.0001


def test_neighbors_of_a_point(logs: Site) -> None:
    place = {"run": "torch", "line": ".", "tag": "space", "step": 7}
    body = ask(logs, "neighbors", **place, point=0, count=2, metric="euclidean").get_json()
    vectors = EXPECTED["tensorboard"]["torch"]["embedding"]["space"]["vectors"]
    far = sorted(range(1, 6), key=lambda i: sum((a - b) ** 2 for a, b in zip(vectors[0], vectors[i], strict=True)))
    assert body["point"] == far[:2]
    error = ask(logs, "neighbors", **place, point=6).get_json()["error"]
    assert error == "there is no such point (number of points: 6)"


def test_a_projection_is_canceled_once(logs: Site) -> None:
    place = {"run": "torch", "line": ".", "tag": "space", "step": 7, "method": "tsne"}
    ask(logs, "projection", **place)
    answers = [logs.client.post("/api/v1/data/projection/cancel", json=place).get_json() for _ in range(2)]
    assert answers[1] == {"canceled": False}
    assert answers[0]["canceled"] in (True, False)


@pytest.mark.parametrize(
    ("path", "query", "status", "error"),
    [
        ("sample", {"run": "torch", "line": ".", "tag": "x"}, 404, "the line '.' has no value with the tag 'x'"),
        ("embedding", {"run": "torch", "line": ".", "tag": "x"}, 404, "there is no embedding called 'x'"),
        ("sample", {"run": "none", "line": ".", "tag": "x"}, 404, "there is no run called 'none'"),
        ("series", {"runs": '["torch"]', "page": "other"}, 400, None),
        ("kinds", {"runs": "x"}, 400, "runs must be a JSON list of 1 to 100 ids"),
    ],
)
def test_wrong_requests_are_errors(logs: Site, path: str, query: Any, status: int, error: str | None) -> None:
    answer = ask(logs, path, **query)
    assert answer.status_code == status
    assert error is None or answer.get_json()["error"] == error
