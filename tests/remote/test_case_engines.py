"""Engines of cases on the backends: their reported times, and the requirements of FlagPerf's own files."""

from __future__ import annotations

import importlib.util
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from visualprof.remote.backends import Session
from visualprof.remote.cases import all_vendors, peaks
from visualprof.remote.cases.engines import BackendModel, engine_spec
from visualprof.remote.cases.requirements import engine_requirements, missing_requirements
from visualprof.remote.protocol import TaskFailure

INDUCTOR = [pytest.mark.long, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # of torch's own


def config(**changes: Any) -> Any:
    values = {"case": "net", "batch_size": 3, "fp16": False, "threads": 1, **changes}
    return namedtuple("Config", values)(**values)  # pyright: ignore[reportUntypedNamedTuple, reportCallIssue]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = 2 a - b, with an open batch."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [helper.make_node("Add", ["a", "a"], ["d"]), helper.make_node("Sub", ["d", "b"], ["y"])]
    ends = [helper.make_tensor_value_info(name, kind, ["batch", 4]) for name in "aby"]
    graph = helper.make_graph(nodes, "net", ends[:2], ends[2:])
    path = tmp_path_factory.mktemp("onnx") / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


A, B = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((3, 4), np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["onnxruntime", "openvino"])
def test_an_engine_takes_and_gives_lists_of_arrays_or_tensors(model: Path, compiler: str) -> None:
    pytest.importorskip(compiler)
    engine = all_vendors()["cpu"].engines[compiler].make(config(), str(model), None)
    for size in (3, 2):  # the last batch of a set is smaller
        outputs, foo_s = engine([A[:size], B[:size]])
        assert [item.tolist() for item in outputs] == [(2 * A - B)[:size].tolist()]
        assert foo_s == 0
    if importlib.util.find_spec("torch"):
        torch = importlib.import_module("torch")
        [output], _ = engine([torch.from_numpy(A).T.contiguous().T, torch.from_numpy(B)])
        assert torch.is_tensor(output)
        assert output.tolist() == (2 * A - B).tolist()
    effective: dict[str, str] = engine.effective()  # type: ignore[attr-defined]
    assert effective["threads"] == "1"


def test_a_file_of_another_format_is_refused(model: Path) -> None:
    with pytest.raises(TaskFailure, match=r"megengine reads \.mge files, and the case has exported net\.onnx"):
        all_vendors()["cpu"].engines["megengine"].make(config(), str(model), None)


@pytest.mark.parametrize("compiler", ["torch", pytest.param("inductor", marks=INDUCTOR)])
def test_pytorch_runs_the_model_of_the_case(compiler: str) -> None:
    torch = pytest.importorskip("torch")
    engine = all_vendors()["cpu"].engines[compiler]
    assert not engine.onnx
    layer = torch.nn.Linear(4, 2)
    engine_model = engine.make(config(threads=0), "", layer)
    [output], foo_s = engine_model([torch.from_numpy(A)])
    assert output.numpy() == pytest.approx(layer(torch.from_numpy(A)).numpy(), rel=1e-5)
    assert (foo_s > 0) == (compiler == "inductor")
    assert engine_model([torch.from_numpy(A)])[1] == 0
    engine_model._session.close()  # type: ignore[attr-defined]
    with pytest.raises(TaskFailure, match="create_model returned none"):
        engine.make(config(), "", None)


class SlowAtNewSizes(Session):
    """Compiles for 20 ms whenever a size comes first, as TensorRT does."""

    def __init__(self) -> None:
        self.sizes = set[tuple[int, ...]]()
        self.runs = 0

    def infer(self, prepared: Any) -> Any:
        if prepared["0"].shape not in self.sizes:
            self.sizes.add(prepared["0"].shape)
            time.sleep(0.02)
        self.runs += 1
        return [prepared["0"] + 1]


def test_compiling_a_new_size_does_not_count_as_inference() -> None:
    session = SlowAtNewSizes()
    engine = BackendModel(session, {}, compiles=True)
    took = [engine([A[:size]])[1] for size in (3, 3, 2, 3)]
    assert [foo_s >= 0.02 for foo_s in took] == [True, False, True, False]
    assert took[1] == took[3] == 0
    assert session.runs == 6, "two runs more, one for each size"


def test_a_key_named_as_an_option_of_the_backend_is_that_option() -> None:
    spec = engine_spec(config(optimization="basic", fp16=True, threads=2, hint="latency"), "onnxruntime", "cuda:0")
    assert (spec.options, spec.precision, spec.threads) == ({"optimization": "basic"}, "f16", 2)
    assert engine_spec(config(threads=0, hint="latency"), "openvino", "cpu").options == {"hint": "latency"}


# In the form of FlagPerf's own: pycuda, trtexec and the bindings that TensorRT 10 has no more.
OLD_ENGINE = """
import os
import subprocess
import tensorrt as trt
import pycuda.driver as cuda
from tools import torch_sync
from loguru import logger
import torch

class InferModel:
    def __init__(self, config, onnx_path, model):
        subprocess.Popen("trtexec --onnx=" + onnx_path, shell=True)
        self.shapes = [self.engine.get_binding_shape(i) for i in range(self.engine.num_bindings)]
"""


def test_the_requirements_of_an_engine_file_are_read_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tensorrt.py"
    file.write_text(OLD_ENGINE)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert engine_requirements(file) == ("pycuda", "tensorrt<10", "torch", "trtexec")
    assert next(iter(missing_requirements(["tensorrt<10"])), "").startswith("tensorrt <10")
    file.write_text("import cv2\nfrom sklearn.metrics import f1_score\nfrom .other import thing\n")
    assert engine_requirements(file) == ("opencv-python", "scikit-learn")
    file.write_text("print 2")
    with pytest.raises(TaskFailure, match=r"tensorrt\.py: .*; the file must be Python 3|tensorrt\.py"):
        engine_requirements(file)


def test_a_peak_is_that_of_the_fastest_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "numpy" or None)
    monkeypatch.setattr(peaks, "MAX_DURATION_S", 0.0)
    clock = iter([0.0, 4.0, 10.0, 12.0])  # of two runs, 4 s and 2 s
    monkeypatch.setattr(peaks.time, "perf_counter", lambda: next(clock))
    peak = peaks.measure_peak("fp32", side=10)
    assert peak is not None
    assert (peak.flops, peak.source) == (2 * 10**3 / 2, "measured")
    assert peaks.measure_peak("fp16", side=10) is None, "numpy has no product of half precision"
    assert peaks.measure_peak("fp32", "cuda:0") is None
