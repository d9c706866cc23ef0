"""AMD GPUs with ROCm, whose PyTorch calls them cuda."""

from __future__ import annotations

from visualprof.messages import msg
from visualprof.remote.cases import Vendor
from visualprof.remote.cases.cuda import DEVICE, device_name, peak, synchronize
from visualprof.remote.cases.engines import torch_engine

VENDOR = Vendor(
    name="amd",
    title=msg("cases.amd_gpu", "AMD GPU"),
    device="cuda",
    engines={"torch": torch_engine(DEVICE, compiled=False), "inductor": torch_engine(DEVICE, compiled=True)},
    synchronize=synchronize,
    device_name=device_name,
    peak=peak,
    monitor="visualprof.remote.agent.machine.rocm:Rocm",
    visible="HIP_VISIBLE_DEVICES",
)
