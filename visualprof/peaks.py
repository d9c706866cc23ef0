"""Peak rates of devices: matrix products by type, all other operations, and memory bandwidth.

A peak is units x clock x operations per clock and unit, as the manufacturers compute it; their numbers for sparse
matrices are twice as high. Only devices with a known datasheet are listed; others have no roofline.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple


class Units(NamedTuple):
    """Operations per clock of one kind of multiprocessor.

    `products` by type, and `other` for fp32 outside of matrix products.
    """

    products: Mapping[str, int]
    other: int


class DeviceModel(NamedTuple):
    """A device.

    Attributes:
        names: Pattern of its names.
        units: Kind of its multiprocessors.
        multiprocessors: Their number.
        mhz: Clock of matrix products.
        other_mhz: Clock of other operations.
        gb_s: Memory bandwidth in 10^9 bytes per second.
        source: Source of the numbers.
        min_gb: Memory that distinguishes it from a smaller device of the same name.
    """

    names: str
    units: Units
    multiprocessors: int
    mhz: int
    other_mhz: int
    gb_s: float
    source: str
    min_gb: int = 0  # distinguishes it from a smaller device of the same name


class Peak(NamedTuple):
    """Peak rates of a device.

    Attributes:
        flops: FLO/s of matrix products by type.
        other: FLO/s of all other operations, NaN if unknown.
        bandwidth: Memory bandwidth in bytes per second, `None` if unknown.
        units: Number of multiprocessors.
        mhz: Clock of matrix products.
        source: Source of the numbers.
    """

    flops: Mapping[str, float]
    other: float
    bandwidth: float | None
    units: int
    mhz: int
    source: str


def _tensor_core_units(fp16: int, tf32: int, fp32: int, **other_types: int) -> Units:
    return Units({"fp16": fp16, "bf16": fp16, "tf32": tf32, "fp32": fp32, **other_types}, fp32)


VOLTA = Units({"fp16": 1024, "fp32": 128, "fp64": 64}, 128)
TURING = Units({"fp16": 1024, "fp32": 128, "int8": 2048}, 128)
A100 = _tensor_core_units(2048, 1024, 128, fp64=128, int8=4096)
AMPERE, AMPERE_PRO = _tensor_core_units(512, 256, 256, int8=2048), _tensor_core_units(1024, 512, 256, int8=2048)
HOPPER = _tensor_core_units(4096, 2048, 256, fp64=256, fp8=8192, int8=8192)
BLACKWELL = _tensor_core_units(8192, 4096, 256, fp8=16384, fp4=32768)
ADA, ADA_PRO = _tensor_core_units(512, 256, 256, fp8=1024), _tensor_core_units(1024, 512, 256, fp8=2048, int8=2048)
CDNA2 = Units({"fp16": 1024, "bf16": 1024, "fp32": 256, "fp64": 256, "int8": 1024}, 128)
CDNA3 = _tensor_core_units(2048, 1024, 256, fp64=256, fp8=4096, int8=4096)
CDNA4 = Units({"fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192, "fp4": 16384, "fp32": 256, "fp64": 128}, 256)
VECTOR_TYPES = ("fp32", "fp64")  # at the clock of other operations
DATASHEET, WHITEPAPER, CYCLES = "datasheet", "architecture", "cycles"


def _device(
    name: str, units: Units, count: int, mhz: int | tuple[int, int], gb_s: float, source: str, *, min_gb: int = 0
) -> DeviceModel:
    products, other = mhz if isinstance(mhz, tuple) else (mhz, mhz)
    return DeviceModel(
        names=rf"\b(?:{name})\b",
        units=units,
        multiprocessors=count,
        mhz=products,
        other_mhz=other,
        gb_s=gb_s,
        source=source,
        min_gb=min_gb,
    )


# The first matching row wins.
DEVICE_MODELS = (
    _device("V100S-PCIE", VOLTA, 80, 1597, 1134, DATASHEET),
    _device("V100-PCIE", VOLTA, 80, 1380, 900, DATASHEET),
    _device("V100-(?:SXM2|SXM3|DGXS)", VOLTA, 80, 1530, 900, DATASHEET),
    _device("T4", TURING, 40, 1590, 320, DATASHEET),
    _device("A[18]00.*PCIe", A100, 108, 1410, 1935, DATASHEET, min_gb=60),
    _device("A[18]00", A100, 108, 1410, 2039, DATASHEET, min_gb=60),
    _device("A100", A100, 108, 1410, 1555, DATASHEET),
    _device("A30", A100, 56, 1440, 933, DATASHEET),
    _device("A10", AMPERE_PRO, 72, 1695, 600, DATASHEET),
    _device("A40", AMPERE_PRO, 84, 1740, 696, DATASHEET),
    _device("RTX A6000", AMPERE_PRO, 84, 1800, 768, DATASHEET),
    _device("RTX 3090 Ti$", AMPERE, 84, 1860, 1008, WHITEPAPER),
    _device("RTX 3090$", AMPERE, 82, 1695, 936, WHITEPAPER),
    _device("RTX 3070$", AMPERE, 46, 1725, 448, WHITEPAPER),
    _device("H200$", HOPPER, 132, (1830, 1980), 4800, DATASHEET),
    _device("H100 PCIe", HOPPER, 114, (1620, 1755), 2039, WHITEPAPER),
    _device("H100 80GB HBM3", HOPPER, 132, (1830, 1980), 3350, WHITEPAPER),
    _device("B200", BLACKWELL, 148, (1856, 1965), 8000, DATASHEET),
    _device("L4$", ADA_PRO, 58, 2040, 300, DATASHEET),
    _device("L40S", ADA_PRO, 142, 2520, 864, DATASHEET),
    _device("RTX 6000 Ada Generation", ADA_PRO, 142, 2505, 960, DATASHEET),
    _device("RTX 4090$", ADA, 128, 2520, 1008, WHITEPAPER),
    _device("RTX 4080$", ADA, 76, 2505, 716.8, WHITEPAPER),
    _device("RTX 5090$", ADA, 170, 2407, 1792, WHITEPAPER),
    _device("RTX 5080$", ADA, 84, 2617, 960, WHITEPAPER),
    _device("MI210", CDNA2, 104, 1700, 1638, DATASHEET),
    _device("MI250X", CDNA2, 110, 1700, 1638, DATASHEET),
    _device("MI250", CDNA2, 104, 1700, 1638, DATASHEET),
    _device("MI300X(?: VF)?", CDNA3, 304, 2100, 5300, DATASHEET),
    _device("MI325X(?: VF)?", CDNA3, 304, 2100, 6000, DATASHEET),
    _device("MI350X(?: VF)?", CDNA4, 256, 2200, 8000, DATASHEET),
    _device("MI355X(?: VF)?", CDNA4, 256, 2400, 8000, DATASHEET),
)


def find_peak(name: str, memory_bytes: int = 0, multiprocessors: int = 0) -> Peak | None:
    """Return the peak rates of a device by its name. A partition has the rates of its multiprocessors and no bandwidth.

    Args:
        name: Name of the device.
        memory_bytes: Memory of the device, 0 if unknown.
        multiprocessors: Number of multiprocessors, 0 if unknown.
    """
    candidates = (
        m for m in DEVICE_MODELS if re.search(m.names, name, re.IGNORECASE) and memory_bytes >= m.min_gb * 10**9
    )
    model = next(candidates, None)
    if model is None:
        return None
    count = multiprocessors or model.multiprocessors
    product_hz, other_hz = count * model.mhz * 1e6, count * model.other_mhz * 1e6
    return Peak(
        flops={
            type: operations * (other_hz if type in VECTOR_TYPES else product_hz)
            for type, operations in model.units.products.items()
        },
        other=model.units.other * other_hz,
        bandwidth=model.gb_s * 1e9 if count == model.multiprocessors else None,
        units=count,
        mhz=model.mhz,
        source=model.source,
    )


# Operations per clock and cube core of an Ascend NPU: 16 x 16 x 16 multiply-adds.
# Source: operator_mfu of msprof-analyze
CUBE_CORE_PRODUCTS = {"fp16": 8192, "bf16": 8192, "int8": 16384}


def cube_core_peak(cores: int, mhz: int) -> Peak | None:
    """Return the peak rates of an Ascend NPU by its cube cores and their clock; `None` if either is unknown.

    The rates of vector cores and of the memory do not follow from these, so they are unknown.
    """
    if cores <= 0 or mhz <= 0:
        return None
    rates = {type: operations * cores * mhz * 1e6 for type, operations in CUBE_CORE_PRODUCTS.items()}
    return Peak(flops=rates, other=math.nan, bandwidth=None, units=cores, mhz=mhz, source=CYCLES)


# Bandwidth to the other devices of a host, 10^9 bytes per second in one direction: half of the sum in the datasheets.
LINK_BANDWIDTHS = (
    (r"\bV100-SXM[23]\b", 150),
    (r"\bA100-SXM4?\b", 300),
    (r"\bA800-SXM4?\b", 200),
    (r"\bH800 ?(?!PCIe|NVL)", 200),
    (r"\bH(?:100|200)(?! ?(?:PCIe|NVL))\b", 450),
    (r"(?<!G)\bB[23]00\b", 900),
    (r"\bMI300X\b", 448),
)


def find_link_bandwidth(name: str) -> float | None:
    """Return the bytes per second that a device can send to other devices of its host, or `None`."""
    return next((gb_s * 1e9 for names, gb_s in LINK_BANDWIDTHS if re.search(names, name)), None)
