"""Runs the child the way an agent does: from a zip of the files that it needs, in a process of its own."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT, answer
from visualprof.remote.agent.bundle import child_archive
from visualprof.remote.protocol import Advise, Input, Lease, Measure, ModelRef, Profile, Request, Search, Spec, Sweep

QUICK = Measure(warmup_s=0.02, min_s=0.05, max_s=2.0, min_n=20)


@cache
def code() -> Path:
    """The archive that an agent sends into a runtime."""
    folder = Path(mkdtemp(prefix="visualprof-child-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "code.pyz"
    path.write_bytes(child_archive())
    return path


@dataclass(frozen=True)
class Ran:
    """A stage that ended."""

    status: int
    stdout: str
    stderr: str
    events: list[dict[str, Any]]
    out: Path

    def told(self, event: str) -> list[dict[str, Any]]:
        return [row for row in self.events if row["event"] == event]

    @property
    def failed(self) -> dict[str, Any]:
        assert self.status == 1, self.stderr
        return self.told("failed")[-1]

    @property
    def points(self) -> list[dict[str, Any]]:
        file = self.out / "points.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def samples(self, point: dict[str, Any]) -> Any:
        offset, n = point["latencies"]
        return np.frombuffer((self.out / "latencies.bin").read_bytes(), "<u4", n, offset)


@dataclass
class Job:
    """A task to lay down and run; `run` may be called for several stages."""

    work: Path
    model: Path
    inputs: list[Input]
    backend: str = "onnxruntime"
    python: str = sys.executable
    sweep: Sweep = field(default_factory=Sweep)
    dims: dict[str, int] = field(default_factory=dict[str, int])
    measure: Measure = QUICK
    profile: Profile = field(default_factory=lambda: Profile(runs=3))
    arrays: dict[str, Path] = field(default_factory=dict[str, Path])
    spec: dict[str, Any] = field(default_factory=dict[str, Any])
    cpus: list[int] = field(default_factory=list[int])
    advise: Advise = field(default_factory=Advise)
    search: Search = field(default_factory=Search)
    more: dict[str, Any] = field(default_factory=dict[str, Any])
    archive: Path | None = None
    patience_s: float = 120.0

    def run(self, stage: str = "measure", prefix: Sequence[str] = ()) -> Ran:
        """Runs a stage to its end."""
        spec = Spec(id="s", backend=self.backend, **self.spec)
        request = Request(
            key="k",
            model=ModelRef("0" * 64, self.model.name),
            specs=[spec],
            inputs=self.inputs,
            dims=self.dims,
            sweep=self.sweep,
            measure=self.measure,
            profile=self.profile,
            advise=self.advise,
            search=self.search,
        )
        lease = Lease(task="t", job="j", run="r", attempt=1, lease="l", spec=spec, request=request, files=[])
        out, events = self.work / "out", self.work / "events.jsonl"
        task = {
            "lease": asdict(lease),
            "model": str(self.model),
            "inputs": {name: str(path) for name, path in self.arrays.items()},
            "cpus": self.cpus,
            **self.more,
        }
        (self.work / "task.json").write_text(json.dumps(task))
        events.unlink(missing_ok=True)
        done = subprocess.run(
            [*prefix, self.python, "-I", str(self.archive or code()), str(self.work), stage],
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=600 if stage == "advise" else self.patience_s,
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(self.work), "LANG": "C.UTF-8"},
        )
        document = [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []
        return Ran(done.returncode, done.stdout, done.stderr, document, out)


def steps(file: Path) -> list[str]:
    """Names of the steps that the overview of a profile has."""
    result: Any = answer("overview", file)["steps"]
    return list(result["name"])


def tiny_onnx(path: Path, **sizes: int | str) -> Path:
    """y = relu(x @ w) + scale: x float32 [batch, 4], scale float32 without dimensions."""
    import onnx
    from onnx import TensorProto, helper

    weights = helper.make_tensor("w", TensorProto.FLOAT, [4, 3], [0.5] * 12)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="matmul"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Add", ["r", "scale"], ["y"], name="add"),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [sizes.get("batch", "batch"), 4]),
            helper.make_tensor_value_info("scale", TensorProto.FLOAT, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weights],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


TINY_INPUTS = [Input("x", "float32", ["batch", 4]), Input("scale", "float32", [])]


OUTPUTS = """
import sys
code, name, model, spec, feeds, out = sys.argv[1:]
sys.path.insert(0, code)
import importlib, json
import numpy as np
from pathlib import Path
from visualprof.remote.backends import backend
from visualprof.remote.protocol import Spec
runtime, feeds = backend(name), dict(np.load(feeds))
importlib.import_module(runtime.module)
session = runtime.load(Path(model), Spec("s", name, **json.loads(spec)), feeds)
np.savez(out, *session.fetch(session.infer(session.prepare(feeds))))
"""


def outputs_of(work: Path, python: str, backend: str, model: Path, feeds: dict[str, Any], **spec: Any) -> list[Any]:
    """Return the outputs of a model, run by a backend in an interpreter."""
    given, out = work / "feeds.npz", work / "outputs.npz"
    np.savez(given, **feeds)
    words = [str(code()), backend, str(model), json.dumps(spec), str(given), str(out)]
    done = subprocess.run([python, "-I", "-c", OUTPUTS, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with np.load(out) as arrays:
        return list(arrays.values())


def megengine_python() -> str:
    """Return an interpreter with MegEngine; skip the test without one."""
    return runtime_python("megengine", "1.13.0")


def runtime_python(backend: str, version: str = "") -> str:
    """Return an interpreter with a runtime; skip the test without one."""
    variable = f"VISUALPROF_{backend.upper()}_PYTHON"
    files = sorted(ROOT.glob(f".runtimes/{backend}-{version or '*'}/bin/python"))
    named = os.environ.get(variable) or (str(files[-1]) if files else "")
    if not Path(named or "/-").exists():
        wanted = f"{backend}=={version}" if version else backend
        install = f"visualprof agent install-runtime --folder .runtimes {wanted}"
        pytest.skip(f"needs {backend}; make its runtime with `{install}` or name a Python in {variable}")
    return named
