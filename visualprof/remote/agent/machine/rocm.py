"""GPUs by AMD SMI, which ROCm brings with it. Every reading may be missing: guests of a virtual machine have few."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection
from typing import Any

from visualprof.remote.protocol import Gpu

VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")  # the second counts among those that the first leaves
MB = 1 << 20


class Rocm:
    """The GPUs of this machine, none where AMD SMI or a driver is missing. module: amdsmi, or what stands in for it.

    problem: why there are none.
    """

    def __init__(self, module: Any = None) -> None:
        self._handles: list[Any] = []
        self.problem = ""
        try:
            self._smi = module or importlib.import_module("amdsmi")
            self._smi.amdsmi_init()
            self._handles = list(self._smi.amdsmi_get_processor_handles())
        except Exception as error:  # noqa: BLE001 - amdsmi's errors share no class with a missing library's
            self.problem = f"{type(error).__name__}: {error}"

    def gpus(self) -> list[Gpu]:
        """The GPUs that ROCm's variables leave visible, in HIP's numbering, which PyTorch calls cuda."""
        return [self._gpu(f"cuda:{i}", handle) for i, handle in enumerate(self._visible())]

    def uuid(self, device: str) -> str | None:
        """The UUID of "cuda:0"."""
        return self._ask("amdsmi_get_gpu_device_uuid", self._handle(device))

    def sample(self, device: str, pids: Collection[int] = ()) -> dict[str, Any]:
        """The readings of `nvml.Nvml.sample`; clocks are means of a second. `own_util` is not known."""
        handle, smi = self._handle(device), getattr(self, "_smi", None)
        activity = self._fields("amdsmi_get_gpu_activity", handle)
        power = self._fields("amdsmi_get_power_info", handle)
        clocks = [self._fields("amdsmi_get_clock_info", handle, _kind(smi, "AmdSmiClkType", k)) for k in ("GFX", "MEM")]
        used = _number(self._fields("amdsmi_get_gpu_vram_usage", handle).get("vram_used"))
        heat = [_kind(smi, "AmdSmiTemperatureType", "HOTSPOT"), _kind(smi, "AmdSmiTemperatureMetric", "CURRENT")]
        watts = [_number(power.get(name)) for name in ("current_socket_power", "average_socket_power")]
        return {
            "util": _share(activity.get("gfx_activity")),
            "mem_util": _share(activity.get("umc_activity")),
            "sm_mhz": _number(clocks[0].get("clk", clocks[0].get("cur_clk"))),  # its name before ROCm 6.2
            "mem_mhz": _number(clocks[1].get("clk", clocks[1].get("cur_clk"))),
            "memory_bytes": None if used is None else round(used * MB),
            "power_w": next((w for w in watts if w is not None), None),
            "temperature_c": _number(self._ask("amdsmi_get_temp_metric", handle, *heat)),
            "throttle": None,
            **(self._own(handle, set(pids)) if pids else {}),
        }

    def _own(self, handle: Any, pids: set[int]) -> dict[str, Any]:
        running: list[Any] = self._ask("amdsmi_get_gpu_process_list", handle) or []
        own = [_number((one.get("memory_usage") or {}).get("vram_mem")) for one in running if one.get("pid") in pids]
        known = [size for size in own if size is not None]
        told: dict[str, Any] = {"others": len(running) - len(own)} if own else {}
        return told | ({"own_memory_bytes": sum(known)} if known and len(known) == len(own) else {})

    def _gpu(self, device: str, handle: Any) -> Gpu:
        name = self._fields("amdsmi_get_gpu_asic_info", handle).get("market_name") or "GPU"
        total = _number(self._fields("amdsmi_get_gpu_vram_usage", handle).get("vram_total")) or 0
        driver = self._fields("amdsmi_get_gpu_driver_info", handle).get("driver_version") or ""
        return Gpu(device, str(name), round(total * MB), str(driver))

    def _visible(self) -> list[Any]:
        """Handle in HIP's order. A list that names something unknown ends there, as in HIP itself."""
        handles = self._handles
        for variable in VISIBLE:
            listed = os.environ.get(variable)
            if listed is not None:
                chosen: list[Any] = []
                for name in listed.split(","):
                    if not name.strip().isdecimal() or int(name) >= len(handles):
                        break
                    chosen.append(handles[int(name)])
                handles = chosen
        return handles

    def _handle(self, device: str) -> Any:
        visible = self._visible()
        number = device.removeprefix("cuda:") if device != "cuda" else "0"
        return visible[int(number)] if number.isdecimal() and int(number) < len(visible) else None

    def _fields(self, function: str, *arguments: Any) -> dict[str, Any]:
        return self._ask(function, *arguments) or {}

    def _ask(self, function: str, *arguments: Any) -> Any:
        if None in arguments:
            return None
        try:
            call: Callable[..., Any] = getattr(self._smi, function)
            return call(*arguments)
        except Exception:  # noqa: BLE001 - not supported, a lost GPU, an older library: the reading is missing
            return None


def _kind(smi: Any, family: str, name: str) -> Any:
    return getattr(getattr(smi, family, None), name, None)


def _number(value: Any) -> float | None:
    """A reading; what is not there is "N/A"."""
    return value if isinstance(value, int | float) else None


def _share(value: Any) -> float | None:
    number = _number(value)
    return None if number is None else number / 100
