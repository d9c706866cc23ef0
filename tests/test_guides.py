"""The guides are true: the file of each one, added to a copy of the package, is all that it takes."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.conftest import ROOT, SAMPLES, until
from tests.e2e.live import Dashboard
from tests.remote.conversions import small_onnx

pytestmark = pytest.mark.slow
KINDS = ("format", "model", "view", "backend", "converter", "command", "finding", "route")
CNN = SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"
STACKS = "main;net;conv 300\nmain;net;relu 50\nmain;net;conv 100\n"
LAYERS = "LAYERS 1\nstem.conv Conv2d\nstem.relu ReLU\n"
IDENTITY = 'IDENTITY 1\n{"inputs": {"x": ["float32", ["batch", 4]]}}'


def new_file(guide: str) -> tuple[str, str]:
    """The file that a guide writes: its path in the repository and its text."""
    text = (ROOT / "docs" / f"adding-a-{guide}.md").read_text("utf-8")
    code = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    path = re.search(r"visualprof/[a-z/]+/[a-z_]+\.py", text)
    assert path, "the guide names its file"
    assert len(code) == 1, "the guide has its whole file in one block"
    return path[0], code[0]


def add(guide: str, root: Path) -> str:
    """Adds the file of a guide to a copy of the package; its name without the ending."""
    path, code = new_file(guide)
    assert not (root / path).exists(), f"{path} is there already"
    (root / path).write_text(code, "utf-8")
    return Path(path).stem


def copied(root: Path) -> Path:
    """A copy of the package without page and samples."""
    left_out = shutil.ignore_patterns("frontend", "samples", "__pycache__")
    shutil.copytree(ROOT / "visualprof", root / "visualprof", ignore=left_out)
    return root


def python(root: Path, *arguments: str) -> str:
    """What a Python that imports the copy writes."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "VISUALPROF_CACHE_DIR": str(root / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def view(root: Path, name: str, path: Path, form: str = "json", *options: str) -> str:
    """`visualprof view NAME PATH` of the copy."""
    return python(root, "-m", "visualprof", "view", name, str(path), "--format", form, *options)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copied(tmp_path / "copy")


@pytest.fixture
def serve(root: Path, tmp_path: Path) -> Iterator[Callable[..., Dashboard]]:
    """Starts a server of the copy over a folder."""
    started: list[Dashboard] = []

    def _serve(folder: Path, *options: str) -> Dashboard:
        started.append(Dashboard(folder, tmp_path / "cache", *options, root=root))
        return started[-1]

    yield _serve
    for dashboard in started:
        dashboard.stop()


@pytest.fixture
def extended(root: Path) -> tuple[Path, list[str]]:
    """A copy with the files of all guides, and their paths in it."""
    shutil.copy(ROOT / "pyproject.toml", root)
    for kind in KINDS:
        add(kind, root)
    return root, [new_file(kind)[0] for kind in KINDS]


def checked(root: Path, tool: str, *arguments: str) -> None:
    command = [str(Path(sys.executable).with_name(tool)), *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_files_follow_the_house_rules(extended: tuple[Path, list[str]]) -> None:
    root, files = extended
    checked(root, "ruff", "check", *files)
    checked(root, "ruff", "format", "--check", *files)


def test_the_files_are_strictly_typed(extended: tuple[Path, list[str]]) -> None:
    root, files = extended
    settings = {"include": files, "typeCheckingMode": "strict", "reportUnknownMemberType": "none"}
    (root / "pyrightconfig.json").write_text(json.dumps(settings))
    checked(root, "pyright", "--pythonpath", sys.executable)


@pytest.mark.parametrize("name", ["stacks.folded", "unknown"])
def test_a_format_is_one_file(root: Path, tmp_path: Path, name: str) -> None:
    """A text format, from a folder and as a file, by its content whatever its name."""
    assert add("format", root) == "folded"
    file = tmp_path / "runs" / "run" / name
    file.parent.mkdir(parents=True)
    file.write_text(STACKS)
    assert "steps" in json.loads(view(root, "overview", file.parent))
    table = json.loads(view(root, "operator", file))["columns"]
    assert dict(zip(table["name"], table["host_self_ns"], strict=True)) == {"conv": 400, "relu": 50}


@pytest.mark.parametrize("name", ["net.layers", "unknown"])
def test_a_model_format_is_one_file(root: Path, tmp_path: Path, name: str) -> None:
    assert add("model", root) == "layers"
    file = tmp_path / name
    file.write_text(LAYERS)
    nodes = json.loads(view(root, "graph", file))["nodes"]["columns"]
    assert dict(zip(nodes["full_name"], nodes["type"], strict=True)) == {
        "x": "Input",
        "stem.conv": "Conv2d",
        "stem.relu": "ReLU",
        "y": "Output",
    }


def test_a_view_is_one_file_for_the_command_line(root: Path) -> None:
    name = add("view", root)
    answer = json.loads(view(root, name, CNN))
    columns = answer["columns"]
    assert answer["total_rows"] == len(columns["name"]) > 0
    streams = json.loads(view(root, name, CNN, "json", "--param", "side=device"))["columns"]
    assert {"stream 7 "} == set(streams["name"]) < set(columns["name"])
    shown = view(root, name, CNN, "table")
    assert columns["name"][0] in shown
    head, first, *_ = csv.reader(view(root, name, CNN, "csv").splitlines())
    assert (head, first[0]) == (list(columns), columns["name"][0])


def test_a_view_is_one_file_for_the_api(root: Path, tmp_path: Path, serve: Callable[..., Dashboard]) -> None:
    name = add("view", root)
    folder = tmp_path / "runs" / "run"
    folder.mkdir(parents=True)
    shutil.copy(CNN, folder)
    dashboard = serve(folder.parent)
    dashboard.wait_until_ready()
    assert name in [known["name"] for known in dashboard.get("views")["views"]]
    (run,) = dashboard.get("runs")["runs"]
    answer = dashboard.get(f"view/{name}", run=run["id"])
    assert answer["columns"] == json.loads(view(root, name, CNN))["columns"]
    assert dashboard.get(f"charts/{name}", run=run["id"])["charts"]


LISTED = "from visualprof.remote.backends import all_backends; print(*(b.name for b in all_backends()))"


@pytest.mark.long
def test_a_backend_is_one_file(root: Path, tmp_path: Path, serve: Callable[..., Dashboard]) -> None:
    """Known to the API and to an agent, which runs a job of an uploaded model in the backend's own format."""
    name = add("backend", root)
    assert name in python(root, "-c", LISTED).split()
    runs, model = tmp_path / "runs", tmp_path / f"same.{name}"
    runs.mkdir()
    model.write_text(IDENTITY)
    dashboard = serve(runs, "--with-agent")
    assert name in [backend["name"] for backend in dashboard.get("backends")["backends"]]
    until(lambda: any(r["backend"] == name for r in runtimes(dashboard)), 60)
    wish = ["--batch", "1,2", "--min-s", "0.05", "--profile-runs", "3", "--wait"]  # which fails where the job does
    python(root, "-m", "visualprof", "submit", str(model), "--server", dashboard.url, "--backend", name, *wish)
    (profile,) = runs.glob("*/*/timeline.json")
    table = json.loads(view(root, "operator", profile))["columns"]
    assert (table["name"], table["calls"]) == (["copy"], [3])


def test_a_converter_is_one_file(root: Path, tmp_path: Path) -> None:
    """Listed, and run by the command: a weight that nothing reads is gone, another model has nothing to lose."""
    name, model = add("converter", root), small_onnx(tmp_path / "small.onnx")
    graph = onnx.load(model)
    graph.graph.initializer.append(numpy_helper.from_array(np.zeros(1000, np.float32), "unread"))
    onnx.save(graph, tmp_path / "large.onnx")
    listed = json.loads(python(root, "-m", "visualprof", "convert", str(model), "--list", "--format", "json"))
    states = {row["name"]: row["state"] for row in listed}
    assert states[name] == "nothing for it: all of its weights are read"
    out = tmp_path / "made.onnx"
    python(root, "-m", "visualprof", "convert", str(tmp_path / "large.onnx"), "--to", name, "-o", str(out))
    assert "unread" not in [weight.name for weight in onnx.load(out).graph.initializer]
    assert out.stat().st_size < (tmp_path / "large.onnx").stat().st_size - 4000


def test_a_command_is_one_file(root: Path) -> None:
    name = add("command", root)
    steps = json.loads(view(root, "overview", CNN))["steps"]
    longest = max(range(len(steps["name"])), key=lambda row: steps["total_ns"][row])
    shown = f"{steps['name'][longest]}: {steps['total_ns'][longest] / 1e6:.1f} ms\n"
    assert python(root, "-m", "visualprof", name, str(CNN)) == shown
    assert f"  {name} " in python(root, "-m", "visualprof", "--help")


def event(category: str, name: str, ts: float, dur: float, tid: int, **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "pid": tid // 100, "tid": tid, "args": args}


def test_a_finding_is_one_file(root: Path, tmp_path: Path) -> None:
    """Two steps of 100 us with one kernel and two copies of 20 us: 40 us of copies per step."""
    name = add("finding", root)
    events: list[dict[str, Any]] = []
    for step in range(2):
        start = 1000.0 + 100 * step
        events.append(event("user_annotation", f"ProfilerStep#{step}", start, 100, 1))
        for i, kind in enumerate(("gpu_memcpy", "kernel", "gpu_memcpy")):
            correlation = {"correlation": 10 * step + i + 1}
            events.append(event("cuda_runtime", "cudaLaunchKernel", start + 1 + i, 0.5, 1, **correlation))
            events.append(event(kind, f"{kind} {i}", start + 10 + 30 * i, 20, 107, stream=7, device=0, **correlation))
    file = tmp_path / "copies.pt.trace.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    found = {f["id"]: f["evidence"] for f in json.loads(view(root, "findings", file))["findings"]}
    assert found[name] == {"calls_per_step": 2, "copy_ns": 40_000}


def test_a_route_is_one_file(root: Path, tmp_path: Path, serve: Callable[..., Dashboard]) -> None:
    add("route", root)
    (tmp_path / "runs").mkdir()
    (row,) = serve(tmp_path / "runs", "--no-token").get("disk")["directories"]
    assert (Path(row["path"]), row["free_bytes"] > 0) == (tmp_path / "runs", True)


def runtimes(dashboard: Dashboard) -> list[dict[str, Any]]:
    return [r for agent in dashboard.get("agents")["agents"] for r in agent["capabilities"]["runtimes"]]
