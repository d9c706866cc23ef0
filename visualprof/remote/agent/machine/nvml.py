"""GPU readings from NVML. Any reading may be missing: old drivers lack functions, boards lack sensors."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection
from itertools import takewhile
from typing import Any

from visualprof.remote.protocol import Gpu

# nvmlClocksEventReasons*, without idle clocks and application settings, which do not slow a run down.
THROTTLE_REASONS = {
    0x04: "power cap",
    0x08: "hw slowdown",
    0x20: "sw thermal",
    0x40: "hw thermal",
    0x80: "hw power brake",
}


class Nvml:
    """The GPUs of this machine; no GPUs if NVML or a driver is missing.

    Args:
        module: The module `pynvml`, or a substitute.

    Attributes:
        problem: Why there are no GPUs.
    """

    def __init__(self, module: Any = None) -> None:
        self._handles: list[Any] = []
        self.problem = ""
        try:
            self._nvml = module or importlib.import_module("pynvml")
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            self._handles = [self._first_mig_instance(self._nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(count)]
        except Exception as error:  # noqa: BLE001 - the errors of pynvml and of a missing module share no class
            self.problem = f"{type(error).__name__}: {error}"

    def gpus(self) -> list[Gpu]:
        """Return the GPUs that CUDA_VISIBLE_DEVICES leaves visible, in CUDA's numbering."""
        return [self._gpu(f"cuda:{i}", handle) for i, handle in enumerate(self._visible_handles())]

    def uuid(self, device: str) -> str | None:
        """Return the UUID of a device such as "cuda:0"."""
        handle = self._handle(device)
        return None if handle is None else _text(self._call("nvmlDeviceGetUUID", handle))

    def sample(self, device: str, pids: Collection[int] = ()) -> dict[str, Any]:
        """Return a GPU's utilization, clocks, memory, power, temperature and throttling; `None` where unknown.

        Args:
            device: The GPU, such as "cuda:0".
            pids: Processes with a separate share: `own_memory_bytes`, `own_util`, and the number of `others` that
                compute on the GPU. These keys are absent if the driver does not know the processes, as in a container.
        """
        handle = self._handle(device)
        # The first call, because the tests' replay library advances with it.
        util = self._call("nvmlDeviceGetUtilizationRates", handle)
        power = self._call("nvmlDeviceGetPowerUsage", handle)
        return {
            "util": None if util is None else util.gpu / 100,
            "mem_util": None if util is None else util.memory / 100,
            "sm_mhz": self._call("nvmlDeviceGetClockInfo", handle, 1),  # NVML_CLOCK_SM
            "mem_mhz": self._call("nvmlDeviceGetClockInfo", handle, 2),  # NVML_CLOCK_MEM
            "memory_bytes": getattr(self._call("nvmlDeviceGetMemoryInfo", handle), "used", None),
            "power_w": None if power is None else power / 1000,
            "temperature_c": self._call("nvmlDeviceGetTemperature", handle, 0),  # NVML_TEMPERATURE_GPU
            "throttle": self._throttle(handle),
            **(self._process_readings(handle, set(pids)) if pids else {}),
        }

    def _process_readings(self, handle: Any, pids: set[int]) -> dict[str, Any]:
        running: list[Any] = self._call("nvmlDeviceGetComputeRunningProcesses", handle) or []
        sizes = [process.usedGpuMemory for process in running if process.pid in pids]
        rows: list[Any] = self._call("nvmlDeviceGetProcessUtilization", handle, 0) or []
        shares = [row.smUtil / 100 for row in _newest(rows) if row.pid in pids]
        readings = {"own_util": min(1.0, sum(shares))} if shares else {}
        if sizes:
            readings["others"] = len(running) - len(sizes)
            readings |= {} if None in sizes else {"own_memory_bytes": sum(sizes)}
        return readings

    def _throttle(self, handle: Any) -> list[str] | None:
        bits = self._call("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:  # drivers before 535
            bits = self._call("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return None if bits is None else [name for bit, name in THROTTLE_REASONS.items() if bits & bit]

    def _gpu(self, device: str, handle: Any) -> Gpu:
        name = _text(self._call("nvmlDeviceGetName", handle)) or "GPU"
        memory = getattr(self._call("nvmlDeviceGetMemoryInfo", handle), "total", 0)
        return Gpu(device, name, int(memory), _text(self._call("nvmlSystemGetDriverVersion")) or "")

    def _visible_handles(self) -> list[Any]:
        """Return handles in CUDA's order. A list with an unknown entry ends there, as in CUDA itself."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            return self._handles
        handles = (self._find_handle(name.strip()) for name in visible.split(","))
        return list(takewhile(lambda handle: handle is not None, handles))

    def _first_mig_instance(self, handle: Any) -> Any:
        """Return the first MIG instance of a divided GPU (CUDA shows only this one by default); otherwise the GPU."""
        if not (self._call("nvmlDeviceGetMigMode", handle) or [0])[0]:
            return handle
        count: int = self._call("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
        instances = (self._call("nvmlDeviceGetMigDeviceHandleByIndex", handle, i) for i in range(count))
        return next((instance for instance in instances if instance is not None), handle)

    def _find_handle(self, name: str) -> Any:
        if name.startswith("MIG-"):
            return self._call("nvmlDeviceGetHandleByUUID", name)
        if name.isdecimal():
            return self._handles[int(name)] if int(name) < len(self._handles) else None
        uuids = [(_text(self._call("nvmlDeviceGetUUID", handle)) or "", handle) for handle in self._handles]
        return next((handle for uuid, handle in uuids if name and uuid.startswith(name)), None)

    def _handle(self, device: str) -> Any:
        visible = self._visible_handles()
        number = device.removeprefix("cuda:") if device != "cuda" else "0"
        return visible[int(number)] if number.isdecimal() and int(number) < len(visible) else None

    def _call(self, function: str, *arguments: Any) -> Any:
        if arguments and arguments[0] is None:
            return None
        try:
            call: Callable[..., Any] = getattr(self._nvml, function)
            return call(*arguments)
        except Exception:  # noqa: BLE001 - NotSupported, FunctionNotFound, GpuIsLost, ...: the reading is missing
            return None


def _newest(rows: list[Any]) -> list[Any]:
    """Return the last sample of each process. The driver returns several seconds of samples."""
    return list({row.pid: row for row in sorted(rows, key=lambda row: row.timeStamp)}.values())


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
