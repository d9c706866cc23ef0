"""GPUs by NVML. Every reading may be missing: old drivers lack functions, boards lack sensors."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection
from itertools import takewhile
from typing import Any

from visualprof.remote.protocol import Gpu

# nvmlClocksEventReasons*; those of idle clocks and of somebody's settings do not slow a run down.
REASONS = {0x04: "power cap", 0x08: "hw slowdown", 0x20: "sw thermal", 0x40: "hw thermal", 0x80: "hw power brake"}


class Nvml:
    """The GPUs of this machine, none where NVML or a driver is missing. module: pynvml, or what stands in for it.

    problem: why there are none.
    """

    def __init__(self, module: Any = None) -> None:
        self._handles: list[Any] = []
        self.problem = ""
        try:
            self._nvml = module or importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            self._handles = [self._part(self._nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(count)]
        except Exception as error:  # noqa: BLE001 - pynvml's errors share no class with a missing module's
            self.problem = f"{type(error).__name__}: {error}"

    def gpus(self) -> list[Gpu]:
        """The GPUs that CUDA_VISIBLE_DEVICES leaves visible, in CUDA's numbering."""
        return [self._gpu(f"cuda:{i}", handle) for i, handle in enumerate(self._visible())]

    def uuid(self, device: str) -> str | None:
        """The UUID of "cuda:0"."""
        handle = self._handle(device)
        return None if handle is None else _text(self._ask("nvmlDeviceGetUUID", handle))

    def sample(self, device: str, pids: Collection[int] = ()) -> dict[str, Any]:
        """A GPU's utilization, clocks, memory, power, temperature and throttling, None where not known.

        Args:
            pids: processes whose share is told apart: `own_memory_bytes`, `own_util`, and how many `others` compute on
                the GPU. They are absent where the driver does not know these processes, as it does in a container.
        """
        handle = self._handle(device)
        util = self._ask("nvmlDeviceGetUtilizationRates", handle)  # first: the replay library steps with it
        power = self._ask("nvmlDeviceGetPowerUsage", handle)
        return {
            "util": None if util is None else util.gpu / 100,
            "mem_util": None if util is None else util.memory / 100,
            "sm_mhz": self._ask("nvmlDeviceGetClockInfo", handle, 1),  # NVML_CLOCK_SM
            "mem_mhz": self._ask("nvmlDeviceGetClockInfo", handle, 2),  # NVML_CLOCK_MEM
            "memory_bytes": getattr(self._ask("nvmlDeviceGetMemoryInfo", handle), "used", None),
            "power_w": None if power is None else power / 1000,
            "temperature_c": self._ask("nvmlDeviceGetTemperature", handle, 0),  # NVML_TEMPERATURE_GPU
            "throttle": self._throttle(handle),
            **(self._own(handle, set(pids)) if pids else {}),
        }

    def _own(self, handle: Any, pids: set[int]) -> dict[str, Any]:
        running: list[Any] = self._ask("nvmlDeviceGetComputeRunningProcesses", handle) or []
        own = [one.usedGpuMemory for one in running if one.pid in pids]
        rows: list[Any] = self._ask("nvmlDeviceGetProcessUtilization", handle, 0) or []
        shares = [row.smUtil / 100 for row in _newest(rows) if row.pid in pids]
        told = {"own_util": min(1.0, sum(shares))} if shares else {}
        if own:
            told["others"] = len(running) - len(own)
            told |= {} if None in own else {"own_memory_bytes": sum(own)}
        return told

    def _throttle(self, handle: Any) -> list[str] | None:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:  # its name before driver 535
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return None if bits is None else [name for bit, name in REASONS.items() if bits & bit]

    def _gpu(self, device: str, handle: Any) -> Gpu:
        name = _text(self._ask("nvmlDeviceGetName", handle)) or "GPU"
        memory = getattr(self._ask("nvmlDeviceGetMemoryInfo", handle), "total", 0)
        return Gpu(device, name, int(memory), _text(self._ask("nvmlSystemGetDriverVersion")) or "")

    def _visible(self) -> list[Any]:
        """Handle in CUDA's order. A list that names something unknown ends there, as in CUDA itself."""
        listed = os.environ.get("CUDA_VISIBLE_DEVICES")
        if listed is None:
            return self._handles
        handles = (self._handle_of(name.strip()) for name in listed.split(","))
        return list(takewhile(lambda handle: handle is not None, handles))

    def _part(self, handle: Any) -> Any:
        """The first instance of a GPU that MIG divides, the only one that CUDA shows unless told; else the GPU."""
        if not (self._ask("nvmlDeviceGetMigMode", handle) or [0])[0]:
            return handle
        most: int = self._ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
        parts = (self._ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, i) for i in range(most))
        return next((part for part in parts if part is not None), handle)

    def _handle_of(self, name: str) -> Any:
        if name.startswith("MIG-"):
            return self._ask("nvmlDeviceGetHandleByUUID", name)
        if name.isdecimal():
            return self._handles[int(name)] if int(name) < len(self._handles) else None
        uuids = [(_text(self._ask("nvmlDeviceGetUUID", handle)) or "", handle) for handle in self._handles]
        return next((handle for uuid, handle in uuids if name and uuid.startswith(name)), None)

    def _handle(self, device: str) -> Any:
        visible = self._visible()
        number = device.removeprefix("cuda:") if device != "cuda" else "0"
        return visible[int(number)] if number.isdecimal() and int(number) < len(visible) else None

    def _ask(self, function: str, *arguments: Any) -> Any:
        if arguments and arguments[0] is None:
            return None
        try:
            call: Callable[..., Any] = getattr(self._nvml, function)
            return call(*arguments)
        except Exception:  # noqa: BLE001 - NotSupported, FunctionNotFound, GpuIsLost, ...: the reading is missing
            return None


def _newest(rows: list[Any]) -> list[Any]:
    """The last sample of each process; the driver gives those of some seconds."""
    return list({row.pid: row for row in sorted(rows, key=lambda row: row.timeStamp)}.values())


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
