"""A GPU that PyTorch calls cuda: those of NVIDIA and, by ROCm, of AMD."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from visualprof.messages import msg
from visualprof.peaks import find_peak
from visualprof.remote.cases import Peak
from visualprof.remote.cases.peaks import DEVICE_MATRIX_SIZE, measure_peak

DEVICE = "cuda:0"  # the only one that a case sees


def synchronize() -> None:
    """Waits for what PyTorch or MegEngine has started; the other engines wait by themselves."""
    if torch := sys.modules.get("torch"):
        torch.cuda.synchronize()
    if megengine := sys.modules.get("megengine"):
        megengine._full_sync()  # noqa: SLF001 - its only way


def device_name() -> str:
    """The name by PyTorch, "" without it."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return ""
    return str(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else ""


def peak(precision: str) -> Peak | None:
    """As its maker says, f32 without TF32; else the best of its multiplications. None without PyTorch."""
    if not (name := device_name()):
        return None
    torch: Any = importlib.import_module("torch")
    device = torch.cuda.get_device_properties(0)
    if known := find_peak(name, device.total_memory, device.multi_processor_count):
        return Peak(known.flops[precision], msg("cases.mhz", f"{known.source} at {known.mhz} MHz"))
    return measure_peak(precision, DEVICE, DEVICE_MATRIX_SIZE)
