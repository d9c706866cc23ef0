"""Graphs of MegEngine as ONNX: equal results in ONNX Runtime, and named unsupported operators."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.recordings import recording_path
from tests.remote.child_runs import megengine_python, outputs_of
from tests.remote.conversions import convert, difference, run
from visualprof.remote.protocol import TaskFailure
from visualprof.remote.queue.check.inspect import inspect_model

pytestmark = pytest.mark.slow

# A net of everything in the set that the recorded models do not have; with an argument more, of something that is not.
NET = """
import sys, numpy as np, megengine as mge, megengine.functional as F, megengine.module as M
from megengine import jit
mge.random.seed(0)
class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.a = M.Conv2d(4, 8, 3, padding=1, groups=2)
        self.b = M.ConvTranspose2d(8, 8, 2) if len(sys.argv) > 2 else M.Identity()
    def forward(self, x, y):
        z = F.silu(self.a(x)) + F.gelu(self.a(x)) * F.hswish(self.a(x))
        z = self.b(F.avg_pool2d(z, 2, 2, 1))
        w = F.concat([z[:, 1:7:2], z[:, -1:], F.relu(z)[:, ::3]], 1)
        v = F.mean(w, (2, 3)) + F.sum(w[..., -1], 2) - F.max(w, 3, keepdims=True)[:, :, 0, 0]
        t = F.transpose(w.reshape(w.shape[0], w.shape[1], -1), (0, 2, 1))
        u = F.matmul(t, t, transpose_a=True)
        own = F.broadcast_to(y[:, :1].astype("float32").reshape(-1, 1, 1), u.shape)
        return F.exp(-F.abs(v)), F.sqrt(F.abs(u)) / 2 + own
net = Net(); net.eval()
@jit.trace(symbolic=True, capture_as_const=True)
def infer(x, y): return net(x, y)
x = mge.Tensor(np.random.default_rng(0).standard_normal((2, 4, 8, 8)).astype("float32"))
y = mge.Tensor(np.arange(6).reshape(2, 3).astype("int32"))
infer(x, y); infer(x, y)
infer.dump(sys.argv[1], arg_names=["x", "y"], output_names=["v", "u"], optimize_for_inference=False)
"""


def net(folder: Path, *more: str) -> Path:
    path = folder / "net.mge"
    subprocess.run([megengine_python(), "-c", NET, str(path), *more], check=True, capture_output=True)
    return path


def feeds(name: str, rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    if name == "net":
        x = rng.standard_normal((rows, 4, 8, 8), np.float32)
        return {"x": x, "y": rng.integers(0, 9, (rows, 3), np.int32)}
    sizes = {"lenet": (1, 32, 32), "resnet18_w16": (3, 224, 224)}[name]
    return {"data": rng.standard_normal((rows, *sizes), np.float32)}


@pytest.mark.parametrize("name", ["lenet", "resnet18_w16", "net"])
def test_the_converted_model_equals_megengine_at_other_sizes(tmp_path: Path, name: str) -> None:
    python = megengine_python()
    model = net(tmp_path) if name == "net" else recording_path(f"models/megengine/{name}.mge")
    converted_model = convert("mge_onnx", model, tmp_path / "work", python)
    inputs = inspect_model(converted_model.model, "made.onnx").inputs
    assert {item.name: item.dims and item.dims[0] for item in inputs} == dict.fromkeys(feeds(name, 1), "batch")
    for rows in (1, 3):
        given = feeds(name, rows)
        (tmp_path / str(rows)).mkdir()
        original = outputs_of(tmp_path / str(rows), python, "megengine", model, given)
        assert difference(run(converted_model.model, given), original) < 1e-5


def test_an_optimized_graph_is_converted(tmp_path: Path) -> None:
    """Its convolutions have their biases and activations in them."""
    python, model = megengine_python(), recording_path("models/megengine/lenet.mge")
    fused = convert("mge_optimize", model, tmp_path / "fused", python, optimize="fuse_conv_bias_nonlinearity")
    converted_model = convert("mge_onnx", fused.model, tmp_path / "work", python)
    assert converted_model.converted.after["Conv"] == 2
    given = feeds("lenet", 2)
    assert difference(run(converted_model.model, given), outputs_of(tmp_path, python, "megengine", model, given)) < 1e-5


@pytest.mark.parametrize(
    ("model", "unfit"), [("transformer_tiny", "LayerNormForward, SoftmaxForward"), ("net", "ConvolutionBackwardData")]
)
def test_unsupported_operators_are_named_before_the_conversion(tmp_path: Path, model: str, unfit: str) -> None:
    path = net(tmp_path, "more") if model == "net" else recording_path(f"models/megengine/{model}.mge")
    with pytest.raises(TaskFailure) as error:
        convert("mge_onnx", path, tmp_path / "work", megengine_python())
    assert (
        error.value.error == f"MegEngine .mge as ONNX is nothing for this model: it has unsupported operators: {unfit}"
    )
    assert not [*(tmp_path / "work" / "out").rglob("*.onnx")]
