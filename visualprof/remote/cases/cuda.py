"""A GPU that PyTorch calls cuda: GPUs of NVIDIA, and of AMD with ROCm."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from visualprof.messages import msg
from visualprof.peaks import find_peak
from visualprof.remote.cases import Peak
from visualprof.remote.cases.peaks import DEVICE_MATRIX_SIZE, measure_peak

DEVICE = "cuda:0"  # the only device that a case sees


def synchronize() -> None:
    """Wait for the work of PyTorch and MegEngine; other engines wait themselves."""
    if torch := sys.modules.get("torch"):
        torch.cuda.synchronize()
    if megengine := sys.modules.get("megengine"):
        megengine._full_sync()  # noqa: SLF001 - no public function does it


def device_name() -> str:
    """Return the device name from PyTorch, "" without PyTorch."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return ""
    return str(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else ""


def peak(precision: str) -> Peak | None:
    """Return the datasheet's peak (fp32 without TF32), otherwise a measured peak; `None` without PyTorch."""
    if not (name := device_name()):
        return None
    torch: Any = importlib.import_module("torch")
    device = torch.cuda.get_device_properties(0)
    if datasheet := find_peak(name, device.total_memory, device.multi_processor_count):
        return Peak(datasheet.flops[precision], msg("cases.mhz", f"{datasheet.source} at {datasheet.mhz} MHz"))
    return measure_peak(precision, DEVICE, DEVICE_MATRIX_SIZE)
