"""Energy of what a spec runs on: of the processors by their own counters, of an NVIDIA GPU by its driver's."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Protocol

from visualprof.remote.child.rapl import Rapl

NVML = "libnvidia-ml.so.1"


class EnergyMeter(Protocol):
    """What counts joules."""

    def used_j(self) -> float | None:
        """Joules since the last call; None the first time, and where it keeps silent."""
        ...


@dataclass
class GpuMeter:
    """The counter of a GPU. number: that of NVML, which counts by the PCI bus."""

    number: int
    before: int | None = None

    def used_j(self) -> float | None:
        """Joules since the last call."""
        before, self.before = self.before, _millijoules(self.number)
        return None if before is None or self.before is None else (self.before - before) / 1e3


def energy_meter(device: str) -> EnergyMeter:
    """That of a spec's device: the processors with `cpu`."""
    kind, _, number = device.partition(":")
    return GpuMeter(int(number or 0)) if kind == "cuda" else Rapl()


def _millijoules(number: int) -> int | None:
    """Of a GPU since its driver was loaded; None where there is no such driver, or it does not tell."""
    try:
        nvml: Any = ctypes.CDLL(NVML)
        handle, energy = ctypes.c_void_p(), ctypes.c_ulonglong()
        failed = nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle))
        failed = failed or nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(energy))
    except (OSError, AttributeError):
        return None
    return None if failed else energy.value
