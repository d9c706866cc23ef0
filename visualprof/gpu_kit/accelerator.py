"""The accelerator that the kit runs on, through PyTorch: CUDA and ROCm, Intel XPU, Ascend NPU, or the CPU."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from visualprof.gpu_kit import Skip

KINDS = ("cuda", "xpu", "npu", "cpu")
PLUGINS = {"npu": "torch_npu"}  # modules that add the kind to PyTorch


class Accelerator:
    """A device of PyTorch.

    Args:
        kind: An element of `KINDS`. "cpu" tests the kit itself on a machine without an accelerator.

    Raises:
        Skip: PyTorch or the device is missing.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        if not importlib.util.find_spec("torch"):
            raise Skip("PyTorch is not installed", "pip install torch")
        if (plugin := PLUGINS.get(kind)) and importlib.util.find_spec(plugin):
            importlib.import_module(plugin)
        self.torch: Any = importlib.import_module("torch")
        self._module: Any = None if kind == "cpu" else getattr(self.torch, kind, None)
        if kind != "cpu" and (self._module is None or not self._module.is_available()):
            raise Skip(f"PyTorch {self.torch.__version__} finds no device of the kind {kind}")

    @property
    def is_device(self) -> bool:
        """Whether this is an accelerator, not the CPU."""
        return self._module is not None

    @property
    def job_device(self) -> str:
        """The device as jobs name it: "cpu" or "cuda:0"."""
        return f"{self.kind}:0" if self.is_device else self.kind

    @property
    def name(self) -> str:
        """Name of the device as its driver gives it; "cpu" for the CPU."""
        return "cpu" if self._module is None else str(self._module.get_device_name(0))

    def synchronize(self) -> None:
        """Wait for all work of the device."""
        if self._module is not None:
            self._module.synchronize()

    def reset_peak_memory(self) -> None:
        """Start a new measurement of `peak_memory_bytes`."""
        if self._module is not None:
            self._module.reset_peak_memory_stats()

    def peak_memory_bytes(self) -> int | None:
        """Return the largest allocated size since the reset; None on the CPU, which has no counter."""
        return None if self._module is None else int(self._module.max_memory_allocated())

    def free_memory(self) -> None:
        """Return cached memory to the driver."""
        if self._module is not None:
            self._module.empty_cache()

    def median_ms(self, call: Callable[[], object], repeats: int = 20, warmup: int = 5) -> float:
        """Return the median duration in ms of a call and its device work, by CUDA events or else by the clock."""
        for _ in range(warmup):
            call()
        self.synchronize()
        return median(self._call_ms(call) for _ in range(repeats))

    def alternating_ms(self, calls: Sequence[Callable[[], object]], repeats: int, warmup: int) -> list[float]:
        """Return the duration in ms of each call where it was disturbed least (10 % quantile). The calls take turns."""
        for call in calls:
            for _ in range(warmup):
                call()
        self.synchronize()
        rounds = [[self._call_ms(call) for call in calls] for _ in range(repeats)]
        return [sorted(times)[repeats // 10] for times in zip(*rounds, strict=True)]

    def _call_ms(self, call: Callable[[], object]) -> float:
        if self.kind != "cuda":
            start = time.perf_counter()
            call()
            self.synchronize()
            return (time.perf_counter() - start) * 1e3
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))
