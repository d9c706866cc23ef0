"""Energy of the device of a run: of a CPU from its own counters, of an NVIDIA GPU from its driver."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Protocol

from visualprof.remote.child.rapl import Rapl

NVML = "libnvidia-ml.so.1"


class EnergyMeter(Protocol):
    """A counter of energy."""

    def used_j(self) -> float | None:
        """Return the energy since the last call, in joules; `None` on the first call and if it cannot be read."""
        ...


@dataclass
class GpuMeter:
    """The energy counter of an NVIDIA GPU.

    Attributes:
        number: Index of the GPU in NVML, which orders GPUs by their PCI bus.
        last_mj: The last reading, in millijoules; `None` before the first one.
    """

    number: int
    last_mj: int | None = None

    def used_j(self) -> float | None:
        """Return the energy since the last call, in joules."""
        last_mj, self.last_mj = self.last_mj, _millijoules(self.number)
        return None if last_mj is None or self.last_mj is None else (self.last_mj - last_mj) / 1e3


def energy_meter(device: str) -> EnergyMeter:
    """Return the meter of a device: the processors for `cpu`."""
    kind, _, number = device.partition(":")
    return GpuMeter(int(number or 0)) if kind == "cuda" else Rapl()


def _millijoules(number: int) -> int | None:
    """Return the energy of a GPU since its driver was loaded; `None` without a driver or a counter."""
    try:
        nvml: Any = ctypes.CDLL(NVML)
        handle, energy = ctypes.c_void_p(), ctypes.c_ulonglong()
        failed = nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle))
        failed = failed or nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(energy))
    except (OSError, AttributeError):
        return None
    return None if failed else energy.value
