"""Measure the peak performance of a device: the fastest of many multiplications of large matrices."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

from visualprof.remote.cases import Peak

CPU_MATRIX_SIZE = 1024  # of the matrices on a CPU
DEVICE_MATRIX_SIZE = 8192
MAX_DURATION_S = 0.8
TYPES = {"fp32": "float32", "fp16": "float16"}


def measure_peak(precision: str, device: str = "cpu", side: int = CPU_MATRIX_SIZE) -> Peak | None:
    """Return the operations per second of the fastest multiplication within 0.8 s, with PyTorch or else numpy.

    Args:
        precision: "fp32" or "fp16".
        device: Device of PyTorch.
        side: Rows and columns of the matrices.

    Returns:
        `None` without a library that multiplies in that precision.
    """
    if importlib.util.find_spec("torch"):
        multiply = _by_torch(precision, device, side)
    elif device == "cpu" and precision == "fp32" and importlib.util.find_spec("numpy"):
        np: Any = importlib.import_module("numpy")
        matrix = np.ones((side, side), np.float32)

        def multiply() -> object:
            return matrix @ matrix
    else:
        return None
    return Peak(2 * side**3 / _best_s(multiply), "measured")


def _by_torch(precision: str, device: str, side: int) -> Callable[[], object]:
    torch: Any = importlib.import_module("torch")
    matrix = torch.ones((side, side), dtype=getattr(torch, TYPES[precision]), device=device)

    def multiply() -> object:
        product = torch.mm(matrix, matrix)
        if device != "cpu":
            torch.cuda.synchronize()
        return product

    return multiply


def _best_s(multiply: Callable[[], object]) -> float:
    """Return the seconds of the fastest run except the first one, of at least two."""
    multiply()
    took: list[float] = []
    while len(took) < 2 or sum(took) + min(took) < MAX_DURATION_S:
        start = time.perf_counter()
        multiply()
        took.append(time.perf_counter() - start)
    return min(took)
