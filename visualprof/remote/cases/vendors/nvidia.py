"""NVIDIA GPUs."""

from __future__ import annotations

from visualprof.messages import msg
from visualprof.remote.cases import Vendor
from visualprof.remote.cases.cuda import DEVICE, device_name, peak, synchronize
from visualprof.remote.cases.engines import backend_engine, torch_engine

VENDOR = Vendor(
    name="nvidia",
    title=msg("cases.nvidia_gpu", "NVIDIA GPU"),
    device="cuda",
    engines={
        "tensorrt": backend_engine("tensorrt", DEVICE, ("tensorrt>=10", "cuda-python", "onnx"), compiles=True),
        "onnxruntime": backend_engine("onnxruntime", DEVICE, ("onnxruntime-gpu>=1.17", "onnx")),
        "torch": torch_engine(DEVICE, compiled=False),
        "inductor": torch_engine(DEVICE, compiled=True),
        "megengine": backend_engine("megengine", DEVICE, ("megengine>=1.13",), ".mge"),
    },
    synchronize=synchronize,
    device_name=device_name,
    peak=peak,
    monitor="visualprof.remote.agent.machine.nvml:Nvml",
    visible="CUDA_VISIBLE_DEVICES",
)
