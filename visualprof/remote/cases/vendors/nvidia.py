"""NVIDIA's GPUs."""

from __future__ import annotations

from visualprof.messages import msg
from visualprof.remote.cases import Vendor
from visualprof.remote.cases.cuda import DEVICE, device_name, peak, synchronize
from visualprof.remote.cases.engines import of_backend, of_torch

VENDOR = Vendor(
    name="nvidia",
    title=msg("cases.nvidia_gpu", "NVIDIA GPU"),
    device="cuda",
    engines={
        "tensorrt": of_backend("tensorrt", DEVICE, ("tensorrt>=10", "cuda-python", "onnx"), compiles=True),
        "onnxruntime": of_backend("onnxruntime", DEVICE, ("onnxruntime-gpu>=1.17", "onnx")),
        "torch": of_torch(DEVICE, compiled=False),
        "inductor": of_torch(DEVICE, compiled=True),
        "megengine": of_backend("megengine", DEVICE, ("megengine>=1.13",), ".mge"),
    },
    synchronize=synchronize,
    device_name=device_name,
    peak=peak,
    monitor="visualprof.remote.agent.machine.nvml:Nvml",
    visible="CUDA_VISIBLE_DEVICES",
)
