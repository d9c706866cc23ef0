"""TracedModules of MegEngine: pickles that the server looks into without running them, and agents run in a sandbox."""

from __future__ import annotations

import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.recordings import recording_path
from tests.remote.agent_runs import StartAgent, server, start
from tests.remote.child_runs import Job, megengine_python
from tests.remote.fake_server import FakeServer
from visualprof.errors import FormatError
from visualprof.remote import traced_module
from visualprof.remote.protocol import Input, Spec, Sweep, TaskFailure
from visualprof.remote.queue.check.inspect import inspect_model

__all__ = ["server", "start"]

LENET = Input("x", "float32", ["batch", 1, 32, 32])


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("lenet", [("x", "float32", [2, 1, 32, 32])]),
        ("resnet18_w16", [("x", "float32", [1, 3, 224, 224])]),
        ("transformer_tiny", [("tokens", "int32", [2, 64]), ("mask", "float32", [2, 4, 64, 64])]),
    ],
)
def test_inputs_are_those_of_the_trace(name: str, inputs: list[tuple[str, str, list[int]]]) -> None:
    file = recording_path(f"models/megengine/{name}.tm")
    assert traced_module.is_traced_module(file.read_bytes()[:65536])
    assert [(item.name, item.dtype, item.dims) for item in traced_module.read_inputs(file)] == inputs
    model = inspect_model(file, f"{name}.tm")
    assert (model.format, model.backends) == ("megengine_traced", ["megengine"])
    assert model.inputs[0].dims == ["batch", *inputs[0][2][1:]]
    assert model.dims == {"batch": inputs[0][2][0]}


class Evil:
    """Would make a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return Path.touch, (self.target,)


def test_names_in_the_file_are_not_executed(tmp_path: Path) -> None:
    file, target = tmp_path / "evil.tm", tmp_path / "touched"
    named = "megengine.traced_module.traced_module"
    file.write_bytes(pickle.dumps((named, {"argdef_graph_map": {1: Evil(target)}}), 4))
    assert traced_module.is_traced_module(file.read_bytes())
    for look in (traced_module.read_inputs, lambda path: inspect_model(path, "evil.tm")):
        with pytest.raises((TaskFailure, FormatError), match="not a whole TracedModule"):
            look(file)
    assert not target.exists()
    pickle.loads(file.read_bytes())
    assert target.exists(), "it would have"


@pytest.mark.slow
def test_an_agent_without_a_sandbox_opens_no_traced_module(
    server: FakeServer,
    start: StartAgent,
) -> None:
    task = server.submit(b"measure=0.05", name="model.TM", spec=Spec("s1", "megengine"))
    start("--once", "--sandbox", "off", FAKE_BACKEND="megengine")
    report = server.finished(task)
    assert (report["state"], report["reason"]) == ("failed", "model_error")
    assert report["error"] == "a .tm file may run any code, and this agent has no sandbox"


@pytest.mark.long
@pytest.mark.slow
def test_results_equal_those_of_the_module_at_other_sizes() -> None:
    program = """
import sys, numpy, megengine
from pathlib import Path
from visualprof.remote.backends import megengine as backend
from visualprof.remote.protocol import Spec
path, values = Path(sys.argv[1]), numpy.random.default_rng(0).random((5, 1, 32, 32), "float32")
session = backend.load(path, Spec("s", "megengine"), {"x": values})
(got,) = session.fetch(session.infer(session.prepare({"x": values})))
module = megengine.load(str(path)); module.eval()
print(got.shape, float(abs(got - module(megengine.Tensor(values)).numpy()).max()))
"""
    command = [megengine_python(), "-c", program, str(recording_path("models/megengine/lenet.tm"))]
    stdout = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    shape, _, difference = stdout.strip().rpartition(" ")
    assert shape == "(5, 10)"
    assert float(difference) < 1e-6


@pytest.mark.slow
def test_a_traced_module_is_measured_and_profiled(tmp_path: Path) -> None:
    python = megengine_python()
    job = Job(
        tmp_path,
        recording_path("models/megengine/lenet.tm"),
        [LENET],
        "megengine",
        python,
        sweep=Sweep("batch", [1, 4]),
    )
    ran = job.run()
    assert ran.status == 0, ran.stderr
    assert [p["batch"] for p in ran.points] == [1, 4]
    for stage in ("profile:static", "profile:memory"):
        assert job.run(stage).status == 0
