"""GPU readings from AMD SMI, a part of ROCm. Any reading may be missing; virtual machines have few readings."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection
from typing import Any

from visualprof.remote.protocol import Gpu

VISIBLE_VARIABLES = (
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
)  # HIP_VISIBLE_DEVICES indexes the devices that ROCR_VISIBLE_DEVICES leaves
MB = 1 << 20


class Rocm:
    """The GPUs of this machine; no GPUs if AMD SMI or a driver is missing.

    Args:
        module: The module `amdsmi`, or a substitute.

    Attributes:
        problem: Why there are no GPUs.
    """

    def __init__(self, module: Any = None) -> None:
        self._handles: list[Any] = []
        self.problem = ""
        try:
            self._smi = module or importlib.import_module("amdsmi")
            self._smi.amdsmi_init()
            self._handles = list(self._smi.amdsmi_get_processor_handles())
        except Exception as error:  # noqa: BLE001 - the errors of amdsmi and of a missing library share no class
            self.problem = f"{type(error).__name__}: {error}"

    def gpus(self) -> list[Gpu]:
        """Return the GPUs that ROCm's variables leave visible, in HIP's numbering, which PyTorch calls `cuda`."""
        return [self._gpu(f"cuda:{i}", handle) for i, handle in enumerate(self._visible_handles())]

    def uuid(self, device: str) -> str | None:
        """Return the UUID of a device such as "cuda:0"."""
        return self._call("amdsmi_get_gpu_device_uuid", self._handle(device))

    def sample(self, device: str, pids: Collection[int] = ()) -> dict[str, Any]:
        """Return the readings of `nvml.Nvml.sample`. Clocks are means over one second. `own_util` is unknown."""
        handle, smi = self._handle(device), getattr(self, "_smi", None)
        activity = self._call_fields("amdsmi_get_gpu_activity", handle)
        power = self._call_fields("amdsmi_get_power_info", handle)
        clocks = [
            self._call_fields("amdsmi_get_clock_info", handle, _enum_value(smi, "AmdSmiClkType", k))
            for k in ("GFX", "MEM")
        ]
        used = _number(self._call_fields("amdsmi_get_gpu_vram_usage", handle).get("vram_used"))
        heat = [
            _enum_value(smi, "AmdSmiTemperatureType", "HOTSPOT"),
            _enum_value(smi, "AmdSmiTemperatureMetric", "CURRENT"),
        ]
        watts = [_number(power.get(name)) for name in ("current_socket_power", "average_socket_power")]
        return {
            "util": _percent_to_ratio(activity.get("gfx_activity")),
            "mem_util": _percent_to_ratio(activity.get("umc_activity")),
            "sm_mhz": _number(clocks[0].get("clk", clocks[0].get("cur_clk"))),  # "cur_clk" before ROCm 6.2
            "mem_mhz": _number(clocks[1].get("clk", clocks[1].get("cur_clk"))),
            "memory_bytes": None if used is None else round(used * MB),
            "power_w": next((w for w in watts if w is not None), None),
            "temperature_c": _number(self._call("amdsmi_get_temp_metric", handle, *heat)),
            "throttle": None,
            **(self._process_readings(handle, set(pids)) if pids else {}),
        }

    def _process_readings(self, handle: Any, pids: set[int]) -> dict[str, Any]:
        running: list[Any] = self._call("amdsmi_get_gpu_process_list", handle) or []
        sizes = [
            _number((process.get("memory_usage") or {}).get("vram_mem"))
            for process in running
            if process.get("pid") in pids
        ]
        known_sizes = [size for size in sizes if size is not None]
        readings: dict[str, Any] = {"others": len(running) - len(sizes)} if sizes else {}
        return readings | (
            {"own_memory_bytes": sum(known_sizes)} if known_sizes and len(known_sizes) == len(sizes) else {}
        )

    def _gpu(self, device: str, handle: Any) -> Gpu:
        name = self._call_fields("amdsmi_get_gpu_asic_info", handle).get("market_name") or "GPU"
        total = _number(self._call_fields("amdsmi_get_gpu_vram_usage", handle).get("vram_total")) or 0
        driver = self._call_fields("amdsmi_get_gpu_driver_info", handle).get("driver_version") or ""
        return Gpu(device, str(name), round(total * MB), str(driver))

    def _visible_handles(self) -> list[Any]:
        """Return handles in HIP's order. A list with an unknown entry ends there, as in HIP itself."""
        handles = self._handles
        for variable in VISIBLE_VARIABLES:
            visible = os.environ.get(variable)
            if visible is not None:
                selected: list[Any] = []
                for name in visible.split(","):
                    if not name.strip().isdecimal() or int(name) >= len(handles):
                        break
                    selected.append(handles[int(name)])
                handles = selected
        return handles

    def _handle(self, device: str) -> Any:
        visible = self._visible_handles()
        number = device.removeprefix("cuda:") if device != "cuda" else "0"
        return visible[int(number)] if number.isdecimal() and int(number) < len(visible) else None

    def _call_fields(self, function: str, *arguments: Any) -> dict[str, Any]:
        return self._call(function, *arguments) or {}

    def _call(self, function: str, *arguments: Any) -> Any:
        if None in arguments:
            return None
        try:
            call: Callable[..., Any] = getattr(self._smi, function)
            return call(*arguments)
        except Exception:  # noqa: BLE001 - not supported, a lost GPU, an older library: the reading is missing
            return None


def _enum_value(smi: Any, family: str, name: str) -> Any:
    return getattr(getattr(smi, family, None), name, None)


def _number(value: Any) -> float | None:
    """Return a reading. AMD SMI reports a missing one as "N/A"."""
    return value if isinstance(value, int | float) else None


def _percent_to_ratio(value: Any) -> float | None:
    number = _number(value)
    return None if number is None else number / 100
