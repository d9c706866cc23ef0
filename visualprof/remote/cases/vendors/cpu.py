"""CPUs: engines that need no other device."""

from __future__ import annotations

import importlib
from typing import Any

from visualprof.remote.cases import Vendor
from visualprof.remote.cases.engines import backend_engine, torch_engine
from visualprof.remote.cases.peaks import measure_peak
from visualprof.remote.processor import cpu_name


def prepare(framework: str) -> None:
    """Make `.cuda()` of PyTorch do nothing, so that cases written for a GPU run."""
    if framework != "pytorch":
        return
    torch: Any = importlib.import_module("torch")

    def stay(self: Any, *_: Any, **__: Any) -> Any:
        return self

    def nothing(*_: Any, **__: Any) -> None:
        return None

    torch.Tensor.cuda = torch.nn.Module.cuda = stay
    torch.cuda.synchronize = nothing


VENDOR = Vendor(
    name="cpu",
    title="CPU",
    device="cpu",
    engines={
        "onnxruntime": backend_engine("onnxruntime", "cpu", ("onnxruntime>=1.17", "onnx")),
        "openvino": backend_engine("openvino", "cpu", ("openvino>=2024.0", "onnx")),
        "torch": torch_engine("cpu", compiled=False),
        "inductor": torch_engine("cpu", compiled=True),
        "megengine": backend_engine("megengine", "cpu", ("megengine>=1.13",), ".mge"),
        "litert": backend_engine("litert", "cpu", ("ai-edge-litert",), ".tflite"),
    },
    prepare=prepare,
    device_name=cpu_name,
    peak=measure_peak,
)
