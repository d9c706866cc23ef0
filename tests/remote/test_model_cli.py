"""`visualprof model` and a registered model in `visualprof submit`, against a server without machines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_registry import small

from tests.conftest import ROOT
from tests.server_settings import server_settings
from visualprof.cli import main
from visualprof.cli._server import Server as Client
from visualprof.server.serve import Server

RESNET = ROOT / "visualprof" / "samples" / "models" / "resnet10.onnx"
Said = Any


class Site:
    """A server, and what its command says."""

    def __init__(self, server: Server, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.server, self.folder, self._capsys = server, folder, capsys

    def said(self, *words: str, status: int = 0, form: str = "json") -> Said:
        self._capsys.readouterr()
        assert main(["model", "--server", self.server.url, "--format", form, *words]) == status
        out = self._capsys.readouterr()
        return out.err if status else json.loads(out.out) if form == "json" else out.out

    def report(self, name: str, sha256: str, points: list[tuple[int, float, int]]) -> None:
        """Of a model's file: batch, samples a second, p50 in ns."""
        folder = self.folder / "runs" / name
        folder.mkdir(parents=True)
        spec = {"id": "cpu", "backend": "onnxruntime", "device": "cpu", "threads": 1}
        job = {"schema": "visualprof.job/1", "name": name, "model": {"name": "m", "sha256": sha256}, "spec": spec}
        (folder / "job.json").write_text(json.dumps(job))
        (folder / "env.json").write_text(json.dumps({"agent": "box", "version": "1.2"}))
        (folder / "status.json").write_text(json.dumps({"state": "succeeded", "finished_ns": 5}))
        keys = ("batch", "samples_per_s", "p50_ns")
        lines = [json.dumps({**dict(zip(keys, point, strict=True)), "n": 700, "trusted": [50]}) for point in points]
        (folder / "points.jsonl").write_text("\n".join(lines) + "\n")
        self.server.logdir.rescan()


@pytest.fixture
def site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Site]:
    (tmp_path / "runs").mkdir()
    with Server([tmp_path / "runs"], 0, server_settings()) as server:
        server.start()
        yield Site(server, tmp_path, capsys)


@pytest.mark.slow
def test_a_life_of_a_model(site: Site, tmp_path: Path) -> None:
    path = small(tmp_path)
    assert site.said("list") == []
    first = site.said("add", "net", str(path), "--notes", "as trained")["version"]
    assert (first["address"], first["parameters"], first["operators"]) == ("net/1", 16, {"Gemm": 1, "Relu": 1})
    assert (first["source"]["kind"], first["source"]["path"]) == ("path", str(path))
    made = site.said(
        "add", "net", str(RESNET), "--parent", "net", "--converter", "c", "--option", "a=1", "--tool", "onnx=1"
    )
    second = made["version"]
    assert (second["parent"]["address"], second["lineage"]["parent"]) == ("net/1", first["sha256"])
    assert (second["lineage"]["options"], second["lineage"]["tools"]) == ({"a": "1"}, {"onnx": "1"})
    assert [version["number"] for version in site.said("versions", "net")] == [2, 1]
    site.said("tag", "net@production", "1")
    assert site.said("show", "net@production")["version"]["number"] == 1
    assert site.said("tag", "net", "cnn", "vision")["model"]["tags"] == ["cnn", "vision"]
    assert site.said("tag", "net", "cnn", "--remove")["model"]["tags"] == ["vision"]
    for text in ("net", "production: 1", "vision"):
        assert text in site.said("list", form="table")
    assert "net/1" in site.said("versions", "net", form="table")
    assert "16" in site.said("show", "net/1", form="table")
    site.said("get", "net/1", "-o", str(tmp_path / "out"))
    assert (tmp_path / "out" / "small.onnx").read_bytes() == path.read_bytes()
    assert (tmp_path / "out" / "small.bin").read_bytes() == path.with_name("small.bin").read_bytes()
    assert site.said("delete", "net/1") == {
        "versions": ["net/1"],
        "jobs": [],
        "children": ["net/2"],
        "aliases": ["production"],
        "evaluations": [],
    }
    assert len(site.said("versions", "net")) == 2  # it was only said
    site.said("delete", "net/1", "--yes")
    assert "no alias 'production'" in site.said("show", "net@production", status=2)
    site.said("delete", "net", "--yes")
    assert site.said("list") == []


@pytest.mark.slow
def test_metrics_of_a_version_are_compared_with_its_parent(site: Site, tmp_path: Path) -> None:
    """At 4, where the version is fastest of the sizes of both: 500 after 400 samples/s, 8 after 10 us."""
    parent = site.said("add", "net", str(RESNET))["version"]["files"][0]["sha256"]
    child = site.said("add", "net", str(small(tmp_path)), "--parent", "net/1")["version"]["files"][0]["sha256"]
    assert parent == hashlib.sha256(RESNET.read_bytes()).hexdigest()
    site.report("of-parent", parent, [(1, 100.0, 9_000), (4, 400.0, 10_000)])
    site.report("of-child", child, [(1, 120.0, 8_500), (4, 500.0, 8_000), (8, 900.0, 9_000)])
    version = site.said("show", "net/2")["version"]
    assert version["beside"] == {
        "spec": "cpu",
        "agent": "box",
        "batch": 4,
        "samples_per_s": 500.0,
        "parent_samples_per_s": 400.0,
        "p50_ns": 8_000,
        "parent_p50_ns": 10_000,
    }
    assert (version["best_samples_per_s"], version["best_p50_ns"]) == (900.0, 8_000)
    assert [evaluation["id"] for evaluation in version["evaluations"]] == ["of-child"]
    (model,) = site.said("list")
    assert (model["best_samples_per_s"], model["best_p50_ns"], model["newest"]["number"]) == (900.0, 8_000, 2)


@pytest.mark.slow
def test_models_compare_in_one_configuration_and_batch(site: Site, tmp_path: Path) -> None:
    """One is measured at 1, 4 and 8, the other at 4 and 2: both show batch 4."""
    sizes = {
        "net": [(1, 120.0, 8_500), (4, 500.0, 8_000), (8, 900.0, 9_000)],
        "other": [(2, 90.0, 9_900), (4, 450.0, 9_000)],
    }
    files = {"net": RESNET, "other": small(tmp_path)}
    for name, points in sizes.items():
        sha256 = site.said("add", name, str(files[name]))["version"]["files"][0]["sha256"]
        site.report(f"of-{name}", sha256, points)
    compared = {model["name"]: model["compared"] for model in site.said("list")}
    assert {name: (point["batch"], point["p50_ns"]) for name, point in compared.items()} == {
        "net": (4, 8_000),
        "other": (4, 9_000),
    }
    assert compared["net"] | {"report": "", "doubtful": None} == {
        "report": "",
        "spec": "cpu",
        "agent": "box",
        "batch": 4,
        "samples_per_s": 500.0,
        "p50_ns": 8_000,
        "doubtful": None,
    }


@pytest.mark.slow
def test_submit_takes_a_registered_model(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is sent, and its configuration is what the job begins with; a file of that name goes first."""
    added = site.said("add", "net", str(small(tmp_path)))
    queue, model = site.server.job_service.open(), added["model"]["id"]
    configuration = {**added["version"]["configuration"], "min_batch": 2, "max_batch": 8}
    Client(site.server.url).send("PATCH", f"registry/{model}/1", {"configuration": configuration})
    submit = ["submit", "--server", site.server.url, "--backend", "onnxruntime", "--json"]
    asked = main([*submit, "net"])
    output = capsys.readouterr()
    jobs = queue.jobs.changes_since(-1).jobs
    assert (asked, len(jobs)) == (0, 1), output
    request = jobs[0].request
    assert (request.name, request.sweep.values, [part.path for part in request.model.parts]) == (
        "net/1",
        [2, 4, 8],
        ["small.bin"],
    )
    assert main([*submit, "net@nothing"]) == 2
    assert "net@nothing" in capsys.readouterr().err
    refused = site.said("delete", "net", "--yes", status=2)
    assert f"use it: {jobs[0].id}" in refused
    site.said("delete", "net", "--force")
    assert main([*submit, "net"]) == 2
